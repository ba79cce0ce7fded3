"""Backward by several threads, with the bits of the sequential walk.

# Note [Parallel backward]
1. The sequential walk's order depends on the edges alone. `_schedule` walks them once without
   running anything, which numbers every gradient among those of one sum. A gradient that arrives
   early waits for those before it: the additions are the sequential ones, in their order, on any
   thread.
2. A node is ready when the last of its gradients has been added, not when it has arrived. A
   derivative without a gradient passes on "none" all the same, so every node becomes ready once,
   and the count of remaining nodes ends the walk.
3. Locks are held only by workers, which no signal interrupts. The caller waits at a queue: Ctrl-C
   reaches it at once, the workers end after their present node, and the caller continues when they
   have; a second Ctrl-C does not wait for them.
4. The first error, in the sequential order among those that happened, is raised in the caller as it
   was raised in the worker.
5. Each worker runs in a copy of the caller's context: grad mode, autocast and regions are the
   caller's. Hooks and the backward of user functions run in the thread of their node. In a region
   the walk is sequential: launches are one at a time there, and several nodes at once would only
   hold more gradients, so that a limit might not suffice.
6. Passing a node to another thread costs more than a small kernel. So a worker keeps the nodes that
   it makes ready, where others can take them, and calls another worker only when it begins a long
   node: a large call, which releases the interpreter, or one with user code. Threads start when
   they are first called. The worker that made a node ready looks for it again before it rests, so
   nothing is lost. A chain, and a graph without long nodes, is walked by the caller itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from rushlight.core.interrupts import Uninterrupted
from rushlight.tape.program.derivative import recall
from rushlight.tape.record.op import Op
from rushlight.tape.record.source_line import CALLERS, user_frame
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Leaf, Output, Value
from rushlight.tape.walk.backward import Walk, tell_place

# The least cost of a plan, as budgets count it, for another thread.
LONG = 1 << 15
_PATIENCE = 0.05  # seconds: signals that another thread received are handled between two waits


def walk_by(workers: Any, op: str) -> Callable[..., Walk] | None:
    """The constructor of the walk of so many threads; None for the sequential one."""
    if not isinstance(workers, int) or isinstance(workers, bool):
        raise TypeError(f"{op}: workers is a number of threads, got {workers!r}; pass 1 or more")
    if workers < 1:
        raise ValueError(f"{op}: {workers} workers cannot run anything; pass 1 or more")
    state = STATE.get()
    if workers == 1 or state.region is not None or state.dual is not None:  # Note [Dual values] 4
        return None
    return partial(ParallelWalk, workers=workers)


class _Sum:
    """A sum of several gradients: those that arrived early, and the next index."""

    __slots__ = ("busy", "early", "turn")

    def __init__(self) -> None:
        self.early: dict[int, tuple[Value | None, bool]] = {}
        self.turn = 0
        self.busy = False  # some worker is adding


class ParallelWalk(Walk):
    """A backward pass by up to `workers` threads. See Note [Parallel backward]."""

    def __init__(self, *options: Any, workers: int) -> None:
        super().__init__(*options)
        self.workers = workers
        # Guards `waiting`, `left`, `idle`, `threads`, `errors` and every _Sum.
        self.lock = threading.Lock()
        self.rank: dict[Any, int] = {}  # the sequential order
        # Per edge of a node: its gradient's index in its sum.
        self.numbers: dict[Any, list[int]] = {}
        self.shared: dict[Any, _Sum] = {}  # the sums of several gradients, per key
        self.left = 0  # nodes that have not run
        self.recalled = False  # whether programs of derivatives may run
        self.over = False
        self.idle = 0  # workers that wait for a call
        self.threads: list[threading.Thread] = []
        self.context = Context()  # the caller's, while it runs: it refers to this walk
        self.caller: FrameType | None = None  # see Note [Source lines]
        self.ready: list[Any] = []
        self.calls: SimpleQueue[bool] = SimpleQueue()  # True: look into `ready`; False: the end
        self.ended: SimpleQueue[None] = SimpleQueue()
        self.errors: list[tuple[int, BaseException]] = []

    # ---- the caller ----

    def run(self) -> None:
        width = self._schedule() if any(map(_is_long, self.waiting)) else 1
        if width < 2:
            super().run()
            return
        self.workers = min(self.workers, width)
        self.recalled = self.recalls(STATE.get())
        self.ready = [node for node in self.roots if not self.waiting[node]]
        try:
            self.context = copy_context()  # it refers to this walk until the end
            self.caller = user_frame(sys._getframe())
            self._start_thread()
            ended = 0
            while ended < len(self.threads):  # a thread starts others before it ends
                self._await_end()
                ended += 1
        except BaseException:
            self._stop()
            for thread in list(self.threads):
                if thread.is_alive():
                    thread.join()
            raise
        finally:
            self.context = Context()
            self.caller = None
            self.sums.clear()
            self.shared.clear()
        for thread in self.threads:
            thread.join()
        self._raise()

    def _start_thread(self) -> None:
        name = f"backward {len(self.threads)}"
        thread = threading.Thread(
            target=self._thread, args=(self.context.copy(),), name=name, daemon=True
        )
        # Ctrl-C in `start` would leave a thread that cannot be joined and holds this walk.
        with Uninterrupted():
            self.threads.append(thread)
            thread.start()

    def _schedule(self) -> int:
        """Walk without running: ranks, numbers, sums.

        Returns the most nodes with work ready at once.
        """
        waiting = dict(self.waiting)
        counts: dict[Any, int] = {}
        ready = [node for node in self.roots if not waiting[node]]
        width = working = sum(1 for node in ready if not _is_brief(node))
        while ready:
            node = ready.pop()
            self.rank[node] = len(self.rank)
            working -= not _is_brief(node)
            if node.__class__ is Leaf:
                continue
            numbers = self.numbers[node] = []
            for edge in node.edges:
                if edge is None:
                    numbers.append(-1)
                    continue
                target, key = (
                    (edge.node, (edge.node, edge.index))
                    if edge.__class__ is Output
                    else (edge, edge)
                )
                number = counts.get(key, 0)
                counts[key] = number + 1
                numbers.append(number)
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
                    working += not _is_brief(target)
            width = max(width, working)
        self.left = len(self.rank)
        self.shared = {key: _Sum() for key, count in counts.items() if count > 1}
        return width

    def _await_end(self) -> None:
        while True:
            try:
                self.ended.get(timeout=_PATIENCE)
                return
            except Empty:
                continue

    def _stop(self) -> None:
        self.over = True
        for _ in range(self.workers):
            self.calls.put(False)

    def _raise(self) -> None:
        if self.errors:
            _, error = min(self.errors, key=lambda pair: pair[0])
            self.errors = []
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame

    # ---- a worker ----

    def _thread(self, context: Context) -> None:
        me = threading.get_ident()
        if self.caller is not None:
            CALLERS[me] = self.caller
        try:
            context.run(self._work)
        finally:
            CALLERS.pop(me, None)
            self.ended.put(None)

    def _work(self) -> None:
        node: Any = None
        while not self.over:
            if node is None:
                node = self._next()
                if node is None:
                    return
            try:
                if self.ready and _is_long(node):
                    self._call()
                node = self._run_and_choose(node)
            except BaseException as error:
                with self.lock:
                    self.errors.append((self.rank[node], error))
                self._stop()
                return

    def _next(self) -> Any:
        """Wait for a node that is ready; None at the end."""
        while True:
            with self.lock:
                if self.ready:
                    return self.ready.pop()
                self.idle += 1
            is_work = self.calls.get()
            with self.lock:
                self.idle -= 1
            if not is_work:
                return None

    def _call(self) -> None:
        """Wake another worker, if one is idle or may still be started."""
        with self.lock:
            if self.idle:
                self.calls.put(True)
            elif len(self.threads) < self.workers and not self.over:
                self._start_thread()

    def _run_and_choose(self, node: Any) -> Any:
        """Run a node, and the brief leaves that it makes ready.

        Returns this worker's next node, if any.
        """
        made: list[Any] = []
        self._step(node, made)
        work: list[Any] = []
        for other in made:
            if _is_brief(other):
                self._finish_leaf(other)
            else:
                work.append(other)
        following = work.pop() if work else None
        with self.lock:
            self.ready.extend(work)
            self.left -= 1 + len(made) - len(work) - (following is not None)
            done = not self.left
        if done:
            self._stop()
        return following

    def _step(self, node: Any, made: list[Any]) -> None:
        """Run a node and pass its gradients on; the nodes that become ready are added to `made`."""
        if node.__class__ is Leaf:
            self._finish_leaf(node)
            return
        found = None
        if self.recalled and self.wanted is None and node.hooks is None:
            try:
                found = recall(node, self.sums, self.owned, self.retain)
            except Exception as error:
                tell_place(error, node)
                raise
        parts, owned = self._run_node(node) if found is None else found
        alone: list[Any] = []
        for edge, part, mine, number in zip(
            node.edges, parts, owned, self.numbers[node], strict=True
        ):
            if edge is None:
                continue
            shared = self.shared.get((edge.node, edge.index) if edge.__class__ is Output else edge)
            if shared is not None:
                self._add_in_turn(shared, edge, number, part, mine, made)
                continue
            if part is not None:
                self.arrive(edge, part, mine)
            alone.append(edge)
        if alone:
            with self.lock:
                for edge in alone:
                    self._count_down(edge, made)

    def _add_in_turn(
        self, shared: _Sum, edge: Any, number: int, part: Value | None, mine: bool, made: list[Any]
    ) -> None:
        """Store a gradient, and add all that can be added, unless another worker is adding."""
        with self.lock:
            shared.early[number] = part, mine
            if shared.busy or shared.turn not in shared.early:
                return
            shared.busy = True
            part, mine = shared.early.pop(shared.turn)
        while True:
            if part is not None:
                self.arrive(edge, part, mine)
            with self.lock:
                self._count_down(edge, made)
                shared.turn += 1
                if shared.turn not in shared.early:
                    shared.busy = False
                    return
                part, mine = shared.early.pop(shared.turn)

    def _count_down(self, edge: Any, made: list[Any]) -> None:
        target = edge.node if edge.__class__ is Output else edge
        self.waiting[target] -= 1
        if not self.waiting[target]:
            made.append(target)


def _is_long(node: Any) -> bool:
    if node.__class__ is Leaf:
        return bool(node.hooks or node.post_hooks) or node.spec.numel >= LONG
    # A plain Op is a user's function.
    return node.hooks is not None or node.plan.cost >= LONG or node.plan.op.__class__ is Op


def _is_brief(node: Any) -> bool:
    """Whether it is a leaf that only takes its gradient: no work for another thread."""
    return node.__class__ is Leaf and node.grad is None and not node.hooks and not node.post_hooks
