"""8- and 16-bit and unsigned integers at the edges of their ranges, and PyTorch's names of
dtypes.
"""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.core.dtypes import int8, int16, uint8, uint16, uint32, uint64
from tests.catalog.run import to_array

SMALL = (uint8, int8, int16)
EVERY = (*SMALL, uint16, uint32, uint64)


def edges(dtype):
    """Every pair of these is tested: both ends of the range, their neighbours, and small
    numbers.
    """
    limits = np.iinfo(dtype.name)
    numbers = sorted(
        {limits.min, limits.min + 1, -2, -1, 0, 1, 2, 3, 7, 100, limits.max - 1, limits.max}
    )
    return np.array([n for n in numbers if limits.min <= n <= limits.max], dtype.name)


def wide(array):
    """Python's own integers."""
    return array.astype(object)


def wrapped(numbers, dtype):
    """Integers of any size, wrapped to a type."""
    numbers = np.asarray(numbers)
    if numbers.dtype != object:
        return numbers.astype(dtype)
    words = [int(n) % (1 << 64) for n in numbers.ravel()]
    return np.array(words, np.uint64).reshape(numbers.shape).astype(dtype)


def quotient(x, y):
    return np.array([0 if b == 0 else int(a) // int(b) for a, b in zip(x, y, strict=True)], object)


def rest(x, y):
    return np.array([0 if b == 0 else int(a) % int(b) for a, b in zip(x, y, strict=True)], object)


PAIRS = {
    "add": lambda x, y: wide(x) + wide(y),
    "sub": lambda x, y: wide(x) - wide(y),
    "mul": lambda x, y: wide(x) * wide(y),
    "floor_divide": quotient,
    "remainder": rest,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_xor": np.bitwise_xor,
    "lt": np.less,
    "eq": np.equal,
    "gcd": lambda x, y: np.gcd(wide(x), wide(y)),
}
ONES = {
    "neg": lambda x: -wide(x),
    "abs": lambda x: abs(wide(x)),
    "bitwise_not": np.invert,
    "square": lambda x: wide(x) ** 2,
    "sign": np.sign,
    "logical_not": np.logical_not,
}


@pytest.mark.parametrize("dtype", EVERY, ids=lambda d: d.name)
def test_results_wrap(dtype, device):
    x = edges(dtype)
    column, line = (rl.tensor(a, device=device) for a in (np.repeat(x, x.size), np.tile(x, x.size)))
    for name, reference in PAIRS.items():
        # A synchronous device refuses to divide by zero: tests/ops/test_division_by_zero.py.
        here = line | (line == 0) if name in ("floor_divide", "remainder") else line
        got = to_array(getattr(rl, name)(column, here))
        want = wrapped(reference(to_array(column), to_array(here)), got.dtype)
        assert np.array_equal(got, want), name
    for name, reference in ONES.items():
        got = to_array(getattr(rl, name)(column))
        assert np.array_equal(got, wrapped(reference(to_array(column)), got.dtype)), name


@pytest.mark.parametrize("dtype", EVERY, ids=lambda d: d.name)
def test_shifts_and_powers(dtype, device):
    x = edges(dtype)
    given = rl.tensor(x, device=device)
    for count in (0, 1, 7, 8, 15, 16, 31, 32, 40, 63, 64):
        assert np.array_equal(to_array(given << count), wrapped(wide(x) << count, x.dtype)), count
        assert np.array_equal(to_array(given >> count), wrapped(wide(x) >> count, x.dtype)), count
    for exponent in (0, 1, 2, 5, 64, 100):
        assert np.array_equal(to_array(given**exponent), wrapped(wide(x) ** exponent, x.dtype)), (
            exponent
        )


def test_a_number_counts_as_the_type_holds_it(device):
    x = rl.tensor([0, 1, 200, 255], dtype=uint8, device=device)
    for number in (300, rl.tensor(300, device=device)):
        assert (x + number).tolist() == [44, 45, 244, 43]
        assert (x < number).tolist() == [True, True, False, False]
    assert (x == 256).tolist() == [True, False, False, False]
    x += rl.tensor([1000, -1, 56, 1], device=device)
    assert x.tolist() == [232, 0, 0, 0]


def test_casts(device):
    wide_numbers = np.array([256, -256, 0, 1, -1, 65536, 40000, 1 << 40])
    given = rl.tensor(wide_numbers, device=device)
    for dtype in EVERY:
        assert np.array_equal(to_array(given.to(dtype)), wide_numbers.astype(dtype.name)), dtype
    assert given.bool().tolist() == [True, True, False, True, True, True, True, True]
    small = rl.tensor([-1, -128, 127], dtype=int8, device=device)
    assert small.to(uint8).tolist() == [255, 128, 127]
    assert small.short().tolist() == [-1, -128, 127]
    assert small.byte().char().tolist() == [-1, -128, 127]
    assert small.float().tolist() == [-1.0, -128.0, 127.0]
    assert rl.tensor([3.9, -3.9, 200.0, -1.0], device=device).to(uint8).tolist() == [
        3,
        253,
        200,
        255,
    ]


def test_casts_of_wide_unsigned_types(device):
    top = np.array(
        [0, 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 1025, (1 << 64) - 1, (1 << 53) + 1, 12345],
        np.uint64,
    )
    given = rl.tensor(top, device=device)
    for dtype in (uint8, int16, rl.int32, uint32, rl.int64):
        assert np.array_equal(to_array(given.to(dtype)), top.astype(dtype.name)), dtype
    assert np.array_equal(to_array(given.float()), top.astype(np.float32))
    assert given.bool().tolist() == [False] + [True] * 7
    floats = rl.tensor([0.0, 1.9, 3e9, -1.0, 4294967040.0], device=device)
    assert floats.to(uint32).tolist() == [0, 1, 3000000000, (1 << 32) - 1, 4294967040]
    floats = rl.tensor([0.0, 1.9, -1.0, 2.0**62, 2.0**63, 1.5 * 2.0**63], device=device)
    assert floats.to(uint64).tolist() == [0, 1, (1 << 64) - 1, 1 << 62, 1 << 63, 3 << 62]
    assert rl.tensor([-1, 5], dtype=int8, device=device).to(uint64).tolist() == [(1 << 64) - 1, 5]
    assert rl.tensor([(1 << 32) - 1], dtype=uint32, device=device).float().tolist() == [2.0**32]
    assert rl.tensor([(1 << 32) - 1], dtype=uint32, device=device).long().tolist() == [
        (1 << 32) - 1
    ]


def test_wide_unsigned_numbers(device):
    """Numbers above the signed range as parameters, in reductions, in sorting and in scans."""
    most = (1 << 64) - 1
    x = rl.full((3,), most, dtype=uint64, device=device)
    assert (x - 1).tolist() == [most - 1] * 3
    assert (x + most).tolist() == [most - 1] * 3
    y = rl.tensor([5, most, 1 << 63, 0], dtype=uint64, device=device)
    assert (y.amax().item(), y.amin().item(), y.argmax().item(), y.argmin().item()) == (
        most,
        0,
        1,
        3,
    )
    assert y.sort().values.tolist() == [0, 5, 1 << 63, most]
    assert y.cummax(0).values.tolist() == [5, most, most, most]
    assert (y > (1 << 63)).tolist() == [False, True, False, False]
    z = rl.tensor([5, (1 << 32) - 1, 1 << 31, 0], dtype=uint32, device=device)
    assert (z.amax().item(), z.amin().item(), z.sum().item()) == (
        (1 << 32) - 1,
        0,
        (1 << 32) + (1 << 31) + 4,
    )
    assert z.sort(descending=True).values.tolist() == [(1 << 32) - 1, 1 << 31, 5, 0]
    with pytest.raises(TypeError, match="no type holds both"):
        y + rl.tensor([1, 2, 3, 4], device=device)


def test_neighbours_in_a_word_survive(device):
    """Bytes that share a word of memory with others: offsets, strides, scattered writes."""
    for dtype in (*SMALL, uint16):
        x = rl.zeros(41, dtype=dtype, device=device)
        x[1::2] = 1
        x[3:9] += 5
        x[::5] = 7
        want = np.zeros(41, dtype.name)
        want[1::2] = 1
        want[3:9] += 5
        want[::5] = 7
        assert np.array_equal(to_array(x), want), dtype
        places = np.arange(41) % 3
        ones = rl.full((41,), 100, dtype=dtype, device=device)
        total = rl.zeros(3, dtype=dtype, device=device)
        total = total.scatter_add(0, rl.tensor(places, device=device), ones)
        assert np.array_equal(to_array(total), (np.bincount(places) * 100).astype(dtype.name)), (
            dtype
        )


def test_products_of_matrices_wrap(device):
    random = np.random.default_rng(5)
    for dtype in EVERY:
        limits = np.iinfo(dtype.name)
        a, b = (
            random.integers(limits.min, limits.max, s, dtype.name, endpoint=True)
            for s in ((37, 70), (70, 33))
        )
        got = rl.tensor(a, device=device) @ rl.tensor(b, device=device)
        assert got.dtype is dtype
        assert np.array_equal(to_array(got), wrapped(wide(a) @ wide(b), dtype.name)), dtype


def test_sums_are_wide_and_extremes_are_not(device):
    x = rl.full((1000,), 200, dtype=uint8, device=device)
    assert x.sum().dtype is rl.int64
    assert x.sum().item() == 200000
    assert x.cumsum(0)[-1].item() == 200000
    assert x.sum(dtype=uint8).item() == 200000 % 256
    low = rl.tensor([-128, 5, -128], dtype=int8, device=device)
    assert (low.amin().item(), low.max().item(), low.argmin().item()) == (-128, 5, 0)
    assert low.all().dtype is rl.bool
    assert x.all().dtype is uint8
    with pytest.raises(rl.DTypeError, match="mean"):
        x.mean()


def test_masks_and_indices(device):
    x = rl.arange(4, device=device)
    assert x[rl.tensor([1, 0, 2, 0], dtype=uint8, device=device)].tolist() == [0, 2]
    with pytest.raises(IndexError, match="int8"):
        x[rl.tensor([1], dtype=int8, device=device)]
    with pytest.raises(rl.DTypeError, match="gather"):
        x.gather(0, rl.tensor([1], dtype=uint8, device=device))


def test_numbers_that_do_not_fit_are_refused():
    for call in (
        lambda: rl.tensor([300], dtype=uint8),
        lambda: rl.tensor(-129, dtype=int8),
        lambda: rl.full((2,), 40000, dtype=int16),
        lambda: rl.ones(3, dtype=uint8).clamp(max=300),
        lambda: rl.ones(3, dtype=uint8).masked_fill(rl.tensor([True, False, True]), 300),
        lambda: rl.tensor([-1.5], dtype=uint8),
    ):
        with pytest.raises(RuntimeError, match="does not fit"):
            call()
    assert rl.tensor([-1], dtype=uint8).tolist() == [255]
    assert rl.full((1,), -1, dtype=uint8).tolist() == [255]


def test_creation(device):
    for dtype in EVERY:
        assert rl.arange(2, 9, 3, dtype=dtype, device=device).tolist() == [2, 5, 8]
        assert rl.eye(2, dtype=dtype, device=device).tolist() == [[1, 0], [0, 1]]
        drawn = rl.randint(3, 9, (50,), dtype=dtype, device=device)
        assert drawn.dtype is dtype
        assert 3 <= drawn.min().item() <= drawn.max().item() < 9


def test_numpy_shares_memory_and_prints():
    for dtype in EVERY:
        array = edges(dtype)
        shared = rl.from_numpy(array)
        assert shared.dtype is dtype
        shared[0] = 9
        assert array[0] == 9
        assert np.array_equal(shared.numpy(), array)
        assert shared.tolist() == array.tolist()
    assert repr(rl.tensor([1, 20], dtype=uint8)) == "tensor([ 1, 20], dtype=rushlight.uint8)"


def test_older_names_of_types():
    assert rl.ByteTensor([1, 2]).dtype is uint8
    assert rl.FloatTensor(2, 3).shape == (2, 3)
    assert rl.LongTensor().shape == (0,)
    x = rl.ones(2)
    assert isinstance(x, rl.FloatTensor)
    assert not isinstance(x, rl.HalfTensor)
    assert x.type() == "torch.FloatTensor"
    assert x.type("torch.CharTensor").dtype is int8
    assert x.type(rl.ShortTensor).dtype is int16
    assert x.type(rl.int64).dtype is rl.int64
    with pytest.raises(ValueError, match="NoSuchTensor"):
        x.type("torch.NoSuchTensor")
    rl.set_default_tensor_type("torch.DoubleTensor")
    try:
        assert rl.ones(1).dtype is rl.float64
    finally:
        rl.set_default_tensor_type(rl.FloatTensor)


def test_what_types_can_hold():
    told = {d: (rl.iinfo(d).min, rl.iinfo(d).max, rl.iinfo(d).bits) for d in SMALL}
    assert told == {uint8: (0, 255, 8), int8: (-128, 127, 8), int16: (-32768, 32767, 16)}
    assert rl.iinfo(uint64).max == (1 << 64) - 1
    assert rl.short is int16
    assert not uint8.is_signed


def test_the_same_bytes_as_another_type(device):
    x = rl.tensor([[1.0, -2.0], [0.5, 3.0]], device=device)
    words = to_array(x).astype(np.float32)
    for dtype in (rl.int32, uint8, int16, uint64):
        assert np.array_equal(to_array(x.view(dtype)), words.view(dtype.name)), dtype
    assert np.array_equal(to_array(x[1:].view(uint8)), words[1:].view(np.uint8))
    assert x.view(uint8).view(rl.float32).tolist() == x.tolist()
    x.view(rl.int32)[0, 1] = 0
    assert x.tolist() == [[1.0, 0.0], [0.5, 3.0]]
    for bad, dtype in ((x.t(), uint8), (x[0, 0], uint8), (x.flatten()[:3], uint64)):
        with pytest.raises(RuntimeError, match="cannot be seen as"):
            bad.view(dtype)


def test_bytes_have_no_gradient():
    x = rl.ones(2, requires_grad=True)
    for _ in range(3):
        assert not x.view(rl.int32).requires_grad
        assert not x.view(rl.float16).requires_grad
        assert (x * 2).view(rl.float16).grad_fn is None


def test_more_masks_and_indices(device):
    x = rl.arange(3, device=device)
    mask = rl.tensor([1, 0, 2], dtype=uint8, device=device)
    assert rl.where(mask, x, -x).tolist() == [0, -1, 2]
    assert x[rl.tensor(-1, dtype=int8, device=device)].item() == 2
    assert x[rl.tensor(1, dtype=uint16, device=device)].item() == 1


def test_extremes_of_unsigned_integers_start_below_all_of_them():
    x = rl.arange(36).reshape(1, 6, 6).to(rl.uint8)
    pooled = F.max_pool2d(x, 3, 2, 1, ceil_mode=True)
    assert pooled[0, 0].tolist() == [7, 9, 11, 11]
    assert pooled[0, -1].tolist() == [31, 33, 35, 35]
    low = rl.tensor([5], dtype=rl.uint8)
    one = rl.tensor([1], dtype=rl.uint8)
    assert low.scatter_reduce(0, rl.tensor([0]), one, "amax", include_self=False).tolist() == [1]


def test_interpolation_of_bytes_rounds_each_dimension():
    x = rl.tensor([[[[1, 2], [3, 250]]]], dtype=rl.uint8)
    assert F.interpolate(x, size=(3, 3), mode="bilinear")[0, 0].tolist() == [
        [1, 2, 2],
        [2, 65, 126],
        [3, 127, 250],
    ]
    assert F.interpolate(x, size=(3, 3), mode="bicubic")[0, 0].tolist() == [
        [1, 0, 0],
        [1, 65, 129],
        [0, 138, 255],
    ]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("smooth", [False, True])
def test_bytes_are_resized_as_floats_and_rounded(mode: str, smooth: bool) -> None:
    image = (rl.arange(3 * 8 * 9) * 37 % 101 + 70).to(rl.uint8).reshape(1, 3, 8, 9)
    for size in ((4, 5), (300, 300)):
        made = F.interpolate(image, size, mode=mode, antialias=smooth)
        wanted = F.interpolate(image.double(), size, mode=mode, antialias=smooth).clamp(0, 255)
        assert made.dtype is rl.uint8
        assert (made.double() - wanted).abs().max() <= 1.5
    with pytest.raises(TypeError):
        F.interpolate(image, (4.0, 5.0))
