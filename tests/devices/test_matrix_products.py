"""The ways of a matrix product: every edge of each way, every layout, the same bits for any
threads.

The bits do not depend on the other rows either.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from itertools import product as grid
from typing import Any

import numpy as np
import pytest

import rushlight
from rushlight import memory
from rushlight.core.dtypes import DType, float32, float64
from rushlight.devices.cpu import blas, gemm, native, small_products as small, threads, tiles
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.shapes import Contract

AVX512 = pytest.mark.skipif(
    not tiles.available(), reason="limit: this processor has no 512-bit registers"
)
LAYOUTS = ["nn", "nt", "tn", "tt"]
NUMPY = {float32: np.float32, float64: np.float64}
EDGES = [1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33]


def operands(m: int, n: int, k: int, dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(m + 64 * n + 4096 * k)
    a, b = (random.standard_normal(shape).astype(NUMPY[dtype]) for shape in ((m, k), (k, n)))
    return a, b


def laid(x: np.ndarray, layout: str) -> np.ndarray:
    """The same matrix, dense along its rows ("n") or along its columns ("t")."""
    return np.ascontiguousarray(x) if layout == "n" else np.ascontiguousarray(x.T).T


def tensor(x: np.ndarray) -> Any:
    return (
        rushlight.tensor(x)
        if x.flags.c_contiguous
        else rushlight.tensor(np.ascontiguousarray(x.T)).T
    )


def assert_near(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Against a wider type, to the bound that holds for any order of the sum."""
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    expected, scale = (
        a.astype(wide) @ b.astype(wide),
        np.abs(a).astype(wide) @ np.abs(b).astype(wide),
    )
    unit = np.finfo(a.dtype).eps / 2
    bound = scale * unit * (a.shape[1] + 1)
    assert (np.abs(got - expected) <= bound).all(), (a.shape, b.shape)


def numbers(out: np.ndarray, a: np.ndarray, b: np.ndarray) -> list[int]:
    """A launch's arguments for one product of these matrices."""
    steps = [[0, 0, *(s // x.itemsize for s in x.strides)] for x in (out, a, b)]
    sizes = [1, 1, *out.shape, a.shape[1]]
    return [*(x.ctypes.data for x in (out, a, b)), *sizes, *(s for three in steps for s in three)]


def way_of(out: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: DType, wide: bool = True) -> int:
    """The result of @plan."""
    declared: set[str] = set()
    text = small.plan(declared, dtype, wide).replace("internal ", "")
    source = native.Source(f"test plan {dtype.name} {wide}", lambda: "\n".join([text, *declared]))
    (address,) = native.load(source, "plan")
    plan = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(address)
    given = numbers(out, a, b)
    return int(plan((ctypes.c_int64 * len(given))(*given), (ctypes.c_int64 * 4)()))


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_edges(layout: str, dtype: DType) -> None:
    for m, n, k in grid(EDGES, EDGES, [1, 7, 16, 33]):
        a, b = operands(m, n, k, dtype)
        got = tensor(laid(a, layout[0])) @ tensor(laid(b, layout[1]))
        assert_near(got.numpy(), a, b)


def kernel_of(way: int, dtype: DType) -> Any:
    source = native.Source(f"product {way} {dtype.name}", lambda: small.text(dtype, way))
    (address,) = native.load(source, "kernel")
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)


@AVX512
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda d: d.name)
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_edges_of_dots(dtype: DType, columns: bool) -> None:
    """One way, whatever @plan chooses.

    The result is dense along rows or columns, between other numbers.
    """
    run = kernel_of(small.DOTS, dtype)
    for m, n, k in grid(
        [1, 2, 3, 4, 5, 13, 65], [1, 3, 5, 6, 7, 12, 13, 70], [1, 7, 8, 9, 15, 16, 17, 64, 100]
    ):
        a, b = operands(m, n, k, dtype)
        room = np.full((n + 1, m + 2) if columns else (m + 1, n + 2), 7, a.dtype)
        out = room[:-1, 1:-1].T if columns else room[:-1, 1:-1]
        right = laid(b, "t")
        given = numbers(out, a, right)
        few, many = (m, n) if m <= n else (n, m)
        width = 64 if few == 1 else 12
        run((ctypes.c_int64 * len(given))(*given), 0, -(-few // 64) * -(-many // width))
        assert_near(out, a, b)
        out[:] = 7
        assert (room == 7).all(), "something else was written to"


@AVX512
@pytest.mark.parametrize("layout", LAYOUTS)
def test_edges_of_tiles(layout: str) -> None:
    """Every height, by tiles of six rows and of four."""
    run = kernel_of(small.TILES, float32)
    for m, n, k in grid(range(1, 21), [1, 17, 64, 70], [1, 19, 130]):
        a, b = operands(m, n, k, float32)
        left, right = laid(a, layout[0]), laid(b, layout[1])
        room = np.full((m + 1, n + 2), 7, np.float32)
        out = room[:-1, 1:-1]
        given = numbers(out, left, right)
        run((ctypes.c_int64 * len(given))(*given), 0, -(-n // 64))
        assert_near(out, a, b)
        out[:] = 7
        assert (room == 7).all(), "something else was written to"


WAYS = [
    (float32, "nt", (1, 512, 128), small.DOTS),
    (float32, "nt", (300, 1, 5), small.DOTS),
    (float64, "nt", (3, 64, 2000), small.DOTS),
    (float32, "nt", (3, 3, 100), small.BLOCKS),
    (float32, "nt", (32, 256, 784), small.DOTS),
    (float32, "nt", (50, 37, 300), small.DOTS),
    (float32, "nt", (100, 23, 2000), small.DOTS),
    (float32, "nt", (33, 100, 130), small.BLOCKS),
    (float32, "nt", (100, 10, 256), small.BLOCKS),
    (float32, "nt", (70, 256, 64), small.TILES),
    (float32, "tn", (256, 250, 32), small.BLOCKS),
    (float32, "nn", (8, 1024, 1000), small.BLOCKS),
    (float32, "nn", (33, 500, 1000), small.TILES),
    (float32, "tn", (1024, 256, 40), small.TILES),
    (float32, "tt", (90, 128, 600), small.TILES),
    (float32, "nn", (64, 70, 500), small.LIBRARY),
    (float64, "nt", (32, 256, 784), small.DOTS),
    (float64, "tn", (100, 300, 130), small.BLOCKS),
    (float64, "nn", (64, 256, 600), small.LIBRARY),
]


@AVX512
@pytest.mark.parametrize("dtype, layout, sizes, way", WAYS)
def test_ways(dtype: DType, layout: str, sizes: tuple[int, int, int], way: int) -> None:
    a, b = operands(*sizes, dtype)
    left, right = laid(a, layout[0]), laid(b, layout[1])
    out = np.empty(sizes[:2], a.dtype)
    assert way_of(out, left, right, dtype) == way
    if dtype is float32 and min(sizes) > 31 and way != small.DOTS:  # no slow library there
        assert way_of(out, left, right, dtype, wide=False) in (small.TILES, small.DOTS)
    else:
        assert way_of(out, left, right, dtype, wide=False) in (way, small.TILES)
    assert_near((tensor(left) @ tensor(right)).numpy(), a, b)


@pytest.fixture
def count_threads() -> Iterator[Any]:
    device: Any = pool_of("cpu").device
    before = threads.count()
    yield device.set_num_threads
    device.set_num_threads(before)


@pytest.mark.parametrize("dtype, layout, sizes, way", WAYS)
def test_bits_do_not_depend_on_threads(
    dtype: DType, layout: str, sizes: tuple[int, int, int], way: int, count_threads: Any
) -> None:
    a, b = operands(*sizes, dtype)
    left, right = tensor(laid(a, layout[0])), tensor(laid(b, layout[1]))
    found = []
    for count in (1, 2, 3):
        count_threads(count)
        found.append((left @ right).numpy())
    assert all((x == found[0]).all() for x in found)


@AVX512
def test_a_dot_product_has_the_same_bits_in_any_product() -> None:
    """Also where rows and columns change places, since b has fewer."""
    a, b = operands(700, 90, 333, float32)
    whole = (tensor(a) @ tensor(laid(b, "t"))).numpy()
    for rows in (slice(0, 40), slice(101, 150), slice(3, 90)):
        assert way_of(np.empty((40, 90), np.float32), a[rows], laid(b, "t"), float32) == small.DOTS
        assert ((tensor(a[rows]) @ tensor(laid(b, "t"))).numpy() == whole[rows]).all()
    for rows in (slice(7, 8), slice(20, 23)):  # a row alone has tiles of its own
        assert ((tensor(a[rows]) @ tensor(laid(b, "t"))).numpy() == whole[rows]).all()


@pytest.mark.parametrize("sizes", [(0, 5, 64), (5, 0, 64), (40, 300, 0), (0, 0, 0), (70, 64, 0)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_to_do(sizes: tuple[int, int, int], layout: str) -> None:
    a, b = (np.zeros(shape, np.float32) for shape in ((sizes[0], sizes[2]), (sizes[2], sizes[1])))
    got = tensor(laid(a, layout[0])) @ tensor(laid(b, layout[1]))
    assert got.shape == sizes[:2] and (got.numpy() == 0).all()


def test_views() -> None:
    """Steps between rows, between elements, and batches of either."""
    random = np.random.default_rng(0)
    a, b = (
        random.standard_normal(shape).astype(np.float32) for shape in ((3, 66, 400), (3, 80, 400))
    )
    cuts: Sequence[tuple[Any, Any]] = [
        (np.s_[:, ::2, 50:350], np.s_[:, ::3, 50:350]),
        (np.s_[:, 1:, ::2], np.s_[:, :, 1::2]),
        (np.s_[0, 3:5, 7:], np.s_[:, :9, 7:]),
        (np.s_[:, :, 100:], np.s_[2, 40:, :300]),
    ]
    for left, right in cuts:
        got = rushlight.tensor(a)[left] @ rushlight.tensor(b)[right].transpose(-1, -2)
        expected = a[left].astype(float) @ np.swapaxes(b[right], -1, -2).astype(float)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-3)


@AVX512
def test_not_a_number_stays_in_its_row() -> None:
    a, b = np.ones((21, 333), np.float32), np.ones((333, 40), np.float32)
    a[7, 332] = np.nan
    got = (tensor(a) @ tensor(laid(b, "t"))).numpy()
    assert np.isnan(got[7]).all() and (np.delete(got, 7, 0) == 333).all()


@AVX512
def test_code_that_cannot_be_built_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is built when the first product needs it; an error there is the product's error."""
    a, b = operands(32, 256, 784, float32)
    out, right = np.empty((32, 256), np.float32), laid(b, "t")
    monkeypatch.setattr(small, "pointers", small.pointers.__wrapped__)

    def fails(*_: Any) -> None:
        raise MemoryError("no room for code")

    with monkeypatch.context() as patch:
        patch.setattr(small, "load", fails)
        launch: Any = blas.build(
            Contract(float32, float32), threads.runner(), lambda: pool_of("cpu")
        )
        for _ in range(2):
            with pytest.raises(MemoryError, match="no room for code"):
                launch(*numbers(out, a, right))
    launch(*numbers(out, a, right))
    assert_near(out, a, b)


@pytest.mark.parametrize("batch", [1, 8, 32, 70])
@pytest.mark.parametrize("sizes", [(784, 256), (256, 10), (300, 33)])
def test_a_layer(batch: int, sizes: tuple[int, int]) -> None:
    """linear and its derivatives are products in three layouts."""
    random = np.random.default_rng(batch)
    x, w, b, g = (
        random.standard_normal(shape).astype(np.float32)
        for shape in ((batch, sizes[0]), sizes[::-1], sizes[1:], (batch, sizes[1]))
    )
    given = [rushlight.tensor(each, requires_grad=True) for each in (x, w, b)]
    out = rushlight.nn.functional.linear(*given)
    out.backward(rushlight.tensor(g))
    expected = [g.astype(float) @ w, g.T.astype(float) @ x, g.astype(float).sum(0)]
    np.testing.assert_allclose(
        out.detach().numpy(), x.astype(float) @ w.T + b, rtol=1e-4, atol=1e-3
    )
    for value, right in zip(given, expected, strict=True):
        assert value.grad is not None
        np.testing.assert_allclose(value.grad.numpy(), right, rtol=1e-4, atol=1e-3)


# ---- halves ----


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("depth", [0, 1, gemm.DEPTH, gemm.DEPTH + 1, 3 * gemm.DEPTH - 5])
def test_long_sums_of_halves(layout: str, depth: int) -> None:
    """They are added up in float32, panel by panel: rounded once, at the end."""
    a, b = operands(96, 70, depth, float32)
    left, right = (tensor(laid(x, t)).bfloat16() for x, t in zip((a, b), layout, strict=True))
    exact = left.double() @ right.double()
    scale = left.double().abs() @ right.double().abs()
    bound = exact.abs() * 2**-8 + scale * (2**-24 * (depth + 1))
    assert ((left @ right).double() - exact).abs().le(bound).all()
    start = rushlight.ones(96, 70).bfloat16()
    added = rushlight.addmm(start, left, right, beta=0.5, alpha=2.0).double() - (0.5 + 2 * exact)
    assert added.abs().le(2 * bound + 2**-8).all()


def test_copies_of_halves_do_not_grow_with_the_sum() -> None:
    a, b = rushlight.ones(256, 1 << 14).bfloat16(), rushlight.ones(1 << 14, 64).bfloat16()
    memory.empty_cache()
    base = memory.allocated()
    memory.reset_peak()
    result = a @ b
    panels = 4 * gemm.DEPTH * (256 + 64) + 4 * 256 * 64
    assert memory.peak() - base <= result.nbytes + threads.count() * (panels + 4096)
