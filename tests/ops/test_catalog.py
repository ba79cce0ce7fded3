"""Every public op on every device, from the rows of `tests/catalog/rows/`."""

from __future__ import annotations

import inspect
import operator

import numpy as np
import pytest

import rushlight
from rushlight.core.dtypes import ALL, FLOAT, bool_, float32, float64, int32, int64
from rushlight.devices.shared.registry import pool_of
from rushlight.ops.registry import REGISTRY
from tests.catalog.promotion import EQUAL, LETTERS, PYTHON_NUMBERS, WITH_NUMBER, WITH_PYTHON, table
from tests.catalog.rows import ROWS
from tests.catalog.run import call, dtypes_on, forward_problems, samples_of, to_array, to_tensor

pytestmark = pytest.mark.usefixtures("float32_convolutions")


def listed(problems: list[str], most: int = 12) -> str:
    rest = [f"... and {len(problems) - most} more"] if len(problems) > most else []
    return "\n".join([f"{len(problems)} problems:", *problems[:most], *rest])


def test_catalog_is_the_registry():
    names = {row.name for row in ROWS}
    # Conversions to float8 are PyTorch's, not NumPy's: test_float8.py has all of their codes.
    ops = {name for name in REGISTRY if not name.startswith("to_float8")}
    assert names == ops, f"no row: {ops - names}; no op: {names - ops}"
    assert len({repr(row) for row in ROWS}) == len(ROWS), "a row is there twice"


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_forward(row, device):
    if not dtypes_on(row, device):
        pytest.skip(f"limit: {device} has none of {[d.name for d in row.dtypes]}")
    problems = forward_problems(row, device)
    assert not problems, listed(problems)


def test_names_are_public():
    """Registered methods exist and give the function's bits.

    Registered top-level names are exported.
    """
    for name, entry in REGISTRY.items():
        # Perhaps wrapped: `out=` and checks are added at package level.
        found = getattr(rushlight, name, None)
        same = found is not None and inspect.unwrap(found) is inspect.unwrap(entry.function)
        assert same == entry.top, name
        assert not entry.method or hasattr(rushlight.Tensor, name), name
        assert entry.doc, f"{name} has no doc"


def test_methods_are_the_functions():
    for row in ROWS:
        if not REGISTRY[row.name].method or row.random:
            continue
        sample = samples_of(row, row.dtypes[-1])[0]
        args = [
            to_tensor(a, row.dtypes[-1], "cpu") if isinstance(a, np.ndarray) else a
            for a in sample.args
        ]
        got = row.call(
            lambda x, *rest, name=row.name, **named: getattr(x, name)(*rest, **named),
            *args,
            **sample.named,
        )
        want = call(row, sample, row.dtypes[-1], "cpu")
        for a, b in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
            assert np.array_equal(to_array(a), to_array(b), equal_nan=True), row.name


# ---- types ----


def _filled(dtype, shape, device):
    return rushlight.ones(shape, dtype=dtype, device=device)


def _check_promotion(device, x, y, want, allowed):
    """The common type of add, the floating one of div, and bool of a comparison.

    The rule does not depend on the device, only the kernel that follows it: one op suffices where
    kernels are built.
    """
    if want not in allowed:
        return
    what = f"{x._spec!r} with {getattr(y, '_spec', y)!r}"
    total = rushlight.add(x, y)
    assert total.dtype is want, what
    other = 1 if isinstance(y, rushlight.Tensor) else y
    assert to_array(total).ravel()[0] == (True if want is bool_ else 1 + other), what
    if device != "reference":
        return
    assert rushlight.mul(x, y).dtype is want, what
    assert rushlight.div(x, y).dtype is (want if want.kind == "f" else float32), what
    assert rushlight.eq(x, y).dtype is bool_, what
    if want is not bool_:
        assert rushlight.pow(x, y).dtype is want, what
    if x.dtype is not bool_ and getattr(y, "dtype", y) not in (bool_, True):
        assert rushlight.sub(x, y).dtype is want, what
    if isinstance(y, rushlight.Tensor):
        assert rushlight.where(_filled(bool_, (1,), device), x, y).dtype is want, what


@pytest.mark.parametrize(
    ("grid", "first", "second"),
    [(EQUAL, (2,), (2,)), (EQUAL, (), ()), (WITH_NUMBER, (2,), ())],
    ids=["dims", "0-dim", "mixed"],
)
def test_promotion_of_tensors(grid, first, second, device):
    allowed = pool_of(device).device.limits.dtypes
    letters = list(LETTERS.values())
    for dtype, column, want in table(grid):
        if dtype in allowed and letters[column] in allowed:
            _check_promotion(
                device,
                _filled(dtype, first, device),
                _filled(letters[column], second, device),
                want,
                allowed,
            )


def test_promotion_of_python_numbers(device):
    allowed = pool_of(device).device.limits.dtypes
    for dtype, column, want in table(WITH_PYTHON):
        if dtype in allowed:
            for shape in ((2,), ()):
                _check_promotion(
                    device, _filled(dtype, shape, device), PYTHON_NUMBERS[column], want, allowed
                )


def test_promote_types_is_the_table():
    for dtype, column, want in table(EQUAL):
        assert rushlight.promote_types(dtype, list(LETTERS.values())[column]) is want


def test_cat_promotes(device):
    parts = [
        _filled(int32, (1,), device),
        _filled(float32, (2,), device),
        _filled(bool_, (1,), device),
    ]
    joined = rushlight.cat(parts)
    assert joined.dtype is float32
    assert to_array(joined).tolist() == [1, 1, 1, 1]


OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.parametrize("symbol", OPERATORS)
def test_operators_take_numbers_on_both_sides(symbol, device):
    function = OPERATORS[symbol]
    numbers = {float32: (3, 0.5), int64: (3,)}
    for dtype, scalars in numbers.items():
        array = np.array([1, 2, 3, 5], dtype.name)
        x = rushlight.tensor(array, device=device)
        for number in scalars:
            for got, want in (
                (function(x, number), function(array, array.dtype.type(number))),
                (function(number, x), function(array.dtype.type(number), array)),
            ):
                assert np.allclose(to_array(got), want, rtol=1e-6), (symbol, dtype, number)


def test_bit_operators(device):
    array = np.array([1, 6, -3, 12])
    x = rushlight.tensor(array, device=device)
    for got, want in (
        (x & x, array & array),
        (x | 8, array | 8),
        (x ^ 5, array ^ 5),
        (~x, ~array),
        (-x, -array),
        (+x, array),
    ):
        assert np.array_equal(to_array(got), want)


# ---- random numbers ----


@pytest.fixture
def seeded():
    state = rushlight.get_rng_state()
    rushlight.manual_seed(1234)
    yield
    rushlight.set_rng_state(state)


def _drawn(seed, draw):
    rushlight.manual_seed(seed)
    return to_array(draw())


def _both(seed, name, device, *args, **named):
    """What a creation draws from a seed on a device and on the reference."""
    op = REGISTRY[name].function
    return (_drawn(seed, lambda d=d: op(*args, device=d, **named)) for d in (device, "reference"))


@pytest.mark.usefixtures("seeded")
def test_rand_has_the_same_bits_everywhere(device):
    for dtype in (d for d in FLOAT if d in pool_of(device).device.limits.dtypes):
        for seed in (0, 7, (1 << 62) + 5):
            here, there = _both(seed, "rand", device, 30, 341, dtype=dtype)
            assert np.array_equal(here, there), (dtype, seed)
            assert (here >= 0).all()
            assert (here < 1).all(), "a number was rounded up to 1"


@pytest.mark.usefixtures("seeded")
def test_randn_and_randint_are_the_same_everywhere(device):
    for dtype in (d for d in (float32, float64) if d in pool_of(device).device.limits.dtypes):
        here, there = _both(5, "randn", device, 1023, dtype=dtype)
        assert np.abs(here - there).max() < 1e-5
    here, there = _both(5, "randint", device, -7, 1000, (1023,))
    assert np.array_equal(here, there)


@pytest.mark.usefixtures("seeded")
def test_dropout_and_bernoulli_are_the_same_everywhere(device):
    def dropped(name):
        x = to_tensor(np.linspace(1, 2, 999), float32, name)
        return REGISTRY["dropout"].function(x, 0.3)

    def tossed(name):
        return rushlight.bernoulli(to_tensor(np.linspace(0, 1, 999), float32, name))

    for draw in (dropped, tossed):
        assert np.array_equal(
            _drawn(3, lambda: draw(device)),  # noqa: B023
            _drawn(3, lambda: draw("reference")),  # noqa: B023
        ), draw.__name__  # noqa: B023, RUF100


@pytest.mark.usefixtures("seeded")
def test_random_numbers_follow_from_the_seed(device):
    whole = _drawn(11, lambda: rushlight.rand(10, device=device))
    assert np.array_equal(whole, _drawn(11, lambda: rushlight.rand(2, 5, device=device)).ravel())
    assert not np.array_equal(whole, _drawn(12, lambda: rushlight.rand(10, device=device)))
    rushlight.manual_seed(11)
    parts = [to_array(rushlight.rand(n, device=device)) for n in (4, 6)]
    assert np.array_equal(whole, np.concatenate(parts))
    state = rushlight.get_rng_state()
    again = to_array(rushlight.randn(5, device=device))
    rushlight.set_rng_state(state)
    assert np.array_equal(again, to_array(rushlight.randn(5, device=device)))
    own = rushlight.Generator().manual_seed(11)
    assert np.array_equal(whole, to_array(rushlight.rand(10, device=device, generator=own)))


@pytest.mark.usefixtures("seeded")
def test_moments(device):
    """Four deviations of each estimate at n = 20000.

    The seed is fixed, so this passes always or never.
    """
    n = 20000
    even = to_array(rushlight.rand(n, device=device))
    assert abs(even.mean() - 0.5) < 4 * (1 / 12 / n) ** 0.5
    assert abs(even.var() - 1 / 12) < 4 * (1 / 180 / n) ** 0.5
    normal = to_array(rushlight.randn(n, device=device))
    assert abs(normal.mean()) < 4 / n**0.5
    assert abs(normal.var() - 1) < 4 * (2 / n) ** 0.5
    assert abs((normal**3).mean()) < 4 * (15 / n) ** 0.5
    assert abs((normal**4).mean() - 3) < 4 * (96 / n) ** 0.5
    dice = to_array(rushlight.randint(1, 7, (n,), device=device))
    counts = np.bincount(dice.astype(int), minlength=7)[1:]
    assert counts.sum() == n
    assert np.abs(counts - n / 6).max() < 4 * (n * 5 / 36) ** 0.5
    kept = to_array(REGISTRY["dropout"].function(rushlight.ones(n, device=device), 0.25)) > 0
    assert abs(kept.mean() - 0.75) < 4 * (0.75 * 0.25 / n) ** 0.5


@pytest.mark.usefixtures("seeded")
def test_dropout_at_the_ends(device):
    dropout = REGISTRY["dropout"].function
    x = rushlight.ones(50, device=device)
    assert dropout(x, 0.0) is x
    assert dropout(x, 0.5, training=False) is x
    assert not to_array(dropout(x, 1.0)).any()
    assert set(to_array(dropout(x, 0.5)).tolist()) == {0.0, 2.0}
    assert to_array(dropout(rushlight.ones(0, device=device))).shape == (0,)


def test_random_shapes_and_types(device):
    for dtype in (d for d in FLOAT if d in pool_of(device).device.limits.dtypes):
        for name in ("rand", "randn"):
            for size in ((3, 4), ((2, 0),), ()):
                out = REGISTRY[name].function(*size, dtype=dtype, device=device)
                assert out.dtype is dtype
                assert out.shape == (size[0] if size and isinstance(size[0], tuple) else size)
    for dtype in (int32, int64):
        assert rushlight.randint(5, (2, 2), dtype=dtype, device=device).dtype is dtype


def test_every_dtype_comes_back_as_it_went(device):
    for dtype in (d for d in ALL if d in pool_of(device).device.limits.dtypes):
        array = np.array([[1, 0, 1], [0, 1, 1]], np.float64 if dtype.kind == "f" else dtype.name)
        for layout in ("plain", "transposed", "strided"):
            assert np.array_equal(to_array(to_tensor(array, dtype, device, layout)), array), (
                dtype,
                layout,
            )
