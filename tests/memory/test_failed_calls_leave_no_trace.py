"""A failed call changes no random position and no running statistics.

a failed write writes nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import BudgetError, memory, nn
from rushlight.ops.random.random import Generator, default_generator
from tests.memory.failing_allocations import Failing, fail_at_every_allocation
from tests.memory.training_step import bits


@pytest.fixture
def failing(monkeypatch) -> Failing:
    return Failing(monkeypatch)


# ---- random positions ----

X = (40, 3)
DRAWS: dict[str, Any] = {
    "rand": lambda x: rl.rand(X),
    "rand complex": lambda x: rl.rand(X, dtype=rl.complex64),
    "randn complex": lambda x: rl.randn(X, dtype=rl.complex64),
    "rand_like": lambda x: rl.rand_like(x),
    "randint": lambda x: rl.randint(0, 9, X, dtype=rl.int32),
    "randint_like": lambda x: rl.randint_like(x, 5),
    "randperm": lambda x: rl.randperm(50),
    "normal": lambda x: rl.normal(x, x.abs()),
    "normal_": lambda x: x.normal_(1.0, 2.0),
    "uniform_": lambda x: x.uniform_(-1.0, 2.0),
    "random_": lambda x: x.random_(0, 5),
    "exponential_": lambda x: x.exponential_(),
    "geometric_": lambda x: x.geometric_(0.5),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "bernoulli": lambda x: rl.bernoulli(x.sigmoid()),
    "bernoulli_": lambda x: x.bernoulli_(0.5),
    "bernoulli_ of tensors": lambda x: x.bernoulli_(rl.full_like(x, 0.5)),
    "multinomial": lambda x: rl.multinomial(x.sigmoid(), 2),
    "multinomial with replacement": lambda x: rl.multinomial(x.sigmoid(), 5, replacement=True),
    "poisson": lambda x: rl.poisson(x.abs()),
    "binomial": lambda x: rl.binomial(rl.full_like(x, 5.0), x.sigmoid()),
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout in place": lambda x: F.dropout(x, 0.5, inplace=True),
    "dropout1d in place": lambda x: F.dropout1d(x, 0.5, inplace=True),
    "dropout1d": lambda x: F.dropout1d(x, 0.5),
    "dropout2d": lambda x: F.dropout2d(x.view(2, 5, -1, 3), 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, training=True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "rrelu in place": lambda x: F.rrelu(x, training=True, inplace=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=True),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(2, -1, 3)] * 3, dropout_p=0.5),
    "fractional pooling": lambda x: F.fractional_max_pool2d(x.view(1, 2, -1, 6), 2, 3),
    "xavier_uniform_": lambda x: nn.init.xavier_uniform_(x),
    "trunc_normal_": lambda x: nn.init.trunc_normal_(x),
    "orthogonal_": lambda x: nn.init.orthogonal_(x),
    "dirac_": lambda x: nn.init.dirac_(x.view(-1, 8, 3)),
    "sparse_": lambda x: nn.init.sparse_(x, 0.5),
}


AT_ONCE = {"normal_", "uniform_", "xavier_uniform_"}  # written in one kernel: they take no memory


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_that_fails_has_drawn_nothing(failing, name):
    def make() -> Any:
        rl.manual_seed(4)
        return rl.linspace(-1, 1, 120).view(X)

    def look(x: Any) -> Any:
        return default_generator.words, bits(x), x._memory.version

    count = fail_at_every_allocation(failing, make, DRAWS[name], look)
    assert (count == 0) == (name in AT_ONCE)


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_that_a_budget_refuses_has_drawn_nothing(name):
    """A write to a value that can be rebuilt may need a block of its own, after the draw."""
    x = rl.linspace(-1, 1, 3600).view(1200, 3)
    words = default_generator.words
    for limit in (x.nbytes + x.nbytes * i * i // 4 for i in range(60)):
        memory.empty_cache()
        try:
            with memory.budget(memory.allocated() + limit):
                value = x * 1.0
                words = default_generator.words
                DRAWS[name](value)
            return
        except BudgetError:
            assert default_generator.words == words, limit
    pytest.fail("no limit suffices")


def test_a_draw_of_a_generator_that_fails_has_drawn_nothing(failing):
    def make() -> Any:
        return Generator().manual_seed(3)

    def act(generator: Any) -> None:
        rl.randint(0, 9, X, dtype=rl.int32, generator=generator)

    assert fail_at_every_allocation(failing, make, act, lambda generator: generator.words)


# ---- running statistics ----

NORMS: dict[str, Any] = {
    "batch_norm": lambda: nn.BatchNorm1d(3),
    "batch_norm without momentum": lambda: nn.BatchNorm1d(3, momentum=None),
    "batch_norm without weights": lambda: nn.BatchNorm1d(3, affine=False),
    "instance_norm": lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
}


def seen(module: Any) -> Any:
    return {name: (bits(b), b._memory.version) for name, b in module.named_buffers()}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_that_fails_has_learned_nothing(failing, name, grad):
    rl.manual_seed(2)
    x = rl.randn(4, 3, 7, requires_grad=grad)
    assert fail_at_every_allocation(failing, NORMS[name], lambda module: module(x), seen)


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_that_does_not_fit_into_a_budget_has_learned_nothing(name):
    module, x = NORMS[name](), rl.randn(64, 3, 64)
    before = seen(module)
    memory.empty_cache()
    with pytest.raises(BudgetError), memory.budget(memory.allocated() + 4096):
        module(x)
    assert seen(module) == before


def test_native_batch_norm_that_fails_has_learned_nothing(failing):
    x = rl.linspace(-1, 1, 84).view(4, 3, 7)

    def make() -> Any:
        return rl.zeros(3), rl.ones(3)

    def act(running: Any) -> None:
        rl.native_batch_norm(x, None, None, *running, True, 0.1, 1e-5)

    assert fail_at_every_allocation(failing, make, act, lambda running: bits(*running))


# ---- writes in place ----

WRITES: dict[str, Any] = {
    "add_": lambda h: h.add_(rl.ones(3).expand(4, 3), alpha=2),
    "mul_ by itself": lambda h: h.mul_(h.t().reshape(4, 3)),
    "add_ of another view": lambda h: h[1:].add_(h[:-1]),
    "exp_": lambda h: h.exp_(),
    "clamp_": lambda h: h.clamp_(-0.5, 0.5),
    "copy_": lambda h: h.copy_(rl.ones(3, dtype=rl.float64)),
    "a view": lambda h: h[1:].mul_(3.0),
    "a view's view": lambda h: h[1:][:, 0].exp_(),
    "an item": lambda h: h.__setitem__((slice(None), 1), 5.0),
    "items by mask": lambda h: h.__setitem__(h > 0, 5.0),
    "items by index": lambda h: h.__setitem__(rl.tensor([0, 2]), rl.ones(2, 3)),
    "masked_fill_": lambda h: h.masked_fill_(h > 0, 2.0),
    "scatter_": lambda h: h.scatter_(0, rl.zeros(1, 3, dtype=rl.int64), 7.0),
    "index_add_": lambda h: h.index_add_(0, rl.tensor([1, 1]), rl.ones(2, 3)),
    "cumsum_": lambda h: h.cumsum_(0),
    "zero_": lambda h: h.zero_(),
    "fill_": lambda h: h.fill_(2.0),
    "lerp_": lambda h: h.lerp_(rl.ones(4, 3), 0.5),
    "addcmul_": lambda h: h.addcmul_(rl.ones(4, 3), rl.ones(3)),
    "t_": lambda h: h.t_(),
    "where out": lambda h: rl.where(h.detach() > 0, h.detach(), -h.detach(), out=h.detach()),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_fails_has_written_nothing(failing, name, recorded):
    def make() -> Any:
        x = rl.linspace(-1, 1, 12).view(4, 3).clone().requires_grad_(recorded)
        return x, x * 1.0

    def look(pair: Any) -> Any:
        record = None if pair[1].grad_fn is None else pair[1].grad_fn.name()
        return bits(pair[1]), pair[1]._memory.version, tuple(pair[1].shape), record

    fail_at_every_allocation(failing, make, lambda pair: WRITES[name](pair[1]), look)


BAD: dict[str, Any] = {
    "shape": lambda h: h.add_(rl.ones(5)),
    "larger": lambda h: h.mul_(rl.ones(2, 4, 3)),
    "type": lambda h: h.add_(rl.ones(4, 3, dtype=rl.complex64)),
    "operand": lambda h: h.add_("x"),
    "index": lambda h: h.index_add_(0, rl.tensor([9]), rl.ones(1, 3)),
    "item": lambda h: h.__setitem__(rl.tensor([9]), 1.0),
    "dimension": lambda h: h.cumsum_(5),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_a_write_that_is_refused_has_written_nothing(name, recorded):
    x = rl.linspace(-1, 1, 12).view(4, 3).clone().requires_grad_(recorded)
    h = x * 1.0
    before = bits(h), h._memory.version, h.grad_fn
    with pytest.raises((RuntimeError, TypeError, IndexError, ValueError)):
        BAD[name](h)
    assert (bits(h), h._memory.version, h.grad_fn) == before
    if recorded:
        h.sum().backward()
        assert x.grad.tolist() == [[1.0] * 3] * 4
