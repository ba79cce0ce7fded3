"""`out=`: the result in the given tensor, as PyTorch stores it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import DTypeError, RushlightError
from rushlight.ops.registry import REGISTRY

X, Y = rl.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]]), rl.tensor([2.0, 4.0, 0.5])

CALLS = {
    "add": (lambda **k: rl.add(X, Y, **k)),
    "add alpha": (lambda **k: rl.add(X, Y, alpha=3, **k)),
    "sub": (lambda **k: rl.sub(X, 2, **k)),
    "div": (lambda **k: rl.div(X, Y, rounding_mode="floor", **k)),
    "mul": (lambda **k: rl.mul(X, Y, **k)),
    "mul by a number": (lambda **k: rl.mul(X, 2.0, **k)),
    "exp": (lambda **k: rl.exp(X, **k)),
    "gt": (lambda **k: rl.gt(X, Y, **k)),
    "sum": (lambda **k: rl.sum(X, 1, **k)),
    "matmul": (lambda **k: rl.matmul(X, Y, **k)),
    "cat": (lambda **k: rl.cat([X, X], 1, **k)),
    "where": (lambda **k: rl.where(X > 0, X, Y, **k)),
    "clamp": (lambda **k: rl.clamp(X, -1, 1, **k)),
    "cumsum": (lambda **k: rl.cumsum(X, 0, **k)),
    "vector_norm": (lambda **k: rl.linalg.vector_norm(X, **k)),
    "expit": (lambda **k: rl.special.expit(X, **k)),
    "round": (lambda **k: rl.round(X, decimals=1, **k)),
}


@pytest.mark.parametrize("name", CALLS)
def test_out_takes_the_result_and_is_given_back(name):
    call = CALLS[name]
    want = call()
    empty = rl.empty(0, dtype=want.dtype)
    assert call(out=empty) is empty
    assert empty.shape == want.shape
    np.testing.assert_array_equal(empty.numpy(), want.numpy())
    spaced = rl.zeros(*want.shape, 2, dtype=want.dtype)[..., 0]
    call(out=spaced)
    np.testing.assert_array_equal(spaced.numpy(), want.numpy())


def test_several_results_take_several_outs():
    values, indices = rl.empty(0), rl.empty(0, dtype=rl.int64)
    got = rl.max(X, 1, out=(values, indices))
    assert got[0] is values
    assert got[1] is indices
    assert values.tolist() == [3.0, 4.0]
    assert indices.tolist() == [2, 1]
    with pytest.raises(TypeError, match="tuple of 2"):
        rl.max(X, 1, out=values)


def test_out_may_overlap_the_operands():
    x = rl.arange(5.0)
    rl.add(x[:-1], x[1:], out=x[1:])
    assert x.tolist() == [0, 1, 3, 5, 7]


def test_a_tensor_with_elements_is_resized_with_a_warning():
    out = rl.zeros(2, 2)
    with pytest.warns(UserWarning, match=r"shape \[2, 2\]"):
        rl.exp(rl.zeros(3), out=out)
    assert out.tolist() == [1, 1, 1]


def test_types():
    out = rl.empty(0, dtype=rl.float64)
    assert rl.add(X, Y, out=out).dtype is rl.float64
    with pytest.raises(RushlightError, match="can't be cast"):
        rl.add(X, Y, out=rl.empty(0, dtype=rl.int64))
    assert rl.zeros(3, out=rl.empty(0, dtype=rl.int32)).dtype is rl.int32
    with pytest.raises(RushlightError, match="dtype"):
        rl.zeros(3, dtype=rl.float32, out=rl.empty(0, dtype=rl.int32))
    with pytest.raises(TypeError, match="tensor"):
        rl.exp(X, out=3)


def test_out_does_not_differentiate():
    leaf = rl.ones(3, requires_grad=True)
    for inputs, out in ((leaf, rl.empty(3)), (Y, rl.ones(3, requires_grad=True))):
        with pytest.raises(RushlightError, match="automatic differentiation"):
            rl.exp(inputs, out=out)
        with pytest.raises(RushlightError, match="automatic differentiation"):
            rl.cumsum(inputs, 0, out=out)
    with rl.no_grad():
        assert rl.exp(leaf, out=rl.empty(3)).requires_grad is False


def test_an_operand_too_many_is_no_out():
    for name in ("mul", "add", "sub"):
        with pytest.raises(TypeError, match=r"2 (operands|tensors)"):
            getattr(rl, name)(Y, Y, Y)
    with pytest.raises((TypeError, DTypeError)):
        rl.exp(Y, Y)


def test_keywords_of_pytorch():
    assert rl.mul(input=Y, other=2).tolist() == (Y * 2).tolist()
    assert rl.pow(Y, exponent=2).tolist() == Y.pow(exponent=2).tolist() == (Y * Y).tolist()
    assert rl.exp(input=Y).tolist() == Y.exp().tolist()
    assert rl.add(input=Y, other=Y, alpha=2).tolist() == (Y * 3).tolist()


def test_every_declared_out_is_taken():
    for name, entry in REGISTRY.items():
        found = []
        if entry.top and entry.out_top:
            found.append(getattr(rl, name))
        elif name.startswith(("linalg_", "fft_")):
            module, bare = name.split("_", 1)
            found.append(getattr(getattr(rl, module), bare))
        found += [getattr(rl.special, n) for n in entry.special.split()]
        if entry.out:
            assert all(hasattr(function, "takes_out") for function in found), name


@pytest.mark.parametrize(
    ("call", "out"),
    [
        (lambda o: rl.clamp(rl.ones(2), 0, out=o), rl.float64),
        (lambda o: rl.argmax(rl.ones(2), 0, out=o), rl.int32),
        (lambda o: rl.matmul(rl.ones(2, 2), rl.ones(2, 2), out=o), rl.float64),
        (lambda o: rl.where(rl.ones(2) > 0, rl.ones(2), 0.0, out=o), rl.float16),
        (lambda o: rl.nonzero(rl.ones(2), out=o), rl.float32),
        (lambda o: rl.all(rl.ones(2), 0, out=o), rl.float32),
        (lambda o: rl.linalg.inv(rl.eye(2), out=o), rl.float64),
        (lambda o: rl.floor(rl.ones(2), out=o), rl.float64),
        (lambda o: rl.add(rl.ones(2), 1, out=o), rl.int64),
    ],
)
def test_out_of_another_type_is_refused(call, out):
    with pytest.raises(RuntimeError, match="out"):
        call(rl.empty(0, dtype=out))


def test_out_of_another_type_is_cast_to():
    for call, dtype, want in (
        (lambda o: rl.add(rl.ones(2), 1, out=o), rl.float64, [2, 2]),
        (lambda o: rl.exp(rl.zeros(2), out=o), rl.complex64, [1, 1]),
        (lambda o: rl.eq(rl.ones(2), 1, out=o), rl.int8, [1, 1]),
        (lambda o: rl.add(rl.tensor([-1]), 0, out=o), rl.uint8, [255]),
        (lambda o: rl.all(rl.ones(2), 0, out=o), rl.uint8, 1),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            o = rl.empty(0, dtype=dtype)
            assert call(o) is o and o.dtype is dtype and o.tolist() == want


def test_functions_of_the_library_that_take_out():
    x = rl.linspace(-2, 2, 12).reshape(3, 4)
    out = rl.empty(3, 4)
    for function in (F.gelu, F.hardshrink, F.softplus, F.softshrink, F.logsigmoid):
        assert function(x, out=out) is out
        assert rl.equal(out, function(x))
    out = rl.empty(3, 3)
    assert rl.tensordot(x, x.T, 1, out=out) is out
    assert F.linear(x, x, out=out) is out
    assert rl.equal(out, x @ x.T)


def test_an_out_without_elements_may_be_an_expanded_view():
    out = rl.empty(1, 5, 0).expand(2, 5, 0)
    assert rl.linalg.solve_triangular(rl.eye(5), rl.empty(2, 5, 0), upper=True, out=out).shape == (
        2,
        5,
        0,
    )


def test_a_line_fills_an_out_of_any_shape():
    x = rl.zeros(2, 3)
    rl.arange(0, 4, out=x.narrow(1, 1, 2))
    assert x.tolist() == [[0, 0, 1], [0, 2, 3]]
    rl.linspace(0, 3, 4, out=x.narrow(1, 0, 2))
    assert x.tolist() == [[0, 1, 1], [2, 3, 3]]
