"""Pooling over windows of a length, an image or a volume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.nn import functional
from rushlight.nn.module import Module
from rushlight.ops.nn.adaptive_pooling import Wanted
from rushlight.ops.view.windows import Given
from rushlight.tensor import Tensor


class _MaxPool(Module):
    """The largest element of each window; the stride defaults to the window's size."""

    function: Callable[..., Any]

    def __init__(
        self,
        kernel_size: Given,
        stride: Given | None = None,
        padding: Given = 0,
        dilation: Given = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        pool = type(self).function
        return pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window of a length."""

    function = staticmethod(functional.max_pool1d)


class MaxPool2d(_MaxPool):
    """The largest element of each window of height and width."""

    function = staticmethod(functional.max_pool2d)


class MaxPool3d(_MaxPool):
    """The largest element of each window of depth, height and width."""

    function = staticmethod(functional.max_pool3d)


class AvgPool1d(Module):
    """The mean of each window of a length; the stride defaults to the window's size."""

    def __init__(
        self,
        kernel_size: Given,
        stride: Given | None = None,
        padding: Given = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return functional.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(AvgPool1d):
    function: Callable[..., Tensor]

    def __init__(
        self,
        kernel_size: Given,
        stride: Given | None = None,
        padding: Given = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        pool = type(self).function
        edges = (self.ceil_mode, self.count_include_pad, self.divisor_override)
        return pool(input, self.kernel_size, self.stride, self.padding, *edges)


class AvgPool2d(_AvgPool):
    """The mean of each window of height and width; the stride defaults to the window's size."""

    function = staticmethod(functional.avg_pool2d)


class AvgPool3d(_AvgPool):
    """The mean of each window of depth, height and width.

    The stride defaults to the window's size.
    """

    function = staticmethod(functional.avg_pool3d)


class _LPPool(Module):
    """The p-norm of each window."""

    function: Callable[..., Tensor]

    def __init__(
        self,
        norm_type: float,
        kernel_size: Given,
        stride: Given | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = type(self).function
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of a length."""

    function = staticmethod(functional.lp_pool1d)


class LPPool2d(_LPPool):
    """The p-norm of each window of height and width."""

    function = staticmethod(functional.lp_pool2d)


class LPPool3d(_LPPool):
    """The p-norm of each window of depth, height and width."""

    function = staticmethod(functional.lp_pool3d)


class _Adaptive(Module):
    """The base of pooling to a given output size."""

    function: Callable[..., Any]

    def __init__(self, output_size: Wanted) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        pool = type(self).function
        return pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvg(_Adaptive):
    """The base of means over windows that give a wanted size."""


class AdaptiveAvgPool1d(_AdaptiveAvg):
    """Means of windows of a length; the number of windows is given."""

    function = staticmethod(functional.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvg):
    """Means of windows of height and width; the number of windows is given."""

    function = staticmethod(functional.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvg):
    """Means of windows of depth, height and width; the number of windows is given."""

    function = staticmethod(functional.adaptive_avg_pool3d)


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: Wanted, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        pool = type(self).function
        return pool(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest of windows of a length; the number of windows is given."""

    function = staticmethod(functional.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The largest of windows of height and width; the number of windows is given."""

    function = staticmethod(functional.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The largest of windows of depth, height and width; the number of windows is given."""

    function = staticmethod(functional.adaptive_max_pool3d)


class _FractionalMaxPool(Module):
    """The largest element of windows at random steps; the number of windows is given."""

    function: str

    def __init__(
        self,
        kernel_size: Given,
        output_size: Given | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__}: pass either output_size or output_ratio")
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.output_ratio = output_ratio
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        pool = getattr(functional, self.function)
        size, ratio = self.output_size, self.output_ratio
        return pool(input, self.kernel_size, size, ratio, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest element of windows of an image at random steps."""

    function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest element of windows of a volume at random steps."""

    function = "fractional_max_pool3d"


class _MaxUnpool(Module):
    """Elements written to the positions where max pooling found them, zeros elsewhere."""

    function: str
    rank: int

    def __init__(self, kernel_size: Given, stride: Given | None = None, padding: Given = 0) -> None:
        super().__init__()
        self.kernel_size = self._each(kernel_size)
        self.stride = self._each(kernel_size if stride is None else stride)
        self.padding = self._each(padding)

    def _each(self, given: Given) -> tuple[int, ...]:
        return (given,) * self.rank if isinstance(given, int) else tuple(given)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        unpool = getattr(functional, self.function)
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The inverse of MaxPool1d."""

    function = "max_unpool1d"
    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """The inverse of MaxPool2d."""

    function = "max_unpool2d"
    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The inverse of MaxPool3d."""

    function = "max_unpool3d"
    rank = 3
