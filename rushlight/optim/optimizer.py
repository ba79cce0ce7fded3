"""Optimizer: groups of parameters, their options, and the state kept for each."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rushlight.core.errors import RushlightError, SparseOperandError
from rushlight.ops import elementwise as e
from rushlight.tape.recipe import nothing_watched
from rushlight.tape.state import STATE, enable_grad, no_grad
from rushlight.tape.value import Leaf
from rushlight.tensor import Handle, Tensor

Group = dict[str, Any]
_numbers = itertools.count()


class Optimizer:
    """The base of optimisers: a subclass says how a group takes a step.

    `param_groups` is a list of dicts: "params" and the options of that group. `state` is a dict per parameter.
    """

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError("an optimiser takes an iterable of parameters or of dicts; put the tensor in a list")
        check_switches(type(self).__name__, defaults)
        self.defaults = defaults
        self._hooks: dict[str, dict[int, Callable[..., Any]]] = {}
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        groups = list(params)
        if not groups:
            raise ValueError("an optimiser was given no parameters; was model.parameters() used up before?")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Group) -> None:
        """Take more parameters, with options of their own where they differ from the defaults."""
        given = param_group["params"]
        if isinstance(given, set):
            raise TypeError("a group of parameters must have an order: a list, not a set")
        listed = [given] if isinstance(given, Tensor) else [p[1] if isinstance(p, tuple) else p for p in given]
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for p in listed:
            if not isinstance(p, Tensor):
                raise TypeError(f"an optimiser takes tensors, got {type(p).__name__}")
            if not p.is_leaf and not self.defaults.get("differentiable"):
                raise ValueError(f"an optimiser takes leaves; a result (shape {list(p.shape)}) has no .grad")
            if id(p) in known:
                raise ValueError(f"a parameter of shape {list(p.shape)} is given twice; each belongs to one group")
            known.add(id(p))
        self.param_groups.append({**self.defaults, **param_group, "params": listed})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    if type(p.node) is Leaf:
                        p.node.grad = None
                    elif p.grad is not None:
                        p.grad = None
                elif p.grad is not None:
                    with no_grad():
                        p.grad = p.grad.detach().zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient; `closure`, if given, computes the loss first and is returned."""
        for hook in list(self._hooks.get("step", {}).values()):
            hook(self, (closure,), {})
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        undisturbed = nothing_watched() and not STATE.get().special
        try:
            for group in self.param_groups:
                if group.get("capturable"):
                    check_capturable(group)
                if group.get("differentiable"):
                    self.step_on_tape(group)
                else:
                    self.step_group(group, undisturbed)
        except SparseOperandError as error:
            raise RushlightError(
                f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead"
            ) from error
        for hook in list(self._hooks.get("stepped", {}).values()):
            hook(self, (closure,), {})
        return loss

    def _add_hook(self, when: str, hook: Callable[..., Any]) -> Handle:
        key = next(_numbers)
        self._hooks.setdefault(when, {})[key] = hook
        return Handle(self._hooks[when], key)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(optimizer, args, kwargs)` before each step."""
        return self._add_hook("step", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._add_hook("stepped", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` before the state is read."""
        return self._add_hook("read", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` after the state is read; what it returns, if anything, takes its place."""
        return self._add_hook("was read", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` before loading; what it returns, if anything, is loaded instead."""
        return self._add_hook("load", hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` after loading."""
        return self._add_hook("was loaded", hook)

    def step_group(self, group: Group, undisturbed: bool) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how to step")

    def step_on_tape(self, group: Group) -> None:
        """The step of a group that is `differentiable`."""
        raise RushlightError(f"{type(self).__name__} has no differentiable step")

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """The state by number of the parameter, and the groups with numbers in place of parameters."""
        for hook in list(self._hooks.get("read", {}).values()):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        state = {numbers[id(p)]: dict(kept) for p, kept in self.state.items() if id(p) in numbers}
        made = {"state": state, "param_groups": groups}
        for hook in list(self._hooks.get("was read", {}).values()):
            changed = hook(self, made)
            made = made if changed is None else changed
        return made

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Copy a state in; parameters are matched by their order."""
        for hook in list(self._hooks.get("load", {}).values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        groups = state_dict["param_groups"]
        mine, given = ([len(g["params"]) for g in listed] for listed in (self.param_groups, groups))
        if mine != given:
            raise RushlightError(
                f"load_state_dict: the state has groups of {given} parameters, this optimiser of {mine}; "
                f"make it with the same parameters in the same order"
            )
        by_number: dict[Any, Tensor] = {}
        for own, group in zip(self.param_groups, groups, strict=True):
            by_number.update(zip(group["params"], own["params"], strict=True))
        fresh: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, kept in state_dict["state"].items():
            p = by_number[number]
            fresh[p] = {name: _copied(name, value, p) for name, value in kept.items()}
        self.state = fresh
        for own, group in zip(self.param_groups, groups, strict=True):
            own.update({name: value for name, value in group.items() if name != "params"})
        for hook in list(self._hooks.get("was loaded", {}).values()):
            hook(self)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines.extend(f"    {name}: {group[name]}" for name in sorted(group) if name != "params")
        return "\n".join([*lines, ")"])


def _copied(name: str, value: Any, p: Tensor) -> Any:
    """A piece of state for parameter `p`: tensors in its type and on its device, the step as a plain number."""
    if isinstance(value, list):
        return [_copied(name, part, p) for part in value]
    if not isinstance(value, Tensor):
        return value
    if name == "step":
        return int(value.item())
    with no_grad():
        moved = value.detach().to(device=p.device, dtype=p.dtype if value.is_floating_point() else None)
        return e.clone(moved)


def check_switches(name: str, defaults: Group) -> None:
    """Refuse what PyTorch refuses of `fused`, `foreach` and `differentiable`."""
    if defaults.get("fused") and defaults.get("differentiable"):
        raise RushlightError(f"{name}: `fused` does not support `differentiable`; leave one out")
    if defaults.get("fused") and defaults.get("foreach"):
        raise RushlightError(f"{name}: `fused` and `foreach` cannot be `True` together; here every step is fused")


def check_capturable(group: Group) -> None:
    """A step is captured in a CUDA graph, and nowhere else."""
    for p in group["params"]:
        if p.device.type != "cuda":
            raise AssertionError(
                f"If capturable=True, params and state_steps must be on supported devices: ['cuda']; one is on {p.device}"
            )


def rate_of(group: Group) -> Any:
    """The learning rate as a number; as the tensor it may be where the step is on the tape."""
    return group["lr"] if group.get("differentiable") and isinstance(group["lr"], Tensor) else float(group["lr"])


def check_options(**options: Any) -> None:
    """Refuse options that are negative, or tensors of several numbers."""
    for name, value in options.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"Tensor {name} must be 1-element, got shape {list(value.shape)}")
        if not value >= 0:
            raise ValueError(f"an optimiser's {name} must be at least 0, got {value}")
