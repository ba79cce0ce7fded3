"""A kernel as a short text that tells it from every other kernel: the key under which its code is kept on disk."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.kernel.shapes import Kernel
from rushlight.scalar.ir import Expr, topological


def key_of(kernel: Kernel) -> str:
    lines: list[str] = []
    numbers: dict[Expr, str] = {}
    head = _spell(kernel, lines, numbers)
    return "\n".join([head, *lines])


def _spell(value: Any, lines: list[str], numbers: dict[Expr, str]) -> str:
    if isinstance(value, Expr):
        return _number(value, lines, numbers)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple):
        return f"({' '.join(_spell(item, lines, numbers) for item in value)})"
    if is_dataclass(value):
        parts = [_spell(getattr(value, f.name), lines, numbers) for f in fields(value)]
        return f"{type(value).__name__}({' '.join(parts)})"
    return repr(value)


def _number(root: Expr, lines: list[str], numbers: dict[Expr, str]) -> str:
    """The expression's line number; what it is made of is written first, each once."""
    if root not in numbers:
        for expr in topological((root,)):
            if expr not in numbers:
                numbers[expr] = str(len(lines))
                if expr.args:
                    lines.append(" ".join([expr.op, expr.dtype.name, *[numbers[a] for a in expr.args]]))
                else:
                    lines.append(f"{expr.op} {expr.dtype.name} {expr.value!r}")
    return f"%{numbers[root]}"
