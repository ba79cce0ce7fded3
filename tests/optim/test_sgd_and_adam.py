"""SGD and Adam: PyTorch's trajectories, state dicts, schedules, errors.

EXPECTED and RATES were made by PyTorch 2.13.0 on the CPU:
`PYTHONPATH=. python tests/optim/test_sgd_and_adam.py` prints them where torch is installed, by the
functions that the tests use.
"""

import copy
import math

import pytest

import rushlight
from rushlight import nn

START = (1.0, -2.0, 3.0, 0.5)
STEPS = 10
CASES = (
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.2, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.05, "amsgrad": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3}),
    ("AdamW", {"lr": 0.05, "amsgrad": True, "maximize": True}),
)
EXPECTED = (
    (0.8588811755180359, -2.129301071166992, 2.9538381099700928, 0.6392083764076233),
    (0.9401872158050537, -1.515291452407837, 2.475433349609375, 0.2658769190311432),
    (0.25515055656433105, -2.4445502758026123, 2.1994616985321045, 0.5062479972839355),
    (0.10208547115325928, -2.0039145946502686, 1.5862067937850952, 0.2934795618057251),
    (0.21022139489650726, -1.6611371040344238, 1.6866422891616821, 0.5208374857902527),
    (0.9963454604148865, -2.0013701915740967, 2.9932961463928223, 0.499157577753067),
    (0.8710135817527771, -2.0357019901275635, 2.836639642715454, 0.47633296251296997),
    (1.0223512649536133, -1.7757902145385742, 2.507073402404785, 0.49144095182418823),
    (0.8172714114189148, -2.0685291290283203, 2.664825677871704, 0.45787864923477173),
    (0.9962456226348877, -2.0011699199676514, 2.9929957389831543, 0.4991075098514557),
    (0.694416344165802, -1.7804971933364868, 2.2733187675476074, 0.39330947399139404),
    (1.1771295070648193, -1.921756625175476, 3.3191893100738525, 0.539430558681488),
)
RATES = {
    "lambda": (
        [0.1, 0.09, 0.081, 0.0729, 0.06561, 0.059049],
        [0.5, 0.25, 0.1666667, 0.125, 0.1, 0.0833333],
    ),
    "step": (
        [0.1, 0.1, 0.03, 0.03, 0.009, 0.009],
        [0.5, 0.5, 0.15, 0.15, 0.045, 0.045],
    ),
    "cosine": (
        [0.1, 0.0868198, 0.055, 0.0231802, 0.01, 0.0231802],
        [0.5, 0.4282412, 0.255, 0.0817588, 0.01, 0.0817588],
    ),
}


def gradient(step):
    """Numbers of changing size and sign."""
    return [math.sin(step * k) * k for k in (1.0, 2.0, 0.5, 3.0)]


def trajectory(torch, name, options, device="cpu", steps=STEPS):
    p = torch.tensor(START, device=device, requires_grad=True)
    optimizer = getattr(torch.optim, name)([p], **options)
    for step in range(1, steps + 1):
        p.grad = torch.tensor(gradient(step), device=device)
        optimizer.step()
    return p.detach().tolist()


def rates(torch, name, steps=6):
    """Each group's rate, step by step."""
    p = torch.zeros(1, requires_grad=True)
    q = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.5}], lr=0.1)
    schedulers = torch.optim.lr_scheduler
    schedule = {
        "lambda": lambda: schedulers.LambdaLR(optimizer, [lambda t: 0.9**t, lambda t: 1 / (1 + t)]),
        "step": lambda: schedulers.StepLR(optimizer, step_size=2, gamma=0.3),
        "cosine": lambda: schedulers.CosineAnnealingLR(optimizer, T_max=4, eta_min=0.01),
    }[name]()
    seen = []
    for _ in range(steps):
        seen.append([round(rate, 7) for rate in schedule.get_last_lr()])
        optimizer.step()
        schedule.step()
    return [list(group) for group in zip(*seen, strict=True)]


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{n}-{'-'.join(o)}" for n, o in CASES])
def test_same_trajectory_as_pytorch(case, device):
    name, options = CASES[case]
    assert trajectory(rushlight, name, options, device) == pytest.approx(
        EXPECTED[case], rel=2e-6, abs=2e-6
    )


@pytest.mark.parametrize("name", ["lambda", "step", "cosine"])
def test_same_rates_as_pytorch(name):
    for mine, theirs in zip(rates(rushlight, name), RATES[name], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-7)


def test_schedule_resumes():
    def make():
        optimizer = rushlight.optim.SGD([rushlight.zeros(1, requires_grad=True)], lr=0.1)
        return optimizer, rushlight.optim.lr_scheduler.StepLR(optimizer, 2)

    optimizer, schedule = make()
    for _ in range(3):
        schedule.step()
    other, resumed = make()
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    schedule.step()
    resumed.step()
    assert resumed.get_last_lr() == schedule.get_last_lr() == [pytest.approx(0.001)]


@pytest.mark.parametrize(
    "name, options", [("SGD", {"momentum": 0.9}), ("Adam", {"amsgrad": True}), ("AdamW", {})]
)
def test_state_travels(name, options):
    """Four steps, saved, loaded elsewhere, four more: the bits of eight steps."""

    def run(p, optimizer, first, last):
        for step in range(first, last):
            p.grad = rushlight.tensor(gradient(step))
            optimizer.step()

    p = rushlight.tensor(START, requires_grad=True)
    optimizer = getattr(rushlight.optim, name)([p], **options)
    run(p, optimizer, 1, 5)
    state = copy.deepcopy(optimizer.state_dict())
    q = p.detach().clone().requires_grad_()
    resumed = getattr(rushlight.optim, name)([q], lr=123.0)
    resumed.load_state_dict(state)
    assert resumed.param_groups[0]["lr"] == 1e-3
    run(p, optimizer, 5, 9)
    run(q, resumed, 5, 9)
    assert q.tolist() == p.tolist()


def test_groups_have_their_own_options():
    p, q = (rushlight.ones(2, requires_grad=True) for _ in range(2))
    optimizer = rushlight.optim.SGD([{"params": [p], "lr": 1.0}, {"params": q}], lr=0.5)
    for value in (p, q):
        value.grad = rushlight.ones(2)
    optimizer.step()
    assert (p.tolist(), q.tolist()) == ([0.0, 0.0], [0.5, 0.5])


def test_parameters_without_gradient_stay():
    p, q = (rushlight.ones(2, requires_grad=True) for _ in range(2))
    frozen = nn.Parameter(rushlight.ones(2), requires_grad=False)
    optimizer = rushlight.optim.Adam([p, q, frozen])
    p.grad = rushlight.ones(2)
    optimizer.step()
    assert q.tolist() == frozen.tolist() == [1.0, 1.0]
    assert p.tolist() != [1.0, 1.0]
    assert list(optimizer.state) == [p]


def test_closure_runs_with_gradients_on():
    p = rushlight.ones(1, requires_grad=True)
    optimizer = rushlight.optim.SGD([p], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with rushlight.no_grad():
        loss = optimizer.step(closure)
    assert (loss.item(), p.item()) == (1.0, 0.0)


def test_zero_grad():
    p = rushlight.ones(2, requires_grad=True)
    optimizer = rushlight.optim.SGD([p])
    p.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None


def test_step_bumps_the_version():
    """A value saved for backward is not silently overwritten."""
    p = rushlight.ones(2, requires_grad=True)
    optimizer = rushlight.optim.SGD([p])
    for _ in range(2):  # the second time by the cached call
        loss = (p * p).sum()
        p.grad = rushlight.ones(2)
        optimizer.step()
        with pytest.raises(rushlight.InplaceError):
            loss.backward()


def test_half_precision_updates_in_float():
    p = rushlight.ones(1, dtype=rushlight.float16, requires_grad=True)
    optimizer = rushlight.optim.Adam([p], lr=0.1)
    p.grad = rushlight.full((1,), 1e-4, dtype=rushlight.float16)  # its square vanishes in float16
    optimizer.step()
    assert p.item() == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: rushlight.optim.SGD([p], lr=-1), "lr must be at least 0"),
        (lambda p: rushlight.optim.SGD([p], nesterov=True), "nesterov needs momentum"),
        (lambda p: rushlight.optim.Adam([p], betas=(0.9, 1.0)), "betas must lie in"),
        (lambda p: rushlight.optim.SGD([]), "no parameters"),
        (lambda p: rushlight.optim.SGD([{"params": [p]}, {"params": [p]}]), "given twice"),
        (lambda p: rushlight.optim.SGD([p * 2]), "takes leaves"),
        (lambda p: rushlight.optim.SGD(p), "put the tensor in a list"),
        (lambda p: rushlight.optim.SGD([1.0]), "takes tensors, got float"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(rushlight.ones(2, requires_grad=True))


def test_load_of_another_model():
    one, two = (
        rushlight.optim.SGD([rushlight.ones(2, requires_grad=True) for _ in range(n)])
        for n in (1, 2)
    )
    with pytest.raises(
        rushlight.RushlightError, match=r"groups of \[2\] parameters, this optimiser of \[1\]"
    ):
        one.load_state_dict(two.state_dict())


def test_repr():
    text = repr(rushlight.optim.SGD([rushlight.ones(2, requires_grad=True)], lr=0.5))
    assert text.startswith(
        "SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n    foreach: "
        "None\n    fused: None\n    lr: 0.5\n"
    )


if __name__ == "__main__":
    import torch

    for case in CASES:
        print("   ", tuple(trajectory(torch, *case)), end=",\n")
    for name in ("lambda", "step", "cosine"):
        print(f'    "{name}": (', *rates(torch, name), "),", sep="\n        ")
