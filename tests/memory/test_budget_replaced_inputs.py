"""At the limit a result gets the block of an input that can be rebuilt. See Note [Replay] 8."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.profiler import profile
from rushlight.tape.anomaly.arming import FEW
from rushlight.tape.memory import replay
from rushlight.tape.memory.foresight import STEADY
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
    lambda x: F.binary_cross_entropy(x.sigmoid(), rl.ones(()).expand_as(x), reduction="none"),
]


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_fits_into_one_block(base, chain):
    want = bits(chain(base))
    assert inside(1.1, lambda: bits(chain(base))) == want


def test_a_chain_fits_into_one_block_in_followed_steps_too(base):
    """The replaced input is not rebuilt for the call: with a write in it, that takes two blocks."""

    def work() -> list:
        x = base * 2.0
        x[:, :ROWS].mul_(0.5)
        return bits(x.sigmoid())

    want = work()
    for _ in range(STEADY + 2):
        assert inside(1.1, work) == want


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


def test_scratch_of_a_followed_step_replaces_no_input(monkeypatch):
    """Its result counts as made during the launch: `Pins.replaceable` then gives up no input."""
    seen, x = [], rl.rand(64, 64)
    plan = None

    def launch(*numbers: int) -> None:
        seen.append(len(replay.Pins.running[-1][2]))
        plan.plain(*numbers)

    with rl.memory.budget(1 << 30):
        for _ in range(8):
            y = x * 2.0
            if plan is not None:
                monkeypatch.setattr(plan, "launch", launch)
            z = y.sigmoid()
            plan = z._memory.recipe.plan
            rl.ones(3, requires_grad=True).sum().backward()  # ends the step
    assert len(seen) > 4 and set(seen) == {1}


def chained(x: rl.Tensor) -> list:
    return bits((x * 2.0).sigmoid().tanh())


@pytest.mark.parametrize("mode", [profile, lambda: rl.shadow(1.0)])
def test_a_profile_and_a_shadow_check_need_no_more(base, mode):
    want = chained(base)
    with mode():
        assert inside(1.1, lambda: chained(base)) == want


def test_a_limit_that_fits_fits_after_anomaly_mode_too(base):
    """Plans stay armed after the first few blocks: Note [Arming]."""
    want = chained(base)
    for _ in range(FEW + 2):
        with rl.autograd.detect_anomaly():
            chained(base)
    assert inside(1.1, lambda: chained(base)) == want


def test_anomaly_mode_says_why_it_needs_more(base):
    with (
        rl.autograd.detect_anomaly(),
        pytest.raises(rl.BudgetError, match="In anomaly mode no result takes the block"),
    ):
        inside(1.1, lambda: chained(base))
