"""Attention of halves by cuDNN: an override of Attend that changes rounding only.

# Note [cuDNN attention]
1. It needs NVIDIA's Python frontend, the package `cudnn`. Where that is missing, and for masks,
   dropout, heads above 128 features or of a number that 8 does not divide, and strides that are not
   multiples of 16 bytes, own kernels run. An operand at another address is copied, so that the bits
   do not depend on addresses.
2. A plan is made for sizes, strides and scale, and kept in memory and, serialised, on disk: to
   build one takes up to a second, to read one some milliseconds. So most numbers of rows or keys
   that a growing sequence has, which `_LENGTHS` lists, have own kernels.
3. The backward is the deterministic one. Its workspace, taken from the pool, has the scores'
   gradient in halves, so heads are computed in parts whose workspaces have at most
   `MOST_WORKSPACE` bytes.
4. A layout that cuDNN does not support is remembered. Any other failure raises.
"""

from __future__ import annotations

import hashlib
import importlib
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, ClassVar, NamedTuple

from rushlight.core.dtypes import bfloat16, float16, float32
from rushlight.core.errors import DeviceError
from rushlight.devices.cuda.aligned import Aligned
from rushlight.devices.cuda.driver import Session
from rushlight.devices.cuda.handles import Holder
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.cache import read_object, write_object
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.attend import inner_sizes, operands_of, outputs_of
from rushlight.kernel.shapes import Attend

MOST_WORKSPACE = 512 << 20
WIDEST = 128
_ALIGNMENT = 16
_LENGTHS = (64, 8)  # what divides the rows and keys: of all sequences, and of long ones
_LONG = 512
_TILE = 128  # of rows and of keys, to whose multiples the scores' gradient is padded
# What a failure of the moment says, as opposed to a graph that is not supported.
_TRANSIENT = ("ALLOC_FAILED", "memory", "INTERNAL_ERROR", "EXECUTION_FAILED", "HANDLE", "cuda")
_MOST_PLANS = 1024
_NAMES = {float16: "HALF", bfloat16: "BFLOAT16", float32: "FLOAT"}
_VERSION = 1


@cache
def frontend() -> Any | None:
    """NVIDIA's Python package, or None."""
    try:
        return importlib.import_module("cudnn")
    except (ImportError, OSError):
        return None


def takes(kernel: Attend) -> bool:
    return (
        kernel.dtype in (float16, bfloat16)
        and kernel.of in ("output", "operands")
        and kernel.mask is None
        and not kernel.dropout
        and kernel.width % 8 == kernel.depth % 8 == 0
        and min(kernel.width, kernel.depth) > 0
        and max(kernel.width, kernel.depth) <= WIDEST
    )


class Layout(NamedTuple):
    """The sizes of one part (batch, heads, rows, keys), each operand's strides, and the scale."""

    sizes: tuple[int, int, int, int]
    strides: tuple[tuple[int, ...], ...]
    scale: float


class Plan(NamedTuple):
    graph: Any
    workspace: int
    moves: list[tuple[int, ...]]  # for each part, how far each operand's address moves
    spans: list[int]  # each operand's bytes


def layout_of(kernel: Attend, numbers: Sequence[float]) -> tuple[Layout, tuple[int, int]] | None:
    """What one call of cuDNN computes, and the batch; None where own kernels run.

    `numbers` are a launch's after the addresses.
    """
    x, batch, heads, rows, keys = (int(n) for n in numbers[:5])
    types = operands_of(kernel)
    steps = [tuple(map(int, numbers[5 + 5 * i : 10 + 5 * i])) for i in range(len(types))]
    divisor = _LENGTHS[min(rows, keys) >= _LONG]
    if x != 1 or not batch * heads * rows * keys or rows % divisor or keys % divisor:
        return None
    part = _part(kernel, batch, heads, rows, keys)
    if part is None:
        return None
    laid = []
    for (name, dtype), (_, *own) in zip(types.items(), steps, strict=True):
        whole = (batch, heads, *inner_sizes(kernel, name, rows, keys))
        if any(n > 1 and step <= 0 for n, step in zip(whole, own, strict=True)):
            return None
        sizes, found, dense = (*part, *whole[2:]), [0] * 4, 1
        for d in reversed(range(4)):  # a dimension of size 1 has the stride of a dense one
            found[d] = own[d] if sizes[d] > 1 else dense
            dense = max(dense, found[d] * sizes[d])
        if dtype is kernel.dtype and not _is_aligned(whole, own):
            return None
        laid.append(tuple(found))
    return Layout((*part, rows, keys), tuple(laid), float(numbers[-1])), (batch, heads)


def _is_aligned(sizes: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether rows of halves begin at multiples of 16 bytes, in every part."""
    moves = [step for n, step in zip(sizes[:3], steps[:3], strict=True) if n > 1]
    return steps[3] == 1 and all(step * 2 % _ALIGNMENT == 0 for step in moves)


def _part(kernel: Attend, batch: int, heads: int, rows: int, keys: int) -> tuple[int, int] | None:
    """The batch entries and heads of one call: divisors, so that all calls have one plan."""
    if kernel.of == "output":
        return batch, heads
    most = MOST_WORKSPACE // _workspace(rows, keys)
    if most < 1:
        return None
    if most < heads:
        return 1, _divisor(heads, most)
    return _divisor(batch, most // heads), heads


def _workspace(rows: int, keys: int) -> int:
    """Bytes for one head in backward: the scores' gradient in halves, and a number per row."""
    padded, wide = (-(-n // _TILE) * _TILE for n in (rows, keys))
    return padded * (2 * wide + 4)


def scratch_rooms(kernel: Attend, numbers: Sequence[int]) -> list[int]:
    """The room that a launch takes from the pool where cuDNN computes it, estimated."""
    found = layout_of(kernel, numbers) if takes(kernel) and frontend() is not None else None
    if found is None or kernel.of == "output":
        return []
    batch, heads, rows, keys = found[0].sizes
    return [room_for(batch * heads * _workspace(rows, keys))]


def _divisor(count: int, most: int) -> int:
    return max(d for d in range(1, min(count, most) + 1) if count % d == 0)


def make_graph(cudnn: Any, kernel: Attend, layout: Layout, handle: Any) -> Any:
    """A built graph; its tensors' numbers are their operands', from 1."""
    types = operands_of(kernel)
    outputs, kinds = outputs_of(kernel), cudnn.data_type
    graph = cudnn.pygraph(
        io_data_type=getattr(kinds, _NAMES[kernel.dtype]),
        intermediate_data_type=kinds.FLOAT,
        compute_data_type=kinds.FLOAT,
        handle=handle,
    )
    batch, heads, rows, keys = layout.sizes
    dims = {n: [batch, heads, *inner_sizes(kernel, n, rows, keys)] for n in types}
    strides = dict(zip(types, map(list, layout.strides), strict=True))
    given = {
        name: graph.tensor(
            name=name,
            dim=dims[name],
            stride=strides[name],
            data_type=getattr(kinds, _NAMES[dtype]),
            uid=number,
        )
        for number, (name, dtype) in enumerate(types.items(), 1)
        if name not in outputs
    }
    common = {"attn_scale": layout.scale, "use_causal_mask": kernel.causal}
    operands = {name: given[name] for name in ("q", "k", "v")}
    if kernel.of == "output":
        made = graph.sdpa(name="attend", **operands, generate_stats=True, **common)
    else:
        made = graph.sdpa_backward(
            name="attend", **operands, o=given["out"], dO=given["g"], stats=given["level"],
            use_deterministic_algorithm=True, **common,
        )  # fmt: skip
    for number, (name, tensor) in enumerate(zip(outputs, made, strict=True), 1):
        tensor.set_output(True).set_uid(number).set_dim(dims[name]).set_stride(strides[name])
        tensor.set_data_type(getattr(kinds, _NAMES[types[name]]))
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    return graph


class Attention:
    """The launcher of one kernel: cuDNN where it can, else what `own` builds.

    See Note [cuDNN attention].
    """

    _handles = threading.local()
    _free: ClassVar[dict[int, list[Any]]] = {}  # by card: handles of threads that have ended

    def __init__(
        self,
        cudnn: Any,
        kernel: Attend,
        session: Session,
        own: Callable[[], Launch],
        pool: Callable[[], Pool],
    ) -> None:
        self.cudnn, self.kernel, self.session, self.own, self.pool = (
            cudnn, kernel, session, own, pool,
        )  # fmt: skip
        self.fallback: Launch | None = None
        self.types = operands_of(kernel)
        self.plans: dict[tuple[float, ...], Plan | None] = {}

    def __call__(self, *numbers: Any) -> None:
        count = len(self.types)
        addresses, rest = numbers[:count], numbers[count:]
        try:
            plan = self.plans[rest]
        except KeyError:
            if len(self.plans) >= _MOST_PLANS:
                self.plans.clear()
            plan = self.plans[rest] = self._plan(rest)
        if plan is None:
            if self.fallback is None:
                self.fallback = self.own()
            self.fallback(*numbers)
        elif any(a % _ALIGNMENT for a in addresses):
            made = len(outputs_of(self.kernel))
            with Aligned(self.pool(), self.session, addresses, plan.spans, made) as places:
                self._run(plan, places)
        else:
            self._run(plan, addresses)

    def _run(self, plan: Plan, addresses: Sequence[int]) -> None:
        handle = self._handle()
        with Scratch(self.pool(), room_for(max(plan.workspace, 1))) as (workspace,):
            self.session.await_arrival()
            for moves in plan.moves:
                places = {
                    i: a + m for i, (a, m) in enumerate(zip(addresses, moves, strict=True), 1)
                }
                plan.graph.execute(places, workspace, handle=handle)

    def _handle(self) -> Any:
        """The thread's handle, on the default stream."""
        session = self.session
        holders: dict[Any, Any] = self._handles.__dict__
        session.use()
        holder: Holder | None = holders.get(session.card)
        if holder is None:
            free = self._free.setdefault(session.card, [])
            made = free.pop() if free else self.cudnn.create_handle()
            holder = holders[session.card] = Holder(made, free)
        return holder.handle

    def _plan(self, numbers: tuple[float, ...]) -> Plan | None:
        found = layout_of(self.kernel, numbers)
        if found is None:
            return None
        layout, (batch, heads) = found
        graph = self._graph(layout)
        if graph is None:
            return None
        starts = product(range(0, batch, layout.sizes[0]), range(0, heads, layout.sizes[1]))
        steps = [
            (int(numbers[6 + 5 * i]) * dtype.itemsize, int(numbers[7 + 5 * i]) * dtype.itemsize)
            for i, dtype in enumerate(self.types.values())
        ]
        moves = [tuple(b * x + h * y for x, y in steps) for b, h in starts]
        return Plan(graph, int(graph.get_workspace_size()), moves, self._spans(numbers))

    def _spans(self, numbers: Sequence[float]) -> list[int]:
        """The bytes from each operand's first element to its last."""
        _, batch, heads, rows, keys = (int(n) for n in numbers[:5])
        found = []
        for i, (name, dtype) in enumerate(self.types.items()):
            sizes = (batch, heads, *inner_sizes(self.kernel, name, rows, keys))
            steps = map(int, numbers[6 + 5 * i : 10 + 5 * i])
            last = sum((n - 1) * step for n, step in zip(sizes, steps, strict=True))
            found.append((last + 1) * dtype.itemsize)
        return found

    def _graph(self, layout: Layout) -> Any | None:
        """From the disk, or built; None where cuDNN has no kernel for it."""
        cudnn, handle = self.cudnn, self._handle()
        version = f"{_VERSION} {cudnn.backend_version()} {cudnn.__version__} {self.session.target}"
        key = hashlib.sha256(f"{version} {self.kernel} {layout}".encode()).hexdigest()
        stored = read_object("cuda", key)
        if stored is not None:
            graph = cudnn.pygraph(handle=handle)
            try:
                graph.deserialize(list(stored))
            except RuntimeError:  # written by a library that is not this one: build it anew
                pass
            else:
                return graph
        try:
            graph = make_graph(cudnn, self.kernel, layout, handle)
        except cudnn.cudnnGraphNotSupportedError:
            return None
        except RuntimeError as error:
            if any(word in str(error) for word in _TRANSIENT):
                raise DeviceError(f"cuDNN could not build attention: {error}") from error
            return None
        write_object("cuda", key, bytes(graph.serialize()))
        return graph
