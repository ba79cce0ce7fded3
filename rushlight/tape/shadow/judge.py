"""A launch computed again: the same op on the device that interprets kernels.

`reference` folds sums and computes elementary functions in float64. It is judged by the CPU itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from rushlight.core.dtypes import FLOAT8, DType
from rushlight.core.errors import RushlightError
from rushlight.core.precision import allows_tf32
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.record.op import Plan, never

Bytes = Any  # an ndarray of uint8: the elements of an operand, dense, in row-major order

_WORDS = {2: "uint16", 4: "uint32", 8: "uint64"}
# By type: the bits of an infinity.
_INFINITIES = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}
_PARTS = {"complex64": "float32", "complex128": "float64"}
_TF32_STEP = 1 << 12  # half of TF32's last place, in units of float32's


class _Busy(threading.local):
    """Whether this thread is judging: its own launches are not judged."""

    now = False


Busy = _Busy()


@contextlib.contextmanager
def judging() -> Iterator[None]:
    Busy.now = True
    try:
        yield
    finally:
        Busy.now = False


class Judge:
    """A plan's twin on the judging device."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.device = plan.pool.device

    def run(self, given: Sequence[Bytes], params: Sequence[Any]) -> list[Bytes]:
        """The results for operands' bytes."""
        plan, device = self.plan, self.device
        made: list[tuple[int, int]] = []

        def room(spec: Spec) -> int:
            nbytes = room_for(spec.high - spec.low)
            made.append((device.alloc(nbytes), nbytes))
            return made[-1][0] - spec.low

        try:
            outs = [room(spec) for spec in plan.outs]
            ins = [room(spec) for spec in plan.ins]
            for address, content in zip(ins, given, strict=True):
                if content.size:
                    device.copy_in(address, memoryview(content))
            plan.launch(*outs, *ins, *plan.tail, *params)  # type: ignore[misc]
            return [fetch(plan.pool, a, s) for a, s in zip(outs, plan.outs, strict=True)]
        finally:
            for address, nbytes in made:
                device.free(address, nbytes)


def judge_of(plan: Plan) -> Judge | None:
    """A judge of the plan's launches; None where the op makes no such plan elsewhere."""
    pool = plan.pool
    limits = pool.device.limits
    known = all(spec.device is pool for spec in plan.ins)
    if not known or not limits.computes or plan.plain is never:
        return None
    other = pool_of("cpu" if pool.device.name == "reference" else "reference")
    ins = [Spec.of(other, s.dtype, s.shape) for s in plan.ins]
    try:
        with judging():
            twin = plan.op.make_plan(ins, tuple(_elsewhere(each, other) for each in plan.static))
    except (RushlightError, NotImplementedError):
        return None
    same = [(s.dtype, s.shape) for s in twin.outs] == [(s.dtype, s.shape) for s in plan.outs]
    return Judge(twin) if same and twin.launch is not None and twin.pool is other else None


def _elsewhere(static: Any, pool: Pool) -> Any:
    """A static argument; where it is the layout of a result, one on another device."""
    if not isinstance(static, Spec):
        return static
    return Spec.of(pool, static.dtype, static.shape, static.strides)


def fetch(pool: Pool, address: int, spec: Spec) -> Bytes:
    """An operand's elements, after all earlier work."""
    import numpy as np

    content: Bytes = np.empty(spec.high - spec.low, np.uint8)
    if not content.size:
        return content
    first = address + spec.low
    if pool.device.limits.host_memory:
        ctypes.memmove(content.ctypes.data, first, content.size)
    else:
        pool.device.copy_out(first, memoryview(content))
    if spec.contiguous:
        return content
    size = spec.dtype.itemsize
    stored = content.view(f"V{size}")
    steps = [step * size for step in spec.strides]
    seen = np.lib.stride_tricks.as_strided(stored[-spec.low // size :], spec.shape, steps)
    return np.ascontiguousarray(seen).view(np.uint8).reshape(-1)


def moved(plan: Plan, i: int, content: Bytes, side: int) -> Bytes:
    """Input i with each float one unit in the last place up or down, in a fixed pattern."""
    import numpy as np

    dtype = plan.ins[i].dtype
    name = _PARTS.get(dtype.name, dtype.name)
    infinity = _INFINITIES.get(name)
    if infinity is None:
        return content
    width = dtype.itemsize // (2 if dtype.name in _PARTS else 1)
    words = content.view(_WORDS[width])
    kind = words.dtype.type
    size = words & kind((1 << (8 * width - 1)) - 1)
    step = _TF32_STEP if name == "float32" and uses_tf32(plan) else 1
    fits = (size > step) & (size < infinity - step)
    pattern = (np.arange(words.size, dtype=np.uint32) * np.uint32(0x9E3779B1)) >> np.uint32(31)
    up = (pattern != 0) ^ bool(side)
    changed = np.where(up, words + kind(step), words - kind(step))
    return np.ascontiguousarray(np.where(fits, changed, words)).view(np.uint8)


def uses_tf32(plan: Plan) -> bool:
    """Whether a sum of products of float32 may round its factors."""
    return plan.op.may_round and allows_tf32("convolution")


def work_of(plan: Plan) -> float:
    """Elements read or multiplied for each result."""
    results = reduce(lambda total, spec: total + spec.numel, plan.outs, 0)
    return max(1.0, plan.cost / max(1, results))


def values(content: Bytes, spec: Spec) -> Any:
    """The elements as float64, complex128 or whole numbers."""
    import numpy as np

    seen = content.view(stored_type(spec.dtype)).reshape(spec.shape)
    if spec.dtype.name == "bfloat16":
        return (seen.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if spec.dtype.kind in "fc" and spec.dtype not in FLOAT8:  # the codes of those are whole
        return seen.astype(np.complex128 if spec.dtype.kind == "c" else np.float64)
    return seen


def stored_type(dtype: DType) -> Any:
    import numpy as np

    if dtype in FLOAT8:
        return np.dtype("uint8")
    return np.dtype("uint16" if dtype.name == "bfloat16" else dtype.name)
