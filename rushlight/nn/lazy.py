"""Lazy layers: the sizes of their inputs are taken from the first call.

The first call, or a state that is loaded before it, sets the shapes of the parameters; the first
call also changes the layer's class to `cls_to_become`. See Note [Uninitialised parameters].
"""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType, int64
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from rushlight.nn.group_norm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from rushlight.nn.linear import Linear
from rushlight.nn.module import Module
from rushlight.nn.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from rushlight.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from rushlight.ops.create import creation
from rushlight.ops.view.windows import Given
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


class LazyModuleMixin:
    """The first base beside `Module`: define `initialize_parameters(*args)`.

    It is called with the first input.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        me: Any = self
        self._load_hook = me._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = me.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def initialize_parameters(self, *args: Any, **named: Any) -> None:
        """Set the shapes of the parameters from the first call's arguments."""
        raise NotImplementedError(f"{type(self).__name__} defines no initialize_parameters")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module has no shape yet."""
        me: Any = self
        return any(
            is_lazy(value) for kind in (me._parameters, me._buffers) for value in kind.values()
        )

    def _lazy_load_hook(self, state: dict[str, Any], prefix: str, *_: Any) -> None:
        """Before a state is loaded: take the shapes from it."""
        me: Any = self
        for members in (me._parameters, me._buffers):
            for name, value in members.items():
                given = state.get(prefix + name)
                if given is not None and is_lazy(value) and not is_lazy(given):
                    with no_grad():
                        value.materialize(given.shape)

    def _infer_parameters(
        self, module: Any, args: tuple[Any, ...], named: dict[str, Any] | None = None
    ) -> None:
        """Before the first call: set shapes, then change the class."""
        module.initialize_parameters(*args, **(named or {}))
        if module.has_uninitialized_params():
            raise RushlightError(
                f"{type(module).__name__}: parameters without a shape are left after "
                "initialize_parameters; are all lazy modules below called by its forward?"
            )
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose in_features is the last size of its first input."""

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = input.shape[-1]
                _materialize(self.weight, (self.out_features, self.in_features))
                _materialize(self.bias, (self.out_features,))
                self.reset_parameters()
        self.in_features = self.weight.shape[-1]


def _materialize(value: Any, shape: tuple[int, ...]) -> None:
    if is_lazy(value):
        value.materialize(shape)


class _LazyConv(LazyModuleMixin):
    """The base of lazy convolutions: in_channels is the input's size before the last `rank`."""

    def _begin(self, out_channels: int, bias: bool, device: Any, dtype: DType | None) -> None:
        me: Any = self
        me.out_channels = out_channels
        if out_channels % me.groups:
            raise ValueError(
                f"{type(self).__name__}: {out_channels} channels do not divide into {me.groups} "
                "groups"
            )
        me.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            me.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        me: Any = self
        if not self.has_uninitialized_params() and me.in_channels:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **named: Any) -> None:
        me: Any = self
        if self.has_uninitialized_params():
            if input.dim() not in (me.rank + 1, me.rank + 2):
                raise ShapeError(
                    f"{type(self).__name__}: input must have {me.rank + 1} or {me.rank + 2} "
                    f"dimensions, got shape {list(input.shape)}"
                )
            me.in_channels = input.shape[input.dim() - me.rank - 1]
            if me.in_channels % me.groups:
                raise ValueError(
                    f"{type(self).__name__}: {me.in_channels} channels do not divide into "
                    f"{me.groups} groups"
                )
            pair = me.in_channels, me.out_channels
            into, each = pair if me.transposed else pair[::-1]
            with no_grad():
                _materialize(me.weight, (into, each // me.groups, *me.kernel_size))
                _materialize(me.bias, (me.out_channels,))
                self.reset_parameters()
        me.in_channels = me.weight.shape[0] if me.transposed else me.weight.shape[1] * me.groups


class _LazyForward(_LazyConv):
    def __init__(
        self,
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
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._begin(out_channels, bias, device, dtype)


class _LazyTranspose(_LazyConv):
    def __init__(
        self,
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
            0,
            0,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            False,
            dilation,
            padding_mode,
        )
        self._begin(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForward, Conv1d):
    """A Conv1d whose in_channels is that of its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """A Conv2d whose in_channels is that of its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """A Conv3d whose in_channels is that of its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTranspose, ConvTranspose1d):
    """A ConvTranspose1d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTranspose, ConvTranspose2d):
    """A ConvTranspose2d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTranspose, ConvTranspose3d):
    """A ConvTranspose3d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin):
    """Batch and instance norms whose num_features is the number of channels of the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool | None = None,
        track_running_stats: bool | None = None,
        device: Any = None,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        # Instance norms have neither by default.
        plain = isinstance(self, (BatchNorm1d, BatchNorm2d, BatchNorm3d))
        super().__init__(0, eps, momentum, False, False, device, dtype)
        me: Any = self
        me.affine = plain if affine is None else affine
        me.track_running_stats = plain if track_running_stats is None else track_running_stats
        if me.affine:
            me.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                me.bias = UninitializedParameter(device=device, dtype=dtype)
        if me.track_running_stats:
            me.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            me.running_var = UninitializedBuffer(device=device, dtype=dtype)
            me.num_batches_tracked = creation.zeros((), device=device, dtype=int64)

    def reset_parameters(self) -> None:
        me: Any = self
        if not self.has_uninitialized_params() and me.num_features:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor) -> None:
        me: Any = self
        channels = [v for v in (me.weight, me.running_mean) if v is not None]
        if self.has_uninitialized_params():
            # An instance norm also accepts a shape without the batch.
            whole = (
                isinstance(self, (BatchNorm1d, BatchNorm2d, BatchNorm3d))
                or input.dim() == me.dimensions[-1]
            )
            me.num_features = input.shape[1 if whole else 0]
            with no_grad():
                for value in (me.weight, me.bias, me.running_mean, me.running_var):
                    _materialize(value, (me.num_features,))
                self.reset_parameters()
        elif channels:
            me.num_features = channels[0].shape[0]


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d whose num_features is that of its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d whose num_features is that of its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d whose num_features is that of its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d whose num_features is that of its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d whose num_features is that of its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d whose num_features is that of its first input."""

    cls_to_become = InstanceNorm3d
