"""PyTorch's `special`: ops under their mathematical names."""

from __future__ import annotations

from rushlight.ops.nn import softmax as _normalise
from rushlight.ops.registry import REGISTRY as _REGISTRY

_NAMED = {name: entry.function for entry in _REGISTRY.values() for name in entry.special.split()}
globals().update(_NAMED)
softmax, log_softmax = _normalise.softmax, _normalise.log_softmax
__all__ = sorted([*_NAMED, "log_softmax", "softmax"])


def __getattr__(
    name: str,
) -> object:  # for type checkers, which cannot resolve names from the registry
    raise AttributeError(f"rushlight.special has no {name!r}")
