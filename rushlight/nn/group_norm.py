"""Normalisation over groups of channels, instances, mean squares and neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.nn import functional
from rushlight.nn.module import Module
from rushlight.nn.norm import _NormBase, _scale, _shift, reset_affine
from rushlight.nn.parameter import Parameter
from rushlight.ops.view import views
from rushlight.ops.view.windows import numbers
from rushlight.tensor import Tensor


class GroupNorm(Module):
    """Groups of channels with mean 0 and variance 1 in each instance, then scaled and shifted."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", _scale((num_channels,), affine, device, dtype))
        self.register_parameter("bias", _shift((num_channels,), affine and bias, device, dtype))

    def reset_parameters(self) -> None:
        """Scales of one, shifts of zero."""
        reset_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """The last dimensions divided by their root mean square, then scaled."""

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = numbers(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", _scale(shape, elementwise_affine, device, dtype))

    def reset_parameters(self) -> None:
        """Scales of one."""
        reset_affine(self.weight, None)

    def forward(self, input: Tensor) -> Tensor:
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class LocalResponseNorm(Module):
    """Each element divided by a power of the mean square over neighbouring channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class _InstanceNorm(_NormBase):
    """Each channel of each instance with mean 0 and variance 1.

    Running statistics and weights are kept on request only.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        alone = len(input.shape) == self._get_no_batch_dim()
        batch = views.unsqueeze(input, 0) if alone else input
        y = functional.instance_norm(
            batch,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return views.squeeze(y, 0) if alone else y

    def _get_no_batch_dim(self) -> int:
        """The number of dimensions of an input without a batch."""
        if not self.dimensions:
            raise NotImplementedError(f"{type(self).__name__} defines no _get_no_batch_dim")
        return self.dimensions[0]


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (batch, channels, length)."""

    dimensions = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (batch, channels, height, width)."""

    dimensions = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (batch, channels, depth, height, width)."""

    dimensions = (4, 5)
