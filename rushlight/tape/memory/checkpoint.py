"""Checkpoints: regions whose saves are dropped at the end and rebuilt in backward.

# Note [Selection]
1. A `Selection` says for each call in a checkpoint what becomes of its results. It is asked after
   the call, once for each recorded call, also of calls without a gradient.
2. KEPT results become plain: no region drops them, and replays start from them. PREFERRED results
   keep their recipe, and the checkpoint keeps them until it is rebuilt: only a budget around it may
   drop them, or an outer checkpoint.
3. OFFLOADED results are settled and copied to the host (Note [Offload]). The blocks of all but the
   RECENT that were made or read last are dropped, and theirs when the checkpoint ends; one that is
   read again is copied back. Where the host reads the device's memory they are KEPT.
4. In-place writes are not asked about: kept memory stays kept, other memory has the write in its
   recipe.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from rushlight.core.errors import RushlightError
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory import replay
from rushlight.tape.memory.offload import copy_to_host
from rushlight.tape.memory.proof import Witness
from rushlight.tape.memory.recipe import Recipe, make_plain, settle
from rushlight.tape.memory.region import Region, drop
from rushlight.tape.memory.replay import Pins
from rushlight.tape.record import call
from rushlight.tape.record.op import Plan, describe
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Node, Value

RECENT = 4  # results that stay while a checkpoint offloads: calls read what was made last


class Choice(enum.Enum):
    """What becomes of a call's results. See Note [Selection]."""

    REBUILT = enum.auto()
    KEPT = enum.auto()
    PREFERRED = enum.auto()
    OFFLOADED = enum.auto()


class Selection(Protocol):
    """Chooses what a checkpoint keeps. See Note [Selection]."""

    def choose(self, plan: Plan, inputs: Sequence[Value], result: Any) -> Choice: ...


class Checkpoint(Region):
    """A block whose saves are dropped when it ends, and rebuilt when backward first needs one."""

    def __init__(self, checks_bits: bool = False, debug: bool = False) -> None:
        super().__init__()
        # With `debug`: the calls, for errors of a replay.
        self.calls: list[str] | None = [] if debug else None
        if checks_bits and self.witness is None:
            self.witness = Witness()
        self.nodes: list[Node] = []
        self.entries: list[tuple[weakref.ref[Node], bool, int, Any]] = []
        # Inputs from outside: a rebuild starts from these.
        self.entered: set[Storage] = set()
        self.results: list[weakref.ref[Storage]] = []
        self.inner: list[Checkpoint] = []
        self.selection: Selection | None = None
        self.preferred: set[Storage] = set()
        # By identity, the last used last: those that are present, and those that may be dropped.
        self.offloaded: dict[int, weakref.ref[Storage]] = {}
        self.left: dict[int, weakref.ref[Storage]] = {}
        self.around = self._checkpoint_around()

    def _checkpoint_around(self) -> Checkpoint | None:
        region = self.outer
        while region is not None and not isinstance(region, Checkpoint):
            region = region.outer
        return region

    def rebuilds(self, plan: Plan) -> bool:
        return True

    def note(self, node: Node) -> None:
        self.nodes.append(node)
        super().note(node)

    def use(self, storage: Storage) -> None:
        if not self.made_here(storage):
            self.entered.add(storage)
            super().use(storage)

    def choose(self, plan: Plan, inputs: Sequence[Value], result: Any) -> None:
        if self.selection is not None:
            choice = self.selection.choose(plan, inputs, result)
            for value in inputs if self.offloaded else ():
                self._note_use(id(value._memory))
            for value in result if result.__class__ is tuple else (result,):
                if choice is not Choice.REBUILT and self.made_here(value._memory):
                    self._settle(value, plan.launch is None, choice)
            while len(self.offloaded) > RECENT:
                key = next(iter(self.offloaded))
                self.left[key] = reference = self.offloaded.pop(key)
                _drop_copied([reference], set())
        super().choose(plan, inputs, result)

    def _settle(self, value: Value, is_view: bool, choice: Choice) -> None:
        storage = value._memory
        if choice is Choice.PREFERRED:
            self.preferred.add(storage)
        elif choice is Choice.KEPT or is_view or _in_host_memory(storage):
            replay.keep(storage)
        else:
            self._offload(storage)

    def _offload(self, storage: Storage) -> None:
        with replay.LOCK:
            settle(storage, replay.COUNTERS.tick)
            copy_to_host(storage)
        self.offloaded[id(storage)] = weakref.ref(storage)

    def _note_use(self, key: int) -> None:
        found = self.offloaded.pop(key, None) or self.left.pop(key, None)
        if found is not None:
            self.offloaded[key] = found

    def close(self, results: Iterable[Storage]) -> None:
        """Drop the saves of the interior nodes.

        A result that is still held is found by its recipe.
        """
        for node in self.nodes:
            self._drop_saves(node)
            if self.calls is not None:
                self.calls.append(f"  {node.op_name} of {describe(node.plan.ins)} at {node.place}")
        for region in self.inner:
            region.entered = {s for s in region.entered if not self.made_here(s)}
            region.preferred = {s for s in region.preferred if not self.made_here(s)}
        if self.around is not None:
            self.around.inner.extend([self, *self.inner])
        kept = set(results)
        self.results = [weakref.ref(s) for s in kept if self.made_here(s)]
        _drop_copied([*self.left.values(), *self.offloaded.values()], kept)
        self.left.clear()
        self.offloaded.clear()
        self.nodes.clear()
        self.inner.clear()
        if not self.entries:
            self._finish()

    def give_up(self) -> None:
        """The block ended by an error: drop everything of it."""
        self.nodes.clear()
        self.inner.clear()
        self.entered.clear()
        self.preferred.clear()
        self.left.clear()
        self.offloaded.clear()

    def _finish(self) -> None:
        self.entered.clear()
        self.preferred.clear()
        with replay.LOCK:  # another thread may be about to drop one
            for reference in self.results if self.outer is None else ():
                # Results are not dropped after this, so they need not keep their sources.
                storage = reference()
                if storage is not None and storage.present_address is not None:
                    make_plain(storage)
        self.results.clear()

    def _drops(self, storage: Storage) -> bool:
        return self.made_here(storage) and storage not in self.preferred

    def _drop_saves(self, node: Node) -> None:
        if node.saved is None:
            return
        saved: list[Any] = list(node.saved)
        outs: list[Any] = list(node.outs)
        before = len(self.entries)
        for i, value in enumerate(saved):
            if isinstance(value, Value) and self._drops(value._memory):
                saved[i] = None
                self.entries.append(
                    (weakref.ref(node), True, i, DroppedValue(value, _edge_of_save(node, i)))
                )
        for i, storage in enumerate(outs):
            if isinstance(storage, Storage) and self._drops(storage):
                outs[i] = None
                self.entries.append((weakref.ref(node), False, i, DroppedStorage(storage)))
        if len(self.entries) > before:
            node.saved, node.outs = tuple(saved), tuple(outs)
            node.dropped = (*(node.dropped or ()), self)

    def restore(self) -> None:
        """Rebuild every dropped save of nodes that still need theirs, each recipe once.

        One thread does it for all nodes of the region; another that needs one of them waits, and
        finds nothing left to do.
        """
        with replay.LOCK:
            self._restore()

    def _restore(self) -> None:
        needed = [
            (node, *rest) for reference, *rest in self.entries if _still_needs(node := reference())
        ]
        # No drops there: all of it is needed, and stays.
        outside = STATE.get().region is None
        try:
            storages = replay.refill([entry.key for _, _, _, entry in needed], hold=outside)
        except RushlightError as error:
            if self.calls is not None:
                listed = "\n".join(["the recorded calls of the checkpoint:", *self.calls])
                error.args = (f"{error}\n{listed}",)
            raise
        for (node, is_input, position, entry), storage in zip(needed, storages, strict=True):
            # The bits are those that were saved, so the version is too.
            storage.version = entry.version
            if is_input:
                edge = None if entry.edge is None else node.edges[entry.edge]
                node.saved = _with_item(node.saved, position, entry.seen(storage, edge))
            else:
                node.outs = _with_item(node.outs, position, storage)
            node.dropped = tuple(r for r in node.dropped or () if r is not self) or None
        self.entries = []  # last: work that Ctrl-C interrupts is repeated
        self._finish()


def _drop_copied(references: Iterable[weakref.ref[Storage]], kept: set[Storage]) -> None:
    """Drop the blocks of storages that have a copy."""
    with replay.LOCK:
        kept = kept | Pins.pinned()
        for storage in [reference() for reference in references]:
            if storage is None or storage.recipe is None or storage in kept:
                continue
            if storage.block is not None and storage.copy is not None:
                drop(storage)


def _edge_of_save(node: Node, position: int) -> int | None:
    """The index of a node's edge that is the record of a value it saved."""
    place: int = node.grad.saves_in[position]
    if node.plan.op.inputs is None or node.saved is None:
        return place
    # Saves of a user's function come after its inputs, and may be one of them.
    record = node.saved[position]._node
    return next(
        (i for i, edge in enumerate(node.edges) if edge is record and edge is not None), None
    )


def _still_needs(node: Node | None) -> bool:
    return node is not None and node.saved is not None


def _with_item(items: Sequence[Any], position: int, item: Any) -> tuple[Any, ...]:
    return (*items[:position], item, *items[position + 1 :])


class DroppedStorage:
    """A dropped saved storage: its recipe."""

    __slots__ = ("key", "version")

    def __init__(self, storage: Storage) -> None:
        self.key: tuple[Recipe, int] = storage.recipe, storage.recipe.index_of(storage)
        self.version = storage.version


class DroppedValue(DroppedStorage):
    """A dropped saved value: its storage's recipe, and its layout.

    Its node is an edge of the node that saved it; a reference here would make a cycle.
    """

    __slots__ = ("edge", "offset", "spec")

    def __init__(self, value: Value, edge: int | None) -> None:
        super().__init__(value._memory)
        self.edge = edge  # index of the edge
        self.spec = value._spec
        self.offset = value._offset

    def seen(self, storage: Storage, edge: Any) -> Value:
        return call.rooted(call.make_value(self.spec, storage, self.offset, edge))


def restore_saves(node: Node) -> None:
    for region in node.dropped or ():
        region.restore()


def _in_host_memory(storage: Storage) -> bool:
    limits = storage.pool.device.limits
    return limits.host_memory or limits.stands_for_host
