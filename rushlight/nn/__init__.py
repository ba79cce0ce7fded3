"""Layers: modules with parameters, on the public ops.

Owns: Module and Parameter, the layers, their starting values, state by name.
Takes: tensors, ops. Gives: modules, `nn.functional`, `nn.init`, `nn.utils`.
Never: reaches below ops/, launches a kernel, keeps state that is not in a parameter, a buffer or an attribute.
"""

from rushlight.nn import functional, init, utils
from rushlight.nn.activation import GELU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from rushlight.nn.containers import ModuleDict, ModuleList, Sequential
from rushlight.nn.conv import Conv2d
from rushlight.nn.dropout import Dropout
from rushlight.nn.embedding import Embedding
from rushlight.nn.linear import Flatten, Identity, Linear
from rushlight.nn.loss import CrossEntropyLoss, MSELoss
from rushlight.nn.module import Module
from rushlight.nn.norm import BatchNorm1d, BatchNorm2d, LayerNorm
from rushlight.nn.parameter import Parameter
from rushlight.nn.pooling import AvgPool2d, MaxPool2d

__all__ = [
    "GELU",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "functional",
    "init",
    "utils",
]
