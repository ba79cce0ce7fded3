"""Clipping of all gradients of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from rushlight.compat.torch_function import part_of
from rushlight.core.dtypes import result_type
from rushlight.core.errors import RushlightError
from rushlight.ops.create import creation
from rushlight.ops.optim.formula import Expr
from rushlight.ops.optim.lists import can_list, fold_each, scale_by, update_all
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.scaled import clamp
from rushlight.ops.reduce import reductions
from rushlight.ops.view import views
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


def _norm(values: Tensor, norm_type: float) -> Tensor:
    if norm_type == math.inf:
        return reductions.amax(e.abs(values))
    if norm_type == -math.inf:
        return reductions.amin(e.abs(values))
    if norm_type == 0:
        return reductions.sum(e.cast(e.ne(values, 0), values.dtype))
    if norm_type == 2:
        return e.sqrt(reductions.sum(e.square(values)))
    return e.pow(reductions.sum(e.pow(e.abs(values), norm_type)), 1 / norm_type)


# By the class of tensors of which a rank has a part: `measure(tensors, each)` gives `each(whole)`
# of every one of them, on all ranks. Set by `distributed/tensor/dtensor.py`.
MEASURES: dict[type, Callable[[list[Any], Callable[[Tensor], Tensor]], list[Tensor]]] = {}


def _measured(listed: list[Tensor], each: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """A number of each tensor; of a part, that of the whole."""
    parted = [t for t in listed if type(t) in MEASURES]
    measured = iter(MEASURES[type(parted[0])](parted, each) if parted else ())
    return [next(measured) if type(t) in MEASURES else each(t) for t in listed]


def _total(listed: list[Tensor], norm_type: float) -> Any:
    """On a device with lists, the norm of order 2 is two kernels: Note [Lists of operands]."""
    parts = [part_of(t) for t in listed]
    if norm_type == 2 and can_list(parts):
        if any(part is not t for part, t in zip(parts, listed, strict=True)):
            squares: Any = views.stack(_measured(listed, _squares))
        else:
            squares = fold_each(listed, "sum", _square)
        total = e.sqrt(reductions.sum(squares))
        return e.cast(total, result_type([(t.dtype, 1) for t in listed], []))
    home = listed[0].device
    norms = _measured(listed, lambda t: _norm(t, norm_type))
    return _norm(views.stack([norm.to(home) for norm in norms]), norm_type)


def _squares(t: Tensor) -> Any:
    made: Any = fold_each([t], "sum", _square)
    return made.view(())


def _square(x: Expr) -> Expr:
    return x * x


def _listed(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of all tensors.

    Args:
        tensors (tensors): Tensors, or one.
        norm_type (number): The exponent of the norm, or inf.
        error_if_nonfinite (bool): Raise where the norm is NaN or infinite.
        foreach (bool): Has no effect.
    """
    listed = _listed(tensors)
    if not listed:
        return creation.zeros(())
    norm_type = float(norm_type)
    total = _total(listed, norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RushlightError(
            f"clip_grad_norm_: the norm of order {norm_type} is {total.item()}; a gradient is not "
            "finite"
        )
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale the gradients by max_norm / total_norm where that is below 1.

    Args:
        parameters (tensors): Parameters, or one; those without a gradient are left out.
        max_norm (number): The largest total norm.
        total_norm (Tensor): The norm, as `get_total_norm` returns it.
        foreach (bool): Has no effect.
    """
    _scale(_grads(parameters), max_norm, total_norm)


def _scale(grads: list[Any], max_norm: float, total_norm: Tensor) -> None:
    share = clamp(e.div(float(max_norm), e.add(total_norm, 1e-6)), max=1.0)
    grads = [part_of(g) for g in grads]
    if can_list([*grads, share]):
        update_all(scale_by, [(g, share) for g in grads])
        return
    for g in grads:
        g.mul_(share.to(g.device, g.dtype))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients so that their total norm is at most `max_norm`; returns the norm before.

    Nothing is read back to the host, except with `error_if_nonfinite`. The norm of gradients of
    which ranks have parts is that of the whole ones, bit for bit; all ranks make this call.

    Args:
        parameters (tensors): Parameters, or one; those without a gradient are left out.
        max_norm (number): The largest total norm.
        norm_type (number): The exponent of the norm, or inf.
        error_if_nonfinite (bool): Raise where the norm is NaN or infinite.
        foreach (bool): Has no effect.
    """
    grads = _grads(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    with no_grad():
        _scale(grads, max_norm, total)
    return total


@no_grad()
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp every element of the gradients to [-clip_value, clip_value].

    Args:
        parameters (tensors): Parameters, or one; those without a gradient are left out.
        clip_value (number): The largest absolute value.
        foreach (bool): Has no effect.
    """
    bound = float(clip_value)
    for g in map(part_of, _grads(parameters)):
        g.copy_(clamp(g, -bound, bound))
