"""safetensors files: names to tensors, nothing else in them, readable by every framework."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rushlight.interop import from_array, to_numpy
from rushlight.ops.creation import resolve_pool
from rushlight.tensor import Tensor


def save_file(
    tensors: Mapping[str, Tensor], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None
) -> None:
    """Write named tensors; views are written as what they show."""
    from safetensors.numpy import save_file as write

    write({name: to_numpy(t.detach(), copy=True) for name, t in tensors.items()}, os.fspath(filename), metadata)


def load_file(filename: str | os.PathLike[str], device: Any = None) -> dict[str, Any]:
    """Read named tensors to a device."""
    from safetensors.numpy import load_file as read

    pool = resolve_pool(device)
    return {name: from_array(array, pool) for name, array in read(os.fspath(filename)).items()}
