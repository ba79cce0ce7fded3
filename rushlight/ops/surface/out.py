"""`out=`: a result stored in existing tensors.

# Note [Out arguments]
1. Only functions of a module take `out`, never methods. A declaration states which, and what is
   stored (`Entry.out`); `public.py` gives a function the keyword when its name is first used.
2. The elementwise call sites and the short composites take `out` themselves (`takes_out`), because
   a wrapper would cost a tenth of the call; a method has the same code without the parameter
   (`without_out`). A memoised function is two memos that share their programs: under the one with
   `out` lies the wrapper that handles the keyword, and it runs only where a call is not memoised.
   All others are called by such a wrapper.
3. The result is made first and then stored, so `out` may overlap the inputs. It is resized where
   its shape differs, with PyTorch's warning where it had elements, and cast where PyTorch would.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from rushlight.core.errors import RushlightError, SparseOperandError
from rushlight.ops.registry import Out
from rushlight.ops.surface.keywords import Names
from rushlight.ops.surface.signatures import explain
from rushlight.tape.program.memo import kinds_of, memo
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.state import without_autocast
from rushlight.tape.record.value import Value


def tensors_only(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with PyTorch's error for an argument that is no tensor."""

    names = Names(function)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        if named:
            args, named = names.of(args, named)
        try:
            return function(*args, **named)
        except SparseOperandError as error:  # See Note [Sparse operands]
            sparse = error.obj
        except Exception as error:
            explain(name, function, error, args, named)
            raise
        return sparse.instead(name, args, named)

    called.takes_names = True  # type: ignore[attr-defined]  # whatever is put around it with functools.wraps says so too
    return called


def kinds_only(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose error for an argument of another kind says what was given."""

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except Exception as error:
            explain(name, function, error, args, named)
            raise

    return called


def with_out(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with an `out` keyword."""
    kinds = kinds_of(function)
    if kinds is None:
        return _storing(name, function)
    return memo(_storing(name, kinds.function), kinds.depends, kinds)


def _storing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    kind: Out = function.stores  # type: ignore[attr-defined]
    makes = kind in ("made", "line")
    parameters = list(inspect.signature(function).parameters)
    flag = parameters.index("inplace") if "inplace" in parameters else len(parameters)
    if not hasattr(function, "op") and not hasattr(function, "takes_names"):
        function = tensors_only(name, function)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        out = named.pop("out", None) if named else None
        if out is None:
            return function(*args, **named)
        if named.get("inplace") or any(args[flag : flag + 1]):
            raise TypeError(f"{name}(): pass out or inplace, not both")
        if makes and isinstance(out, Value):
            if named.get("dtype") not in (None, out._spec.dtype):
                raise RushlightError(
                    f"{name}(): dtype {named['dtype']!r} does not match that of out, {out._spec!r}"
                )
            named |= {"dtype": out._spec.dtype, "device": out._spec.device.device.name}
        if kind in ("dtype", "same") and isinstance(out, Value):
            if named.get("dtype") not in (None, out._spec.dtype):
                raise RushlightError(
                    f"{name}(): dtype {named['dtype']!r} does not match that of out, {out._spec!r}"
                )
            if kind == "dtype":
                named["dtype"] = out._spec.dtype
        made = without_autocast(function, args, named)
        if (
            kind == "bounds"
            and isinstance(out, Value)
            and not any(isinstance(v, Value) for v in (*args[1:], *named.values()))
        ):
            check_exact(name, out, made)
        if kind == "numbers" and isinstance(out, Value):
            made = Needed.cast(made, out._spec.dtype)
        if kind == "line" and isinstance(out, Value) and out._spec.numel == made._spec.numel:
            made = Needed.reshape(made, out._spec.shape)  # a vector fills an out of any shape
        return Needed.store_out(name, out, made, kind)

    called.takes_out = True  # type: ignore[attr-defined]
    return called


def check_exact(name: str, out: Value, result: Value) -> None:
    if out._spec.dtype is not result._spec.dtype:
        raise RushlightError(
            f"{name}(): expected out to have type {result._spec.dtype.name}, but got "
            f"{out._spec!r}; give an out of that type"
        )
