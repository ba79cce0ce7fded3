"""Discrete Fourier transforms under PyTorch's names.

Owns: the names without their prefix.
Takes: tensors. Gives: tensors.
Never: reaches below ops/.
"""

from __future__ import annotations

from typing import Any

from rushlight.ops.registry import REGISTRY as _REGISTRY

_NAMED = {
    name.removeprefix("fft_"): entry.function
    for name, entry in _REGISTRY.items()
    if name.startswith("fft_")
}
__all__ = sorted(_NAMED)
globals().update(_NAMED)


def __getattr__(
    name: str,
) -> Any:  # for type checkers, which cannot resolve names from the registry
    raise AttributeError(f"rushlight.fft has no {name!r}")
