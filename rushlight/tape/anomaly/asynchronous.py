"""Anomaly checks on asynchronous devices, read at the next synchronisation.

# Note [Asynchronous anomaly checks]
1. Every launch with checks has a word in an array of words on the device, and an entry on the host:
   what was called, on which addresses, and where in the program. The words are read when a backward
   pass ends, when a tensor is read, when the mode ends, and when they are used up. Nothing else
   waits.
2. Then the entries are processed in order. A kernel with checks has tested its own inputs. For
   other launches the entries before tell: `bad` has the ranges of memory that hold NaN or
   infinities at that point. Memory that no entry has written was made outside, and is checked by a
   launch of its own, once: memory that was finite when the words were read stays so until a launch
   or a copy writes there.
3. An entry knows the node whose derivative was running. It holds no storage: a node's saves are
   freed when it has run.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from rushlight.core import locks
from rushlight.core.cache import cached
from rushlight.core.dtypes import DType, real_type
from rushlight.core.errors import AnomalyError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Pool, Storage, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.devices.shared.transfers import Transfers
from rushlight.kernel.verify import verify
from rushlight.tape.anomaly.arming import known, loosen
from rushlight.tape.anomaly.blame import (
    ORIGINS,
    Mode,
    backward_error,
    blame,
    called_at,
    can_check,
    causes,
    checker,
    forward_error,
    is_to_blame,
    worst_given,
)
from rushlight.tape.anomaly.finite import is_inexact, worst_loaded, worst_stored
from rushlight.tape.record.op import Plan, never
from rushlight.tape.record.source_line import CALLED, SourceLine, user_frame
from rushlight.tape.record.value import Node, Value

WORDS = 1 << 14
MOST_KNOWN = 1 << 16
SHORTEST_ROW, LONGEST_ROW = 63, 1024
MOST_OPERANDS = 7  # WebGPU guarantees 8 buffers per kernel, and the words take one
LOCK = locks.reentrant_lock()

Stretch = tuple[int, int]  # the first byte, and the one after the last

_get_frame = sys._getframe
_get_called = CALLED.get


class _Running(threading.local):
    """The node whose derivative is running in this thread, or None."""

    owner: Node | None = None


Running = _Running()


class Launched(NamedTuple):
    """A launch with checks; the log keeps it as a plain tuple.

    `tells`: its kernel has tested its inputs.
    """

    plan: Plan
    numbers: tuple[Any, ...]
    owner: Node | None  # its saves are freed when it has run
    code: CodeType
    at: int
    chain: Any
    tells: bool
    result: int = -1  # which result was tested; all where it is negative


class Outside(NamedTuple):
    """A test of memory that no launch has written."""

    address: int
    spec: Spec


class Passed(NamedTuple):
    """The addresses of the gradients that a node got, and of those it returned."""

    came: tuple[int, ...]
    gave: tuple[int, ...]
    owner: Node


Entry = Launched | Outside | Passed | tuple[Any, ...]


class Log:
    """The launches of one device since its words were last read.

    Entry number i has word number i.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.count = WORDS
        self.words = Storage(pool, room_for(4 * WORDS))
        self.first: int = self.words.address  # type: ignore[assignment]
        self.scratch = Storage(pool, room_for(8))
        # Addresses covered by an entry, until something bad is read or copied in.
        self.known: set[int] = set()
        self.copies = Transfers.to_device
        self.clear(bytes(4 * WORDS))

    def clear(self, zeros: bytes = b"") -> None:
        self.entries: list[Any] = []
        if zeros or len(self.known) > MOST_KNOWN:
            self.known.clear()
        if zeros:
            self.pool.device.copy_in(self.first, memoryview(zeros))

    def add(self, entry: Entry) -> int:
        """The address of the entry's word."""
        entries = self.entries
        if len(entries) >= self.count:
            self.read()
            entries = self.entries
        entries.append(entry)
        return self.first + 4 * len(entries) - 4

    def check_outside(self, operand: int, spec: Spec) -> None:
        """Test memory that no entry covers, unless that has been done."""
        if self.copies != Transfers.to_device:
            self.known.clear()
            self.copies = Transfers.to_device
        if operand not in self.known and is_inexact(spec):
            test, tail = _test_of(self.pool, spec)
            word = self.add(Outside(operand, spec))
            self.known.add(operand)
            test(self.scratch.address, operand, word, *tail)

    def read(self) -> None:
        """Wait for the words; raise for the first entry at fault."""
        if not self.entries:
            return
        entries, met = self.entries, array("i", bytes(4 * len(self.entries)))
        self.pool.device.copy_out(self.first, memoryview(met))
        self.clear(bytes(4 * len(met)) if any(met) else b"")
        if any(met):
            _go_through(entries, met)


LOGS: dict[Pool, Log] = {}


def is_needed(pool: Pool) -> bool:
    """Whether the device's results are known late only."""
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


def _log_of(pool: Pool) -> Log:
    log = LOGS.get(pool)
    if log is None:
        log = LOGS[pool] = Log(pool)
    return log


def _reach(spec: Spec) -> int:
    """The number of elements from the first to the last."""
    return sum((n - 1) * step for n, step in zip(spec.shape, spec.strides, strict=True)) + 1


def _test_of(pool: Pool, spec: Spec) -> tuple[Launch, tuple[int, ...]]:
    """A launch that tests an operand and the gaps between its elements.

    And the numbers after its three addresses.
    """
    test = TESTS.get((pool, spec.dtype))
    if test is None:
        kernel = checker(real_type(spec.dtype), ())
        verify(kernel)
        test = TESTS[pool, spec.dtype] = pool.device.build(kernel)
    return test, rows_of(_reach(spec) * (2 if spec.dtype.kind == "c" else 1))


TESTS: dict[tuple[Pool, DType], Launch] = {}


@cached
def rows_of(count: int) -> tuple[int, ...]:
    """The numbers of a `checker` of so many elements, in rows that occupy a whole GPU."""
    axis = next(
        (n for n in range(min(count, LONGEST_ROW), SHORTEST_ROW, -1) if count % n == 0), count
    )
    return (count // max(axis, 1), axis, 1, 0, 0, 0, axis, 1, 0)


def _stretch(address: int, spec: Spec) -> Stretch:
    return address, address + _reach(spec) * spec.dtype.itemsize


# ---- launches ----


def make_checked(plan: Plan) -> Callable[..., None]:
    """The plan's launch with an entry; see Note [Anomaly checks] 2."""
    sources = causes(plan)
    operands = len(plan.outs) + len(plan.ins)
    if not can_check(plan) or operands > MOST_OPERANDS:
        return _with_check(plan, sources)
    pool, outs, one = plan.pool, len(plan.outs), len(plan.outs) == 1
    running = Running
    reference = ref(plan)  # a plan holds its launches
    kernel: Any = replace(plan.kernel, anomaly=tuple(sources))  # type: ignore[type-var]
    verify(kernel)
    native = pool.device.build(kernel)

    def launch(*numbers: Any) -> None:
        if not Mode.on:
            loosen(known(reference))(*numbers)
            return
        owner = running.owner
        if owner is None or owner.hooks is not None or owner.plan.plain is never:
            frame = user_frame(_get_frame(1))
            entry = (
                reference(),
                numbers,
                owner,
                frame.f_code,
                frame.f_lasti,
                _get_called(),
                True,
                -1,
            )
        else:  # no user code is running
            entry = (reference(), numbers, owner, owner.code, owner.at, owner.chain, True, -1)
        with LOCK:
            log = LOGS.get(pool) or _log_of(pool)
            entries = log.entries
            if len(entries) >= log.count:
                log.read()
                entries = log.entries
            entries.append(entry)
            if one:
                log.known.add(numbers[0])
            else:
                log.known.update(numbers[:outs])
            native(*numbers[:operands], log.first + 4 * len(entries) - 4, *numbers[operands:])

    return launch


def _with_check(plan: Plan, sources: Sequence[int]) -> Callable[..., None]:
    """The plain launch, and a test of each result."""
    pool, outs, plain, reference, running = plan.pool, plan.outs, plan.plain, ref(plan), Running
    read = [(len(outs) + i, plan.ins[i]) for i in sources if is_inexact(plan.ins[i])]
    tests = [
        (i, *_test_of(pool, spec)) for i, spec in enumerate(outs) if is_inexact(spec) and spec.dense
    ]

    def launch(*numbers: Any) -> None:
        if not Mode.on:
            loosen(known(reference))(*numbers)
            return
        owner = running.owner
        if owner is None or owner.hooks is not None or owner.plan.plain is never:
            frame = user_frame(_get_frame(1))
            caller = (frame.f_code, frame.f_lasti, _get_called())
        else:
            caller = (owner.code, owner.at, owner.chain)
        with LOCK:
            log = LOGS.get(pool) or _log_of(pool)
            for place, spec in read:
                if numbers[place] not in log.known or log.copies != Transfers.to_device:
                    log.check_outside(numbers[place], spec)
            plain(*numbers)  # type: ignore[misc]
            for i, test, tail in tests:
                word = log.add((reference(), numbers, owner, *caller, False, i))
                log.known.add(numbers[i])
                test(log.scratch.address, numbers[i], word, *tail)

    return launch


def check_node(
    node: Node, grads: Sequence[Value | None], parts: Sequence[Value | None], own: bool
) -> None:
    """Record the gradients that a node got and returned."""
    with LOCK:
        log = LOGS.get(node.plan.pool) or _log_of(node.plan.pool)
        ends: list[tuple[int, ...]] = []
        for values in (grads, parts):
            found = []
            for value in values:
                if value is None or value._spec.hidden or value._memory.present_address is None:
                    continue
                if is_inexact(value._spec):
                    address = value._memory.present_address + value._offset
                    if (own or values is grads) and (
                        address not in log.known or log.copies != Transfers.to_device
                    ):
                        log.check_outside(address, value._spec)
                    found.append(address)
            ends.append(tuple(found))
        log.add(Passed(ends[0], ends[1], node))


# ---- reading ----


def _go_through(entries: Sequence[Entry], met: Sequence[int]) -> None:
    bad: list[tuple[Stretch, int]] = []

    def worst_at(addresses: Sequence[int]) -> int:
        return max(
            [kind for (start, end), kind in bad for a in addresses if start <= a < end], default=0
        )

    for entry, word in zip(entries, met, strict=True):
        if isinstance(entry, Passed):
            found = worst_at(entry.gave)
            if is_to_blame(found, worst_at(entry.came)):
                node = entry.owner
                raise backward_error(node.plan, found, "", called_at(node.place, ORIGINS.get(node)))
            continue
        found = worst_stored(word)
        if isinstance(entry, Outside):
            written = [_stretch(entry.address, entry.spec)]
        else:
            entry = Launched(*entry)
            plan, numbers = entry.plan, entry.numbers
            sources = [numbers[len(plan.outs) + i] for i in causes(plan)]
            told = worst_loaded(word) if entry.tells else worst_at(sources)
            if is_to_blame(found, max(told, worst_given(plan, numbers))):
                raise _error_of(entry, found)
            chosen = range(len(plan.outs)) if entry.result < 0 else (entry.result,)
            written = [
                _stretch(numbers[i], plan.outs[i]) for i in chosen if is_inexact(plan.outs[i])
            ]
        bad = [(stretch, kind) for stretch, kind in bad if not _overwritten(stretch, written)]
        if found:
            bad += [(stretch, found) for stretch in written]


def _overwritten(stretch: Stretch, written: Sequence[Stretch]) -> bool:
    return any(start <= stretch[0] and stretch[1] <= end for start, end in written)


def _error_of(entry: Launched, found: int) -> AnomalyError:
    error = forward_error(entry.plan, found, "", str(SourceLine(entry.code, entry.at, entry.chain)))
    if entry.owner is not None:
        blame(error, entry.owner.plan, called_at(entry.owner.place, ORIGINS.get(entry.owner)))
    return error
