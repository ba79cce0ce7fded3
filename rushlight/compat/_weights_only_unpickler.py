"""PyTorch's `torch._weights_only_unpickler`: the classes that files may name, and a reader."""

from __future__ import annotations

from typing import Any

from rushlight import serialization
from rushlight.io import load as _load

_add_safe_globals = serialization.add_safe_globals
_clear_safe_globals = serialization.clear_safe_globals
_get_safe_globals = _get_user_allowed_globals = serialization.get_safe_globals


def load(file: Any, *, encoding: str = "ASCII") -> Any:
    """What a file holds, read without running anything of it.

    Args:
        file (file): The file.
        encoding (str): Has no effect.
    """
    return _load(file, weights_only=True)
