"""States of models and optimisers, whole or as parts, for any wrapping: Note [Named states]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.distributed.named_states import (
    all_of,
    from_first_rank,
    load_model,
    load_optimizer,
    named_parameters,
    optimizer_state,
    raw_state,
    told,
)
from rushlight.distributed.process_groups import default_group
from rushlight.nn.module import Module
from rushlight.nn.states import LoadedKeys
from rushlight.optim.optimizer import Optimizer
from rushlight.tape.record.state import no_grad

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

Optimizers = Optimizer | Iterable[Optimizer]


@dataclass
class StateDictOptions:
    """How states are given and loaded.

    Args:
        full_state_dict (bool): Whether tensors are whole; else a sharded one is this rank's part.
        cpu_offload (bool): Whether they are copied to the host; whole ones on rank 0 only.
        ignore_frozen_params (bool): Whether parameters without gradients are left out.
        keep_submodule_prefixes (bool): Whether names of `submodules` are those of the model.
        strict (bool): Whether a load refuses missing and unexpected names.
        broadcast_from_rank0 (bool): Whether rank 0's whole tensors are loaded on all ranks.
        flatten_optimizer_state_dict (bool): Whether an optimiser's state is one level deep.
        dsd_fqn_modifiers (str): Has no effect.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"

    def keeps(self) -> bool:
        """Whether this rank gets a state: whole ones in the host's memory are rank 0's."""
        group = default_group()
        first = group is None or group.rank() == 0
        return first or not (self.full_state_dict and self.cpu_offload)


def get_model_state_dict(
    model: Module,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The model's state under the names of the plain model; all ranks make this call.

    Args:
        model (Module): The model, wrapped or not.
        submodules (set): Those whose state is given; all without it.
        options (StateDictOptions): Whole or parts, and where.
    """
    chosen = options or StateDictOptions()
    state = raw_state(model)
    if submodules is not None:
        state = _below(model, submodules, state, chosen)
    if chosen.ignore_frozen_params:
        frozen = {name for name, p in named_parameters(model) if not p.requires_grad}
        state = {name: value for name, value in state.items() if name not in frozen}
    keeps = chosen.keeps()
    made = {
        name: told(value, chosen.full_state_dict, chosen.cpu_offload, keeps)
        for name, value in state.items()
    }
    return made if keeps else {}


def _below(
    model: Module, submodules: set[Module], state: dict[str, Any], options: StateDictOptions
) -> dict[str, Any]:
    made = {}
    inside = {id(value): name for name, value in state.items()}
    for module in submodules:
        own = raw_state(module)
        for short, value in own.items():
            name = inside.get(id(value), short)
            made[name if options.keep_submodule_prefixes else short] = value
    return made


def _init_optim_state(optim: Optimizer) -> None:
    """Make the state that a first step would make; parameters and their gradients stay.

    Args:
        optim (Optimizer): One that has made no step.
    """
    learned = [p for group in optim.param_groups for p in group["params"] if p.requires_grad]
    if optim.state or any(p.grad is not None for p in learned):
        return
    rates = [group.get("lr") for group in optim.param_groups]
    try:
        with no_grad():
            for p in learned:
                p.grad = p.detach().clone().zero_()
            for group in optim.param_groups:
                if "lr" in group:
                    group["lr"] = 0.0
            optim.step()
    finally:
        for group, rate in zip(optim.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = rate
        optim.zero_grad()


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The optimisers' state by the names of the parameters; all ranks make this call.

    Args:
        model (Module): The model, wrapped or not.
        optimizers (Optimizer): Its optimiser, or several.
        submodules (set): Those whose parameters' state is given; all without it.
        options (StateDictOptions): Whole or parts, and where.
    """
    chosen = options or StateDictOptions()
    keeps = chosen.keeps()
    inside = {id(p) for module in submodules or () for p in module.parameters()}
    listed = {name for name, p in named_parameters(model) if submodules is None or id(p) in inside}
    made = optimizer_state(
        model,
        optimizers,
        lambda value: told(value, chosen.full_state_dict, chosen.cpu_offload, keeps),
        listed.__contains__,
    )
    if not keeps:
        return {}
    return _flattened(made) if chosen.flatten_optimizer_state_dict else made


def _flattened(state: dict[str, Any]) -> dict[str, Any]:
    """One level: "state.<parameter>.<word>" and "param_groups.<parameter>.<word>"."""
    made: dict[str, Any] = {}
    for name, kept in state["state"].items():
        for word, value in kept.items():
            made[f"state.{name}.{word}"] = value
    for group in state["param_groups"]:
        for name in group["params"]:
            for word, value in group.items():
                if word != "params":
                    made[f"param_groups.{name}.{word}"] = value
    return made


def _nested(model: Module, flat: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `_flattened`: a group for each parameter."""
    state: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    names = sorted((name for name, _ in named_parameters(model)), key=len, reverse=True)
    for key, value in flat.items():
        kind, _, rest = key.partition(".")
        name = next((name for name in names if rest.startswith(f"{name}.")), None)
        if name is None or kind not in ("state", "param_groups"):
            raise RushlightError(f"set_optimizer_state_dict: {key} is of no parameter")
        word = rest[len(name) + 1 :]
        if kind == "state":
            state.setdefault(name, {})[word] = value
        else:
            groups.setdefault(name, {"params": [name]})[word] = value
    return {"state": state, "param_groups": list(groups.values())}


def get_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model's state and the optimisers'; all ranks make this call.

    Args:
        model (Module): The model, wrapped or not.
        optimizers (Optimizer): Its optimiser, or several.
        submodules (set): Those whose state is given; all without it.
        options (StateDictOptions): Whole or parts, and where.
    """
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_model_state_dict(
    model: Module, model_state_dict: Mapping[str, Any], *, options: StateDictOptions | None = None
) -> LoadedKeys:
    """Load a state, of wholes or parts, into a model; all ranks make this call.

    Args:
        model (Module): The model, wrapped or not.
        model_state_dict (dict): What `get_model_state_dict` gives, on any number of ranks.
        options (StateDictOptions): Whether rank 0's is loaded on all, and how strictly.
    """
    chosen = options or StateDictOptions()
    if chosen.broadcast_from_rank0:
        _check_full(chosen)
        model_state_dict = from_first_rank(model_state_dict)
    return load_model(model, model_state_dict, chosen.strict)


def _check_full(options: StateDictOptions) -> None:
    if not options.full_state_dict:
        raise ValueError("StateDictOptions: broadcast_from_rank0 needs full_state_dict=True")


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    optim_state_dict: Mapping[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load a state, of wholes or parts, into optimisers; all ranks make this call.

    Args:
        model (Module): The model, wrapped or not.
        optimizers (Optimizer): Its optimiser, or several.
        optim_state_dict (dict): What `get_optimizer_state_dict` gives, on any number of ranks.
        options (StateDictOptions): Whether rank 0's is loaded on all.
    """
    chosen = options or StateDictOptions()
    if chosen.broadcast_from_rank0:
        _check_full(chosen)
        optim_state_dict = from_first_rank(optim_state_dict)
    if "param_groups" not in optim_state_dict:
        optim_state_dict = _nested(model, optim_state_dict)
    for optimizer in all_of(optimizers):
        load_optimizer(model, optimizer, optim_state_dict)


def set_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    model_state_dict: Mapping[str, Any],
    optim_state_dict: Mapping[str, Any],
    options: StateDictOptions | None = None,
) -> LoadedKeys:
    """Load the states of a model and of its optimisers; all ranks make this call.

    Args:
        model (Module): The model, wrapped or not.
        optimizers (Optimizer): Its optimiser, or several.
        model_state_dict (dict): The model's.
        optim_state_dict (dict): The optimisers'.
        options (StateDictOptions): Whether rank 0's is loaded on all, and how strictly.
    """
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found
