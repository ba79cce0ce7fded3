"""Rushlight: tensors and reverse-mode autograd with PyTorch's names, on any device, inside a byte budget."""

from __future__ import annotations

from rushlight import amp, autograd, memory, nn, optim, tensor as _tensor_module, utils
from rushlight.amp import autocast
from rushlight.core import dtypes as _dtypes
from rushlight.core.dtypes import (
    DType as dtype,
    bfloat16,
    bool_ as bool,
    float16,
    float32,
    float64,
    get_default as get_default_dtype,
    int32,
    int64,
    promote as promote_types,
    set_default as set_default_dtype,
)
from rushlight.core.errors import (
    BudgetError,
    DeviceError,
    DeviceUnavailable,
    DTypeError,
    GraphFreedError,
    InplaceError,
    NotDifferentiable,
    OutOfMemoryError,
    RushlightError,
    ShapeError,
)
from rushlight.interop import from_numpy
from rushlight.io import load, save
from rushlight.ops.creation import set_default_device
from rushlight.ops.random import Generator, default_generator, get_rng_state, manual_seed, set_rng_state
from rushlight.ops.registry import REGISTRY as _REGISTRY
from rushlight.tape.state import enable_grad, is_grad_enabled, no_grad, set_grad_enabled

Tensor = _tensor_module.Tensor
device = _tensor_module.device
Size = _tensor_module.Size
tensor = _tensor_module.tensor

float = float32
double = float64
half = float16
int = int32
long = int64

globals().update({name: entry.function for name, entry in _REGISTRY.items() if entry.top})

__version__ = "0.1.0"
