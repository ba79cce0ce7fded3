"""The sizes of one direction of a recurrent layer, and the names of what its ops read and write."""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType
from rushlight.core.shapes import Shape
from rushlight.ops.nn.recurrent_steps import Chunk, chunks_of

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}

Places = dict[str, int]  # addresses by the names of `Layer`


@dataclass(frozen=True, slots=True)
class Layer:
    """The sizes of one direction of a layer."""

    mode: str
    counts: tuple[int, ...]  # rows of each step, in time
    reverse: bool
    width: int  # of the input
    hidden: int
    shown: int  # the width of the output
    bias: bool
    keeps: int  # the last chunks of which all is saved; -1: no backward pass comes

    @property
    def is_lstm(self) -> bool:
        return self.mode == "LSTM"

    @property
    def is_simple(self) -> bool:
        return GATES[self.mode] == 1

    @property
    def projects(self) -> bool:
        return self.shown != self.hidden

    @property
    def is_even(self) -> bool:
        """Whether all steps have as many rows."""
        return len(set(self.counts)) == 1

    @property
    def gates(self) -> int:
        """The width of all gates."""
        return GATES[self.mode] * self.hidden

    @property
    def rows(self) -> int:
        return sum(self.counts)

    @property
    def batch(self) -> int:
        return max(self.counts)

    def chunks(self, dtype: DType) -> tuple[Chunk, ...]:
        return chunks_of(self.counts, self.reverse, self.gates * dtype.itemsize)

    def chunks_kept(self, dtype: DType) -> tuple[Chunk, ...]:
        chunks = self.chunks(dtype)
        return chunks[len(chunks) - max(self.keeps, 0) :]

    # ---- names of operands, results and saves, in the order of a call ----

    @property
    def states(self) -> tuple[str, ...]:
        return ("h", "c") if self.is_lstm else ("h",)

    @property
    def weights(self) -> tuple[str, ...]:
        return (
            *("w_ih", "w_hh"),
            *(("b_ih", "b_hh") if self.bias else ()),
            *(("w_hr",) if self.projects else ()),
        )

    @property
    def operands(self) -> tuple[str, ...]:
        return ("rows", *self.states, *self.weights)

    @property
    def results(self) -> tuple[str, ...]:
        return ("out", *[f"end_{s}" for s in self.states])

    @property
    def starts(self) -> tuple[str, ...]:
        return tuple(f"start_{s}" for s in self.states)

    @property
    def kept(self) -> tuple[str, ...]:
        """What the backward pass reads of a chunk that it does not run again.

        The gates after their activations, and `beside`: the memories, or the states' parts of n. A
        simple layer's gates are its output.
        """
        return ("out",) if self.is_simple else ("out", "gates", "beside")

    @property
    def saves(self) -> tuple[str, ...]:
        """The results that are saved only."""
        starts = self.starts if self.keeps >= 0 else ()
        return (*starts, *(self.kept[1:] if self.keeps > 0 else ()))

    def shape(self, name: str, dtype: DType) -> Shape:
        """The shape of an operand, a result or a save."""
        widths = {"h": self.shown, "c": self.hidden}
        if name in widths or name.startswith("end_"):
            return self.batch, widths[name[-1]]
        if name.startswith("start_"):
            return sum(c.steps[0][1] for c in self.chunks(dtype)[1:]), widths[name[-1]]
        if name in ("gates", "beside"):
            rows = sum(c.rows for c in self.chunks_kept(dtype))
            return rows, self.gates if name == "gates" else self.hidden
        if name.startswith("b_"):
            return (self.gates,)
        return {
            "rows": (self.rows, self.width),
            "out": (self.rows, self.shown),
            "w_ih": (self.gates, self.width),
            "w_hh": (self.gates, self.shown),
            "w_hr": (self.shown, self.hidden),
        }[name]
