"""What happens to device memory while it is recorded: one ordered list of events.

# Note [Recording memory]
1. Nothing in the hot path asks whether memory is recorded. A recorder exchanges three things when
   it starts and puts them back when it stops: the class of every open `Pool`, the name `new` of
   the code that makes storages, and the two `watch` of rule 5. The calls, launches and lifetimes
   stay the ones of a run without a recorder, and so do the bytes.
2. Every block is counted by an assignment to `pool.live`. In the exchanged class that name is a
   property: it stores the number in the pool's slot and adds the pool and the number to the list.
   The setter calls nothing, allocates no object that the garbage collector tracks, and is
   `unheard`, so threads, Ctrl-C and finalisers stay out: see Note [Counting and threads].
3. `new(Storage)`, `pool.take(room)` and `pool.borrow(room)` come before the count. They are
   ordinary calls: there the recorder notes time, op, source line, modules and the derivative that
   is running (`Birth`).
4. A `Birth` of a storage is a weak reference to it. When the storage ends, the reference adds
   itself to the list a second time, after `Storage.__del__` has given the block back; no Python
   code runs.
5. A storage of a region may lose its block and get another: `COUNTERS.watch` tells of drops and
   rebuilds, `Offloaded.watch` of copies out.
6. The list is read after the recording (`account.py`).
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from types import FrameType
from typing import Any, ClassVar

from rushlight.core.interrupts import Uninterrupted, unheard
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Lent, Pool, Storage
from rushlight.devices.shared.registry import opened
from rushlight.tape.memory import replay
from rushlight.tape.memory.offload import Offloaded
from rushlight.tape.memory.rebuild import IN_REBUILD
from rushlight.tape.program.derivative import recall
from rushlight.tape.record import call
from rushlight.tape.record.op import Plan
from rushlight.tape.record.source_line import CALLED, Chain, SourceLine, module_path, user_frame
from rushlight.tape.record.state import WALK
from rushlight.tape.record.value import Leaf, Node
from rushlight.tape.walk.backward import differentiated

FORWARD, BACKWARD, STEP = PHASES = ("forward", "backward", "optimizer step")

_get_frame = sys._getframe
_clock = time.perf_counter
_IN_TAKE = Storage.__init__.__code__
_IN_MAKE = call.make_storage.__code__
_OF_NODE = {recall.__code__, differentiated.__code__}
_OF_STEP = os.path.join("rushlight", "optim", "")
# The global names of the code that makes storages: see Note [Call template] 6.
_NAMES: list[dict[str, Any]] = [vars(call), call.make_storage.__globals__]
_LIVE: Any = vars(Pool)["live"]  # the descriptor of the slot
_NEAR = 4  # frames above a request that may have its plan


class Origin:
    """Where and when a block was asked for; the slots of `Birth` and `Taken`."""

    __slots__ = ()

    clock: float
    pool: Pool
    room: int  # 0: known when the block is counted
    plan: Plan | None
    held: int  # bytes of the pool, before the block
    limit: int | None  # the budget's
    op: str
    reads: bool  # the op has operands
    cost: float  # the plan's, as a budget counts it, over its results
    spec: Spec | None
    place: SourceLine | None  # None: from before the recording
    module: str  # the path of the innermost module that is called, or whose derivative runs
    phase: str
    again: bool  # a call that was run again, to rebuild
    derived: tuple[str, SourceLine] | None  # in a backward pass: the op of the node, and its line


_SLOTS = tuple(Origin.__annotations__)


class Birth(weakref.ref[Storage], Origin):
    """A new storage; it comes a second time when the storage has ended."""

    __slots__ = _SLOTS

    # The identity of the object, not of the storage.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def told(self) -> Taken:
        """The same request without the reference."""
        copy = Taken()
        for name in _SLOTS:
            setattr(copy, name, getattr(self, name))
        copy.plan = None
        return copy


class Taken(Origin):
    """A block that is no storage's: scratch of a kernel or of a program."""

    __slots__ = _SLOTS


class Dropped:
    """A storage is about to lose its block."""

    __slots__ = ("birth", "clock")

    def __init__(self, birth: Birth | None) -> None:
        self.birth = birth
        self.clock = _clock()


class Stepped:
    """An optimiser's step begins: it may take no memory."""

    __slots__ = ("clock",)

    def __init__(self) -> None:
        self.clock = _clock()


class CopiedOut:
    """The bytes of a storage were copied to the host or to a file."""

    __slots__ = ("nbytes", "pool", "seconds")

    def __init__(self, pool: Pool, nbytes: int, seconds: float) -> None:
        self.pool = pool
        self.nbytes = nbytes
        self.seconds = seconds


class Rebuilt:
    """A call was run again, or bytes were copied back.

    It has the storages that were filled, and those that have the bytes.
    """

    __slots__ = ("clock", "cost", "made", "nbytes", "op", "owners", "seconds")

    def __init__(self, op: str, nbytes: int, cost: float, seconds: float) -> None:
        self.op = op
        self.nbytes = nbytes
        self.cost = cost
        self.seconds = seconds
        self.clock = _clock()
        self.made: list[Birth | None] = []
        self.owners: list[Birth | None] = []


class Recorder:
    """Notes events between `start` and `stop`. See Note [Recording memory]."""

    running: ClassVar[Recorder | None] = None

    def __init__(self, most: int) -> None:
        self.events: list[Any] = []
        self.most = most
        self.full = False
        self.births: dict[int, Birth] = {}  # by identity of the storage
        self.old: list[Birth] = []  # storages from before the recording
        self.leaves: dict[int, weakref.ref[Leaf]] = {}  # whose gradient is about to come
        self.gradients: dict[Birth, Any] = {}  # storages that were a leaf's `.grad`, and its handle
        self.nodes: list[weakref.ref[Node]] = []  # new records
        self.saved: set[Birth] = set()  # storages that a record saved
        self.classes: list[tuple[Pool, type[Pool]]] = []
        self.before: dict[Pool, tuple[int, int, int]] = {}  # live, held, peak at the start
        self.paths: dict[Any, str] = {}  # of modules, by weak references
        self.began = self.ended = 0.0
        self.hook: Any = None  # on the steps of optimisers

    # ---- on and off ----

    def start(self) -> None:
        if Recorder.running is not None:
            raise RuntimeError("memory.record: a recording is running; stop it first")
        with Uninterrupted():
            Recorder.running = self
            self.began = _clock()
            for pool in opened():
                self.watch(pool)
            for names in _NAMES:
                names["new"] = self.new
            replay.COUNTERS.watch = Offloaded.watch = self
            self._hook_steps()

    def _hook_steps(self) -> None:
        """Note the steps of optimisers; the module is looked up, not imported."""
        module = sys.modules.get("rushlight.optim.optimizer")
        if module is not None:
            self.hook = module.register_optimizer_step_pre_hook(self._stepped)

    def _stepped(self, *_: object) -> None:
        self.events.append(Stepped())

    def watch(self, pool: Pool) -> None:
        self.before[pool] = pool.live, pool.held, pool.peak
        self.classes.append((pool, type(pool)))
        pool.__class__ = _watched(self, pool)

    def stop(self) -> None:
        if Recorder.running is self:
            with Uninterrupted():
                replay.COUNTERS.watch = Offloaded.watch = None
                if self.hook is not None:
                    self.hook.remove()
                for names in _NAMES:
                    names["new"] = object.__new__
                for pool, kind in self.classes:
                    pool.__class__ = kind
                Recorder.running = None
                self.ended = _clock()

    def now(self) -> float:
        return _clock()

    def forget(self) -> None:
        """Let go of events and references."""
        for event in self.events:
            if isinstance(event, Rebuilt):
                event.made = event.owners = []
        self.events.clear()
        self.births.clear()
        self.old.clear()
        self.gradients.clear()
        self.saved.clear()

    # ---- called while it runs ----

    def new(self, kind: type) -> Any:
        """`object.__new__`, in its place."""
        made: Any = object.__new__(kind)
        if kind is Storage:
            self.note(made, _get_frame(1))
        elif kind is Node:
            self.nodes.append(weakref.ref(made))
        return made

    def note(self, storage: Storage, frame: FrameType) -> None:
        """A storage that is about to get its block."""
        if self._is_full():
            return
        birth = self.births[id(storage)] = Birth(storage, self.events.append)
        if not self._describe(birth, frame):
            del self.births[id(storage)]  # its bytes are told as `other`

    def take(self, pool: Pool, room: int, frame: FrameType) -> None:
        """A block that is about to be taken, for a storage or as scratch."""
        if self._is_full():
            return
        taken: Any = Taken()
        if frame.f_code is _IN_TAKE:
            storage = frame.f_locals["self"]
            frame = frame.f_back or frame
            taken = self.births[id(storage)] = Birth(storage, self.events.append)
        taken.pool, taken.room = pool, room
        self._describe(taken, frame)

    def dropped(self, storage: Storage) -> None:
        self.events.append(Dropped(self.birth_of(storage)))

    def copied_out(self, storage: Storage, seconds: float) -> None:
        self.events.append(CopiedOut(storage.pool, storage.room, seconds))

    def rebuilt(self, recipe: Any, made: Any, owners: Any, seconds: float) -> None:
        plan = recipe.plan
        event = Rebuilt(plan.op.name, sum(s.nbytes for s in plan.outs), plan.cost, seconds)
        event.made = [self.birth_of(s) for s in made]
        event.owners = [self.birth_of(s) for s in owners]
        self.events.append(event)

    def birth_of(self, storage: Storage | None) -> Birth | None:
        birth = self.births.get(id(storage))
        return birth if birth is not None and birth() is storage else None

    def _is_full(self) -> bool:
        if len(self.events) > self.most:
            self.full = True
            self.stop()
        return self.full

    def _describe(self, birth: Any, frame: FrameType) -> bool:
        """Fill in what is known of the call, from its frames; whether that is enough."""
        if frame.f_code is _IN_MAKE:
            names = frame.f_locals
            birth.pool, birth.room = names["pool"], names["room"]
            frame = frame.f_back or frame
        user = user_frame(frame)
        found = _Context(frame, user)
        plan = found.plan
        if not hasattr(birth, "room"):
            if plan is None:
                return False
            birth.pool, birth.room = plan.pool, plan.room if len(plan.rooms) == 1 else 0
        if birth.pool not in self.before:
            self.watch(birth.pool)
        birth.held = birth.pool.held
        birth.limit = birth.pool.limit
        birth.op = "" if plan is None else plan.op.name
        birth.reads = plan is not None and bool(plan.ins)
        birth.cost = 0.0 if plan is None else plan.cost / len(plan.outs)
        birth.plan, birth.spec = plan, found.spec
        birth.place = SourceLine(user.f_code, user.f_lasti, CALLED.get())
        birth.phase = found.phase if WALK.get() is None else BACKWARD
        birth.again = found.again
        node = found.node
        birth.derived = None if node is None else (node.plan.op.name, node.place)
        birth.module = self.path_of(CALLED.get() if node is None else node.chain)
        birth.clock = _clock()
        self.events.append(birth)
        self.look_back(node)
        return True

    def path_of(self, chain: Chain | None) -> str:
        """The path of the innermost module of a chain."""
        if chain is None:
            return ""
        try:
            path = self.paths.get(chain[1])
            if path is None:
                path = self.paths[chain[1]] = module_path(chain)
        except TypeError:  # a reference to a module that is gone
            path = module_path(chain)
        return path

    def look_back(self, node: Node | None = None) -> None:
        """Find what was saved, and what became a leaf's gradient, since the last event."""
        if self.nodes:
            nodes, self.nodes = self.nodes, []
            for each in nodes:
                self._note_saves(each())
        if self.leaves:
            for key, reference in list(self.leaves.items()):
                leaf = reference()
                if leaf is None or leaf.grad is not None:
                    self.leaves.pop(key, None)
                    if leaf is not None:
                        self.mark_gradient(leaf)
        if node is not None:
            for edge in node.edges:
                if edge.__class__ is Leaf:
                    self.leaves[id(edge)] = weakref.ref(edge)

    def _note_saves(self, node: Node | None) -> None:
        saved = getattr(node, "saved", None) or ()  # a record of another thread may have none yet
        for storage in (*[getattr(v, "_memory", None) for v in saved], *getattr(node, "outs", ())):
            birth = self.birth_of(storage)
            if birth is not None:
                self.saved.add(birth)

    def mark_gradient(self, leaf: Leaf) -> None:
        """A leaf has a gradient."""
        grad = leaf.grad
        birth = self.birth_of(getattr(grad, "_memory", None))  # a sparse one has none
        if birth is not None:
            self.gradients[birth] = leaf.handle

    def known(self, storage: Storage) -> Birth | None:
        """A storage from before the recording."""
        if isinstance(storage, Lent) or storage.present_address is None:
            return None
        found = self.birth_of(storage)
        if found is None:
            found = self.births[id(storage)] = Birth(storage, self.events.append)
            found.pool, found.room, found.clock = storage.pool, storage.room, self.began
            found.op, found.cost, found.held, found.phase, found.module = "", 0.0, 0, "", ""
            found.plan = found.spec = found.derived = found.place = found.limit = None
            found.reads = found.again = False
            self.old.append(found)
            if storage.pool not in self.before:
                self.watch(storage.pool)
        return found


def _watched(recorder: Recorder, pool: Pool) -> type[Pool]:
    """A class for one pool that adds every change of `live` to the events."""
    kind, events, cell = type(pool), recorder.events, [pool, 0]

    @unheard
    def count(self: Any, live: int) -> None:
        nonlocal events
        self.counted = live
        cell[1] = live
        events += cell

    class Watched(kind):  # type: ignore[valid-type, misc]
        __slots__ = ()

        counted = _LIVE  # the slot
        live = property(_LIVE.__get__, count)

        @unheard
        def take(self, room: int) -> int:
            recorder.take(self, room, _get_frame(1))
            return kind.take(self, room)

        @unheard
        def borrow(self, room: int) -> None:
            recorder.take(self, room, _get_frame(1))
            kind.borrow(self, room)

    return Watched


class _Context:
    """What the frames between a request and the user's code tell of the call.

    The variables of a frame that goes on for long are not read: a copy of them would keep tensors.
    """

    __slots__ = ("again", "node", "phase", "plan", "spec")

    def __init__(self, frame: FrameType, user: FrameType) -> None:
        self.plan: Plan | None = None
        self.spec: Spec | None = None
        self.node: Node | None = None  # whose derivative runs
        self.again = False
        self.phase = FORWARD
        depth = 0
        while frame is not user:
            code = frame.f_code
            if self.plan is None and depth < _NEAR:
                self._read(frame, (*code.co_varnames, *code.co_freevars))
            if code in _OF_NODE and self.node is None:
                self.node = frame.f_locals["node"]
            elif code in IN_REBUILD:
                self.again = True
            elif _OF_STEP in code.co_filename:
                self.phase = STEP
            if frame.f_back is None:
                break
            frame = frame.f_back
            depth += 1

    def _read(self, frame: FrameType, names: tuple[str, ...]) -> None:
        if "plan" in names:
            found = frame.f_locals.get("plan")
            self.plan = found if isinstance(found, Plan) else None  # not a device's
        elif self.spec is None and "spec" in names:
            self.spec = frame.f_locals.get("spec")
