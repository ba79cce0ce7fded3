"""PyTorch's older calls with factors among the tensors: addmm(beta, input, alpha, a, b).

Programs from before PyTorch 1.5 use them, and PyTorch still accepts them.
"""

from __future__ import annotations

from typing import Any

from rushlight.tape.record.value import Value

_NUMBERS = (int, float, complex)


def rearranged(
    op: str, given: tuple[Any, ...], tensors: int, factors: tuple[str, ...]
) -> tuple[list[Any], dict[str, Any]]:
    """The tensors of such a call in order, and the numbers among them as keywords."""
    values = [v for v in given if isinstance(v, Value)]
    numbers = [v for v in given if isinstance(v, _NUMBERS)]
    if (
        len(values) != tensors
        or not 1 <= len(numbers) <= len(factors)
        or len(values) + len(numbers) != len(given)
    ):
        wanted = ", ".join(f"{name}=" for name in factors)
        kinds = ", ".join(type(v).__name__ for v in given)
        raise TypeError(f"{op}() takes {tensors} tensors, and {wanted} by name; got ({kinds})")
    return values, dict(zip(factors, numbers, strict=False))
