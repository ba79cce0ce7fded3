"""A recording of launches, module calls, copies, builds and labelled blocks.

# Note [Profiling]
1. Nothing tests for a profile. While one runs, the launch of every plan is a `Timed` around it
   (Note [Arming] 4), devices have other `copy_in`, `copy_out`, `synchronize` and `build`, and
   hooks of every module and optimiser note their calls. The end puts everything back.
2. The launches are those of a program without a profile: in an optimiser's step a `TimedBuiltin`
   counts as the builtin that it calls, and lists of operands stay one launch (Note [Whole steps]).
   Signals are blocked in such a step, for `TimedBuiltin` is Python code.
3. A launch is noted as a plain tuple (`Launch`): plan, times, thread, the user's line, the module,
   and in a backward pass the node whose derivative runs, with its line and module.
4. The time of a launch on a synchronous device is its kernel's. Elsewhere it is the time that it
   took to queue it, and the device's marks tell when it ran (Note [Marks]). Where a device has no
   marks every launch is waited for, and `Recorder.means` says so.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any, ClassVar, NamedTuple

from rushlight.core.interrupts import Uninterrupted
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Marks
from rushlight.devices.shared.registry import opened
from rushlight.nn.hooks import ON_CALL
from rushlight.ops.optim import whole_steps
from rushlight.ops.optim.whole_steps import Moves
from rushlight.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from rushlight.tape.anomaly import arming
from rushlight.tape.memory.rebuild import IN_REBUILD
from rushlight.tape.program.derivative import recall
from rushlight.tape.program.known import WHEN_REPEATED
from rushlight.tape.record.hook_tables import add_to
from rushlight.tape.record.op import Plan
from rushlight.tape.record.source_line import CALLED, CALLERS, OURS, is_ours, module_path
from rushlight.tape.record.state import STATE, WALK
from rushlight.tape.record.value import Node
from rushlight.tape.walk.backward import differentiated

FORWARD, BACKWARD, STEP, AGAIN = "forward", "backward", "optimizer", "recompute"
LABEL, MODULE, COPY, BUILD, WAIT = "label", "module", "copy", "build", "wait"

_clock = time.perf_counter
_ident = threading.get_ident
_get_frame = sys._getframe
_OF_NODE = {recall.__code__, differentiated.__code__}
_OPTIM = f"{os.sep}optim{os.sep}"
_DEEPEST = 64  # frames of a stack
_make_at = Moves.make_at

Place = tuple[CodeType, int]  # a code object and an instruction in it


class Launch(NamedTuple):
    """A launch; the recorder keeps it as a plain tuple."""

    plan: Plan
    begin: float
    end: float
    thread: int
    place: Place
    module: str
    phase: str
    derived: tuple[str, Place, str] | None  # in a backward pass: the node's op, line and module
    walk: int  # the number of the backward pass, or -1
    mark: tuple[Pool, int] | None  # its number among the marks of its device
    live: int  # bytes of the device in use
    rooms: int  # bytes of its results that are new blocks
    stack: tuple[Place, ...]


class Span(NamedTuple):
    """Anything else that takes time."""

    name: str
    kind: str
    begin: float
    end: float
    thread: int
    detail: str
    module: str


class Timed:
    """A launch that is timed."""

    __slots__ = ("launch", "plan", "recorder")

    def __init__(self, recorder: Recorder, plan: Plan, launch: Any) -> None:
        self.recorder = recorder
        self.plan = weakref.ref(plan)  # a plan holds its launch
        self.launch = launch

    def __call__(self, *numbers: Any) -> None:
        self.recorder.time(self.launch, self.plan(), numbers, _get_frame(1))

    def __eq__(self, other: object) -> bool:
        """Whether they call the same launch: `Moves` keeps lists by launches."""
        return isinstance(other, Timed) and self.launch == other.launch

    def __hash__(self) -> int:
        return hash(self.launch)


class TimedBuiltin(Timed):
    """A builtin launch that is timed."""

    __slots__ = ()


class _TimedList:
    """An act of a list of operands: one launch of several items."""

    __slots__ = ("launch", "plan", "recorder")

    def __init__(self, recorder: Recorder, plan: Plan, launch: Any) -> None:
        self.recorder, self.plan, self.launch = recorder, plan, launch

    def __call__(self, *numbers: Any) -> None:
        self.recorder.time(self.launch, self.plan, numbers, _get_frame(1), in_place=True)


def _bare(launch: Any) -> Any:
    return launch.launch if isinstance(launch, Timed) else launch


class Recorder:
    """Notes launches and spans between `start` and `stop`. See Note [Profiling]."""

    running: ClassVar[Recorder | None] = None

    def __init__(self, stacks: bool = False, devices: bool = True) -> None:
        self.launches: list[Any] = []
        # By thread, the trace that runs and its first launch; the launches that were made again.
        self.traced: dict[int, tuple[Any, int]] = {}
        self.twice: set[int] = set()
        self.spans: list[Span] = []
        self.stacks = stacks
        self.with_devices = devices  # False: devices' own times are not asked for
        self.marks: dict[Pool, Marks | None] = {}
        self.ran: dict[Pool, list[tuple[float, float] | None]] = {}
        self.means: dict[str, str] = {}  # by device: how its times are measured
        self.names: dict[int, str] = {}  # of threads
        self.paths: dict[Any, str] = {}
        self.walks: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.numbers = itertools.count()
        self.depth = threading.local()
        self.hooks: list[Any] = []
        self.changed: list[tuple[Any, str]] = []
        self.began = self.ended = 0.0
        self.epoch = 0.0  # `time.time()` at the begin

    # ---- on and off ----

    def called(self) -> list[Launch]:
        """The launches without those of calls that were traced and repeated (Note [Memo] 5)."""
        twice = self.twice
        return [Launch(*each) for i, each in enumerate(self.launches) if i not in twice]

    def start(self) -> None:
        if Recorder.running is not None:
            raise RuntimeError("profile: another profile is running; stop it first")
        with Uninterrupted():
            Recorder.running = self
            arming.wrap_launches(self._wrap, _bare)
            vars(whole_steps)["BuiltinFunctionType"] = TimedBuiltin
            Moves.make_at = _recorded_moves  # type: ignore[method-assign, assignment]
            for pool in opened():
                self._watch(pool)
            self.hooks = [
                add_to(ON_CALL, ("before", (self._enter_module, False))),
                add_to(ON_CALL, ("after", (self._leave_module, False, True))),
                register_optimizer_step_pre_hook(self._enter_step),
                register_optimizer_step_post_hook(self._leave_step),
            ]
            WHEN_REPEATED.append(self._repeat)
            self.began, self.epoch = _clock(), time.time()

    def stop(self) -> None:
        if Recorder.running is not self:
            return
        with Uninterrupted():
            self.ended = _clock()
            Recorder.running = None
            WHEN_REPEATED.remove(self._repeat)
            arming.wrap_launches(None, _bare)
            vars(whole_steps)["BuiltinFunctionType"] = BuiltinFunctionType
            Moves.make_at = _make_at  # type: ignore[method-assign]
            for hook in self.hooks:
                hook.remove()
            for device, name in self.changed:
                delattr(device, name)
            self.changed = []
        for pool, marks in self.marks.items():
            if marks is not None:
                self.ran.setdefault(pool, []).extend(marks.read())
                marks.close()

    def forget(self) -> None:
        """Drop what was recorded so far: the end of a warm-up."""
        for pool, marks in self.marks.items():
            if marks is not None:
                marks.read()
            self.ran.pop(pool, None)
        self.launches.clear()
        self.traced.clear()
        self.twice.clear()
        self.spans.clear()
        self.began, self.epoch = _clock(), time.time()

    def _wrap(self, plan: Plan, launch: Any) -> Timed:
        inner = _bare(launch)
        kind = TimedBuiltin if inner.__class__ is BuiltinFunctionType else Timed
        return kind(self, plan, inner)

    def _watch(self, pool: Pool) -> Marks | None:
        """Time a device's copies and builds, and ask for its marks."""
        device: Any = pool.device
        limits = device.limits
        marks = None
        if limits.asynchronous and self.with_devices:
            marks = None if limits.marks is None else limits.marks()
            self.means[device.name] = (
                "waited for after every launch: the device has no clock"
                if marks is None
                else marks.means
            )
        self.marks[pool] = marks
        self._exchange(device, "copy_in", COPY, f"copy to {device.name}")
        self._exchange(device, "copy_out", COPY, f"copy from {device.name}")
        self._exchange(device, "build", BUILD, f"build for {device.name}")
        if limits.asynchronous:
            self._exchange(device, "synchronize", WAIT, f"wait for {device.name}")
        return marks

    def _exchange(self, device: Any, name: str, kind: str, said: str) -> None:
        """Time a method of a device."""
        method = getattr(device, name)

        def timed(*given: Any, **named: Any) -> Any:
            begin = _clock()
            try:
                return method(*given, **named)
            finally:
                detail = type(given[0]).__name__ if kind == BUILD else ""
                if kind == COPY:
                    detail = f"{given[1].nbytes} bytes"
                self.note(said, kind, begin, detail)

        setattr(device, name, timed)
        self.changed.append((device, name))

    def now(self) -> float:
        return _clock()

    # ---- called while it runs ----

    def time(
        self,
        launch: Any,
        plan: Any,
        numbers: tuple[Any, ...],
        frame: FrameType,
        in_place: bool = False,
    ) -> None:
        """Call a launch and note it; `in_place`: its numbers are no addresses of new blocks."""
        pool = plan.pool
        marks = self.marks[pool] if pool in self.marks else self._watch(pool)
        mark = None if marks is None else (pool, marks.begin())
        begin = _clock()
        try:
            launch(*numbers)
        except BaseException:
            if marks is not None:
                marks.end()
            raise
        end = _clock()
        if marks is not None:
            marks.end()
        elif self.with_devices and pool.device.limits.asynchronous:
            pool.device.synchronize()
            ran = self.ran.setdefault(pool, [])
            mark = pool, len(ran)
            ran.append((end, _clock()))
        thread = _ident()
        if thread not in self.names:
            self.names[thread] = threading.current_thread().name
        trace = STATE.get().trace
        if trace is not None:
            traced = self.traced.get(thread)
            if traced is None or traced[0] is not trace:
                self.traced[thread] = trace, len(self.launches)
        outs = len(plan.outs)
        given = numbers[:outs] if in_place else numbers[outs : outs + len(plan.ins)]
        rooms = sum([r for r, a in zip(plan.rooms, numbers, strict=False) if a not in given])
        self.launches.append(
            (plan, begin, end, thread, *self._place(frame, thread), mark, pool.live, rooms)
            + ((self._stack(frame),) if self.stacks else ((),))
        )

    def _place(self, frame: FrameType, thread: int) -> tuple[Any, ...]:
        """The user's line, the module, the phase, the node and the backward pass of a launch."""
        node: Node | None = None
        phase = FORWARD
        while True:
            code = frame.f_code
            file = code.co_filename
            ours = OURS.get(file)
            if not (is_ours(file) if ours is None else ours):
                break
            if node is None and code in _OF_NODE:
                node = frame.f_locals["node"]
            elif code in IN_REBUILD:
                phase = AGAIN
            elif _OPTIM in file:
                phase = STEP
            outer = frame.f_back
            if outer is None:
                frame = CALLERS.get(thread, frame)
                break
            frame = outer
        walk = WALK.get()
        number = -1
        if walk is not None:
            phase = AGAIN if phase == AGAIN else BACKWARD
            found = self.walks.get(walk)
            number = self.walks[walk] = next(self.numbers) if found is None else found
        module = self.path_of(CALLED.get())
        derived = None
        if node is not None:
            derived = node.plan.op.name, (node.code, node.at), self.path_of(node.chain)
        return (frame.f_code, frame.f_lasti), module, phase, derived, number

    def _repeat(self) -> None:
        """The launches of this thread's last trace are made again."""
        thread = _ident()
        traced = self.traced.pop(thread, None)
        if traced is not None:
            made = range(traced[1], len(self.launches))
            self.twice.update([i for i in made if self.launches[i][3] == thread])

    def _stack(self, start: FrameType) -> tuple[Place, ...]:
        """The user's frames, the innermost first."""
        found: list[Place] = []
        frame: FrameType | None = start
        while frame is not None and len(found) < _DEEPEST:
            if not OURS.get(frame.f_code.co_filename):
                found.append((frame.f_code, frame.f_lasti))
            frame = frame.f_back
        return tuple(found)

    def path_of(self, chain: Any) -> str:
        """The path of the innermost module of a chain."""
        if chain is None:
            return ""
        found = self.paths.get(chain[1])
        if found is None:
            found = self.paths[chain[1]] = module_path(chain)
        return found

    def note(self, name: str, kind: str, begin: float, detail: str = "") -> None:
        """A span of the calling thread that ends here."""
        thread = _ident()
        if thread not in self.names:
            self.names[thread] = threading.current_thread().name
        module = self.path_of(CALLED.get())
        self.spans.append(Span(name, kind, begin, _clock(), thread, detail, module))

    def _push(self) -> None:
        begun = self.depth.__dict__.setdefault("begun", [])
        begun.append(_clock())

    def _pop(self) -> float:
        """When the innermost open module or step of this thread began."""
        begun = self.depth.__dict__.get("begun")
        return begun.pop() if begun else self.began

    def _enter_module(self, module: Any, args: Any) -> None:
        self._push()

    def _leave_module(self, module: Any, args: Any, result: Any) -> None:
        name, kind = self.path_of(CALLED.get()), type(module).__name__
        self.note(kind if name == kind else f"{kind} ({name})", MODULE, self._pop())

    def _enter_step(self, optimizer: Any, args: Any, named: Any) -> None:
        self._push()

    def _leave_step(self, optimizer: Any, args: Any, named: Any) -> None:
        name = type(optimizer).__name__
        self.note(f"Optimizer.step#{name}.step", LABEL, self._pop())


def _recorded_moves(moves: Moves, place: Any) -> None:
    """`Moves.make_at` with timed acts for lists of operands."""
    recorder = Recorder.running
    if recorder is not None:
        for (_, params), (plan, items) in moves.lists.items():
            if items:
                for act in plan.pool.device.limits.lists(plan.kernel)((*items.values(),), params):
                    moves.acts.append((_TimedList(recorder, plan, act[0]), *act[1:]))
        moves.lists = {}
    with Uninterrupted():
        _make_at(moves, place)
