"""Which modules are wrapped: policies of `FullyShardedDataParallel`, and `enable_wrap`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from rushlight.nn.attention import MultiheadAttention
from rushlight.nn.containers import ModuleDict, ModuleList
from rushlight.nn.module import Module

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]

Chosen = dict[Module, dict[str, Any]]  # the modules to wrap, with their own arguments


class _Policy:
    """Chooses modules of a whole model at once."""

    def choose(self, root: Module, ignored: set[Module]) -> Chosen:
        """The modules to wrap."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to wrap")


class ModuleWrapPolicy(_Policy):
    """Wraps every module of some classes.

    Args:
        module_classes (iterable): The classes.
    """

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._module_classes = tuple(set(module_classes))

    def choose(self, root: Module, ignored: set[Module]) -> Chosen:
        return {
            module: {}
            for module in root.modules()
            if module not in ignored and isinstance(module, self._module_classes)
        }

    def __call__(self, module: Module, recurse: bool, *args: Any, **named: Any) -> bool:
        return recurse or isinstance(module, self._module_classes)

    def __repr__(self) -> str:
        return f"ModuleWrapPolicy({set(self._module_classes)})"


class CustomPolicy(_Policy):
    """Wraps the modules for which a function says so.

    Args:
        lambda_fn (callable): Gets a module; gives whether to wrap it, or arguments for it.
    """

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn

    def choose(self, root: Module, ignored: set[Module]) -> Chosen:
        made: Chosen = {}
        for module in root.modules():
            said = False if module in ignored else self._lambda_fn(module)
            if not isinstance(said, (dict, bool)):
                raise ValueError(
                    f"CustomPolicy: lambda_fn gives a bool or a dict of arguments, got {said!r}"
                )
            if said:
                made[module] = said if isinstance(said, dict) else {}
        return made


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Wraps every module."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Wraps the modules for which a function says so; give it by `functools.partial`."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: set[type[Module]],
) -> bool:
    """Wraps modules of some classes; give them by `functools.partial`."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


_LEAVES: set[type[Module]] = {MultiheadAttention}
_EXCLUDED: set[type[Module]] = {ModuleList, ModuleDict}


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Wraps modules with many elements that are in no wrapped one yet.

    Args:
        module (Module): The module.
        recurse (bool): Whether to look at the modules below, or to wrap this one.
        nonwrapped_numel (int): Elements of its parameters that are not wrapped.
        min_num_params (int): How many are enough.
        force_leaf_modules (set): Classes whose parts are not looked at.
        exclude_wrap_modules (set): Classes that are not wrapped.
    """
    is_large = nonwrapped_numel >= min_num_params
    if recurse:
        leaves = _LEAVES if force_leaf_modules is None else force_leaf_modules
        return is_large and not isinstance(module, tuple(leaves))
    excluded = _EXCLUDED if exclude_wrap_modules is None else exclude_wrap_modules
    return is_large and not isinstance(module, tuple(excluded))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = _EXCLUDED  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = _LEAVES  # type: ignore[attr-defined]


def _or_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable[..., bool]]
) -> bool:
    """Wraps what one of several policies wraps."""
    return any(
        policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)
        for policy in policies
    )


_module_wrap_policy = transformer_auto_wrap_policy


def wrap_below(
    root: Module,
    policy: Any,
    wrapper: Callable[..., Module],
    ignored: set[Module],
) -> None:
    """Put a wrapper around the modules below the root that a policy chooses, the lowest first."""
    if isinstance(policy, _Policy):
        chosen = policy.choose(root, ignored)
        _exchange(root, wrapper, {m: more for m, more in chosen.items() if m is not root}, set())
        return
    if not callable(policy):
        raise ValueError(f"auto_wrap_policy: a policy or a function is needed, got {policy!r}")
    _wrap_by_size(root, policy, wrapper, ignored)


def _exchange(at: Module, wrapper: Callable[..., Module], chosen: Chosen, seen: set[int]) -> None:
    for name, child in list(at._modules.items()):
        if child is None or id(child) in seen:
            continue
        seen.add(id(child))
        _exchange(child, wrapper, chosen, seen)
        if child in chosen:
            at._modules[name] = wrapper(child, **chosen[child])


def _wrap_by_size(
    at: Module, policy: Callable[..., bool], wrapper: Callable[..., Module], ignored: set[Module]
) -> int:
    """Wrap below a module; the elements that are in wrapped modules after that."""
    size = sum(p.numel() for p in at.parameters())
    if not policy(module=at, recurse=True, nonwrapped_numel=size):
        return 0
    wrapped = 0
    for name, child in list(at._modules.items()):
        if child is None or child in ignored:
            continue
        own = sum(p.numel() for p in child.parameters())
        inside = _wrap_by_size(child, policy, wrapper, ignored)
        if policy(module=child, recurse=False, nonwrapped_numel=own - inside):
            at._modules[name] = wrapper(child)
            inside = own
        wrapped += inside
    return wrapped


_WRAPPER: ContextVar[tuple[Any, dict[str, Any]] | None] = ContextVar("rushlight_wrap", default=None)


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """A block in which `wrap` puts a wrapper around modules.

    Args:
        wrapper_cls (class): The wrapper.
        **wrapper_kwargs: Its arguments.
    """
    token = _WRAPPER.set((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _WRAPPER.reset(token)


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """The module in the wrapper of the block around; as it is outside of such blocks.

    Args:
        module (Module): The module.
        **wrap_overrides: Arguments in place of the block's.
    """
    found = _WRAPPER.get()
    if found is None:
        return module
    wrapper, named = found
    made: Module = functools.partial(wrapper, **{**named, **wrap_overrides})(module)
    return made
