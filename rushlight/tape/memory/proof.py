"""Proof: the bits that a replay makes, compared with those that were dropped.

# Note [Proof]
1. A region with a `Witness` takes a digest of each result that gets a recipe, when it is made.
   `Recipe.proof` runs in place of the plan's launch in every replay: it fills the results with a
   pattern, launches the plan, and compares the digests.
2. The pattern makes a kernel visible that leaves elements unwritten or reads its own results. It
   is left out where an operand lies in the same memory.
3. A digest is of the elements: bytes between them, and beyond them in the block, do not count.
4. The sources of a replay are plain, or were rebuilt and compared before. So the first recipe whose
   digest differs is the call at fault.
5. A `Proving` region gives every call a recipe. With `drops` each result is dropped as soon as it
   is made, and kept once it was rebuilt: each call is replayed once. A row of in-place writes is
   replayed from its start, so it is dropped up to the `_LONGEST`-th.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT8, DType
from rushlight.core.errors import ExactnessError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory.recipe import Recipe, make_plain
from rushlight.tape.memory.region import Region, drop
from rushlight.tape.record.op import Plan, describe
from rushlight.tape.record.source_line import SourceLine, here

_CHUNK = 16 << 20  # bytes copied to the host at once
# Each fill has another byte: memory that was filled before shows too.
_PATTERNS = itertools.cycle(range(0x41, 0x7F))
_LONGEST = 4


class Witness:
    """Gives each recipe of a region a proof.

    `kept` is the number of the call whose bytes are kept as well. With `traces`, `trace` has the
    proofs of all calls, with digests of their operands.
    """

    def __init__(self, kept: int | None = None, traces: bool = False) -> None:
        self.kept = kept
        self.trace: list[Proof] | None = [] if traces else None
        self.calls = 0
        self.drops = False

    def see(self, recipe: Recipe, storages: Sequence[Storage]) -> None:
        """Called for a new recipe, under `replay.LOCK`; its results are present."""
        self.calls += 1
        if not recipe.plan.pool.device.limits.computes:
            return
        recipe.proof = Proof(recipe, storages, self.calls, self.calls == self.kept)
        if self.trace is not None:
            recipe.proof.operands = [
                digest(spec, address) for spec, address in plain_operands(recipe)
            ]
            self.trace.append(recipe.proof)
        if self.drops:
            for storage in storages:
                if recipe.length <= _LONGEST:
                    drop(storage)
                else:
                    make_plain(storage)


class Proof:
    """Digests of a call's results: the launch of its replays. See Note [Proof]."""

    __slots__ = ("contents", "digests", "number", "operands", "params", "place", "plan")

    def __init__(
        self, recipe: Recipe, storages: Sequence[Storage], number: int, keep: bool
    ) -> None:
        self.plan: Plan = recipe.plan
        self.params = recipe.params
        self.place: SourceLine = here()
        self.number = number  # of the call in its region
        made = list(zip(self.plan.outs, addresses_of(recipe, storages), strict=True))
        self.digests = [digest(spec, address) for spec, address in made]
        self.contents = [content(spec, address) for spec, address in made] if keep else None
        self.operands: list[bytes] = []  # digests of those that no call of the region made

    def __call__(self, *numbers: Any) -> None:
        plan = self.plan
        assert plan.launch is not None
        count = len(plan.outs)
        made = list(zip(plan.outs, numbers[:count], strict=True))
        read = list(zip(plan.ins, numbers[count:], strict=False))
        for spec, address in made:
            if not any(_overlap(spec, address, *operand) for operand in read):
                _fill(spec, address)
        plan.launch(*numbers)
        for i, (spec, address) in enumerate(made):
            if digest(spec, address) != self.digests[i]:
                again = None if self.contents is None else content(spec, address)
                raise self.error(i, "rebuilding its result", again)

    def error(self, index: int, what: str, again: bytes | None) -> ExactnessError:
        """The error of a result that has other bits than before."""
        plan, spec, place = self.plan, self.plan.outs[index], self.place
        count, largest, extent = None, None, ""
        if self.contents is not None and again is not None:
            count, largest = differences(self.contents[index], again, spec.dtype)
            extent = f" ({describe_difference(count, spec.numel, largest)})"
        of = f" of {describe(plan.ins)}" if plan.ins else ""
        return ExactnessError(
            f"{plan.op.name}{of}, called at {place}: {what} {spec!r} gave other bits than its "
            f"first run{extent}; the kernel is not deterministic, or reads memory that nothing "
            "wrote",
            op=plan.op.name,
            place=str(place),
            module=place.module,
            shapes=tuple(s.shape for s in plan.ins),
            count=count,
            largest=largest,
            call=self.number,
        )


class Proving(Region):
    """A region whose calls a witness sees. See Note [Proof] 5."""

    def __init__(self, witness: Witness, drops: bool = False) -> None:
        super().__init__()
        self.witness = witness
        witness.drops = drops

    def rebuilds(self, plan: Plan) -> bool:
        return True

    def use(self, storage: Storage) -> None:
        if self.witness.drops and self.made_here(storage) and storage.block is not None:
            make_plain(storage)
        super().use(storage)


def addresses_of(recipe: Recipe, storages: Sequence[Storage]) -> list[int]:
    """Where the results of a new recipe are."""
    offset = 0 if recipe.onto is None else recipe.onto.offset
    return [s.present_address + offset for s in storages]  # type: ignore[operator]


def plain_operands(recipe: Recipe) -> list[tuple[Spec, int]]:
    """The operands of a new recipe that no recipe makes, and where they are."""
    return [
        (spec, origin.present_address + offset)  # type: ignore[operator]
        for spec, (origin, _, offset) in zip(recipe.plan.ins, recipe.sources, strict=False)
        if isinstance(origin, Storage)
    ]


def describe_difference(count: int, numel: int, largest: float) -> str:
    return f"{count} of {numel} elements differ, by at most {largest:.3g}"


def _overlap(a: Spec, at: int, b: Spec, other: int) -> bool:
    return a.device is b.device and at + a.low < other + b.high and other + b.low < at + a.high


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
        byte = bytes([next(_PATTERNS)])
        for start in range(spec.low, spec.high, _CHUNK):
            pattern = byte * min(_CHUNK, spec.high - start)
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
    if dtype in FLOAT8:
        return flat.astype(np.float64)  # the codes, which differ by steps
    if dtype.name == "bfloat16":
        return (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return flat.view(dtype.name).astype(np.complex128 if dtype.kind == "c" else np.float64)
