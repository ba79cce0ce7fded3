"""Attend kernels in CUDA C, run by the emulation, against the reference device."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rushlight.core.dtypes import bfloat16, bool_, float16, float32, float64
from rushlight.devices.reference import ReferenceDevice
from rushlight.emit.cuda import attend
from rushlight.kernel.shapes import Attend, Kernel
from tests.devices import attend_cases
from tests.emit.cuda_emulation import Emulator


def run_on(device: Emulator | ReferenceDevice) -> attend_cases.Run:
    """Launches on host memory."""

    def run(kernel: Kernel, arrays: list[np.ndarray], numbers: list[float]) -> None:
        device.build(kernel)(*(a.ctypes.data for a in arrays), *numbers)

    return run


def _check(cases: list[attend_cases.Case], folder: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    emulated, reference = run_on(Emulator(folder)), run_on(ReferenceDevice())
    found = [text for case in cases for text in attend_cases.wrong(case, emulated, reference)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=lambda d: d.name)
def test_a_causal_case(dtype, tmp_path: Path):
    _check(list(attend_cases.cases(dtype))[2:3], tmp_path)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=lambda d: d.name)
def test_a_mask_of_the_lowest_number(dtype, tmp_path: Path):
    _check(list(attend_cases.cases(dtype))[-1:], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [float64, float32, bfloat16, float16], ids=lambda d: d.name)
def test_every_case(dtype, tmp_path: Path):
    _check(list(attend_cases.cases(dtype)), tmp_path)


def test_tiles_fit_the_shared_memory_of_each_gpu():
    """227 KiB of Hopper, 163 of Ampere, 99 of consumer cards, 48 of none."""
    found = {
        dtype.name: [attend.widest(dtype, kibibytes << 10) for kibibytes in (227, 163, 99, 48)]
        for dtype in (float32, float64, bfloat16)
    }
    assert found == {
        "float32": [256, 64, 32, 0],
        "float64": [256, 64, 32, 0],
        "bfloat16": [256, 128, 64, 0],
    }


def test_halves_take_tensor_cores_up_to_128_features():
    for of, width, expected in (("output", 128, True), ("keys", 129, False), ("mask", 64, False)):
        mask = float32 if of == "mask" else bool_
        assert attend.by_tensor_cores(Attend(bfloat16, of, width, 64, mask)) is expected
    assert not attend.by_tensor_cores(Attend(float32, "output", 64, 64))
