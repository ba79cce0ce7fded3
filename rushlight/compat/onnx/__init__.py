"""PyTorch's `torch.onnx`: there is no exporter, and nothing is ever being exported."""

from __future__ import annotations

import enum
from typing import Any

from rushlight.core.errors import RushlightError


def is_in_onnx_export() -> bool:
    """False: there is no exporter."""
    return False


def is_onnxrt_backend_supported() -> bool:
    """False."""
    return False


def export(*args: Any, **named: Any) -> Any:
    """Refuses: there is no exporter."""
    raise RushlightError(
        "onnx.export is not supported; save the state_dict as safetensors and export with PyTorch"
    )


dynamo_export = export


def register_custom_op_symbolic(*args: Any, **named: Any) -> None:
    """Accepted: it would be used by `export`, which refuses."""


unregister_custom_op_symbolic = register_custom_op_symbolic


class OnnxExporterError(RuntimeError):
    """An error of PyTorch's exporter."""


class OperatorExportTypes(enum.Enum):
    """How PyTorch's exporter writes an op it does not know; `export` refuses here."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class TrainingMode(enum.Enum):
    """The mode in which PyTorch's exporter runs a model; `export` refuses here."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2
