"""A WebGPU device with arrays instead of addresses, int64 native and emulated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rushlight.core import dtypes as t
from rushlight.core.config import required_devices
from rushlight.core.dtypes import DType
from rushlight.core.errors import DeviceUnavailable
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.webgpu import open_device
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import Expr

Array = np.ndarray[Any, Any]
NUMPY = {d.name: np.dtype(d.name) for d in t.ALL if d.name != "bfloat16"} | {
    "bfloat16": np.dtype(ml_dtypes.bfloat16)
}
TINY = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-23, "float64": 2.0**-52}


class Bench:
    """A device with arrays instead of addresses."""

    def __init__(self, without: tuple[str, ...]) -> None:
        self.device = open_device(without=without)
        pool = Pool(self.device)
        self.device.pool = lambda: pool

    def put(self, array: Array, shift: int = 0) -> int:
        """The array's address, `shift` elements into its own block, which is filled with ones."""
        room = (array.size + shift) * array.itemsize + 16
        address = self.device.alloc(room)
        self.device.copy_in(address, memoryview(b"\xff" * room))
        place = address + shift * array.itemsize
        if array.nbytes:
            self.device.copy_in(
                place, memoryview(np.ascontiguousarray(array).view(np.uint8).reshape(-1))
            )
        return place

    def get(self, address: int, shape: tuple[int, ...], dtype: DType) -> Array:
        out = np.zeros(shape, NUMPY[dtype.name])
        self.device.copy_out(address, memoryview(out.view(np.uint8).reshape(-1)))
        return out

    def allows(self, dtype: DType) -> bool:
        return dtype in self.device.limits.dtypes

    def flat(
        self, body: Expr, out: DType, *inputs: Array, shift: int = 0, params: tuple[float, ...] = ()
    ) -> Array:
        """A flat map over inputs of one length (or of length 1, which stay)."""
        n = max((a.size for a in inputs), default=1)
        types = tuple(by_numpy(a) for a in inputs)
        steps = ("1", *("1" if a.size == n else "0" for a in inputs))
        kinds = tuple(t.int64 if isinstance(p, int) else t.float32 for p in params)
        launch = self.device.build(Map((out,), types, kinds, (body,), 0, steps))
        address = self.put(np.zeros(n, NUMPY[out.name]), shift)
        launch(address, *(self.put(a, shift) for a in inputs), n, *params)
        return self.get(address, (n,), out)


def by_numpy(array: Array) -> DType:
    return t.by_name(array.dtype.name)


def strides_of(array: Array) -> tuple[int, ...]:
    return tuple(step // array.itemsize for step in array.strides)


def sample(dtype: DType, shape: tuple[int, ...] | int, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return random.integers(-40 if dtype.kind == "i" else 0, 40, shape).astype(dtype.name)
    return random.standard_normal(shape).astype(NUMPY[dtype.name])


def need(bench: Bench, dtype: DType) -> None:
    if not bench.allows(dtype):
        pytest.skip(f"limit: no {dtype.name}")


def same(got: Array, want: Array) -> bool:
    """Equal, NaN to NaN, except for 0 in place of a float32 subnormal:
    Note [Subnormals on WebGPU].
    """
    with np.errstate(invalid="ignore"):  # signalling NaNs
        got, want = got.astype("f8"), want.astype("f8")
    flushed = (got == 0) & (np.abs(want) < 2.0**-126)
    return bool(((got == want) | (np.isnan(got) & np.isnan(want)) | flushed).all())


@pytest.fixture(scope="module", params=[(), ("shader-int64",)], ids=["native", "emulated"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    try:
        yield Bench(request.param)
    except DeviceUnavailable as error:
        if "webgpu" in required_devices():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
