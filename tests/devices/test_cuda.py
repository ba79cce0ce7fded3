"""The CUDA device on a GPU: every kernel against the reference device, and what the protocol
promises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from rushlight.core.dtypes import DType, bfloat16, float16, float32, float64
from rushlight.core.errors import OutOfMemoryError
from rushlight.devices.cuda.device import CudaDevice
from rushlight.devices.reference import ReferenceDevice
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import arg
from tests.devices import attend_cases, cuda_launches as cases
from tests.devices.cuda_selfcheck import launched, launched_on_host
from tests.devices.test_webgpu_attend import on_host, run_on

ADD = Map(
    (float32,), (float32, float32), (), (arg(0, float32) + arg(1, float32),), 0, ("1", "1", "1")
)


@pytest.fixture(scope="module")
def cuda(require_device: Callable[[str], str]) -> CudaDevice:
    return pool_of(require_device("cuda")).device


@pytest.mark.slow
@pytest.mark.parametrize(
    "group", ["map_cases", "row_cases", "contract_cases", "index_cases", "scan_cases"]
)
def test_kernels_agree_with_the_reference(cuda: CudaDevice, group: str):
    wrong, reference, built = [], ReferenceDevice(), {}
    for case in getattr(cases, group)(np.random.default_rng(7)):
        if case.kernel not in built:
            built[case.kernel] = cuda.build(case.kernel)
        got, raised = launched(cuda, built[case.kernel], case)
        want, _ = launched_on_host(reference, case)
        found = [cases.differs(case, i, got[i], want[i]) for i in range(len(got))]
        wrong += [f"{case.name}: {text}" for text in found if text]
        wrong += [f"{case.name}: raised {raised}"] if raised != case.bad_index else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [float64, float32, bfloat16, float16], ids=lambda d: d.name)
def test_attention_agrees_with_the_reference(cuda: CudaDevice, dtype: DType):
    run = run_on(cuda)
    every = [*attend_cases.cases(dtype), *attend_cases.wide_cases(dtype)]
    found = [text for case in every for text in attend_cases.wrong(case, run, on_host)]
    assert not found, "\n".join(found)


def test_bytes_come_back(cuda: CudaDevice):
    address = cuda.alloc(1 << 20)
    sent = np.arange(1000, dtype=np.float32)
    cuda.copy_in(address, memoryview(sent.tobytes()))
    back = np.empty_like(sent)
    cuda.copy_out(address, back.data)
    assert address % 64 == 0
    assert np.array_equal(sent, back)
    cuda.free(address, 1 << 20)


def test_no_room_is_an_error_one_can_catch(cuda: CudaDevice):
    with pytest.raises(OutOfMemoryError, match="no room"):
        cuda.alloc(1 << 46)
    cuda.free(cuda.alloc(64), 64)


def test_a_launch_without_numbers_is_refused(cuda: CudaDevice):
    with pytest.raises(TypeError):
        cuda.build(ADD)(None, None, None, 10)


def test_a_fresh_thread_may_launch(cuda: CudaDevice):
    launch = cuda.build(ADD)
    address = cuda.alloc(4096)
    cuda.copy_in(address, np.ones(1024, np.float32).data)
    failures: list[Exception] = []

    def work() -> None:
        try:
            launch(address, address, address, 1024)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    back = np.empty(1024, np.float32)
    cuda.copy_out(address, back.data)
    assert not failures and (back == 2).all()
    cuda.free(address, 4096)
