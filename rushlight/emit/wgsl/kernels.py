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
from rushlight.emit.wgsl import convolve
from rushlight.emit.wgsl.attend import attend_text, groups_of
from rushlight.emit.wgsl.contract import TILE, plain_contract_text, tiled_contract_text
from rushlight.emit.wgsl.index import gather_text, scatter_text, slices_of
from rushlight.emit.wgsl.layout import Aliases, Layout, flag_of, layout_of, separate, with_scratch
from rushlight.emit.wgsl.map import map_text, packed_map_text, packed_run, wide_map_text, wide_run
from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.emit.wgsl.rows import Rows, chunk_of
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
# Note [Rows in WGSL]: the walkers of a row up to some axis lengths, and the lengths from which rows
# are cut.
AXIS_WALKERS = ((4, 1), (64, 8), (1024, 32))
LONG_COLUMN = 64
COLUMN_WALKERS = 8
CUT_COLUMN = 2048
CUT_AXIS = 16384


MORE = "+"  # suffix of a form of Scan or Contract: it continues from an earlier launch's output


class Dispatch(NamedTuple):
    """One dispatch of a launch: the form, the workgroups, and roughly the steps of each."""

    form: str
    groups: int
    work: int


# Of sizes, and of the operands' offsets in elements.
Schedule = Callable[[Sequence[int], Sequence[int]], Sequence[Dispatch]]


def emit(kernel: Kernel, features: Features, aliases: Aliases | None = None, form: str = "") -> str:
    """The text of one form of a kernel; without `form`, of the form that fits any launch."""
    if isinstance(kernel, Convolve):
        form = form or convolve.any_form(kernel)
    layout = layout_for(kernel, form)
    module = Module(
        layout,
        aliases or separate(layout),
        features,
        whole_words=form in ("packed", "wide"),
        flag=flag_of(kernel),
        vectors=form == "wide",
    )
    if isinstance(kernel, Map | Rowwise) and kernel.anomaly is not None:
        outputs = len(kernel.outputs)
        module.anomaly = {
            **dict.fromkeys(range(outputs), 1),
            **{outputs + i: LOADED for i in kernel.anomaly},
        }
    kernel = lower_bodies(kernel)
    if isinstance(kernel, Map):
        return {"packed": packed_map_text, "wide": wide_map_text}.get(form, map_text)(
            module, kernel
        )
    if isinstance(kernel, Rowwise):
        return _rowwise_text(module, kernel, form)
    if isinstance(kernel, Scan):
        return scan_text(module, kernel, form == MORE)
    if isinstance(kernel, Contract):
        text = tiled_contract_text if form.startswith("tiled") else plain_contract_text
        return text(module, kernel, form.endswith(MORE))
    if isinstance(kernel, Convolve):
        return convolve.convolve_text(module, kernel, form)
    if isinstance(kernel, Attend):
        return attend_text(module, kernel)
    if isinstance(kernel, Gather):
        return gather_text(module, kernel)
    assert isinstance(kernel, Scatter)
    return scatter_text(module, kernel)


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
    return 8 * sizes[0] * sizes[2] * (len(kernel.passes) + -(-sizes[1] // chunk_of(kernel)))


def _rowwise_text(module: Module, kernel: Rowwise, form: str) -> str:
    """`form` is "walkers", or "walkers/partial/k" and the like."""
    walkers, *stage = form.split("/")
    rows = Rows(module, kernel, int(walkers or 1), chunked=bool(stage))
    if not stage:
        return rows.whole()
    if stage[0] in ("elements", "rows"):
        return rows.elements() if stage[0] == "elements" else rows.rows()
    k = int(stage[1])
    return rows.partial(k) if stage[0] == "partial" else rows.combine(k)


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


def schedule(kernel: Kernel) -> Schedule:
    """The choice of form for a kernel's launches."""
    if isinstance(kernel, Map):
        return _schedule_map(kernel)
    if isinstance(kernel, Rowwise):
        return _schedule_rowwise(kernel)
    if isinstance(kernel, Contract):
        return _schedule_contract(kernel)
    if isinstance(kernel, Convolve):
        return lambda sizes, _: [Dispatch(*each) for each in convolve.forms(kernel, sizes)]
    if isinstance(kernel, Attend):
        return lambda sizes, _: (Dispatch("", *groups_of(kernel, tuple(sizes))),)
    if isinstance(kernel, Gather):
        return lambda sizes, _: (
            Dispatch("", -(-(sizes[0] * sizes[1] * sizes[2]) // GROUP), GROUP),
        )
    if isinstance(kernel, Scatter):
        return _schedule_scatter
    assert isinstance(kernel, Scan)
    return lambda sizes, _: (
        Dispatch("", -(-(sizes[0] * sizes[2]) // GROUP) if sizes[1] else 0, GROUP * sizes[1]),
    )


def _schedule_scatter(sizes: Sequence[int], offsets: Sequence[int]) -> Sequence[Dispatch]:
    groups = -(-(sizes[0] * sizes[2] * slices_of(sizes)) // GROUP) if sizes[1] else 0
    return (Dispatch("", groups, GROUP * sizes[1]),)


def _schedule_map(kernel: Map) -> Schedule:
    run = packed_run(kernel)
    small = [(i, 4 // d.itemsize) for i, d in enumerate(kernel.outputs) if d.itemsize < 4]
    wide = wide_run(kernel)
    dtypes = kernel.outputs + kernel.inputs
    moving = [(i, 16 // d.itemsize) for i, d in enumerate(dtypes) if kernel.steps[i] == "1"]

    def choose(sizes: Sequence[int], offsets: Sequence[int]) -> Sequence[Dispatch]:
        total = 1
        for size in sizes:
            total *= size
        many = wide > 1 and total >= LEAST_WIDE and total % wide == 0
        if many and not any(offsets[i] % per for i, per in moving):
            return (Dispatch("wide", -(-total // (GROUP * wide)), GROUP * wide),)
        if run > 1 and not any(offsets[i] % per for i, per in small):
            return (Dispatch("packed", -(-total // (GROUP * run)), GROUP * run),)
        return (Dispatch("", -(-total // GROUP), GROUP),)

    return choose


def _walkers(kernel: Rowwise, axis: int) -> int:
    """Invocations of a row: Note [Rows in WGSL]."""
    if kernel.vector != "axis":
        return COLUMN_WALKERS if axis > LONG_COLUMN else 1
    return next((walkers for most, walkers in AXIS_WALKERS if axis <= most), GROUP)


def _schedule_rowwise(kernel: Rowwise) -> Schedule:
    along = kernel.vector == "axis"
    longest, many = (CUT_AXIS, GROUP) if along else (CUT_COLUMN, COLUMN_WALKERS)
    passes, chunk = len(kernel.passes), chunk_of(kernel)

    def choose(sizes: Sequence[int], _: Sequence[int]) -> Sequence[Dispatch]:
        outer, axis, inner = sizes
        if axis > longest:
            return cut(-(-(outer * inner) // (GROUP // many)), -(-axis // chunk))
        walkers = _walkers(kernel, axis)
        columns = GROUP // walkers
        return (
            Dispatch(str(walkers), -(-(outer * inner) // columns), axis * columns * (passes + 1)),
        )

    def cut(tiles: int, chunks: int) -> list[Dispatch]:
        work = chunk * (GROUP // many)
        steps = []
        for k in range(passes):
            steps.append(Dispatch(f"{many}/partial/{k}", tiles * chunks, work))
            steps.append(Dispatch(f"{many}/combine/{k}", tiles, chunks * GROUP // many))
        if "element" in kernel.kinds:
            steps.append(Dispatch(f"{many}/elements", tiles * chunks, work))
        if "row" in kernel.kinds:
            steps.append(Dispatch(f"{many}/rows", tiles, GROUP))
        return steps

    return choose


def _schedule_contract(kernel: Contract) -> Schedule:
    small = (
        kernel.compute.itemsize == 4
        and kernel.compute.kind in "iuf"
        and compute_type(kernel.dtype).kind == kernel.compute.kind
    )

    def choose(sizes: Sequence[int], _: Sequence[int]) -> Sequence[Dispatch]:
        x, y, m, n, k = sizes
        if small and m > 8 and n > 8:
            return (Dispatch("tiled", x * y * -(-m // TILE) * -(-n // TILE), TILE * TILE * k),)
        return (Dispatch("", -(-(x * y * m * n) // GROUP), GROUP * k),)

    return choose
