"""Special functions beyond the catalog: far arguments, float64 digits, edges, missing
derivatives.
"""

import math

import numpy as np
import pytest
from scipy import special

import rushlight
from rushlight import special as sp
from rushlight.core.errors import DTypeError, NotDifferentiable

INF, NAN = math.inf, math.nan

# name -> (truth, from, to, allowed error in epsilons of max(1, |result|))
WIDE = {
    "i0e": (special.i0e, -1e4, 1e4, 8),
    "i1e": (special.i1e, -1e4, 1e4, 8),
    "bessel_j0": (special.j0, -500, 500, 16),
    "bessel_j1": (special.j1, -500, 500, 16),
    "bessel_y0": (special.y0, 0.1, 500, 16),
    "bessel_y1": (special.y1, 0.1, 500, 16),
    "airy_ai": (lambda x: special.airy(x)[0], -12, 12, 64),
    "spherical_bessel_j0": (lambda x: special.spherical_jn(0, x), -500, 500, 4),
}
# name -> (truth, from, to, allowed error in epsilons of the result), over many powers of ten
RELATIVE = {
    "i0": (special.i0, 1e-9, 80, 16),
    "i1": (special.i1, 1e-9, 80, 16),
    "modified_bessel_k0": (special.k0, 1e-9, 80, 16),
    "modified_bessel_k1": (special.k1, 1e-9, 80, 16),
    "scaled_modified_bessel_k0": (special.k0e, 1e-9, 1e9, 16),
    "scaled_modified_bessel_k1": (special.k1e, 1e-9, 1e9, 16),
    "erfcx": (special.erfcx, 1e-9, 1e9, 16),
    "ndtri": (special.ndtri, 1e-30, 0.4, 16),
}
KINDS = [np.float32, np.float64]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WIDE)
def test_wide_range(name, kind):
    truth, low, high, allowed = WIDE[name]
    x = np.linspace(low, high, 20_001).astype(kind)
    want = truth(x.astype(np.float64))
    error = np.abs(getattr(sp, name)(rushlight.tensor(x)).numpy() - want) / np.maximum(
        1, np.abs(want)
    )
    assert error.max() <= allowed * np.finfo(kind).eps, x[error.argmax()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RELATIVE)
def test_relative_error(name, kind):
    truth, low, high, allowed = RELATIVE[name]
    x = np.geomspace(low, high, 5_001).astype(kind)
    want = truth(x.astype(np.float64))
    error = np.abs(getattr(sp, name)(rushlight.tensor(x)).numpy() / want - 1)
    assert error.max() <= allowed * np.finfo(kind).eps, x[error.argmax()]


@pytest.mark.parametrize("family", "tuvw")
def test_chebyshev_of_a_high_degree(family):
    n = np.array([9.0, 20.0, 33.0, 50.0])[:, None]
    x = np.linspace(-1.25, 1.25, 101)
    u, below = special.eval_chebyu(n.astype(int), x), special.eval_chebyu(n.astype(int) - 1, x)
    want = {"t": special.eval_chebyt(n.astype(int), x), "u": u, "v": u - below, "w": u + below}[
        family
    ]
    got = getattr(sp, f"chebyshev_polynomial_{family}")(
        rushlight.tensor(x), rushlight.tensor(n)
    ).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-11)


def test_degrees_that_end_a_family():
    x = rushlight.tensor([0.5, 0.5, 0.5])
    assert np.isnan(
        sp.hermite_polynomial_h(x, rushlight.tensor([200.0, 129.0, 1000.0])).numpy()
    ).all()
    assert sp.legendre_polynomial_p(x, -3).tolist() == [0, 0, 0]
    assert sp.laguerre_polynomial_l(2.0, rushlight.tensor([0.0, 1.0, 2.9])).tolist() == [1, -1, -1]
    with pytest.raises(DTypeError, match="hermite_polynomial_h: one of x and n must be a tensor"):
        sp.hermite_polynomial_h(1.0, 2)


def test_a_number_as_degree_reads_nothing():
    x = rushlight.linspace(-1, 1, 5)
    before = rushlight.memory.transfers()
    sp.legendre_polynomial_p(x, 7)
    assert rushlight.memory.transfers() == before


@pytest.mark.parametrize(
    "name", ["chebyshev_polynomial_t", "hermite_polynomial_he", "legendre_polynomial_p"]
)
def test_a_gradient_through_a_polynomial_raises(name):
    x = rushlight.tensor([0.5], requires_grad=True)
    with pytest.raises(NotDifferentiable, match=f"{name}: it has no derivative"):
        getattr(sp, name)(x, 3).sum().backward()


def test_zeta_below_zero_and_at_its_edges():
    q = rushlight.tensor([-1.5, -30.25, -0.5], dtype=rushlight.float64)
    want = [sum((v + i) ** -2.0 for i in range(40)) + special.zeta(2, v + 40) for v in q.tolist()]
    np.testing.assert_allclose(sp.zeta(2.0, q).tolist(), want, rtol=1e-13)
    edges = sp.zeta(
        rushlight.tensor([1.0, 0.5, 3.0, 2.5]), rushlight.tensor([2.0, 2.0, -2.0, -1.5])
    ).tolist()
    assert edges[0] == edges[2] == INF
    assert math.isnan(edges[1]) and math.isnan(edges[3])


def test_frexp_of_extremes():
    x = np.array([5e-324, 2.0**-1022, 1.7e308, -3.0, 0.0, INF], np.float64)
    mantissa, exponent = rushlight.frexp(rushlight.tensor(x))
    want = np.frexp(x)
    assert np.array_equal(mantissa.numpy(), want[0]) and np.array_equal(
        exponent.numpy()[:5], want[1][:5]
    )
    assert exponent.dtype is rushlight.int32


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e"])
def test_modified_functions_are_smooth_at_zero(name):
    x = rushlight.tensor([0.0, 1e-9], dtype=rushlight.float64, requires_grad=True)
    slope = rushlight.autograd.grad(getattr(sp, name)(x).sum(), x)[0].tolist()
    assert slope[0] == pytest.approx({"i0": 0, "i0e": 0, "i1": 0.5, "i1e": 0.5}[name], abs=1e-15)
    assert slope[1] == pytest.approx({"i0": 0, "i0e": -1, "i1": 0.5, "i1e": 0.5}[name], abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_incomplete_gamma_functions_in_all_regions(kind):
    """Near a, far below and above it, small and large orders.

    Scipy itself loses digits in the tails.
    """
    random = np.random.default_rng(6)
    a = np.exp(random.uniform(-9, 9, 4000))
    x = np.where(
        random.random(4000) < 0.5,
        a * np.exp(random.uniform(-2, 2, 4000)),
        a + random.normal(size=4000) * np.sqrt(a),
    )
    a, x = a.astype(kind), np.abs(x).astype(kind)
    allowed = 1e-4 if kind is np.float32 else 5e-12
    for name, truth in (("gammainc", special.gammainc), ("gammaincc", special.gammaincc)):
        got = getattr(sp, name)(rushlight.tensor(a), rushlight.tensor(x)).numpy()
        want = truth(a.astype(np.float64), x.astype(np.float64))
        kept = want > 1e-30
        np.testing.assert_allclose(got[kept], want[kept], rtol=allowed)
        np.testing.assert_allclose(got, want, rtol=0, atol=64 * np.finfo(kind).eps)


# mpmath, 40 digits
KNOWN = [
    ("gammainc", 425.2163968576011, 245.6503846464687, 2.071580734413374e-25),
    ("gammaincc", 401.2386571483824, 563.3238378416379, 2.6051812941781243e-13),
    ("gammaincc", 0.5025538900361347, 0.8577057062790359, 0.1914397910428558),
    ("gammaincc", 1e-10, 0.5, 5.597735948054988e-11),
]


@pytest.mark.parametrize(("name", "a", "x", "want"), KNOWN)
def test_incomplete_gamma_functions_keep_digits_in_tails(name, a, x, want):
    got = getattr(sp, name)(
        *(rushlight.tensor([v], dtype=rushlight.float64) for v in (a, x))
    ).item()
    assert got == pytest.approx(want, rel=1e-13)


def test_incomplete_gamma_has_a_gradient_by_its_second_operand_only():
    a = rushlight.tensor([2.5], requires_grad=True)
    x = rushlight.tensor([1.5], requires_grad=True)
    slope = rushlight.autograd.grad(rushlight.igamma(a.detach(), x).sum(), x)[0].item()
    assert slope == pytest.approx(1.5**1.5 * math.exp(-1.5) / math.gamma(2.5), rel=1e-6)
    with pytest.raises(NotDifferentiable, match="no derivative by the first operand"):
        rushlight.igammac(a, x).sum().backward()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5, 20, 40])
def test_polygamma_of_high_orders(n, kind):
    x = np.geomspace(0.5, 100, 301).astype(kind)
    want = special.polygamma(n, x.astype(np.float64))
    kept = (np.abs(want) < np.finfo(kind).max) & (np.abs(want) > np.finfo(kind).tiny * 1e3)
    error = np.abs(rushlight.polygamma(n, rushlight.tensor(x)).numpy()[kept] / want[kept] - 1)
    assert error.max() <= (4 + 3 * n) * np.finfo(kind).eps


def test_polygamma_below_zero_and_at_its_ends():
    x = rushlight.tensor([-0.3, -5.25], dtype=rushlight.float64)
    # mpmath
    known = {
        1: [13.945160267805722, 19.565729569019783],
        2: [67.63908119988317, 123.99508576890408],
    }
    for n, want in known.items():
        np.testing.assert_allclose(rushlight.polygamma(n, x).tolist(), want, rtol=1e-13)
    assert rushlight.polygamma(2, rushlight.tensor([0.0, -1.0, INF])).tolist() == [-INF, -INF, 0]
    assert rushlight.polygamma(1, rushlight.tensor([0.0, -1.0, INF])).tolist() == [INF, INF, 0]


def test_polygamma_takes_its_order_by_name():
    x = rushlight.tensor([1.5])
    assert rushlight.equal(x.polygamma(n=1), rushlight.polygamma(1, x))
    assert rushlight.equal(x.polygamma(2), rushlight.polygamma(n=2, input=x))


@pytest.mark.parametrize(
    "name",
    [
        *(f"chebyshev_polynomial_{kind}" for kind in "tuvw"),
        *("hermite_polynomial_h", "hermite_polynomial_he"),
        *("laguerre_polynomial_l", "legendre_polynomial_p"),
    ],
)
def test_polynomials_of_degree_nan_are_zero(name):
    """As in PyTorch, which makes an integer of the degree."""
    x = rushlight.tensor([0.5, 1.0, -1.0, 2.0, float("nan")])
    function, nan = getattr(rushlight.special, name), float("nan")
    assert function(x, rushlight.full((5,), nan)).tolist() == [0.0] * 5
    assert function(x, nan).tolist() == [0.0] * 5
    mixed = function(x[:2], rushlight.tensor([nan, 2.0]))
    assert mixed[0] == 0 and mixed[1] == function(x[1], 2.0)


def test_polygamma_in_place_takes_its_order_by_name():
    x = rushlight.tensor([1.0, 2.5])
    want = x.polygamma(2).tolist()
    assert x.clone().polygamma_(n=2).tolist() == x.clone().polygamma_(2).tolist() == want
    with pytest.raises(TypeError, match="'n'"):
        x.polygamma_()
    leaf = rushlight.tensor([1.0, 2.5], requires_grad=True)
    (leaf * 1).polygamma_(n=1).sum().backward()
    assert rushlight.allclose(leaf.grad, x.polygamma(2))
