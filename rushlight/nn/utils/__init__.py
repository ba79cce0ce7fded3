"""Utilities for models: clipping of gradients, packed sequences, parametrised weights.

Owns: gradients of a model as a whole, sequences of different lengths, weights that are functions of
parameters.
Takes: modules, parameters, tensors. Gives: the same, changed.
Never: reaches below ops/.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.modules("parametrizations parametrize prune rnn stateless")
_NAMES.defined(
    {
        "rushlight.nn.utils.clip_grad": (
            "clip_grad_norm_=clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ "
            "get_total_norm"
        ),
        "rushlight.nn.utils.convert_parameters": "parameters_to_vector vector_to_parameters",
        "rushlight.nn.utils.fusing": (
            "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format "
            "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights "
            "skip_init"
        ),
        "rushlight.nn.utils.weight_hooks": (
            "remove_spectral_norm remove_weight_norm spectral_norm weight_norm"
        ),
    }
)
__all__ = sorted(_NAMES.sources)
_NAMES.modules("clip_grad convert_parameters fusing weight_hooks")


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
