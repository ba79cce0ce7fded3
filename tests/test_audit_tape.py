"""Small things of the tape that people's programs meet: empty requests, strict derivatives, overwritten values, checkpoints."""

from __future__ import annotations

import contextlib

import pytest

import rushlight as rl
from rushlight.autograd import functional, grad
from rushlight.core.errors import KindError, RushlightError
from rushlight.utils.checkpoint import checkpoint, set_checkpoint_early_stop


def leaf(*numbers):
    return rl.tensor(list(numbers), dtype=rl.float64, requires_grad=True)


def test_no_inputs_is_an_error():
    with pytest.raises(RushlightError, match="inputs is empty"):
        grad(leaf(1) * 2, [])


def test_strict_with_create_graph_asks_for_a_derivative_that_depends():
    x = leaf(1, 2)
    for f in (functional.vjp, functional.jvp):
        assert f(lambda x: x**2, x, rl.ones_like(x).detach(), create_graph=True, strict=True)[1].requires_grad
        with pytest.raises(RushlightError, match="independent of the inputs"):
            f(lambda x: x * 2, x, rl.ones_like(x).detach(), create_graph=True, strict=True)
    with pytest.raises(RushlightError, match="independent of the inputs"):
        functional.jacobian(lambda x: x * 2, x, create_graph=True, strict=True)
    assert functional.jacobian(lambda x: x * 2, x, strict=True).tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize("f", [functional.hessian, functional.hvp, functional.vhp])
def test_a_function_that_returns_no_tensor(f):
    with pytest.raises(KindError, match="must return one tensor, got float"):
        f(lambda x: 3.0, rl.ones(2))


@pytest.mark.parametrize("write", [lambda y, v: y.copy_(v), lambda y, v: y.fill_(v[0])])
def test_what_is_overwritten_has_a_gradient_of_zeros(write):
    x, v = leaf(1, 2), leaf(3, 4)
    y = x * 1
    write(y, v)
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]
    assert v.grad.sum() == 2


def test_blocks_around_a_checkpoint():
    entered = []

    @contextlib.contextmanager
    def block(name):
        entered.append(name)
        yield

    x = leaf(1, 2)
    with set_checkpoint_early_stop(False):
        y = checkpoint(
            rl.sin, x, use_reentrant=False, context_fn=lambda: (block("run"), block("again")), early_stop=False
        )
    y.sum().backward()
    assert entered == ["run"]
    assert rl.equal(x.grad, x.detach().cos())
