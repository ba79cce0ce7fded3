"""Arguments of public functions: converted and checked once, where they come in.

Owns: what an annotation of a public function takes, and the errors for what it does not take.
Takes: a function. Gives: the same function over arguments of the declared kinds.

# Note [Arguments]
1. A declaration's annotations say what an argument is. Where one says `int`, a tensor with one
   integer, a NumPy integer and whatever else has `__index__` come to the function as an int; in a
   `Sequence[int]` each element does. So no op computes a size or an address with anything but
   Python's own ints.
2. An int that no int64 holds, a float, text or None in an int's place is refused here, with the op,
   the argument and what was given. What range an argument has is a question for the op itself.
3. Numbers that may be fractions stay what they are, also as tensors; text or None in their place is
   refused. Where an annotation says `bool`, the function gets a bool; 0 and 1 stand for them, which
   `memo` cannot tell apart from False and True, and anything else is refused.
4. Tensors and types are not looked at before the call: the op finds out. Where it ends in an error
   of Python's own, or in an op that it calls refusing an operand, the arguments are compared with
   the annotations, and the first that does not fit is named. Every error names the op that was
   called.
5. This lies below `memo` (Note [Memo]): a call that is known does not come here. Reading a tensor's
   element is no noted call, so a call with a tensor in an int's place is never learned.
6. Annotations are read at the first call, which also gives the function code of its own: a test per
   int, and no packing of arguments, cost a tenth of what a loop over annotations would. Ops call
   each other without this: what they pass on is converted already.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rushlight.core.dtypes import PYTHON, DType
from rushlight.core.errors import (
    AnomalyError,
    DTypeError,
    ForeignAccess,
    KindError,
    RushlightError,
    SparseOperandError,
)
from rushlight.tape.record.source_line import OURS
from rushlight.tape.record.value import Value

F = TypeVar("F", bound=Callable[..., Any])
LEAST, MOST = -(1 << 63), (1 << 63) - 1


class IntRangeError(RushlightError, ValueError, OverflowError):
    """An integer outside of int64, the dtype of every size and index."""


class ArgumentKindError(KindError, DTypeError):
    """An argument of another kind than the op takes."""


class Kind:
    """The values that one parameter accepts."""

    __slots__ = (
        "checked",
        "flag",
        "holes",
        "numbers",
        "others",
        "row",
        "shown",
        "tensors",
        "whole",
    )

    def __init__(self, hint: Any) -> None:
        members = typing.get_args(hint) if _is_union(hint) else (hint,)
        flat = [part for m in members for part in (typing.get_args(m) if _is_union(m) else (m,))]
        self.shown = " or ".join(dict.fromkeys(_shown(m) for m in flat))
        self.whole = int in flat and float not in flat
        inner = [_elements(m) for m in flat]
        self.row = any(_is_int(m) for m in inner)
        self.holes = any(_is_int(m) and m is not int for m in inner)  # a sequence of ints and None
        self.numbers = float in flat or complex in flat
        self.tensors = any(m is not None and not _is_int(m) for m in inner)
        self.others = tuple([m for m in map(_class_of, flat) if m is not None])
        self.flag = bool in flat and set(flat) <= {bool, type(None)}
        # Checked in every call.
        self.checked = self.flag or self.whole or self.row or (self.numbers and not any(inner))

    def converted(self, op: str, name: str, given: Any) -> Any:
        """An argument of ints or of a bool, as such."""
        if self.flag:
            return self.truth(op, name, given)
        if self.row and (given.__class__ is tuple or given.__class__ is list):
            for n in given:
                if n.__class__ is not int or not LEAST <= n <= MOST:
                    return type(given)([self.element(op, name, m) for m in given])
            return given
        if given.__class__ is int and self.whole:
            return in_range(op, name, given)
        if given.__class__ is bool and bool in self.others:
            return given
        if not isinstance(given, int) and isinstance(given, self.others):
            return given
        if self.numbers and (
            isinstance(given, (int, complex, Value)) or hasattr(given, "__float__")
        ):
            return given
        if self.whole:
            number = _number_of(op, name, given)
            if number is not None:
                return number
        if (
            self.row
            and not isinstance(given, (Value, str, bytes, dict, set))
            and hasattr(given, "__iter__")
        ):
            listed = [self.element(op, name, n) for n in given]
            plain = isinstance(given, tuple) and all(n.__class__ is int for n in given)
            return given if plain else tuple(listed)  # a Size stays one
        raise self.refusal(op, name, given)

    def truth(self, op: str, name: str, given: Any) -> bool | None:
        """An argument that is true or false."""
        if isinstance(given, Value):
            if given._spec.shape == ():
                return bool(given)
        elif given is None:
            if name == "requires_grad":  # whose None is False in PyTorch
                return False
        elif isinstance(given, (str, bytes)) or hasattr(given, "__len__"):
            pass
        elif given == 0 or given == 1:
            return bool(given)
        raise self.refusal(op, name, given)

    def element(self, op: str, name: str, given: Any) -> int | None:
        if given is None and self.holes:
            return None
        number = _number_of(op, name, given)
        if number is None:
            wanted = "ints or None" if self.holes else "ints"
            raise ArgumentKindError(
                f"{op}(): argument {name!r} must be a sequence of {wanted}, but one of them is "
                f"{described(given)}"
            )
        return number

    def takes(self, given: Any) -> bool:
        """Whether an argument is of the kind; called only after a call failed."""
        if given is None or isinstance(given, self.others):
            return isinstance(given, self.others)
        if DType in self.others and isinstance(given, type):
            return given in PYTHON
        if self.numbers and (
            isinstance(given, (int, complex, Value)) or hasattr(given, "__float__")
        ):
            return True
        if self.whole or self.row or self.tensors:
            return not isinstance(given, str) and (
                hasattr(given, "__index__")
                or (hasattr(given, "__iter__") and may_be_operand(given))
            )
        return not self.others

    def refusal(self, op: str, name: str, given: Any) -> ArgumentKindError:
        return ArgumentKindError(
            f"{op}(): argument {name!r} must be {self.shown}, got {described(given)}"
        )


def _is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union


def _elements(hint: Any) -> Any:
    """The element type of a sequence hint, or None."""
    origin = typing.get_origin(hint)
    if origin is None or not isinstance(origin, type) or not issubclass(origin, Sequence):
        return None
    return typing.get_args(hint)[0]


def _class_of(hint: Any) -> type | None:
    """The class of a hint's values, or None: of `Callable[..., Any]` it is `Callable`."""
    if isinstance(hint, type):
        return hint
    origin = typing.get_origin(hint)
    return origin if isinstance(origin, type) and _elements(hint) is None else None


def _is_int(hint: Any) -> bool:
    return hint is int or (_is_union(hint) and set(typing.get_args(hint)) == {int, type(None)})


_NAMES = {
    Value: "a tensor",
    DType: "a dtype",
    int: "an int",
    float: "a number",
    bool: "a bool",
    str: "text",
}
_NAMES |= {type(None): "None", complex: "a number"}


def _shown(hint: Any) -> str:
    inner = _elements(hint)
    if inner is not None:
        return (
            "a sequence of ints"
            if _is_int(inner)
            else f"a sequence of {'tensors' if inner is Value else 'numbers'}"
        )
    return _NAMES.get(hint) or str(getattr(hint, "__name__", hint))


def described(given: Any) -> str:
    """An argument in an error message."""
    if isinstance(given, Value):
        return f"the tensor {given._spec!r}"
    if isinstance(given, (str, bytes, bool, int, float, complex, type(None))):
        return f"{given!r:.60} of type {type(given).__name__}"
    return f"an object of type {type(given).__name__}"


def may_be_operand(given: Any) -> bool:
    """Whether an argument can be a tensor, a number, an option, or a sequence of them."""
    if isinstance(given, (list, tuple)):
        return all(may_be_operand(each) for each in given)
    return type(given) is not object and not isinstance(given, (str, bytes, dict, set))


def is_blamed(given: Any, error: Exception) -> bool:
    """Whether an error is about an argument, as its text says, that is no tensor and no number."""
    return not may_be_operand(given) and (
        re.search(rf"\b{type(given).__name__}\b", str(error)) is not None
        or repr(given) in str(error)
    )


def _is_foreign(error: Exception) -> bool:
    """Whether an error is a caller's: of a function, iterator or object that was passed in."""
    return not isinstance(error, RushlightError) and type(error).__module__ != "builtins"


def _is_renamed(error: Exception) -> bool:
    """Whether the text of an error is for `name_op` to change."""
    if isinstance(error, _AS_THEY_ARE) or _is_foreign(error):
        return False
    return bool(error.args) and isinstance(error.args[0], str)


def name_op(op: str, error: Exception) -> None:
    """Begin an error's text with the op that was called, if it does not name it."""
    if not _is_renamed(error):
        return
    said = error.args[0]
    if not re.search(rf"\b{re.escape(op)}\b", said):
        error.args = (f"{op}(): {said}", *error.args[1:])


def rename_op(name: str, alias: str, error: Exception) -> None:
    """Put the name by which an op was called in place of its own in an error's text."""
    if not _is_renamed(error):
        return
    said = error.args[0]
    if said.startswith((f"{name}(", f"{name}:")):
        error.args = (alias + said.removeprefix(name), *error.args[1:])
    name_op(alias, error)


def in_range(op: str, name: str, number: int) -> int:
    if not LEAST <= number <= MOST:
        raise IntRangeError(
            f"{op}(): argument {name!r} must lie between -2**63 and 2**63 - 1, got {number:#x}"
        )
    return number


def _number_of(op: str, name: str, given: Any) -> int | None:
    """An int from any of its forms, or None."""
    if isinstance(given, int):
        return given if given.__class__ is bool else in_range(op, name, operator.index(given))
    if isinstance(given, Value):
        if given._spec.numel != 1 or given._spec.dtype.kind not in "iu":
            return None
        return in_range(op, name, int(given))  # type: ignore[call-overload]  # Tensor has __int__
    try:
        return in_range(op, name, operator.index(given))
    except TypeError:
        return None


def dtype_of(op: str, name: str, given: Any) -> DType:
    """A dtype argument; Python's own types stand for some."""
    dtype = PYTHON.get(given, given) if isinstance(given, type) else given
    if not isinstance(dtype, DType):
        raise Kind(DType).refusal(op, name, given)
    return dtype


class Signature:
    """The parameters of one function, and the code that converts them. See Note [Arguments]."""

    __slots__ = ("function", "kinds", "op", "public")

    def __init__(self, op: str, function: Callable[..., Any]) -> None:
        self.op = op
        self.function = function
        self.kinds: dict[str, Kind] = {}
        self.public: Any = None

    def convert(self, name: str, given: Any) -> Any:
        return self.kinds[name].converted(self.op, name, given)

    def convert_each(self, name: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([self.kinds[name].converted(self.op, name, a) for a in given])

    def blame(self, error: Exception, given: dict[str, Any]) -> None:
        """Raise for the first argument that is not of its kind; else name the op in the error."""
        if isinstance(error, _AS_THEY_ARE) or _is_foreign(error):
            return
        if isinstance(error, (DTypeError, KindError)) or not isinstance(error, RushlightError):
            for name, kind in self.kinds.items():
                if name in given and not kind.takes(given[name]):
                    raise kind.refusal(self.op, name, given[name]) from error
            for name, value in given.items():
                if name not in self.kinds and is_blamed(value, error):
                    raise ArgumentKindError(
                        f"{self.op}(): argument {name!r} cannot be {described(value)}"
                    ) from error
        name_op(self.op, error)

    def specialised(self, *_: Any) -> Callable[..., Any]:
        """Give the public function generated code for its parameters."""
        inner = inspect.unwrap(self.function)
        parameters = inspect.signature(inner).parameters.values()
        hints = typing.get_type_hints(inner)
        kinds = {
            p.name: Kind(hints[p.name]) for p in parameters if hints.get(p.name, Any) is not Any
        }
        variadic = {p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        self.kinds = {
            name: kind for name, kind in kinds.items() if name not in variadic or kind.checked
        }
        public = self.public
        made = _compiled(self.op, parameters, self.kinds)
        # In this order another thread that calls it gets either the old code or all of the new.
        public.__defaults__ = tuple(
            [p.default for p in parameters if p.default is not p.empty and _by_place(p)]
        )
        public.__kwdefaults__ = {
            p.name: p.default for p in parameters if p.default is not p.empty and not _by_place(p)
        }
        public.__code__ = made
        return self.public


def _by_place(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _compiled(
    op: str, parameters: Iterable[inspect.Parameter], kinds: dict[str, Kind]
) -> types.CodeType:
    """Generated code of a function that checks each int and calls `_function`."""
    taken, passed, looks = [], [], []
    by_name = False  # whether the parameters after this one are keywords
    for p in parameters:
        kind = kinds.get(p.name)
        if p.kind is p.VAR_POSITIONAL or p.kind is p.VAR_KEYWORD:
            star = "*" if p.kind is p.VAR_POSITIONAL else "**"
            taken.append(star + p.name)
            passed.append(star + p.name)
            by_name = True
            if kind is not None:
                looks.append(_LOOK_AT_EACH.format(p.name, _UNFIT.format("each")))
            continue
        if p.kind is p.KEYWORD_ONLY and not by_name:
            taken.append("*")
            by_name = True
        taken.append(p.name if p.default is p.empty else f"{p.name}=None")
        passed.append(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name)
        if kind is not None and kind.checked:
            wanted = _UNFIT_FLAG if kind.flag else _UNFIT_NUMBER if kind.numbers else _UNFIT
            test = wanted.format(p.name)
            if type(None) in kind.others:
                test = f"{p.name} is not None and ({test})"
            looks.append(
                f"if {test}:\n            {p.name} = _signature.convert({p.name!r}, {p.name})"
            )
    # Not `locals()`, which the frame would keep, and with it the error that keeps the frame.
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    given = ", ".join(f"{name!r}: {name}" for name in named)
    text = _TEXT.format(
        ", ".join(taken), "\n        ".join(looks) or "pass", ", ".join(passed), given
    )
    scope: dict[str, Any] = {}
    file = f"<arguments of {op}>"
    OURS[file] = True  # see Note [Source lines] 2
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return scope["bind"](None, None).__code__


# Errors that say nothing about an argument, or that a caller handles.
_AS_THEY_ARE = (SparseOperandError, AnomalyError, ForeignAccess, MemoryError, Warning)
_UNFIT_FLAG = "{0}.__class__ is not bool"
_UNFIT = f"{{0}}.__class__ is not int or not {LEAST} <= {{0}} <= {MOST}"
_UNFIT_NUMBER = "{0}.__class__ is not float and {0}.__class__ is not int"
_LOOK_AT_EACH = """for each in {0}:
            if {1}:
                {0} = _signature.convert_each({0!r}, {0})
                break"""
_TEXT = """
def bind(_function, _signature):
    def called({0}):
        {1}
        try:
            return _function({2})
        except Exception as error:
            _signature.blame(error, {{{3}}})
            raise
    return called
"""


def without_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without its parameter `out`; itself where it has none.

    The copy has the parameter under a name that is hidden: a call costs the same.
    """
    signature: Signature | None = getattr(function, "checked_by", None)
    if signature is not None and signature.public is function:
        inner = without_out(signature.function)
        return function if inner is signature.function else checked(signature.op, inner)
    code = getattr(function, "__code__", None)
    if code is None or "out" not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return function
    assert isinstance(function, types.FunctionType)
    names = ["_out" if name == "out" else name for name in code.co_varnames]
    made = types.FunctionType(
        code.replace(co_varnames=tuple(names)),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(made, function)
    made.__kwdefaults__ = {
        "_out" if name == "out" else name: value
        for name, value in (function.__kwdefaults__ or {}).items()
    }
    del made.__wrapped__  # type: ignore[attr-defined]  # whose signature has `out`
    vars(made).pop("takes_out", None)
    return made


def public(function: F) -> F:
    """`checked`, of a function under its own name."""
    return checked(function.__name__, function)  # type: ignore[return-value]


def checked(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, over arguments of the kinds in its annotations. See Note [Arguments]."""
    annotations = getattr(inspect.unwrap(function), "__annotations__", {})
    if all(hint == "Any" for name, hint in annotations.items() if name != "return"):
        return function
    _function, _signature = function, Signature(op, function)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        return _signature.specialised(_function)(*args, **named)

    _signature.public = called
    called.checked_by = _signature  # type: ignore[attr-defined]
    return called
