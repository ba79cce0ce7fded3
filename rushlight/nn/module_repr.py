"""Printing of modules, as PyTorch prints them."""

from __future__ import annotations

from typing import Any

from rushlight.nn.members import MODULE


def _indented(text: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(f"  {line}" for line in rest)])


def _framed(name: str, extra: list[str], below: list[str]) -> str:
    if extra and not below and len(extra) == 1:
        return f"{name}({extra[0]})"
    lines = extra + below
    if not lines:
        return f"{name}()"
    body = "".join(f"\n  {line}" for line in lines)
    return f"{name}({body}\n)"


def show_module(module: Any) -> str:
    extra = module.extra_repr()
    below = [f"({name}): {_indented(repr(child))}" for name, child in module._members(MODULE)]
    return _framed(module._get_name(), extra.split("\n") if extra else [], below)


def show_list(module: Any) -> str:
    """Merge equal neighbours into one line: (0-3): 4 x Block(...)."""
    texts = [repr(child) for child in module]
    below = []
    start = 0
    for i, text in enumerate(texts):
        if i + 1 < len(texts) and texts[i + 1] == text:
            continue
        count = i - start + 1
        label = f"({i}): " if count == 1 else f"({start}-{i}): {count} x "
        below.append(label + _indented(text))
        start = i + 1
    return _framed(module._get_name(), [], below)
