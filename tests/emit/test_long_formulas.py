"""Long formulas on the CPU: calls give the bits of the inlined formula."""

from __future__ import annotations  # noqa: I001

import ctypes
import re

import numpy as np
import pytest

import rushlight as rl
from rushlight.core.dtypes import float32, float64, int64
from rushlight.devices.cpu import native
from rushlight.devices.shared.registry import pool_of
from rushlight.emit.llvm import kernels, formula as llvm_formula, long
from rushlight.kernel.shapes import Map
from rushlight.scalar import build as s
from rushlight.scalar.elementary import exp
from rushlight.scalar.gamma import lgamma
from rushlight.scalar.ir import arg, const, index, param, topological
from rushlight.scalar.named import USES, named
from rushlight.scalar.philox import normal, random_word

COUNT = 37


@pytest.fixture
def fresh(monkeypatch):
    """Builds neither read nor write the disk cache."""
    monkeypatch.setattr(native, "read_object", lambda *_: None)
    monkeypatch.setattr(native, "write_object", lambda *_: None)


def run(kernel: Map, *arrays: np.ndarray, numbers: tuple[int, ...] = ()) -> bytes:
    out = np.zeros(COUNT, kernel.outputs[0].name)
    addresses = [a.ctypes.data_as(ctypes.c_void_p).value for a in (out, *arrays)]
    pool_of("cpu").device.build(kernel)(*addresses, COUNT, *numbers)
    return out.tobytes()


def functions(kernel: Map) -> set[str]:
    return set(re.findall(r'define [^@]*@"?([^"(]+)"?\(', kernels.emit(kernel)))


def many_gammas(dtype):
    """The same formula of many operands, some of them constants."""
    x = arg(0, dtype)
    total = const(0, dtype)
    for k in range(12):
        total = total + lgamma(x + float(k)) * exp(x * (1 / (k + 1)))
    return Map((dtype,), (dtype,), (), (total + lgamma(const(2.5, dtype)),), 0, ("1", "1"))


@pytest.mark.parametrize("dtype", [float32, float64], ids=repr)
def test_repeated_formulas_are_calls_of_the_same_bits(dtype, fresh, monkeypatch):
    x = np.linspace(-3, 9, COUNT).astype(dtype.name)
    kernel = many_gammas(dtype)
    names = {f"{formula.name} {dtype.name}" for formula in (lgamma, exp)}
    assert names <= functions(kernel)
    called = run(kernel, x)
    monkeypatch.setattr(llvm_formula, "uses_in", lambda every: {})
    assert not names & functions(kernel)
    assert called == run(kernel, x)


def test_a_use_that_is_not_what_the_function_computes_is_written_out():
    """A multiplication by 1 is simplified away: the template has one more instruction."""

    @named
    def scaled(x, factor):
        for _ in range(12):
            x = x * factor + 1.0
        return x

    x = arg(0, float32)
    plain, short = scaled(x, const(3.0, float32)), scaled(x, const(1.0, float32))
    body = plain + short
    for k in range(60):
        body = body + s.exp(body * (1 / (k + 2)))
    kernel = Map((float32,), (float32,), (), (body,), 0, ("1", "1"))
    text = kernels.emit(kernel)
    assert plain in USES and short in USES
    assert text.count(f'call <16 x float> @"{scaled.name} ') == 1


@pytest.mark.parametrize("dtype", [float32, float64], ids=repr)
@pytest.mark.parametrize("position", [0, 1, 2, 3, (1 << 32) - 2])
def test_random_words_of_a_function_are_those_written_out(dtype, position, fresh, monkeypatch):
    seed, start = param(0, int64), param(1, int64)
    each = 4 if dtype is float64 else 2
    kernel = Map(
        (dtype,), (), (int64, int64), (normal(seed, start + index() * each, dtype),), 0, ("1",)
    )
    assert "random_words" in functions(kernel)
    called = run(kernel, numbers=(77, position))
    monkeypatch.setattr(llvm_formula, "blocks_in", lambda every: [])
    assert "random_words" not in functions(kernel)
    assert called == run(kernel, numbers=(77, position))


def test_one_block_of_random_words_stays_in_the_formula():
    word = random_word(param(0, int64), param(1, int64) + index())
    kernel = Map((int64,), (), (int64, int64), (s.cast(word, int64),), 0, ("1",))
    assert "random_words" not in functions(kernel)


def test_normals_in_double_take_four_words_each():
    """Number n of float64 is made of words 4n to 4n + 3 of the stream, at every start."""
    for start in range(5):
        rl.manual_seed(5)
        rl.rand(start)
        both = rl.randn(3, dtype=rl.float64)
        rl.manual_seed(5)
        rl.rand(start)
        rl.rand(4)
        assert rl.randn(2, dtype=rl.float64).tolist() == both[1:].tolist()


def test_a_long_formula_over_a_transposed_input_is_one_function():
    x = arg(0, float32)
    body = lgamma(x) + arg(1, float32)
    assert len(topological((body,))) > long.LONG
    kernel = Map((float32,), (float32, float32), (), (body,), 2, ("1", "n", "1"))
    text = kernels.emit(kernel)
    assert "body" in functions(kernel)
    assert text.count("call { <16 x float> } @body(") == 3  # a vector, the rest of a row, a tile
    values = rl.rand(70, 50) * 6
    assert rl.lgamma(values.t()).tolist() == rl.lgamma(values.t().contiguous()).tolist()


def test_two_transposed_inputs_share_the_turning():
    a, b = arg(0, float32), arg(1, float32)
    kernel = Map((float32,), (float32, float32), (), (a * b,), 2, ("1", "n", "n"))
    assert "turn.float32" in functions(kernel)
    x, y = rl.rand(70, 50), rl.rand(70, 50)
    assert (x.t() * y.t()).tolist() == (x * y).t().tolist()
