"""PyTorch's `local_map`: functions that run on the ranks' own parts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight.distributed.tensor.dtensor import DTensor
from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["local_map"]


def _part(leaf: DTensor, mesh: Any, wanted: Any, grads: Any, moves: bool, n: int) -> Any:
    """This rank's part of an argument, placed as wanted."""
    if wanted is not None and tuple(leaf.placements) != tuple(wanted):
        if not moves:
            raise ValueError(
                f"local_map: argument {n} is placed {leaf.placements}, wanted is {tuple(wanted)}; "
                "redistribute it, or pass redistribute_inputs=True"
            )
        leaf = leaf.redistribute(mesh, wanted)
    return leaf.to_local(grad_placements=grads)


def _at(given: Any, n: int, name: str) -> Any:
    """The n-th of the given placements; None without them."""
    if given is None:
        return None
    if n >= len(given):
        raise AssertionError(
            f"local_map: {name} has {len(given)} entries, and there are more values"
        )
    return given[n]


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: Any = None,
    in_grad_placements: Any = None,
    device_mesh: Any = None,
    *,
    redistribute_inputs: bool = False,
) -> Any:
    """A function of tensors as one of DTensors: it runs on this rank's parts.

    Args:
        func (callable): The function; a decorator without it.
        out_placements (sequence): How the result lies; a tuple of them for several results, with
            None for what is no tensor.
        in_placements (tuple): How each argument must lie; not looked at without it.
        in_grad_placements (tuple): How each argument's gradient lies.
        device_mesh (DeviceMesh): The ranks; those of the arguments without it.
        redistribute_inputs (bool): Whether arguments that lie otherwise are moved; else an error.
    """
    if func is None:
        return functools.partial(
            local_map,
            out_placements=out_placements,
            in_placements=in_placements,
            in_grad_placements=in_grad_placements,
            device_mesh=device_mesh,
            redistribute_inputs=redistribute_inputs,
        )

    @functools.wraps(func)
    def call(*args: Any, **named: Any) -> Any:
        leaves, structure = tree_flatten(args)
        meshes = [leaf.device_mesh for leaf in leaves if isinstance(leaf, DTensor)]
        mesh = device_mesh if device_mesh is not None or not meshes else meshes[0]
        parts = []
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, DTensor):
                wanted = _at(in_placements, n, "in_placements")
                grads = _at(in_grad_placements, n, "in_grad_placements")
                leaf = _part(leaf, mesh, wanted, grads, redistribute_inputs, n)
            parts.append(leaf)
        made = func(*tree_unflatten(parts, structure), **named)
        if not meshes:
            return made
        found, shape = tree_flatten(made)
        each = out_placements if isinstance(out_placements, tuple) else (out_placements,)
        if len(each) != len(found):
            raise AssertionError(
                f"local_map: {len(found)} results, and out_placements for {len(each)}"
            )
        return tree_unflatten(
            [_whole(*pair, mesh) for pair in zip(found, each, strict=True)], shape
        )

    return call


def _whole(part: Any, placements: Any, mesh: Any) -> Any:
    if isinstance(part, Tensor) and placements is not None:
        return DTensor.from_local(part, mesh, placements)
    if placements is not None:
        raise AssertionError(f"local_map: a result {part!r} is no tensor; its placements are None")
    return part
