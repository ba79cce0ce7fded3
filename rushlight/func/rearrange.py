"""`rearrange`: dimensions split, reordered and joined by a pattern, "b (h c) w -> b c h w"."""

from __future__ import annotations

import math
import re
from typing import Any

from rushlight.ops.view import views
from rushlight.tape.record.value import Value

# The names of one dimension: several in parentheses, none for one of size 1.
Group = list[str]

REST: Group = ["..."]  # this list itself marks `...` outside of parentheses: separate dimensions

_TOKEN = re.compile(r"\s*(\.\.\.|[()]|[A-Za-z_]\w*|1)")


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """The tensor's dimensions reordered, joined or split. Both sides of `->` name them.

    Parentheses join names to one dimension, `1` or `()` is a dimension of size 1, `...` all that
    are not named. Sizes that cannot be inferred are given by name. Tensors in a list or tuple are
    stacked first.

    Args:
        tensor (Tensor): The tensor.
        pattern (str): The names before and after, as 'b c h w -> b (h w) c'.
        axes_lengths (int): Sizes of names that the shape does not determine.
    """
    if isinstance(tensor, (list, tuple)):
        tensor = views.stack(tensor)
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: a pattern has one '->', got {pattern!r}")
    left, right = (_groups(side, pattern) for side in sides)
    _check_names(left, right, axes_lengths, pattern)
    shape = tensor._spec.shape
    named = len([group for group in left if group is not REST])
    rest = [f"...{i}" for i in range(len(shape) - named)]
    if len(shape) < named or (rest and named == len(left)):
        raise ValueError(
            f"rearrange: {pattern!r} names {named} dimensions, but the tensor is {tensor._spec!r}"
        )
    left, right = _fill_rest(left, rest), _fill_rest(right, rest)
    sizes: dict[str, int] = dict(axes_lengths)
    for group, size in zip(left, shape, strict=True):
        _measure(group, size, sizes, pattern, tensor)
    names = [name for group in left for name in group]
    order = [names.index(name) for group in right for name in group]
    atoms = views.permute(views.reshape(tensor, tuple(sizes[name] for name in names)), tuple(order))
    return views.reshape(atoms, tuple(math.prod(sizes[name] for name in group) for group in right))


def _groups(side: str, pattern: str) -> list[Group]:
    found: list[Group] = []
    inside: Group | None = None
    at = 0
    text = side.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"rearrange: {text[at:].strip()[:1]!r} has no meaning in {pattern!r}")
        at, token = match.end(), match.group(1)
        if token == "(":
            if inside is not None:
                raise ValueError(f"rearrange: parentheses inside parentheses in {pattern!r}")
            inside = []
        elif token == ")":
            if inside is None:
                raise ValueError(
                    f"rearrange: a parenthesis is closed that was not opened in {pattern!r}"
                )
            found.append(inside)
            inside = None
        elif inside is not None:
            inside += [] if token == "1" else [token]
        else:
            found.append(REST if token == "..." else [] if token == "1" else [token])
    if inside is not None:
        raise ValueError(f"rearrange: a parenthesis is not closed in {pattern!r}")
    return found


def _check_names(
    left: list[Group], right: list[Group], lengths: dict[str, int], pattern: str
) -> None:
    first, second = ([name for group in side for name in group] for side in (left, right))
    for names in (first, second):
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(
                f"rearrange: {', '.join(sorted(twice))} more than once on one side of {pattern!r}"
            )
    if any("..." in group and group is not REST for group in left):
        raise ValueError(f"rearrange: ... cannot be in parentheses on the left side of {pattern!r}")
    alone = set(first) ^ set(second)
    if alone:
        raise ValueError(f"rearrange: {', '.join(sorted(alone))} on one side only of {pattern!r}")
    unknown = set(lengths) - set(first)
    if unknown:
        raise ValueError(f"rearrange: {', '.join(sorted(unknown))} is not in {pattern!r}")


def _fill_rest(groups: list[Group], rest: list[str]) -> list[Group]:
    """The groups with names in place of `...`."""
    spread: list[Group] = []
    for group in groups:
        if group is REST:
            spread += [[name] for name in rest]
        else:
            spread.append(
                [name for token in group for name in (rest if token == "..." else [token])]
            )
    return spread


def _measure(group: Group, size: int, sizes: dict[str, int], pattern: str, tensor: Value) -> None:
    """Find the sizes of a dimension's names; at most one is inferred."""
    unknown = [name for name in group if name not in sizes]
    if len(unknown) > 1:
        raise ValueError(
            f"rearrange: give the size of {' or '.join(unknown)} in {pattern!r}: two cannot be "
            "inferred at once"
        )
    known = math.prod(sizes[name] for name in group if name in sizes)
    if unknown:
        sizes[unknown[0]] = size // known if known else 0
        known *= sizes[unknown[0]]
    if known != size:
        told = " * ".join(f"{name}={sizes[name]}" for name in group) or "1"
        raise ValueError(
            f"rearrange: {told} does not make a dimension of {size} ({pattern!r}, {tensor._spec!r})"
        )
