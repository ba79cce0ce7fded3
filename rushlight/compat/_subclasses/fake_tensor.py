"""PyTorch's `torch._subclasses.fake_tensor`: the class of tensors that compilers trace with."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.tensor import Tensor


class FakeTensor(Tensor):
    """The class of such tensors in PyTorch; nothing here is an instance of it."""


class FakeTensorMode:
    """A block that makes tensors without data in PyTorch."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise RushlightError(
            'FakeTensorMode is not supported; `with torch.device("meta")` makes tensors without '
            "data, and memory.estimate tells the bytes of a program"
        )


def is_fake(x: Any) -> bool:
    """False: there are no such tensors."""
    return False
