"""Folders of safetensors files as Hugging Face's libraries have them: whole tensors by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.distributed.tensor.dtensor import DTensor
from rushlight.io import save_file
from rushlight.tensor import Tensor

_INDEX = "model.safetensors.index.json"


def write(
    leaves: Mapping[str, Any],
    folder: Path,
    numbers: Mapping[str, int],
    first: bool,
    resolved: Callable[[str, Tensor], Tensor],
) -> None:
    """Write tensors; parts are put together one after another, and rank 0, the first, writes.

    Args:
        leaves (mapping): The tensors by name; all else is left out.
        folder (Path): The folder.
        numbers (mapping): The number of each tensor's file; 1 without one.
        first (bool): Whether this rank writes.
        resolved (callable): A whole tensor as it is written, of its name and it.
    """
    files: dict[int, dict[str, Tensor]] = {}
    for name, leaf in leaves.items():
        if isinstance(leaf, Tensor):
            whole: Any = leaf.full_tensor() if isinstance(leaf, DTensor) else leaf
            if first:
                made = resolved(name, whole).detach().cpu().contiguous()
                files.setdefault(numbers.get(name, 1), {})[name] = made
    if not first:
        return
    folder.mkdir(parents=True, exist_ok=True)
    count = max(files, default=1)
    names = {n: f"model-{n:05}-of-{count:05}.safetensors" for n in files}
    for n, inside in files.items():
        save_file(inside, folder / names[n], metadata={"format": "pt"})
    total = sum(t.numel() * t.element_size() for inside in files.values() for t in inside.values())
    index = {
        "metadata": {"total_size": total},
        "weight_map": {name: names[n] for n, inside in files.items() for name in inside},
    }
    (folder / _INDEX).write_text(json.dumps(index, indent=2, sort_keys=True))


def index_of(folder: Path) -> dict[str, Any]:
    """An index of such a folder, as that of Note [Checkpoint folders] 2."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RushlightError(f"checkpoint.load: {folder} has no safetensors files")
    index: dict[str, Any] = {"tensors": {}, "parts": {}, "shapes": {}}
    for file in files:
        with open(file, "rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            if size > file.stat().st_size:
                raise RushlightError(f"checkpoint.load: {file} is no safetensors file")
            header = json.loads(opened.read(size))
        for name, told in header.items():
            if name != "__metadata__":
                index["tensors"][name] = file.name
                index["shapes"][name] = told["shape"]
    return index
