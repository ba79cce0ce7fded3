"""PyTorch's `torch.utils.cpp_extension`: extensions against its C++ headers, which are refused."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError

CUDA_HOME: str | None = None
ROCM_HOME: str | None = None
IS_HIP_EXTENSION = False


def load(name: str, *args: Any, **named: Any) -> Any:
    """Refuses: there are no headers of PyTorch to compile against."""
    raise RushlightError(
        f"cpp_extension: {name!r} is compiled against PyTorch's C++ headers, which Rushlight does "
        "not have; write it with torch functions or autograd.Function"
    )


load_inline = CppExtension = CUDAExtension = load


class BuildExtension:
    """Builds extensions in PyTorch, which is refused here."""

    def __init__(self, *args: Any, **named: Any) -> None:
        load(type(self).__name__)


def include_paths(*args: Any, **named: Any) -> list[str]:
    """None: an empty list."""
    return []
