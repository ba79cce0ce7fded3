"""A failed step of an optimiser changes nothing; the same step again gives the usual bits."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import BudgetError, OutOfMemoryError, RushlightError, memory, nn, optim
from tests.memory.failing_allocations import Failing, fail_at_every_allocation
from tests.memory.training_step import bits


@pytest.fixture
def failing(monkeypatch) -> Failing:
    return Failing(monkeypatch)


OPTIMISERS: dict[str, Any] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD with decay": lambda p: optim.SGD(p, 0.1, weight_decay=0.1),
    "SGD with momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "SGD with nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, 0.1),
    "AMSGrad": lambda p: optim.Adam(p, 0.1, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, 0.1),
    "Adamax": lambda p: optim.Adamax(p, 0.1),
    "ASGD": lambda p: optim.ASGD(p, 0.1, t0=1),
    "Rprop": lambda p: optim.Rprop(p, 0.1),
    "RMSprop": lambda p: optim.RMSprop(p, 0.1),
    "RMSprop with all": lambda p: optim.RMSprop(
        p, 0.1, momentum=0.9, centered=True, weight_decay=0.1
    ),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1),
    "Adadelta": lambda p: optim.Adadelta(p, 0.1),
    "NAdam": lambda p: optim.NAdam(p, 0.1),
    "RAdam": lambda p: optim.RAdam(p, 0.1),
    "Adafactor": lambda p: optim.Adafactor(p, 0.1, weight_decay=0.1),
    "two groups": lambda p: optim.Adam(
        [{"params": p[:2], "lr": 0.1}, {"params": p[2:], "weight_decay": 0.1}]
    ),
    "complex": None,
}


def everything(optimiser: Any) -> Any:
    """Bits of parameters and state, and every number."""

    def shown(value: Any) -> Any:
        if isinstance(value, rl.Tensor):
            return bits(value.detach() if not value.is_sparse else value.to_dense())
        if isinstance(value, dict):
            return {k if isinstance(k, str) else numbers[id(k)]: shown(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [shown(v) for v in value]
        return value

    params = [p for group in optimiser.param_groups for p in group["params"]]
    numbers = {id(p): i for i, p in enumerate(params)}
    return shown(params), shown(optimiser.state), shown(optimiser.param_groups)


def parameters(shapes: Any, device: str = "cpu", dtype: Any = None) -> list[Any]:
    rl.manual_seed(7)
    made = [rl.randn(*shape, device=device, dtype=dtype).requires_grad_() for shape in shapes]
    for p in made:
        p.grad = rl.randn(*p.shape, device=device, dtype=dtype)
    return made


def fresh(kind: str, device: str = "cpu", steps: int = 0) -> Any:
    if kind == "complex":
        made = optim.Adam(parameters([(3, 2), (4,)], device, rl.complex64), 0.1)
    else:
        made = OPTIMISERS[kind](parameters([(4, 3), (5,), (2, 3, 2)], device))
    for _ in range(steps):
        made.step()
    return made


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_memory_that_ends_in_a_step(failing, kind, steps):
    count = fail_at_every_allocation(
        failing, lambda: fresh(kind, steps=steps), lambda o: o.step(), everything
    )
    keeps = kind not in ("SGD", "SGD with decay", "Adagrad")
    assert count > 0 or steps or not keeps


@pytest.mark.parametrize("kind", ["Adam", "SGD with momentum", "Adafactor"])
def test_memory_that_ends_in_a_step_on_webgpu(failing, require_device, kind):
    device = require_device("webgpu")
    assert fail_at_every_allocation(
        failing, lambda: fresh(kind, device), lambda o: o.step(), everything, device
    )


def test_memory_that_ends_in_a_step_of_muon(failing):
    def make() -> Any:
        return optim.Muon(parameters([(4, 3), (3, 5)]), 0.1)

    assert fail_at_every_allocation(failing, make, lambda o: o.step(), everything)


SPARSE: dict[str, Any] = {
    "SparseAdam": lambda p: optim.SparseAdam(p, 0.1),
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD with momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1),
}


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("kind", SPARSE)
def test_memory_that_ends_in_a_step_by_rows(failing, kind, steps):
    def make() -> Any:
        rl.manual_seed(3)
        tables = [rl.randn(6, 2).requires_grad_() for _ in range(3)]
        loss = sum(F.embedding(rl.tensor([4, 1, 4]), t, sparse=True).square().sum() for t in tables)
        loss.backward()
        turned = rl.randn(2, 6).t().detach().requires_grad_()  # not contiguous
        turned.grad = tables[0].grad
        tables.append(turned)
        made = SPARSE[kind](tables)
        for _ in range(steps):
            made.step()
        return made

    assert fail_at_every_allocation(failing, make, lambda o: o.step(), everything)


@pytest.mark.parametrize("kind", ["Adam", "SGD with momentum", "NAdam", "ASGD"])
def test_memory_that_ends_in_a_step_on_the_tape(failing, kind):
    def make() -> Any:
        made = fresh(kind)
        first = [p.detach().requires_grad_() for p in made.param_groups[0]["params"]]
        params = [p * 1.0 for p in first]
        for p, q in zip(params, first, strict=True):
            p.retain_grad()
            p.grad = rl.ones_like(q)
        made.param_groups[0]["params"] = params
        made.param_groups[0]["differentiable"] = True
        made.first = first
        return made

    def act(o: Any) -> None:
        o.step()

    def look(o: Any) -> Any:
        return everything(o), [type(p.grad_fn).__name__ for p in o.param_groups[0]["params"]]

    assert fail_at_every_allocation(failing, make, act, look)
    made = make()
    made.step()
    sum(p.sum() for p in made.param_groups[0]["params"]).backward()
    assert all(p.grad is not None for p in made.first)


def test_a_budget_that_is_too_small_for_the_state():
    made, other = fresh("Adam"), fresh("Adam")
    before = everything(made)
    memory.empty_cache()
    with pytest.raises(BudgetError), memory.budget(memory.allocated() + 256):
        made.step()
    assert everything(made) == before
    made.step()
    other.step()
    assert everything(made) == everything(other)


def test_lbfgs_keeps_nothing_of_earlier_steps_in_a_budget():
    """Its history has no recipes: they would keep the gradients that it was made from."""
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = optim.LBFGS(model.parameters(), max_iter=4, history_size=3)
    x = rl.randn(64, 32)
    y = x.sum(1, keepdim=True).sin()

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    before = memory.allocated()
    with memory.budget(1 << 30):
        for _ in range(4):
            optimizer.step(closure)
    assert memory.allocated() == before


def test_a_step_in_a_budget_settles_readers_before_it_counts(monkeypatch):
    """Dropped values made of a parameter are rebuilt before the parameter changes.

    That may fail.
    """
    failing = Failing(monkeypatch)

    def make() -> Any:
        made = fresh("Adam", steps=1)
        last = made.param_groups[0]["params"][-1].detach()
        region = memory.budget(1 << 30)
        region.__enter__()
        made.reader = (last.expand(400, 2, 3, 2) + 1.0).exp()
        pool = made.reader._memory.pool
        while pool.reclaim(pool, 1 << 40):
            pass
        region.__exit__(None, None, None)
        assert made.reader._memory.address is None
        return made

    def look(made: Any) -> Any:
        return everything(made), [p._memory.version for p in made.param_groups[0]["params"]]

    assert fail_at_every_allocation(failing, make, lambda o: o.step(), look)


@pytest.mark.parametrize("kind", ["Adam", "SGD with momentum", "NAdam", "Adafactor"])
def test_a_sparse_gradient_that_is_refused_changes_nothing(kind):
    made = fresh(kind)
    if kind == "SGD with momentum":
        made.param_groups[0]["weight_decay"] = 0.1
    last = made.param_groups[0]["params"][-1]
    last.grad = rl.ones(*last.shape).to_sparse(1)
    before = everything(made)
    with pytest.raises(RushlightError, match="sparse"):
        made.step()
    assert everything(made) == before


def test_a_gradient_on_another_device_changes_nothing(require_device):
    made = fresh("Adam")
    last = made.param_groups[0]["params"][-1]
    last._node.grad = rl.ones(*last.shape, device=require_device("reference"))
    before = everything(made)
    with pytest.raises(RushlightError):
        made.step()
    assert everything(made) == before


def test_hooks_that_fail():
    made, other = fresh("Adam"), fresh("Adam")
    before = everything(made)

    def fail(*_: Any) -> None:
        raise ValueError("a hook")

    handle = made.register_step_pre_hook(fail)
    with pytest.raises(ValueError, match="a hook"):
        made.step()
    assert everything(made) == before
    handle.remove()
    handle = made.register_step_post_hook(fail)
    with pytest.raises(ValueError, match="a hook"):
        made.step()
    other.step()
    assert everything(made) == everything(other)  # the step was made before the hook ran
    handle.remove()
    made.step()
    other.step()
    assert everything(made) == everything(other)


def test_a_closure_that_fails_changes_nothing():
    made = fresh("Adam", steps=1)
    before = everything(made)

    def fail() -> Any:
        raise ValueError("a closure")

    with pytest.raises(ValueError, match="a closure"):
        made.step(fail)
    assert everything(made) == before


def test_an_anomaly_in_a_step_leaves_what_was_there():
    made = fresh("Adam", steps=1)
    made.param_groups[0]["params"][1].detach().fill_(3e38)
    made.param_groups[0]["lr"] = -3e38
    before = everything(made)
    with rl.autograd.detect_anomaly(), pytest.raises(rl.AnomalyError):
        made.step()
    assert everything(made) == before


def test_a_parameter_that_a_group_has_twice():
    """It is updated twice, and its step count says so."""
    with pytest.warns(UserWarning, match="twice"):
        made = optim.Adam([{"params": parameters([(3,)]) * 2}], 0.1)
    other = optim.Adam(parameters([(3,)]), 0.1)
    made.step()
    made.step()
    for _ in range(4):
        other.step()
    assert everything(made)[0][0] == everything(other)[0][0]
    assert made.state[made.param_groups[0]["params"][0]]["step"] == 4


@pytest.mark.parametrize("kind", ["Adam", "SGD with momentum"])
def test_ctrl_c_between_parameters(kind):
    """Whenever Ctrl-C comes, every parameter has made as many steps as are counted."""
    made, other = fresh(kind), fresh(kind)
    heard, over = 0, False
    main = threading.main_thread().ident
    assert main is not None

    def raise_it(*_: Any) -> None:
        if not over:
            raise KeyboardInterrupt

    def press() -> None:
        while not over:
            time.sleep(0.0007)
            signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, raise_it)
    presser = threading.Thread(target=press)
    end = time.monotonic() + 1.0
    while not over:
        try:
            if not presser.ident:
                presser.start()
            while time.monotonic() < end or heard <= 20:
                made.step()
            over = True  # from here on nothing is raised
        except KeyboardInterrupt:
            heard += 1
    presser.join()
    signal.signal(signal.SIGINT, before)
    versions = {p._memory.version for p in made.param_groups[0]["params"]}
    assert len(versions) == 1
    done = versions.pop()
    for _ in range(done - other.param_groups[0]["params"][0]._memory.version):
        other.step()
    assert everything(made) == everything(other)


def test_a_first_step_of_momentum_that_failed_is_the_first_when_repeated(failing):
    made = fresh("SGD with momentum")
    memory.empty_cache()
    failing.start(2)
    with pytest.raises(OutOfMemoryError):
        made.step()
    failing.start(0)
    assert not made.state
    made.step()
    for p, q in zip(
        made.param_groups[0]["params"], fresh("SGD").param_groups[0]["params"], strict=True
    ):
        assert bits(made.state[p]["momentum_buffer"]) == bits(q.grad)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("steps", [0, 1])
def test_memory_that_ends_in_a_step_of_lbfgs(failing, line_search, steps):
    """Parameters, history and the counts of evaluations."""

    def closure(o: Any) -> Any:
        def run() -> Any:
            o.zero_grad()
            loss = sum(((p - 1) ** 4).sum() for p in o.param_groups[0]["params"])
            loss.backward()
            return loss

        return run

    def make() -> Any:
        made = optim.LBFGS(parameters([(4, 3), (5,)]), 0.1, max_iter=3, line_search_fn=line_search)
        for _ in range(steps):
            made.step(closure(made))
        return made

    assert fail_at_every_allocation(failing, make, lambda o: o.step(closure(o)), everything)


def test_a_closure_that_fails_in_lbfgs_moves_nothing():
    made = optim.LBFGS(parameters([(4,)]), 0.1, max_iter=5)
    calls = []

    def closure() -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("third")
        made.zero_grad()
        loss = ((made.param_groups[0]["params"][0] - 1) ** 4).sum()
        loss.backward()
        return loss

    before = everything(made)
    with pytest.raises(ValueError, match="third"):
        made.step(closure)
    assert everything(made) == before


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_buffers": True},
        {"avg_fn": optim.swa_utils.get_ema_avg_fn(0.9)},
        {"multi_avg_fn": optim.swa_utils.get_ema_multi_avg_fn(0.9)},
    ],
)
@pytest.mark.parametrize("updates", [0, 1])
def test_memory_that_ends_in_an_average(failing, options, updates):
    rl.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model(rl.randn(5, 3))

    def make() -> Any:
        made = optim.swa_utils.AveragedModel(model, **options)
        for _ in range(updates):
            made.update_parameters(
                nn.Sequential(nn.Linear(3, 4, bias=True), nn.BatchNorm1d(4), nn.Linear(4, 2)).apply(
                    zero
                )
            )
        return made

    def zero(part: Any) -> None:
        for p in part.parameters(recurse=False):
            p.detach().zero_()

    def look(made: Any) -> Any:
        return {name: bits(value) for name, value in made.state_dict().items()}

    count = fail_at_every_allocation(failing, make, lambda m: m.update_parameters(model), look)
    assert count > 0


def test_statistics_that_are_made_anew_and_fail():
    rl.manual_seed(1)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    model[0].running_mean.fill_(5)
    before = {name: bits(value) for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError):
        optim.swa_utils.update_bn([rl.randn(4, 3), rl.randn(4, 2)], model)
    assert {name: bits(value) for name, value in model.state_dict().items()} == before
    assert model[0].momentum == 0.1
    assert not model.training


@pytest.mark.parametrize(
    "kind", [name for name in OPTIMISERS if name not in ("SGD", "SGD with decay")]
)
@pytest.mark.parametrize("slow", [False, True])
def test_a_state_that_was_asked_for_is_the_one_that_is_filled(kind, slow):
    given, usual = fresh(kind), fresh(kind)
    params = [p for group in given.param_groups for p in group["params"]]
    held = [given.state[p] for p in params]
    for made in (given, usual):
        for _ in range(2):
            with memory.budget("1gb") if slow else rl.no_grad():
                made.step()
    assert all(given.state[p] is state for p, state in zip(params, held, strict=True))
    assert everything(given) == everything(usual)


def test_a_state_that_was_asked_for_stays_empty_after_a_failure(failing):
    made = fresh("Adam")
    held = [made.state[p] for p in made.param_groups[0]["params"]]
    memory.empty_cache()
    failing.start(2)
    with pytest.raises(OutOfMemoryError):
        made.step()
    assert held == [{} for _ in held]
