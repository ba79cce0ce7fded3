"""The arguments to differentiate, and checks of trees of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.tape.record.value import Value
from rushlight.utils._pytree import TreeSpec, tree_flatten, treespec_pprint

Argnums = int | tuple[int, ...]


class Chosen:
    """The arguments named by `argnums`, flattened; `rebuilt` replaces their tensors."""

    def __init__(self, name: str, argnums: Argnums, args: tuple[Any, ...]) -> None:
        self.args = args
        self.alone = isinstance(argnums, int)
        self.places = _argument_indices(name, argnums, len(args))
        picked = args[self.places[0]] if self.alone else tuple(args[i] for i in self.places)
        self.leaves, self.spec = tree_flatten(picked)

    def rebuilt(self, leaves: Sequence[Any]) -> list[Any]:
        made = self.spec.unflatten(leaves)
        args = list(self.args)
        for i, part in zip(self.places, (made,) if self.alone else made, strict=True):
            args[i] = part
        return args


def _argument_indices(name: str, argnums: Any, count: int) -> list[int]:
    if isinstance(argnums, bool) or not isinstance(argnums, (int, tuple)):
        raise RushlightError(
            f"{name}: argnums must be an int or a tuple of ints, got {type(argnums).__name__}"
        )
    listed = (argnums,) if isinstance(argnums, int) else argnums
    if not listed:
        raise RushlightError(f"{name}: argnums must not be empty")
    for n in listed:
        if isinstance(n, bool) or not isinstance(n, int):
            raise RushlightError(
                f"{name}: argnums must be an int or a tuple of ints, got {argnums!r}"
            )
        if not -count <= n < count:
            raise RushlightError(
                f"{name}: argnums has {n}, but the function got {count} positional arguments"
            )
    places = [n % count for n in listed]
    if len(set(places)) < len(places):
        raise RushlightError(f"{name}: argnums must name every argument once, got {argnums!r}")
    return places


def with_aux(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """(output, aux); aux is None where the function gives none."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise RushlightError(
            f"{name}: with has_aux=True the function must return a tuple (output, aux), got "
            f"{_describe(result)}"
        )
    return result


def _describe(thing: Any) -> str:
    if isinstance(thing, Value):
        return f"a tensor {thing._spec!r}" if hasattr(thing, "_memory") else "a sparse tensor"
    return f"a tuple of {len(thing)}" if isinstance(thing, tuple) else type(thing).__name__


def tensors_in(name: str, tree: Any) -> tuple[list[Any], TreeSpec]:
    """The tensors of a function's output."""
    leaves, spec = tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Value):
            raise RushlightError(
                f"{name}: the function must return tensors only, got {type(leaf).__name__}; return "
                "the rest as aux, with has_aux=True"
            )
        if not hasattr(leaf, "_memory"):
            raise RushlightError(
                f"{name}: the function must return dense tensors, got a sparse one; use .to_dense()"
            )
    return leaves, spec


def fitting(
    name: str, what: str, given: Any, spec: TreeSpec, wanted: Sequence[Any], owner: str
) -> list[Any]:
    """Tangents or cotangents: one tensor for each of `wanted`, of its shape."""
    try:
        leaves = spec.flatten_up_to(given)
    except ValueError as error:
        raise RushlightError(
            f"{name}: {what}s must be nested like the {owner} {treespec_pprint(spec)}, got "
            f"{treespec_pprint(tree_flatten(given)[1])}: {error}"
        ) from None
    for i, (leaf, x) in enumerate(zip(leaves, wanted, strict=True)):
        if not isinstance(leaf, Value) or not hasattr(leaf, "_memory"):
            raise RushlightError(f"{name}: {what} {i} must be a tensor, got {_describe(leaf)}")
        if leaf._spec.shape != x._spec.shape:
            raise ShapeError(
                f"{name}: {what} {i} is {leaf._spec!r}, but its {owner} is {x._spec!r}; the shapes "
                "must agree"
            )
        if leaf._spec.dtype.kind == "c" != x._spec.dtype.kind:
            raise DTypeError(
                f"{name}: {what} {i} is {leaf._spec!r}, but its {owner} is real, {x._spec!r}; pass "
                ".real"
            )
        if leaf._spec.device is not x._spec.device:
            raise RushlightError(
                f"{name}: {what} {i} is on {leaf._spec.device.device.name}, but its {owner} is on "
                f"{x._spec.device.device.name}; move it with .to(device)"
            )
    return leaves
