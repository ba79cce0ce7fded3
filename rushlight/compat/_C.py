"""PyTorch's `torch._C`: names of its C++ module that libraries touch."""

from __future__ import annotations

import contextlib
import enum
from types import SimpleNamespace
from typing import Any

from rushlight.compat.torch_function import DisableTorchFunctionSubclass
from rushlight.core.errors import RushlightError
from rushlight.methods import disabled_torch_function
from rushlight.nn.conversion import parse_to
from rushlight.tape.vmap import batched
from rushlight.tensor import Tensor

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
_disabled_torch_function_impl = disabled_torch_function


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
