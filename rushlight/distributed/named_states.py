"""States of models and optimisers by the names that parameters have in the plain model.

# Note [Named states]
1. Names leave out what wrappers add ("module.", "_fsdp_wrapped_module."), and an optimiser's state
   is keyed by them. So a state fits any wrapping and any number of ranks.
2. A tensor is a DTensor, this rank's part, or whole. Wholes are put together one after another; all
   ranks make the same calls.
3. A load takes either, checks all of it first, and then writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.distributed.collectives import broadcast
from rushlight.distributed.objects import broadcast_object_list
from rushlight.distributed.process_groups import default_group
from rushlight.distributed.tensor.dtensor import DTensor, wrap
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.nn.states import LoadedKeys
from rushlight.ops.create.creation import empty
from rushlight.optim.optimizer import Optimizer
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

# Whether a wrapper's `state_dict` gives its parts as they are.
AS_PARTS: ContextVar[bool] = ContextVar("rushlight_states_as_parts", default=False)
# The names by which wrappers have what they wrap. "module" is one in DistributedDataParallel only.
WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


def _clean(name: str, model: Module) -> str:
    """A name in a wrapped model as it is in the plain one."""
    kept: list[str] = []
    at: Any = model
    for word in name.split("."):
        wraps = word in WRAPPED or (
            word == "module" and type(at).__name__ == "DistributedDataParallel"
        )
        if not wraps:
            kept.append(word)
        at = at._modules.get(word) if isinstance(at, Module) else None
    return ".".join(kept)


def named_parameters(model: Module) -> Iterator[tuple[str, Any]]:
    """Parameters by their names in the plain model."""
    for name, parameter in model.named_parameters():
        yield _clean(name, model), parameter


def raw_state(model: Module) -> dict[str, Any]:
    """The model's state by plain names, with parts as DTensors, in the model's memory."""
    token = AS_PARTS.set(True)
    try:
        state = model.state_dict(keep_vars=True)
    finally:
        AS_PARTS.reset(token)
    return {_clean(name, model): value for name, value in state.items()}


# ---- parts and wholes ----


def told(value: Any, full: bool, to_host: bool, keeps: bool = True) -> Any:
    """A value of a state: a part or the whole, copied to the host; None where it is not kept."""
    if not isinstance(value, Tensor):
        return value
    made: Any = value.detach()
    if isinstance(made, DTensor):
        if full:
            made = made.full_tensor()
        elif to_host:
            return wrap(made._local_tensor.cpu(), made._layout)
    if not keeps:
        return None
    return made.cpu() if to_host else made


def part_for(target: Any, value: Any, name: str) -> Tensor:
    """What of a value goes into a tensor's own memory: all of it, or this rank's part."""
    if not isinstance(value, Tensor):
        raise RushlightError(f"{name}: a tensor is needed, got {type(value).__name__}")
    if tuple(value.shape) != tuple(target.shape):
        raise RushlightError(
            f"{name}: has shape {list(value.shape)}, wanted is {list(target.shape)}"
        )
    if not isinstance(target, DTensor):
        return value.full_tensor() if isinstance(value, DTensor) else value
    layout = target._layout
    if isinstance(value, DTensor):
        if value._layout == layout:
            return value._local_tensor.detach()
        value = value.full_tensor()
    made: Any = value.detach()
    for dim, piece in enumerate(layout.pieces()):
        made = made.narrow(dim, piece.start, piece.length)
    return made


def from_first_rank(state: Any) -> Any:
    """Rank 0's nest of dicts and lists, on all ranks; its tensors come one after another."""
    group = default_group()
    if group is None or group.size() == 1:
        return state
    seen: list[Tensor] = []

    def outline(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: outline(inside) for key, inside in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(outline(inside) for inside in value)
        if isinstance(value, Tensor):
            seen.append(value.detach())
            return _Sent(tuple(value.shape), value.dtype)
        return value

    first = group.rank() == 0
    told = [outline(state) if first else None]
    broadcast_object_list(told, group=group, group_src=0)
    sent = iter(seen)

    def filled(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: filled(inside) for key, inside in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(filled(inside) for inside in value)
        if isinstance(value, _Sent):
            made = next(sent) if first else empty(value.shape, dtype=value.dtype)
            made = made.contiguous()
            broadcast(made, group=group, group_src=0)
            return made
        return value

    with no_grad():
        return filled(told[0])


class _Sent:
    """Stands for a tensor that follows."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype


# ---- models ----


def load_model(model: Module, state: Mapping[str, Any], strict: bool = True) -> LoadedKeys:
    """Write a state, of parts or wholes, to a model; nothing is written where it does not fit."""
    own = raw_state(model)
    missing = [name for name in own if name not in state]
    unexpected = [name for name in state if name not in own]
    if strict and (missing or unexpected):
        raise RushlightError(
            f"Error(s) in loading state_dict for {type(model).__name__}: missing keys {missing}, "
            f"unexpected keys {unexpected}"
        )
    writes: list[tuple[Any, Tensor]] = []
    for name, target in own.items():
        if name in state and isinstance(target, Tensor):
            writes.append((target, part_for(target, state[name], name)))
    made: dict[int, Any] = {}
    with no_grad():
        for target, part in writes:
            mine = target._local_tensor if isinstance(target, DTensor) else target
            if mine.is_meta:
                made[id(target)] = _with_elements(target, part)
            else:
                mine.detach().copy_(part)
    for module in model.modules() if made else ():
        for held in (module._parameters, module._buffers):
            held.update({key: made[id(old)] for key, old in held.items() if id(old) in made})
    return LoadedKeys(missing, unexpected)


def _with_elements(target: Any, part: Tensor) -> Any:
    """What takes the place of a tensor of the meta device, which has no memory to write to."""
    new: Any = part.detach().to(target.dtype, copy=True)
    if isinstance(target, DTensor):
        new = wrap(new, target._layout)
    return Parameter(new, target.requires_grad) if isinstance(target, Parameter) else new


# ---- optimisers ----


def all_of(optimizers: Optimizer | Iterable[Optimizer]) -> list[Optimizer]:
    """One optimiser, or several, as a list."""
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def names_of(model: Module) -> dict[int, str]:
    """The name of each parameter, by identity."""
    return {id(parameter): name for name, parameter in named_parameters(model)}


def begin_state(optimizer: Optimizer) -> None:
    """Give an optimiser without state the one it has before its first step.

    A step at rate 0 with gradients of 0 makes it, and changes no parameter.
    """
    if optimizer.state or any(
        p.grad is not None for group in optimizer.param_groups for p in group["params"]
    ):
        return
    rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
    learned = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    with no_grad():
        for p in learned:
            p.grad = p.new_zeros(p.shape) if not isinstance(p, DTensor) else _zeros(p)
    try:
        for group in optimizer.param_groups:
            if "lr" in group:
                group["lr"] = 0.0
        optimizer.step()
    finally:
        for group, rate in zip(
            [group for group in optimizer.param_groups if "lr" in group], rates, strict=True
        ):
            group["lr"] = rate
        for p in learned:
            p.grad = None
    for kept in optimizer.state.values():
        if "step" in kept:
            dict.__setitem__(kept, "step", 0)


def _zeros(p: DTensor) -> DTensor:
    part = p._local_tensor.detach()
    return wrap(part.new_zeros(part.shape), p._layout)


def optimizer_state(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    value: Callable[[Any], Any],
    wanted: Callable[[str], bool] = lambda name: True,
) -> dict[str, Any]:
    """The state and groups of optimisers by names; `value` makes each value of it."""
    names = names_of(model)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in all_of(optimizers):
        begin_state(optimizer)
        plain = optimizer.state_dict()
        for group, numbered in zip(optimizer.param_groups, plain["param_groups"], strict=True):
            listed = []
            for p, number in zip(group["params"], numbered["params"], strict=True):
                name = names.get(id(p))
                if name is None:
                    raise RushlightError(
                        f"optimizer state: a parameter of shape {list(p.shape)} is not the model's"
                    )
                if not wanted(name):
                    continue
                listed.append(name)
                if number in plain["state"]:
                    kept = plain["state"][number]
                    state[name] = {word: value(kept[word]) for word in kept}
            groups.append({**numbered, "params": listed})
    return {"state": state, "param_groups": groups}


def numbered_state(model: Module, optimizer: Optimizer, given: Mapping[str, Any]) -> dict[str, Any]:
    """A state by names as this optimiser's `load_state_dict` takes it: parts, by number."""
    names = names_of(model)
    options: dict[str, dict[str, Any]] = {}
    for group in given["param_groups"]:
        for name in group["params"]:
            options[name] = {word: value for word, value in group.items() if word != "params"}
    state: dict[int, Any] = {}
    groups: list[dict[str, Any]] = []
    number = 0
    for group in optimizer.param_groups:
        listed = [names[id(p)] for p in group["params"]]
        missing = [name for name in listed if name not in options]
        if missing:
            raise RushlightError(f"optimizer state: there is none of {', '.join(missing)}")
        first = options[listed[0]] if listed else {}
        groups.append({**first, "params": list(range(number, number + len(listed)))})
        for p, name in zip(group["params"], listed, strict=True):
            if name in given["state"]:
                state[number] = {
                    word: _part_of_state(p, value, f"{name}.{word}")
                    for word, value in given["state"][name].items()
                }
            number += 1
    return {"state": state, "param_groups": groups}


def _part_of_state(p: Any, value: Any, name: str) -> Any:
    """A value of a parameter's state: this rank's part where it has the parameter's shape."""
    if not isinstance(value, Tensor) or not isinstance(p, DTensor):
        return value.full_tensor() if isinstance(value, DTensor) else value
    if not isinstance(value, DTensor) and tuple(value.shape) != tuple(p.shape):
        return value
    return part_for(p, value, name)


def load_optimizer(model: Module, optimizer: Optimizer, given: Mapping[str, Any]) -> None:
    """Load a state by names, of parts or wholes."""
    optimizer.load_state_dict(numbered_state(model, optimizer, given))
    as_parts(optimizer)


def as_parts(optimizer: Optimizer) -> None:
    """Let state that was loaded as parts of sharded parameters know what it is."""
    for p, kept in optimizer.state.items():
        if isinstance(p, DTensor):
            shape = tuple(p._local_tensor.shape)
            for word, value in kept.items():
                is_plain = isinstance(value, Tensor) and not isinstance(value, DTensor)
                if is_plain and value.dim() and tuple(value.shape) == shape:
                    kept[word] = wrap(value, p._layout)
