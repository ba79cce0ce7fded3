"""An optimiser's formula as a kernel that writes a whole step of one parameter and its state.

# Note [Optimisers]
1. A formula is `formula(p, g, **state, **numbers, **choices)`; it gives the new parameter and the
   new state. It is written once, in scalar expressions: the fused step, the differentiable step and
   the step by rows of a sparse gradient are made from it.
2. Numbers (rates, bias corrections) change from step to step. They are launch parameters, computed
   in float64 by the optimiser. Choices (Nesterov's momentum or not) select another kernel.
3. `maximize` and weight decay are the same for all optimisers and are applied before the formula:
   decoupled decay scales p, the other adds p * decay to g.
4. Numbers that only the device knows are operands. Where the first of these, `found`, is not 0,
   nothing changes: Note [Steps decided on the device].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from rushlight.ops.view.inplace import Update
from rushlight.scalar.build import absolute, maximum, minimum, sqrt, where
from rushlight.scalar.ir import Expr, const

__all__ = [
    "Expr",
    "Formula",
    "absolute",
    "const",
    "kernel_of",
    "maximum",
    "minimum",
    "sqrt",
    "where",
]

Formula = Callable[..., Sequence[Expr]]


@functools.cache
def kernel_of(
    formula: Formula,
    name: str,
    doc: str,
    state: tuple[str, ...],
    numbers: tuple[str, ...],  # "decay" among them where weights may decay
    operands: tuple[str, ...],  # "found" and the numbers that are operands, or none
    choices: tuple[tuple[str, bool], ...],
    decays: bool,
    decoupled: bool,
    maximize: bool,
) -> Update:
    """An update of p and the state by g and the numbers. See Note [Optimisers]."""

    def body(p: Expr, *rest: Expr) -> tuple[Expr, ...]:
        named = dict(zip((*state, "g", *operands, *numbers), rest, strict=True))
        g, decay, found = named.pop("g"), named.pop("decay", None), named.pop("found", None)
        old = (p, *rest[: len(state)])
        if maximize:
            g = -g
        if decays and decay is not None:
            p, g = (p * decay, g) if decoupled else (p, g + p * decay)
        new = tuple(formula(p, g, **named, **dict(choices)))
        if found is None:
            return new
        return tuple(where(found > 0, kept, made) for kept, made in zip(old, new, strict=True))

    return Update(name, body, 1 + len(state), len(numbers), doc)
