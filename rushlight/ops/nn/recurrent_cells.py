"""The steps of a recurrent layer as one kernel each. See Note [Recurrent chunks] 6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.kernel.shapes import PANEL
from rushlight.ops.family.build import built
from rushlight.ops.nn import recurrent_formulas as f
from rushlight.ops.nn.recurrent_sizes import GATES, Layer, Places
from rushlight.ops.view.laid import copy_into

ROWS = 64  # of a layer, from which on its weights are worth a copy in panels


def has_cells(pool: Any, layer: Layer, dtype: DType) -> bool:
    gated = not layer.is_simple and layer.rows >= ROWS
    return gated and dtype in pool.device.limits.cells


def scratch_of(layer: Layer) -> tuple[int, int]:
    """The elements of blocks for w_hh in panels and for sums of biases."""
    columns = -(-layer.hidden // PANEL) * PANEL
    return columns * GATES[layer.mode] * layer.shown, layer.gates if layer.bias else 0


class Cells:
    """Kernels with the numbers of one layer.

    A call copies the weights to panels and adds up biases (`begin`) before its first step.
    """

    @property
    def summed(self) -> int:
        """The gates whose biases are added to each other."""
        return 4 if self.layer.is_lstm else 2

    def __init__(self, pool: Any, layer: Layer, dtype: DType) -> None:
        self.layer, self.size = layer, dtype.itemsize
        ways = (False, True)  # without the gates, and with them
        kernels = [f.cell(dtype, layer.is_lstm, layer.bias, whole) for whole in ways]
        self.run = [built(pool, kernel) for kernel in kernels]
        self.tails = [self._tail(whole) for whole in ways]
        self.sum = built(pool, f.sum_kernel(dtype))
        self.copies = self._copies(pool, dtype)

    def _tail(self, whole: bool) -> tuple[int, ...]:
        """The numbers after the rows: the other sizes, and the strides of rows."""
        layer = self.layer
        gates = [layer.gates] * GATES[layer.mode]
        outs = [layer.hidden] * (2 if whole or layer.is_lstm else 1)
        biases = [0] * (4 if layer.bias else 0)
        strides = [*(gates if whole else []), *outs, layer.shown, *gates, layer.hidden, *biases]
        return layer.hidden, layer.shown, *strides

    def _copies(self, pool: Any, dtype: DType) -> list[tuple[Any, Sequence[int], int, int]]:
        """Launches that copy whole panels, and the columns of another: to and from which byte."""
        layer = self.layer
        hidden, k, count = layer.hidden, layer.shown, GATES[layer.mode]
        panel = count * k * PANEL
        strides = (panel, k * PANEL, PANEL, 1), (PANEL * k, hidden * k, 1, k)
        whole, rest = divmod(hidden, PANEL)
        return [
            (
                *copy_into(pool, dtype, (panels, count, k, columns), *strides),
                first * panel * self.size,
                first * PANEL * k * self.size,
            )
            for first, panels, columns in ((0, whole, PANEL), (whole, 1, rest))
            if panels * columns
        ]

    def begin(self, places: Places, panels: int, biases: int) -> None:
        """Fill both blocks."""
        for run, tail, to, at in self.copies:
            run(panels + to, places["w_hh"] + at, *tail)
        if self.layer.bias:
            summed = self.layer.hidden * self.summed
            self.sum(biases, places["b_ih"], places["b_hh"], summed)

    def weights(self, places: Places, panels: int, biases: int) -> list[int]:
        """The addresses of the weights and of what a step adds."""
        step = self.layer.hidden * self.size
        if not self.layer.bias:
            return [panels]
        summed = range(biases, biases + self.summed * step, step)
        others = () if self.layer.is_lstm else ("b_ih", "b_hh")
        return [panels, *summed, *[places[name] + 2 * step for name in others]]

    def step(
        self,
        rows: int,
        before: Sequence[int],
        weights: Sequence[int],
        parts: Sequence[int],
        kept: int,
        new: int,
        whole: bool,
    ) -> None:
        """`parts` are the addresses of the inputs' part of gates."""
        is_lstm = self.layer.is_lstm
        outs = (*parts, kept, new) if whole else (kept, new) if is_lstm else (new,)
        old = before[1 if is_lstm else 0]
        given = (before[0], weights[0], *parts, old, *weights[1:])
        self.run[whole](*outs, *given, rows, *self.tails[whole])
