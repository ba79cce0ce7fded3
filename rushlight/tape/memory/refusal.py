"""The text of a BudgetError: the call, what memory is in use for, and what would suffice."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Any

from rushlight.core.errors import BudgetError
from rushlight.devices.shared.allocator import Pool, Storage, room_for
from rushlight.tape.memory import requirement
from rushlight.tape.memory.recipe import Recipe, with_recipe
from rushlight.tape.memory.tracebacks import is_own, note
from rushlight.tape.record.op import Plan, describe
from rushlight.tape.record.source_line import here
from rushlight.tape.record.value import Leaf, Node, Value

# Functions that explain the errors of calls inside of them, or drop them.
EXPLAINED: set[CodeType] = set()

_SLOTS: list[Any] = [vars(Value)[name] for name in ("_memory", "_node")]


def refuse(pool: Pool, room: int, limit: int) -> BudgetError:
    """The error for a request of `room` bytes that a limit does not allow."""
    error = BudgetError(
        f"a budget of {limit} bytes on {pool.device.name} has no room for {room} more",
        pool.live + room,
    )
    frame: FrameType | None = sys._getframe(1)
    name = ""
    while frame is not None and is_own(frame.f_code):
        if frame.f_code in EXPLAINED:
            return error
        name, frame = frame.f_code.co_name, frame.f_back
    return _explained(error, pool, name, name)


def explained(error: BudgetError, plan: Plan, inputs: Sequence[Value]) -> BudgetError:
    """The error of a call, with all that is known of it."""
    name = f"{plan.op.name} of {describe(plan.ins)}" if plan.ins else plan.op.name
    storages = [value._memory for value in inputs]
    sources = [(s.recipe, s.recipe.index_of(s)) for s in storages if s.recipe is not None]
    return _explained(error, plan.pool, plan.op.name, name, sources, sum(plan.rooms))


def _explained(
    error: BudgetError,
    pool: Pool,
    op: str,
    call: str,
    sources: Sequence[tuple[Recipe, int]] = (),
    rooms: int = 0,
) -> BudgetError:
    objects = _relevant()
    place, held = here(), holders(pool, objects)
    static = requirement.static_bytes(pool)
    known = requirement.required_bytes(pool, objects, sources, rooms)
    after = static + requirement.gradients_to_come(pool, objects) + state_to_come(pool, objects)
    required = max(known, after, error.required_bytes)
    listed = ", ".join(f"{kind} {in_units(size)}" for kind, size in held.items() if size)
    half = static + (required - static) // 2
    message = (
        f"{call}, {place}: {error}.\n"
        f"In use: {listed}. Activations are dropped where possible.\n"
        f"The least sufficient budget for the whole step, as far as it is known, is {required} "
        f"bytes ({in_units(required)}); with half of the batch about {in_units(half)}."
    )
    found = BudgetError(
        message, required, op=op, place=str(place), module=place.module, holders=held
    )
    note(found)
    return found


def _relevant() -> list[Any]:
    """The live objects that tell of memory: a process has a million others."""
    kinds: tuple[type, ...] = (Value, Node, Leaf, Plan)
    optimizer = _optimizer_class()
    if optimizer is not None:
        kinds = (*kinds, optimizer)
    matters: dict[type, bool] = {}
    found = []
    for thing in gc.get_objects():
        kind = type(thing)
        known = matters.get(kind)
        if known is None:
            known = matters[kind] = issubclass(kind, kinds)
        if known:
            found.append(thing)
    return found


def in_units(nbytes: int) -> str:
    """Bytes as people read them."""
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes >= 1 << exponent:
            return f"{nbytes / (1 << exponent):.1f} {unit}"
    return f"{nbytes} bytes"


# ---- what memory is in use for ----


def holders(pool: Pool, objects: Iterable[Any]) -> dict[str, int]:
    """The bytes in use by kind, as far as objects that are alive tell them."""
    kinds: dict[Storage, str] = {}
    plain: list[Storage] = []
    for value in objects:
        if issubclass(type(value), Value) and _is_filled(value):
            node = value._node
            if node.__class__ is Leaf:
                kinds[value._memory] = "parameters"
                if node.grad is not None and _is_filled(node.grad):
                    kinds[node.grad._memory] = "gradients"
            plain.append(value._memory)
    for optimizer in _optimizers(objects):
        for value in _values_in(optimizer.state):
            kinds.setdefault(value._memory, "optimizer state")
    for storage in with_recipe(pool):
        if not storage.recipe.is_settled:
            kinds[storage] = "activations"
    for storage in plain:
        kinds.setdefault(storage, "data")
    order = ("parameters", "gradients", "optimizer state", "data", "activations")
    found = dict.fromkeys(order, 0)
    for storage, kind in kinds.items():
        if storage.pool is pool and storage.present_address is not None:
            found[kind] += storage.room
    found["other"] = max(0, pool.live - sum(found.values()))
    return found


def state_to_come(pool: Pool, objects: Iterable[Any]) -> int:
    """The bytes of the state that optimisers make in their first step."""
    total = 0
    for optimizer in _optimizers(objects):
        kept: Any = getattr(optimizer, "kept", lambda _: ())
        for group in optimizer.param_groups:
            new = [p for p in group["params"] if p not in optimizer.state and _is_filled(p)]
            sizes = [room_for(p._spec.nbytes) for p in new if p._memory.pool is pool]
            total += len(kept(group)) * sum(sizes)
    return total


def _optimizer_class() -> type | None:
    """It is looked up, not imported: where it is not loaded, there is no optimiser."""
    return getattr(sys.modules.get("rushlight.optim.optimizer"), "Optimizer", None)


def _optimizers(objects: Iterable[Any]) -> list[Any]:
    kind = _optimizer_class()
    if kind is None:
        return []
    found = [thing for thing in objects if issubclass(type(thing), kind)]
    return [thing for thing in found if hasattr(thing, "state") and hasattr(thing, "param_groups")]


def _is_filled(value: Value) -> bool:
    """Whether a handle has memory: a sparse tensor and one that is being made have none."""
    try:
        for slot in _SLOTS:
            slot.__get__(value)
    except AttributeError:
        return False
    return True


def _values_in(states: Any) -> list[Value]:
    found = []
    for state in list(states.values()):
        for value in list(state.values()) if isinstance(state, dict) else ():
            if isinstance(value, Value) and _is_filled(value):
                found.append(value)
    return found
