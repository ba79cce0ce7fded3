"""Parametrizations to choose from: a weight of given length and direction, a weight whose largest factor is 1."""

from __future__ import annotations

from typing import Any

from rushlight import linalg
from rushlight.core.shapes import wrap_dim
from rushlight.nn import functional
from rushlight.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from rushlight.nn.module import Module
from rushlight.nn.utils.orthogonal import orthogonal
from rushlight.nn.utils.parametrize import register_parametrization
from rushlight.ops import creation, elementwise as e, products, random, views
from rushlight.ops.decompositions import geqrf
from rushlight.ops.statistics import vector_norm
from rushlight.tape.state import no_grad
from rushlight.tensor import Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def length_except(v: Tensor, dim: int | None) -> Any:
    """The length of each slice along a dimension, or of everything (-1 or None), to be broadcast over `v`."""
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
    """A weight learned as its length (`original0`) and direction (`original1`), by slices along a dimension."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(_: Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """States that `nn.utils.weight_norm` wrote have other names for the two parts."""
        for older, i in (("g", 0), ("v", 1)):
            if f"{prefix}{name}_{older}" in state:
                state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(f"{prefix}{name}_{older}")

    module.register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    """A weight over its largest singular value, which power iteration follows."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: n_power_iterations must be positive, got {n_power_iterations}")
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
            self._v.copy_(functional.normalize(products.mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return functional.normalize(weight, dim=0, eps=self.eps)
        matrix = self.matrix_of(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        # Copies, because a second forward moves the vectors on before backward has read them.
        largest = products.vdot(self._u.clone(), products.mv(matrix, self._v.clone()))
        return e.div(weight, largest)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """A weight divided by its largest singular value; power iteration goes on in training."""
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {name!r} to parametrise")
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """Matrices with orthonormal columns (or rows, where there are more columns), of as many free numbers.

    `matrix_exp` and `cayley` take a skew matrix, made of the lower triangle, to an orthogonal one; `householder` takes a
    product of reflections. With a `base`, what they give is a change of it.
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.dtype.kind == "c" and orthogonal_map == "householder":
            raise ValueError("orthogonal: the householder map is of real matrices; use matrix_exp or cayley")
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        self.register_buffer("base", None)
        self.changes_base = use_trivialization

    def forward(self, X: Any) -> Any:
        n, k = X.shape[-2:]
        wide = n < k
        x = X.mT if wide else X
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            below = x.tril(-1)
            factors = e.div(2.0, e.add((below * below).sum(-2), 1.0))
            q = linalg.householder_product(below, factors) * x.detach().diagonal(0, -2, -1).sign().unsqueeze(-2)
        else:
            lower = x.tril()
            if n != k:
                lower = functional.pad(lower, (0, n - k))
            skew = lower - lower.mH
            q = linalg.matrix_exp(skew) if self.orthogonal_map == "matrix_exp" else _cayley(skew)
            q = q[..., :k]
        if self.base is not None:
            q = self.base @ q
        return q.mT if wide else q

    @no_grad()
    def right_inverse(self, Q: Any) -> Any:
        if tuple(Q.shape) != self.shape:
            raise ValueError(f"orthogonal: matrices of shape {list(self.shape)} are needed, got {list(Q.shape)}")
        wide = Q.shape[-2] < Q.shape[-1]
        q = Q.mT if wide else Q
        n, k = q.shape[-2:]
        if not self.changes_base:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    f"orthogonal: without use_trivialization a weight cannot be assigned to through {self.orthogonal_map}"
                )
            x, factors = geqrf(q)
            # A reflection that was not needed is one in `forward`, which makes it of what lies below alone.
            diagonal = x.diagonal(0, -2, -1)
            diagonal.copy_(diagonal.sign() * (1 - 2 * (factors == 0).to(x.dtype)))
            return x.mT if wide else x
        self.base = _completed(q, n, k)
        # What is the base alone: no skew part, and reflections of the coordinates turned back.
        x = creation.zeros_like(Q)
        x.diagonal(0, -2, -1).fill_(-1.0)
        return x


def _cayley(skew: Any) -> Any:
    """(I + A / 2) (I - A / 2)^-1."""
    one = creation.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    return linalg.solve(one - 0.5 * skew, one + 0.5 * skew)


def _completed(q: Any, n: int, k: int) -> Any:
    """Orthonormal columns near the given ones, for matrix_exp and cayley with others to make it square."""
    if n == k:
        made, r = linalg.qr(q)
    else:
        more = random.randn((*q.shape[:-2], n, n - k), dtype=q.dtype, device=q.device)
        made, r = linalg.qr(views.cat([q, more], -1))
    return made * r.diagonal(0, -2, -1).sgn().unsqueeze(-2)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """A weight whose columns, or rows where there are more columns, stay orthonormal."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {name!r} to parametrise")
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: a matrix, or a batch of them, is needed, got {weight.spec!r}")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1] or weight.dtype.kind == "c"
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(f"orthogonal: orthogonal_map is one of {', '.join(_MAPS)}, got {orthogonal_map!r}")
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True)
