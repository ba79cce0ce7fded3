"""The launches of a recurrent layer, forward and backward. See Note [Recurrent chunks]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType, compute_type
from rushlight.core.shapes import Shape, collapse, numel
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.kernel.shapes import Contract, Map
from rushlight.ops.family.build import built
from rushlight.ops.family.map import Formula, map_kernel
from rushlight.ops.nn import recurrent_formulas as f
from rushlight.ops.nn.recurrent_cells import Cells, has_cells, scratch_of
from rushlight.ops.nn.recurrent_sizes import Layer, Places
from rushlight.ops.nn.recurrent_steps import INITIAL, START, Chunk, Piece
from rushlight.ops.view.laid import fill_kernel
from rushlight.scalar.ir import arg


class Launches:
    """Kernels with the numbers of one layer, and the steps of a chunk."""

    def __init__(self, pool: Any, layer: Layer, dtype: DType) -> None:
        self.pool, self.layer, self.dtype = pool, layer, dtype
        self.size = dtype.itemsize
        self.chunks = layer.chunks(dtype)
        self.kept = layer.chunks_kept(dtype)
        self.first_kept = min((chunk.low for chunk in self.kept), default=0)
        compute = compute_type(dtype)
        self.contract = built(pool, Contract(dtype, compute))
        self.copy = built(pool, Map((dtype,), (dtype,), (), (arg(0, compute),), 0, ("1", "1")))
        self.fill = built(pool, fill_kernel(dtype))
        self.cells = Cells(pool, layer, dtype) if has_cells(pool, layer, dtype) else None
        if self.cells is None:
            self.step = {n: self._step_of(n) for n in set(layer.counts)}
            self.biases = {n: self._biases(n) for n in {chunk.rows for chunk in self.chunks}}

    # ---- kernels ----

    def _step_of(self, rows: int) -> Any:
        layer, dtype = self.layer, self.dtype
        bias = layer.mode == "GRU" and layer.bias
        if layer.is_simple:
            formula = f.simple_step(dtype, layer.mode)
        else:
            formula = f.lstm_step(dtype) if layer.is_lstm else f.gru_step(dtype, bias)
        hidden, gates = layer.hidden, layer.gates
        strides = {
            "LSTM": [*[gates] * 4, hidden, hidden, *[gates] * 8, hidden],
            "GRU": [*[gates] * 3, hidden, hidden, *[gates] * 6, hidden, *([0] if bias else [])],
        }.get(layer.mode, [hidden] * 3)
        return self.map(formula, rows, hidden, strides)

    def map(self, formula: Formula, rows: int, width: int, strides: Sequence[int]) -> Any:
        """A map over a matrix, operands by the strides of their rows, outputs first."""
        sizes, steps = collapse((rows, width), [(step, 1) for step in strides])
        kernel, tail = map_kernel(formula, sizes, steps, len(formula.outputs))
        run = built(self.pool, kernel)
        return lambda *places: run(*places, *tail)

    def product(
        self, out: int, a: int, b: int, sizes: Shape, steps: tuple[Shape, Shape, Shape]
    ) -> None:
        """out = a b; sizes are (m, n, k), and steps the strides of rows and columns."""
        o, left, right = steps
        self.contract(out, a, b, 1, 1, *sizes, 0, 0, *o, 0, 0, *left, 0, 0, *right)

    def times(self, out: int, x: int, w: int, rows: int, m: int, k: int) -> None:
        """out = x w.T, for x (rows, k) and w (m, k)."""
        self.product(out, x, w, (rows, m, k), ((m, 1), (k, 1), (1, k)))

    def back(self, out: int, g: int, w: int, rows: int, m: int, k: int) -> None:
        """out = g w, for g (rows, m) and w (m, k)."""
        self.product(out, g, w, (rows, k, m), ((k, 1), (m, 1), (k, 1)))

    def scratch(self, *counts: int) -> Scratch:
        """Blocks of so many elements each."""
        return Scratch(self.pool, *self._rooms(counts))

    def scratch_bytes(self, *counts: int) -> int:
        """What those blocks take."""
        return sum(self._rooms(counts))

    def _rooms(self, counts: Sequence[int]) -> list[int]:
        return [room_for(max(count, 1) * self.size) for count in counts]

    def gather(self, to: int, pieces: Sequence[Piece], sources: Sequence[int], width: int) -> None:
        """Copy rows of states; `sources` are addresses by the numbers of `Piece.source`."""
        row = width * self.size
        for piece in pieces:
            source = sources[piece.source] + piece.at * row
            self.copy(to + piece.to * row, source, piece.rows * width)

    # ---- the steps of a chunk ----

    def kept_at(self, chunk: Chunk, places: Places) -> tuple[int, int]:
        """The addresses of a chunk's gates and what is beside them, where they are saved."""
        layer = self.layer
        row = chunk.low - self.first_kept
        gates = places["gates"] + row * layer.gates * self.size
        return gates, places["beside"] + row * layer.hidden * self.size

    def start(self, chunk: Chunk, places: Places) -> list[int]:
        """The addresses of the states before a chunk."""
        if chunk.start < 0:
            return [places[name] for name in self.layer.states]
        widths = (self.layer.shown, self.layer.hidden)
        return [
            places[name] + chunk.start * width * self.size
            for name, width in zip(self.layer.starts, widths, strict=False)
        ]

    def wanted(self) -> list[int]:
        """The elements of the scratch blocks that `run` gets: Note [Recurrent chunks] 4 too."""
        layer = self.layer
        grows = any(a < b for a, b in zip(layer.counts, layer.counts[1:], strict=False))
        grows = grows or (layer.reverse and layer.counts[0] > layer.counts[-1])
        states = [layer.shown, layer.hidden] if grows else [0, 0]
        gates = 0 if self.cells else layer.gates
        each = (gates, layer.hidden if layer.projects else 0, *states)
        panels = scratch_of(layer) if self.cells else (0, 0)
        return [*[layer.batch * width for width in each], *panels]

    def begin(self, places: Places, scratch: list[int]) -> None:
        """What comes before the first chunk that is run."""
        if self.cells is not None:
            self.cells.begin(places, *scratch[-2:])

    def run(
        self,
        chunk: Chunk,
        places: Places,
        gates: int,
        beside: int,
        out: int,
        scratch: list[int],
        whole: bool,
    ) -> None:
        """Run a chunk's steps: gates, what is kept beside them, and outputs at these addresses.

        The gates and, of a GRU, what is beside them are only there if `whole`.
        """
        layer, size = self.layer, self.size
        self._from_inputs(chunk, places, gates)
        from_state, inner, *joined, panels, biases = scratch
        weights = self.cells.weights(places, panels, biases) if self.cells else []
        before = self.start(chunk, places)
        width, hidden, shown = layer.gates * size, layer.hidden * size, layer.shown * size
        have = chunk.steps[0][1]
        for at, rows in chunk.steps:
            if rows > have:  # some begin
                before = self._grown(before, places, have, rows, joined)
            have = rows
            x, new, kept = gates + at * width, out + at * shown, beside + at * hidden
            h = inner if layer.projects else new
            parts = [*range(x, x + width, hidden)]
            if self.cells:
                self.cells.step(rows, before, weights, parts, kept, h, whole)
            else:
                self._step(rows, before, from_state, parts, kept, h, places)
            if layer.projects:
                self.times(new, h, places["w_hr"], rows, layer.shown, layer.hidden)
            before = [new, kept] if layer.is_lstm else [new]

    def _step(
        self,
        rows: int,
        before: list[int],
        from_state: int,
        parts: list[int],
        kept: int,
        new: int,
        places: Places,
    ) -> None:
        """One step by a product and a map."""
        layer, hidden = self.layer, self.layer.hidden * self.size
        width = layer.gates * self.size
        self.times(from_state, before[0], places["w_hh"], rows, layer.gates, layer.shown)
        parts_of_state = [*range(from_state, from_state + width, hidden)]
        step = self.step[rows]
        if layer.is_simple:
            step(new, *parts, from_state)
        elif layer.is_lstm:
            step(*parts, kept, new, *parts, *parts_of_state, before[1])
        else:
            bias = [places["b_hh"] + 2 * hidden] if layer.bias else []
            step(*parts, kept, new, *parts, *parts_of_state, before[0], *bias)

    def _from_inputs(self, chunk: Chunk, places: Places, gates: int) -> None:
        """The inputs' part of a chunk's gates, with the biases but for that inside n."""
        layer, size = self.layer, self.size
        rows = places["rows"] + chunk.low * layer.width * size
        self.times(gates, rows, places["w_ih"], chunk.rows, layer.gates, layer.width)
        if self.cells:  # which add the biases
            return
        for add, column, names in self.biases[chunk.rows]:
            x = gates + column * size
            add(x, x, *[places[name] + column * size for name in names])

    def _biases(self, rows: int) -> list[tuple[Any, int, tuple[str, ...]]]:
        """Maps that add biases to gates: from which column on, and which."""
        layer = self.layer
        if not layer.bias:
            return []
        both = 2 * layer.hidden if layer.mode == "GRU" else layer.gates
        parts = [(0, both, ("b_ih", "b_hh")), (both, layer.gates - both, ("b_ih",))]
        steps = [layer.gates, layer.gates, 0, 0]
        return [
            (self.map(f.added(self.dtype, len(n) + 1), rows, width, steps[: len(n) + 2]), column, n)
            for column, width, n in parts
            if width
        ]

    def _grown(
        self, before: list[int], places: Places, have: int, rows: int, joined: list[int]
    ) -> list[int]:
        """States with the initial ones of the sequences that begin, in scratch blocks."""
        layer = self.layer
        for to, old, name, width in zip(
            joined, before, layer.states, (layer.shown, layer.hidden), strict=False
        ):
            pieces = (Piece(0, START, 0, have), Piece(have, INITIAL, have, rows - have))
            self.gather(to, pieces, (old, old, places[name]), width)
        return joined


class Forward:
    """One call's plan: the addresses of results, saves and operands, by `Layer`'s names."""

    def __init__(self, launches: Launches) -> None:
        self.launches, self.layer = launches, launches.layer
        layer, dtype = self.layer, launches.dtype
        self.names = (*layer.results, *layer.saves, *layer.operands)
        most = max(chunk.rows for chunk in launches.chunks)
        alone = layer.keeps < 0
        scratch = 0 if layer.is_simple or layer.keeps == len(launches.chunks) else most
        self.wanted = [
            *launches.wanted(),
            scratch * layer.gates,
            scratch * layer.hidden,
            *[numel(layer.shape(name, dtype)) if alone else 0 for name in layer.starts],
        ]
        self.scratch_taken = launches.scratch_bytes(*self.wanted)

    def __call__(self, *addresses: int) -> None:
        launches, layer, size = self.launches, self.layer, self.launches.size
        places = dict(zip(self.names, addresses, strict=True))
        with launches.scratch(*self.wanted) as blocks:
            *scratch, gates, beside = blocks[:8]
            if layer.keeps < 0:
                places |= zip(layer.starts, blocks[8:], strict=True)
            launches.begin(places, scratch)
            for chunk in launches.chunks:
                out = places["out"] + chunk.low * layer.shown * size
                made = (gates, beside)
                if layer.is_simple:
                    made = (out, 0)
                elif chunk in launches.kept:
                    made = launches.kept_at(chunk, places)
                launches.run(chunk, places, *made, out, scratch, chunk in launches.kept)
                self._hand_on(chunk, places, (out, made[1]))

    def _hand_on(self, chunk: Chunk, places: Places, made: tuple[int, int]) -> None:
        """Copy the states of sequences that end, and those before the next chunk."""
        launches, layer = self.launches, self.layer
        for name, shown, width in zip(
            layer.states, made, (layer.shown, layer.hidden), strict=False
        ):
            sources = (shown, shown, places[name])
            launches.gather(places[f"end_{name}"], chunk.ends, sources, width)
            if chunk.onward:
                row = 0 if chunk.start < 0 else chunk.start + chunk.steps[0][1]
                to = places[f"start_{name}"] + row * width * launches.size
                launches.gather(to, chunk.onward, sources, width)
