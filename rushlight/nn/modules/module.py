"""Hooks of every module, present and future: PyTorch's `torch.nn.modules.module`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.nn.hooks import ON_CALL, ON_MEMBER, BeforeLoading as _WrappedHook  # noqa: F401
from rushlight.nn.members import BUFFER, MODULE, PARAMETER
from rushlight.nn.module import Module
from rushlight.nn.states import LoadedKeys as _IncompatibleKeys  # noqa: F401
from rushlight.tape.record.hook_tables import RemovableHandle, add_to

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

Hook = Callable[..., Any]
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"  # the key of what `get_extra_state` returns


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, args)` before each module's forward.

    a result that is not None replaces args.
    """
    return add_to(ON_CALL, ("before", (hook, False)))


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, result)` after each forward.

    a result that is not None replaces it.
    """
    return add_to(ON_CALL, ("after", (hook, with_kwargs, always_call)))


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, grad_output)` before each module's backward.

    It may return other gradients.
    """
    return add_to(ON_CALL, ("before backward", hook))


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` after each module's backward.

    It may return other gradients.
    """
    return add_to(ON_CALL, ("backward", hook))


register_module_backward_hook = register_module_full_backward_hook


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, parameter)` when a parameter is registered; a result replaces it."""
    return add_to(ON_MEMBER, (PARAMETER, hook))


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, buffer)` when a buffer is registered; a result replaces it."""
    return add_to(ON_MEMBER, (BUFFER, hook))


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, submodule)` when a submodule is registered; a result replaces it."""
    return add_to(ON_MEMBER, (MODULE, hook))
