"""Integer division: quotients rounded down or towards zero, and remainders.

Zero divisors are refused.

# Note [Division by zero]
1. Integers have no value for it. PyTorch raises on the CPU, and leaves the result undefined on
   other devices, where a check would have to wait. So a synchronous device checks that all divisors
   are nonzero before the kernel runs; elsewhere the result is 0, as the scalar instructions define
   it.
2. The kernels in `arithmetic.py` do not check. Composite ops use those, with divisors they know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.errors import DivisionByZero
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import register
from rushlight.tape.record.state import Changed
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of


def check_divisor(op: str, x: Any, y: Any) -> None:
    """Refuse zeros among the divisors of integers."""
    if isinstance(y, Value):
        spec = y._spec
        limits = spec.device.device.limits
        if spec.dtype.kind not in "biu" or not spec.numel:
            return
        if limits.asynchronous or not limits.computes:
            return
        whole = x._spec.dtype.kind in "biu" if isinstance(x, Value) else isinstance(x, int)
        if not whole:
            return
        with Changed(grad=False):
            good: Any = reductions.all_(physical_of(y))
        if not good.item():
            raise DivisionByZero(
                f"ZeroDivisionError: {op}: there is a zero among the integers of the divisor "
                f"{spec!r}"
            )
    elif isinstance(y, int) and y == 0 and isinstance(x, Value) and x._spec.dtype.kind in "biu":
        raise DivisionByZero(f"ZeroDivisionError: {op}: {x._spec!r} is divided by the integer zero")


def _with_divisor_check(kernel: Callable[..., Any], operator: str = "") -> Callable[..., Any]:
    name = kernel.__name__

    def function(input: Any, other: Any, *, out: Any = None) -> Any:
        check_divisor(name, input, other)
        return kernel(input, other) if out is None else kernel(input, other, out=out)

    function.op = kernel.op  # type: ignore[attr-defined]
    function.takes_out = True  # type: ignore[attr-defined]
    doc = kernel.__doc__ or ""
    return register(name, function, doc, inplace="divisor", out="cast", operator=operator)


floor_divide = _with_divisor_check(e.floor_divide, "floordiv")
remainder = _with_divisor_check(e.remainder, "mod")
fmod = _with_divisor_check(e.fmod)


def truncated(x: Any, y: Any) -> Value:
    """Quotient of integers rounded towards zero."""
    check_divisor("div", x, y)
    return e.floor_divide(e.sub(x, e.fmod(x, y)), y)
