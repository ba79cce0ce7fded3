"""Discrete Fourier transforms under PyTorch's names.

Owns: the names without their prefix.
Takes: tensors. Gives: tensors.
Never: reaches below ops/.
"""

from __future__ import annotations

from typing import Any

from rushlight.ops.registry import REGISTRY as _REGISTRY

_NAMES = (
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
)
__all__ = list(_NAMES)

globals().update({name: _REGISTRY[f"fft_{name}"].function for name in _NAMES})


def __getattr__(
    name: str,
) -> Any:  # for type checkers, which do not see the names from the registry
    raise AttributeError(f"rushlight.fft has no {name!r}")
