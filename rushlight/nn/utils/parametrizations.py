"""Ready parametrizations: weight norm and spectral norm."""

from __future__ import annotations

from typing import Any

from rushlight.core.shapes import wrap_dim
from rushlight.lazy import shown
from rushlight.nn import functional
from rushlight.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from rushlight.nn.module import Module
from rushlight.nn.utils.orthogonal import orthogonal
from rushlight.nn.utils.parametrize import register_parametrization
from rushlight.ops.linalg import products
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random import random
from rushlight.ops.reduce.statistics import vector_norm
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def __dir__() -> list[str]:
    return shown(__name__)


def length_except(v: Tensor, dim: int | None) -> Any:
    """The norm of each slice along a dimension, or of everything (-1, None), for broadcasting."""
    if dim is None or dim == -1:
        return vector_norm(v)
    others = [d for d in range(v.ndim) if d != wrap_dim(dim, v.ndim, "weight_norm")]
    return vector_norm(v, 2, others, True)


class _WeightNorm(Module):
    """A weight as g v / |v|."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return e.mul(weight_v, e.div(weight_g, length_except(weight_v, self.dim)))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return length_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """A weight learned as norm (`original0`) and direction (`original1`), by slices."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(_: Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """States that `nn.utils.weight_norm` wrote name the two tensors differently."""
        for older, i in (("g", 0), ("v", 1)):
            if f"{prefix}{name}_{older}" in state:
                state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(
                    f"{prefix}{name}_{older}"
                )

    module.register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    """A weight over its largest singular value, estimated by power iteration."""

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(
                f"spectral_norm: n_power_iterations must be positive, got {n_power_iterations}"
            )
        self.dim = wrap_dim(dim, weight.ndim, "spectral_norm")
        self.eps = eps
        self.n_power_iterations = n_power_iterations
        if weight.ndim > 1:
            matrix = self.matrix_of(weight.detach())
            for side, count in zip(("_u", "_v"), matrix.shape, strict=True):
                drawn = random.randn(count, dtype=weight.dtype, device=weight.device)
                self.register_buffer(side, functional.normalize(drawn, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def matrix_of(self, weight: Any) -> Any:
        if self.dim:
            weight = weight.permute(self.dim, *(d for d in range(weight.ndim) if d != self.dim))
        return weight.flatten(1)

    @no_grad()
    def _iterate(self, matrix: Any, times: int) -> None:
        for _ in range(times):
            self._u.copy_(functional.normalize(products.mv(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(
                functional.normalize(products.mv(matrix.mH, self._u), dim=0, eps=self.eps)
            )

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return functional.normalize(weight, dim=0, eps=self.eps)
        matrix = self.matrix_of(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        # Copies, because a second forward changes the vectors before backward has read them.
        largest = products.vdot(self._u.clone(), products.mv(matrix, self._v.clone()))
        return e.div(weight, largest)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """A weight divided by its largest singular value; power iteration continues in training."""
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(
            f"{type(module).__name__} has no parameter or buffer {name!r} to parametrise"
        )
    return register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, dim, eps)
    )
