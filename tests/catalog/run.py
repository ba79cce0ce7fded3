"""Running a row of the catalog on a device: arrays to tensors in a chosen layout, and errors.

The tests and `tests/devices/catalog_table.py` share this, so it needs neither pytest nor ml_dtypes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import rushlight
from rushlight import interop
from rushlight.core.dtypes import DType, bfloat16, int32
from rushlight.devices.shared.registry import pool_of
from rushlight.ops.registry import REGISTRY
from rushlight.tensor import Tensor
from tests.catalog.row import EPSILON, LARGEST, Array, Make, Row, Sample

LAYOUTS = ("plain", "transposed", "strided")


def seed_of(row: Row) -> int:
    """The same numbers for a row in every process (`hash` of a string changes)."""
    return zlib.crc32(row.name.encode())


def samples_of(row: Row, dtype: DType) -> list[Sample]:
    return list(row.samples(Make(seed_of(row), dtype)))


def dtypes_on(row: Row, device: str) -> list[DType]:
    """The row's own dtypes that the device has, and one small integer dtype, by turns."""
    wanted = row.dtypes
    if int32 in wanted and row.small:
        wanted += (row.small[(seed_of(row) + len(device)) % len(row.small)],)
    return [d for d in wanted if d in pool_of(device).device.limits.dtypes]


# ---- in and out ----


def dense(array: Array, dtype: DType, device: str) -> Tensor:
    if dtype is bfloat16:
        words = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return interop.from_pickle(words.tobytes(), dtype, array.shape, device, False)
    return rushlight.tensor(array.astype(dtype.name), device=device)


def _far(dtype: Any) -> Any:
    return dtype.type(0 if dtype.kind == "b" else min(1 << 30, np.iinfo(dtype).max))


def to_tensor(array: Array, dtype: DType, device: str, layout: str = "plain") -> Tensor:
    """The array as a tensor: row-major, column-major, or every second element of a larger one."""
    kept = dtype if array.dtype == np.float64 else interop.from_numpy_dtype(array.dtype)
    if layout == "transposed":
        order = tuple(reversed(range(array.ndim)))
        return (
            dense(np.ascontiguousarray(array.transpose()), kept, device).permute(order)
            if order
            else dense(array, kept, device)
        )
    if layout == "strided":
        # Elements in between must not be read: NaN, or an index far out of range.
        filler = math.nan if array.dtype.kind == "f" else _far(array.dtype)
        room = np.full([2 * n + 1 for n in array.shape] or [2], filler, array.dtype)
        inside = tuple(slice(1, 2 * n, 2) for n in array.shape) or 1
        room[inside] = array
        return dense(room, kept, device)[inside]
    return dense(array, kept, device)


def to_array(tensor: Tensor) -> Array:
    """Floats as float64, everything else as it is."""
    raw = interop.to_bytes(tensor.detach())
    if tensor.dtype is bfloat16:
        words = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        return words.view(np.float32).astype(np.float64).reshape(tensor.shape)
    array = np.frombuffer(raw, tensor.dtype.name).reshape(tensor.shape)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def as_tensors(
    value: Any, dtype: DType, device: str, layout: str, leaves: list[Tensor] | None = None
) -> Any:
    """Arrays replaced by tensors.

    With `leaves`, float tensors require gradients and are listed there.
    """
    if isinstance(value, list) and value and isinstance(value[0], Array):
        return [as_tensors(item, dtype, device, layout, leaves) for item in value]
    if not isinstance(value, Array):
        return value
    tensor = to_tensor(value, dtype, device, layout)
    if leaves is not None and value.dtype == np.float64:
        tensor = tensor.detach().requires_grad_()
        leaves.append(tensor)
    return tensor


def call(
    row: Row,
    sample: Sample,
    dtype: DType,
    device: str,
    layout: str = "plain",
    leaves: list[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    args = [as_tensors(a, dtype, device, layout, leaves) for a in sample.args]
    named = {k: as_tensors(v, dtype, device, layout, leaves) for k, v in sample.named.items()}
    if row.makes:
        named |= {"dtype": dtype, "device": device}
    if not row.random:
        rushlight.manual_seed(seed_of(row))  # lobpcg and others start at random
    out = row.call(REGISTRY[row.name].function, *args, **named)
    return out if isinstance(out, tuple) else (out,)


def expected(row: Row, sample: Sample) -> tuple[Array, ...]:
    assert row.reference is not None
    with np.errstate(all="ignore"):
        out = row.reference(*sample.args, **sample.named)
    return tuple(map(np.asarray, out)) if isinstance(out, tuple) else (np.asarray(out),)


# ---- errors ----


def worst_error(got: Array, want: Array, dtype: DType) -> float:
    """The largest |got - want| / (1 + |want|) in epsilons of `dtype`.

    Infinite where NaN, Inf or integers differ.
    """
    if dtype.kind != "f":
        return 0.0 if np.array_equal(got, want.astype(got.dtype)) else math.inf
    wide = want.astype(np.float64)
    # Numbers beyond the type are infinite; half an epsilon above its largest number still rounds to
    # it.
    wide = np.where(
        np.abs(wide) > LARGEST[dtype] * (1 + EPSILON[dtype] / 4), np.copysign(np.inf, wide), wide
    )
    finite = np.isfinite(wide)
    if (
        not np.array_equal(got[~finite], wide[~finite], equal_nan=True)
        or not np.isfinite(got[finite]).all()
    ):
        return math.inf
    if not finite.any():
        return 0.0
    away = np.abs(got[finite] - wide[finite]) / (1 + np.abs(wide[finite]))
    return float(away.max()) / EPSILON[dtype]


def forward_errors(row: Row, dtype: DType, device: str) -> Iterator[tuple[str, float]]:
    """(where, error in epsilons) for every sample; wrong shape or type counts as infinite."""
    result = row.result(dtype)
    for number, sample in enumerate(samples_of(row, dtype)):
        layouts = LAYOUTS if number < 2 and row.layouts and not row.makes else LAYOUTS[:1]
        wants = None if row.reference is None else expected(row, sample)
        for layout in layouts:
            where = f"{row.name}{sample} {dtype.name} {layout}"
            outs = call(row, sample, dtype, device, layout)
            if wants is None:
                continue
            if len(outs) != len(wants):
                yield f"{where}: {len(outs)} results, expected {len(wants)}", math.inf
            for out, want in zip(outs, wants, strict=False):
                if out.shape != want.shape or out.dtype is not result:
                    yield (
                        f"{where}: {out._spec!r}, expected {result.name}{list(want.shape)}",
                        math.inf,
                    )
                else:
                    yield where, worst_error(to_array(out), want, result)


def forward_problems(row: Row, device: str) -> list[str]:
    """The problems of a row on a device, in words; empty when there are none."""
    problems = []
    for dtype in dtypes_on(row, device):
        allowed = row.tolerance.units(row.result(dtype))
        try:
            for where, error in forward_errors(row, dtype, device):
                if error > allowed:
                    problems.append(f"{where}: error {error:.3g} epsilons, allowed {allowed:g}")
        except Exception as error:
            problems.append(f"{row.name} {dtype.name}: {type(error).__name__}: {error}")
    return problems
