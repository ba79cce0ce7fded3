"""PyTorch's `torch.cuda`: availability, streams, bytes in use, seeds; the rest is in `card.py`.

Owns: those names. Takes: a device. Gives: numbers.
Never: opens the card to report bytes in use: a card that is not open has 0 bytes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

# `import torch.cuda.memory` puts another module under the plain name.
from rushlight import memory as _memory, memory as memory, random as _random, random as random
from rushlight.compat.legacy import kind_of
from rushlight.core import dtypes
from rushlight.core.errors import DeviceUnavailable, OutOfMemoryError
from rushlight.core.interrupts import unheard
from rushlight.core.saying import say_once
from rushlight.cuda import amp, streams as graphs, streams as streams
from rushlight.cuda.streams import (
    CUDAGraph,
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
    set_stream,
    stream,
)
from rushlight.devices.shared.registry import count_of, opened, parted, pool_of
from rushlight.lazy import Names, shown
from rushlight.ops.create.creation import CURRENT, device_name, make_current
from rushlight.tensor import device as Device

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CUDAGraph",
    "CharTensor",
    "DoubleTensor",
    "Event",
    "ExternalStream",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "OutOfMemoryError",
    "ShortTensor",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "graphs",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "nvtx",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "synchronize",
]


_names = Names(__name__)
_names.defined(
    {
        "rushlight.cuda.card": (
            "CUDAPluggableAllocator CudaError DeferredCudaCallError GreenContext MemPool "
            "caching_allocator_alloc caching_allocator_delete caching_allocator_disabled "
            "caching_allocator_enable change_current_allocator check_error clock_rate cudaStatus "
            "cudart current_blas_handle current_solver_handle device_memory_used "
            "get_allocator_backend get_gencode_flags get_per_process_memory_fraction has_half "
            "has_magma host_memory_stats host_memory_stats_as_nested_dict jiterator "
            "list_gpu_processes memory_snapshot memory_stats_as_nested_dict memory_usage nccl "
            "power_draw profiler reset_accumulated_host_memory_stats reset_peak_host_memory_stats "
            "temperature tunable use_mem_pool utilization AcceleratorError"
        ),
        "rushlight": (
            "BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage "
            "ComplexFloatStorage DoubleStorage FloatStorage HalfStorage IntStorage LongStorage "
            "ShortStorage sparse"
        ),
    }
)
__all__ += list(_names.sources)
__getattr__ = _names.find

BFloat16Tensor = kind_of(dtypes.bfloat16, "cuda")
BoolTensor = kind_of(dtypes.bool_, "cuda")
ByteTensor = kind_of(dtypes.uint8, "cuda")
CharTensor = kind_of(dtypes.int8, "cuda")
DoubleTensor = kind_of(dtypes.float64, "cuda")
FloatTensor = kind_of(dtypes.float32, "cuda")
HalfTensor = kind_of(dtypes.float16, "cuda")
IntTensor = kind_of(dtypes.int32, "cuda")
LongTensor = kind_of(dtypes.int64, "cuda")
ShortTensor = kind_of(dtypes.int16, "cuda")


def __dir__() -> list[str]:
    return shown(__name__)


def _card(device: Any = None) -> str:
    """The device that a card's name or number stands for; None is the current one.

    Under `rushlight run` that may be another one than a card.
    """
    if device is None or (isinstance(device, int) and device < 0):
        return device_name("cuda")
    named = Device(device)
    if named.type != "cuda":
        raise ValueError(f"cuda: a card is meant, got device {device_name(device)!r}")
    return device_name(named)


def is_available() -> bool:
    """Whether there is a usable card."""
    try:
        pool_of(_card())
    except DeviceUnavailable:
        return False
    return True


def device_count() -> int:
    """The number of cards: 1 or 0, or that of the GPUs that stand for them."""
    return count_of(parted(_card())[0]) if is_available() else 0


def is_initialized() -> bool:
    """Whether the current card is in use."""
    return _is_open(_card())


def _is_open(name: str) -> bool:
    return any(pool.device.name == name for pool in opened())


def current_device() -> int:
    """The number of the card in use."""
    pool_of(_card())
    return parted(_card())[1]


def set_device(device: Any) -> None:
    """Choose the card that "cuda" without a number is.

    Args:
        device (device or int): The card.
    """
    make_current(*parted(_card(device)))


class device:
    """A block in which "cuda" without a number is this card.

    `set_default_device` chooses where new tensors are made.
    """

    def __init__(self, device: Any) -> None:
        self.idx = parted(_card(device))[1]
        self.before: list[int] = []  # of blocks that run

    def __enter__(self) -> None:
        kind, number = parted(_card())
        self.before.append(number)
        make_current(kind, self.idx)

    @unheard
    def __exit__(self, *_: object) -> None:
        CURRENT[parted(_card())[0]] = self.before.pop()


def synchronize(device: Any = None) -> None:
    """Wait until all work given to the card is done.

    Args:
        device (device): The card; None for the current one.
    """
    pool_of(_card(device)).device.synchronize()


def get_device_name(device: Any = None) -> str:
    """The card's name.

    Args:
        device (device): The card; None for the current one.
    """
    description = pool_of(_card(device)).device.limits.description
    before_comma = re.match(
        r"(?:\([^)]*\)|[^,])*", description
    )  # commas in parentheses belong to it
    return description if before_comma is None else before_comma[0]


class DeviceProperties(NamedTuple):
    """What is known of a device."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, bytes and compute capability, (0, 0) of what is no CUDA card.

    Args:
        device (device): The card; None for the current one.
    """
    found: Any = pool_of(_card(device)).device
    runtime = getattr(found, "runtime", None)
    told = {} if runtime is None else runtime.getDeviceProperties(runtime.getDevice())
    return DeviceProperties(
        get_device_name(device),
        found.limits.largest_block,
        told.get("major", 0),
        told.get("minor", 0),
        told.get("multiProcessorCount", 0),
    )


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability, (0, 0) of what is no CUDA card.

    Args:
        device (device): The card; None for the current one.
    """
    found = get_device_properties(device)
    return found.major, found.minor


def get_arch_list() -> list[str]:
    """None: kernels are compiled for the present card."""
    return []


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """False: copies between cards go through the host.

    Args:
        device (device): A card.
        peer_device (device): Another.
    """
    return False


def init() -> None:
    """Open the card."""
    pool_of(_card())


def is_tf32_supported() -> bool:
    """False: float32 products are computed in float32."""
    return False


class device_of(device):
    """A block on the card of a tensor."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.is_cuda else None)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every device has bfloat16.

    Args:
        including_emulation (bool): Has no effect.
    """
    return is_available()


# ---- bytes ----


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors own.

    Args:
        device (device): The card; None for the current one.
    """
    name = _card(device)
    return _memory.allocated(name) if _is_open(name) else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors owned since the start or `reset_peak_memory_stats`.

    Args:
        device (device): The card; None for the current one.
    """
    name = _card(device)
    return _memory.peak(name) if _is_open(name) else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that the driver holds: of tensors, of cached blocks, and between blocks.

    Args:
        device (device): The card; None for the current one.
    """
    name = _card(device)
    return _memory.given(name) if _is_open(name) else 0


max_memory_reserved = memory_cached = max_memory_cached = memory_reserved


def free_and_total(device: Any = None) -> tuple[int, int]:
    """The bytes that this process could still take, and all.

    Args:
        device (device): The card; None for the current one.
    """
    total = get_device_properties(device).total_memory
    limit = pool_of(_card(device)).limit or total
    return max(0, min(limit, total) - memory_reserved(device)), total


mem_get_info = free_and_total


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes in use and reserved, now and at their peak, under PyTorch's keys.

    Args:
        device (device): The card; None for the current one.
    """
    in_use, peak = memory_allocated(device), max_memory_allocated(device)
    held = memory_reserved(device)
    return {
        **{f"{kind}_bytes.all.current": in_use for kind in ("allocated", "active")},
        **{f"{kind}_bytes.all.peak": peak for kind in ("allocated", "active")},
        **{f"reserved_bytes.all.{when}": held for when in ("current", "peak")},
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limit this process to a part of the card's memory: a budget.

    Args:
        fraction (float): The part, from 0 to 1.
        device (device): The card; None for the current one.
    """
    limit = int(fraction * get_device_properties(device).total_memory)
    _memory.set_budget(limit, _card(device))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The bytes in use and, where they were recorded, their owners: see `memory.summary`.

    Args:
        device (device): The card; None for the current one.
        abbreviated (bool): Has no effect.
    """
    name = _card(device)
    return _memory.summary(name) if _is_open(name) else "Memory on cuda: the card is not in use"


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peak.

    Args:
        device (device): The card; None for the current one.
    """
    name = _card(device)
    if _is_open(name):
        _memory.reset_peak(name)


def empty_cache() -> None:
    """Free cached blocks."""
    if is_initialized():
        _memory.empty_cache(_card())


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
reset_accumulated_memory_stats = reset_peak_memory_stats


def ipc_collect() -> None:
    """Has no effect: no memory of the card is shared between processes."""


_SYNC = [0]


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Accepted; `memory.transfers()` counts copies to the host.

    Args:
        debug_mode (int or str): 0, 1, 2, or "default", "warn", "error".
    """
    names = ("default", "warn", "error")
    _SYNC[0] = names.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if _SYNC[0]:
        say_once("cuda.set_sync_debug_mode has no effect; memory.transfers() counts copies")


def get_sync_debug_mode() -> int:
    """The mode of `set_sync_debug_mode`."""
    return _SYNC[0]


@contextlib.contextmanager
def _marked(msg: str, *args: Any, **named: Any) -> Iterator[None]:
    yield


# Marks for NVIDIA's tools, which are not told of them.
nvtx = SimpleNamespace(
    range=_marked,
    range_push=lambda msg: -1,
    range_pop=lambda: -1,
    mark=lambda msg: None,
    range_start=lambda msg: 0,
    range_end=lambda number: None,
)


# ---- random numbers: one stream for all devices ----


def manual_seed(seed: int) -> None:
    """Start the stream, which all devices share, at the beginning of `seed`.

    Args:
        seed (int): The seed.
    """
    _random.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Start the stream at a random seed."""
    _random.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the stream."""
    return _random.initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of the stream.

    Args:
        device (device): Has no effect: all devices share one stream.
    """
    return _random.get_rng_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Restore a state of `get_rng_state`.

    Args:
        new_state (Tensor): A state.
        device (device): Has no effect: all devices share one stream.
    """
    _random.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of the stream of each card."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Any) -> None:
    """Restore the states of `get_rng_state_all`.

    Args:
        new_states: The states, as `get_rng_state_all` returns them.
    """
    for state in new_states:
        set_rng_state(state)


default_generators = (_random.default_generator,)
