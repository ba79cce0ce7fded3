"""Docstrings of the standard's functions: the sections that a definition leaves out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

# What a parameter means, wherever it occurs.
MEANINGS = {
    "append": "Elements after `x` along `axis`.",
    "arrays": "The arrays.",
    "arrays_and_dtypes": "Arrays, dtypes and Python numbers.",
    "axes": "The axes, by number.",
    "axis": "The axis; a negative one counts from the last.",
    "condition": "A bool array that broadcasts with the others.",
    "copy": "Whether the result has memory of its own; None copies where it must.",
    "correction": "The divisor is n - correction.",
    "descending": "The largest element first.",
    "destination": "Where each of the axes goes.",
    "device": "The device of the result; None for that of the input, or the default.",
    "dtype": "The dtype of the result; None for the usual one.",
    "endpoint": "Whether `stop` is the last element.",
    "fill_value": "The value of every element.",
    "from_": "A dtype or an array.",
    "include_initial": "Whether the result begins with the value of an empty sum or product.",
    "indexing": "'xy' exchanges the first two axes of the result; 'ij' keeps their order.",
    "indices": "An integer array of positions along `axis`.",
    "invert": "Whether the result is negated.",
    "k": "The diagonal: 0 is the main one, positive ones lie above it.",
    "keepdims": "Whether the reduced axes stay, with size 1.",
    "kind": "A dtype, the name of a kind ('real floating', 'integral', ...), or a tuple of them.",
    "max": "The upper bound, a number or an array; None for no bound.",
    "min": "The lower bound, a number or an array; None for no bound.",
    "n": "How many times differences are taken.",
    "n_cols": "The number of columns; None for that of rows.",
    "n_rows": "The number of rows.",
    "num": "The number of elements.",
    "obj": "A number, nested sequences of numbers, an array or an object with a buffer.",
    "prepend": "Elements before `x` along `axis`.",
    "repeats": "How often each element occurs: an int, or an integer array with one per element.",
    "repetitions": "How often the array is repeated along each axis.",
    "shape": "The shape of the result.",
    "shapes": "The shapes, tuples of ints.",
    "shift": "By how many positions, an int or one per axis.",
    "side": "'left' or 'right': before or after equal elements.",
    "sorter": "The indices that sort `x1`.",
    "source": "The axes that move.",
    "stable": "Equal elements keep their order.",
    "start": "The first element.",
    "step": "The distance between neighbours.",
    "stop": "The end.",
    "to": "The dtype.",
    "x": "The array.",
    "x1": "The first array.",
    "x2": "The second array.",
}
# Meanings beside another parameter.
BESIDE = {
    "keepdims": {"axis": "The axis or axes that are reduced; None for all."},
    "destination": {"x": "The array whose axes move."},
    "sorter": {"x1": "A sorted vector.", "x2": "The values whose positions are searched for."},
    "indexing": {"arrays": "Vectors of one dtype."},
}
_KINDS = {
    "Array": ("arrays", "condition", "indices", "x", "x1", "x2"),
    "dtype": ("dtype", "to"),
    "device": ("device",),
}
_WORDS = {
    "Axis": "int or ints",
    "Sequence[int]": "ints",
    "Shape": "int or ints",
    "float": "number",
    "tuple[int, ...]": "ints",
}


def describe(function: Callable[..., Any], dtypes: str = "") -> None:
    """Add `Args:` to a function's docstring; `dtypes` are those that its arrays may have."""
    parameters = inspect.signature(function).parameters
    if not parameters:
        return
    own: dict[str, str] = {}
    for marker in BESIDE.keys() & parameters.keys():
        own |= BESIDE[marker]
    lines = [inspect.cleandoc(function.__doc__ or ""), "", "Args:"]
    for name, p in parameters.items():
        kind = _kind(name, str(p.annotation))
        meaning = own.get(name) or MEANINGS[name]
        if dtypes and kind == "Array":
            meaning = f"{meaning} Types: {dtypes}."
        lines.append(f"    {name}{f' ({kind})' if kind else ''}: {meaning}")
    function.__doc__ = "\n".join(lines) + "\n"


def describe_all(members: Mapping[str, Any], dtypes: Mapping[str, str]) -> None:
    """Describe the functions among these members."""
    for name, member in members.items():
        if isinstance(member, FunctionType):
            describe(member, dtypes.get(name, ""))


def _kind(name: str, annotation: str) -> str:
    """The kind of an argument in words."""
    for word, names in _KINDS.items():
        if name in names:
            return word
    if annotation == "Any":
        return ""
    parts = [part for part in annotation.split(" | ") if part != "None"]
    return " or ".join(_WORDS.get(part, part) for part in parts)
