"""PyTorch's `torch.export`: whole graphs, which are not captured yet."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError


class ExportedProgram:
    """The class of exported programs in PyTorch; nothing here is an instance of it."""


class Dim:
    """The name of a dimension that may vary."""

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        self.__name__, self.min, self.max = name, min, max


def export(*args: Any, **named: Any) -> ExportedProgram:
    """Refuses: graphs are not captured."""
    raise RushlightError("export.export is not supported; state_dict and safetensors move weights")


save = load = export_for_training = export
