"""Launches of Attend kernels: on the emulation and on a GPU, against the reference device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rushlight.core.dtypes import DType, bfloat16, bool_, float16, float32, float64
from rushlight.devices.reference import narrow, widen
from rushlight.kernel.attend import inner_sizes, operands_of, outputs_of
from rushlight.kernel.shapes import Attend, Kernel

# Errors in units of the largest result.
LIMITS = {float64: 1e-13, float32: 4e-6, float16: 2e-3, bfloat16: 1.5e-2}

# Arrays of the operands by name to launch numbers, and the outputs after it.
Run = Callable[[Kernel, list[np.ndarray], list[float]], None]


@dataclass(frozen=True)
class Case:
    """`turned`: heads lie between rows and features; `apart`: nothing is aligned.

    `low`: the mask adds the lowest number to the first 66 keys of each row, and to all of one row.
    """

    dtype: DType
    batch: tuple[int, int, int]
    rows: int
    keys: int
    width: int
    depth: int
    mask: DType | None = None
    causal: bool = False
    dropout: bool = False
    turned: bool = False
    apart: bool = False
    low: bool = False

    def kernel(self, of: str) -> Attend:
        if of == "along":
            return Attend(self.dtype, of, self.width, self.depth)
        return Attend(self.dtype, of, self.width, self.depth, self.mask, self.causal, self.dropout)


def cases(dtype: DType) -> Iterator[Case]:
    yield Case(dtype, (1, 2, 1), 70, 90, 16, 16)
    yield Case(dtype, (2, 1, 2), 140, 70, 24, 40, causal=True, turned=True)
    yield Case(dtype, (1, 2, 1), 33, 65, 7, 9, causal=True, dropout=True)
    yield Case(dtype, (1, 2, 2), 66, 70, 64, 64, mask=float32, apart=True)
    yield Case(dtype, (1, 2, 1), 20, 70, 5, 64, mask=bool_, turned=True)
    yield Case(dtype, (1, 1, 1), 1, 3, 100, 128, causal=True)
    yield Case(dtype, (1, 1, 2), 5, 0, 8, 8)
    yield Case(dtype, (1, 1, 2), 0, 5, 8, 8)
    yield Case(dtype, (1, 1, 1), 20, 80, 8, 8, mask=float32, low=True)


def wide_cases(dtype: DType) -> Iterator[Case]:
    yield Case(dtype, (1, 1, 1), 20, 70, 200, 256, causal=True)
    yield Case(dtype, (1, 2, 1), 260, 300, 128, 128, causal=True)


def _stored(values: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype is bfloat16:
        return narrow(values.astype(np.float32))
    return values > 0 if dtype is bool_ else values.astype(dtype.name)


def _operand(case: Case, name: str, dtype: DType, values: np.ndarray) -> np.ndarray:
    array = _stored(values, dtype)
    if case.turned and name in ("q", "k", "v", "g", "out"):
        return np.ascontiguousarray(array.swapaxes(2, 3)).swapaxes(2, 3)
    if case.apart:
        whole = np.zeros((*array.shape[:-1], array.shape[-1] + 1), array.dtype)
        whole[..., 1:] = array
        return whole[..., 1:]
    return array


def strides_of(array: np.ndarray) -> list[int]:
    """In elements, 0 for a dimension of size 1."""
    return [0 if n == 1 else s // array.itemsize for n, s in zip(array.shape, array.strides)]  # noqa: B905


def wrong(case: Case, run: Run, reference: Run) -> list[str]:
    """What differs from the reference in the forms of attention, each on the reference's results.

    A mask's second dimension is shared.
    """
    rng = np.random.default_rng(0)
    known: dict[str, np.ndarray] = {}
    masked = {} if case.mask is None else {"mask": case.mask}
    for name, dtype in {**dict.fromkeys(("q", "k", "v", "g"), case.dtype), **masked}.items():
        sizes = inner_sizes(case.kernel("output"), name, case.rows, case.keys)
        batch = (case.batch[0], 1, case.batch[2]) if name == "mask" else case.batch
        values = rng.standard_normal((*batch, *sizes))
        if case.low and name == "mask":
            values[..., :66] = values[..., 3, :] = np.finfo(np.float32).min
        known[name] = _operand(case, name, dtype, values)
    forms = ["output", "along", "query", "keys"]
    if case.mask not in (None, bool_):
        forms.append("mask")
    found = []
    for of in forms:
        results = [_launch(case, case.kernel(of), known, way) for way in (reference, run)]
        for name, (want, dtype) in results[0].items():
            known[name] = want
            right, got = _values(want, dtype), _values(results[1][name][0], dtype)
            error = np.abs(right - got).max(initial=0.0)
            limit = max(LIMITS[case.dtype], LIMITS[dtype])
            if not error <= limit * max(1.0, np.abs(right).max(initial=0.0)):
                found.append(f"{name} of {case}: {error}")
    return found


def _values(array: np.ndarray, dtype: DType) -> np.ndarray:
    return widen(array) if dtype is bfloat16 else array.astype(np.float64)


def _launch(
    case: Case, kernel: Attend, known: dict[str, np.ndarray], run: Run
) -> dict[str, tuple[np.ndarray, DType]]:
    arrays: dict[str, tuple[np.ndarray, DType]] = {}
    for name, dtype in operands_of(kernel).items():
        array = known.get(name)
        if name in outputs_of(kernel):
            batch = (case.batch[0], 1, case.batch[2]) if name == "dmask" else case.batch
            sizes = inner_sizes(kernel, name, case.rows, case.keys)
            array = _operand(case, name, dtype, np.full((*batch, *sizes), 7.0))
        assert array is not None
        arrays[name] = array, dtype
    numbers: list[Any] = [*case.batch, case.rows, case.keys]
    for array, _ in arrays.values():
        numbers += strides_of(array)
    if kernel.of != "along":
        numbers.append(0.3)
        numbers += [5, 11, 0.3, 1 / 0.7] if case.dropout else []
    run(kernel, [array for array, _ in arrays.values()], numbers)
    return {name: arrays[name] for name in outputs_of(kernel)}
