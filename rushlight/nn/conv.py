"""Convolution and its transpose, over a length, an image or a volume."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.nn import functional, init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops.create import creation
from rushlight.ops.view.windows import Given, each
from rushlight.tensor import Tensor

MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(Module):
    """The base of convolutions: sizes, a weight drawn from +-1 / sqrt(fan in), and a bias."""

    weight: Parameter
    bias: Parameter | None
    rank: int
    transposed: bool = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Given,
        stride: Given,
        padding: Given | str,
        dilation: Given,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: DType | None,
    ) -> None:
        super().__init__()
        name, rank = type(self).__name__, self.rank
        if padding_mode not in (MODES[:1] if self.transposed else MODES):
            raise ValueError(
                f"{name}: padding_mode is one of {MODES} (transposed: 'zeros'), got "
                f"{padding_mode!r}"
            )
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: {in_channels} and {out_channels} channels do not divide into {groups} "
                "groups"
            )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(
                f"{name}: padding is a number, {rank} numbers, 'same' or 'valid', got {padding!r}"
            )
        if padding == "same" and each(stride, rank, name, "stride") != (1,) * rank:
            raise ValueError(f"{name}: padding='same' goes with stride 1, got stride {stride}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = each(kernel_size, rank, name, "kernel_size")
        self.stride = each(stride, rank, name, "stride")
        self.padding = padding if isinstance(padding, str) else each(padding, rank, name, "padding")
        self.dilation = each(dilation, rank, name, "dilation")
        self.padding_mode = padding_mode
        if self.transposed:
            shape = (in_channels, out_channels // groups, *self.kernel_size)
        else:
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

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.rank:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"

    def _sides(self) -> list[int]:
        """Padding before and after each dimension, the last dimension first."""
        sides: list[int] = []
        for i in reversed(range(self.rank)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                sides += [total // 2, total - total // 2]
            else:
                sides += [0, 0] if self.padding == "valid" else [int(self.padding[i])] * 2
        return sides

    @property
    def _reversed_padding_repeated_twice(self) -> list[int]:
        """`_sides` by PyTorch's name."""
        return self._sides()

    def _pytorch_attributes(self) -> dict[str, Any]:
        return {
            "transposed": self.transposed,
            "_reversed_padding_repeated_twice": self._sides(),
        }


class _Forward(_Conv):
    """Cross-correlation with learned windows."""

    function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Given,
        stride: Given = 1,
        padding: Given | str = 0,
        dilation: Given = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    @property
    def output_padding(self) -> tuple[int, ...]:
        return (0,) * self.rank

    def _pytorch_attributes(self) -> dict[str, Any]:
        return super()._pytorch_attributes() | {"output_padding": self.output_padding}

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with a given weight and bias; a class may override it."""
        convolve = type(self).function
        padding: Given | str = self.padding
        if self.padding_mode != "zeros":
            input, padding = functional.pad(input, self._sides(), self.padding_mode), 0
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Forward):
    """Cross-correlation of (batch, channels, length) with learned windows.

    Windows are drawn from +-1 / sqrt(fan in).
    """

    rank = 1
    function = staticmethod(functional.conv1d)


class Conv2d(_Forward):
    """Cross-correlation of (batch, channels, height, width) with learned windows.

    Windows are drawn from +-1 / sqrt(fan in).
    """

    rank = 2
    function = staticmethod(functional.conv2d)


class Conv3d(_Forward):
    """Cross-correlation of (batch, channels, depth, height, width) with learned windows."""

    rank = 3
    function = staticmethod(functional.conv3d)


class _Transpose(_Conv):
    """The transpose of a convolution: each input element is spread over a window of the result."""

    transposed = True
    function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Given,
        stride: Given = 1,
        padding: Given = 0,
        output_padding: Given = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Given = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )
        self.output_padding = each(output_padding, self.rank, type(self).__name__, "output_padding")

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        convolve = type(self).function
        return convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def _extra(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding of each dimension for the requested output size."""
        wanted = tuple(output_size)[-self.rank :]
        extra = []
        for i, (n, m) in enumerate(zip(input.shape[-self.rank :], wanted, strict=True)):
            reach = self.dilation[i] * (self.kernel_size[i] - 1) + 1
            least = (n - 1) * self.stride[i] - 2 * int(self.padding[i]) + reach
            if not least <= m < least + self.stride[i]:
                raise ValueError(
                    f"{type(self).__name__}: output_size {m} is not among {least} to "
                    f"{least + self.stride[i] - 1}"
                )
            extra.append(m - least)
        return tuple(extra)


class ConvTranspose1d(_Transpose):
    """The transpose of Conv1d."""

    rank = 1
    function = staticmethod(functional.conv_transpose1d)


class ConvTranspose2d(_Transpose):
    """The transpose of Conv2d."""

    rank = 2
    function = staticmethod(functional.conv_transpose2d)


class ConvTranspose3d(_Transpose):
    """The transpose of Conv3d."""

    rank = 3
    function = staticmethod(functional.conv_transpose3d)
