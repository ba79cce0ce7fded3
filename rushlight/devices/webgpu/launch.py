"""Built kernels: from flat numbers to queued dispatches.

A launch finds its pipeline and bind group in one dictionary, keyed by the operands' buffers and the
form of the kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from rushlight.core import config
from rushlight.core.dtypes import DType
from rushlight.core.errors import DeviceError
from rushlight.devices.shared.allocator import Scratch, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.devices.webgpu.buffers import NUMBER_BITS, OFFSET_MASK, Buffers
from rushlight.devices.webgpu.stream import MOST_GROUPS, MOST_WORK, Stream, split
from rushlight.emit.wgsl.kernels import (
    MORE,
    Dispatch,
    emit,
    layout_for,
    schedule,
    scratch_bytes,
    uses_scratch,
)
from rushlight.emit.wgsl.layout import (
    Aliases,
    alias_pattern,
    layout_of,
    with_scratch,
    written_bindings,
)
from rushlight.emit.wgsl.types import round_to_float32
from rushlight.kernel.shapes import Contract, Gather, Kernel, Scan, Scatter

KEPT_GROUPS = 4096  # bind groups kept per kernel
KEPT_PIPELINES = 1024  # per device: Mesa's llvmpipe holds half a megabyte for each
LONGEST_WALK = (
    32768  # steps of a loop in one dispatch: Mesa's llvmpipe ends all loops after 65535 iterations
)

Pipeline = tuple[Any, Any, int]  # with the layout of its bindings and the launch block's bytes
Binding = tuple[Any, Any]  # pipeline, bind group
Key = tuple[tuple[int, ...], str]  # the operands' buffers, the form


class Built:
    """A kernel's pipelines and bind groups on one device."""

    def __init__(self, device: Buffers, kernel: Kernel) -> None:
        self.device = device
        self.kernel = kernel
        self.layout = layout_of(kernel)
        self.pipelines: dict[tuple[Aliases, str], Pipeline] = {}
        self.bindings: dict[Key, Binding] = {}
        self.uses_status = isinstance(kernel, Gather | Scatter)
        # Of a launch that is cut: Note [Launch block], with a scratch block.
        self.pack_cut = struct.Struct(with_scratch(self.layout).pack_format()).pack

    def binding(self, buffers: tuple[int, ...], form: str) -> Binding:
        """The pipeline and bind group for operands in these buffers."""
        aliases = alias_pattern(buffers)
        pipeline, group_layout, size = self.pipeline(aliases, form)
        distinct = list(dict.fromkeys(buffers))
        device = self.device
        bound = [device.buffer(number) for number in distinct]
        found = pipeline, device.bind_group(group_layout, size, bound)
        if len(self.bindings) >= KEPT_GROUPS:
            self.forget(next(iter(self.bindings)))
        # Users first: after a Ctrl-C in between, no bind group outlives its buffers.
        for buffer in distinct:
            device.users.setdefault(buffer, set()).add((self, (buffers, form)))
        self.bindings[buffers, form] = found
        return found

    def forget(self, key: Key) -> None:
        """Drop a bind group: the oldest, or one whose buffer is freed."""
        self.bindings.pop(key, None)
        for buffer in set(key[0]):
            users = self.device.users.get(buffer)  # None: the buffer is freed, or a Ctrl-C came
            if users is not None:
                users.discard((self, key))

    def forget_pipeline(self, aliases: Aliases, form: str) -> None:
        """Drop a pipeline and its bind groups; the next launch that needs it compiles it again."""
        self.pipelines.pop((aliases, form), None)
        for key in list(self.bindings):
            if key[1] == form and alias_pattern(key[0]) == aliases:
                self.forget(key)

    def pipeline(self, aliases: Aliases, form: str) -> Pipeline:
        """The compiled text of one form and alias pattern."""
        found = self.pipelines.get((aliases, form))
        if found is None:
            layout = layout_for(self.kernel, form)
            size = -(-4 * len(layout.fields()) // 16) * 16
            written = written_bindings(layout, aliases)
            if len(written) > self.device.most_bindings:
                raise DeviceError(
                    f"webgpu: a kernel with {len(written)} buffers; this adapter binds "
                    f"{self.device.most_bindings}. "
                    "Split the kernel."
                )
            text = emit(self.kernel, self.device.features, aliases, form)
            if config.debug_level() > 1:
                print(text)
            found = (*self.device.compile(text, written, size), size)
            compiled = self.device.compiled
            while len(compiled) >= KEPT_PIPELINES:
                oldest = next(iter(compiled))
                del compiled[oldest]
                oldest[0].forget_pipeline(*oldest[1:])
            self.pipelines[aliases, form] = found
            compiled[self, aliases, form] = None
        return found


def build_launch(device: Buffers, kernel: Kernel) -> Launch:
    """The callable of Note [Kernel arguments]."""
    built = Built(device, kernel)
    launch = _make_launch(built, "")
    widths = tuple(o.dtype.itemsize for o in built.layout.operands)
    if isinstance(kernel, Scatter):
        return _scatter_in_stretches(launch, widths)
    if isinstance(kernel, Scan):
        return _scan_in_stretches(launch, _make_launch(built, MORE), widths)
    if isinstance(kernel, Contract):
        return _contract_in_stretches(launch, _make_launch(built, MORE), widths)
    return launch


def _make_launch(built: Built, suffix: str) -> Launch:
    """A function that queues the dispatches of one launch; `suffix` is added to the form's name."""
    device, layout = built.device, built.layout
    choose = schedule(built.kernel, device.occupied)
    count = len(layout.operands)
    sizes_end = count + layout.sizes
    widths = tuple(o.dtype.itemsize for o in layout.operands)
    pack = struct.Struct(layout.pack_format()).pack
    bindings, stream, lock = built.bindings, device.stream, device.lock
    uses_status = built.uses_status

    def launch(*numbers: Any) -> None:
        addresses = numbers[:count]
        offsets = [(a & OFFSET_MASK) // w for a, w in zip(addresses, widths, strict=True)]
        sizes = numbers[count:sizes_end]
        steps = choose(sizes, offsets, numbers[sizes_end:])
        if not steps[0].groups:
            return
        buffers = tuple([a >> NUMBER_BITS for a in addresses])
        if len(steps) > 1 or uses_scratch(steps[0].form):
            _launch_cut(built, steps, buffers, offsets, numbers)
            return
        with lock:
            if uses_status:
                device.status_used = True
            form, groups, work = steps[0]
            form += suffix
            found = bindings.get((buffers, form)) or built.binding(buffers, form)
            try:
                block = pack(0, 0, *offsets, *numbers[count:])
            except (struct.error, OverflowError):
                block = pack(0, 0, *offsets, *_fitting(numbers[count:], layout.params))
            if groups <= MOST_GROUPS and groups * work <= MOST_WORK:
                stream.record(found[0], found[1], block, (groups, 1), groups * work)
            else:
                _record_parts(stream, found, block, groups, work)

    return launch


def _scatter_in_stretches(launch: Launch, widths: Sequence[int]) -> Launch:
    """A scatter of many indices as several in sequence: a target's updates keep their order."""

    def stretched(*numbers: Any) -> None:
        out, source, index, status, outer, count, inner, limit, *strides = numbers
        if count <= LONGEST_WALK:
            launch(*numbers)
            return
        for start in range(0, count, LONGEST_WALK):
            here = (source + start * strides[4] * widths[1], index + start * strides[7] * widths[2])
            launch(
                out, *here, status, outer, min(LONGEST_WALK, count - start), inner, limit, *strides
            )

    return stretched


def _scan_in_stretches(launch: Launch, more: Launch, widths: Sequence[int]) -> Launch:
    """A scan along a long axis as several; each starts from the last result of the one before."""
    operands = len(widths)

    def stretched(*numbers: Any) -> None:
        outer, count, inner, *strides = numbers[operands:]
        if count <= LONGEST_WALK:
            launch(*numbers[:operands], outer, count, inner, 0, *strides)
            return
        for start in range(0, count, LONGEST_WALK):
            here = [
                a + start * strides[3 * i + 1] * widths[i] for i, a in enumerate(numbers[:operands])
            ]
            (more if start else launch)(
                *here, outer, min(LONGEST_WALK, count - start), inner, start, *strides
            )

    return stretched


def _contract_in_stretches(launch: Launch, more: Launch, widths: Sequence[int]) -> Launch:
    """A contraction over a long k as several; each adds to the sum.

    A half's sum is rounded in between.
    """
    operands = len(widths)

    def stretched(*numbers: Any) -> None:
        x, y, m, n, count, *strides = numbers[operands:]
        if count <= LONGEST_WALK:
            launch(*numbers)
            return
        out, a, b, *added = numbers[:operands]
        for start in range(0, count, LONGEST_WALK):
            here = (a + start * strides[7] * widths[1], b + start * strides[10] * widths[2])
            (more if start else launch)(
                out, *here, *added, x, y, m, n, min(LONGEST_WALK, count - start), *strides
            )

    return stretched


def _launch_cut(
    built: Built,
    steps: Sequence[Dispatch],
    buffers: tuple[int, ...],
    offsets: list[int],
    numbers: Sequence[Any],
) -> None:
    """A launch of several dispatches, which pass results on in a scratch block."""
    count, device, layout = len(buffers), built.device, built.layout
    room = room_for(scratch_bytes(built.kernel, numbers[count : count + layout.sizes]))
    block = built.pack_cut(0, 0, *offsets, 0, *_fitting(numbers[count:], layout.params))
    # Taken before the lock: a drop may need it. It may be reused at once, by later dispatches.
    with Scratch(device.pool(), room) as (scratch,), device.lock:
        if built.uses_status:
            device.status_used = True
        everything = (*buffers, scratch >> NUMBER_BITS)
        for form, groups, work in steps:
            found = built.bindings.get((everything, form)) or built.binding(everything, form)
            _record_parts(device.stream, found, block, groups, work)


def _record_parts(stream: Stream, found: Binding, block: bytes, groups: int, work: int) -> None:
    for first, grid in split(groups, work):
        part = first.to_bytes(4, "little") + block[4:]
        stream.record(found[0], found[1], part, grid, grid[0] * grid[1] * work)


def _fitting(numbers: Sequence[Any], types: Sequence[DType]) -> list[Any]:
    """Params converted to the range of their types: floats overflow to infinity, integers wrap."""
    start = len(numbers) - len(types)
    result = list(numbers[:start])
    for value, dtype in zip(numbers[start:], types, strict=True):
        if dtype.kind == "f":
            result.append(float(value) if dtype.itemsize == 8 else round_to_float32(float(value)))
        elif dtype.kind in "ub":
            result.append(int(value) & ((1 << max(32, 8 * dtype.itemsize)) - 1))
        else:
            half = 1 << (dtype.itemsize * 8 - 1)
            result.append((int(value) + half) % (2 * half) - half)
    return result
