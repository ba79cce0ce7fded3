"""PyTorch's `torch.distributed.pipelining.microbatch`: arguments in parts, and parts in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.ops.view.views import cat
from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks", "sum_reducer"]


class TensorChunkSpec:
    """Along which dimension a tensor is cut.

    Args:
        split_dim (int): The dimension.
    """

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        """Those of several arguments.

        Args:
            chunk_dims (tuple): Their dimensions.
        """
        return tuple(map(TensorChunkSpec, chunk_dims))

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        """Those of named arguments.

        Args:
            chunk_dims (dict): Their dimensions.
        """
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


class _Replicate:
    """Of an argument that every part gets whole."""


class _CustomReducer:
    """Of a result whose parts a function puts together.

    Args:
        init_value: What it begins with.
        reduce_fn (callable): Called with what there is and the next part.
    """

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


sum_reducer = _CustomReducer(0.0, lambda total, part: total + part)


def _specs(leaves: Sequence[Any], spec: Any) -> list[Any]:
    """A spec for each leaf: tensors are cut along the first dimension where none is given."""
    if spec is not None:
        given = tree_leaves(spec)
        if len(given) != len(leaves):
            raise ValueError(f"chunk specs: {len(given)} for {len(leaves)} values")
        return given
    return [TensorChunkSpec(0) if isinstance(leaf, Tensor) else _Replicate() for leaf in leaves]


def _parts(leaf: Any, spec: Any, chunks: int) -> list[Any]:
    if not isinstance(spec, TensorChunkSpec) or not isinstance(leaf, Tensor):
        return [leaf] * chunks
    if leaf.shape[spec.split_dim] < chunks:
        raise ValueError(
            f"a tensor of shape {tuple(leaf.shape)} in {chunks} chunks along {spec.split_dim}"
        )
    return list(leaf.tensor_split(chunks, spec.split_dim))


def _split(tree: Any, chunks: int, spec: Any) -> list[Any]:
    leaves, structure = tree_flatten(tree)
    rows = [
        _parts(leaf, one, chunks) for leaf, one in zip(leaves, _specs(leaves, spec), strict=True)
    ]
    return [tree_unflatten([row[n] for row in rows], structure) for n in range(chunks)]


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: Any = None,
    kwargs_chunk_spec: Any = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """The arguments of each microbatch.

    Args:
        args (tuple): The arguments.
        kwargs (dict): The named arguments.
        chunks (int): How many microbatches.
        args_chunk_spec (tuple): A TensorChunkSpec for each; the first dimension without them.
        kwargs_chunk_spec (dict): The same of named arguments.
    """
    return _split(args, chunks, args_chunk_spec), _split(kwargs or {}, chunks, kwargs_chunk_spec)


def _merged(parts: list[Any], spec: Any) -> Any:
    if isinstance(spec, _CustomReducer):
        total = spec.init_value
        for part in parts:
            total = spec.reduce_fn(total, part)
        return total
    if isinstance(spec, TensorChunkSpec) and isinstance(parts[0], Tensor):
        return cat(parts, spec.split_dim)
    return parts[0]


def merge_chunks(chunks: list[Any], chunk_spec: Any) -> Any:
    """The results of microbatches as one.

    Args:
        chunks (list): The results.
        chunk_spec: A TensorChunkSpec or a reducer for each; the first dimension without them.
    """
    flat = [tree_flatten(chunk) for chunk in chunks]
    specs = _specs(flat[0][0], chunk_spec)
    merged = [_merged([leaves[n] for leaves, _ in flat], spec) for n, spec in enumerate(specs)]
    return tree_unflatten(merged, flat[0][1])
