"""Complex tensors: views of their parts, special values, types, printing, elements in and out."""

from __future__ import annotations

import copy
import io
import math
import pickle

import numpy as np
import pytest

import rushlight as rl
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.utils.checkpoint import checkpoint
from tests.catalog.run import to_array

INF, NAN = math.inf, math.nan


def drawn(*shape, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal(shape) + 1j * random.standard_normal(shape)


def single(array, device, **named):
    return rl.tensor(np.asarray(array).astype(np.complex64), device=device, **named)


# ---- parts ----


def test_parts_are_views(device):
    z = single([[1 + 2j, 3 - 1j]], device)
    z.real[0, 1] = 7
    z.imag *= 2
    assert to_array(z).tolist() == [[1 + 4j, 7 - 2j]]
    rl.view_as_real(z)[..., 0].zero_()
    assert to_array(z).tolist() == [[4j, -2j]]
    z.real = rl.tensor([5.0, 6.0], device=device)
    z.imag = 1
    assert to_array(z).tolist() == [[5 + 1j, 6 + 1j]]
    x = rl.ones(3, device=device)
    assert x.real is x
    with pytest.raises(DTypeError, match="imaginary part"):
        _ = x.imag


def test_pairs_are_complex_numbers_of_the_same_memory(device):
    pairs = rl.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    z = rl.view_as_complex(pairs)
    z *= 1j
    assert to_array(pairs).tolist() == [[-2, 1], [-4, 3]]
    strided = rl.zeros(3, 4, device=device)[:, 2:]
    rl.view_as_complex(strided).fill_(1 + 2j)
    assert to_array(strided).tolist() == [[1, 2]] * 3
    for bad in (
        rl.zeros(2, 3, device=device)[:, :2],
        rl.zeros(2, 2, device=device).T,
        rl.zeros(4, 3, device=device),
    ):
        with pytest.raises(ShapeError):
            rl.view_as_complex(bad)
    with pytest.raises(DTypeError):
        rl.view_as_complex(rl.zeros(2, dtype=rl.int64, device=device))
    with pytest.raises(DTypeError):
        rl.view_as_real(pairs)


def test_gradient_of_a_write_to_a_part(device):
    """y.real is replaced: its old value gets no gradient, the imaginary part keeps its own."""
    x = single(drawn(2, 3), device, requires_grad=True)
    w = rl.ones(2, 3, device=device, requires_grad=True)
    y = x * 2
    y.real.copy_(w * 3)
    seen = rl.view_as_real(y)
    (seen * rl.tensor([5.0, 7.0], device=device)).sum().backward()
    assert to_array(x.grad).tolist() == [[14j] * 3] * 2
    assert to_array(w.grad).tolist() == [[15] * 3] * 2


def test_a_write_to_complex_numbers_is_in_the_record_of_their_pairs(device):
    pairs = rl.ones(3, 2, device=device, requires_grad=True)
    doubled = pairs * 2
    older = doubled[:, 1]
    rl.view_as_complex(doubled)[1:].mul_(1j)  # (2, 2) becomes (-2, 2)
    (doubled * doubled).sum().backward()
    assert to_array(doubled).tolist() == [[2, 2], [-2, 2], [-2, 2]]
    assert to_array(pairs.grad).tolist() == [[8, 8]] * 3
    assert to_array(older).tolist() == [2, 2, 2]
    assert older.requires_grad


def test_a_write_to_bytes_of_another_type_leaves_the_base_without_a_record():
    w = rl.ones(3, requires_grad=True)
    base = rl.zeros(3, dtype=rl.int32)
    seen = base.view(rl.float32)
    seen.copy_(w * 2)
    seen.sum().backward()
    assert to_array(w.grad).tolist() == [2, 2, 2]
    assert not base.requires_grad


def test_a_part_of_what_was_written_since(device):
    x = single([1 + 2j, 3 - 1j], device, requires_grad=True)
    y = x * 1
    part = y.real
    y.mul_(1j)
    part.sum().backward()
    assert to_array(part).tolist() == [-2, 1]
    assert to_array(x.grad).tolist() == [-1j, -1j]


def test_layouts(device):
    """Transposed, sliced and broadcast complex operands, in kernels that walk parts."""
    a, b = drawn(5, 4), drawn(4, seed=1)
    x, y = single(a, device), single(b, device)
    pairs = (
        (x.T[1:] * y[1:, None], a.T[1:] * b[1:, None]),
        (x[::2, 1::2] + 1j, a[::2, 1::2] + 1j),
        (x.T.sum(0), a.T.sum(0)),
        (x[:, 1:].sum(), a[:, 1:].sum()),
        (x.T @ x, a.T @ a),
        (x[::2, ::2] @ x[1:3, ::2].T, a[::2, ::2] @ a[1:3, ::2].T),
        (x.expand(2, 5, 4) @ y, np.broadcast_to(a, (2, 5, 4)) @ b),
        (x.T.clone().cumsum(1), a.T.cumsum(1)),
        (rl.cat([x.T, x.T], 1), np.concatenate([a.T, a.T], 1)),
        (x.T.abs(), np.abs(a.T)),
        (x[:, 2].real, a[:, 2].real),
        (x.T.conj(), a.T.conj()),
    )
    for got, want in pairs:
        assert np.allclose(to_array(got), want, atol=1e-5)
    long = drawn(70000, seed=2)  # summed in pieces
    assert np.allclose(
        to_array(single(long, device).sum()),
        long.astype(np.complex64).sum(dtype=complex),
        atol=1e-2,
    )
    empty = single(np.zeros((0, 3)), device)
    assert to_array(empty.sum(0)).tolist() == [0, 0, 0]
    assert to_array(single(np.zeros((2, 0)), device) @ empty).tolist() == [[0] * 3] * 2


def test_gradients_meet_real_numbers(device):
    """A real operand's gradient is real; a complex result needs a gradient to start from."""
    x = rl.tensor([1.0, -2.0], device=device, requires_grad=True)
    z = single([1 + 1j, 2j], device, requires_grad=True)
    product = x * z
    with pytest.raises(RushlightError, match="complex root"):
        product.sum().backward()
    product.sum().backward(rl.tensor(1 + 2j, device=device))
    assert x.grad.dtype is rl.float32
    assert to_array(x.grad).tolist() == [3, 4]
    assert to_array(z.grad).tolist() == [1 + 2j, -2 - 4j]
    w = single([3 + 4j, 0], device, requires_grad=True)
    w.abs().sum().backward()
    assert np.allclose(to_array(w.grad), [0.6 + 0.8j, 0])
    broadcast = single([[1j]], device, requires_grad=True)
    (broadcast * rl.ones(4, 3, device=device)).real.sum().backward()
    assert to_array(broadcast.grad).tolist() == [[12]]


def test_checkpoint_of_complex_numbers(device):
    def body(x):
        y = x.exp() * x
        y.real.mul_(2)
        return y.abs().sum()

    grads = []
    for run in (body, lambda x: checkpoint(body, x, use_reentrant=False)):
        x = single(drawn(4, 3), device, requires_grad=True)
        run(x).backward()
        grads.append(to_array(x.grad))
    assert np.array_equal(*grads)


def test_optimisers_step_on_the_parts(device):
    """As PyTorch does: a complex parameter is two real ones."""
    start, target = drawn(3), drawn(3, seed=1)
    for make in (lambda ps: rl.optim.Adam(ps, 0.1), lambda ps: rl.optim.SGD(ps, 0.1, momentum=0.9)):
        z = single(start, device, requires_grad=True)
        p = rl.view_as_real(single(start, device)).clone().requires_grad_()
        one, two = make([z]), make([p])
        for _ in range(3):
            one.zero_grad()
            two.zero_grad()
            (z - single(target, device)).abs().square().sum().backward()
            (p - rl.view_as_real(single(target, device))).square().sum().backward()
            one.step()
            two.step()
        assert np.allclose(to_array(rl.view_as_real(z)), to_array(p), atol=1e-6)


# ---- values ----

SPECIAL = [
    ("abs", [complex(INF, NAN), complex(NAN, -INF), complex(3e38, 0), complex(1e-40, 1e-40)], None),
    ("abs", [complex(2e38, 2e38), 1e-30 + 1e-30j], [2.8284271e38, 1.4142135e-30]),
    ("sqrt", [complex(-4, 0.0), complex(-4, -0.0), complex(0, INF), complex(3e38, 3e38), 0j], None),
    ("exp", [complex(-INF, 1), complex(INF, 0.0), complex(89, 1.57)], None),
    ("log", [complex(-0.0, 0.0), 0j, complex(3e38, 3e38), complex(1, 1e-20)], None),
    ("tanh", [100 + 1j, -100 + 1j, complex(0, 1.5707)], None),
    ("asin", [2 + 0.5j, complex(-3, 1e-20), 0.5j, 1e15 + 1e15j], None),
    ("acosh", [-2 + 0.5j, 0.5 + 1e-10j, 3 - 2j], None),
    ("atanh", [2 + 0.5j, -0.5j, 1e20 + 1e20j, complex(0.5, -0.0)], None),
    ("log1p", [1e-10 + 1e-10j, -2 + 1j], None),
    ("expm1", [1e-10 + 1e-10j, 1j], None),
]
NUMPY = {"asin": "arcsin", "acosh": "arccosh", "atanh": "arctanh"}


@pytest.mark.parametrize(("name", "values", "want"), SPECIAL)
def test_special_values(name, values, want):
    with np.errstate(all="ignore"):
        single_ = np.array(values, np.complex64)
        if want is None:
            want = getattr(np, NUMPY.get(name, name))(single_.astype(np.complex128))
    for device in ("cpu", "reference"):
        got = to_array(getattr(rl.tensor(single_, device=device), name)())
        with np.errstate(all="ignore"):
            want = np.asarray(want).astype(got.dtype)
        for g, w in zip(np.atleast_1d(got), np.atleast_1d(want), strict=True):
            for a, b in ((g.real, w.real), (g.imag, w.imag)):
                assert (np.isnan(a) and np.isnan(b)) or a == b or abs(a - b) <= 2e-6 * abs(w), (
                    name,
                    g,
                    w,
                )
                assert np.signbit(a) == np.signbit(b) or b != 0 or np.isnan(b), (name, g, w)


def test_products_and_quotients_are_plain(device):
    """As PyTorch's: infinities are not repaired in a product, nothing overflows in a quotient."""
    if device == "webgpu":
        pytest.skip("limit: WGSL does not promise infinities and NaN")
    with np.errstate(all="ignore"):
        product = to_array(single([complex(INF, 1)], device) * single([1 + 1j], device))
        assert product.tolist() == [complex(INF, INF)]
        product = to_array(rl.tensor([INF], device=device) * single([1j], device))
        assert math.isnan(product[0].real)
        assert product[0].imag == INF
        assert to_array(
            single([1e30 + 1e30j], device) / single([1e30 + 1e30j], device)
        ).tolist() == [1]
        assert to_array(single([1 + 1j], device) / single([0], device)).tolist() == [
            complex(INF, INF)
        ]


def test_powers_of_zero(device):
    zero = single([0], device)
    assert [to_array(zero**p).tolist() for p in (0, 2, 1 + 1j, 0.5)] == [[1], [0], [0], [0]]


def test_comparisons(device):
    z = single([1 + 2j, 3], device)
    assert to_array(z == single([1 + 2j, 3j], device)).tolist() == [True, False]
    assert to_array(z != (1 + 2j)).tolist() == [False, True]
    assert to_array(rl.isclose(z, z + 1e-9)).all()
    for call in (
        lambda: z < z,
        lambda: z.max(),
        lambda: z.sign(),
        lambda: z.sort(),
        lambda: z.floor(),
        lambda: z.abs_(),
    ):
        with pytest.raises(DTypeError):
            call()


# ---- types ----


@pytest.mark.filterwarnings("ignore:var or std:UserWarning")  # of one element
def test_types():
    z = rl.tensor([1j])
    assert z.dtype is rl.complex64 is rl.cfloat
    assert (z * rl.ones(1, dtype=rl.float64)).dtype is rl.complex128 is rl.cdouble
    assert (z * rl.ones((), dtype=rl.float64)).dtype is rl.complex64
    assert (rl.ones(1, dtype=rl.float64) * 1j).dtype is rl.complex128
    assert (rl.ones(1, dtype=rl.int64) + 1j).dtype is rl.complex64
    assert (rl.ones(1, dtype=rl.float16) + 1j).dtype is rl.complex64
    assert (z.abs().dtype, z.angle().dtype, z.var().dtype) == (rl.float32,) * 3
    assert (z.real.double().dtype, rl.finfo(rl.complex128).dtype) == (rl.float64, "float64")
    assert (rl.complex64.to_real(), rl.float64.to_complex()) == (rl.float32, rl.complex128)
    assert z.is_complex() and not z.is_floating_point() and not z.conj().is_conj()
    with pytest.raises(DTypeError, match="add_"):
        rl.ones(1).add_(1j)
    with pytest.raises(DTypeError):
        rl.ones(1).fill_(1j)
    with pytest.raises(DTypeError):
        rl.complex(rl.ones(1), rl.ones(1, dtype=rl.float64))


def test_a_cast_to_real_numbers_warns(device):
    z = single([1 + 2j], device)
    with pytest.warns(UserWarning, match="imaginary"):
        assert to_array(z.float()).tolist() == [1]
    assert to_array(z.bool()).tolist() == [True]
    assert to_array(z.cdouble().real if device != "webgpu" else z.real).tolist() == [1]


def test_random_numbers(device):
    z = rl.randn(20000, dtype=rl.complex64, device=device, generator=rl.Generator().manual_seed(3))
    numbers = to_array(z)
    assert abs(numbers.real.var() - 0.5) < 0.02
    assert abs(numbers.imag.var() - 0.5) < 0.02
    assert abs((numbers.real * numbers.imag).mean()) < 0.02
    even = to_array(rl.rand(1000, dtype=rl.complex64, device=device))
    assert 0 <= even.imag.min() <= even.imag.max() < 1


# ---- in and out ----


def test_elements_in_and_out(device):
    array = drawn(2, 3).astype(np.complex64)
    z = rl.tensor(array, device=device)
    assert np.array_equal(to_array(pickle.loads(pickle.dumps(z))), array)
    assert np.array_equal(to_array(copy.deepcopy(z)), array)
    assert np.array_equal(to_array(z.cpu()), array)
    assert z.tolist() == array.tolist()
    assert complex(z[0, 0]) == z[0, 0].item() == complex(array[0, 0])
    assert float(rl.tensor(2 + 0j, device=device)) == 2
    stream = io.BytesIO()
    rl.save({"z": z}, stream)
    stream.seek(0)
    assert np.array_equal(to_array(rl.load(stream)["z"]), array)


def test_numpy_shares_memory():
    array = drawn(3)
    z = rl.from_numpy(array)
    z[0] = 5j
    z.numpy()[1] = 7
    assert array[:2].tolist() == [5j, 7]
    assert z.imag.numpy().tolist() == array.imag.tolist()


def test_text():
    assert repr(rl.tensor([1 + 2j, 3 - 1j])) == "tensor([1.+2.j, 3.-1.j])"
    assert repr(rl.tensor([1.5 + 2j, 3])) == "tensor([1.5000+2.j, 3.0000+0.j])"
    assert (
        repr(rl.tensor([[1 + 1j, 2], [3, 4j]]))
        == "tensor([[1.+1.j, 2.+0.j],\n        [3.+0.j, 0.+4.j]])"
    )
    assert repr(rl.tensor(1j, dtype=rl.complex128)) == "tensor(0.+1.j, dtype=rushlight.complex128)"
    assert repr(rl.tensor([complex(NAN, INF), 1])) == "tensor([nan+infj, 1.+0.j])"
    assert repr(rl.zeros(0, dtype=rl.complex64)) == "tensor([], dtype=rushlight.complex64)"


def test_ranges_and_constants(device):
    assert to_array(rl.linspace(0, 2 + 4j, 3, device=device)).tolist() == [0, 1 + 2j, 2 + 4j]
    assert to_array(rl.full((2,), 1 - 1j, device=device)).tolist() == [1 - 1j] * 2
    assert to_array(rl.eye(2, dtype=rl.complex64, device=device)).tolist() == [[1, 0], [0, 1]]
    assert to_array(rl.nan_to_num(single([complex(NAN, 1)], device))).tolist() == [1j]
    chosen = rl.where(rl.tensor([True, False], device=device), 1j, 0)
    assert to_array(chosen).tolist() == [1j, 0]
    with pytest.raises(DTypeError):
        rl.arange(3, dtype=rl.complex64)


ENDS = [math.inf, -math.inf, math.nan, 1.5, 0.0, -0.0]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    ("name", "numpy_name"),
    [
        *(("acos", "arccos"), ("acosh", "arccosh"), ("asin", "arcsin"), ("asinh", "arcsinh")),
        *(("atan", "arctan"), ("atanh", "arctanh"), ("cosh", "cosh"), ("sinh", "sinh")),
        *(("tanh", "tanh"), ("sin", "sin"), ("cos", "cos"), ("tan", "tan")),
    ],
)
def test_functions_at_infinities_and_nan(name, numpy_name, dtype):
    z = np.array([complex(a, b) for a in ENDS for b in ENDS], dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, numpy_name)(z)
    found = getattr(rl, name)(rl.tensor(z)).numpy()
    for got, part in ((found.real, want.real), (found.imag, want.imag)):
        np.testing.assert_allclose(got, part, rtol=2e-6, atol=1e-6)
