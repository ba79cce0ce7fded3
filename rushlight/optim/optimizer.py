"""Optimizer: groups of parameters, their options, and the state kept for each."""

from __future__ import annotations

import functools
import math
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from rushlight.core import dtypes
from rushlight.core.errors import RushlightError, SparseOperandError
from rushlight.ops.create import creation
from rushlight.ops.create.creation import device_kind, names
from rushlight.ops.optim.whole_steps import Moves
from rushlight.ops.view import complex_parts
from rushlight.ops.view.inplace import finish_all
from rushlight.tape.record.hook_tables import add_to
from rushlight.tape.record.state import enable_grad, no_grad
from rushlight.tape.record.value import Leaf
from rushlight.tensor import RemovableHandle, Tensor

Group = dict[str, Any]


class ParameterState(dict[str, Any]):
    """The state of one parameter.

    The count of its steps is a number, which costs a step nothing, until it is read by its name:
    then it is a tensor, as in PyTorch. So is one that several parameters share on the device, see
    Note [Steps decided on the device]. A step reads it by `count_of`. Walks over all values see
    what there is, so that looking at memory takes none.
    """

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if name == "step" and _is_whole_number(value):
            value = _count(value) if value.__class__ is int else value.to(_count_type())
            self[name] = value  # a write to it counts
        return value

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401


def _is_whole_number(count: Any) -> bool:
    return count.__class__ is int or (isinstance(count, Tensor) and count.dtype is dtypes.int32)


def _count(steps: int) -> Tensor:
    return creation.full((), float(steps), dtype=_count_type(), device="cpu")


def _count_type() -> dtypes.DType:
    return dtypes.float64 if dtypes.get_default() is dtypes.float64 else dtypes.float32


def count_of(state: dict[str, Any]) -> int:
    """How many steps a state has seen."""
    held = dict.__getitem__(state, "step")
    return held if held.__class__ is int else int(held)


class Optimizer:
    """The base of optimisers: a subclass defines the step of a group.

    `param_groups` is a list of dicts: "params" and the options of that group. `state` is a dict per
    parameter.
    """

    _repeats = False  # whether a group has a parameter twice
    # Set by a scaler for one step: a number on the device; where it is not 0, nothing changes.
    found_inf: Tensor | None = None
    _every: ClassVar[dict[int, weakref.ref[Optimizer]]] = {}  # those that are alive

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        key = id(self)
        Optimizer._every[key] = weakref.ref(self, functools.partial(Optimizer._every.pop, key))
        if isinstance(params, Tensor):
            raise TypeError(
                "an optimiser takes an iterable of parameters or of dicts; put the tensor in a list"
            )
        check_switches(type(self).__name__, defaults)
        self.defaults = defaults
        self._hooks: dict[str, dict[int, Callable[..., Any]]] = {}
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        groups = list(params)
        if not groups:
            raise ValueError(
                "an optimiser was given no parameters; was model.parameters() used up before?"
            )
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with options where they differ from the defaults."""
        given = param_group["params"]
        if isinstance(given, set):
            raise TypeError("a group of parameters must have an order: a list, not a set")
        listed, names = _with_names([given] if isinstance(given, Tensor) else list(given))
        repeats = len({id(p) for p in listed}) < len(listed)
        if repeats:
            warnings.warn(
                "an optimiser's group has a parameter twice; it will be changed twice", stacklevel=3
            )
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for p in listed:
            if not isinstance(p, Tensor):
                raise TypeError(f"an optimiser takes tensors, got {type(p).__name__}")
            if not p.is_leaf and not p.retains_grad and not self.defaults.get("differentiable"):
                raise ValueError(
                    f"an optimiser takes leaves; a result (shape {list(p.shape)}) has no .grad"
                )
            if id(p) in known:
                raise ValueError(
                    f"a parameter of shape {list(p.shape)} is given twice; each belongs to one "
                    "group"
                )
        group = {**self.defaults, **param_group, "params": listed}
        if self.param_groups and ("param_names" in self.param_groups[0]) != (names is not None):
            raise ValueError("an optimiser's parameters have names in all groups or in none")
        self.param_groups.append(group if names is None else {**group, "param_names": names})
        self._repeats = self._repeats or repeats

    @staticmethod
    def having(parameter: Tensor) -> list[Optimizer]:
        """The optimisers that have a parameter, without those that only hand calls on to one.

        Args:
            parameter (Tensor): The parameter.
        """
        alive = [reference() for reference in list(Optimizer._every.values())]
        return [
            one
            for one in alive
            if one is not None
            and any(p is parameter for group in one.param_groups for p in group["params"])
        ]

    @staticmethod
    def exchange(old: Tensor, new: Tensor, convert: Callable[[Any], Any]) -> None:
        """Every optimiser that has a parameter gets another in its place; its state goes along.

        Args:
            old (Tensor): The parameter.
            new (Tensor): The other one.
            convert (callable): Gives a value of the state as it is for the other one.
        """
        for found in Optimizer.having(old):
            for group in found.param_groups:
                group["params"][:] = [new if p is old else p for p in group["params"]]
            if old in found.state:
                state = found.state.pop(old)
                found.state[new] = {name: convert(value) for name, value in state.items()}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    if type(p._node) is Leaf:
                        p._node.grad = None
                    elif p.grad is not None:
                        p.grad = None
                elif p.grad is not None:
                    with no_grad():
                        p.grad = p.grad.detach().zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient.

        `closure`, if given, computes the loss first; its result is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        moves = Moves()
        try:
            for group in self.param_groups:
                if group.get("capturable"):
                    check_capturable(group)
                if self.found_inf is not None:
                    self.prepare_unless(self.found_inf, group, moves)
                elif group.get("differentiable"):
                    self.prepare_on_tape(group, moves)
                else:
                    self.prepare(group, moves)
        except SparseOperandError as error:
            raise RushlightError(
                f"{type(self).__name__} does not support sparse gradients, please consider "
                "SparseAdam instead"
            ) from error
        moves.make()
        return loss

    def __init_subclass__(cls, **named: Any) -> None:
        """Also wrap `step` of a class that overrides it: hooks run around it."""
        super().__init_subclass__(**named)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def _add_to(self, when: str, hook: Callable[..., Any], first: bool = False) -> RemovableHandle:
        return add_to(self._hooks.setdefault(when, {}), hook, first)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step."""
        return self._add_to("step", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._add_to("stepped", hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` before the state is read."""
        return self._add_to("read", hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after the state is read.

        a result that is not None replaces it.
        """
        return self._add_to("was read", hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading.

        a result that is not None is loaded instead.
        """
        return self._add_to("load", hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return self._add_to("was loaded", hook, prepend)

    def prepare(self, group: Group, moves: Moves) -> None:
        """Collect the changes of a group and of its state without making them.

        See Note [Whole steps].
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how to step")

    def leaves_out(self) -> bool:
        """Whether `found_inf` decides on its step, and nothing else hears of one that is made."""
        return (
            type(self).step is Optimizer.step
            and "step" not in self.__dict__
            and not (_before_step or _after_step)
            and not any(self._hooks.get(when) for when in ("step", "stepped"))
            and all(map(self.can_leave_out, self.param_groups))
        )

    def can_leave_out(self, group: Group) -> bool:
        """Whether the group has `prepare_unless`."""
        return False

    def prepare_unless(self, found: Tensor, group: Group, moves: Moves) -> None:
        """Like `prepare`; where `found` is not 0, the writes keep the old values."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to leave out a step")

    def prepare_on_tape(self, group: Group, moves: Moves) -> None:
        """The step of a `differentiable` group."""
        raise RushlightError(f"{type(self).__name__} has no differentiable step")

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """The state and the groups, with indices in place of parameters."""
        for hook in list(self._hooks.get("read", {}).values()):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        state: dict[Any, Any] = {}
        counts: dict[int, int] = {}  # each is read once
        everything: dict[Any, Any] = self.state
        for key, kept in everything.items():
            if not isinstance(key, Tensor):  # entries under other keys than parameters
                state[key] = kept
            elif id(key) in numbers:
                whole = dict(kept)
                step: Any = whole.get("step")
                if type(kept) is ParameterState and _is_whole_number(step):
                    if id(step) not in counts:
                        counts[id(step)] = int(step)
                    whole["step"] = _count(counts[id(step)])
                state[numbers[id(key)]] = whole
        made = {"state": state, "param_groups": groups}
        for hook in list(self._hooks.get("was read", {}).values()):
            changed = hook(self, made)
            made = made if changed is None else changed
        return made

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state; parameters are matched by their order.

        After an error nothing has changed.
        """
        for hook in list(self._hooks.get("load", {}).values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        groups = state_dict["param_groups"]
        mine, given = ([len(g["params"]) for g in listed] for listed in (self.param_groups, groups))
        if mine != given:
            raise RushlightError(
                f"load_state_dict: the state has groups of {given} parameters, this optimiser of "
                f"{mine}; make it with the same parameters in the same order"
            )
        by_number: dict[Any, Tensor] = {}
        for own, group in zip(self.param_groups, groups, strict=True):
            by_number.update(zip(group["params"], own["params"], strict=True))
        fresh: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, kept in state_dict["state"].items():
            p: Any = by_number.get(number, number)
            if not isinstance(p, Tensor):
                fresh[p] = kept
                continue
            copied = {name: _copied(name, value, p) for name, value in kept.items()}
            fresh[p] = ParameterState(copied)
        pairs = zip(self.param_groups, groups, strict=True)
        options = [
            (own, {name: value for name, value in group.items() if name != "params"})
            for own, group in pairs
        ]
        finish_all(
            [], [(setattr, self, "state", fresh), *[(own.update, new) for own, new in options]]
        )
        for hook in list(self._hooks.get("was loaded", {}).values()):
            hook(self)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {i}"] if i else [f"Parameter Group {i}"]
            lines.extend(f"    {name}: {group[name]}" for name in sorted(group) if name != "params")
        return "\n".join([*lines, ")"])


def _with_names(given: list[Any]) -> tuple[list[Any], list[str] | None]:
    """Parameters, and their names where each comes with one."""
    named = [isinstance(p, tuple) for p in given]
    if not any(named):
        return given, None
    if not all(named):
        raise ValueError("an optimiser's parameters all come with names, or none does")
    return [p for _, p in given], [name for name, _ in given]


# Hooks of every optimiser: see `register_optimizer_step_pre_hook`.
_before_step: dict[int, Callable[..., Any]] = {}
_after_step: dict[int, Callable[..., Any]] = {}


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step with its hooks, unless it is called by a subclass's step."""

    @functools.wraps(step)
    def called(self: Any, *args: Any, **named: Any) -> Any:
        hooks = self.__dict__.get("_hooks")
        if not (hooks or _before_step or _after_step):
            return step(self, *args, **named)
        hooks = hooks or {}
        if self.__dict__.get("_stepping") or not (
            _before_step or _after_step or "step" in hooks or "stepped" in hooks
        ):
            return step(self, *args, **named)
        self._stepping = True
        try:
            for hook in [*_before_step.values(), *hooks.get("step", {}).values()]:
                given = hook(self, args, named)
                if given is None:
                    continue
                if not (isinstance(given, tuple) and len(given) == 2):
                    raise RuntimeError(
                        f"a hook before {type(self).__name__}.step gives None or (args, kwargs), "
                        f"got {given!r}"
                    )
                args, named = given
            out = step(self, *args, **named)
            for hook in [*hooks.get("stepped", {}).values(), *_after_step.values()]:
                hook(self, args, named)
            return out
        finally:
            self._stepping = False

    return called


Optimizer.step = _with_hooks(Optimizer.step)  # type: ignore[method-assign]


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimiser."""
    return add_to(_before_step, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimiser."""
    return add_to(_after_step, hook)


def _copied(name: str, value: Any, p: Tensor) -> Any:
    """A piece of state for parameter `p`: tensors in its dtype and device, the step a number."""
    if isinstance(value, list):
        return [_copied(name, part, p) for part in value]
    if not isinstance(value, Tensor):
        return value
    if name == "step":
        return int(value.item())
    with no_grad():
        moved = value.detach().to(
            device=p.device, dtype=p.dtype if value.is_floating_point() else None
        )
        return moved.clone()


def check_switches(name: str, defaults: Group) -> None:
    """Refuse the combinations of `fused`, `foreach` and `differentiable` that PyTorch refuses."""
    if defaults.get("fused") and defaults.get("differentiable"):
        raise RushlightError(f"{name}: `fused` does not support `differentiable`; leave one out")
    if defaults.get("fused") and defaults.get("foreach"):
        raise RushlightError(
            f"{name}: `fused` and `foreach` cannot be `True` together; here every step is fused"
        )


def check_capturable(group: Group) -> None:
    """Refuse a parameter on a device whose launches no graph can record."""
    for p in group["params"]:
        if not _captures(p.device.type):
            able = [name for name in names() if _captures(name)]
            raise AssertionError(
                f"If capturable=True, params and state_steps must be on supported devices: {able}; "
                f"one is on {p.device}"
            )


def _captures(name: str) -> bool:
    kind = device_kind(name)
    return kind is not None and kind.captures


def rate_of(group: Group) -> Any:
    """The learning rate as a number, or as a tensor where the step is on the tape."""
    lr = group["lr"]
    return (
        lr
        if lr.__class__ is float or (group.get("differentiable") and isinstance(lr, Tensor))
        else float(lr)
    )


def check_options(**options: Any) -> None:
    """Refuse options that are negative, or tensors of several numbers."""
    for name, value in options.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"Tensor {name} must be 1-element, got shape {list(value.shape)}")
        if not value >= 0:
            raise ValueError(f"an optimiser's {name} must be at least 0, got {value}")


# ---- names for optimisers that were written for PyTorch ----


class _Required:
    """The default of an option that must be given."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter = _Required()
ParamsT = _params_t = Iterable[Any]
StateDict = dict[str, Any]


def _use_grad_for_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of `step`: it records only where the optimiser is differentiable."""

    @functools.wraps(function)
    def stepping(self: Optimizer, *args: Any, **named: Any) -> Any:
        with enable_grad() if self.defaults.get("differentiable") else no_grad():
            return function(self, *args, **named)

    return stepping


def _get_value(x: Any) -> Any:
    """The number of a tensor with one element."""
    return x.item() if isinstance(x, Tensor) else x


def _dispatch_sqrt(x: Any) -> Any:
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def _default_to_fused_or_foreach(
    params: Any, differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Neither: every step here is fused."""
    return False, False


def _view_as_real(params: list[Any], *state_and_grads: list[Any]) -> None:
    """Replace complex tensors in lists by their pairs of real numbers, in place."""
    for i, p in enumerate(params):
        if p.is_complex():
            for held in (params, *state_and_grads):
                held[i] = complex_parts.view_as_real(held[i])
