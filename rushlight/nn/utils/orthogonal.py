"""Weights with orthonormal rows or columns, learned through an unconstrained matrix."""

from __future__ import annotations

import enum
from typing import Any

from rushlight.core.dtypes import real_type
from rushlight.nn.module import Module
from rushlight.nn.utils.parametrize import register_parametrization
from rushlight.ops.create import creation
from rushlight.ops.create.dtype_limits import finfo
from rushlight.ops.registry import REGISTRY
from rushlight.tensor import Tensor


def _op(name: str) -> Any:
    return REGISTRY[name].function


class _Map(enum.Enum):
    matrix_exp = enum.auto()
    cayley = enum.auto()
    householder = enum.auto()


def _eye(n: int, like: Any) -> Any:
    return creation.eye(n, dtype=like.dtype, device=like.device)


def _nearest(a: Any) -> Any:
    """The orthogonal factor of the QR factorisation with a positive diagonal of R."""
    packed, tau = _op("geqrf")(a)
    signs = packed.diagonal(0, -2, -1).sgn().unsqueeze(-2)
    return _op("linalg_householder_product")(packed, tau) * signs


def _is_orthogonal(q: Any) -> bool:
    n, k = q.shape[-2:]
    limit = 10 * n * finfo(real_type(q.dtype)).eps
    return bool(((q.mH @ q - _eye(k, q)).abs() < limit).all())


class _Orthogonal(Module):
    """Maps any matrix to one with orthonormal columns (rows, if it is wide), times `base`.

    Training starts at `base`.
    """

    base: Tensor

    def __init__(self, weight: Tensor, kind: _Map, use_trivialization: bool) -> None:
        super().__init__()
        self.kind = kind
        self.has_base = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)
        elif weight.is_complex() and kind is _Map.householder:
            raise ValueError(
                "orthogonal: the Householder parametrization does not support complex tensors"
            )

    def forward(self, X: Any) -> Any:
        wide = X.shape[-2] < X.shape[-1]
        x = X.mT if wide else X
        n, k = x.shape[-2:]
        if self.kind is _Map.householder:
            below = x.tril(-1)
            tau = 2.0 / (1.0 + (below * below.conj()).sum(-2))
            signs = x.diagonal(0, -2, -1).detach().sign().unsqueeze(-2)
            q = _op("linalg_householder_product")(below, tau) * signs
        else:
            lower = x.tril()
            if n != k:
                rest = creation.zeros(*x.shape[:-2], n, n - k, dtype=x.dtype, device=x.device)
                lower = _op("cat")([lower, rest], -1)
            a = lower - lower.mH
            if self.kind is _Map.matrix_exp:
                q = _op("matrix_exp")(a)
            else:
                one = _eye(n, a)
                q = _op("linalg_solve")(one - a * 0.5, one + a * 0.5)
            q = q[..., :k]
        if self.has_base:
            q = self.base @ q
        return q.mT if wide else q

    def right_inverse(self, Q: Any) -> Any:
        """An input that maps to this matrix; with a base, the base is set to map to it."""
        wide = Q.shape[-2] < Q.shape[-1]
        q = Q.mT if wide else Q
        n, k = q.shape[-2:]
        if not self.has_base:
            if self.kind is not _Map.householder:
                raise NotImplementedError(
                    "orthogonal: the matrix exponential and Cayley's map cannot be assigned to "
                    "with use_trivialization=False"
                )
            packed, tau = _op("geqrf")(q.detach())
            signs = packed.diagonal(0, -2, -1).sign() * (1 - 2 * (tau == 0).to(packed.dtype))
            on_diagonal = creation.eye(n, k, dtype=q.dtype, device=q.device) * signs.unsqueeze(-2)
            a = packed.tril(-1) + packed.triu(1) + on_diagonal
            return a.mT if wide else a
        if n != k:
            more = _op("randn")(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            q = _op("cat")([q.detach(), more], -1)
        self.base = _nearest(q.detach()) if n != k or not _is_orthogonal(q) else q.detach().clone()
        start = creation.zeros_like(Q)
        start.diagonal(0, -2, -1).fill_(-1.0)
        return start


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """A weight with orthonormal columns or rows.

    `orthogonal_map` is "matrix_exp", "cayley" or "householder"; by default the exponential for
    square and complex weights, else Householder's reflections. `use_trivialization` keeps a base
    that training starts from, so that any weight can be assigned.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _Map.__members__:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
            f"{orthogonal_map}"
        )
    made = _Orthogonal(weight, _Map[orthogonal_map], use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)
