"""PyTorch's `torch._C`: names of its C++ module that libraries touch."""

from __future__ import annotations

import contextlib
import enum
from types import SimpleNamespace
from typing import Any

from rushlight.compat.torch_function import OFF, DisableTorchFunctionSubclass
from rushlight.core.dtypes import DType as _DType
from rushlight.core.errors import RushlightError
from rushlight.methods import disabled_torch_function
from rushlight.nn.conversion import parse_to
from rushlight.ops.random.random import Generator as _Generator
from rushlight.random import default_generator as _default_generator
from rushlight.tape.record.state import set_grad_enabled as _set_recording
from rushlight.tape.vmap import batched
from rushlight.tensor import Size as _Size, Tensor, device as _device

_TensorMeta = type(Tensor)
TensorBase = _TensorBase = Tensor


class Graph:
    """The class of TorchScript graphs; nothing here is an instance of it."""


class Node:
    """The class of TorchScript nodes; nothing here is an instance of it."""


class Value:
    """The class of TorchScript values; nothing here is an instance of it."""


class ScriptModule:
    """The class of TorchScript modules; nothing here is an instance of it."""


DisableTorchFunction = DisableTorchFunctionSubclass
_disabled_torch_function_impl = _disabled_torch_dispatch_impl = disabled_torch_function


def _log_api_usage_once(name: str) -> None:
    """Accepted: no use is counted."""


def _get_tracing_state() -> Any:
    """None: nothing is traced."""
    return None


def _is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def _are_functorch_transforms_active() -> bool:
    """Whether a `vmap` is around."""
    return bool(batched.active())


def _parse_to(*args: Any, **named: Any) -> tuple[Any, Any, bool, Any]:
    """The device, dtype, non_blocking and memory format of the arguments of `Module.to`."""
    found = parse_to(*args, **named)
    return found.where, found.dtype, bool(named.get("non_blocking")), found.memory_format


_nn = SimpleNamespace(_parse_to=_parse_to)


class DispatchKey(enum.Enum):
    """Names of parts of PyTorch's dispatcher, of which there is none here."""

    AutocastCPU = enum.auto()
    AutocastCUDA = enum.auto()
    AutocastXPU = enum.auto()
    CPU = enum.auto()
    CUDA = enum.auto()
    Meta = enum.auto()
    Autograd = enum.auto()
    ADInplaceOrView = enum.auto()
    Python = enum.auto()
    Functionalize = enum.auto()


class DispatchKeySet(frozenset[DispatchKey]):
    """A set of such names."""

    def __new__(cls, *keys: Any) -> DispatchKeySet:
        given = keys[0] if keys and not isinstance(keys[0], DispatchKey) else keys
        return super().__new__(cls, given)

    def __or__(self, other: Any) -> DispatchKeySet:
        return DispatchKeySet(frozenset.__or__(self, other))


class _ExcludeDispatchKeyGuard(contextlib.nullcontext[None]):
    """A block in which parts of the dispatcher are passed over: nothing changes."""

    def __init__(self, keys: Any) -> None:
        super().__init__(None)


class PyTorchFileReader:
    """Reads the members of PyTorch's archives there; `load` reads whole files here."""

    def __init__(self, *args: Any, **named: Any) -> None:
        raise RushlightError("PyTorchFileReader is not supported; load() reads a file as a whole")


def _accepted(*args: Any, **named: Any) -> None:
    """Accepted: a switch of PyTorch's compiler, of which there is none here."""


_jit_set_profiling_executor = _jit_set_profiling_mode = _accepted
_jit_override_can_fuse_on_gpu = _jit_override_can_fuse_on_cpu = _accepted
_jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _accepted
_jit_set_bailout_depth = _accepted
Generator, Size, device, dtype = _Generator, _Size, _device, _DType
default_generator = _default_generator
_set_grad_enabled = _set_recording


def _get_cudnn_enabled() -> bool:
    """Whether cuDNN is used where it is there: always."""
    return True


def _is_torch_function_enabled() -> bool:
    """Whether classes' `__torch_function__` is asked."""
    return not OFF.get()
