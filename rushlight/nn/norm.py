"""Normalising layers: over the features of an element, or over the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rushlight.core.dtypes import DType, int64
from rushlight.core.errors import ShapeError
from rushlight.nn import functional, init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops.create import creation
from rushlight.ops.view.windows import numbers
from rushlight.tensor import Tensor


def _scale(
    shape: Sequence[int], wanted: bool, device: Any, dtype: DType | None
) -> Parameter | None:
    return Parameter(creation.ones(tuple(shape), device=device, dtype=dtype)) if wanted else None


def _shift(
    shape: Sequence[int], wanted: bool, device: Any, dtype: DType | None
) -> Parameter | None:
    return Parameter(creation.zeros(tuple(shape), device=device, dtype=dtype)) if wanted else None


def reset_affine(weight: Parameter | None, bias: Parameter | None) -> None:
    """Scales of one, shifts of zero."""
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


class LayerNorm(Module):
    """The last dimensions with mean 0 and variance 1, then scaled and shifted."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = numbers(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", _scale(shape, elementwise_affine, device, dtype))
        self.register_parameter("bias", _shift(shape, elementwise_affine and bias, device, dtype))

    def reset_parameters(self) -> None:
        """Scales of one, shifts of zero."""
        reset_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class _NormBase(Module):
    """The base of channel norms: scales and shifts, and running statistics."""

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    dimensions: tuple[int, ...] = ()
    _version = 2

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        shape = (num_features,)
        self.register_parameter("weight", _scale(shape, affine, device, dtype))
        self.register_parameter("bias", _shift(shape, affine and bias, device, dtype))
        tracked: list[Any] = [None, None, None]
        if track_running_stats:
            mean = creation.zeros(shape, device=device, dtype=dtype)
            count = creation.zeros((), device=device, dtype=int64)
            tracked = [mean, creation.ones(shape, device=device, dtype=dtype), count]
        for name, value in zip(
            ("running_mean", "running_var", "num_batches_tracked"), tracked, strict=True
        ):
            self.register_buffer(name, value)

    def _complete_state(self, state: dict[str, Any], prefix: str, version: int | None) -> None:
        """States of version 1 or none need not have the number of batches."""
        count = self.num_batches_tracked
        if count is not None and (version is None or version < 2):
            state.setdefault(f"{prefix}num_batches_tracked", count.clone())

    def _check_input_dim(self, input: Tensor) -> None:
        """Refuse an input of another number of dimensions; a class may override it."""
        if not self.dimensions:
            raise NotImplementedError(f"{type(self).__name__} defines no _check_input_dim")
        if len(input.shape) not in self.dimensions:
            wanted = " or ".join(map(str, self.dimensions))
            raise ShapeError(
                f"{type(self).__name__}: input must have {wanted} dimensions, got shape "
                f"{list(input.shape)}"
            )

    def reset_running_stats(self) -> None:
        """Reset the running statistics to their initial values."""
        if (
            self.running_mean is not None
            and self.running_var is not None
            and self.num_batches_tracked is not None
        ):
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Reset weights and running statistics to their initial values."""
        self.reset_running_stats()
        reset_affine(self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Each channel (dimension 1) with mean 0 and variance 1 over the batch, then an affine map."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        learns = self.training and self.track_running_stats
        # Else the statistics are neither changed nor read.
        known = learns or not self.training
        made = functional.batch_norm(
            input,
            self.running_mean if known else None,
            self.running_var if known else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            self._share_of_batch() if learns else 0.0,
            self.eps,
        )
        if learns and self.num_batches_tracked is not None:
            # After the forward, which may run out of memory.
            self.num_batches_tracked.add_(1)
        return made

    def _share_of_batch(self) -> float:
        """The weight of this batch in the running statistics.

        Without momentum they are a plain average.
        """
        if self.num_batches_tracked is None:
            return 0.0
        return 1 / (float(self.num_batches_tracked) + 1) if self.momentum is None else self.momentum


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (batch, channels) or (batch, channels, length)."""

    dimensions = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (batch, channels, height, width)."""

    dimensions = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (batch, channels, depth, height, width)."""

    dimensions = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all processes of a group.

    Without a group of processes it is over the batch of this one.
    """

    dimensions = (2, 3, 4, 5)
    over_processes: ClassVar[Callable[[SyncBatchNorm, Tensor], Tensor] | None] = None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        shared = SyncBatchNorm.over_processes
        return super().forward(input) if shared is None else shared(self, input)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with its batch norms replaced by this class, with the same state."""
        made: Module = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            sizes = (
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
            )
            made = cls(*sizes, process_group)
            made.load_state_dict(module.state_dict(), assign=True)
            made.train(module.training)
        for name, child in list(module.named_children()):
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made
