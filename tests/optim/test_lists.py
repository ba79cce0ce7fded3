"""Steps over lists of operands: which launches are one, and the same results as one by one."""

from __future__ import annotations

import dataclasses
import math

import pytest

import rushlight as torch
from rushlight import nn, optim
from rushlight.amp import GradScaler
from rushlight.devices.shared.registry import pool_of
from rushlight.ops.family.build import built
from rushlight.ops.optim import whole_steps
from rushlight.tape.record.state import STATE


class FakeLists:
    """Lists on the CPU: an act for each item, and the lists that were asked for."""

    def __init__(self) -> None:
        self.pool = pool_of("cpu")
        self.made: list[tuple[str, int]] = []

    def __call__(self, kernel):
        launch = built(self.pool, kernel)

        def acts(items, params):
            self.made.append((type(kernel).__name__, len(items)))
            return [(launch, *self.numbers(kernel, item), *params) for item in items]

        return acts

    def numbers(self, kernel, item):
        if type(kernel).__name__ == "Map":
            return item
        *addresses, n = item
        return (*addresses, 1, n, 1, 1, 0, 1, n, 1, 0)


@pytest.fixture(autouse=True)
def no_recipes_of_other_tests(monkeypatch) -> None:
    """A list needs a process in which no value can be dropped."""
    monkeypatch.setattr(whole_steps, "no_recipes", lambda: not STATE.get().special)


@pytest.fixture
def lists(monkeypatch) -> FakeLists:
    device, fake = pool_of("cpu").device, FakeLists()
    monkeypatch.setattr(device, "limits", dataclasses.replace(device.limits, lists=fake))
    return fake


def leaves() -> list:
    torch.manual_seed(3)
    made = [torch.randn(n, requires_grad=True) for n in (5, 7, 5, 2)]
    made.append(torch.randn(3, 4).t().requires_grad_())
    for p in made:
        p.grad = torch.randn(p.shape)
    return made


def stepped(make, steps: int = 3) -> list:
    params = leaves()
    optimizer = make(params)
    for _ in range(steps):
        optimizer.step()
    return [p.detach().tolist() for p in params]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_step_over_a_list_has_the_bits_of_single_launches(name: str, monkeypatch):
    def make(params):
        return getattr(optim, name)(params, lr=0.1)

    want = stepped(make)
    device, fake = pool_of("cpu").device, FakeLists()
    monkeypatch.setattr(device, "limits", dataclasses.replace(device.limits, lists=fake))
    assert stepped(make) == want
    assert fake.made == [("Map", 4)] * 3  # the transposed one is no flat map


def test_groups_with_other_numbers_are_other_launches(lists: FakeLists):
    first, second, *_ = leaves()
    optim.SGD([{"params": [first]}, {"params": [second], "lr": 0.5}], lr=0.1).step()
    assert lists.made == [("Map", 1), ("Map", 1)]


def test_a_parameter_that_is_listed_twice_is_changed_twice(lists: FakeLists):
    p = torch.ones(3, requires_grad=True)
    p.grad = torch.ones(3)
    with pytest.warns(UserWarning, match="twice"):
        optimizer = optim.SGD([p, p], lr=0.25)
    optimizer.step()
    assert p.tolist() == [0.5] * 3


def test_a_gradient_of_two_parameters_is_scaled_twice(lists: FakeLists):
    params = leaves()[:4]
    params[2].grad = params[0].grad
    before = [p.grad.tolist() for p in params]
    nn.utils.clip_grads_with_norm_(params, 1.0, torch.tensor(2.0))
    share = float(torch.tensor(1.0) / (torch.tensor(2.0) + 1e-6))
    for p, values, times in zip(params, before, (2, 1, 2, 1), strict=True):
        assert p.grad.tolist() == pytest.approx([v * share**times for v in values])
    assert lists.made == [("Map", 3)]


def test_clipping_is_one_fold_and_one_map(lists: FakeLists):
    params = leaves()[:4]
    want = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in params))
    scaled = [(p.grad * (0.5 / (want + 1e-6))).tolist() for p in params]
    total = nn.utils.clip_grad_norm_(params, 0.5)
    assert lists.made == [("Rowwise", 4), ("Map", 4)]
    assert total.item() == pytest.approx(want, rel=1e-6)
    for p, w in zip(params, scaled, strict=True):
        assert p.grad.tolist() == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize("bad", [None, math.inf, -math.inf, math.nan])
def test_a_scaler_checks_all_gradients_in_one_fold(lists: FakeLists, bad: float | None):
    params = leaves()[:4]
    if bad is not None:
        params[1].grad[2] = bad
    before, grads = [p.tolist() for p in params], [(p.grad * 0.25).tolist() for p in params]
    optimizer, scaler = optim.SGD(params, lr=1.0), GradScaler("cpu", init_scale=4.0)
    scaler.unscale_(optimizer)
    assert lists.made == [("Rowwise", 4), ("Map", 4)]
    assert [p.grad.tolist() for p in params if bad is None] == [g for g in grads if bad is None]
    scaler.step(optimizer)
    scaler.update()
    assert ([p.tolist() for p in params] == before) == (bad is not None)
    assert scaler.get_scale() == (4.0 if bad is None else 2.0)


def test_a_fold_of_nothing_is_its_identity(lists: FakeLists):
    p = torch.zeros(0, requires_grad=True)
    p.grad = torch.zeros(0)
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 0


def test_a_scaler_takes_gradients_without_elements(lists: FakeLists):
    p = torch.zeros(0, requires_grad=True)
    p.grad = torch.zeros(0)
    optimizer, scaler = optim.SGD([p], lr=1.0), GradScaler("cpu", init_scale=4.0)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("other", [torch.float64, torch.float32])
def test_a_norm_of_doubles_is_a_double(lists: FakeLists, other):
    params = [
        torch.zeros(n, dtype=d, requires_grad=True) for n, d in ((3, other), (4, torch.float64))
    ]
    params[0].grad = torch.full((3,), 2.0, dtype=other)
    params[1].grad = torch.full((4,), 1e30 / 3, dtype=torch.float64)
    total = nn.utils.clip_grad_norm_(params, 1.0)
    assert ("Rowwise", 1) in lists.made or ("Rowwise", 2) in lists.made
    assert total.dtype is torch.float64
    assert total.item() == pytest.approx(2e30 / 3, rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_clipping_in_a_budget_has_the_same_bits(lists: FakeLists, dtype):
    def clipped() -> list:
        torch.manual_seed(5)
        model = nn.Linear(40, 30, dtype=dtype)
        (model(torch.randn(8, 40, dtype=dtype)) ** 2).sum().backward()
        params = list(model.parameters())
        total = nn.utils.clip_grad_norm_(params, 0.5)
        return [total.tolist(), *(p.grad.float().tolist() for p in params)]

    want = clipped()
    made, lists.made = lists.made, []
    with torch.memory.budget(torch.memory.allocated() + (1 << 20)):
        assert clipped() == want
    assert made == [("Rowwise", 2), ("Map", 2)]
    assert {kind for kind, _ in lists.made} >= {"Rowwise"}  # each fold by the same kernel


def test_an_estimate_launches_nothing_of_the_device(lists: FakeLists):
    params = leaves()[:4]
    optimizer = optim.AdamW(params)

    def step() -> None:
        nn.utils.clip_grad_norm_(params, 0.5)
        optimizer.step()

    torch.memory.estimate(step)
    assert lists.made == []
