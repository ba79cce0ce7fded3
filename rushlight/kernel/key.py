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
                args, head = expr.args, f"{expr.op} {expr.dtype.name}"
                if len(args) == 2:
                    lines.append(f"{head} {numbers[args[0]]} {numbers[args[1]]}")
                elif args:
                    lines.append(" ".join([head, *[numbers[a] for a in args]]))
                else:
                    lines.append(f"{head} {expr.value!r}")
    return f"%{numbers[root]}"
