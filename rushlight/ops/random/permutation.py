"""Random permutations: the order of random numbers."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType, int64
from rushlight.core.errors import RushlightError
from rushlight.ops.create import creation
from rushlight.ops.create.creation import requiring, resolve_pool, take
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random.random import DIGITS, Generator, drawing, randint
from rushlight.ops.registry import composite
from rushlight.ops.sort.sort import argsort
from rushlight.tape.record.value import Value


@composite("randperm", method=False, out="made")
@drawing
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType = int64,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """0 to n - 1 in random order, by sorting random numbers: the same on every device."""
    take("randperm", named)
    if n < 0:
        raise RushlightError(f"randperm: n must not be negative, got {n}")
    creation.check_holds("randperm", 0, max(n - 1, 0), dtype)
    if dtype.kind == "f" and n > (1 << DIGITS[dtype]) + 1:
        raise RushlightError(
            f"randperm: n is at most {(1 << DIGITS[dtype]) + 1} for {dtype.name}, got {n}"
        )
    name = resolve_pool(device).device.name
    if n == 0:
        return creation.empty(0, dtype=dtype, device=name)
    keys = randint(0, 1 << 48, (n,), device=name, generator=generator)
    return requiring(e.cast(argsort(keys), dtype), requires_grad)
