"""Proof: the bits that a replay makes, compared with those that were dropped.

# Note [Proof]
1. A region with a `Witness` takes a digest of each result that gets a recipe, when it is made.
   `Recipe.proof` runs in place of the plan's launch in every replay: it fills the results with a
   pattern, launches the plan, and compares the digests.
2. The pattern makes a kernel visible that leaves elements unwritten or reads its own results.
3. A digest is of the elements: bytes between them, and beyond them in the block, do not count.
4. The sources of a replay are plain, or were rebuilt and compared before. So the first recipe whose
   digest differs is the call at fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import ExactnessError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory.recipe import Recipe
from rushlight.tape.record.op import Plan, describe
from rushlight.tape.record.source_line import SourceLine, here

_CHUNK = 16 << 20  # bytes copied to the host at once
_PATTERN = 0x5A


class Witness:
    """Gives each recipe of a region a proof; `kept` is the call whose bytes are kept as well."""

    def __init__(self, kept: int | None = None) -> None:
        self.kept = kept
        self.calls = 0

    def see(self, recipe: Recipe, storages: Sequence[Storage]) -> None:
        """Called for a new recipe, under `replay.LOCK`; its results are present."""
        self.calls += 1
        if not recipe.plan.pool.device.limits.computes:
            return
        addresses = [s.present_address for s in storages]
        recipe.proof = Proof(recipe.plan, addresses, here(), self.calls, self.calls == self.kept)


class Proof:
    """Digests of a call's results: the launch of its replays. See Note [Proof]."""

    __slots__ = ("contents", "digests", "number", "place", "plan")

    def __init__(
        self, plan: Plan, addresses: Sequence[Any], place: SourceLine, number: int, keep: bool
    ) -> None:
        self.plan = plan
        self.place = place
        self.number = number  # of the call in its region
        self.digests = [digest(s, at) for s, at in zip(plan.outs, addresses, strict=True)]
        self.contents = None
        if keep:
            self.contents = [content(s, at) for s, at in zip(plan.outs, addresses, strict=True)]

    def __call__(self, *numbers: Any) -> None:
        plan = self.plan
        assert plan.launch is not None
        made = list(zip(plan.outs, numbers, strict=False))
        for spec, address in made:
            _fill(spec, address)
        plan.launch(*numbers)
        for i, (spec, address) in enumerate(made):
            if digest(spec, address) != self.digests[i]:
                raise self._error(i, spec, address)

    def _error(self, index: int, spec: Spec, address: int) -> ExactnessError:
        count = largest = None
        if self.contents is not None:
            count, largest = differences(self.contents[index], content(spec, address), spec.dtype)
        return call_error(
            self.plan, self.place, spec, "rebuilding its result", count, largest, self.number
        )


def call_error(
    plan: Plan,
    place: SourceLine,
    spec: Spec,
    what: str,
    count: int | None,
    largest: float | None,
    number: int,
) -> ExactnessError:
    """The error of a call whose result has other bits than before."""
    extent = "" if count is None else f" ({describe_difference(count, spec.numel, largest)})"
    of = f" of {describe(plan.ins)}" if plan.ins else ""
    return ExactnessError(
        f"{plan.op.name}{of}, called at {place}: {what} {spec!r} gave other bits than its first "
        f"run{extent}; the kernel is not deterministic, or reads memory that nothing wrote",
        op=plan.op.name,
        place=str(place),
        module=place.module,
        shapes=tuple(s.shape for s in plan.ins),
        count=count,
        largest=largest,
        call=number,
    )


def describe_difference(count: int, numel: int, largest: float | None) -> str:
    return f"{count} of {numel} elements differ, by at most {largest:.3g}"


# ---- bytes ----


def digest(spec: Spec, address: int) -> bytes:
    """A hash of the elements at an address."""
    made = hashlib.blake2b(digest_size=16)
    for part in _parts(spec, address):
        made.update(part)
    return made.digest()


def content(spec: Spec, address: int) -> bytes:
    """The elements at an address, in the order of a dense layout's memory."""
    return b"".join(map(bytes, _parts(spec, address)))


def _parts(spec: Spec, address: int) -> Iterator[Any]:
    device = spec.device.device
    if not spec.numel:
        return
    if spec.high - spec.low != spec.nbytes:
        yield _gathered(spec, address)
        return
    for start in range(spec.low, spec.high, _CHUNK):
        part = bytearray(min(_CHUNK, spec.high - start))
        device.copy_out(address + start, memoryview(part))
        yield part


def _gathered(spec: Spec, address: int) -> bytes:
    """The elements of a layout with gaps or repetitions."""
    import numpy as np

    span = bytearray(spec.high - spec.low)
    spec.device.device.copy_out(address + spec.low, memoryview(span))
    size = spec.dtype.itemsize
    seen = np.ndarray(
        spec.shape, f"V{size}", span, -spec.low, tuple([step * size for step in spec.strides])
    )
    return seen.tobytes()


def _fill(spec: Spec, address: int) -> None:
    """Overwrite a dense result with the pattern."""
    if spec.high - spec.low == spec.nbytes:
        for start in range(spec.low, spec.high, _CHUNK):
            pattern = bytes([_PATTERN]) * min(_CHUNK, spec.high - start)
            spec.device.device.copy_in(address + start, memoryview(pattern))


def differences(old: bytes, new: bytes, dtype: DType) -> tuple[int, float]:
    """The number of elements whose bits differ, and the largest absolute difference of them."""
    import numpy as np

    size = dtype.itemsize
    rows = [np.frombuffer(raw, np.uint8).reshape(-1, size) for raw in (old, new)]
    unequal = (rows[0] != rows[1]).any(1)
    a, b = (_numbers(row[unequal], dtype) for row in rows)
    with np.errstate(all="ignore"):
        largest = np.abs(a - b).max(initial=0.0)
    return int(unequal.sum()), float(largest)


def _numbers(rows: Any, dtype: DType) -> Any:
    import numpy as np

    flat = np.ascontiguousarray(rows).reshape(-1)
    if dtype.name == "bfloat16":
        return (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return flat.view(dtype.name).astype(np.complex128 if dtype.kind == "c" else np.float64)
