"""Reading and loading a module's state by name.

# Note [States]
1. The state is an OrderedDict of tensors; its `_metadata` has, by path, the version of each
   module's class.
2. A class may override how its part is read (`_save_to_state_dict`) and loaded
   (`_load_from_state_dict`). `state_dict` is called on each child, so that a class may override it
   as a whole.
3. A load that fails changes nothing. All values are checked, moved to their devices and cast first,
   then stored. Where user code takes part (a class that loads for itself, extra state, hooks after
   loading), the old values are copied first, and restored after an error. A class that loads for
   itself is called in its turn: its children see its changes to the state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rushlight.compat.torch_function import part_of
from rushlight.core.errors import RushlightError
from rushlight.nn.members import BUFFER, MODULE, PARAMETER
from rushlight.nn.parameter import Parameter, is_lazy
from rushlight.ops.view.inplace import Write, finish_all, prepare_copy
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


class LoadedKeys(NamedTuple):
    """Names that a load with strict=False left out: missing and unexpected ones."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


EXTRA = "_extra_state"


def own_members(module: Any) -> Iterator[tuple[str, Tensor]]:
    """A module's own parameters and persistent buffers."""
    for kind in (PARAMETER, BUFFER):
        for name, value in module._members(kind):
            if value is not None and name not in module._non_persistent_buffers_set:
                yield name, value


def _defines(module: Any, name: str) -> bool:
    """Whether its class overrides the method of Module."""
    return any(
        name in kind.__dict__
        for kind in type(module).__mro__
        if kind.__module__ != "rushlight.nn.module"
    )


def _children(module: Any) -> list[tuple[str, Any]]:
    return [(name, child) for name, child in module._members(MODULE) if child is not None]


# ---- reading ----


def _empty_state() -> Any:
    made: Any = OrderedDict()
    made._metadata = OrderedDict()
    return made


def read_state(
    module: Any, state: dict[str, Any] | None, prefix: str, keep_vars: bool
) -> dict[str, Any]:
    given: Any = _empty_state() if state is None else state
    noted = {"version": module._version}
    if hasattr(given, "_metadata"):
        given._metadata[prefix[:-1]] = noted
    for hook in list(module._state_dict_pre_hooks.values()):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(given, prefix, keep_vars)
    for name, child in _children(module):
        child.state_dict(destination=given, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in list(module._state_dict_hooks.values()):
        changed = hook(module, given, prefix, noted)
        given = given if changed is None else changed
    return given


def save_own(module: Any, state: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """A module's own part of its state."""
    for name, value in own_members(module):
        state[f"{prefix}{name}"] = value if keep_vars or is_lazy(value) else value.detach()
    if _defines(module, "get_extra_state"):
        state[f"{prefix}{EXTRA}"] = module.get_extra_state()


# ---- loading ----


class Load:
    """One load of a state."""

    def __init__(self, metadata: Mapping[str, Any], assign: bool) -> None:
        self.metadata = metadata
        self.assign = assign
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.problems: list[str] = []
        # Values to store, and errors to raise, when all are checked.
        self.later: list[tuple[Any, ...]] = []

    def noted_of(self, prefix: str) -> dict[str, Any]:
        noted = dict(self.metadata.get(prefix[:-1], {}))
        if self.assign:
            noted["assign_to_params_buffers"] = True
        return noted

    def check(self, module: Any, state: dict[str, Any], prefix: str) -> None:
        """Check the state for a module and all below it, without changing anything."""
        found = _own_part(module, state, prefix, self.noted_of(prefix), self)
        self.later.append(("own", module, found))
        for name, child in _children(module):
            self.check(child, _below(state, f"{prefix}{name}."), f"{prefix}{name}.")
        self.later.append(("hooks", module))

    def finish(self) -> None:
        """Store everything: the values, then the parts with user code."""
        owns = [(step[1], step[2]) for step in self.later if step[0] == "own"]
        store_values(owns, self.assign)
        for module, found in owns:
            for name, _, given in found:
                if name == EXTRA:
                    module.set_extra_state(given)
        for step in self.later:
            if step[0] == "hooks":
                self.tell(step[1])

    def load(self, module: Any, state: dict[str, Any], prefix: str) -> None:
        """Load each module in its turn: see Note [States] 3."""
        noted = self.noted_of(prefix)
        module._load_from_state_dict(
            state, prefix, noted, True, self.missing, self.unexpected, self.problems
        )
        for name, child in _children(module):
            self.load(child, _below(state, f"{prefix}{name}."), f"{prefix}{name}.")
        self.tell(module)

    def tell(self, module: Any) -> None:
        for hook in list(module._load_state_dict_post_hooks.values()):
            if hook(module, LoadedKeys(self.missing, self.unexpected)) is not None:
                raise AssertionError(
                    "a hook after load_state_dict gives nothing: it may change the lists of keys "
                    "in place"
                )


def _below(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    """A child's part of a state; changes by its hooks are not visible to others."""
    return OrderedDict((key, value) for key, value in state.items() if key.startswith(prefix))


def load_state(module: Any, given: Mapping[str, Any], strict: bool, assign: bool) -> LoadedKeys:
    if not isinstance(given, Mapping):
        raise TypeError(
            f"load_state_dict: a dict of tensors by name is needed, got {type(given).__name__}"
        )
    state: Any = OrderedDict(given)
    metadata = getattr(given, "_metadata", None) or {}
    if getattr(given, "_metadata", None) is not None:
        state._metadata = metadata
    load = Load(metadata, assign)
    parts = [part for _, part in module.named_modules(remove_duplicate=False)]
    own_way = any(_defines(part, "_load_from_state_dict") for part in parts)
    hooked = any(part._load_state_dict_post_hooks for part in parts)
    careful = own_way or hooked or any(_defines(part, "set_extra_state") for part in parts)
    before = _Before(parts) if careful else None
    try:
        if own_way:
            load.load(module, state, "")
        else:
            load.check(module, state, "")
            # Nothing of a state that does not fit is stored, unless a hook may still accept it.
            if not load.problems and (
                hooked or not strict or not (load.missing or load.unexpected)
            ):
                load.finish()
        _raise_problems(module, load, strict)
    except BaseException:
        if before is not None:
            before.put_back()
        raise
    return LoadedKeys(load.missing, load.unexpected)


def _raise_problems(module: Any, load: Load, strict: bool) -> None:
    problems = load.problems
    if strict and load.unexpected:
        problems.append(f"unexpected keys: {', '.join(load.unexpected)}")
    if strict and load.missing:
        problems.append(f"missing keys: {', '.join(load.missing)}")
    if problems:
        lines = "".join(f"\n    {problem}" for problem in problems)
        fix = (
            "\n  strict=False loads what fits by name"
            if strict and (load.missing or load.unexpected)
            else ""
        )
        raise RushlightError(
            f"load_state_dict: the state does not fit {type(module).__name__}:{lines}{fix}"
        )


class _Before:
    """The values of modules and their extra states, for restoring."""

    def __init__(self, modules: list[Any]) -> None:
        self.members = [
            (module, kind, name, value)
            for module in modules
            for kind in (PARAMETER, BUFFER)
            for name, value in module._members(kind)
        ]
        values = {
            id(v): v
            for *_, v in self.members
            if v is not None and not is_lazy(v) and not v.is_sparse
        }
        with no_grad():
            self.writes = [prepare_copy(v.detach(), v.detach().clone()) for v in values.values()]
        both = ("get_extra_state", "set_extra_state")
        extra = [module for module in modules if all(_defines(module, name) for name in both)]
        self.extra = [(module, module.get_extra_state()) for module in extra]

    def put_back(self) -> None:
        for module, kind, name, value in self.members:
            if dict(module._members(kind)).get(name) is not value:
                setattr(module, name, value)
        finish_all(self.writes)
        for module, state in self.extra:
            module.set_extra_state(state)


Found = list[tuple[str, Any, Any]]  # a member's name, the member and its new value


def _own_part(
    module: Any, state: dict[str, Any], prefix: str, noted: dict[str, Any], load: Any
) -> Found:
    """A state's values for a module's own members; errors are noted in `load`."""
    if hasattr(module, "_complete_state"):
        module._complete_state(state, prefix, noted.get("version"))
    for hook in list(module._load_state_dict_pre_hooks.values()):
        hook(state, prefix, noted, True, load.missing, load.unexpected, load.problems)
    found: Found = []
    own = dict(own_members(module))
    for name, value in own.items():
        key = f"{prefix}{name}"
        if key not in state:
            load.missing.append(key)
            continue
        given = state[key]
        misfit = _misfit(key, value, given)
        if misfit:
            load.problems.append(misfit)
        else:
            found.append((name, value, given[0] if _was_one(value, given) else given))
    extra = f"{prefix}{EXTRA}"
    if _defines(module, "set_extra_state"):
        if extra in state:
            found.append((EXTRA, None, state[extra]))
        else:
            load.missing.append(extra)
    elif extra in state:
        load.unexpected.append(extra)
    for key in state:
        if key.startswith(prefix) and key != extra:
            first, dot, _ = key[len(prefix) :].partition(".")
            if first not in (module._modules if dot else own):
                load.unexpected.append(key)
    return found


def load_own(
    module: Any,
    state: dict[str, Any],
    prefix: str,
    noted: dict[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    problems: list[str],
) -> None:
    """Load a module's own part of a state."""
    load = Load({}, bool(noted.get("assign_to_params_buffers", False)))
    load.missing, load.unexpected, load.problems = (
        ([], [], problems) if not strict else (missing, unexpected, problems)
    )
    found = _own_part(module, state, prefix, noted, load)
    store_values([(module, found)], load.assign)
    for name, _, given in found:
        if name == EXTRA:
            module.set_extra_state(given)


def _was_one(value: Any, given: Any) -> bool:
    """Very old states have one-element lists in place of numbers."""
    return (
        not is_lazy(value) and not is_lazy(given) and value.ndim == 0 and tuple(given.shape) == (1,)
    )


def _misfit(name: str, value: Any, given: Any) -> str | None:
    if not isinstance(given, Tensor):
        return f"{name}: a tensor is needed, got {type(given).__name__}"
    if is_lazy(value) and is_lazy(given):
        return None  # neither has a shape yet
    if given.shape != value.shape and not _was_one(value, given):
        return f"{name}: shape {list(given.shape)} in the state, {list(value.shape)} in the module"
    return None


def store_values(owns: list[tuple[Any, Found]], assign: bool) -> None:
    """Store the values found for each of some modules: all, or none where one fails."""
    writes: list[Write] = []
    acts: list[tuple[Any, ...]] = []
    with no_grad():
        for module, found in owns:
            for name, value, given in found:
                if value is None:
                    continue  # extra state
                if assign:
                    acts += _assignment(module, name, value, given)
                elif not is_lazy(value):
                    moved = given.detach().to(device=value.device)
                    if value.is_sparse or value.is_sparse_csr:
                        acts.append((value._hold, value._fitted(moved)))
                    elif part_of(value) is not value:
                        writes.append(prepare_copy(part_of(value).detach(), value._part_in(moved)))
                    else:
                        writes.append(prepare_copy(value.detach(), moved))
        finish_all(writes, acts)


def _assignment(module: Any, name: str, value: Tensor, given: Tensor) -> list[tuple[Any, ...]]:
    """The calls that replace a member by a given tensor."""
    if not isinstance(value, Parameter):
        return [(setattr, module, name, given)]
    if isinstance(given, Parameter):
        return [(given.requires_grad_, value.requires_grad), (setattr, module, name, given)]
    return [(setattr, module, name, Parameter(given, value.requires_grad))]
