"""Modules in files that PyTorch reads, and PyTorch's modules in files.

# Note [Modules in files]
1. A pickled module is its class and its `__dict__`. A file gets the attributes of PyTorch's class:
   members once, in `_parameters`, `_buffers` and `_modules`; hooks, which have PyTorch's names and
   calls; and what a class derives and PyTorch's keeps (`_pytorch_attributes`).
2. When a module is read, what is derived here is taken out (`Module.__setstate__`), and tables that
   older versions of PyTorch lack are added.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from rushlight.nn.members import PLACES

_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def reduced(module: Any) -> Any:
    """The pickle of a module, with PyTorch's attributes; its own, if its class has a way."""
    made = module.__reduce_ex__(2)
    state = made[2] if isinstance(made, tuple) and len(made) > 2 else None
    if state.__class__ is not dict or not all(place in state for place in PLACES.values()):
        return made
    return *made[:2], _to_pytorch(module, state), *made[3:]


def _to_pytorch(module: Any, state: dict[str, Any]) -> dict[str, Any]:
    members = {place: dict(state[place]) for place in PLACES.values()}
    shown = {name: value for held in members.values() for name, value in held.items()}
    kept = {
        name: value for name, value in state.items() if not (name in shown and shown[name] is value)
    }
    return {**kept, **members, **module._pytorch_attributes()}


def completed(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a module, also of older versions of PyTorch."""
    own: dict[str, Any] = {"training": True, "_non_persistent_buffers_set": set()}
    own.update((name, OrderedDict()) for name in _HOOKS)
    own["_is_full_backward_hook"] = None
    return {**own, **state}
