"""WGSL for WebGPU: `emit` prints a kernel, `schedule` says how a launch of given sizes runs it.

Owns: the forms a kernel can take and the choice among them. Takes: kernels, the adapter's features,
launch sizes. Gives: text, and the steps (form, workgroups, work) of each launch. Never: touches the
driver. A form may depend on sizes and offsets only in ways that keep a reduction's order a function
of the axis length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from rushlight.core.dtypes import compute_type
from rushlight.emit.wgsl import convolve, row_axis, row_columns
from rushlight.emit.wgsl.attend import attend_text, groups_of
from rushlight.emit.wgsl.contract import (
    Occupied,
    occupied_by_default,
    plain_contract_text,
    tiled_contract_text,
    tiling,
    tiling_of,
)
from rushlight.emit.wgsl.index import gather_text, scatter_text, slices_of
from rushlight.emit.wgsl.layout import Aliases, Layout, flag_of, layout_of, separate, with_scratch
from rushlight.emit.wgsl.map import (
    SIDE,
    map_text,
    packed_map_text,
    packed_run,
    staged_inputs,
    turned_dimension,
    turned_map_text,
    turned_tiles,
    wide_map_text,
    wide_run,
)
from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.emit.wgsl.rows import Rows, stages
from rushlight.emit.wgsl.scan import scan_text
from rushlight.emit.wgsl.types import Features
from rushlight.kernel.shapes import (
    LOADED,
    Attend,
    Contract,
    Convolve,
    Gather,
    Kernel,
    Map,
    Rowwise,
    Scan,
    Scatter,
)
from rushlight.scalar.elementary import lower

LEAST_WIDE = 1 << 16  # elements: below, the wide form of a map is not worth another pipeline


MORE = "+"  # suffix of a form of Scan or Contract: it continues from an earlier launch's output


class Dispatch(NamedTuple):
    """One dispatch of a launch: the form, the workgroups, and roughly the steps of each."""

    form: str
    groups: int
    work: int


# Of sizes, of the operands' offsets in elements, and of their strides.
Schedule = Callable[[Sequence[int], Sequence[int], Sequence[int]], Sequence[Dispatch]]


def emit(kernel: Kernel, features: Features, aliases: Aliases | None = None, form: str = "") -> str:
    """The text of one form of a kernel; without `form`, of the form that fits any launch."""
    if isinstance(kernel, Convolve):
        form = form or convolve.any_form(kernel)
    layout = layout_for(kernel, form)
    module = Module(
        layout,
        aliases or separate(layout),
        features,
        whole_words=_written_in_words(kernel, form),
        flag=flag_of(kernel),
        vectors=_uses_vectors(kernel, form),
    )
    if isinstance(kernel, Map | Rowwise) and kernel.anomaly is not None:
        outputs = len(kernel.outputs)
        module.anomaly = {
            **dict.fromkeys(range(outputs), 1),
            **{outputs + i: LOADED for i in kernel.anomaly},
        }
    kernel = lower_bodies(kernel)
    if isinstance(kernel, Map):
        if form.startswith("turned"):
            return turned_map_text(module, kernel, int(form.removeprefix("turned")))
        return {"packed": packed_map_text, "wide": wide_map_text}.get(form, map_text)(
            module, kernel
        )
    if isinstance(kernel, Rowwise):
        return _rowwise_text(module, kernel, form)
    if isinstance(kernel, Scan):
        return scan_text(module, kernel, form == MORE)
    if isinstance(kernel, Contract):
        if form.startswith("tiled:"):
            return tiled_contract_text(module, kernel, form)
        return plain_contract_text(module, kernel, form == MORE)
    if isinstance(kernel, Convolve):
        return convolve.convolve_text(module, kernel, form)
    if isinstance(kernel, Attend):
        return attend_text(module, kernel)
    if isinstance(kernel, Gather):
        return gather_text(module, kernel)
    assert isinstance(kernel, Scatter)
    return scatter_text(module, kernel)


def _uses_vectors(kernel: Kernel, form: str) -> bool:
    """Whether buffers are arrays of vectors of four words."""
    if isinstance(kernel, Rowwise):
        return form.split("/")[0].endswith(("v", f"x{row_columns.WIDE}"))
    return form == "wide" or form.startswith("tiled:")


def _written_in_words(kernel: Kernel, form: str) -> frozenset[int]:
    """The outputs whose halves and smaller elements a form writes as whole words."""
    if isinstance(kernel, Rowwise):
        return row_axis.whole_words(kernel) if _uses_vectors(kernel, form) else frozenset()
    if isinstance(kernel, Contract) and form.startswith("tiled:"):
        return frozenset({0} if tiling_of(form).out == "v" else ())
    if isinstance(kernel, Map) and form in ("packed", "wide"):
        return frozenset(range(len(kernel.outputs)))
    return frozenset()


def uses_scratch(form: str) -> bool:
    return "/" in form


def layout_for(kernel: Kernel, form: str) -> Layout:
    layout = layout_of(kernel)
    return with_scratch(layout) if uses_scratch(form) else layout


def scratch_bytes(kernel: Kernel, sizes: Sequence[int]) -> int:
    """Scratch for results between the dispatches of one launch."""
    if isinstance(kernel, Convolve):
        return convolve.scratch_bytes(kernel, sizes)
    assert isinstance(kernel, Rowwise)
    length = row_axis.SEGMENT if kernel.vector == "axis" else row_columns.SEGMENT
    return 8 * sizes[0] * sizes[2] * len(kernel.passes) * (1 + -(-sizes[1] // length))


def _rowwise_text(module: Module, kernel: Rowwise, form: str) -> str:
    """`form` is that of a walk, alone or with a stage: "32.8hv", "8x4/partial/0"."""
    along = kernel.vector == "axis"
    form = form or ("1.1w" if along else "1x1")
    rows: Rows = (
        row_axis.AxisRows(module, kernel, form)
        if along
        else (row_columns.ColumnRows(module, kernel, form))
    )
    _, *stage = form.split("/")
    if not stage:
        return rows.whole()
    if stage[0] in ("elements", "rows"):
        return rows.elements() if stage[0] == "elements" else rows.rows()
    text = {"partial": rows.partial, "combine": rows.combine, "finish": rows.finish}[stage[0]]
    return text(int(stage[1]))


def lower_bodies(kernel: Kernel) -> Kernel:
    """The kernel with elementary functions lowered to basic instructions."""
    if isinstance(kernel, Map):
        return replace(kernel, body=lower(kernel.body))
    if isinstance(kernel, Rowwise):
        passes = tuple(replace(p, body=lower((p.body,))[0]) for p in kernel.passes)
        return replace(kernel, passes=passes, stores=lower(kernel.stores))
    if isinstance(kernel, Scan):
        return replace(kernel, body=lower((kernel.body,))[0])
    return kernel


def schedule(kernel: Kernel, occupied: Occupied = occupied_by_default) -> Schedule:
    """The choice of form for a kernel's launches."""
    if isinstance(kernel, Map):
        return _schedule_map(kernel)
    if isinstance(kernel, Rowwise):
        return _schedule_rowwise(kernel)
    if isinstance(kernel, Contract):
        return _schedule_contract(kernel, occupied)
    if isinstance(kernel, Convolve):
        return lambda sizes, *_: [Dispatch(*each) for each in convolve.forms(kernel, sizes)]
    if isinstance(kernel, Attend):
        return lambda sizes, *_: (Dispatch("", *groups_of(kernel, tuple(sizes))),)
    if isinstance(kernel, Gather):
        return lambda sizes, *_: (
            Dispatch("", -(-(sizes[0] * sizes[1] * sizes[2]) // GROUP), GROUP),
        )
    if isinstance(kernel, Scatter):
        return _schedule_scatter
    assert isinstance(kernel, Scan)
    return lambda sizes, *_: (
        Dispatch("", -(-(sizes[0] * sizes[2]) // GROUP) if sizes[1] else 0, GROUP * sizes[1]),
    )


def _schedule_scatter(sizes: Sequence[int], *_: Sequence[int]) -> Sequence[Dispatch]:
    groups = -(-(sizes[0] * sizes[2] * slices_of(sizes)) // GROUP) if sizes[1] else 0
    return (Dispatch("", groups, GROUP * sizes[1]),)


def _schedule_map(kernel: Map) -> Schedule:
    run, rank = packed_run(kernel), kernel.rank
    small = [(i, 4 // d.itemsize) for i, d in enumerate(kernel.outputs) if d.itemsize < 4]
    wide = wide_run(kernel)
    dtypes = kernel.outputs + kernel.inputs
    moving = [(i, 16 // d.itemsize) for i, d in enumerate(dtypes) if kernel.steps[i] == "1"]
    turns = bool(staged_inputs(kernel))

    def is_aligned(offsets: Sequence[int], strides: Sequence[int]) -> bool:
        """Whether vectors of the operands that move begin at multiples of their size."""
        return not any(
            offsets[i] % per or any(s % per for s in strides[i * rank : (i + 1) * rank - 1])
            for i, per in moving
        )

    def choose(
        sizes: Sequence[int], offsets: Sequence[int], strides: Sequence[int]
    ) -> Sequence[Dispatch]:
        total = 1
        for size in sizes:
            total *= size
        many = wide > 1 and total >= LEAST_WIDE and sizes[-1] % wide == 0
        if many and is_aligned(offsets, strides):
            return (Dispatch("wide", -(-total // (GROUP * wide)), GROUP * wide),)
        if run > 1 and not any(offsets[i] % per for i, per in small):
            return (Dispatch("packed", -(-total // (GROUP * run)), GROUP * run),)
        if turns and total >= LEAST_WIDE:
            d = turned_dimension(kernel, sizes, strides)
            if d is not None:
                return (Dispatch(f"turned{d}", turned_tiles(sizes, d), SIDE * SIDE),)
        return (Dispatch("", -(-total // GROUP), GROUP),)

    return choose


def _schedule_rowwise(kernel: Rowwise) -> Schedule:
    return _schedule_axis(kernel) if kernel.vector == "axis" else _schedule_columns(kernel)


def _schedule_axis(kernel: Rowwise) -> Schedule:
    passes = len(kernel.passes)

    def choose(
        sizes: Sequence[int], offsets: Sequence[int], strides: Sequence[int]
    ) -> Sequence[Dispatch]:
        rows, axis = sizes[0] * sizes[2], sizes[1]
        walkers, turns, way = row_axis.tile_of(kernel, axis)
        vectors = row_axis.vectors_fit(kernel, sizes, offsets, strides)
        form = row_axis.Shape(walkers, turns, way, vectors).form
        if way == "s" and rows < row_axis.MANY_ROWS:
            return _cut(kernel, form, rows, -(-axis // row_axis.SEGMENT), row_axis.SEGMENT)
        columns = GROUP // walkers
        return (Dispatch(form, -(-rows // columns), axis * columns * (passes + 1)),)

    return choose


def _schedule_columns(kernel: Rowwise) -> Schedule:
    passes = len(kernel.passes)

    def choose(
        sizes: Sequence[int], offsets: Sequence[int], strides: Sequence[int]
    ) -> Sequence[Dispatch]:
        rows, axis = sizes[0] * sizes[2], sizes[1]
        wide = row_columns.WIDE if row_columns.vectors_fit(kernel, sizes, offsets, strides) else 1
        walkers = row_columns.walkers_of(axis)
        columns, form = GROUP // walkers * wide, f"{walkers}x{wide}"
        tiles = -(-rows // columns)
        if axis > row_columns.CUT:
            segments = -(-axis // row_columns.SEGMENT)
            return _cut(kernel, form, tiles, segments, row_columns.SEGMENT * columns)
        return (Dispatch(form, tiles, axis * columns * (passes + 1)),)

    return choose


def _cut(kernel: Rowwise, form: str, tiles: int, segments: int, work: int) -> list[Dispatch]:
    """The dispatches of a launch whose segments have workgroups of their own."""
    steps, count, elements = [], len(stages(kernel)), "element" in kernel.kinds
    for n in range(count):
        steps.append(Dispatch(f"{form}/partial/{n}", tiles * segments, work))
        last = n == count - 1 and not elements
        steps.append(
            Dispatch(f"{form}/{'finish' if last else 'combine'}/{n}", tiles, segments * GROUP)
        )
    if elements:
        steps.append(Dispatch(f"{form}/elements", tiles * segments, work))
    if "row" in kernel.kinds and (elements or not count):
        steps.append(Dispatch(f"{form}/rows", tiles, GROUP))
    return steps


def _schedule_contract(kernel: Contract, occupied: Occupied) -> Schedule:
    small = (
        kernel.compute.itemsize == 4
        and kernel.compute.kind in "iuf"
        and compute_type(kernel.dtype).kind == kernel.compute.kind
    )

    def choose(
        sizes: Sequence[int], offsets: Sequence[int], strides: Sequence[int]
    ) -> Sequence[Dispatch]:
        x, y, m, n, k = sizes
        if small and m > 8 and n > 8:
            found = tiling(kernel.dtype, sizes, offsets, strides, occupied)
            side = found.side
            return (Dispatch(found.form, x * y * -(-m // side) * -(-n // side), side * side * k),)
        return (Dispatch("", -(-(x * y * m * n) // GROUP), GROUP * k),)

    return choose
