"""PyTorch's `torch.nn.modules`: the layers by PyTorch's files.

Owns: the table of those files. Takes: layers. Gives: `nn.modules.conv`, `nn.modules.batchnorm` and
so on, also for import.
Never: layers of its own, which are in `nn`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rushlight.lazy import MissingName, shown
from rushlight.nn import (
    activation as _activation,
    adaptive_softmax as _adaptive,
    attention as _attention,
    containers as _containers,
    conv as _conv,
    distance as _distance,
    dropout as _dropout,
    embedding as _embedding,
    functional,
    group_norm as _group_norm,
    init,
    lazy as _lazy,
    linear as _linear,
    loss as _loss,
    norm as _norm,
    padding as _padding,
    pooling as _pooling,
    resample as _resample,
    rnn as _rnn,
    transformer as _transformer,
)
from rushlight.nn.module import Module
from rushlight.nn.modules import module, sizes as _sizes
from rushlight.nn.parameter import Parameter, is_lazy
from rushlight.tensor import Tensor


def _named(source: ModuleType, names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names.split()}


def _each(source: ModuleType, *stems: str) -> dict[str, Any]:
    return _named(source, " ".join(f"{stem}{rank}d" for stem in stems for rank in (1, 2, 3)))


def _classes(source: ModuleType) -> dict[str, Any]:
    """The public layers that one of our files declares."""
    found = vars(source).items()
    return {
        name: kind
        for name, kind in found
        if isinstance(kind, type)
        and kind.__module__ == source.__name__
        and not name.startswith("_")
    }


# By PyTorch's file; a name that begins with an underscore is a base class for `isinstance`.
FILES: dict[str, dict[str, Any]] = {
    "activation": _classes(_activation) | {"MultiheadAttention": _attention.MultiheadAttention},
    "adaptive": _classes(_adaptive),
    "batchnorm": {
        "_NormBase": _norm._NormBase,
        "_BatchNorm": _norm._BatchNorm,
        "SyncBatchNorm": _norm.SyncBatchNorm,
    }
    | _each(_norm, "BatchNorm")
    | _each(_lazy, "LazyBatchNorm"),
    "channelshuffle": _named(_resample, "ChannelShuffle"),
    "container": _classes(_containers),
    "conv": {"_ConvNd": _conv._Conv, "_ConvTransposeNd": _conv._Transpose}
    | _each(_conv, "Conv", "ConvTranspose")
    | _each(_lazy, "LazyConv", "LazyConvTranspose"),
    "distance": _named(_distance, "PairwiseDistance CosineSimilarity"),
    "dropout": _classes(_dropout),
    "flatten": _named(_linear, "Flatten Unflatten"),
    "fold": _named(_resample, "Fold Unfold"),
    "instancenorm": {"_InstanceNorm": _group_norm._InstanceNorm}
    | _each(_group_norm, "InstanceNorm")
    | _each(_lazy, "LazyInstanceNorm"),
    "lazy": {"LazyModuleMixin": _lazy.LazyModuleMixin},
    "linear": _named(_linear, "Identity Linear NonDynamicallyQuantizableLinear")
    | {"Bilinear": _distance.Bilinear, "LazyLinear": _lazy.LazyLinear},
    "loss": _classes(_loss)
    | {"_Loss": _loss._Loss, "_WeightedLoss": _loss._WeightedLoss}
    | _named(_distance, "LinearCrossEntropyLoss"),
    "normalization": {"LayerNorm": _norm.LayerNorm}
    | _named(_group_norm, "GroupNorm RMSNorm LocalResponseNorm"),
    "padding": _classes(_padding),
    "pixelshuffle": _named(_resample, "PixelShuffle PixelUnshuffle"),
    "pooling": _classes(_pooling),
    "rnn": _classes(_rnn),
    "sparse": _classes(_embedding),
    "transformer": _classes(_transformer),
    "upsampling": _named(_resample, "Upsample UpsamplingNearest2d UpsamplingBilinear2d"),
}


# Base classes by PyTorch's names that are public layers here, and functions beside layers.
_BESIDE: dict[str, dict[str, Any]] = {
    "batchnorm": {"_LazyNormBase": _lazy._LazyNorm},
    "dropout": {"_DropoutNd": _dropout.Dropout},
    "instancenorm": {"_NormBase": _norm._NormBase},
    "lazy": {"is_lazy": is_lazy},
    "pooling": {
        "_MaxPoolNd": _pooling._MaxPool,
        "_AvgPoolNd": _pooling.AvgPool1d,
        "_LPPoolNd": _pooling._LPPool,
        "_AdaptiveAvgPoolNd": _pooling._AdaptiveAvg,
        "_AdaptiveMaxPoolNd": _pooling._AdaptiveMax,
        "_MaxUnpoolNd": _pooling._MaxUnpool,
    },
    "padding": {"_ConstantPadNd": _padding._Constant},
    "transformer": {
        "_get_clones": _transformer._get_clones,
        "_get_activation_fn": _transformer._get_activation_fn,
        "_generate_square_subsequent_mask": (
            _transformer.Transformer.generate_square_subsequent_mask
        ),
    },
}
# What each of PyTorch's files imports: programs import it from there.
_IMPORTED: dict[str, Any] = {
    "F": functional,
    "Module": Module,
    "Parameter": Parameter,
    "Tensor": Tensor,
    "init": init,
    "xavier_uniform_": init.xavier_uniform_,
    "xavier_normal_": init.xavier_normal_,
    "constant_": init.constant_,
    **{
        name: getattr(_sizes, name)
        for name in ("_single", "_pair", "_triple", "_ntuple", "_reverse_repeat_tuple")
    },
}


def _imported(name: str) -> Any:
    """A name of another file, which PyTorch's file imports."""
    found = _IMPORTED.get(name, _LAYERS.get(name))
    if found is None:
        raise AttributeError(name)
    return found


def _file(name: str, members: dict[str, Any]) -> ModuleType:
    made = ModuleType(f"{__name__}.{name}", f"PyTorch's torch.nn.modules.{name}.")

    def find(wanted: str) -> Any:
        try:
            return _imported(wanted)
        except AttributeError:
            raise MissingName(made.__name__, wanted) from None

    vars(made).update(members, __getattr__=find, **_BESIDE.get(name, {}))
    sys.modules[made.__name__] = made
    return made


globals().update({name: _file(name, members) for name, members in FILES.items()})
utils = sys.modules[f"{__name__}.utils"] = _sizes
_LAYERS = {
    name: kind for file in FILES.values() for name, kind in file.items() if not name.startswith("_")
}
globals().update(_LAYERS)

__all__ = ["Module", "module", "utils", *FILES, *_LAYERS]


def __dir__() -> list[str]:
    return shown(__name__)
