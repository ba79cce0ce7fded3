"""PyTorch's `torch.export`: whole graphs, which are not captured yet."""

from __future__ import annotations

import enum
from typing import Any

from rushlight.core.errors import RushlightError


class ExportedProgram:
    """The class of exported programs in PyTorch; nothing here is an instance of it."""


class _DimHint(enum.Enum):
    """Whether a dimension may vary, without a name."""

    AUTO = enum.auto()
    DYNAMIC = enum.auto()
    STATIC = enum.auto()


class Dim:
    """The name of a dimension that may vary."""

    AUTO, DYNAMIC, STATIC = _DimHint.AUTO, _DimHint.DYNAMIC, _DimHint.STATIC

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        self.__name__, self.min, self.max = name, min, max


def export(*args: Any, **named: Any) -> ExportedProgram:
    """Refuses: graphs are not captured."""
    raise RushlightError("export.export is not supported; state_dict and safetensors move weights")


save = load = export_for_training = export
