"""The derivative of a recurrent layer, chunk by chunk. See Note [Recurrent chunks]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.shapes import numel
from rushlight.ops.family.build import built
from rushlight.ops.nn import recurrent_formulas as f
from rushlight.ops.nn.recurrent_launches import Launches
from rushlight.ops.nn.recurrent_sizes import Places
from rushlight.ops.nn.recurrent_steps import START, Chunk
from rushlight.ops.view.laid import copy_into

PART = 1 << 18  # bytes of a weight's gradient that are summed at a time


class Backward:
    """One call's plan.

    It is called with the addresses of the gradients of the operands in `asked`, of the gradients of
    the results in `came`, of the operands, of the starts, and of what the layer keeps. The other
    chunks are run again.
    """

    def __init__(self, launches: Launches, asked: Sequence[str], came: Sequence[str]) -> None:
        self.launches, self.layer = launches, launches.layer
        layer, dtype = self.layer, launches.dtype
        self.asked, self.came = asked, came
        # Whether each step's states lie where those before the next are read: Note [Recurrent
        # chunks] 5.
        self.joins = layer.is_even and not layer.is_simple
        self.names = (
            *[f"d_{name}" for name in asked],
            *[f"g_{name}" for name in came],
            *layer.operands,
            *layer.starts,
            *(layer.kept if layer.keeps else ()),
        )
        # Both biases have one gradient, but in a GRU.
        shapes = {name: layer.shape(name, dtype) for name in layer.weights if name in asked}
        self.matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
        self.biases = [name for name in shapes if name not in self.matrices]
        if layer.mode != "GRU":
            self.biases = self.biases[:1]
        self.turn = {name: self._turn(*shape) for name, shape in self.matrices.items()}
        self.slope = {n: self._slope(n, "out" in came) for n in set(layer.counts)}
        self.sums = built(launches.pool, f.column_sums(dtype))
        self.add = built(launches.pool, f.sum_kernel(dtype))
        self.wanted = self._wanted()
        self.counts = (*self.wanted.values(), *launches.wanted())
        self.scratch_taken = launches.scratch_bytes(*self.counts)

    def _turn(self, rows: int, columns: int) -> Any:
        """A copy of a matrix from its transpose."""
        strides = (columns, 1), (1, rows)
        pool, dtype = self.launches.pool, self.launches.dtype
        run, tail = copy_into(pool, dtype, (rows, columns), *strides)
        return lambda to, source: run(to, source, *tail)

    def _slope(self, rows: int, given: bool) -> Any:
        layer, dtype = self.layer, self.launches.dtype
        gates, hidden, shown = layer.gates, layer.hidden, layer.shown
        if layer.is_simple:
            formula, steps = f.simple_slope(dtype, layer.mode, given), [hidden] * 3
        elif layer.is_lstm:
            given = given and not layer.projects
            formula, steps = f.lstm_slope(dtype, given), [*[gates] * 4, hidden]
            steps += [*[gates] * 4, hidden, hidden, hidden, hidden]
        else:
            formula, steps = f.gru_slope(dtype, given), [*[gates] * 6, hidden]
            steps += [*[gates] * 3, hidden, hidden, hidden, hidden]
        return self.launches.map(formula, rows, hidden, [*steps, *([shown] if given else [])])

    def _wanted(self) -> dict[str, int]:
        """The elements of scratch blocks by name, besides those of `Launches.run`.

        Of chunks that are run again the slopes lie over the gates. A weight's `part` lies over the
        memories, which are not read any more.
        """
        layer, launches = self.layer, self.launches
        most = max(chunk.rows for chunk in launches.chunks)
        again = layer.keeps < len(launches.chunks) and not layer.is_simple
        largest = max(map(numel, self.matrices.values()), default=0)
        part = max(layer.gates, layer.hidden, min(PART // launches.size, largest))
        before, apart = most, most if again else 0
        if again and self.joins:
            before, apart = most + layer.batch, 0
        return {
            "out_again": apart * layer.shown,
            "beside_again": (apart if layer.is_lstm else most if again else 0) * layer.hidden,
            "before_h": before * layer.shown,
            "before_c": max(before * layer.hidden, part) if layer.is_lstm else 0,
            "slopes": max(most * layer.gates, largest),
            "slopes_h": most * layer.gates if layer.mode == "GRU" else 0,
            "d_h": 0 if "h" in self.asked else layer.batch * layer.shown,
            "d_c": 0 if layer.is_simple or "c" in self.asked else layer.batch * layer.hidden,
            "inner": most * layer.hidden if layer.projects else 0,
            "d_out": most * layer.shown if layer.projects else 0,
            "d_inner": layer.batch * layer.hidden if layer.projects else 0,
            "part": 0 if layer.is_lstm else part,
        }

    def __call__(self, *addresses: int) -> None:
        launches, layer = self.launches, self.layer
        given = dict(zip(self.names, addresses, strict=True))
        with launches.scratch(*self.counts) as blocks:
            places = dict(zip(self.wanted, blocks, strict=False)) | given
            if layer.is_lstm:
                places["part"] = places["before_c"]
            self._begin(places)
            if layer.keeps < len(launches.chunks):
                launches.begin(places, blocks[len(self.wanted) :])
            for number, chunk in enumerate(reversed(launches.chunks)):
                here = self._chunk_places(chunk, places, blocks)
                self._steps(chunk, here)
                self._weights(chunk, here, first=number == 0)
            self._finish(places)

    def _begin(self, places: Places) -> None:
        """The gradients of the states after the last step, which steps write over."""
        layer, launches = self.layer, self.launches
        sizes = [("h", layer.shown), *([] if layer.is_simple else [("c", layer.hidden)])]
        for name, width in sizes:
            count = layer.batch * width
            if f"end_{name}" in self.came:
                launches.copy(places[f"d_{name}"], places[f"g_end_{name}"], count)
            else:
                launches.fill(places[f"d_{name}"], count)

    def _chunk_places(self, chunk: Chunk, places: Places, blocks: list[int]) -> Places:
        """Addresses of a chunk's own blocks; those that were not kept are filled again."""
        layer, launches, size = self.layer, self.launches, self.launches.size
        here, pieces = dict(places), chunk.before
        if chunk in launches.kept:
            here["out"] = places["out"] + chunk.low * layer.shown * size
            made = (here["out"], 0) if layer.is_simple else launches.kept_at(chunk, places)
            here["gates"], here["beside"] = made
        else:
            self._run_again(chunk, here, blocks[len(self.wanted) :])
            if self.joins:
                pieces = tuple(piece for piece in pieces if piece.source == START)
        start = launches.start(chunk, places)
        made = (here["out"], here["beside"])
        for i, (name, width) in enumerate(
            zip(layer.states, (layer.shown, layer.hidden), strict=False)
        ):
            sources = (start[i], made[i], places[name])
            launches.gather(here[f"before_{name}"], pieces, sources, width)
        if layer.projects:
            shown = launches.map(
                f.lstm_shown(launches.dtype),
                chunk.rows,
                layer.hidden,
                [layer.hidden, layer.gates, layer.hidden],
            )
            shown(here["inner"], here["gates"] + 3 * layer.hidden * size, here["beside"])
        return here

    def _run_again(self, chunk: Chunk, here: Places, scratch: list[int]) -> None:
        """Fill a chunk's gates, memories and outputs, and note where they are."""
        layer, launches = self.layer, self.launches
        here["gates"], here["beside"] = here["slopes"], here["beside_again"]
        here["out"] = here["slopes"] if layer.is_simple else here["out_again"]
        names = [("before_h", "out", layer.shown)]
        names += [("before_c", "beside", layer.hidden)] if layer.is_lstm else []
        for before, after, width in names if self.joins else ():
            step = layer.batch * width * launches.size
            here[after] = here[before] + (0 if layer.reverse else step)
            here[before] += step if layer.reverse else 0
        launches.run(chunk, here, here["gates"], here["beside"], here["out"], scratch, True)

    # ---- steps ----

    def _steps(self, chunk: Chunk, here: Places) -> None:
        """The gradients of a chunk's gates, from its last step to its first."""
        layer, launches, size = self.layer, self.launches, self.launches.size
        width, hidden, shown = layer.gates * size, layer.hidden * size, layer.shown * size
        after = here["slopes_h"] if layer.mode == "GRU" else here["slopes"]
        d_h, d_c = here["d_h"], here["d_c"]
        g = here.get("g_out")
        g = None if g is None else g + chunk.low * shown
        for at, rows in reversed(chunk.steps):
            of_out = [] if g is None else [g + at * shown]
            x, to = here["gates"] + at * width, here["slopes"] + at * width
            parts, slopes = range(x, x + width, hidden), range(to, to + width, hidden)
            beside, slope = here["beside"] + at * hidden, self.slope[rows]
            if layer.is_simple:
                slope(to, x, d_h, *of_out)
            elif layer.is_lstm:
                d_shown = d_h
                if layer.projects:
                    d_shown, of_out = self._unproject(here, at, rows, of_out), []
                old = here["before_c"] + at * hidden
                slope(*slopes, d_c, *parts, old, beside, d_c, d_shown, *of_out)
            else:
                first = after + at * width
                more = range(first, first + width, hidden)
                old = here["before_h"] + at * hidden
                slope(*slopes, *more, d_c, *parts, beside, old, d_c, d_h, *of_out)
            launches.back(d_h, after + at * width, here["w_hh"], rows, layer.gates, layer.shown)

    def _unproject(self, here: Places, at: int, rows: int, of_out: list[int]) -> int:
        """The gradient of a step's output before the projection; the projected one is kept."""
        layer, launches = self.layer, self.launches
        to, count = here["d_out"] + at * layer.shown * launches.size, rows * layer.shown
        launches.copy(to, here["d_h"], count)
        for g in of_out:
            self._add(to, g, count)
        launches.back(here["d_inner"], to, here["w_hr"], rows, layer.shown, layer.hidden)
        return here["d_inner"]

    # ---- sums over rows ----

    def _weights(self, chunk: Chunk, here: Places, first: bool) -> None:
        """Add a chunk's part of the gradients of the weights, and write that of its inputs."""
        layer, launches, size = self.layer, self.launches, self.launches.size
        slopes = here["slopes"]
        after = here["slopes_h"] if layer.mode == "GRU" else slopes
        rows = here["rows"] + chunk.low * layer.width * size
        pairs = {
            "w_ih": (rows, slopes),
            "w_hh": (here["before_h"], after),
            "w_hr": (here["inner"], here["d_out"]),
        }
        for name in self.matrices:
            (m, k), (left, right) = self.matrices[name], pairs[name]
            # The transpose: it is the faster product, and its rows are long.
            steps, to = ((m, 1), (1, k), (m, 1)), here[f"d_{name}"]
            if first:
                launches.product(to, left, right, (k, m, chunk.rows), steps)
                continue
            few = max(1, PART // size // m)
            for at in range(0, k, few):
                rows, part = min(few, k - at), here["part"]
                launches.product(part, left + at * size, right, (rows, m, chunk.rows), steps)
                self._add(to + at * m * size, part, rows * m)
        for name in self.biases:
            to = here[f"d_{name}"] if first else here["part"]
            m = layer.gates
            self.sums(to, after if name == "b_hh" else slopes, 1, chunk.rows, m, m, 0, 1, 0, m, 1)
            if not first:
                self._add(here[f"d_{name}"], to, m)
        if "rows" in self.asked:  # last: they may lie over the rows
            to = here["d_rows"] + chunk.low * layer.width * size
            launches.back(to, slopes, here["w_ih"], chunk.rows, layer.gates, layer.width)

    def _finish(self, places: Places) -> None:
        """Turn the sums into the gradients."""
        layer, launches = self.layer, self.launches
        for name, (m, k) in self.matrices.items():
            launches.copy(places["slopes"], places[f"d_{name}"], m * k)
            self.turn[name](places[f"d_{name}"], places["slopes"])
        if "b_hh" in self.asked and "b_hh" not in self.biases:
            launches.copy(places["d_b_hh"], places["d_b_ih"], layer.gates)
        if layer.mode == "GRU" and "h" in self.asked:
            self._add(places["d_h"], places["d_c"], layer.batch * layer.hidden)

    def _add(self, to: int, part: int, count: int) -> None:
        self.add(to, to, part, count)
