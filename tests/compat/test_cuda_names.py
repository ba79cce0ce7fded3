"""`torch.cuda`: every public name of PyTorch 2.13 is there, and works or refuses clearly."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight import cuda
from rushlight.compat.hook import patch
from rushlight.core.errors import DeviceUnavailable

_LISTED = """
BFloat16Storage BFloat16Tensor BoolStorage BoolTensor ByteStorage ByteTensor CharStorage CharTensor
ComplexDoubleStorage ComplexFloatStorage CUDAGraph CUDAPluggableAllocator CudaError
DeferredCudaCallError DoubleStorage DoubleTensor Event ExternalStream FloatStorage FloatTensor
GreenContext HalfStorage HalfTensor IntStorage IntTensor LongStorage LongTensor MemPool
OutOfMemoryError ShortStorage ShortTensor Stream StreamContext amp caching_allocator_alloc
caching_allocator_delete caching_allocator_disabled caching_allocator_enable can_device_access_peer
change_current_allocator check_error clock_rate cudaStatus cudart current_blas_handle current_device
current_solver_handle current_stream default_generators default_stream device device_count
device_memory_used device_of empty_cache get_allocator_backend get_arch_list get_device_capability
get_device_name get_device_properties get_gencode_flags get_per_process_memory_fraction
get_rng_state get_rng_state_all get_stream_from_external get_sync_debug_mode graph graph_pool_handle
graphs has_half has_magma host_memory_stats host_memory_stats_as_nested_dict init initial_seed
ipc_collect is_available is_bf16_supported is_current_stream_capturing is_initialized
is_tf32_supported jiterator list_gpu_processes make_graphed_callables manual_seed manual_seed_all
max_memory_allocated max_memory_cached max_memory_reserved mem_get_info memory_allocated
memory_cached memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict
memory_summary memory_usage nccl nvtx power_draw profiler reset_accumulated_host_memory_stats
reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached
reset_peak_host_memory_stats reset_peak_memory_stats seed seed_all set_device
set_per_process_memory_fraction set_rng_state set_rng_state_all set_stream set_sync_debug_mode
sparse stream synchronize temperature tunable use_mem_pool utilization
"""
NAMES = _LISTED.split()


def test_every_public_name_is_there():
    assert [name for name in NAMES if not hasattr(cuda, name)] == []
    assert set(NAMES) <= set(cuda.__all__)


@pytest.mark.parametrize(
    "name",
    [
        "caching_allocator_alloc",
        "change_current_allocator",
        "CUDAPluggableAllocator",
        "GreenContext",
        "current_blas_handle",
        "CUDAGraph",
    ],
)
def test_what_is_not_supported_is_refused_by_name(name):
    with pytest.raises(rl.RushlightError, match=r"cuda|graphs"):
        getattr(cuda, name)()


def test_the_module_of_memory_has_the_recorder_s_names():
    with patch():
        import torch.cuda.memory as module  # type: ignore[import-not-found]

        assert callable(module._record_memory_history)
        assert callable(module.memory_allocated)


def test_statuses():
    cuda.check_error(0)
    with pytest.raises(cuda.CudaError, match="700"):
        cuda.check_error(700)


def test_without_a_card_a_stream_is_an_error():
    if cuda.is_available():
        pytest.skip("there is a card")
    for make in (cuda.Stream, cuda.current_stream, cuda.synchronize):
        with pytest.raises(DeviceUnavailable):
            make()


def test_streams_are_places_in_one_order_where_cuda_is_another_device(require_device):
    require_device("webgpu")
    with patch(device="webgpu"):
        side, first, last = cuda.Stream(), cuda.Event(enable_timing=True), cuda.Event(True)
        first.record()
        with cuda.stream(side):
            x = rl.arange(8.0).pin_memory().to("cuda", non_blocking=True)
            side.wait_stream(cuda.default_stream())
            y = x * 2
        cuda.current_stream().wait_stream(side)
        y.record_stream(cuda.current_stream())
        last.record()
        last.synchronize()
        assert last.query() and side.query()
        assert first.elapsed_time(last) >= 0
        assert y.cpu().tolist() == [2.0 * k for k in range(8)]
        with pytest.raises(rl.RushlightError, match="no CUDA driver"):
            cuda.temperature()
