"""What `torch.nn` has beside the layers."""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.modules("parallel")


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)
