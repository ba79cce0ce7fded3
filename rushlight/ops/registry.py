"""The list of public ops. A declaration registers its op here with its facts.

`Tensor` and the package read them.

# Note [Facts of an op]
1. A declaration names its op and states its other forms in PyTorch: namespaces, an in-place form,
   `out=`, an operator. No other file lists ops by name.
2. A family sets defaults: an elementwise op that is a method and a name of the package has an
   in-place form, and its call site takes `out`. A declaration states what differs.
3. Batching rules and the names of saved values are facts about kernels: a kernel's constructor
   takes them (`batching`, `operands`, `results`).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack

from rushlight.ops.arguments import checked, rename_op, without_out
from rushlight.ops.declared import MODULES
from rushlight.tape.record.state import STATE

get_state = STATE.get

InPlace = Literal[
    "",  # no in-place form
    "result",  # the op's result replaces the tensor's content
    "view",  # the tensor becomes the view
    "scatter",  # writes at an index. See Note [Scattering in place]
    "fold",  # the same, and derivatives of other operands read the tensor
    "scaled",  # takes `alpha`
    "quotient",  # takes `rounding_mode`
    "divisor",  # refuses integer zeros. See Note [Division by zero]
]
Out = Literal[
    "",  # takes no `out`
    "cast",  # the result is cast to the dtype of `out`
    "exact",  # `out` has the dtype of the result
    "flags",  # exact, or uint8 for bool
    "bounds",  # exact, unless a bound is a tensor
    "dtype",  # the result is computed in the dtype of `out`
    "same",  # a `dtype` argument is that of `out`
    "made",  # `out` gives dtype and device of the new tensor
    "line",  # made, and fills an `out` of any shape
    "numbers",  # 0 and 1, which every dtype holds
]
Cast = Literal[
    "lower",  # operands in the chosen dtype
    "float32",  # operands in float32
    "widest",  # operands in the widest dtype among them
    "dtype",  # `dtype` is float32 where the call does not state it
    "refused",  # raises
]


class Facts(TypedDict, total=False):
    """The facts that a declaration may state; `Entry` has the meanings."""

    method: bool
    top: bool
    inplace: InPlace
    inplace_top: bool
    out: Out
    out_top: bool
    pure: bool
    fresh: bool
    special: str
    linalg: str
    operator: str
    keywords: dict[str, str]
    autocast: Cast | dict[str, Cast]


@dataclass(frozen=True)
class Entry:
    """One public op: `rushlight.<name>` and `Tensor.<name>`. See Note [Facts of an op]."""

    name: str
    function: Callable[..., Any]
    doc: str
    method: bool = True  # also a method of Tensor
    top: bool = True  # also a name of the package; else only of a namespace
    inplace: InPlace = ""  # how `Tensor.<name>_` writes
    inplace_top: bool = False  # `<name>_` is also a function of the package
    out: Out = ""  # the value that `<name>(..., out=)` stores
    out_top: bool = True  # also in the function of the package, not only in a namespace's
    # Memoised: the op draws no random numbers, reads no element, writes nothing, and depends on no
    # setting except the default dtype and device.
    pure: bool = False
    fresh: bool = False  # a view that is never the argument itself
    special: str = ""  # its names in `rushlight.special`
    linalg: str = ""  # its name in `rushlight.linalg`, where its own does not begin with `linalg_`
    operator: str = ""  # `Tensor.__<operator>__` calls it
    keywords: dict[str, str] = field(default_factory=dict)  # PyTorch's other names of arguments
    # What becomes of operands under `autocast`, for all devices or by "cpu" and "gpu", which is
    # every other device. See Note [Autocast].
    autocast: Cast | dict[str, Cast] = field(default_factory=dict)


class Registry(Mapping[str, Entry]):
    """Public ops by name. A lookup imports the file that declares the op, iteration imports all.

    `declared` holds the entries of the imported files. A lookup returns an entry whose function is
    the one that users call.
    """

    def __init__(self) -> None:
        self.declared: dict[str, Entry] = {}
        self.finish: Callable[[Entry], Entry] = _as_declared  # set by `surface/wiring.py`
        self._finished: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        found = self._finished.get(name)
        if found is None:
            if name not in self.declared:
                importlib.import_module(f"rushlight.ops.{MODULES[name]}")
            found = self._finished.setdefault(name, self.finish(self.declared[name]))
        return found

    def __contains__(self, name: object) -> bool:
        return name in MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


def _as_declared(entry: Entry) -> Entry:
    return entry


REGISTRY = Registry()


def register(
    name: str, function: Callable[..., Any], doc: str, **facts: Unpack[Facts]
) -> Callable[..., Any]:
    """Register a function.

    Returns the function for other ops, without the check of its arguments.
    """
    if name in REGISTRY.declared:
        raise ValueError(f"op {name!r} is declared twice")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.stores = facts.get("out", "")  # type: ignore[attr-defined]
    function.keywords = facts.get("keywords", {})  # type: ignore[attr-defined]
    casts = casts_of(facts)
    if casts is not None and not hasattr(function, "op"):
        function = _casting(function, casts)
    shown = name.replace("_", ".", 1) if name.startswith(("fft_", "linalg_")) else name
    public = function if hasattr(function, "op") else checked(shown, function)
    REGISTRY.declared[name] = Entry(name, public, doc, **facts)
    return function


def casts_of(facts: Facts) -> dict[str, Cast] | None:
    """What an op states about autocast, by "cpu" and "gpu"; None where it states nothing."""
    stated = facts.get("autocast") or None
    return {"cpu": stated, "gpu": stated} if isinstance(stated, str) else stated


def _casting(function: Callable[..., Any], casts: dict[str, Cast]) -> Callable[..., Any]:
    """The function of a listed op. See Note [Autocast]."""

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        autocast = get_state().autocast
        if autocast is None:
            return function(*args, **named)
        return autocast.call(casts, function, args, named)

    called.casts = casts  # type: ignore[attr-defined]
    return called


def composite(
    name: str, **facts: Unpack[Facts]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an op that is only a function of other ops; its docstring is its doc."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return register(name, function, function.__doc__ or "", **facts)

    return wrap


def stores(out: Out) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """State the value that a public function that is no op stores in `out`."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.stores = out  # type: ignore[attr-defined]
        return function

    return mark


def casts(autocast: Cast | dict[str, Cast]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """State what autocast makes of the operands of a public function that is no op."""
    stated = casts_of({"autocast": autocast})
    assert stated is not None
    return lambda function: _casting(function, stated)


def second_name(
    alias: str, function: Callable[..., Any], **facts: Unpack[Facts]
) -> Callable[..., Any]:
    """Declare another name of an op; it has the op's facts but for those stated."""
    known = without_out(function)  # See Note [Out arguments]

    def called(*args: Any, **named: Any) -> Any:
        try:
            return known(*args, **named)
        except Exception as error:
            rename_op(function.__name__, alias, error)
            raise

    called.__wrapped__ = known  # type: ignore[attr-defined]  # whose signature it shows
    if hasattr(function, "op"):
        called.op = function.op  # type: ignore[attr-defined]  # from which the in-place form is made
    op = REGISTRY.declared[function.__name__]
    inherited: Facts = {"inplace": op.inplace, "inplace_top": op.inplace_top, "out": op.out}
    inherited["autocast"] = op.autocast
    return register(alias, called, function.__doc__ or "", **(inherited | facts))
