"""A Python file whose comments are prose, as a page."""

from __future__ import annotations

import re


def page(source: str) -> str:
    """Comments at the margin become paragraphs, `heading("...")` headings, the rest code."""
    docstring, _, body = source.partition('"""')[2].partition('"""')
    title, _, intro = docstring.partition("\n")
    parts = [f"# {title.rstrip('.')}", intro.strip()]
    for run in re.split(r"\n{2,}", body):
        parts += _pieces(run)
    return "\n\n".join(part for part in parts if part).replace("```\n\n```python\n", "\n") + "\n"


def _pieces(run: str) -> list[str]:
    prose, code, found = [], [], []
    for line in run.splitlines():
        if line.startswith("# ---"):
            continue
        named = re.fullmatch(r'heading\("(.*)"\)', line)
        if named:
            found.append(f"## {named[1]}")
        elif line.startswith("# ") and not code:
            prose.append(line[2:])
        else:
            code.append(line.partition("  # noqa")[0])
    found.append("\n".join(prose))
    if any(code):
        found.append("```python\n" + "\n".join(code).strip("\n") + "\n```")
    return found
