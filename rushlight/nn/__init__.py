"""Layers: modules with parameters, on the public ops.

Owns: Module and Parameter, the layers, their initial values, state by name.
Takes: tensors, ops. Gives: modules, `nn.functional`, `nn.init`, `nn.utils`.
Never: reaches below ops/, launches a kernel, keeps state that is not in a parameter, a buffer or an
attribute.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

# The layers, by the file that defines them. See Note [Lazy names].
_LAYERS = {
    "rushlight.nn.activation": (
        "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid "
        "LogSoftmax Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin "
        "Softplus Softshrink Softsign Tanh Tanhshrink Threshold"
    ),
    "rushlight.nn.adaptive_softmax": "AdaptiveLogSoftmaxWithLoss",
    "rushlight.nn.attention": "MultiheadAttention",
    "rushlight.nn.containers": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "rushlight.nn.conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "rushlight.nn.data_parallel": "DataParallel",
    "rushlight.nn.distance": "Bilinear CosineSimilarity LinearCrossEntropyLoss PairwiseDistance",
    "rushlight.nn.dropout": (
        "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout"
    ),
    "rushlight.nn.embedding": "Embedding EmbeddingBag",
    "rushlight.nn.group_norm": (
        "GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d LocalResponseNorm RMSNorm"
    ),
    "rushlight.nn.lazy": (
        "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d "
        "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear"
    ),
    "rushlight.nn.linear": "Flatten Identity Linear Unflatten",
    "rushlight.nn.loss": (
        "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss "
        "HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss MSELoss MarginRankingLoss "
        "MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss PoissonNLLLoss "
        "SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "rushlight.nn.module": "Module",
    "rushlight.nn.norm": "BatchNorm1d BatchNorm2d BatchNorm3d LayerNorm SyncBatchNorm",
    "rushlight.nn.padding": (
        "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d "
        "ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d "
        "ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d"
    ),
    "rushlight.nn.parameter": "Buffer Parameter UninitializedBuffer UninitializedParameter",
    "rushlight.nn.pooling": (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d "
        "LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d "
        "MaxUnpool3d"
    ),
    "rushlight.nn.resample": (
        "ChannelShuffle Fold PixelShuffle PixelUnshuffle Unfold Upsample UpsamplingBilinear2d "
        "UpsamplingNearest2d"
    ),
    "rushlight.nn.rnn": "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "rushlight.nn.transformer": (
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
        "TransformerEncoderLayer"
    ),
}
_NAMES = Names(__name__)
_NAMES.modules("functional init modules parameter utils")
_NAMES.defined({**_LAYERS, "rushlight.compat.nn": "parallel"})
__all__ = sorted(_NAMES.sources)
_NAMES.modules(" ".join(file.rpartition(".")[2] for file in _LAYERS))  # `nn.attention` and others


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
