"""A wrong call says which argument of which op is wrong, the same at its first call and later."""

from __future__ import annotations

import inspect
import warnings

import pytest

import rushlight
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface.signatures import public_signature
from tests.catalog.rows import ROWS
from tests.catalog.run import samples_of, to_tensor

SPELLED = {"fft": rushlight.fft, "linalg": rushlight.linalg}
NAMES = [name for name in REGISTRY if not name.startswith("to_")]  # those are kernels of Tensor.to
ROW = {row.name: row for row in ROWS}


def public_of(name):
    """The function that users call, and the name that they call it by."""
    room, _, rest = name.partition("_")
    if room in SPELLED and hasattr(SPELLED[room], rest):
        return getattr(SPELLED[room], rest), rest
    if REGISTRY[name].top:
        return getattr(rushlight, name), name
    return getattr(rushlight.nn.functional, name), name


def called(function, args, named):
    """What a call says: the class of the error and its text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*args, **named)
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""


def sample_of(function, row):
    """Arguments of the catalog; of a row without samples, what the annotations ask for."""
    found = [(d, s) for d in row.dtypes for s in samples_of(row, d)]
    if not found:
        needed = [p for p in parameters_of(function) if p.default is p.empty]
        kinds = inspect.unwrap(function).__annotations__
        made = {"Value": rushlight.ones(2), "int": 2, "Sequence[int]": (2,)}
        return [made.get(kinds.get(p.name), 2) for p in needed if p.kind is not p.KEYWORD_ONLY], {}
    dtype, sample = found[0]

    def tensor(a):
        if isinstance(a, (list, tuple)):
            return type(a)(tensor(b) for b in a)
        return to_tensor(a, dtype, "cpu") if hasattr(a, "__array_interface__") else a

    return [tensor(a) for a in sample.args], {k: tensor(a) for k, a in sample.named.items()}


def parameters_of(function):
    return list(public_signature(function).parameters.values())


def wrong_calls(function, row):
    """(what is wrong, arguments, keywords, the argument that the error names)."""
    args, named = sample_of(function, row)
    parameters = parameters_of(function)
    by_place = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    some = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if not some:
        yield "too many", [*args, *[None] * (len(by_place) - len(args)), object()], {}, ""
    if called(function, args, named)[0] != "no error":
        return  # the row calls a function of the op
    yield "unknown keyword", args, named | {"nonsense": 1}, "nonsense"
    needed = [p.name for p in by_place if p.default is p.empty]
    if needed and len(args) <= len(needed) and not some and not set(needed) & set(named):
        yield "one missing", args[: len(needed) - 1], named, needed[len(needed) - 1]
    if args and isinstance(args[0], rushlight.Tensor) and by_place:
        yield "text for a tensor", ["text", *args[1:]], named, by_place[0].name
    for place, p in enumerate(by_place):
        if p.name == "dim" and inspect.unwrap(function).__annotations__.get("dim") == "int":
            if place < len(args):
                yield "a list for dim", [*args[:place], ["0"], *args[place + 1 :]], named, "dim"
            else:
                yield "a list for dim", args, named | {"dim": ["0"]}, "dim"


def test_most_ops_are_called_with_every_mistake():
    wrong = {name: list(wrong_calls(public_of(name)[0], ROW[name])) for name in NAMES}
    assert sum(len(calls) < 2 for calls in wrong.values()) < 40
    assert sum(len(calls) for calls in wrong.values()) > 3 * len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_call_names_op_and_argument(name):
    function, shown = public_of(name)
    for wrong, args, named, argument in wrong_calls(function, ROW[name]):
        first, *later = [called(function, args, named) for _ in range(3)]
        assert later == [first, first], f"{wrong}: first {first}, then {later}"
        kind, text = first
        assert kind != "no error", wrong
        assert shown in text, f"{wrong}: no {shown!r} in {kind}: {text}"
        assert argument in text, f"{wrong}: no {argument!r} in {kind}: {text}"
