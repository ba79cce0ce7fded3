"""A kernel as a short text, unique per kernel: the key under which its code is cached on disk."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.kernel.shapes import Kernel
from rushlight.scalar.ir import Expr
from rushlight.scalar.named import USES


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
    """Write the expression's parts, each once, operands before users.

    a part's number is its position. The instruction determines how many words a part has. Formulas
    can have thousands of parts, most of them with two operands. A named formula is written as its
    name and its operands: its text is among the sources that the key covers.
    """
    stack = [root]
    while stack:
        expr = stack[-1]
        use = USES.get(expr)
        parts, head = expr.args, expr.op
        if use is not None and expr not in use.given:
            parts, head = use.given, use.named.name
        waiting = len(stack)
        for part in parts[::-1]:
            if part not in numbers:
                stack.append(part)
        if len(stack) > waiting:
            continue
        stack.pop()
        if expr in numbers:
            continue
        numbers[expr] = str(len(numbers))
        words += (head, expr.dtype.name)
        if len(parts) == 2:
            words += (numbers[parts[0]], numbers[parts[1]])
        elif parts:
            words += [numbers[part] for part in parts]
        else:
            words.append(repr(expr.value))
