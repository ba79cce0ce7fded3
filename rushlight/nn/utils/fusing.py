"""Fused batch norms, layers without initial values, weights in another layout."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from rushlight.nn.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops.create import like as making
from rushlight.tape.record.state import no_grad


def _or(value: Any, like: Any, number: float) -> Any:
    return making.full_like(like, number) if value is None else value


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """A convolution's weight and bias with a batch norm folded in.

    Args:
        conv_w (Tensor): The weight.
        conv_b (Tensor): The bias; None for zeros.
        bn_rm (Tensor): The running mean.
        bn_rv (Tensor): The running variance.
        bn_eps (number): Added to the variance.
        bn_w (Tensor): The factor of each channel; None for ones.
        bn_b (Tensor): Added to each channel; None for zeros.
        transpose (bool): Whether the convolution is a transposed one.
    """
    bias, scale, shift = _or(conv_b, bn_rm, 0.0), _or(bn_w, bn_rm, 1.0), _or(bn_b, bn_rm, 0.0)
    factor = scale * (bn_rv + bn_eps).rsqrt()
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    weight = (conv_w * factor.reshape(shape)).to(conv_w.dtype)
    moved = ((bias - bn_rm) * factor + shift).to(bias.dtype)
    return Parameter(weight.detach(), conv_w.requires_grad), Parameter(
        moved.detach(), bias.requires_grad
    )


def _check_evaluating(name: str, *modules: Any) -> None:
    if any(module.training for module in modules):
        raise AssertionError(
            f"{name}: fusion is for evaluation; call .eval() on both modules first"
        )


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that equals `conv` followed by `bn` in evaluation.

    Args:
        conv (Module): The convolution, in evaluation.
        bn (Module): The batch norm, in evaluation.
        transpose (bool): Whether the convolution is a transposed one.
    """
    _check_evaluating("fuse_conv_bn_eval", conv, bn)
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("fuse_conv_bn_eval: the batch norm has no running statistics")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        bn.running_mean,
        bn.running_var,
        bn.eps,
        bn.weight,
        bn.bias,
        transpose,
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """A linear layer's weight and bias with a batch norm folded in.

    Args:
        linear_w (Tensor): The weight.
        linear_b (Tensor): The bias; None for zeros.
        bn_rm (Tensor): The running mean.
        bn_rv (Tensor): The running variance.
        bn_eps (number): Added to the variance.
        bn_w (Tensor): The factor of each channel; None for ones.
        bn_b (Tensor): Added to each channel; None for zeros.
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that equals `linear` followed by `bn` in evaluation.

    Args:
        linear (Module): The linear layer, in evaluation.
        bn (Module): The batch norm, in evaluation.
    """
    _check_evaluating("fuse_linear_bn_eval", linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "fuse_linear_bn_eval: the batch norm must have a feature for each of the layer's, or "
            "one"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters have uninitialised memory, for a state that is loaded next.

    Args:
        module_cls (class): The class of the module.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    where = kwargs.pop("device", "cpu")
    return module_cls(*args, device="null", **kwargs).to_empty(device=where)


def _convert(module: Any, memory_format: Any, kinds: tuple[type, ...]) -> Any:
    with no_grad():
        parts: list[Any] = [part for part in module.modules() if isinstance(part, kinds)]
        for part in parts:
            weight = part.weight
            weight.data = weight.detach().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Convert the weights of two-dimensional convolutions to another memory layout.

    Results stay equal.

    Args:
        module (Module): The module.
        memory_format (memory_format): The layout.
    """
    return _convert(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Convert the weights of three-dimensional convolutions to another memory layout.

    Results stay equal.

    Args:
        module (Module): The module.
        memory_format (memory_format): The layout.
    """
    return _convert(module, memory_format, (Conv3d, ConvTranspose3d))
