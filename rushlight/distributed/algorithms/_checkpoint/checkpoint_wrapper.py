"""A wrapper whose forward is a checkpoint: its interior is rebuilt in backward."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rushlight.distributed.fsdp.wrap import CustomPolicy, wrap_below
from rushlight.nn.module import Module
from rushlight.utils.checkpoint import checkpoint

_INNER = "_checkpoint_wrapped_module"
_PREFIX = f"{_INNER}."


class CheckpointImpl(enum.Enum):
    """PyTorch's two ways, which are one here."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class CheckpointWrapper(Module):
    """A module that runs in a checkpoint; names in its state are the module's own.

    Args:
        mod (Module): The module.
        checkpoint_impl (CheckpointImpl): Has no effect: replay is one for both.
        checkpoint_fn (callable): In place of `checkpoint`.
        **checkpoint_fn_kwargs: Its arguments.
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__()
        self._modules[_INNER] = mod
        self.checkpoint_impl = checkpoint_impl
        self.checkpoint_fn = partial(checkpoint_fn or checkpoint, **checkpoint_fn_kwargs)
        self._register_state_dict_hook(_plain_names)
        self.register_load_state_dict_pre_hook(_wrapped_names)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _INNER:
                raise
            return getattr(self._modules[_INNER], name)

    def __getitem__(self, key: Any) -> Any:
        inside: Any = self._modules[_INNER]
        return inside[key]

    def named_parameters(self, *args: Any, **named: Any) -> Iterator[tuple[str, Any]]:
        """Parameters by the module's own names."""
        for name, parameter in super().named_parameters(*args, **named):
            yield name.replace(_PREFIX, ""), parameter

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.checkpoint_fn(self._modules[_INNER], *args, **named)


def _plain_names(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in list(state):
        if name.startswith(f"{prefix}{_PREFIX}"):
            state[prefix + name[len(prefix) + len(_PREFIX) :]] = state.pop(name)


def _wrapped_names(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in list(state):
        if name.startswith(prefix) and not name.startswith(f"{prefix}{_PREFIX}"):
            state[f"{prefix}{_PREFIX}{name[len(prefix) :]}"] = state.pop(name)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """The module in a `CheckpointWrapper`.

    Args:
        module (Module): The module.
        checkpoint_impl (CheckpointImpl): Has no effect: replay is one for both.
        checkpoint_fn (callable): In place of `checkpoint`.
        **checkpoint_fn_kwargs: Its arguments.
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda module: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Put the wrapper around the modules below a model that a function or a policy chooses.

    Args:
        model (Module): The model.
        checkpoint_wrapper_fn (callable): Wraps one.
        check_fn (callable): Whether to wrap a module.
        auto_wrap_policy (callable): In place of `check_fn`.
    """
    policy = CustomPolicy(check_fn) if auto_wrap_policy is None else auto_wrap_policy
    wrap_below(model, policy, checkpoint_wrapper_fn, set())
