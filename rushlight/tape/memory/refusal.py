"""The text of a BudgetError: the call, what memory is in use for, and what would suffice.

It is made of what the engine has noted: storages with recipes, the records before the failed call,
leaves, optimisers and plans. No other object of the process is looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Any

from rushlight.core.errors import BudgetError
from rushlight.devices.shared.allocator import Pool, Scratch, Storage, room_for
from rushlight.tape.memory import offload, pass_ahead, requirement
from rushlight.tape.memory.foresight import FORESIGHT
from rushlight.tape.memory.recipe import with_recipe
from rushlight.tape.memory.tracebacks import clear, is_own, note
from rushlight.tape.record.op import Plan, Plans, describe
from rushlight.tape.record.source_line import here
from rushlight.tape.record.state import STATE, WALK
from rushlight.tape.record.value import Node, Value

# Functions that explain the errors of calls inside of them, or drop them.
EXPLAINED: set[CodeType] = set()

# The names of functions that only call the one that a user named.
_WRAPPERS = ("called", "operator")

_SLOTS: list[Any] = [vars(Value)[name] for name in ("_memory", "_node")]


def refuse(pool: Pool, room: int, limit: int) -> BudgetError:
    """The error for a request of `room` bytes that a limit does not allow."""
    return explained_here(
        BudgetError(
            f"a budget of {limit} bytes on {pool.device.name} has no room for {room} more",
            pool.live + room,
        ),
        pool,
    )


def explained_here(error: BudgetError, pool: Pool) -> BudgetError:
    """The error with all that is known of it, unless a function that runs will explain it."""
    FORESIGHT.note_refusal()
    called = _called()
    name = next((code.co_name for code in called if code.co_name not in _WRAPPERS), "")
    explains = not EXPLAINED.isdisjoint(called)
    return error if explains else _explained(error, pool, name, name)


def _called() -> list[CodeType]:
    """The functions of this package that run: first the one that a user called."""
    frame: FrameType | None = sys._getframe(2)
    found: list[CodeType] = []
    while frame is not None and is_own(frame.f_code):
        found.append(frame.f_code)
        frame = frame.f_back
    return found[::-1]


def explained(error: BudgetError, plan: Plan, inputs: Sequence[Value]) -> BudgetError:
    """The error of a call, with all that is known of it."""
    name = f"{plan.op.name} of {describe(plan.ins)}" if plan.ins else plan.op.name
    return _explained(error, plan.pool, plan.op.name, name, plan, inputs)


def explained_write(error: BudgetError, rebuilt: Sequence[Storage]) -> BudgetError:
    """The error of a write, before which values that were made from the old bytes are rebuilt."""
    name = next((code.co_name for code in _called() if code.co_name not in _WRAPPERS), "")
    size = in_units(sum(storage.room for storage in rebuilt))
    call = f"{name}, which first rebuilds {size} that are held and depend on what it overwrites"
    return _explained(error, rebuilt[0].pool, name, call, rebuilt=rebuilt)


def _explained(
    error: BudgetError,
    pool: Pool,
    op: str,
    call: str,
    plan: Plan | None = None,
    inputs: Sequence[Value] = (),
    rebuilt: Sequence[Storage] = (),
) -> BudgetError:
    place = here()
    nodes = requirement.records(pool, inputs)
    held = Holders(pool, nodes, rebuilt)
    recorded = bool(nodes) or any(value._node is not None for value in inputs)
    is_forward = recorded and WALK.get() is None and STATE.get().grad
    static = requirement.static_bytes(pool)
    known = requirement.required_bytes(pool, plan, inputs)
    gradients = pass_ahead.gradient_bytes(requirement.leaves_to_come(pool))
    clear(error)  # what the failed call held is not held by the program
    beyond = requirement.held_bytes(pool, nodes) if _optimizers() else 0
    required = max(known, static + gradients + beyond, error.required_bytes) + state_to_come(pool)
    half = static + (required - static) // 2
    message = (
        f"{call}, {place}: {error}.\n"
        f"In use: {held}. Activations are dropped where possible.\n"
        f"Could be freed: {_ways_out(pool, held, is_forward)}.\n"
        f"The least sufficient budget for the whole step, as far as it is known, is {required} "
        f"bytes ({in_units(required)}); with half of the batch about {in_units(half)}."
    )
    if Plans.read_twice:
        message += "\nIn anomaly mode no result takes the block of an input: less suffices outside."
    found = BudgetError(
        message, required, op=op, place=str(place), module=place.module, holders=held.by_kind
    )
    note(found)
    return found


def in_units(nbytes: int) -> str:
    """Bytes as people read them."""
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes >= 1 << exponent:
            return f"{nbytes / (1 << exponent):.1f} {unit}"
    return f"{nbytes} bytes"


# ---- what memory is in use for ----


class Holders:
    """The bytes in use: by kind, and those of activations by module.

    Workspaces are kernels' scratch and what the device keeps for itself; data is all that is of no
    other kind: inputs, buffers. `fixed` are activations that cannot be dropped, since they were
    made outside of the budget. `again` are those that a write has `rebuilt`, or is about to.
    """

    def __init__(self, pool: Pool, nodes: Sequence[Node], rebuilt: Sequence[Storage] = ()) -> None:
        self.pool = pool
        self.kinds: dict[Storage, str] = dict.fromkeys(rebuilt, "activations")
        self.again = sum(storage.room for storage in rebuilt)
        for leaf in requirement.leaves_of(pool):
            value, grad = leaf.handle(), leaf.grad
            self._add("parameters", [] if value is None else [value])
            self._add("gradients", [] if grad is None else [grad])
        for optimizer in _optimizers():
            self._add("optimizer state", _values_in(optimizer.state))
        for storage in with_recipe(pool):
            if not storage.recipe.is_settled:
                self.kinds.setdefault(storage, "activations")
        made = {storage: node for node in nodes for storage in _saves(node)}
        made |= {storage: node for node in nodes for storage in node.outs if storage in made}
        self.fixed = 0
        self.by_module: dict[str, int] = {}
        for storage, node in made.items():
            if self.kinds.setdefault(storage, "") in ("", "activations"):
                name, room = _family(node.place.module), self._room(storage)
                self.fixed += 0 if self.kinds[storage] else room
                self.kinds[storage] = "activations"
                self.by_module[name] = self.by_module.get(name, 0) + room
        order = ("parameters", "gradients", "optimizer state", "data", "activations", "workspaces")
        self.by_kind = dict.fromkeys(order, 0)
        self.by_kind["workspaces"] = Scratch.used.get(pool, 0) + pool.device.limits.own
        for storage, kind in self.kinds.items():
            self.by_kind[kind] += self._room(storage)
        self.by_kind["data"] = max(0, pool.live - sum(self.by_kind.values()))
        self.kinds = {}  # storages are held by the program alone

    def _room(self, storage: Storage) -> int:
        there = storage.pool is self.pool and storage.present_address is not None
        return storage.room if there else 0

    def _add(self, kind: str, values: Iterable[Value]) -> None:
        for value in values:
            if _is_filled(value):
                self.kinds.setdefault(value._memory, kind)

    @property
    def largest_module(self) -> str:
        """The family of modules with most activations, where it has a half of them or more."""
        name = max(self.by_module, key=lambda name: self.by_module[name], default="")
        most = self.by_module.get(name, 0)
        told = name != "*" and most and 2 * most >= self.by_kind["activations"]
        return name if told else ""

    def __str__(self) -> str:
        sizes = sorted(self.by_kind.items(), key=lambda item: -item[1])
        words = {kind: f"{kind} {in_units(size)}" for kind, size in sizes if size}
        name = self.largest_module
        if name:
            words["activations"] += f" ({in_units(self.by_module[name])} of {name})"
        return ", ".join(words.values()) or "nothing"


def _saves(node: Node) -> list[Storage]:
    """What a record saved, but inputs of the step, which have no record."""
    values = [v for v in node.saved or () if isinstance(v, Value) and v._node is not None]
    storages: list[Any] = [*[v._memory for v in values], *node.outs]
    return [s for s in storages if isinstance(s, Storage)]  # a checkpoint takes some out


def _family(path: str) -> str:
    """A module's path up to its first number: the blocks of a model are one family."""
    words = path.split(".")
    numbered = next((i for i, word in enumerate(words) if word.isdigit()), None)
    return path if numbered is None else ".".join([*words[:numbered], "*"])


def _ways_out(pool: Pool, held: Holders, is_forward: bool) -> str:
    """What could be freed, and how: the largest, and another of a quarter of it or more."""
    sizes = held.by_kind
    state = "SGD has less"
    if not offload.here().takes(pool):
        state += ', offload="disk" copies out what is made inside the budget'
    where = f" of {held.largest_module}" if held.largest_module else ""
    ways = [
        (
            held.again,
            "values that the program holds",
            "del those that it does not need before the write",
        )
        if held.again
        else (
            sizes["activations"] - held.fixed,
            "activations that this call reads",
            "smaller batches",
        ),
        (
            held.fixed,
            f"activations{where} from outside of the budget",
            "begin it before the forward pass, or checkpoint them",
        ),
        (sizes["optimizer state"], "optimizer state", state),
        (sizes["data"], "data", "smaller batches, del of what is not needed"),
    ]
    if is_forward:
        before = "zero_grad() before the forward pass"
        ways.append((sizes["gradients"], "gradients of an earlier pass", before))
    ways.sort(key=lambda way: -way[0])
    told = [way for way in ways[:2] if way[0] and 4 * way[0] >= ways[0][0]]
    found = [f"{in_units(size)} of {what} ({how})" for size, what, how in told]
    return "; ".join(found) or "nothing; the call alone needs more"


# ---- optimisers ----


def state_to_come(pool: Pool) -> int:
    """The bytes of the state that optimisers make in their first step."""
    total = 0
    for optimizer in _optimizers():
        kept: Any = getattr(optimizer, "kept", lambda _: ())
        for group in optimizer.param_groups:
            new = [p for p in group["params"] if p not in optimizer.state and _is_filled(p)]
            sizes = [room_for(p._spec.nbytes) for p in new if p._memory.pool is pool]
            total += len(kept(group)) * sum(sizes)
    return total


def _optimizers() -> list[Any]:
    """The class is looked up, not imported: where it is not loaded, there is no optimiser."""
    kind: Any = getattr(sys.modules.get("rushlight.optim.optimizer"), "Optimizer", None)
    if kind is None:
        return []
    found = [reference() for reference in list(kind._every.values())]
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
