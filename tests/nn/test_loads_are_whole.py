"""A state that does not fit, or without memory for it, changes nothing; nor does a failed schedule.

The same holds for a scaler.
"""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as rl
from rushlight import RushlightError, nn, optim
from rushlight.amp import GradScaler
from rushlight.optim import lr_scheduler
from tests.memory.failing_allocations import Failing, fail_at_every_allocation
from tests.memory.training_step import bits
from tests.optim.test_steps_are_whole import everything, fresh


@pytest.fixture
def failing(monkeypatch) -> Failing:
    return Failing(monkeypatch)


# ---- modules ----


class Extra(nn.Linear):
    """Has a state beside its tensors."""

    note: Any = "first"

    def get_extra_state(self) -> Any:
        return self.note

    def set_extra_state(self, state: Any) -> None:
        if state == "bad":
            raise ValueError("an extra state")
        self.note = state


class OwnWay(nn.Linear):
    """Loads for itself."""

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state, prefix, *rest)


def model(kind: type = nn.Linear) -> Any:
    rl.manual_seed(1)
    made = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), kind(4, 2))
    made[1].running_mean.fill_(2)
    return made


def seen(module: Any) -> Any:
    own = [(id(p), p.requires_grad) for p in module.parameters()]
    return (
        {n: bits(v) for n, v in module.state_dict().items() if isinstance(v, rl.Tensor)},
        own,
        _notes(module),
    )


def _notes(module: Any) -> list[Any]:
    return [part.note for part in module.modules() if isinstance(part, Extra)]


def good(kind: type = nn.Linear, dtype: Any = rl.float64) -> dict[str, Any]:
    """Another type than the module has: it is cast on the way."""
    state = model(kind).state_dict()
    return {
        n: v.to(dtype) + 1 if isinstance(v, rl.Tensor) and v.dtype.kind == "f" else v
        for n, v in state.items()
    }


def missing(state: dict[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in state.items() if n != "2.bias"}


BAD: dict[str, Any] = {
    "missing": missing,
    "unexpected": lambda state: {**state, "3.weight": rl.ones(2)},
    "shape": lambda state: {**state, "2.bias": rl.ones(3)},
    "number": lambda state: {**state, "2.bias": 5},
    "complex": lambda state: {**state, "2.weight": rl.ones(3, 3, dtype=rl.complex64)},
}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("kind", [nn.Linear, OwnWay, Extra])
@pytest.mark.parametrize("bad", BAD)
def test_a_state_that_does_not_fit_changes_nothing(bad, kind, assign):
    made = model(kind)
    before = seen(made)
    with pytest.raises(RushlightError, match="does not fit"):
        made.load_state_dict(BAD[bad](good(kind)), assign=assign)
    assert seen(made) == before


@pytest.mark.parametrize("kind", [nn.Linear, OwnWay, Extra])
def test_memory_that_ends_in_a_load(failing, kind):
    state = good(kind)
    fail_at_every_allocation(
        failing, lambda: model(kind), lambda m: m.load_state_dict(state), lambda m: seen(m)[0]
    )


def test_memory_that_ends_in_a_load_from_another_device(failing, require_device):
    device = require_device("reference")
    state = {n: v.to(device) for n, v in good(dtype=rl.float32).items()}
    assert fail_at_every_allocation(
        failing, model, lambda m: m.load_state_dict(state), lambda m: seen(m)[0]
    )


def test_extra_state_that_is_refused_changes_nothing():
    made = nn.Sequential(Extra(2, 2), Extra(2, 2))
    before = seen(made)
    state = {
        **made.state_dict(),
        "0.weight": rl.zeros(2, 2),
        "0._extra_state": "new",
        "1._extra_state": "bad",
    }
    with pytest.raises(ValueError, match="an extra state"):
        made.load_state_dict(state)
    assert seen(made) == before
    made.load_state_dict({**state, "1._extra_state": "good"})
    assert _notes(made) == ["new", "good"]
    assert made[0].weight.sum() == 0


@pytest.mark.parametrize("mends", [False, True])
def test_a_hook_after_loading_that_may_forgive_missing_keys(mends):
    made = model()
    before = seen(made)

    def forgive(_: Any, keys: Any) -> None:
        if mends:
            keys.missing_keys.clear()

    made.register_load_state_dict_post_hook(forgive)
    if mends:
        made.load_state_dict(missing(good()))
        assert seen(made)[0] != before[0]
        return
    with pytest.raises(RushlightError, match="missing"):
        made.load_state_dict(missing(good()))
    assert seen(made) == before


# ---- optimisers ----


@pytest.mark.parametrize(
    "break_it",
    [
        lambda state: state["param_groups"].pop(),
        lambda state: state["param_groups"][0].pop("params"),
        lambda state: state["param_groups"][0]["params"].pop(),
        lambda state: state.pop("state"),
        lambda state: state["state"].update({2: 5}),
        lambda state: state["state"][2].update(step=rl.ones(3)),
        lambda state: state.update(param_groups=5),
    ],
)
def test_a_broken_state_of_an_optimiser_changes_nothing(break_it):
    made, state = fresh("Adam"), fresh("Adam", steps=2).state_dict()
    state["param_groups"][0]["lr"] = 7.0
    break_it(state)
    before = everything(made)
    with pytest.raises((RushlightError, KeyError, TypeError, AttributeError, RuntimeError)):
        made.load_state_dict(state)
    assert everything(made) == before


def test_memory_that_ends_in_a_load_of_an_optimiser(failing):
    state = fresh("Adam", steps=2).state_dict()
    state["param_groups"][0]["lr"] = 7.0
    made = fail_at_every_allocation(
        failing, lambda: fresh("Adam"), lambda o: o.load_state_dict(state), everything
    )
    assert made >= 6


# ---- schedules ----


class Breaks:
    """A function of the epoch that fails at one, and counts its calls."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0

    def __call__(self, epoch: int) -> float:
        self.calls += 1
        if epoch == self.at:
            raise ValueError("an epoch")
        return 0.9**epoch


def two_groups() -> Any:
    a, b = (rl.ones(2, requires_grad=True) for _ in range(2))
    return optim.SGD([{"params": [a], "lr": 1.0}, {"params": [b], "lr": 2.0}], momentum=0.9)


class Custom(lr_scheduler.LRScheduler):
    """A subclass that changes things of its own before it fails."""

    def __init__(self, optimizer: Any) -> None:
        self.extra = 0
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        self.extra += 1
        self.optimizer.param_groups[0]["momentum"] = 0.5
        if self.last_epoch == 2:
            raise ValueError("an epoch")
        return [0.1, 0.2]


SCHEDULES: dict[str, Any] = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, [lambda e: 0.5**e, Breaks(2)]),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, [lambda e: 0.5, Breaks(2)]),
    "cyclic": lambda o: lr_scheduler.CyclicLR(
        o, 0.1, 1.0, 4, scale_fn=Breaks(2), scale_mode="iterations"
    ),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(o, 0.5), lr_scheduler.LambdaLR(o, Breaks(2))]
    ),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.5), lr_scheduler.LambdaLR(o, Breaks(1))], [1]
    ),
    "custom": Custom,
}


def all_of(schedule: Any) -> Any:
    def table(thing: Any) -> Any:
        own = {
            n: v
            for n, v in thing.__dict__.items()
            if n not in ("optimizer", "_schedulers", "lr_lambdas")
        }
        functions = [getattr(f, "calls", None) for f in thing.__dict__.get("lr_lambdas", ())]
        return repr(own), functions, [table(part) for part in thing.__dict__.get("_schedulers", ())]

    groups = [
        {n: v for n, v in g.items() if n != "params"} for g in schedule.optimizer.param_groups
    ]
    return table(schedule), repr(groups)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_schedule_whose_function_fails_is_as_before(kind):
    schedule = SCHEDULES[kind](two_groups())
    schedule.step()
    before = all_of(schedule)
    for _ in range(2):
        with pytest.raises(ValueError, match="an epoch"):
            schedule.step()
        assert all_of(schedule) == before


def test_one_cycle_that_is_over_is_as_before():
    schedule = lr_scheduler.OneCycleLR(two_groups(), 1.0, total_steps=3)
    for _ in range(3):
        schedule.step()
    before = all_of(schedule)
    with pytest.raises(ValueError, match="total_steps"):
        schedule.step()
    assert all_of(schedule) == before


def test_a_plateau_that_cannot_be_measured_is_as_before():
    schedule = lr_scheduler.ReduceLROnPlateau(two_groups(), patience=0)
    schedule.step(1.0)
    schedule.min_lrs = [0, "low"]
    before = all_of(schedule)
    with pytest.raises(TypeError):
        schedule.step(2.0)
    assert all_of(schedule) == before


@pytest.mark.parametrize("kind", ["chained", "sequential"])
def test_a_state_that_does_not_fit_a_schedule_changes_nothing(kind):
    schedule = SCHEDULES[kind](two_groups())
    state = schedule.state_dict()
    state["_schedulers"] = [{**state["_schedulers"][0], "last_epoch": 77}]
    state["_last_lr"] = [5.0, 5.0]
    before = all_of(schedule)
    with pytest.raises(ValueError):
        schedule.load_state_dict(state)
    assert all_of(schedule) == before


def test_a_state_of_functions_that_does_not_fit_changes_nothing():
    schedule = lr_scheduler.LambdaLR(two_groups(), [Breaks(9), Breaks(9)])
    state = {**schedule.state_dict(), "lr_lambdas": [{"calls": 5}, 5], "last_epoch": 4}
    before = all_of(schedule)
    with pytest.raises(TypeError):
        schedule.load_state_dict(state)
    assert all_of(schedule) == before


# ---- scalers ----


def scaled(of: Any) -> Any:
    scaler, optimiser = of
    return (
        scaler.state_dict(),
        ([found.item() for found in scaler._found.values()], len(scaler._stepped)),
        everything(optimiser),
        bits(*[p.grad for g in optimiser.param_groups for p in g["params"]]),
    )


@pytest.mark.parametrize("scale", [1024.0, 0.25])
def test_memory_that_ends_when_gradients_are_unscaled(failing, scale):
    def make() -> Any:
        return GradScaler("cpu", scale), fresh("Adam", steps=1)

    assert fail_at_every_allocation(failing, make, lambda pair: pair[0].unscale_(pair[1]), scaled)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("scale", [1024.0, 0.25])
def test_gradients_that_are_not_finite_are_found(bad, scale):
    scaler, optimiser = GradScaler("cpu", scale), fresh("Adam")
    optimiser.param_groups[0]["params"][1].grad[2] = bad
    before = everything(optimiser)[0]
    scaler.step(optimiser)
    scaler.update()
    assert everything(optimiser)[0] == before
    for state in optimiser.state.values():  # it was begun, and has seen no step
        assert [v.abs().max().item() for v in state.values()] == [0.0] * 3
    assert scaler.get_scale() == scale / 2


def test_gradients_that_grow_beyond_all_numbers_are_found():
    scaler, optimiser = GradScaler("cpu", 1e-3), fresh("Adam")
    optimiser.param_groups[0]["params"][1].grad[2] = 3e38
    scaler.unscale_(optimiser)
    assert [found.item() for found in scaler._found.values()] == [1.0]


def test_a_step_that_fails_can_be_made_again(failing):
    """The gradients are unscaled once, whichever call of the two does it."""
    scaler, optimiser = GradScaler("cpu", 1024.0), fresh("Adam")
    other_scaler, other = GradScaler("cpu", 1024.0), fresh("Adam")
    before = everything(optimiser)

    def fail(*_: Any) -> None:
        raise ValueError("a hook")

    handle = optimiser.register_step_pre_hook(fail)
    with pytest.raises(ValueError, match="a hook"):
        scaler.step(optimiser)
    assert everything(optimiser) == before
    handle.remove()
    scaler.step(optimiser)
    scaler.update()
    other_scaler.step(other)
    other_scaler.update()
    assert everything(optimiser) == everything(other)
    assert scaled((scaler, optimiser)) == scaled((other_scaler, other))


@pytest.mark.parametrize(
    "broken", [{"scale": "x"}, {"growth_interval": None}, {"backoff_factor": []}]
)
def test_a_broken_state_of_a_scaler_changes_nothing(broken):
    scaler = GradScaler("cpu")
    before = dict(scaler.__dict__)
    with pytest.raises((TypeError, ValueError)):
        scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0, **broken})
    with pytest.raises(KeyError):
        scaler.load_state_dict({"scale": 2.0, "_growth_tracker": 1})
    with pytest.raises((TypeError, ValueError)):
        scaler.update("x")
    assert scaler.__dict__ == before
