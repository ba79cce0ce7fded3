"""Convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.nn import init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops import convolution, creation
from rushlight.tensor import Tensor


class Conv2d(Module):
    """Cross-correlation of (batch, channels, height, width) with learned windows, drawn from +-1 / sqrt(fan in)."""

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if padding_mode != "zeros":
            raise ValueError(
                f"Conv2d: padding_mode {padding_mode!r} is not supported yet; pad the input and use padding=0"
            )
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"Conv2d: {in_channels} and {out_channels} channels do not divide into {groups} groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = convolution.pair(kernel_size, "Conv2d", "kernel_size")
        self.stride = convolution.pair(stride, "Conv2d", "stride")
        self.padding = padding if isinstance(padding, str) else convolution.pair(padding, "Conv2d", "padding")
        self.dilation = convolution.pair(dilation, "Conv2d", "dilation")
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(creation.empty(shape, device=device, dtype=dtype))
        made = creation.empty(out_channels, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", None if made is None else Parameter(made))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        inputs, _ = init.fans(self.weight)
        bound = 1 / math.sqrt(inputs) if inputs else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return convolution.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0, 0):
            text += f", padding={self.padding}"
        if self.dilation != (1, 1):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else f"{text}, bias=False"
