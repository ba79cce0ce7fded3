"""Window functions, with PyTorch's signatures.

A window of M points is symmetric, or (`sym=False`) one period of a periodic window, for use with
Fourier transforms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rushlight.core.dtypes import DType, float32, float64, get_default
from rushlight.lazy import shown
from rushlight.ops.create import creation, like
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface.public import checked_kinds
from rushlight.tensor import Tensor

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def __dir__() -> list[str]:
    return shown(__name__)


class _Line:
    """Equally spaced points from which a window is computed.

    `few` is the window where none are needed.
    """

    def __init__(
        self,
        op: str,
        m: int,
        dtype: DType | None,
        layout: Any,
        device: Any,
        requires_grad: bool,
        one: bool = False,
    ) -> None:
        dtype = dtype or get_default()
        if m < 0:
            raise ValueError(f"{op}: the length must not be negative, got {m}")
        if layout is not creation.strided:
            raise ValueError(f"{op}: only the strided layout is supported, got {layout!r}")
        if dtype not in (float32, float64):
            raise ValueError(f"{op}: gives float32 or float64, got {dtype!r}")
        self.size = m
        self.named: dict[str, Any] = {
            "dtype": dtype,
            "device": device,
            "requires_grad": requires_grad,
        }
        self.few: Any = None
        if m == 0 or (one and m == 1):
            self.few = creation.ones(m, **self.named)

    def points(self, start: float, step: float) -> Any:
        return like.linspace(start, start + (self.size - 1) * step, self.size, **self.named)


@checked_kinds
def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|n - center| / tau)."""
    line = _Line("exponential", M, dtype, layout, device, requires_grad)
    if tau <= 0:
        raise ValueError(f"exponential: tau must be positive, got {tau}")
    if sym and center is not None:
        raise ValueError(
            "exponential: a symmetric window has its center in the middle; pass sym=False with "
            "center"
        )
    if line.few is not None:
        return line.few
    middle = (M if not sym and M > 1 else M - 1) / 2 if center is None else center
    return e.exp(e.neg(e.abs(line.points(-middle / tau, 1 / tau))))


@checked_kinds
def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """sin(pi (n + 1/2) / M): half a wave."""
    line = _Line("cosine", M, dtype, layout, device, requires_grad)
    if line.few is not None:
        return line.few
    step = math.pi / (M + 1 if not sym and M > 1 else M)
    return e.sin(line.points(0.5 * step, step))


@checked_kinds
def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-((n - middle) / std)^2 / 2)."""
    line = _Line("gaussian", M, dtype, layout, device, requires_grad)
    if std <= 0:
        raise ValueError(f"gaussian: std must be positive, got {std}")
    if line.few is not None:
        return line.few
    step = 1 / (std * math.sqrt(2))
    return e.exp(
        e.neg(e.square(line.points(-(M if not sym and M > 1 else M - 1) / 2 * step, step)))
    )


@checked_kinds
def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """i0(sqrt(beta^2 - k^2)) / i0(beta), k from -beta to beta, i0 a modified Bessel function."""
    line = _Line("kaiser", M, dtype, layout, device, requires_grad, one=True)
    if beta < 0:
        raise ValueError(f"kaiser: beta must not be negative, got {beta}")
    if line.few is not None:
        return line.few
    i0 = REGISTRY["i0"].function
    level = creation.full((), float(beta), dtype=line.named["dtype"], device=device)
    k = line.points(-float(beta), 2 * beta / (M if not sym else M - 1))
    # Rounding must not move a point beyond the end, where the root's argument is negative.
    under = e.relu(e.sub(e.square(level), e.square(k)))
    return e.div(i0(e.sqrt(under)), i0(level))


@checked_kinds
def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """1 - |2 n / (M - 1) - 1|: a triangle."""
    line = _Line("bartlett", M, dtype, layout, device, requires_grad, one=True)
    if line.few is not None:
        return line.few
    return e.sub(1, e.abs(line.points(-1, 2 / (M if not sym else M - 1))))


@checked_kinds
def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """a[0] - a[1] cos(x) + a[2] cos(2 x) - ..., x from 0 to 2 pi."""
    line = _Line("general_cosine", M, dtype, layout, device, requires_grad, one=True)
    if line.few is not None:
        return line.few
    if not isinstance(a, Iterable):
        raise TypeError(
            f"general_cosine: the coefficients a must be a list, got {type(a).__name__}"
        )
    weights = [float(w) for w in a]
    if not weights:
        raise ValueError("general_cosine: the coefficients a must not be empty")
    k = line.points(0, 2 * math.pi / (M if not sym else M - 1))
    total: Any = None
    for i, weight in enumerate(weights):
        part = e.mul(e.cos(e.mul(k, float(i))), -weight if i % 2 else weight)
        total = part if total is None else e.add(total, part)
    return total


@checked_kinds
def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - (1 - alpha) cos(x)."""
    named: Any = {
        "dtype": dtype,
        "layout": layout,
        "device": device,
        "requires_grad": requires_grad,
    }
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, **named)


@checked_kinds
def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.54 - 0.46 cos(x)."""
    named: Any = {
        "dtype": dtype,
        "layout": layout,
        "device": device,
        "requires_grad": requires_grad,
    }
    return general_hamming(M, sym=sym, **named)


@checked_kinds
def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """(1 - cos(x)) / 2."""
    named: Any = {
        "dtype": dtype,
        "layout": layout,
        "device": device,
        "requires_grad": requires_grad,
    }
    return general_hamming(M, alpha=0.5, sym=sym, **named)


@checked_kinds
def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 cos(x) + 0.08 cos(2 x)."""
    named: Any = {
        "dtype": dtype,
        "layout": layout,
        "device": device,
        "requires_grad": requires_grad,
    }
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **named)


@checked_kinds
def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = creation.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Four cosines with the least side lobes of their kind."""
    named: Any = {
        "dtype": dtype,
        "layout": layout,
        "device": device,
        "requires_grad": requires_grad,
    }
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **named)
