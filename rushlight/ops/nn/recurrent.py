"""Steps and layers of recurrent networks: simple, LSTM and GRU.

# Note [Recurrent layers]
1. A layer gets the rows of all steps concatenated, step by step, with the number of rows of each
   step: the number of sequences, or, of packed sequences in order of length, a decreasing number.
2. A layer is one op (`recurrent_layer.layer`), or a loop of ordinary calls (`loop`) that defines
   it. In the loop the inputs' part of the gates is one product over all rows; a step adds the
   state's part and runs two kernels.
3. Backwards in time the number of rows grows: new sequences take their initial state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT
from rushlight.core.errors import ShapeError
from rushlight.ops.family.declare import elementwise
from rushlight.ops.linalg.matmul import linear
from rushlight.ops.nn.activations import _share as gate
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.scalar import build as s
from rushlight.tape.record.value import Value

States = tuple[Value, ...]  # (h,), or (h, c) of long short-term memory
Cell = Callable[[Value, States, Any], States]

_memory = elementwise(
    "lstm_memory",
    lambda i, f, g, c: gate(f) * c + gate(i) * s.tanh(g),
    "What is kept of the memory, and what is new.",
    FLOAT,
    listed=False,
)
_shown = elementwise(
    "lstm_shown",
    lambda o, c: gate(o) * s.tanh(c),
    "The part of the memory shown.",
    FLOAT,
    listed=False,
)
_fresh = elementwise(
    "gru_fresh",
    lambda x, h, r: s.tanh(x + gate(r) * h),
    "The new state, reset as r says.",
    FLOAT,
    listed=False,
)
_mixed = elementwise(
    "gru_mixed",
    lambda z, n, h: n + gate(z) * (h - n),
    "Between the new state and the old one.",
    FLOAT,
    listed=False,
)


def _gates(gates: Value, count: int) -> tuple[Value, ...]:
    width = gates._spec.shape[-1] // count
    return views.parts(gates, len(gates._spec.shape) - 1, [width] * count)


class Weights:
    """The weights of one direction of a layer: of the states, and the projection of the result."""

    __slots__ = ("b_hh", "b_ih", "w_hh", "w_hr", "w_ih")

    def __init__(
        self,
        w_ih: Value,
        w_hh: Value,
        b_ih: Value | None = None,
        b_hh: Value | None = None,
        w_hr: Value | None = None,
    ) -> None:
        self.w_ih, self.w_hh, self.b_ih, self.b_hh, self.w_hr = w_ih, w_hh, b_ih, b_hh, w_hr

    def given(self) -> list[Value]:
        every = (self.w_ih, self.w_hh, self.b_ih, self.b_hh, self.w_hr)
        return [weight for weight in every if weight is not None]

    def replaced(self, given: Sequence[Value]) -> Weights:
        """The weights of another `given()`."""
        each = iter(given)
        every = (self.w_ih, self.w_hh, self.b_ih, self.b_hh, self.w_hr)
        return Weights(*[None if w is None else next(each) for w in every])  # type: ignore[arg-type]

    def from_input(self, x: Value) -> Value:
        return linear(x, self.w_ih, self.b_ih)

    def from_state(self, h: Value) -> Value:
        return linear(h, self.w_hh, self.b_hh)


def _tanh_step(x: Value, states: States, weights: Weights) -> States:
    return (e.tanh(e.add(x, weights.from_state(states[0]))),)


def _relu_step(x: Value, states: States, weights: Weights) -> States:
    return (e.relu(e.add(x, weights.from_state(states[0]))),)


def _lstm_step(x: Value, states: States, weights: Weights) -> States:
    h, c = states
    i, f, g, o = _gates(e.add(x, weights.from_state(h)), 4)
    c = _memory(i, f, g, c)
    h = _shown(o, c)
    return (h if weights.w_hr is None else linear(h, weights.w_hr)), c


def _gru_step(x: Value, states: States, weights: Weights) -> States:
    (h,) = states
    xr, xz, xn = _gates(x, 3)
    hr, hz, hn = _gates(weights.from_state(h), 3)
    return (_mixed(e.add(xz, hz), _fresh(xn, hn, e.add(xr, hr)), h),)


STEPS: dict[str, Cell] = {
    "RNN_TANH": _tanh_step,
    "RNN_RELU": _relu_step,
    "LSTM": _lstm_step,
    "GRU": _gru_step,
}


def loop(
    mode: str, rows: Value, counts: Sequence[int], states: States, weights: Weights, reverse: bool
) -> Any:
    """A layer by ordinary calls, step by step. See Note [Recurrent layers]."""
    step = STEPS[mode]
    xs = views.parts(weights.from_input(rows), 0, counts)
    shown: list[Value] = []
    ended: list[States] = []
    begin = states
    now = tuple(views.slice_dim(v, 0, 0, counts[-1] if reverse else counts[0]) for v in begin)
    for t in reversed(range(len(counts))) if reverse else range(len(counts)):
        have, count = now[0]._spec.shape[0], counts[t]
        if count < have:  # some end: sequences are in order of length
            ended.append(tuple(views.slice_dim(v, 0, count, have - count) for v in now))
            now = tuple(views.slice_dim(v, 0, 0, count) for v in now)
        elif count > have:  # some begin, backwards in time
            late = [views.slice_dim(v, 0, have, count - have) for v in begin]
            now = tuple(views.cat([v, more]) for v, more in zip(now, late, strict=True))
        now = step(xs[t], now, weights)
        shown.append(now[0])
    ended.append(now)
    final = tuple(
        views.cat(list(parts)) if len(ended) > 1 else parts[0]
        for parts in zip(*reversed(ended), strict=True)
    )
    return views.cat(list(reversed(shown)) if reverse else shown), final


# ---- single steps under PyTorch's names ----


def _one_step(
    mode: str,
    op: str,
    input: Value,
    states: States,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None,
    b_hh: Value | None,
) -> States:
    shape, width = input._spec.shape, w_hh._spec.shape[1]
    for v in states:
        if v._spec.shape != (*shape[:-1], width) or not shape or shape[-1] != w_ih._spec.shape[1]:
            raise ShapeError(
                f"{op}: input {input._spec!r} (batch, {w_ih._spec.shape[1]}) and state {v._spec!r} "
                f"(batch, {width}) do not fit"
            )
    weights = Weights(w_ih, w_hh, b_ih, b_hh)
    return STEPS[mode](weights.from_input(input), states, weights)


@composite("rnn_tanh_cell", method=False, autocast={"gpu": "lower"})
def rnn_tanh_cell(
    input: Value,
    hx: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Value:
    """tanh(input @ w_ih.T + b_ih + hx @ w_hh.T + b_hh)."""
    return _one_step("RNN_TANH", "rnn_tanh_cell", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@composite("rnn_relu_cell", method=False, autocast={"gpu": "lower"})
def rnn_relu_cell(
    input: Value,
    hx: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Value:
    """relu(input @ w_ih.T + b_ih + hx @ w_hh.T + b_hh)."""
    return _one_step("RNN_RELU", "rnn_relu_cell", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@composite("gru_cell", method=False, autocast={"gpu": "lower"})
def gru_cell(
    input: Value,
    hx: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Value:
    """One step of a gated recurrent unit: the next state."""
    return _one_step("GRU", "gru_cell", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@composite("lstm_cell", method=False, autocast={"gpu": "lower"})
def lstm_cell(
    input: Value,
    hx: Sequence[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> tuple[Value, Value]:
    """One step of long short-term memory: the next state and memory."""
    h, c = hx
    out, memory = _one_step("LSTM", "lstm_cell", input, (h, c), w_ih, w_hh, b_ih, b_hh)
    return out, memory
