"""`Variable`: PyTorch's old wrapper of tensors. Every tensor is one."""

from __future__ import annotations

from typing import Any

from rushlight.tensor import Tensor


class _EveryTensor(type):
    def __instancecheck__(cls, given: Any) -> bool:
        return isinstance(given, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: Any = None) -> Tensor:
        """The same memory as a new tensor, which may require gradients."""
        return data.detach().requires_grad_(requires_grad)


class Variable(metaclass=_EveryTensor):
    """PyTorch's older name of a tensor: `Variable(x, requires_grad=True)`."""
