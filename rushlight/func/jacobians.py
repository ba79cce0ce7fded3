"""Whole Jacobians and Hessians, by rows (`jacrev`) or by columns (`jacfwd`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.func.arguments import Argnums, Chosen
from rushlight.func.transforms import Function, Pulled, Pushed
from rushlight.func.vmap import vmap
from rushlight.ops.create import creation
from rushlight.ops.view import views
from rushlight.tape.record.value import Value


def jacrev(
    func: Function, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Function:
    """The function that computes the Jacobian in reverse mode: a row per number of the output.

    The output's nesting, with every tensor replaced by the argument's nesting of blocks out.shape +
    in.shape. `chunk_size` rows are computed together; None means all of them.

    Args:
        func (function): A function of tensors.
        argnums (int or ints): The arguments that are differentiated, by position.
        has_aux (bool): Whether `func` returns (output, aux); aux is passed on.
        chunk_size (int): How many rows are computed together; None for all.
    """
    _check_chunk("jacrev", chunk_size)

    @functools.wraps(func)
    def jacobian(*args: Any, **named: Any) -> Any:
        chosen = Chosen("jacrev", argnums, args)
        pulled = Pulled("jacrev", _of_chosen(func, chosen, named), tuple(chosen.leaves), has_aux)
        _check_real("jacrev", pulled.primals, pulled.outs)
        made = pulled.out_spec.unflatten(
            [chosen.spec.unflatten(block) for block in rows(pulled, chunk_size)]
        )
        return (made, pulled.aux) if has_aux else made

    return jacobian


def jacfwd(
    func: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Function:
    """The function that computes the Jacobian in forward mode: a column per input number.

    Its result is that of `jacrev`. The function runs once, so `randomness` (PyTorch's argument) has
    no effect.

    Args:
        func (function): A function of tensors.
        argnums (int or ints): The arguments that are differentiated, by position.
        has_aux (bool): Whether `func` returns (output, aux); aux is passed on.
        randomness (str): What random ops draw; see `vmap`.
        chunk_size (int): How many columns are computed together; None for all.
    """
    _check_chunk("jacfwd", chunk_size)
    if randomness not in ("error", "different", "same"):
        raise RushlightError(
            f"jacfwd: randomness is 'error', 'different' or 'same', got {randomness!r}"
        )

    @functools.wraps(func)
    def jacobian(*args: Any, **named: Any) -> Any:
        chosen = Chosen("jacfwd", argnums, args)
        pushed = Pushed("jacfwd", _of_chosen(func, chosen, named), tuple(chosen.leaves), has_aux)
        _check_real("jacfwd", pushed.primals, pushed.outs)
        made = pushed.out_spec.unflatten(
            [chosen.spec.unflatten(block) for block in columns(pushed, chunk_size)]
        )
        return (made, pushed.aux) if has_aux else made

    return jacobian


def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """The function that computes the matrix of second derivatives: `jacfwd` of `jacrev`.

    Args:
        func (function): A function of tensors.
        argnums (int or ints): The arguments that are differentiated, by position.
    """
    return jacfwd(jacrev(func, argnums), argnums)


def _of_chosen(func: Function, chosen: Chosen, named: dict[str, Any]) -> Function:
    return lambda *leaves: func(*chosen.rebuilt(leaves), **named)


def rows(pulled: Pulled, chunk_size: int | None, strict: bool = False) -> list[list[Any]]:
    """Per output and primal: the block of the Jacobian, of shape out.shape + in.shape."""
    blocks = []
    for y in pulled.outs:
        parts = _mapped(_row_of(pulled, y, strict), y, pulled.primals, chunk_size)
        shapes = [y._spec.shape + x._spec.shape for x in pulled.primals]
        blocks.append(
            [views.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]
        )
    return blocks


def columns(pushed: Pushed, chunk_size: int | None) -> list[list[Any]]:
    """The same by columns."""
    blocks: list[list[Any]] = [[] for _ in pushed.outs]
    for j, x in enumerate(pushed.primals):
        parts = _mapped(_column_of(pushed, j), x, pushed.outs, chunk_size)
        for block, y, part in zip(blocks, pushed.outs, parts, strict=True):
            block.append(_last(part, y._spec.shape + x._spec.shape))
    return blocks


def _row_of(pulled: Pulled, y: Value, strict: bool) -> Callable[[Any], list[Any]]:
    return lambda cotangent: pulled.pull([y], [cotangent], strict=strict)


def _column_of(pushed: Pushed, j: int) -> Callable[[Any], list[Any]]:
    return lambda tangent: pushed.push({j: tangent})


def _mapped(
    derive: Callable[[Any], list[Any]], like: Any, results: Sequence[Any], chunk_size: int | None
) -> list[Any]:
    """`derive` along each unit vector of a tensor, stacked per result, `chunk_size` at a time."""
    size = like._spec.numel
    if not size:
        return [
            creation.zeros((0, *y._spec.shape), dtype=y._spec.dtype, device=y.device)
            for y in results
        ]
    units = creation.eye(size, dtype=like._spec.dtype, device=like.device)
    if chunk_size == 1:
        found = [
            derive(views.reshape(views.select(units, 0, n), like._spec.shape)) for n in range(size)
        ]
        return [views.stack(parts) for parts in zip(*found, strict=True)]
    return vmap(derive, chunk_size=chunk_size)(views.reshape(units, (size, *like._spec.shape)))


def _last(part: Any, shape: tuple[int, ...]) -> Any:
    rank = len(part.shape)
    return views.reshape(views.permute(part, (*range(1, rank), 0)), shape)


def _check_chunk(name: str, chunk_size: Any) -> None:
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"{name}: chunk_size is a positive int or None, got {chunk_size!r}")


def _check_real(name: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
    for what, values in (("inputs", inputs), ("outputs", outputs)):
        for i, value in enumerate(values):
            if value._spec.dtype.kind == "c":
                raise RushlightError(
                    f"{name}: the {what} must be real, but number {i} is {value._spec!r}; "
                    f"use view_as_real, or vjp and jvp"
                )
