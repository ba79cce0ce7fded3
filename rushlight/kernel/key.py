"""A kernel as a short text that tells it from every other kernel: the key under which its code is kept on disk."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.kernel.shapes import Kernel
from rushlight.scalar.ir import Expr, topological


def key_of(kernel: Kernel) -> str:
    words: list[str] = []
    numbers: dict[Expr, str] = {}
    head = _spell(kernel, words, numbers)
    return f"{head}\n{' '.join(words)}"


def _spell(value: Any, words: list[str], numbers: dict[Expr, str]) -> str:
    if isinstance(value, Expr):
        if value not in numbers:
            _number(value, words, numbers)
        return f"%{numbers[value]}"
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple):
        return f"({' '.join([_spell(item, words, numbers) for item in value])})"
    if is_dataclass(value):
        parts = [_spell(getattr(value, f.name), words, numbers) for f in fields(value)]
        return f"{type(value).__name__}({' '.join(parts)})"
    return repr(value)


def _number(root: Expr, words: list[str], numbers: dict[Expr, str]) -> None:
    """Writes what the expression is made of, each part once, operands before users; a part's number is its place in that order.

    How many words a part has follows from its instruction. Formulas can have a thousand parts, most of them of two operands.
    """
    for expr in topological((root,)):
        if expr not in numbers:
            numbers[expr] = str(len(numbers))
            args = expr.args
            if len(args) == 2:
                words += (expr.op, expr.dtype.name, numbers[args[0]], numbers[args[1]])
            elif args:
                words += (expr.op, expr.dtype.name, *[numbers[a] for a in args])
            else:
                words += (expr.op, expr.dtype.name, repr(expr.value))
