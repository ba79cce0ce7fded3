"""Filling tensors in place with the usual starting values. Each returns its tensor; nothing is recorded."""

from __future__ import annotations

import math

from rushlight.core.errors import ShapeError
from rushlight.ops import decompositions, elementwise as e, random, reshaping
from rushlight.ops.random import Generator
from rushlight.tape.state import no_grad
from rushlight.tensor import Tensor


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers in [a, b)."""
    drawn = random.rand(tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=generator)
    return tensor.copy_(drawn if (a, b) == (0, 1) else e.add(e.mul(drawn, float(b - a)), float(a)))


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers."""
    drawn = random.randn(tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=generator)
    return tensor.copy_(drawn if (mean, std) == (0, 1) else e.add(e.mul(drawn, float(std)), float(mean)))


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 1.0)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps a layer's variance through a nonlinearity."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope**2))
    gains = {"linear": 1.0, "conv2d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
    if nonlinearity not in gains:
        raise ValueError(f"calculate_gain: knows {', '.join([*gains, 'leaky_relu'])}, got {nonlinearity!r}")
    return gains[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs reach an output, and how many outputs an input: (out, in, *window) as weights are laid out."""
    if tensor.ndim < 2:
        raise ShapeError(f"init: fans need a weight of at least 2 dimensions, got shape {list(tensor.shape)}")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"init: mode is 'fan_in' or 'fan_out', got {mode!r}")
    return fans(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    bound = gain * math.sqrt(6 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Rows or columns, the fewer of them, orthonormal times gain; later dimensions count as columns."""
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: at least 2 dimensions are needed, got shape {list(tensor.shape)}")
    if not tensor.numel():
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = random.randn((rows, columns), dtype=tensor.dtype, device=tensor.device, generator=generator)
    q, r = decompositions.linalg_qr(drawn.mT if rows < columns else drawn)
    # With R's diagonal positive every orthogonal matrix is as likely as any other.
    q = e.mul(q, e.sign(reshaping.diagonal(r)))
    q = q.mT if rows < columns else q
    return tensor.copy_(e.mul(q, float(gain)).reshape(tensor.shape))
