"""Wrong calls of every public function, made from a right one; and PyTorch's verdict on each.

`python -m tests.ops.wrong_calls` writes `pytorch_accepts.csv`; it needs PyTorch.
"""

from __future__ import annotations

import csv
import functools
import inspect
import pathlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import rushlight
from rushlight.ops import declared
from rushlight.ops.registry import REGISTRY
from rushlight.tensor import Tensor
from tests.catalog.row import Row, Sample
from tests.catalog.rows import ROWS
from tests.catalog.run import samples_of, to_tensor

VERDICTS = pathlib.Path(__file__).with_name("pytorch_accepts.csv")
NAMESPACES = ("nn.functional", "linalg", "fft", "special")
ROW_OF: dict[str, list[Row]] = {}
for _row in ROWS:
    ROW_OF.setdefault(_row.name, []).append(_row)
# Right calls of ops without samples in the catalog: their results are random.
x, p = rushlight.ones(2, 3), rushlight.full((2, 3), 0.5)
UNSAMPLED: dict[str, tuple[Any, ...]] = {
    "alpha_dropout": (x, 0.5, True),
    "bernoulli": (p,),
    "binomial": (x, p),
    "dropout": (x, 0.5, True),
    "dropout1d": (x, 0.5, True),
    "dropout2d": (rushlight.ones(2, 3, 4, 4), 0.5, True),
    "dropout3d": (rushlight.ones(2, 3, 4, 4, 4), 0.5, True),
    "feature_alpha_dropout": (x, 0.5, True),
    "feature_dropout": (x, 0.5, True),
    "index_put": (x, (rushlight.tensor([0]),), rushlight.ones(3)),
    "multinomial": (p, 2),
    "normal": (x, p),
    "poisson": (x,),
    "rand": (2, 3),
    "rand_like": (x,),
    "randint": (0, 5, (2, 3)),
    "randint_like": (x, 5),
    "randn": (2, 3),
    "randn_like": (x,),
    "randperm": (5,),
}
WRONG = {"text": "wrong", "object": object(), "texts": ["wrong"]}
NUMBER = {"number": 1.5}


@dataclass(frozen=True)
class Target:
    """A function as users call it."""

    path: str  # "linalg.det", "Tensor.add_"
    op: str
    method: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def function(self) -> Any:
        return functools.reduce(getattr, self.path.split("."), rushlight)


@dataclass(frozen=True)
class Wrong:
    """A wrong call, and what its error must name."""

    what: str
    args: tuple[Any, ...]
    named: dict[str, Any]
    argument: str = ""


def targets() -> Iterator[Target]:
    """All functions of the package and its namespaces that are ops, and the methods."""
    for name in REGISTRY:
        if REGISTRY[name].top and not name.startswith("to_"):  # those are kernels of Tensor.to
            yield Target(name, name)
    special = {n: op for op in REGISTRY for n in REGISTRY[op].special.split()}
    linalg = {REGISTRY[op].linalg: op for op in REGISTRY if REGISTRY[op].linalg}
    for space in NAMESPACES:
        module = functools.reduce(getattr, space.split("."), rushlight)
        for name in module.__all__:
            own = {"special": special, "linalg": linalg}.get(space, {})
            found = own.get(name) or next(
                (n for n in (f"{space}_{name}", name) if n in REGISTRY), ""
            )
            same = found and getattr(rushlight, found, None) is getattr(module, name)
            if found and not same and found in ROW_OF:
                yield Target(f"{space}.{name}", found)
    for name in declared.METHODS:
        if not name.startswith("to_"):
            yield Target(f"Tensor.{name}", name, True)
    for name in declared.IN_PLACE:
        yield Target(f"Tensor.{name}", name.removesuffix("_"), True)


@functools.cache
def right_call(target: Target) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Arguments that the function takes, from the catalog."""
    for args, named in _known(target.op):
        if target.method and not (args and isinstance(args[0], Tensor)):
            continue
        if verdict(target.function, args, named)[0] == "accepted":
            return args, named
    return None


def _known(op: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    if op in UNSAMPLED:
        yield UNSAMPLED[op], {}
    for row in ROW_OF[op]:
        for dtype in row.dtypes:
            for sample in samples_of(row, dtype):
                yield _as_tensors(sample, dtype)


def _as_tensors(sample: Sample, dtype: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def tensor(a: Any) -> Any:
        if isinstance(a, (list, tuple)):
            return type(a)(tensor(b) for b in a)
        return to_tensor(a, dtype, "cpu") if hasattr(a, "__array_interface__") else a

    return tuple(map(tensor, sample.args)), {k: tensor(a) for k, a in sample.named.items()}


def verdict(function: Any, args: Any, named: dict[str, Any]) -> tuple[str, str]:
    """The class of the error of a call and its text; "accepted" where there is none."""
    copied = [a.clone() if isinstance(a, Tensor) else a for a in args]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*copied, **named)
    except Exception as error:
        return type(error).__name__, str(error)
    return "accepted", ""


def wrong_calls(target: Target) -> Iterator[Wrong]:
    """Every mistake in the arguments of one function."""
    found = right_call(target)
    if found is None:
        return
    args, named = found
    parameters = list(inspect.signature(target.function).parameters.values())
    by_place = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if not variadic:
        yield from _miscounted(args, named, by_place)
    yield Wrong("unknown keyword", args, named | {"nonsense": 1}, "nonsense")
    if target.method and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        yield Wrong("out", args, named | {"out": rushlight.ones(3)}, "out")
    if args and by_place and not target.method:
        twice = named | {by_place[0].name: args[0]}
        yield Wrong("given twice", args, twice, by_place[0].name)
    for place, p in enumerate(parameters[int(target.method) :], int(target.method)):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        flag = isinstance(p.default, bool)
        more = NUMBER if p.name == "dim" else NUMBER if flag else {}
        for kind, value in (WRONG | more).items():
            what = f"{p.name}={kind}"
            if place < len(args) and p in by_place:
                yield Wrong(what, (*args[:place], value, *args[place + 1 :]), named, p.name)
            else:
                yield Wrong(what, args, named | {p.name: value}, p.name)


def _miscounted(args: tuple[Any, ...], named: dict[str, Any], by_place: Any) -> Iterator[Wrong]:
    if not set(named) & {p.name for p in by_place}:
        filled = (*args, *[p.default for p in by_place[len(args) :]])
        for extra in (None, args[-1] if args else 1):
            for count in (1, 2, 4, 7):
                what = f"{count} too many: {type(extra).__name__}"
                yield Wrong(what, filled + (extra,) * count, named)
    needed = [p.name for p in by_place if p.default is p.empty]
    if needed and len(args) <= len(needed) and not set(needed) & set(named):
        yield Wrong("one missing", args[: len(needed) - 1], named, needed[-1])


def main() -> None:
    import torch

    def theirs(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy(value.detach().numpy().copy())
        if isinstance(value, rushlight.dtype):
            return getattr(torch, value.name)
        if isinstance(value, (list, tuple)):
            return type(value)(theirs(v) for v in value)
        return value

    def accepts(function: Any, args: Any, named: dict[str, Any]) -> bool:
        try:
            function(*map(theirs, args), **{k: theirs(v) for k, v in named.items()})
        except Exception:
            return False
        return True

    rows = []
    for target in targets():
        print(target.path, file=sys.stderr)
        try:
            function = functools.reduce(getattr, target.path.split("."), torch)
        except AttributeError:
            function = None
        right = right_call(target)
        if right is None or function is None or not accepts(function, *right):
            continue
        rows += [
            [target.path, w.what] for w in wrong_calls(target) if accepts(function, w.args, w.named)
        ]
    with VERDICTS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
