"""Cell kernels: the reference device against NumPy in float64, the CPU against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rushlight import scalar as s
from rushlight.core.dtypes import float32
from rushlight.devices.cpu import cell, open_device as open_cpu, threads, tiles
from rushlight.devices.reference import ReferenceDevice
from rushlight.kernel.extents import extents
from rushlight.kernel.shapes import PANEL, Cell
from rushlight.ops.nn import recurrent_formulas as f

AVX512 = pytest.mark.skipif(
    not tiles.available(), reason="limit: this processor has no 512-bit registers"
)
GUARD = 7.0
# Rows, width, terms: less than a tile, whole ones, and more rows than are near at a time.
SIZES = [(1, 16, 1), (2, 5, 3), (6, 32, 64), (7, 40, 130), (48, 17, 20), (101, 33, 300)]
KERNELS = {
    "lstm": f.cell(float32, True, True, False),
    "lstm with gates": f.cell(float32, True, False, True),
    "gru": f.cell(float32, False, True, False),
    "gru with gates": f.cell(float32, False, True, True),
}


def packed(w: np.ndarray) -> np.ndarray:
    """w (products, terms, width) in panels; the columns past the last are NaN."""
    products, terms, width = w.shape
    panels = -(-width // PANEL)
    room = np.full((products, terms, panels * PANEL), np.nan, np.float32)
    room[:, :, :width] = w
    return np.ascontiguousarray(room.reshape(products, terms, panels, PANEL).transpose(2, 0, 1, 3))


class Case:
    """Operands with other numbers beside each row; those of `over` are outputs, too."""

    def __init__(self, kernel: Cell, sizes: tuple[int, int, int], over: int = 0) -> None:
        rows, width, terms = sizes
        random = np.random.default_rng(rows + 100 * width + terms)

        def matrix(columns: int, beside: int) -> np.ndarray:
            room = np.full((rows, columns + beside), GUARD, np.float32)
            room[:, :columns] = random.standard_normal((rows, columns)) / 2
            return room

        self.kernel, self.sizes = kernel, sizes
        self.state = matrix(terms, 3)
        self.w = random.standard_normal((kernel.products, terms, width)) / terms**0.5
        self.w = self.w.astype(np.float32)
        self.inputs = [matrix(width, 2) for _ in range(kernel.inputs)]
        fresh = [matrix(width, 1) for _ in kernel.body]
        self.outputs = [*self.inputs[:over], *fresh[over:]]

    def numbers(self, panels: np.ndarray) -> list[int]:
        operands = [*self.outputs, self.state, panels, *self.inputs]
        steps = [x.shape[1] for x in operands if x is not panels]
        return [*(x.ctypes.data for x in operands), *self.sizes, *steps]

    def run(self, device: Any) -> list[np.ndarray]:
        panels = packed(self.w)
        device.build(self.kernel)(*self.numbers(panels))
        width = self.sizes[1]
        assert all((x[:, width:] == GUARD).all() for x in self.outputs), "others were written to"
        return [x[:, :width].copy() for x in self.outputs]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_reference_is_products_and_a_formula(sizes: tuple[int, int, int]) -> None:
    p, q, x = (s.arg(i, float32) for i in range(3))
    case = Case(Cell(float32, 2, 1, (p * x, q - x)), sizes)
    width, terms = sizes[1:]
    state, x = case.state[:, :terms].astype(float), case.inputs[0][:, :width].astype(float)
    first, second = (state @ w for w in case.w.astype(float))
    for got, want in zip(case.run(ReferenceDevice()), (first * x, second - x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@AVX512
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("sizes", SIZES)
def test_the_cpu_agrees_with_the_reference(name: str, sizes: tuple[int, int, int]) -> None:
    kernel = KERNELS[name]
    # Gates are stored over the inputs' parts.
    for over in {0, kernel.products if "gates" in name else 0}:
        want = Case(kernel, sizes, over).run(ReferenceDevice())
        got = Case(kernel, sizes, over).run(open_cpu())
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@AVX512
def test_bits_depend_on_neither_threads_nor_other_rows() -> None:
    cpu, kernel, before = open_cpu(), KERNELS["lstm"], threads.count()
    case = Case(kernel, (101, 200, 160))
    found = []
    for count in (1, 2, 3, before):
        cpu.set_num_threads(count)
        found.append(case.run(cpu))
    for other in found[1:]:
        assert all((a == b).all() for a, b in zip(other, found[0], strict=True))
    case.state, case.inputs = case.state[50:61].copy(), [x[50:61].copy() for x in case.inputs]
    case.outputs, case.sizes = [x[:11].copy() for x in case.outputs], (11, 200, 160)
    assert all((a == b[50:61]).all() for a, b in zip(case.run(cpu), found[0], strict=True))


def test_what_a_launch_may_touch() -> None:
    kernel = Cell(float32, 2, 1, (s.arg(0, float32) + s.arg(2, float32),))
    reach = list(extents(kernel, [1000, 2000, 3000, 4000, 3, 20, 5, 20, 6, 0], False))
    state = (3 - 1) * 6 + 5
    assert reach == [
        (0, 1000, 1000 + 4 * 60),
        (1, 2000, 2000 + 4 * state),
        (2, 3000, 3000 + 4 * 2 * 32 * 5),
        (3, 4000, 4000 + 4 * 20),
    ]


@AVX512
def test_registers_hold_the_products() -> None:
    """A tile's loop stores nothing."""
    text = cell.text(KERNELS["lstm"])
    assert text.count("llvm.fma.v16f32(") > 6 * 4 and text.count("alloca [") == 2
