"""At the limit a result gets the block of an input that can be rebuilt. See Note [Replay] 8."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.tape.memory import replay
from tests.memory.training_step import bits

ROWS, COLUMNS = 256, 512
ROOM = ROWS * COLUMNS * 4


@pytest.fixture
def base() -> rl.Tensor:
    rl.manual_seed(0)
    return rl.randn(ROWS, COLUMNS)


def inside(blocks: float, work: Callable[[], list]) -> list:
    memory.empty_cache()
    with memory.budget(memory.allocated() + int(blocks * ROOM), "cpu"):
        return work()


CHAINS: list[Callable[[rl.Tensor], rl.Tensor]] = [
    lambda x: (x * 2.0).sigmoid(),
    lambda x: rl.layer_norm(x * 2.0, (COLUMNS,)),
    lambda x: (y := x * 2.0) * y,
    lambda x: (x * 2.0).sigmoid().tanh().exp(),
]


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_fits_into_one_block(base, chain):
    want = bits(chain(base))
    assert inside(1.1, lambda: bits(chain(base))) == want


def test_an_input_that_was_replaced_can_be_read(base):
    def work() -> list:
        x = base * 2.0
        y = x.sigmoid()
        first = bits(y)
        del y
        return [*first, *bits(x)]

    want = work()
    assert inside(1.1, work) == want
    assert memory.recomputed()["calls"]


def test_another_view_of_the_input_is_not_replaced(base):
    square = base[:, :ROWS].contiguous()

    def work() -> list:
        x = square * 2.0
        return bits(x + x.t())

    want = work()
    assert inside(1.1, work) == want
    with pytest.raises(rl.BudgetError):
        inside(0.6, work)


def test_data_and_parameters_are_not_replaced(base):
    before = bits(base)
    with pytest.raises(rl.BudgetError):
        inside(0.5, lambda: bits(base.sigmoid()))
    assert bits(base) == before


def test_a_block_that_another_thread_took(base, monkeypatch):
    """The result is then elsewhere, and the input is brought again."""
    want = bits((base * 2.0).sigmoid())
    answers = [False]
    intact = replay.is_intact

    def lost_once(*call: object) -> bool:
        return answers.pop() if answers else intact(*call)

    monkeypatch.setattr(replay, "is_intact", lost_once)
    assert inside(1.1, lambda: bits((base * 2.0).sigmoid())) == want
    assert not answers


def test_replays_replace_their_sources_too(base):
    weights = [base.clone().mul_(0.1 * i).requires_grad_() for i in range(1, 4)]

    def work() -> list:
        for weight in weights:
            weight.grad = None
        x = base
        for weight in weights:
            x = ((x * weight).sigmoid() + 1.0).tanh()
        x.sum().backward()
        return bits(*[weight.grad for weight in weights])

    want = work()
    for weight in weights:
        weight.grad = None
    assert inside(6.1, work) == want


@pytest.mark.parametrize("groups", [1, 16])
def test_convolutions_copy_fewer_images_at_the_limit(groups):
    rl.manual_seed(1)
    x = rl.randn(12, 16, 24, 24)
    w = rl.randn(16, 16 // groups, 3, 3).requires_grad_()

    def work() -> list:
        w.grad = None
        y = F.conv2d(x * 1.0, w, padding=1, groups=groups)
        y.sum().backward()
        return bits(w.grad)

    want = work()
    w.grad = None
    memory.empty_cache()
    block = x.numel() * 4
    with memory.budget(memory.allocated() + int(2.7 * block), "cpu"):
        assert work() == want
