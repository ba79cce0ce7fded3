"""The strides of PyTorch's results, `strides_of_pytorch.json`: per layout of `x`, by expression.

`python -m tests.tensor.strides_table` writes the numbers again, of the PyTorch that is installed.
"""

from __future__ import annotations

import importlib
import json
import pathlib
from typing import Any

FILE = pathlib.Path(__file__).with_name("strides_of_pytorch.json")


def strides_of(result: Any) -> Any:
    """The strides of a tensor, or of each of several."""
    if isinstance(result, (tuple, list)):
        return [strides_of(part) for part in result]
    return list(result.stride())


def gradient(x: Any, function: Any) -> Any:
    """The gradient that a leaf with the content and the layout of x keeps."""
    leaf = x.detach().requires_grad_()
    function(leaf).backward()
    return leaf.grad


def evaluated(torch: Any, source: str, expression: str) -> Any:
    names = {"torch": torch, "F": torch.nn.functional, "gradient": gradient}
    return strides_of(eval(expression, names | {"x": eval(source, names)}))


def read() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return table


def write(table: dict[str, dict[str, Any]]) -> None:
    parts = []
    for source, found in table.items():
        lines = [f"  {json.dumps(e)}: {json.dumps(strides)}" for e, strides in found.items()]
        parts.append(f" {json.dumps(source)}: {{\n" + ",\n".join(lines) + "\n }")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    torch = importlib.import_module("torch")
    write({s: {e: evaluated(torch, s, e) for e in found} for s, found in read().items()})
