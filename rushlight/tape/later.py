"""Results of devices that answer late: what watched kernels met is read back when there is reason to wait anyway.

# Note [Watched later]
1. Every watched launch has a word in a row of words on the device, and an entry on the host: what was called, on which
   addresses, and where in the program. The words are read when a backward pass ends, when a tensor is read, when the mode
   ends, and when they are used up. Nothing else waits.
2. Then the entries are gone through in order. What a kernel was given it has seen itself. Of other launches it is known from the
   entries before: `bad` has the stretches of memory that hold NaN or infinities at that point. Memory that no entry has
   written was made outside, and is checked by a launch of its own, once until the words are read.
3. An entry names the node whose derivative was running, by its plan and place; it holds no storage.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

from rushlight.core import locks
from rushlight.core.dtypes import real_type
from rushlight.core.errors import AnomalyError
from rushlight.core.shapes import Spec
from rushlight.devices.allocator import Pool, Storage, room_for
from rushlight.devices.protocol import Launch
from rushlight.devices.transfers import Transfers
from rushlight.kernel.verify import verify
from rushlight.tape import place
from rushlight.tape.arming import known, loosen
from rushlight.tape.blame import (
    ORIGINS,
    Mode,
    backward_error,
    blame,
    called_at,
    can_watch,
    causes,
    check_numbers,
    checker,
    forward_error,
    is_to_blame,
    worst_given,
)
from rushlight.tape.finite import is_inexact, worst_loaded, worst_stored
from rushlight.tape.op import Plan
from rushlight.tape.place import Place
from rushlight.tape.value import Node, Value

WORDS = 1 << 14
MOST_OPERANDS = 7  # WebGPU promises 8 buffers a kernel, and the words are one
LOCK = locks.reentrant_lock()

Stretch = tuple[int, int]  # the first byte, and the one after the last
Owner = tuple[Plan, Place, Any]  # the call whose derivative is running, and its origin


class _Running(threading.local):
    """The node whose derivative is running in this thread, if one is."""

    owner: Node | None = None


Running = _Running()


@dataclass(slots=True)
class Entry:
    """One watched launch, or (`plan` is None) a look at memory from outside, or (`gradients`) at what a node gave."""

    word: int  # its number, or -1
    plan: Plan | None
    numbers: tuple[Any, ...]
    owner: Owner | None
    place: Place | None
    outs: tuple[Stretch, ...] = ()
    ins: tuple[int, ...] | None = None  # where it read, if its kernel has not told
    gradients: tuple[int, ...] | None = None


class Log:
    """What one device has been asked since its words were last read."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.words = Storage(pool, room_for(4 * WORDS))
        self.scratch = Storage(pool, room_for(8))
        self.tests: dict[Any, Launch] = {}
        self.clear(bytes(4 * WORDS))

    def clear(self, zeros: bytes = b"") -> None:
        self.entries: list[Entry] = []
        self.known: set[int] = set()  # addresses that an entry stands for, until something is copied in
        self.copies = Transfers.to_device
        self.used = 0
        if zeros:
            assert self.words.address is not None
            self.pool.device.copy_in(self.words.address, memoryview(zeros))

    def add(self, entry: Entry) -> int:
        """The address of the entry's word."""
        if self.used == WORDS:
            self.read()
        entry.word = self.used
        self.used += 1
        self.entries.append(entry)
        self.known.update(start for start, _ in entry.outs)
        assert self.words.address is not None
        return self.words.address + 4 * entry.word

    def check(self, operand: int, spec: Spec, entry: Entry) -> None:
        """Launch a look at an operand, and at what lies between its elements."""
        key = spec.dtype
        test = self.tests.get(key)
        if test is None:
            kernel = checker(real_type(key), ())
            verify(kernel)
            test = self.tests[key] = self.pool.device.build(kernel)
        word = self.add(entry)
        test(self.scratch.address, operand, word, *check_numbers(_reach(spec), spec.dtype))

    def check_outside(self, operand: int, spec: Spec) -> None:
        """Look at memory that no entry stands for."""
        if self.copies != Transfers.to_device:
            self.known.clear()
            self.copies = Transfers.to_device
        if operand not in self.known and is_inexact(spec):
            self.check(operand, spec, Entry(-1, None, (), None, None, (_stretch(operand, spec),)))

    def read(self) -> None:
        """Wait for the words; raise for the first entry that is to blame."""
        if not self.entries:
            return
        entries, met = self.entries, array("i", bytes(4 * max(1, self.used)))
        assert self.words.address is not None
        self.pool.device.copy_out(self.words.address, memoryview(met))
        self.clear(bytes(4 * len(met)) if any(met) else b"")
        if any(met):
            _go_through(entries, met)


LOGS: dict[Pool, Log] = {}


def is_needed(pool: Pool) -> bool:
    """Whether what happens on a device is known late only."""
    limits = pool.device.limits
    return limits.computes and (limits.asynchronous or not limits.host_memory)


def read_all() -> None:
    """Wait for every device's words."""
    with LOCK:
        for log in list(LOGS.values()):
            log.read()


def forget() -> None:
    with LOCK:
        LOGS.clear()


def _owner() -> Owner | None:
    node = Running.owner
    return None if node is None else (node.plan, node.place, ORIGINS.get(node))


def _log_of(pool: Pool) -> Log:
    log = LOGS.get(pool)
    if log is None:
        log = LOGS[pool] = Log(pool)
    return log


def _reach(spec: Spec) -> int:
    """How many elements there are from the first to the last."""
    return sum((n - 1) * step for n, step in zip(spec.shape, spec.strides, strict=True)) + 1


def _stretch(address: int, spec: Spec) -> Stretch:
    return address, address + _reach(spec) * spec.dtype.itemsize


# ---- launches ----


def make_watched(plan: Plan) -> Callable[..., None]:
    """The plan's launch with an entry; see Note [Watched plans] 2."""
    pool, ins, outs = plan.pool, plan.ins, plan.outs
    plain: Any = plan.plain
    reference = ref(plan)  # a plan has its launches
    first, operands = len(outs), len(outs) + len(ins)
    here = place.here
    inexact = [i for i, spec in enumerate(outs) if is_inexact(spec)]

    def launch_watched(*numbers: Any) -> None:
        if not Mode.on:
            loosen(known(reference))(*numbers)
            return
        with LOCK:
            written = tuple([_stretch(numbers[i], outs[i]) for i in inexact])
            word = _log_of(pool).add(Entry(-1, reference(), numbers, _owner(), here(), written))
            native(*numbers[:operands], word, *numbers[operands:])

    def launch_checked(*numbers: Any) -> None:
        if not Mode.on:
            loosen(known(reference))(*numbers)
            return
        with LOCK:
            log = _log_of(pool)
            read = tuple([numbers[first + i] for i in sources])
            for i in sources:
                log.check_outside(numbers[first + i], ins[i])
            plain(*numbers)
            for i in inexact:
                if outs[i].contiguous:
                    written = (_stretch(numbers[i], outs[i]),)
                    entry = Entry(-1, reference(), numbers, _owner(), here(), written, read)
                    log.check(numbers[i], outs[i], entry)

    sources = causes(plan)
    if not can_watch(plan) or operands > MOST_OPERANDS:
        return launch_checked
    kernel: Any = replace(plan.kernel, watched=tuple(sources))  # type: ignore[type-var]
    verify(kernel)
    native = pool.device.build(kernel)
    return launch_watched


def check_node(node: Node, grads: Sequence[Value | None], parts: Sequence[Value | None], own: bool) -> None:
    """Note what came to a node and what it gave."""
    with LOCK:
        log = _log_of(node.plan.pool)
        ends: list[tuple[int, ...]] = []
        for values in (grads, parts):
            found = []
            for value in values:
                if value is None or value.spec.hidden or value.storage.address is None:
                    continue
                if is_inexact(value.spec):
                    address = value.storage.address + value.offset
                    if own or values is grads:
                        log.check_outside(address, value.spec)
                    found.append(address)
            ends.append(tuple(found))
        owner = (node.plan, node.place, ORIGINS.get(node))
        log.entries.append(Entry(-1, None, (), owner, None, (), ends[1], ends[0]))


# ---- reading ----


def _go_through(entries: Sequence[Entry], met: Sequence[int]) -> None:
    bad: list[tuple[Stretch, int]] = []

    def worst_at(addresses: Sequence[int]) -> int:
        return max([kind for (start, end), kind in bad for a in addresses if start <= a < end], default=0)

    for entry in entries:
        if entry.gradients is not None:
            found = worst_at(entry.ins or ())
            if is_to_blame(found, worst_at(entry.gradients)):
                assert entry.owner is not None
                raise backward_error(entry.owner[0], found, "", called_at(*entry.owner[1:]))
            continue
        found = worst_stored(met[entry.word])
        if entry.plan is not None:
            told = worst_loaded(met[entry.word]) if entry.ins is None else worst_at(entry.ins)
            if is_to_blame(found, max(told, worst_given(entry.plan, entry.numbers))):
                raise _error_of(entry, found)
        bad = [(stretch, kind) for stretch, kind in bad if not _overwritten(stretch, entry.outs)]
        if found:
            bad += [(stretch, found) for stretch in entry.outs]


def _overwritten(stretch: Stretch, outs: Sequence[Stretch]) -> bool:
    return any(start <= stretch[0] and stretch[1] <= end for start, end in outs)


def _error_of(entry: Entry, found: int) -> AnomalyError:
    assert entry.plan is not None
    error = forward_error(entry.plan, found, "", str(entry.place))
    if entry.owner is not None:
        blame(error, entry.owner[0], called_at(*entry.owner[1:]))
    return error
