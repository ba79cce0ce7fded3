"""`associative_scan`: the running results of an associative function along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.func.vmap import vmap
from rushlight.ops.view.views import cat, stack
from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

_Combine = Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """Element `i` of the result combines the first `i + 1` elements of `xs` along `dim`.

    `xs` is a tensor or a nesting of tensors; `combine_fn` takes two such nestings and gives one.
    In the mode "generic" it sees elements without the dimension `dim`; in "pointwise" it may only
    call elementwise ops. It is called about `2 * log2(length)` times, and gradients pass.
    """
    leaves, nesting = tree_flatten(xs)
    _check(combine_fn, leaves, dim, reverse, combine_mode)
    dim = dim % leaves[0].ndim
    mapped = vmap(combine_fn) if combine_mode == "generic" else combine_fn

    def combine(first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
        made = mapped(tree_unflatten(first, nesting), tree_unflatten(second, nesting))
        return tree_leaves(made)

    ahead = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        return tree_unflatten(
            [x.flip(0).movedim(0, dim) for x in _scan(combine, [x.flip(0) for x in ahead])], nesting
        )
    return tree_unflatten([x.movedim(0, dim) for x in _scan(combine, ahead)], nesting)


def _check(combine_fn: Any, leaves: list[Any], dim: Any, reverse: Any, mode: Any) -> None:
    if not callable(combine_fn):
        raise ValueError(f"associative_scan: combine_fn must be a callable, got {combine_fn!r}")
    if type(dim) is not int:
        raise ValueError(f"associative_scan: dim must be an int, got {dim!r}")
    if type(reverse) is not bool:
        raise RuntimeError(f"associative_scan: reverse must be a bool, got {reverse!r}")
    if mode not in ("pointwise", "generic"):
        raise ValueError(
            f"associative_scan: combine_mode is 'pointwise' or 'generic', got {mode!r}"
        )
    if not leaves:
        raise ValueError("associative_scan: xs has no tensor")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"associative_scan: xs has tensors, got {type(leaf).__name__}")
        if not -leaf.ndim <= dim < leaf.ndim or leaf.shape[dim] == 0:
            raise ValueError(
                f"associative_scan: every tensor of xs needs elements along dim {dim}, got the "
                f"shape {tuple(leaf.shape)}"
            )


def _scan(combine: _Combine, leaves: list[Tensor]) -> list[Tensor]:
    """The scan along the first dimension, by halving: neighbours are combined until one is left.

    On the way back each level has its odd results; an even one is the odd one before it, combined
    with one more element.
    """
    levels = []
    while leaves[0].shape[0] > 1:
        levels.append(leaves)
        leaves = combine([x[:-1:2] for x in leaves], [x[1::2] for x in leaves])
    for whole in reversed(levels):
        odd, later = leaves, [x[2::2] for x in whole]
        even = [x[:1] for x in whole]
        if more := later[0].shape[0]:
            further = combine([x[:more] for x in odd], later)
            even = [cat([one, rest]) for one, rest in zip(even, further, strict=True)]
        leaves = [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]
    return leaves


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """Their elements in turn; `even` has as many as `odd`, or one more."""
    pairs = stack([even[: odd.shape[0]], odd], 1).flatten(0, 1)
    return pairs if even.shape[0] == odd.shape[0] else cat([pairs, even[odd.shape[0] :]])
