"""`Variable`: PyTorch's old wrapper of tensors. Every tensor is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.tape.record.state import WALK
from rushlight.tensor import Tensor


class _EveryTensor(type):
    def __instancecheck__(cls, given: Any) -> bool:
        return isinstance(given, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: Any = None) -> Tensor:
        """The same memory as a new tensor, which may require gradients."""
        return data.detach().requires_grad_(requires_grad)


class _Engine:
    """What PyTorch's programs ask of its engine of backward passes."""

    @staticmethod
    def queue_callback(callback: Callable[[], None]) -> None:
        """Call a function when the running pass has run all of its nodes."""
        walk = WALK.get()
        if walk is None:
            raise RushlightError("queue_callback: no backward pass is running; call it in a hook")
        walk.callbacks.append(callback)


class Variable(metaclass=_EveryTensor):
    """PyTorch's older name of a tensor: `Variable(x, requires_grad=True)`."""

    _execution_engine = _Engine()
