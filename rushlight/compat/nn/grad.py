"""PyTorch's `torch.nn.grad`: the gradients of convolutions by their input and by their weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.autograd import grad
from rushlight.nn import functional as F
from rushlight.ops.create import creation
from rushlight.tape.record.state import enable_grad


def _by_input(convolve: Callable[..., Any]) -> Callable[..., Any]:
    def function(
        input_size: Any,
        weight: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        with enable_grad():
            x = creation.zeros(
                tuple(input_size), dtype=weight.dtype, device=weight.device, requires_grad=True
            )
            y = convolve(x, weight.detach(), None, stride, padding, dilation, groups)
        return grad(y, x, grad_output)[0]

    function.__name__ = function.__qualname__ = f"{convolve.__name__}_input"
    function.__doc__ = f"The gradient of `{convolve.__name__}` by its input."
    return function


def _by_weight(convolve: Callable[..., Any]) -> Callable[..., Any]:
    def function(
        input: Any,
        weight_size: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        with enable_grad():
            w = creation.zeros(
                tuple(weight_size), dtype=input.dtype, device=input.device, requires_grad=True
            )
            y = convolve(input.detach(), w, None, stride, padding, dilation, groups)
        return grad(y, w, grad_output)[0]

    function.__name__ = function.__qualname__ = f"{convolve.__name__}_weight"
    function.__doc__ = f"The gradient of `{convolve.__name__}` by its weight."
    return function


conv1d_input, conv1d_weight = _by_input(F.conv1d), _by_weight(F.conv1d)
conv2d_input, conv2d_weight = _by_input(F.conv2d), _by_weight(F.conv2d)
conv3d_input, conv3d_weight = _by_input(F.conv3d), _by_weight(F.conv3d)
