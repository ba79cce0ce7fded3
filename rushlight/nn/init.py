"""Initial values, written into tensors in place. Each function returns its tensor.

Nothing is recorded.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import float32
from rushlight.core.errors import ShapeError
from rushlight.lazy import shown
from rushlight.ops.create import creation
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random import random
from rushlight.ops.random.random import Generator, drawing
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface.public import checked_kinds
from rushlight.ops.view import reshaping
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]


def __dir__() -> list[str]:
    return shown(__name__)


@no_grad()
@checked_kinds
def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform numbers in [a, b).

    Args:
        a: The lower end.
        b: The upper end, which is excluded.
    """
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
@checked_kinds
def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal numbers.

    Args:
        mean: The mean.
        std: The standard deviation.
    """
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
@checked_kinds
def constant_(tensor: Tensor, val: float) -> Tensor:
    return tensor.fill_(val)


@checked_kinds
def zeros_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 0.0)


@checked_kinds
def ones_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 1.0)


@checked_kinds
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps a layer's variance through a nonlinearity."""
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"calculate_gain: the slope of leaky_relu is a number, got {param!r}")
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope**2))
    gains = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
    gains |= {f"conv{way}{n}d": 1.0 for way in ("", "_transpose") for n in (1, 2, 3)}
    if nonlinearity not in gains:
        raise ValueError(
            f"calculate_gain: knows {', '.join([*gains, 'leaky_relu'])}, got {nonlinearity!r}"
        )
    return gains[nonlinearity]


@checked_kinds
def fans(tensor: Tensor) -> tuple[int, int]:
    """The number of inputs of an output and of outputs of an input.

    Weights are (out, in, *window).
    """
    if tensor.ndim < 2:
        raise ShapeError(
            f"init: fans need a weight of at least 2 dimensions, got shape {list(tensor.shape)}"
        )
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


_calculate_fan_in_and_fan_out = fans  # a private name of PyTorch that models use


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """A private name of PyTorch that models use: the fan of a mode, in any case."""
    return _fan(tensor, mode.lower())


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"init: mode is 'fan_in' or 'fan_out', got {mode!r}")
    return fans(tensor)[mode == "fan_out"]


@checked_kinds
def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    bound = gain * math.sqrt(6 / max(sum(fans(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


@checked_kinds
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    return normal_(tensor, 0.0, gain * math.sqrt(2 / max(sum(fans(tensor)), 1)), generator)


@checked_kinds
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3 / max(_fan(tensor, mode), 1))
    return uniform_(tensor, -bound, bound, generator)


@checked_kinds
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    return normal_(
        tensor,
        0.0,
        calculate_gain(nonlinearity, a) / math.sqrt(max(_fan(tensor, mode), 1)),
        generator,
    )


@no_grad()
@drawing
@checked_kinds
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Orthonormal rows or columns (the fewer of them) times gain.

    Dimensions after the first are columns.
    """
    if tensor.ndim < 2:
        raise ShapeError(
            f"orthogonal_: at least 2 dimensions are needed, got shape {list(tensor.shape)}"
        )
    if not tensor.numel():
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = random.randn(
        (rows, columns), dtype=tensor.dtype, device=tensor.device, generator=generator
    )
    q, r = REGISTRY["linalg_qr"].function(drawn.mT if rows < columns else drawn)
    # With a positive diagonal of R the orthogonal matrix is uniformly distributed.
    q = e.mul(q, e.sign(reshaping.diagonal(r)))
    q = q.mT if rows < columns else q
    return tensor.copy_(e.mul(q, float(gain)).reshape(tensor.shape))


@no_grad()
@drawing
@checked_kinds
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers between a and b, by the inverse distribution function of uniform numbers.

    Args:
        mean: The mean of the distribution that is cut.
        std: Its standard deviation.
        a: The least value.
        b: The largest value.
    """
    if not std > 0:
        raise ValueError(f"trunc_normal_: std must be positive, got {std!r}")
    low, high = (math.erf((bound - mean) / (std * math.sqrt(2))) for bound in (a, b))
    wide = tensor.dtype if tensor.dtype.itemsize > 2 else float32
    drawn = random.rand(tensor.shape, dtype=wide, device=tensor.device, generator=generator)
    normal = e.mul(e.add(e.mul(drawn, high - low), low).erfinv(), std * math.sqrt(2))
    return tensor.copy_(e.add(normal, float(mean)).clamp(min=a, max=b))


@no_grad()
@checked_kinds
def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_: a matrix is needed, got {tensor._spec!r}")
    return tensor.copy_(creation.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@no_grad()
@checked_kinds
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight that copies each channel of each group."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(
            f"dirac_: a weight of 3, 4 or 5 dimensions is needed, got {tensor._spec!r}"
        )
    out, inside = tensor.shape[:2]
    if groups < 1 or out % groups:
        raise ValueError(
            f"dirac_: {out} output channels of {tensor._spec!r} do not divide by {groups} groups"
        )
    centre = tuple(n // 2 for n in tensor.shape[2:])
    passing = creation.eye(out // groups, inside, dtype=tensor.dtype, device=tensor.device)
    made = creation.zeros_like(tensor)
    made[(slice(None), slice(None), *centre)] = passing.repeat(groups, 1)
    return tensor.copy_(made)


@no_grad()
@drawing
@checked_kinds
def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None
) -> Tensor:
    """Normal numbers; a share of each column of a matrix, chosen at random, is zero.

    Args:
        std: The standard deviation of the elements that are not zero.
    """
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: a matrix is needed, got {tensor._spec!r}")
    zeros = math.ceil(sparsity * tensor.shape[0])
    drawn = normal_(creation.zeros_like(tensor), 0.0, std, generator)
    if zeros:
        order = random.rand(tensor.shape, device=tensor.device, generator=generator).argsort(0)
        drawn = drawn.scatter(0, order[:zeros], 0.0)
    return tensor.copy_(drawn)


def _older(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's deprecated name without the underscore."""

    def called(*args: Any, **named: Any) -> Any:
        warnings.warn(
            f"nn.init.{name} is an older name; use nn.init.{name}_", FutureWarning, stacklevel=2
        )
        return function(*args, **named)

    called.__name__ = called.__qualname__ = name
    called.__doc__ = f"{name}_, by its older name.\n\n{inspect.getdoc(function)}"
    return called


uniform = _older("uniform", uniform_)
normal = _older("normal", normal_)
constant = _older("constant", constant_)
eye = _older("eye", eye_)
dirac = _older("dirac", dirac_)
xavier_uniform = _older("xavier_uniform", xavier_uniform_)
xavier_normal = _older("xavier_normal", xavier_normal_)
kaiming_uniform = _older("kaiming_uniform", kaiming_uniform_)
kaiming_normal = _older("kaiming_normal", kaiming_normal_)
orthogonal = _older("orthogonal", orthogonal_)
sparse = _older("sparse", sparse_)
