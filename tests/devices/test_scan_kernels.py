"""Scan kernels: the reference device against NumPy, CPU and WebGPU against the reference device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rushlight.core.dtypes import bfloat16, float32, float64, int32, int64
from rushlight.devices.cpu import open_device as open_cpu, threads
from rushlight.devices.reference import ReferenceDevice
from tests.devices import cuda_launches as cases, webgpu_arrays
from tests.devices.webgpu_arrays import Bench

bench = webgpu_arrays.bench  # a fixture is found by its name here

FOLDS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def on_host(device, case):
    buffers = [b.copy() for b in case.buffers]
    device.build(case.kernel)(*cases.numbers_of(case, [b.ctypes.data for b in buffers], 0))
    return buffers


def on_webgpu(bench, case):
    addresses = [bench.put(b) for b in case.buffers]
    bench.device.build(case.kernel)(*cases.numbers_of(case, addresses, 0))
    results = [np.empty_like(b) for b in case.buffers]
    for address, result in zip(addresses, results, strict=True):
        bench.device.copy_out(address, memoryview(result).cast("B"))
    return results


def every():
    return list(cases.scan_cases(np.random.default_rng(5)))


@pytest.mark.parametrize("kind", FOLDS)
@pytest.mark.parametrize("dtype", [float32, float64, int32, int64], ids=str)
def test_the_reference_folds_as_numpy_does(kind, dtype):
    case = cases.scan_case(
        np.random.default_rng(0), kind, cases.scan_kernel(kind, dtype), (3, 20, 5)
    )
    place = slice(cases.GUARD, cases.GUARD + 300)
    x = case.buffers[1][place].reshape(3, 20, 5)
    got = on_host(ReferenceDevice(), case)[0]
    want = FOLDS[kind].accumulate(x, axis=1, dtype=x.dtype)
    np.testing.assert_array_equal(got[place].reshape(3, 20, 5), want)
    assert (np.delete(got, np.arange(300) + cases.GUARD) == 1).all()  # the guards


def test_the_reference_goes_on_with_an_unrounded_state():
    case = cases.Case("halves", cases.scan_kernel("sum", bfloat16), (1, 400, 1))
    case.add(bfloat16, np.zeros(400, np.uint16), (0, 1, 0))
    case.add(bfloat16, cases.stored(np.ones(400), bfloat16), (0, 1, 0))
    got = on_host(ReferenceDevice(), case)[0][cases.GUARD : cases.GUARD + 400]
    assert cases.as_numbers(got, bfloat16)[-1] == 400  # in bfloat16, 256 + 1 is 256


def test_cpu_agrees_with_the_reference():
    reference, cpu, wrong = ReferenceDevice(), open_cpu(), []
    for case in every():
        want, got = on_host(reference, case), on_host(cpu, case)
        found = [cases.differs(case, i, got[i], want[i]) for i in range(len(got))]
        wrong += [f"{case.name}: {text}" for text in found if text]
    assert not wrong, "\n".join(wrong)


def test_bits_on_the_cpu_do_not_depend_on_threads():
    cpu = open_cpu()
    case = cases.scan_case(
        np.random.default_rng(2), "wide", cases.scan_kernel("log", float32), (3, 500, 300)
    )
    results, before = [], threads.count()
    for count in (1, 2, 3, before):
        cpu.set_num_threads(count)
        results.append(on_host(cpu, case)[0].tobytes())
    assert len(set(results)) == 1


def test_nan_stays_to_the_end():
    values = np.array([1.0, np.nan, 3.0, -2.0], np.float32)
    for device in (ReferenceDevice(), open_cpu()):
        for kind in ("max", "min"):
            out = np.zeros(4, np.float32)
            device.build(cases.scan_kernel(kind, float32))(
                out.ctypes.data, values.ctypes.data, 1, 4, 1, 0, 1, 0, 0, 1, 0
            )
            np.testing.assert_array_equal(out, [1, np.nan, np.nan, np.nan])


def test_webgpu_agrees_with_the_reference(bench: Bench):
    reference, wrong = ReferenceDevice(), []
    for case in every():
        if not all(bench.allows(d) for d in case.dtypes):
            continue
        want, got = on_host(reference, case), on_webgpu(bench, case)
        if "special" in case.name:  # Note [Subnormals on WebGPU]
            same = [webgpu_arrays.same(g, w) for g, w in zip(got, want, strict=True)]
            free = "log" in case.name or "prod" in case.name  # products come near the subnormals
            wrong += [] if all(same) or free else [case.name]
            continue
        # A driver may round a * b + c once; the differences accumulate along a row.
        case = replace(case, tolerance=max(case.tolerance, 100))
        found = [cases.differs(case, i, got[i], want[i], scaled=True) for i in range(len(got))]
        wrong += [f"{case.name}: {text}" for text in found if text]
    assert not wrong, "\n".join(wrong)
