"""PyTorch's `torch.ao.quantization`: the markers that models contain. Nothing is quantised."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.nn.linear import Identity


class QuantStub(Identity):
    """The place in a model where quantised values would begin."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()


class DeQuantStub(Identity):
    """The place in a model where quantised values would end."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()


def quantize_dynamic(*args: Any, **named: Any) -> Any:
    """Refuses: there are no quantised types."""
    raise RushlightError("quantisation is not supported; bfloat16 and float16 save half the bytes")


prepare = convert = prepare_qat = quantize = fuse_modules = fuse_modules_qat = quantize_dynamic
get_default_qconfig = get_default_qat_qconfig = quantize_dynamic
