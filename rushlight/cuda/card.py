"""The rest of PyTorch's `torch.cuda`: what the card and its driver say, and clear refusals.

Numbers come from the driver where `cuda` is a card; another device that it stands for has none.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

from rushlight import memory
from rushlight.core.errors import DeviceError, RushlightError
from rushlight.devices.shared.registry import parted, pool_of
from rushlight.ops.create.creation import device_name
from rushlight.tensor import device as Device

has_half = True
has_magma = False


class CudaError(RuntimeError):
    """A status of the driver other than success."""

    def __init__(self, code: int) -> None:
        super().__init__(f"cuda: the driver's status {code}")


class DeferredCudaCallError(RuntimeError):
    """Never raised: nothing is deferred until the card is opened."""


AcceleratorError = DeviceError


def _named(device: Any = None) -> str:
    """The device that a card's name or number stands for; None is the current one."""
    return device_name("cuda" if device is None else Device(device))


def _card() -> Any:
    return pool_of(_named()).device


def _runtime(name: str) -> Any:
    found = getattr(_card(), "runtime", None)
    if found is None:
        raise RushlightError(f"cuda.{name}: {_card().name} has no CUDA driver")
    return found


def _refused(name: str, reason: str) -> Any:
    def refuse(*args: Any, **named: Any) -> NoReturn:
        raise RushlightError(f"cuda.{name}: {reason}")

    refuse.__name__ = name
    refuse.__doc__ = f"Refused: {reason}."
    return refuse


class cudaStatus:
    """The driver's statuses that programs compare with."""

    SUCCESS = 0
    ERROR_NOT_READY = 34


def check_error(res: int) -> None:
    """Raise CudaError for a status other than success.

    Args:
        res (int): A status.
    """
    if res != cudaStatus.SUCCESS:
        raise CudaError(res)


def cudart() -> Any:
    """CuPy's binding of the CUDA runtime."""
    return _runtime("cudart")


# ---- what the driver's tool says ----


def _asked(field: str) -> int:
    """A number of `nvidia-smi`."""
    _runtime(field)
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "-i", "0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(float(done.stdout.split()[0]))
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        raise RushlightError(f"cuda: nvidia-smi does not tell {field} ({error})") from error


def utilization(device: Any = None) -> int:
    """The percentage of the last second in which kernels ran, by `nvidia-smi`.

    Args:
        device (device): The card; None for the current one.
    """
    return _asked("utilization.gpu")


def memory_usage(device: Any = None) -> int:
    """The percentage of the last second in which memory was read or written, by `nvidia-smi`.

    Args:
        device (device): The card; None for the current one.
    """
    return _asked("utilization.memory")


def temperature(device: Any = None) -> int:
    """Degrees Celsius, by `nvidia-smi`.

    Args:
        device (device): The card; None for the current one.
    """
    return _asked("temperature.gpu")


def power_draw(device: Any = None) -> int:
    """Milliwatts, by `nvidia-smi`.

    Args:
        device (device): The card; None for the current one.
    """
    return 1000 * _asked("power.draw")


def clock_rate(device: Any = None) -> int:
    """The clock of the multiprocessors in megahertz, by `nvidia-smi`.

    Args:
        device (device): The card; None for the current one.
    """
    return _asked("clocks.sm")


def device_memory_used(device: Any = None) -> int:
    """Bytes of the card in use by all processes.

    Args:
        device (device): The card; None for the current one.
    """
    free, total = _runtime("device_memory_used").memGetInfo()
    return int(total - free)


def list_gpu_processes(device: Any = None) -> str:
    """The processes on the card and their memory, by `nvidia-smi`.

    Args:
        device (device): The card; None for the current one.
    """
    _runtime("list_gpu_processes")
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True)
    return f"GPU:0\n{done.stdout.strip() or 'no processes are running'}"


def get_gencode_flags() -> str:
    """Empty: kernels are compiled for the present card."""
    return ""


# ---- memory ----


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of the card's memory that this process may take.

    Args:
        device (device): The card; None for the current one.
    """
    pool = pool_of(_named(device))
    total = pool.device.limits.largest_block
    return 1.0 if pool.limit is None else min(1.0, pool.limit / total)


def get_allocator_backend() -> str:
    """The name of the allocator: a caching pool over the driver's."""
    return "rushlight"


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Bytes in use and reserved, by kind.

    Args:
        device (device): The card; None for the current one.
    """
    name = _named(device)
    in_use, peak, held = memory.allocated(name), memory.peak(name), memory.reserved(name)
    used = {"all": {"current": in_use, "peak": peak}}
    return {
        "allocated_bytes": used,
        "active_bytes": used,
        "reserved_bytes": {"all": {"current": held, "peak": held}},
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The pool as one segment. `memory.snapshot` has what the viewer of PyTorch reads.

    Args:
        mempool_id: Has no effect: there is one pool.
        include_traces (bool): Has no effect.
    """
    name = _named()
    held, used = memory.reserved(name), memory.allocated(name)
    segment = {"device": parted(name)[1], "address": 0, "total_size": held, "allocated_size": used}
    return [{**segment, "active_size": used, "segment_type": "large", "blocks": []}]


def host_memory_stats() -> dict[str, int]:
    """Bytes of pinned host memory that are cached."""
    queues = _card().limits.queues
    cached = 0 if queues is None else queues.pinned.cached
    return {"segment_bytes.cached": cached}


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Bytes of pinned host memory that are cached, by kind."""
    return {"segment_bytes": {"cached": host_memory_stats()["segment_bytes.cached"]}}


def reset_peak_host_memory_stats() -> None:
    """Has no effect: no peaks of pinned memory are kept."""


reset_accumulated_host_memory_stats = reset_peak_host_memory_stats


@contextlib.contextmanager
def use_mem_pool(pool: Any, device: Any = None) -> Iterator[None]:
    """A block that uses the one pool.

    Args:
        pool: Has no effect: there is one pool.
        device (device): The card; None for the current one.
    """
    yield


class MemPool:
    """A name for the one pool of the card."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.id = (0, 0)

    def use_count(self) -> int:
        return 1

    def snapshot(self) -> list[dict[str, Any]]:
        return memory_snapshot()


_ONE_POOL = "every byte comes from the one counted pool; use rushlight.memory"
caching_allocator_alloc = _refused("caching_allocator_alloc", _ONE_POOL)
caching_allocator_delete = _refused("caching_allocator_delete", _ONE_POOL)
caching_allocator_enable = _refused("caching_allocator_enable", _ONE_POOL)
caching_allocator_disabled = _refused("caching_allocator_disabled", _ONE_POOL)
change_current_allocator = _refused("change_current_allocator", _ONE_POOL)
CUDAPluggableAllocator = _refused("CUDAPluggableAllocator", _ONE_POOL)
GreenContext = _refused("GreenContext", "kernels run on the whole card")
current_blas_handle = _refused("current_blas_handle", "handles of cuBLAS are not given out")
current_solver_handle = _refused("current_solver_handle", "handles of cuSOLVER are not given out")

_NO_JITERATOR = "write a kernel with rushlight.library, or compose ops: they are fused"
jiterator = SimpleNamespace(
    _create_jit_fn=_refused("jiterator", _NO_JITERATOR),
    _create_multi_output_jit_fn=_refused("jiterator", _NO_JITERATOR),
)
_NO_NCCL = "collectives are rushlight.distributed's"
nccl = SimpleNamespace(
    is_available=lambda tensors=(): False,
    version=_refused("nccl.version", _NO_NCCL),
    all_reduce=_refused("nccl.all_reduce", _NO_NCCL),
    broadcast=_refused("nccl.broadcast", _NO_NCCL),
)


@contextlib.contextmanager
def _profiled() -> Iterator[None]:
    """The part of a program that NVIDIA's tools record."""
    runtime = _runtime("profiler.profile")
    runtime.profilerStart()
    try:
        yield
    finally:
        runtime.profilerStop()


profiler = SimpleNamespace(
    start=lambda: _runtime("profiler.start").profilerStart(),
    stop=lambda: _runtime("profiler.stop").profilerStop(),
    init=_refused("profiler.init", "NVIDIA's tools read their own settings"),
    profile=_profiled,
)

_TUNED = "algorithms are chosen by the sizes alone, so that bits do not change"
tunable = SimpleNamespace(
    is_enabled=lambda: False,
    tuning_is_enabled=lambda: False,
    enable=_refused("tunable.enable", _TUNED),
    tuning_enable=_refused("tunable.tuning_enable", _TUNED),
)
