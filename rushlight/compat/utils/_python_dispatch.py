"""PyTorch's `torch.utils._python_dispatch`: subclasses that intercept its dispatcher."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether its class says how it is taken apart and put together."""
    kind = type(t)
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """As `is_traceable_wrapper_subclass`, of a class."""
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


class TorchDispatchMode:
    """A block in which PyTorch's dispatcher asks it; there is no dispatcher here."""

    def __enter__(self) -> Any:
        raise RushlightError(
            f"{type(self).__name__}: there is no dispatcher to intercept; overrides."
            "TorchFunctionMode sees calls of functions"
        )

    def __exit__(self, *_: object) -> None:
        return None
