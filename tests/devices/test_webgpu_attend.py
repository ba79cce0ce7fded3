"""Attend kernels in WGSL on an adapter, against the reference device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rushlight.core.dtypes import DType, bfloat16, float16, float32
from rushlight.devices.reference import ReferenceDevice
from rushlight.devices.shared.protocol import Device
from rushlight.devices.shared.registry import pool_of
from rushlight.emit.wgsl.attend import widest
from rushlight.kernel.shapes import Kernel
from tests.devices import attend_cases


@pytest.fixture(scope="module")
def webgpu(require_device: Callable[[str], str]) -> Device:
    return pool_of(require_device("webgpu")).device


def on_host(kernel: Kernel, arrays: list[np.ndarray], numbers: list[float]) -> None:
    ReferenceDevice().build(kernel)(*(a.ctypes.data for a in arrays), *numbers)


def run_on(device: Device) -> attend_cases.Run:
    """Each array's whole block is copied in and out, so what lies between elements stays."""

    def run(kernel: Kernel, arrays: list[np.ndarray], numbers: list[float]) -> None:
        roots = [a if a.base is None else a.base for a in arrays]
        places = [device.alloc(max(r.nbytes, 64)) for r in roots]
        for place, root in zip(places, roots, strict=True):
            device.copy_in(place, root.reshape(-1).view(np.uint8).data)
        moved = [
            p + a.ctypes.data - r.ctypes.data for p, a, r in zip(places, arrays, roots, strict=True)
        ]
        device.build(kernel)(*moved, *numbers)
        for place, root in zip(places, roots, strict=True):
            device.copy_out(place, root.reshape(-1).view(np.uint8).data)
            device.free(place, max(root.nbytes, 64))

    return run


def _check(cases: list[attend_cases.Case], device: Device) -> None:
    run = run_on(device)
    found = [text for case in cases for text in attend_cases.wrong(case, run, on_host)]
    assert not found, "\n".join(found)


def test_a_causal_case_with_dropout(webgpu: Device):
    _check(list(attend_cases.cases(float32))[2:3], webgpu)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [float32, bfloat16, float16], ids=lambda d: d.name)
def test_every_case(webgpu: Device, dtype: DType):
    _check(list(attend_cases.cases(dtype)), webgpu)


def test_heads_fit_the_adapter():
    """Workgroup memory of 48, 32 and 16 KiB; too few storage buffers."""
    assert [widest(kibibytes << 10, 10) for kibibytes in (48, 32, 16)] == [128, 64, 0]
    assert widest(48 << 10, 8) == 0
