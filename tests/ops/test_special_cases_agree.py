"""Powers, remainders, dot products and masks: the fast way gives what the general one gives."""

import math

import numpy as np
import pytest

import rushlight as rl

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.5,
    -6.0,
    3.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-45,
    -1e-45,
    1e-38,
    1e30,
    -7e-39,
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype):
    numbers = np.random.default_rng(0)
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    bits = numbers.integers(0, np.iinfo(unsigned).max, (2, 20_000), dtype=unsigned)
    anything = bits.view(dtype)
    y = numbers.standard_normal(20_000).astype(dtype)
    # Quotients that round to whole numbers.
    multiples = (y * numbers.integers(1, 1 << 22, 20_000)).astype(dtype)
    grid = np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))
    for a, b in (
        anything,
        (multiples, y),
        (np.nextafter(multiples, dtype(0)), y),
        [g.ravel() for g in grid],
    ):
        with np.errstate(all="ignore"):
            expected = np.fmod(a, b)
        found = rl.fmod(rl.tensor(a), rl.tensor(b)).numpy()
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(
            np.signbit(found), np.signbit(expected) | (np.isnan(found) & np.signbit(found))
        )


@pytest.mark.parametrize("exponent", [2, 3, -1, 0.5, -0.5, 2.0, 3.0])
def test_short_powers(exponent, device):
    x = rl.tensor([0.25, 1.0, 2.0, 5.5], device=device, requires_grad=True)
    y = x**exponent
    np.testing.assert_allclose(
        y.detach().cpu().numpy(), np.array([0.25, 1, 2, 5.5]) ** exponent, rtol=3e-7
    )
    (slope,) = rl.autograd.grad(y.sum(), x, create_graph=True)
    expected = exponent * np.array([0.25, 1, 2, 5.5]) ** (exponent - 1)
    np.testing.assert_allclose(slope.detach().cpu().numpy(), expected, rtol=1e-6)
    (bend,) = rl.autograd.grad(slope.sum(), x)
    expected = exponent * (exponent - 1) * np.array([0.25, 1, 2, 5.5]) ** (exponent - 2)
    np.testing.assert_allclose(bend.cpu().numpy(), expected, rtol=2e-6)


def test_types_of_short_powers():
    whole = rl.tensor([2, -3])
    assert (
        (whole**2).tolist() == [4, 9]
        and (whole**3).tolist() == [8, -27]
        and (whole**2).dtype is rl.int64
    )
    assert (whole**2.0).dtype is rl.float32 and (whole**0.5).dtype is rl.float32
    assert (rl.tensor([True]) ** 2).dtype is rl.int64
    assert rl.pow(whole, exponent=2).tolist() == [4, 9] and whole.clone().pow_(2).tolist() == [4, 9]
    with pytest.raises(RuntimeError, match="negative integer powers"):
        whole**-1
    out = rl.empty(2)
    assert rl.pow(rl.tensor([2.0, 3.0]), 3, out=out) is out and out.tolist() == [8.0, 27.0]
    assert (2 ** rl.tensor([2.0, 3.0])).tolist() == [4.0, 8.0]


@pytest.mark.parametrize("n", [0, 1, 7, 5000, 70_001])
def test_dot(n, device):
    a, b = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    x, y = (rl.tensor(v, device=device, requires_grad=True) for v in (a, b))
    np.testing.assert_allclose(
        rl.dot(x, y).item(), np.dot(a.astype(float), b.astype(float)), rtol=1e-5, atol=1e-5
    )
    slopes = rl.autograd.grad(x @ y, (x, y))
    assert slopes[0].tolist() == y.tolist() and slopes[1].tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="matmul"):
        x @ rl.zeros(n + 1, device=device)


def test_masks_over_several_dimensions():
    numbers = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
    x = rl.tensor(numbers)
    for mask in (numbers > 0, numbers[..., 0] > 0, numbers > 9):
        chosen = rl.tensor(mask)
        np.testing.assert_array_equal(x[chosen].numpy(), numbers[mask])
        changed, expected = x.clone(), numbers.copy()
        changed[chosen], expected[mask] = 7.0, 7.0
        np.testing.assert_array_equal(changed.numpy(), expected)
    middle = numbers[0] > 0
    np.testing.assert_array_equal(x[:, rl.tensor(middle)].numpy(), numbers[:, middle])
    np.testing.assert_array_equal(
        x.permute(1, 2, 0)[rl.tensor(middle)].numpy(), numbers.transpose(1, 2, 0)[middle]
    )
    np.testing.assert_array_equal(
        rl.tensor(numbers > 1).nonzero().numpy(), np.argwhere(numbers > 1)
    )


def test_distances_of_many_rows_come_from_a_product(device):
    a, b = (
        np.random.default_rng(i).standard_normal((n, 9)).astype(np.float32)
        for i, n in ((0, 30), (1, 4))
    )
    exact = np.sqrt(((a[:, None].astype(float) - b[None]) ** 2).sum(-1))
    slopes = []
    for mode in ("use_mm_for_euclid_dist_if_necessary", "donot_use_mm_for_euclid_dist", None):
        x, y = (rl.tensor(v, device=device, requires_grad=True) for v in (a, b))
        found = rl.cdist(x, y, compute_mode=mode)
        np.testing.assert_allclose(found.detach().cpu().numpy(), exact, rtol=2e-5)
        slopes.append(
            [g.cpu().numpy() for g in rl.autograd.grad((found**2).sum() + found.sum(), (x, y))]
        )
    for other in slopes[1:]:
        for found, expected in zip(slopes[0], other, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    same = rl.ones(40, 3, device=device, requires_grad=True)
    found = rl.cdist(same, same)
    assert (
        found.abs().max().item() == 0
        and rl.autograd.grad(found.sum(), same)[0].abs().max().item() == 0
    )
    with pytest.raises(ValueError, match="compute_mode"):
        rl.cdist(same, same, compute_mode="exact")
