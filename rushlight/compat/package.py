"""PyTorch's `torch.package`: archives of code, which are not supported."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError


class _Refused:
    def __init__(self, *args: Any, **named: Any) -> None:
        raise RushlightError(
            f"package.{type(self).__name__}: archives of code are not supported; save and load "
            "write and read state dicts"
        )


class PackageExporter(_Refused):
    """Refuses."""


class PackageImporter(_Refused):
    """Refuses."""
