"""A module's state by name: reading it out and loading it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rushlight.core.errors import RushlightError
from rushlight.nn.members import BUFFER, PARAMETER
from rushlight.nn.parameter import Parameter, is_lazy
from rushlight.tape.state import no_grad
from rushlight.tensor import Tensor


class LoadedKeys(NamedTuple):
    """What a load that was not strict left out: names without a value, values without a name."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadedKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


EXTRA = "_extra_state"


def own_members(module: Any) -> Iterator[tuple[str, Tensor]]:
    """A module's own parameters and persistent buffers."""
    for kind in (PARAMETER, BUFFER):
        for name, value in module._members(kind):
            if value is not None and name not in module._non_persistent_buffers_set:
                yield name, value


def _has_extra(module: Any) -> bool:
    """Whether its class says what else is part of the state."""
    return any("get_extra_state" in kind.__dict__ for kind in type(module).__mro__[:-2])


def parts_of(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every module under the beginning of its names; tied ones under each of theirs."""
    for path, part in module.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False):
        yield f"{path}." if path else "", part


def read_state(module: Any, state: dict[str, Any], prefix: str, keep_vars: bool) -> dict[str, Any]:
    listed = list(parts_of(module, prefix))
    for dot, part in listed:
        for hook in list(part._state_hooks.get("read", {}).values()):
            hook(part, dot, keep_vars)
        for name, value in own_members(part):
            state[f"{dot}{name}"] = value if keep_vars or is_lazy(value) else value.detach()
        if _has_extra(part):
            state[f"{dot}{EXTRA}"] = part.get_extra_state()
    for dot, part in reversed(listed):
        for hook in list(part._state_hooks.get("was read", {}).values()):
            changed = hook(part, state, dot, {})
            state = state if changed is None else changed
    return state


def load_state(module: Any, given: Mapping[str, Any], strict: bool, assign: bool) -> LoadedKeys:
    state = dict(given)
    missing: list[str] = []
    unexpected: list[str] = []
    problems: list[str] = []
    listed = list(parts_of(module))
    for dot, part in listed:
        for hook in list(part._state_hooks.get("load", {}).values()):
            hook(part, state, dot, {}, strict, missing, unexpected, problems)
    own = {f"{dot}{name}": value for dot, part in listed for name, value in own_members(part)}
    extra = {f"{dot}{EXTRA}": part for dot, part in listed if _has_extra(part)}
    missing += [name for name in (*own, *extra) if name not in state]
    unexpected += [name for name in state if name not in own and name not in extra]
    for name, value in own.items():
        problems.extend(_misfit(name, value, state[name]) if name in state else ())
    loaded = LoadedKeys(missing, unexpected)
    # Nothing is changed by a state that does not fit, unless a hook may yet say that it does.
    fits = not strict or not (missing or unexpected) or any(p._state_hooks.get("was loaded") for _, p in listed)
    if fits and not problems:
        with no_grad():
            for name, value in own.items():
                if name in state:
                    _store(module, name, value, state[name], assign)
        for name, part in extra.items():
            if name in state:
                part.set_extra_state(state[name])
        for _, part in reversed(listed):
            for hook in list(part._state_hooks.get("was loaded", {}).values()):
                hook(part, loaded)
    if strict and unexpected:
        problems.append(f"unexpected keys: {', '.join(unexpected)}")
    if strict and missing:
        problems.append(f"missing keys: {', '.join(missing)}")
    if problems:
        lines = "".join(f"\n    {problem}" for problem in problems)
        fix = "\n  strict=False loads what fits by name" if strict and (missing or unexpected) else ""
        raise RushlightError(f"load_state_dict: the state does not fit {type(module).__name__}:{lines}{fix}")
    return loaded


def _misfit(name: str, value: Tensor, given: Any) -> Iterator[str]:
    if not isinstance(given, Tensor):
        yield f"{name}: a tensor is needed, got {type(given).__name__}"
    elif is_lazy(value) and is_lazy(given):
        return  # neither has a shape yet
    elif given.shape != value.shape:
        yield f"{name}: shape {list(given.shape)} in the state, {list(value.shape)} in the module"


def _store(module: Any, name: str, value: Tensor, given: Tensor, assign: bool) -> None:
    if not assign:
        if not is_lazy(value):
            value.copy_(given)
        return
    path, _, last = name.rpartition(".")
    holder = module.get_submodule(path)
    if isinstance(value, Parameter) and not isinstance(given, Parameter):
        given = Parameter(given, value.requires_grad)
    setattr(holder, last, given)
