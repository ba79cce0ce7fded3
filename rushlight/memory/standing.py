"""Running a function on stand-ins of devices: nothing is computed, and no trace is left.

# Note [Standing in]
1. What a function reaches is found before it runs: its closure, the globals it names, its arguments
   and what those refer to, with functions and objects of users' classes.
2. Every tensor that is found gets the spec and the memory of a stand-in (Note [Stand-ins]): same
   dtype, shape and strides; tensors that share a storage share one there. New tensors are made on
   stand-ins too, since `pool_of` gives those (`registry.standing_in`).
3. The content of every container and object that is found is noted, one level deep, and put back at
   the end where it differs: `.grad`s, optimisers' states, counts, buffers, flags, lists.
4. Notes refer to tensors weakly: what the function lets go of must be freed on the stand-in. A
   tensor that is gone at the end is made again, of the memory it had.
5. A tensor that has a record is a leaf in between. A gradient that arrives there is refused: the
   backward pass beyond it is one of the real device.
6. A tensor that was not found stays where it is. With a tensor on a stand-in it raises DeviceError;
   memory that is taken on the real device is noticed at the end.
"""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight.core import locks
from rushlight.core.errors import DeviceError, RushlightError
from rushlight.core.interrupts import Uninterrupted
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Lent, Pool, Storage
from rushlight.devices.shared.registry import opened, stand_in_of, standing_in
from rushlight.devices.shared.transfers import Transfers
from rushlight.memory.reached import HostRandomness, names_in, of_standard_library
from rushlight.ops.create import creation
from rushlight.ops.random.random import default_generator
from rushlight.tape.memory.foresight import FORESIGHT
from rushlight.tape.memory.offload import Offloaded
from rushlight.tape.memory.replay import COUNTERS
from rushlight.tape.record.op import Plan
from rushlight.tape.record.source_line import OURS
from rushlight.tape.record.state import Changed
from rushlight.tape.record.value import Leaf, Node, Output, Value

# Nothing that a function changes is behind these, nor behind generated code.
_ENDS = (
    *(str, bytes, int, float, complex, type(None), types.ModuleType, types.CodeType),
    *(types.FrameType, weakref.ref, Node, Output, Storage, Pool, Plan, Spec),
)
_LIBRARIES = {"rushlight", "numpy", "builtins", *sys.stdlib_module_names}
_SPEC: Any = vars(Value)["_spec"]  # the slot: a lazy parameter refuses the attribute
_GRAD: Any = vars(Leaf)["grad"]
_LOCK = locks.reentrant_lock()


class _Kept:
    """A tensor as it was."""

    def __init__(self, value: Any) -> None:
        self.kind = type(value)
        self.handle = weakref.ref(value)
        self.spec = _SPEC.__get__(value)
        self.memory, self.offset, self.node = value._memory, value._offset, value._node
        self.base: _Kept | None = None  # set when all are known
        self.history = getattr(value, "_history", None)
        self.attributes = dict(getattr(value, "__dict__", {}))

    def stand(self, pool: Pool, storages: dict[Storage, Storage]) -> None:
        """Give the tensor memory of a stand-in."""
        value: Any = self.handle()
        spec, memory = self.spec, self.memory
        if memory not in storages:
            storages[memory] = _stand_in_storage(pool, memory)
        stood = Spec.of(pool, spec.dtype, spec.shape, spec.strides)
        _SPEC.__set__(value, stood)
        value._memory = storages[memory]
        if type(self.node) is Leaf:
            self.node.spec = stood
        elif self.node is not None:
            value._node = Leaf(value)
            value._node.hooks[0] = self._refuse

    def _refuse(self, _: Any) -> None:
        raise RushlightError(
            f"the backward pass reaches {self.spec!r}, a result from before the estimate; make it "
            "inside of the function, or .detach() it"
        )

    def put_back(self) -> Any:
        """The tensor, with its own memory; made again where it is gone."""
        value: Any = self.handle()
        if value is None:
            value = object.__new__(self.kind)
            value.__dict__.update(self.attributes)
            self.handle = weakref.ref(value)
            if type(self.node) is Leaf:
                self.node.handle = self.handle
        elif value.__class__ is not self.kind:  # a lazy parameter got its shape
            value.__class__ = self.kind
        _SPEC.__set__(value, self.spec)
        value._memory, value._offset, value._node = self.memory, self.offset, self.node
        if type(self.node) is Leaf:
            self.node.spec = self.spec
        if self.history is not None:
            value._history = self.history
        return value


def _stand_in_storage(pool: Pool, memory: Storage) -> Storage:
    made: Storage
    if isinstance(memory, Lent):
        made = Lent(pool, pool.device.alloc(memory.room), memory.room, None)
    else:
        made = Storage(pool, memory.room)
    made.version = memory.version
    return made


class _Packed:
    """A tuple with tensors in it."""

    def __init__(self, kind: type, items: list[Any]) -> None:
        self.kind = kind
        self.items = items


class _Holder:
    """What a container, an object, a cell or a function's globals contain."""

    def __init__(self, read: Callable[[], list[Any]], write: Callable[[list[Any]], object]) -> None:
        self.read = read
        self.write = write
        self.noted: list[Any] = []

    def note(self, world: World) -> None:
        self.noted = [world.weakly(item) for item in self.read()]

    def put_back(self, world: World) -> None:
        if not _same(self.noted, [world.weakly(item) for item in self.read()]):
            self.write([_strongly(item) for item in self.noted])


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(
        x is y or (type(x) is type(y) is _Packed and x.kind is y.kind and _same(x.items, y.items))
        for x, y in zip(a, b, strict=True)
    )


def _strongly(item: Any) -> Any:
    if type(item) is _Kept:
        return item.handle()
    if type(item) is _Packed:
        return tuple.__new__(item.kind, map(_strongly, item.items))
    return item


class World:
    """What a function reaches. See Note [Standing in]."""

    def __init__(self, *roots: Any) -> None:
        self.tensors: dict[int, _Kept] = {}
        self.holders: list[_Holder] = []
        self.bytes: dict[str, int] = {}  # of the storages that were found, by device
        self._explore([*roots, default_generator])
        self.randomness = HostRandomness()

    def _explore(self, stack: list[Any]) -> None:
        seen: dict[int, Any] = {}
        while stack:
            thing = stack.pop()
            if id(thing) in seen or isinstance(thing, _ENDS) or _is_generated(thing):
                continue
            seen[id(thing)] = thing
            if isinstance(thing, Value) and _has_memory(thing):
                self.tensors[id(thing)] = _Kept(thing)
            self.holders += _holders_of(thing)
            stack += _behind(thing)
        for kept in self.tensors.values():
            kept.base = self.tensors.get(id(kept.handle()._base))  # type: ignore[union-attr]
        memories = {kept.memory for kept in self.tensors.values()}
        for memory in memories:
            name = memory.pool.device.name
            counted = 0 if isinstance(memory, Lent) else memory.room
            self.bytes[name] = self.bytes.get(name, 0) + counted

    def weakly(self, item: Any) -> Any:
        """An item of a container, with the notes of tensors in their places."""
        if isinstance(item, Value):
            kept = self.tensors.get(id(item))
            return kept if kept is not None and kept.handle() is item else item
        if isinstance(item, tuple):
            items = [self.weakly(part) for part in item]
            if any(new is not old for new, old in zip(items, item, strict=True)):
                return _Packed(type(item), items)
        return item

    def stand(self, place: Callable[[str], Pool]) -> None:
        """Put every tensor on a stand-in."""
        for holder in self.holders:
            holder.note(self)
        storages: dict[Storage, Storage] = {}
        for kept in self.tensors.values():
            kept.stand(place(kept.memory.pool.device.name), storages)

    def put_back(self) -> None:
        """Restore tensors, containers and random states."""
        alive = [(kept.put_back(), kept) for kept in self.tensors.values()]
        for value, kept in alive:
            value._base = None if kept.base is None else kept.base.handle()
        self.tensors = {id(value): kept for value, kept in alive}  # some were made again
        for holder in self.holders:
            holder.put_back(self)
        self.randomness.restore()


# ---- what is reached ----


def _has_memory(value: Value) -> bool:
    """A sparse tensor and an example of a batch have none."""
    try:
        return not _SPEC.__get__(value).hidden and isinstance(value._memory, Storage)
    except AttributeError:
        return False


def _is_generated(thing: Any) -> bool:
    """Whether it is a function of generated code: lists of free blocks are among its constants."""
    if not isinstance(thing, types.FunctionType):
        return False
    file = thing.__code__.co_filename
    return file.startswith("<") and OURS.get(file, False)


def _is_library(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def _behind(thing: Any) -> list[Any]:
    """What a thing refers to."""
    if isinstance(thing, types.FunctionType):
        found = [thing.__closure__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__]
        return found + list(_named_globals(thing).values())
    if isinstance(thing, type):
        return [] if _is_library(thing.__module__) else [*vars(thing).values(), *thing.__bases__]
    return gc.get_referents(thing)


def _named_globals(function: types.FunctionType) -> dict[str, Any]:
    """The globals that a user's function names, and attributes of modules by the names in it."""
    around = function.__globals__
    if _is_library(around.get("__name__")):
        return {}
    names = names_in(function.__code__)
    found = {name: around[name] for name in names if name in around}
    for module in [each for each in found.values() if isinstance(each, types.ModuleType)]:
        if not _is_library(module.__name__):
            found |= {f"{module.__name__}.{n}": vars(module)[n] for n in names if n in vars(module)}
    return found


def _holders_of(thing: Any) -> list[_Holder]:
    if isinstance(thing, dict):
        return [_holder_of_dict(thing)]
    if isinstance(thing, list):
        return [_Holder(lambda: list(thing), lambda items: list.__setitem__(thing, _ALL, items))]
    if isinstance(thing, set):
        return [_Holder(lambda: list(thing), lambda items: _refill(thing, thing.update, items))]
    if isinstance(thing, deque):
        return [_Holder(lambda: list(thing), lambda items: _refill(thing, thing.extend, items))]
    if isinstance(thing, types.CellType):
        return [_of_place(thing, types.CellType.cell_contents)]
    if isinstance(thing, types.FunctionType):
        names = [n for n in _named_globals(thing) if n in thing.__globals__]
        return [_of_globals(thing.__globals__, names)]
    if isinstance(thing, Leaf):
        return [_of_place(thing, _GRAD)]
    return _of_object(thing)


_ALL = slice(None)


def _refill(thing: Any, add: Callable[[list[Any]], None], items: list[Any]) -> None:
    thing.clear()
    add(items)


def _holder_of_dict(thing: dict[Any, Any]) -> _Holder:
    kind: Any = OrderedDict if isinstance(thing, OrderedDict) else dict

    def read() -> list[Any]:
        return [part for pair in kind.items(thing) for part in pair]

    def write(items: list[Any]) -> None:
        kind.clear(thing)
        kind.update(thing, zip(items[::2], items[1::2], strict=True))

    return _Holder(read, write)


_ABSENT = object()


def _of_place(thing: Any, place: Any) -> _Holder:
    """A cell's content or a slot, which may be unset.

    It is read by its descriptor, since a property of a subclass may have a slot's name.
    """

    def read() -> list[Any]:
        try:
            return [place.__get__(thing)]
        except (AttributeError, ValueError):  # an empty cell raises ValueError
            return []

    def write(items: list[Any]) -> None:
        if items:
            place.__set__(thing, items[0])
        else:
            place.__delete__(thing)

    return _Holder(read, write)


def _of_globals(around: dict[str, Any], names: list[str]) -> _Holder:
    def write(items: list[Any]) -> None:
        around.update(zip(names, items, strict=True))

    return _Holder(lambda: [around.get(name, _ABSENT) for name in names], write)


def _of_object(thing: Any) -> list[_Holder]:
    """An object's attributes, slots and class."""
    kind = type(thing)
    if isinstance(thing, (type, Value)) or of_standard_library(kind):
        own = getattr(thing, "__dict__", None)
        return [_holder_of_dict(own)] if isinstance(own, dict) else []
    found = []
    own = getattr(thing, "__dict__", None)
    if isinstance(own, dict):
        found.append(_holder_of_dict(own))
        found.append(_Holder(lambda: [type(thing)], lambda items: _be(thing, items[0])))
    return [*found, *[_of_place(thing, slot) for base in kind.__mro__ for slot in _slots_of(base)]]


def _slots_of(kind: type) -> list[Any]:
    own = vars(kind)
    slots = own.values() if "__slots__" in own else ()
    return [slot for slot in slots if isinstance(slot, types.MemberDescriptorType)]


def _be(thing: Any, kind: type) -> None:
    thing.__class__ = kind


# ---- running ----


class Places:
    """The stand-in of each device, by name.

    Memory of tensors that were not found, which a real run would count, is taken there.
    """

    def __init__(self, world: World, device: Any) -> None:
        found = {n: size for n, size in world.bytes.items() if n != "null"}
        default = creation.default_pool().device.name
        chosen = None if device is None else creation.device_name(device)
        main = chosen or max(found, key=lambda n: found[n], default=default)
        self.main = "cpu" if main == "null" else main
        # Names that mean the main device: all in use, where the caller names one.
        self.same = {"null"} if chosen is None else {"null", default, *found}
        self.default = default
        self.elsewhere = {
            (name := pool.device.name): pool.live
            - pool.device.limits.own
            - world.bytes.get(name, 0)
            for pool in opened()
        }
        self.taken: list[tuple[Pool, list[tuple[int, int]]]] = []
        self.pools: dict[str, Pool] = {}
        self.read: Callable[[], None] | None = None

    def __call__(self, name: str) -> Pool:
        name = self.default if name == creation.STAND_IN else name
        name = self.main if name in self.same else name
        found = self.pools.get(name)
        if found is None:
            found = self.pools[name] = stand_in_of(name)
            found.trim()
            found.device.name = name
            found.device.read = self.read  # type: ignore[attr-defined]
            self._take_elsewhere(found, self.elsewhere.get(name, 0))
        return found

    def _take_elsewhere(self, pool: Pool, left: int) -> None:
        blocks: list[tuple[int, int]] = []
        self.taken.append((pool, blocks))
        while left > 0:
            room = min(left, pool.device.limits.largest_block)
            blocks.append((pool.take(room), room))
            left -= room

    def when_read(self, read: Callable[[], None] | None) -> None:
        """Call `read` when elements are read."""
        self.read = read
        for pool in self.pools.values():
            pool.device.read = read  # type: ignore[attr-defined]

    def close(self) -> None:
        for pool, blocks in self.taken:
            pool.give_all(blocks)
        for pool in self.pools.values():
            pool.device.name = "null"
            pool.trim()


@contextmanager
def standing(world: World, device: Any) -> Iterator[Places]:
    """A block in which what was found is on stand-ins; all is as before afterwards."""
    with _LOCK:
        places = Places(world, device)
        chosen, default = list(creation.chosen_device), creation.default_pool().device.name
        counts = _counts()
        real = [(pool, pool.live, pool.peak) for pool in opened()]
        if any(pool.device.name != "null" and not pool.device.limits.computes for pool in opened()):
            raise RuntimeError("memory.estimate: another estimate is running in this thread")
        for pool, live, _ in real:
            pool.peak = live
        try:
            with standing_in(places), Changed(region=None, trace=None):
                creation.chosen_device[:] = [creation.STAND_IN, default]
                world.stand(places)
                yield places
        except DeviceError as error:
            raise DeviceError(f"{error}{_HINT}") from error
        finally:
            with Uninterrupted():
                creation.chosen_device[:] = chosen
                world.put_back()
                places.close()
                _put_back_counts(counts)
                taken = {pool: pool.peak - live for pool, live, _ in real if pool.peak > live}
                for pool, _, peak in real:
                    pool.peak = max(pool.peak, peak)
        if taken:
            sizes = ", ".join(f"{size} bytes on {p.device.name}" for p, size in taken.items())
            raise DeviceError(f"{sizes} were taken while nothing should be computed{_HINT}")


@contextmanager
def on_stand_in(name: str) -> Iterator[Pool]:
    """A block in which new tensors of a device are on its stand-in, to trace what would be called.

    It gives the pool for the tensors that are traced. See Note [Stand-ins].
    """
    with _LOCK:
        pool = stand_in_of(name)
        chosen, default = list(creation.chosen_device), creation.default_pool().device.name

        def find(asked: str) -> Pool:
            asked = default if asked == creation.STAND_IN else asked
            return pool if asked in (name, "null") else stand_in_of(asked)

        pool.device.name = name
        try:
            with standing_in(find), Changed(region=None):
                creation.chosen_device[:] = [creation.STAND_IN, default]
                yield pool
        finally:
            creation.chosen_device[:] = chosen
            pool.device.name = "null"


_COUNTED = {
    COUNTERS: ("nodes", "nbytes"),
    Offloaded: ("out", "back"),
    Transfers: ("to_device", "to_host", "bytes_to_device", "bytes_to_host"),
    FORESIGHT: (
        *("steps", "record", "count", "flying", "dropped", "kept", "known", "followed", "marks"),
        *("drops", "next_drop", "is_quiet", "is_plain", "now"),
    ),
}


def _counts() -> list[tuple[Any, str, Any]]:
    """Counts of the program, and what budgets know of its steps."""
    counts = [(o, name, getattr(o, name)) for o, names in _COUNTED.items() for name in names]
    FORESIGHT.forget()  # the record is not written to in between
    return counts


def _put_back_counts(counts: list[tuple[Any, str, Any]]) -> None:
    for owner, name, count in counts:
        setattr(owner, name, count)


_HINT = (
    "; memory.estimate: a tensor that the function uses was not found from its closure, the "
    "globals it names, or its arguments: pass it, or the object that has it, as an argument"
)
