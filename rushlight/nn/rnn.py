"""Recurrent networks over whole sequences: RNN, LSTM, GRU, in layers, in one direction or two."""

from __future__ import annotations

import math
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import ShapeError
from rushlight.nn import functional, init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.nn.utils.rnn import PackedSequence
from rushlight.ops.create import creation
from rushlight.ops.nn import recurrent, recurrent_layer
from rushlight.ops.nn.recurrent import Weights
from rushlight.ops.view import views
from rushlight.tensor import Tensor

_STEMS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class RNNBase(Module):
    """The base of recurrent layers: weights by layer and direction, sequences packed or not."""

    mode: str

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError(f"RNNBase: mode is one of {', '.join(_GATES)}, got {mode!r}")
        name = type(self).__name__
        if not 0 <= dropout <= 1:
            raise ValueError(f"{name}: dropout must lie between 0 and 1, got {dropout}")
        if hidden_size <= 0 or num_layers <= 0:
            raise ValueError(
                f"{name}: hidden_size and num_layers must be positive, got {hidden_size} and "
                f"{num_layers}"
            )
        if not 0 <= proj_size < hidden_size or (proj_size and mode != "LSTM"):
            raise ValueError(
                f"{name}: proj_size is of LSTM, and smaller than hidden_size, got {proj_size}"
            )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._make_weights(device, dtype)
        self.reset_parameters()

    def _make_weights(self, device: Any, dtype: DType | None) -> None:
        rows, shown = _GATES[self.mode] * self.hidden_size, self.proj_size or self.hidden_size
        for number in range(self.num_layers):
            width = self.input_size if number == 0 else shown * self._directions
            for suffix in self._suffixes(number):
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (rows, width),
                    "weight_hh": (rows, shown),
                }
                if self.bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if self.proj_size:
                    shapes["weight_hr"] = (self.proj_size, self.hidden_size)
                for name, shape in shapes.items():
                    setattr(
                        self,
                        name + suffix,
                        Parameter(creation.empty(shape, device=device, dtype=dtype)),
                    )

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, number: int) -> list[str]:
        return [f"_l{number}", f"_l{number}_reverse"][: self._directions]

    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of the weights, by layer and direction."""
        stems = [
            stem
            for stem, there in zip(
                _STEMS, (True, True, self.bias, self.bias, bool(self.proj_size)), strict=True
            )
            if there
        ]
        suffixes = [s for number in range(self.num_layers) for s in self._suffixes(number)]
        return [[stem + suffix for stem in stems] for suffix in suffixes]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    def _pytorch_attributes(self) -> dict[str, Any]:
        names = ("_all_weights", "_flat_weights_names", "_flat_weights")
        return {name: getattr(self, name) for name in names}

    def _weights(self, suffix: str) -> Weights:
        return Weights(*(getattr(self, stem + suffix, None) for stem in _STEMS))  # type: ignore[arg-type]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Has no effect: weights need not be contiguous here."""

    def _init_flat_weights(self) -> None:
        """Has no effect: weights are read by name."""

    # ---- states ----

    def _start(self, rows: Tensor, batch: int) -> tuple[Tensor, ...]:
        layers = self.num_layers * self._directions
        widths = [self.proj_size or self.hidden_size, self.hidden_size][
            : 2 if self.mode == "LSTM" else 1
        ]
        return tuple(
            creation.zeros(layers, batch, width, dtype=rows.dtype, device=rows.device)
            for width in widths
        )

    def _initial_states(
        self, hx: Any, input: Tensor, sizes: Tensor | None, order: Tensor | None, alone: bool
    ) -> tuple[Tensor, ...]:
        """The initial states, in the order of the packed sequences."""
        states: Any
        if hx is None:
            states = self._start(input, self.get_expected_hidden_size(input, sizes)[1])
        else:
            states = tuple(hx) if self.mode == "LSTM" else (hx,)
            if alone:
                states = tuple(v.unsqueeze(1) for v in states)
            if order is not None:
                states = tuple(v.index_select(1, order) for v in states)
        self.check_forward_args(input, states if self.mode == "LSTM" else states[0], sizes)
        return states

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Check an input, with a batch or packed, and its states; a class may override it."""
        self.check_input(input, batch_sizes)
        wanted = [self.get_expected_hidden_size(input, batch_sizes)]
        if self.mode == "LSTM":
            wanted.append(self.get_expected_cell_size(input, batch_sizes))
        given = hidden if self.mode == "LSTM" else (hidden,)
        for state, shape in zip(given, wanted, strict=True):
            self.check_hidden_size(state, shape)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        if input.ndim != (3 if batch_sizes is None else 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: input must be (time, batch, {self.input_size}), batch "
                f"first if so made, or (time, {self.input_size}), got {input._spec!r}"
            )

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """Layers and directions, batch, width of the hidden state."""
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.shape[0 if self.batch_first else 1]
        return self.num_layers * self._directions, batch, self.proj_size or self.hidden_size

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The same for the memory of an LSTM."""
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = ""
    ) -> None:
        if hx.shape != tuple(expected_hidden_size):
            raise ShapeError(
                msg.format(expected_hidden_size, list(hx.shape))
                if msg
                else f"{type(self).__name__}: the state must have the shape "
                f"{list(expected_hidden_size)} (layers, batch, width), got {hx._spec!r}"
            )

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The states in another order of the batch."""
        if permutation is None:
            return hx
        if self.mode == "LSTM":
            return tuple(v.index_select(1, permutation) for v in hx)
        return hx.index_select(1, permutation)

    # ---- forward ----

    def _run(
        self, rows: Any, counts: list[int], states: tuple[Tensor, ...]
    ) -> tuple[Any, list[Any]]:
        """All layers: the last one's rows, and the final states of each layer and direction."""
        finals = []
        for number in range(self.num_layers):
            shown = []
            for d, suffix in enumerate(self._suffixes(number)):
                at = number * self._directions + d
                begin = tuple(views.select(v, 0, at) for v in states)
                later = self.num_layers * self._directions - at - 1
                out, final = recurrent_layer.layer(
                    self.mode, rows, counts, begin, self._weights(suffix), d == 1, later
                )
                shown.append(out)
                finals.append(final)
            rows = shown[0] if len(shown) == 1 else views.cat(shown, 1)
            if self.dropout and self.training and number + 1 < self.num_layers:
                rows = functional.dropout(rows, self.dropout)
        return rows, [views.stack(list(parts)) for parts in zip(*finals, strict=True)]

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        alone = input.ndim == 2
        whole = input.unsqueeze(0 if self.batch_first else 1) if alone else input
        if whole.ndim != 3:
            self.check_input(whole, None)  # which refuses it
        states = self._initial_states(hx, whole, None, None, alone)
        x = whole.transpose(0, 1) if self.batch_first else whole
        steps, batch, width = x.shape
        if not steps:
            raise ShapeError(
                f"{type(self).__name__}: a sequence must have at least one step, got "
                f"{input._spec!r}"
            )
        out, finals = self._run(x.reshape(steps * batch, width), [batch] * steps, states)
        out = out.reshape(steps, batch, out.shape[-1])
        if alone:
            out, finals = out.squeeze(1), [v.squeeze(1) for v in finals]
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, (tuple(finals) if self.mode == "LSTM" else finals[0])

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> Any:
        counts = [int(n) for n in packed.batch_sizes.tolist()]
        sizes, order = packed.batch_sizes, packed.sorted_indices
        states = self._initial_states(hx, packed.data, sizes, order, False)
        out, finals = self._run(packed.data, counts, states)
        if packed.unsorted_indices is not None:
            finals = [v.index_select(1, packed.unsorted_indices) for v in finals]
        made = PackedSequence(
            out, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        return made, (tuple(finals) if self.mode == "LSTM" else finals[0])

    def extra_repr(self) -> str:
        told = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
        }
        for name, value in (defaults | {"bidirectional": False}).items():
            if getattr(self, name) != value:
                told.append(f"{name}={getattr(self, name)}")
        return ", ".join(told)


class RNN(RNNBase):
    """h <- tanh(x @ W_ih.T + b_ih + h @ W_hh.T + b_hh), or relu of it, from step to step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        mode = f"RNN_{nonlinearity.upper()}"
        sizes = (
            mode,
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
        )
        super().__init__(*sizes, device=device, dtype=dtype)


class LSTM(RNNBase):
    """Long short-term memory: a memory c with gates, and h, its gated output."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        sizes = (
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
        )
        super().__init__(*sizes, device=device, dtype=dtype)


class GRU(RNNBase):
    """Gated recurrent units: a state that gates reset and mix with a new one."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        sizes = (
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
        )
        super().__init__(*sizes, device=device, dtype=dtype)


class RNNCellBase(Module):
    """One step of a recurrent network: weights named as those of a layer, without the number."""

    gates = 1
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(creation.empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(creation.empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            made = Parameter(creation.empty(rows, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _state(self, input: Tensor, hx: Tensor | None) -> Tensor:
        if input.ndim not in (1, 2):
            raise ShapeError(
                f"{type(self).__name__}: input must be (batch, width) or (width,), got "
                f"{input._spec!r}"
            )
        if hx is not None:
            return hx
        return creation.zeros(
            *input.shape[:-1], self.hidden_size, dtype=input.dtype, device=input.device
        )

    @property
    def _weights(self) -> tuple[Any, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + (
            "" if self.bias else f", bias={self.bias}"
        )


class RNNCell(RNNCellBase):
    """One step: tanh or relu of input and state through their weights."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(input_size, hidden_size, bias, self.gates, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        step = recurrent.rnn_tanh_cell if self.nonlinearity == "tanh" else recurrent.rnn_relu_cell
        return step(input, self._state(input, hx), *self._weights)

    def extra_repr(self) -> str:
        told = super().extra_repr()
        return told if self.nonlinearity == "tanh" else f"{told}, nonlinearity={self.nonlinearity}"


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit."""

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, self.gates, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return recurrent.gru_cell(input, self._state(input, hx), *self._weights)


class LSTMCell(RNNCellBase):
    """One step of long short-term memory: (h, c) from (h, c)."""

    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, self.gates, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        h, c = (None, None) if hx is None else hx
        return recurrent.lstm_cell(
            input, (self._state(input, h), self._state(input, c)), *self._weights
        )
