"""The standard's Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight import fft as F
from rushlight.array_api.array import Array, check_kind, unwrap, wrap
from rushlight.core import dtypes
from rushlight.core.dtypes import DType

_NORMS = ("backward", "ortho", "forward")


def _one_dimensional(
    name: str, inner: Callable[..., Any], kinds: str, doc: str
) -> Callable[..., Array]:
    def function(
        x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Array:
        tensor = unwrap(x)
        check_kind(name, tensor.dtype, kinds)
        _check_norm(name, norm)
        return wrap(inner(tensor, n, axis, norm))

    return _named(function, name, doc)


def _plane(name: str, inner: Callable[..., Any], kinds: str, doc: str) -> Callable[..., Array]:
    def function(
        x: Any,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Array:
        tensor = unwrap(x)
        check_kind(name, tensor.dtype, kinds)
        _check_norm(name, norm)
        return wrap(inner(tensor, s, axes, norm))

    return _named(function, name, doc)


def _named(function: Callable[..., Array], name: str, doc: str) -> Callable[..., Array]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _check_norm(name: str, norm: str) -> None:
    if norm not in _NORMS:
        raise ValueError(f"{name}: norm is 'backward', 'ortho' or 'forward', got {norm!r}")


fft = _one_dimensional("fft", F.fft, "floating", "The transform along an axis.")
ifft = _one_dimensional("ifft", F.ifft, "floating", "The inverse transform along an axis.")
rfft = _one_dimensional(
    "rfft", F.rfft, "real floating", "The first half of a real array's transform along an axis."
)
irfft = _one_dimensional(
    "irfft", F.irfft, "floating", "The real array of which half a transform is given."
)
hfft = _one_dimensional(
    "hfft", F.hfft, "floating", "The real transform of an array that is its own conjugate reversed."
)
ihfft = _one_dimensional("ihfft", F.ihfft, "real floating", "The inverse of hfft.")
fftn = _plane("fftn", F.fftn, "floating", "The transform along several axes.")
ifftn = _plane("ifftn", F.ifftn, "floating", "The inverse transform along several axes.")
rfftn = _plane(
    "rfftn",
    F.rfftn,
    "real floating",
    "The first half of a real array's transform along several axes.",
)
irfftn = _plane(
    "irfftn",
    F.irfftn,
    "floating",
    "The real array of which half a transform along several axes is given.",
)


def _steps(
    name: str, inner: Callable[..., Any], n: int, d: float, dtype: DType | None, device: Any
) -> Array:
    dtype = dtype or dtypes.get_default()
    check_kind(name, dtype, "real floating")
    return wrap(inner(n, d, dtype=dtype, device=device))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Array:
    """The frequencies of fft's results."""
    return _steps("fftfreq", F.fftfreq, n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Array:
    """The frequencies of rfft's results."""
    return _steps("rfftfreq", F.rfftfreq, n, d, dtype, device)


def fftshift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """Frequency 0 in the middle."""
    tensor = unwrap(x)
    check_kind("fftshift", tensor.dtype, "floating")
    return wrap(F.fftshift(tensor, axes))


def ifftshift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """Frequency 0 first."""
    tensor = unwrap(x)
    check_kind("ifftshift", tensor.dtype, "floating")
    return wrap(F.ifftshift(tensor, axes))
