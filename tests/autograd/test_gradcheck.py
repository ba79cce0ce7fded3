"""`gradcheck` and `gradgradcheck` pass right derivatives, and name the input and output of wrong
ones.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import rushlight as rl
from rushlight.autograd import Function, GradcheckError, gradcheck, gradgradcheck
from rushlight.autograd.gradcheck import GradcheckError as SameError
from rushlight.core.errors import NotDifferentiable, RushlightWarning

MODES = pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])


def drawn(*shape, dtype=rl.float64, seed=0):
    numbers = np.random.default_rng(seed).uniform(0.5, 2, (2, *shape))
    made = numbers[0] + 1j * numbers[1] if dtype.kind == "c" else numbers[0]
    return rl.tensor(made, dtype=dtype, requires_grad=True)


def declared(forward, backward):
    """A function with a given derivative: `backward(g, x)`."""

    class Declared(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, *gs):
            return backward(*gs, ctx.saved_tensors[0])

    return Declared.apply


@MODES
def test_right_derivatives_pass(fast):
    x, y = drawn(2, 3), drawn(3, 2, seed=1)
    for check in (gradcheck, gradgradcheck):
        assert check(rl.matmul, (x, y), fast_mode=fast)
        assert check(lambda a: (a.exp(), a.sum(0), a * 2), (x,), fast_mode=fast)
        assert check(lambda a, b: rl.cat([a, b.T]).tanh(), [x, y], fast_mode=fast)
        assert check(lambda pair: pair[0] * pair[1].T, ([x, y],), fast_mode=fast)
    assert gradcheck(rl.exp, x, fast_mode=fast)


@MODES
def test_a_wrong_derivative_is_named(fast):
    x, y = drawn(2, 2), drawn(2, 2, seed=1)
    doubled = declared(lambda x: x.exp(), lambda g, x: g * x.exp() * 2)
    with pytest.raises(
        GradcheckError, match="Jacobian mismatch for output 1 with respect to input 1"
    ) as error:
        gradcheck(lambda a, b: (a.exp(), doubled(b)), (x, y), fast_mode=fast)
    largest = float(y.detach().exp().max())
    found = float(re.search(r"largest difference is ([\d.]+)", str(error.value)).group(1))
    assert found == pytest.approx(largest, rel=1e-4)
    assert not gradcheck(doubled, (x,), fast_mode=fast, raise_exception=False)
    assert gradcheck(doubled, (x,), fast_mode=fast, atol=100)
    assert issubclass(GradcheckError, RuntimeError)
    assert SameError is GradcheckError


def test_one_wrong_entry_of_many_is_found():
    x = drawn(6)
    wrong = rl.tensor([0, 0, 0, 1e-3, 0, 0], dtype=rl.float64)
    spoiled = declared(lambda x: x * x, lambda g, x: 2 * x * g + wrong * g)
    with pytest.raises(
        GradcheckError, match=r"1 of 36 entries.*number 3 of the output by number 3 of the input"
    ):
        gradcheck(spoiled, x, rtol=0)


@MODES
def test_a_wrong_second_derivative_is_found(fast):
    # The derivative of x ** 3, whose own derivative is wrong.
    inner = declared(lambda x: 3 * x * x, lambda g, x: 7 * x * g)
    cube = declared(lambda x: x**3, lambda g, x: g * inner(x))
    x = drawn(3)
    assert gradcheck(cube, x, fast_mode=fast)
    with pytest.raises(GradcheckError):
        gradgradcheck(cube, (x,), fast_mode=fast)


@MODES
def test_complex_functions(fast):
    z, w = drawn(3, dtype=rl.complex128), drawn(3, dtype=rl.complex128, seed=1)
    for check in (gradcheck, gradgradcheck):
        assert check(
            lambda a, b: (a * b.conj(), a.abs(), a.exp() / b, a.real, b.angle()),
            (z, w),
            fast_mode=fast,
        )
        assert check(lambda x: rl.complex(x, x * x) ** 2, (drawn(3),), fast_mode=fast)
    unconjugated = declared(lambda x: x * x, lambda g, x: g * 2 * x)
    with pytest.raises(GradcheckError, match="output 0 with respect to input 0"):
        gradcheck(unconjugated, (z,), fast_mode=fast)
    assert not gradcheck(
        declared(lambda x: x.conj(), lambda g, x: g), z, fast_mode=fast, raise_exception=False
    )


def test_what_is_detached_is_caught():
    x = drawn(3)
    with pytest.raises(
        GradcheckError, match="does not require gradients, but it changes with input 0"
    ):
        gradcheck(lambda a: a.detach() * 2, x)
    assert gradcheck(lambda a: a.detach().sign(), x)
    assert gradcheck(lambda a: (a * 2, a.argmax()), x)
    with pytest.raises(GradcheckError, match="largest difference is 1"):
        gradcheck(lambda a: a * 2 + a.detach(), x)


def test_gradients_of_zero_and_none():
    x = drawn(3)
    with pytest.raises(GradcheckError, match="not multiplied by grad_output"):
        gradcheck(declared(lambda x: x * 2, lambda g, x: g * 2 + 1e-7), x)

    class Alone(Function):
        """Drops one result's gradient when the other's is missing."""

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            return None if g is None or h is None else 2 * g + 3 * h

    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(Alone.apply, x)


def test_a_backward_that_changes_its_mind():
    calls = []

    def wavering(g, x):
        calls.append(1)
        return g * (2 + 1e-7 * len(calls))

    x = drawn(2)
    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(declared(lambda x: x * 2, wavering), x)
    assert gradcheck(
        declared(lambda x: x * 2, wavering), x, nondet_tol=1e-3, check_undefined_grad=False
    )


def test_parameters_of_a_module_are_moved_where_they_are():
    layer = rl.nn.Linear(3, 2).double()
    x = drawn(2, 3)
    before = layer.weight.tolist()
    assert gradcheck(lambda x, *_: layer(x), (x, *layer.parameters()))
    assert gradgradcheck(lambda x, *_: layer(x), (x, *layer.parameters()))
    assert layer.weight.tolist() == before
    assert layer.weight.grad is None


def test_inputs_are_put_back_after_an_error():
    x = drawn(3)
    before = x.tolist()

    def refuses(a):
        if a.tolist() != before:
            raise KeyError("moved")
        return a * 2

    with pytest.raises(KeyError):
        gradcheck(refuses, x)
    assert x.tolist() == before


def test_views_and_inputs_that_are_constants():
    base = drawn(4, 3)
    assert gradcheck(lambda a: a.exp(), base.T[1:])
    assert gradcheck(lambda a, n, b: (a * b) ** n, (base, 2, rl.ones(3, dtype=rl.float64)))
    with pytest.raises(GradcheckError, match=r"input 0 has elements that share memory"):
        gradcheck(rl.exp, drawn(3, 1).expand(3, 4))


def test_sparse_inputs_are_checked_at_their_values():
    at = rl.tensor([[0, 1, 1], [2, 0, 2]])
    values = drawn(3)
    dense = drawn(3, 2, seed=1)
    assert gradcheck(lambda v, d: rl.sparse_coo_tensor(at, v, (2, 3)) @ d, (values, dense))
    sparse = rl.sparse_coo_tensor(at, values.detach(), (2, 3)).requires_grad_()
    assert gradcheck(lambda a, d: rl.sparse.mm(a, d), (sparse, dense), masked=True)


@MODES
def test_forward_mode(fast):
    x, z = drawn(2, 3), drawn(2, dtype=rl.complex128)
    assert gradcheck(lambda a: (a.exp(), a.prod(1)), x, check_forward_ad=True, fast_mode=fast)
    assert gradcheck(
        lambda a: a * a.conj() + a,
        z,
        check_forward_ad=True,
        check_backward_ad=False,
        fast_mode=fast,
    )
    assert gradgradcheck(rl.sin, (x,), check_fwd_over_rev=True, fast_mode=fast)


@MODES
def test_batches_of_gradients(fast):
    x, y = drawn(2, 3), drawn(3, 2, seed=1)
    for check in (gradcheck, gradgradcheck):
        assert check(rl.matmul, (x, y), check_batched_grad=True, fast_mode=fast)
        assert check(
            lambda a: (a.softmax(1), a.prod(0)), (x,), check_batched_grad=True, fast_mode=fast
        )
    both = {"check_forward_ad": True, "check_batched_forward_grad": True}
    assert gradcheck(lambda a: (a.exp(), a.sum(1)), x, **both, fast_mode=fast)
    assert gradcheck(
        rl.exp, drawn(2, dtype=rl.complex128), check_batched_grad=True, **both, fast_mode=fast
    )

    def reads(g, x):
        # Vmap cannot ask for one example's value.
        return g * (2.0 if g.sum().item() == g.sum().item() else 1.0)

    with pytest.raises(GradcheckError, match="vmap over the backward pass of output 0 raised"):
        gradcheck(declared(lambda x: x * 2, reads), x, check_batched_grad=True, fast_mode=fast)
    with pytest.raises(ValueError, match="check_batched_grad"):
        gradcheck(
            rl.exp, x, check_batched_grad=True, check_backward_ad=False, check_forward_ad=True
        )
    with pytest.raises(ValueError, match="check_batched_forward_grad"):
        gradcheck(rl.exp, x, check_batched_forward_grad=True)


def test_gradients_given_for_the_second_order():
    x = drawn(2, 3)
    g = rl.ones(2, 3, dtype=rl.float64, requires_grad=True)
    assert gradgradcheck(rl.exp, (x,), g)
    assert gradgradcheck(rl.exp, (x,), [g])
    assert gradgradcheck(rl.exp, (x,), gen_non_contig_grad_outputs=True)
    with pytest.raises(RuntimeError, match="2 grad_outputs for 1 outputs"):
        gradgradcheck(rl.exp, (x,), [g, g])


def test_wrong_uses():
    with pytest.raises(ValueError, match="no input requires gradients"):
        gradcheck(rl.exp, rl.ones(2, dtype=rl.float64))
    with pytest.raises(ValueError, match="check_backward_ad"):
        gradcheck(rl.exp, drawn(2), check_backward_ad=False)
    with pytest.raises(ValueError, match="check_rev_over_rev"):
        gradgradcheck(rl.exp, (drawn(2),), check_rev_over_rev=False)
    with pytest.raises(RuntimeError, match="it must give tensors"):
        gradcheck(lambda x: "text", drawn(2))
    with pytest.warns(UserWarning, match="input 0 is float32"):
        gradcheck(rl.exp, drawn(2, dtype=rl.float32), atol=1e3)
    with pytest.raises(NotDifferentiable):
        gradcheck(lambda x: rl.unique(x), drawn(2))


def test_on_every_device(device):
    single = device not in ("cpu", "reference")  # the adapter may lack float64
    x = drawn(2, 3, dtype=rl.float32 if single else rl.float64).detach().to(device).requires_grad_()
    looser = {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2} if single else {}
    assert gradcheck(lambda a: (a.sin(), a.softmax(1)), x, **looser)
    assert gradgradcheck(lambda a: (a.sin(), a.softmax(1)), (x,), **looser)
    assert not gradcheck(
        declared(lambda a: a * a, lambda g, a: g * a), x, raise_exception=False, **looser
    )


def test_a_number_that_requires_gradients_is_not_read_in_silence():
    x, y = rl.tensor(2.0, requires_grad=True), rl.ones(3)
    for call in (
        lambda: rl.full((2,), x),
        lambda: rl.full_like(y, x),
        lambda: y.new_full((2,), x),
        lambda: rl.arange(0, x),
        lambda: rl.scalar_tensor(x),
        lambda: rl.linspace(0, x, 3),
    ):
        with pytest.raises(TypeError, match="requires gradients"):
            call()
    for call in (
        lambda: float(x),
        lambda: rl.nn.functional.pad(y, (1, 1), value=x),
        lambda: rl.nn.functional.softplus(y, x),
        lambda: rl.cdist(y[None], y[None], p=x),
        lambda: rl.nan_to_num(y, x),
    ):
        with pytest.warns(RushlightWarning, match="requires gradients"):
            call()
    assert (x.item(), float(x.detach()), int(x), bool(x)) == (2.0, 2.0, 2, True)


# ---- what has no derivative, and what has a zero one ----

DRAWS = {
    "bernoulli": lambda x: rl.bernoulli(x / 3),
    "normal": lambda x: rl.normal(x, 1.0),
    "normal by deviation": lambda x: rl.normal(0.0, x),
    "poisson": rl.poisson,
    "floor": rl.floor,
    "sign": rl.sign,
    "floor_divide": lambda x: x // 2,
}
UNDERIVED = {
    "unique": rl.unique,
    "unique_consecutive": rl.unique_consecutive,
    "unique along": lambda x: rl.unique(x, dim=0, return_counts=True)[0],
    "bincount": lambda x: rl.bincount(rl.tensor([0, 1, 1]), x),
    "histogram": lambda x: rl.histogram(x, 4).hist,
    "histogram edges": lambda x: rl.histogram(x, 4).bin_edges,
    "histogram weight": lambda x: rl.histogram(x.detach(), 4, weight=x).hist,
    "histogramdd": lambda x: rl.histogramdd(rl.stack([x, x], 1), [2, 2]).hist,
    "binomial": lambda x: rl.binomial(x.detach().ceil(), x / 3),
    "legendre_polynomial_p": lambda x: rl.special.legendre_polynomial_p(x, 2),
    "igamma": lambda x: rl.special.gammainc(x, x.detach()),
    "geqrf": lambda x: rl.geqrf(rl.outer(x, x))[0],
}


@pytest.mark.parametrize("name", DRAWS)
def test_constant_almost_everywhere(name, device):
    x = rl.tensor([0.5, 1.25, 2.5], device=device, requires_grad=True)
    out = DRAWS[name](x)
    assert out.requires_grad
    (g,) = rl.autograd.grad(out.sum(), x, create_graph=True)
    assert g.tolist() == [0, 0, 0]
    assert rl.autograd.grad(g.sum(), x)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", UNDERIVED)
def test_no_derivative(name):
    x = rl.tensor([0.5, 1.25, 2.5], requires_grad=True)
    out = UNDERIVED[name](x)  # reading it is allowed
    assert out.requires_grad
    assert out.detach().tolist() == UNDERIVED[name](x.detach()).tolist() or name == "binomial"
    with pytest.raises(NotDifferentiable, match=r"no derivative"):
        out.sum().backward()
    (g,) = rl.autograd.grad((x * 2).sum() + out.detach().sum(), x)
    assert g.tolist() == [2, 2, 2]


def test_draws_under_vmap_have_zero_gradients():
    x = rl.full((2, 3), 0.5).requires_grad_()
    for draw in (rl.bernoulli, rl.poisson, lambda a: rl.normal(a, 1.0)):
        out = rl.func.vmap(draw, randomness="different")(x)
        assert rl.autograd.grad(out.sum(), x)[0].tolist() == [[0, 0, 0]] * 2
