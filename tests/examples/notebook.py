"""A small runner of notebooks: `python notebook.py tour.ipynb` runs the code cells in order.

It prints what a cell prints, and its last expression by the richest form that it has.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

FORMS = ("_repr_svg_", "_repr_html_")


def run(path: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    sys.ps1 = "In: "  # as a prompt sets it
    for number, cell in enumerate(json.loads(Path(path).read_text())["cells"]):
        if cell["cell_type"] == "code":
            run_cell("".join(cell["source"]), f"<cell {number}>", names)


def run_cell(text: str, name: str, names: dict[str, Any]) -> None:
    tree = ast.parse(text, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), names)
        form = next((form for form in FORMS if hasattr(value, form)), None)
        if value is not None:
            print(repr(value) if form is None else f"{form}: {getattr(value, form)()[:60]}")


if __name__ == "__main__":
    run(sys.argv[1])
