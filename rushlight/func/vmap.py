"""`vmap`: a function of one example as a function of a batch, without a loop.

See Note [Batching].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.func.batched import BatchedTensor
from rushlight.ops.view import views
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value
from rushlight.tape.vmap import batched
from rushlight.tape.vmap.batched import Level
from rushlight.utils._pytree import broadcast_prefix, tree_flatten

__all__ = ["BatchedTensor", "vmap"]

Dims = Any  # int, None, or a nesting of those


def vmap(
    func: Callable[..., Any],
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function mapped over a dimension of its positional arguments.

    The results are those of one call per example, stacked. `in_dims` and `out_dims` give the batch
    dimension, as one number, None (not mapped) or a nesting like the arguments'. `randomness`:
    random ops are an "error", or draw "different" or the "same" numbers for all examples. With
    `chunk_size`, so many examples run at a time. Keyword arguments are not mapped.

    Args:
        func (function): A function of single examples.
        in_dims (int or nested): The dimension of each argument's batch; None for an argument
            without one.
        out_dims (int or nested): The dimension of each result's batch.
        randomness (str): 'error', or whether examples draw 'same' or 'different' numbers.
        chunk_size (int): How many examples are computed together; None for all.
    """
    if randomness not in ("error", "different", "same"):
        raise RushlightError(
            f"vmap: randomness is 'error', 'different' or 'same', got {randomness!r}"
        )
    if chunk_size is not None and (
        isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1
    ):
        raise ValueError(f"vmap: chunk_size must be None or a positive integer, got {chunk_size!r}")
    name = getattr(func, "__name__", type(func).__name__)
    shown = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"

    @functools.wraps(func, updated=())
    def mapped(*args: Any, **named: Any) -> Any:
        leaves, spec = tree_flatten(args)
        dims = _in_dims(shown, in_dims, args, leaves)
        size = _batch_size(shown, dims, leaves)

        def run(start: int, count: int) -> Any:
            part = [_cut(x, d, start, count, size) for x, d in zip(leaves, dims, strict=True)]
            return _run(func, name, part, spec, dims, out_dims, randomness, count, named)

        if chunk_size is None or chunk_size >= size:
            return run(0, size)
        chunks = [run(start, min(chunk_size, size - start)) for start in range(0, size, chunk_size)]
        return _joined(chunks, out_dims, name)

    return mapped


# ---- arguments ----


def _in_dims(
    shown: str, in_dims: Dims, args: tuple[Any, ...], leaves: Sequence[Any]
) -> list[int | None]:
    """The batch dimension of every leaf, counted from the front; None where it is not mapped."""
    if not isinstance(in_dims, (int, tuple)) or isinstance(in_dims, bool):
        raise ValueError(
            f"{shown}: expected in_dims to be an int or a tuple matching the inputs, got "
            f"{type(in_dims).__name__}"
        )
    if not leaves:
        raise ValueError(f"{shown}: got no inputs; vmap needs at least one tensor to map over")
    try:
        dims = broadcast_prefix(in_dims, args, is_leaf=lambda d: d is None)
    except ValueError as error:
        raise ValueError(f"{shown}: in_dims is not nested like the inputs: {error}") from None
    return [_in_dim(shown, d, x) for d, x in zip(dims, leaves, strict=True)]


def _in_dim(shown: str, dim: Any, x: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise ValueError(f"{shown}: got in_dim={dim!r} for an input; it must be an integer or None")
    if not isinstance(x, Value):
        raise ValueError(
            f"{shown}: got in_dim={dim} for an input of type {type(x).__name__}; only tensors are "
            "mapped over, use None as the in_dim of everything else"
        )
    if not hasattr(x, "_memory"):
        raise ValueError(
            f"{shown}: a sparse tensor cannot be mapped over; use .to_dense(), or None as its "
            "in_dim"
        )
    rank = len(x._spec.shape)
    if not -rank <= dim < rank:
        raise ValueError(
            f"{shown}: got in_dim={dim} for an input of {rank} dimensions ({x._spec!r}); expected "
            f"-{rank} <= in_dim < {rank}"
        )
    return dim % rank


def _batch_size(shown: str, dims: Sequence[int | None], leaves: Sequence[Any]) -> int:
    sizes = [x._spec.shape[d] for d, x in zip(dims, leaves, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            f"{shown}: at least one input must be mapped over, but every in_dim is None"
        )
    if any(n != sizes[0] for n in sizes):
        raise ValueError(
            f"{shown}: expected all tensors to have the same size in the mapped dimension, got "
            f"{sizes}"
        )
    return sizes[0]


def _cut(x: Any, dim: int | None, start: int, count: int, size: int) -> Any:
    return x if dim is None or count == size else views.narrow(x, dim, start, count)


# ---- one run ----


def _run(
    func: Callable[..., Any],
    name: str,
    leaves: Sequence[Any],
    spec: Any,
    dims: Sequence[int | None],
    out_dims: Dims,
    randomness: str,
    size: int,
    named: dict[str, Any],
) -> Any:
    outer = STATE.get().batch
    level = Level(len(outer) + 1, size, randomness)
    alone = (level,)
    inside = [x if d is None else _enter(x, d, alone) for x, d in zip(leaves, dims, strict=True)]
    try:
        with Changed(batch=(*outer, level)):
            made = func(*spec.unflatten(inside), **named)
            parts, shape = tree_flatten(made)
            places = _out_dims(name, out_dims, made, parts)
            found = [_leave(name, x, d, level) for x, d in zip(parts, places, strict=True)]
            # An input that is returned gets a new handle too.
            given = {id(x) for x in leaves}
            return shape.unflatten([_alias(x) if id(x) in given else x for x in found])
    finally:
        level.alive = False


def _enter(x: Value, dim: int, alone: tuple[Level]) -> Value:
    """One more level: its dimension comes after those of the outer levels."""
    levels = batched.levels_of(x)
    whole = batched.physical_of(x)
    # One tuple for all operands, where possible: calls compare levels by identity first.
    return batched.wrap(
        _moved(whole, len(levels) + dim, len(levels)), (*levels, *alone) if levels else alone
    )


def _alias(x: Value) -> Value:
    return views.permute(x, tuple(range(len(x._spec.shape))))


def _moved(x: Value, source: int, target: int) -> Value:
    if source == target:
        return x
    order = [i for i in range(len(x._spec.shape)) if i != source]
    order.insert(target, source)
    return views.permute(x, tuple(order))


def _out_dims(name: str, out_dims: Dims, made: Any, parts: Sequence[Any]) -> list[Any]:
    for part in parts:
        if not isinstance(part, Value):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return tensors, got type "
                f"{type(part).__name__} as a return"
            )
    if isinstance(made, Value) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]
    try:
        places = broadcast_prefix(out_dims, made, is_leaf=lambda d: d is None)
    except ValueError as error:
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not nested like the "
            f"outputs: {error}"
        ) from None
    for d in places:
        if d is not None and (not isinstance(d, int) or isinstance(d, bool)):
            raise ValueError(
                f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims must be integers, got "
                f"{d!r}"
            )
    return places


def _leave(name: str, x: Value, dim: int | None, level: Level) -> Value:
    """A result with the level's dimension as its own.

    Repeated where it is the same for every example.
    """
    levels = batched.levels_of(x)
    own = level in levels
    if dim is None:
        if own:
            raise ValueError(
                f"vmap({name}, ...): `{name}` returned a tensor that depends on the mapped inputs; "
                "its out_dim cannot be None"
            )
        return x
    rank = len(x._spec.shape) + 1
    if not -rank <= dim < rank:
        raise IndexError(
            f"vmap({name}, ...): out_dim {dim} is out of range for an output of {rank} dimensions"
        )
    whole = batched.physical_of(x)
    if own:
        return batched.wrap(
            _moved(whole, len(levels) - 1, len(levels) - 1 + dim % rank), levels[:-1]
        )
    at = len(levels) + dim % rank
    shape = whole._spec.shape
    line = views.reshape(whole, (*shape[:at], 1, *shape[at:]))
    return batched.wrap(views.expand(line, (*shape[:at], level.size, *shape[at:])), levels)


def _joined(chunks: Sequence[Any], out_dims: Dims, name: str) -> Any:
    flat = [tree_flatten(chunk)[0] for chunk in chunks]
    parts, spec = tree_flatten(chunks[0])
    places = _out_dims(name, out_dims, chunks[0], parts)
    made = []
    for i, d in enumerate(places):
        made.append(flat[0][i] if d is None else views.cat([chunk[i] for chunk in flat], d))
    return spec.unflatten(made)
