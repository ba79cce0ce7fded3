"""`shadow`: wrong results are found on every device, and right ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.autograd import detect_anomaly
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.anomaly.arming import Armed
from rushlight.tape.record.op import Plan, Plans
from rushlight.tape.shadow.mode import Shadowed

DEVICES = ("cpu", "reference", "webgpu", "cuda")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, require_device: Callable[[str], str]) -> str:
    return require_device(request.param)


def plan_of(op: str, shape: tuple[int, ...], device: str) -> Plan:
    """The newest plan of such calls: judges have older ones."""
    for reference in reversed(list(Plans.every.values())):
        plan = reference()
        if plan is not None and (plan.op.name, plan.out.shape) == (op, shape):
            assert plan.pool.device.name == device
            return plan
    raise AssertionError(f"no call of {op}")


def break_kernel(plan: Plan, at: int, change: Callable[[Any], Any]) -> None:
    """From here on the plan's kernel changes an element of its float32 result."""
    launch, device = plan.plain, plan.pool.device
    assert launch is not None

    def broken(*numbers: Any) -> None:
        launch(*numbers)
        value = np.zeros(1, "f4")
        place = numbers[0] + 4 * at
        device.copy_out(place, memoryview(value).cast("B"))
        device.copy_in(place, memoryview(change(value)).cast("B"))

    plan.replace_launch(broken, plan.tail)


def twice(value: Any) -> Any:
    return value * np.float32(2)


def next_after(value: Any) -> Any:
    return np.nextafter(value, np.float32(np.inf))


# ---- wrong results ----


def test_a_broken_kernel_is_found(device: str) -> None:
    x = rl.full((7, 13), 3.0, device=device)
    assert (x * 5)[2, 1].item() == 15
    break_kernel(plan_of("mul", (7, 13), device), 2 * 13 + 1, twice)
    assert (x * 5)[2, 1].item() == 30  # nobody looks
    said = r"mul: a wrong result.*at \[2, 1\]: 30"
    with pytest.raises(rl.WrongResult, match=said) as caught, rl.shadow(1.0):
        x * 5
    error, adapter = caught.value, pool_of(device).device.limits.description
    assert (error.op, error.device, error.shapes) == ("mul", device, ((7, 13),))
    assert adapter in str(error) and "test_shadow.py" in error.place


def test_a_product_that_lost_bits_is_found_and_rounding_is_not(device: str) -> None:
    rl.manual_seed(1)
    a, b = rl.rand(17, 50).to(device), rl.rand(50, 19).to(device)
    a @ b
    plan = plan_of("matmul", (17, 19), device)
    right, tail = plan.plain, plan.tail
    assert right is not None
    break_kernel(plan, 40, next_after)
    with rl.shadow(1.0) as report:
        a @ b
    assert report.lines["matmul", ""].checked == 1
    plan.replace_launch(right, tail)
    break_kernel(plan, 40, lambda value: value * np.float32(1.001))
    with pytest.raises(rl.WrongResult, match="matmul"), rl.shadow(1.0):
        a @ b


def test_a_wrong_gradient_names_the_derivative(device: str) -> None:
    x = rl.rand(5, 11).to(device).requires_grad_()
    x.sigmoid().sum().backward()
    break_kernel(plan_of("sigmoid_grad", (5, 11), device), 0, twice)
    with pytest.raises(rl.WrongResult, match="sigmoid_grad"), rl.shadow(1.0):
        x.sigmoid().sum().backward()


# ---- right results ----


def train(device: str) -> list[Any]:
    rl.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(4 * 36, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 5)),
    ).to(device)
    optimizer = rl.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = rl.randn(8, 3, 6, 6).to(device), rl.randint(0, 5, (8,)).to(device)
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [p.detach().cpu().numpy() for p in model.parameters()]


def test_a_training_step_is_right_and_keeps_its_bits(device: str) -> None:
    plain = train(device)
    with rl.shadow(1.0) as report:
        shadowed = train(device)
    assert all(np.array_equal(a, b) for a, b in zip(plain, shadowed, strict=True))
    assert report.checked > 60 and max(line.share for line in report.lines.values()) < 0.5
    assert ("relu", "2") in report.lines and "relu in 2" in str(report)


def test_calls_of_many_kinds(device: str) -> None:
    rl.manual_seed(2)
    z = rl.randn(1000).to(device)
    with rl.shadow(1.0) as report:
        z.sort(), z.cumsum(0), z.argmax(), z.topk(5), (z > 0).sum(), z.var(), rl.randn(5).to(device)
        rl.softmax(z.view(10, 100), -1), z.half() * 2, z.bfloat16().sum(), z - z.mean()
        z * 1e30 * 1e10, z.log(), z[::3].flip(0), z.view(10, 100).t().contiguous()
        z[3:7] = 0
        z.clamp_(0, 1), z[z > 0.5], rl.where(z > 0, z, -z).sqrt(), z.norm(), z.floor()
        rl.einsum("ij,kj->ik", z.view(10, 100), z.view(10, 100))
        c = rl.complex(z[:500], z[500:])
        c.abs(), c * c
    assert report.checked > 30


# ---- the switch ----


def test_the_same_launches_are_compared_in_every_run() -> None:
    x = rl.rand(100)

    def some() -> Any:
        with rl.shadow(0.1) as report:
            for _ in range(100):
                x + 1, x.sin(), x.sum()
        return report

    some()
    first, second = some(), some()
    assert first.launches == 300 and 25 <= first.checked <= 35
    assert str(first) == str(second)
    assert {line.op for line in first.lines.values()} == {"add", "sin", "sum"}


def shadowed_plans() -> int:
    plans = [reference() for reference in list(Plans.every.values())]
    return sum(isinstance(plan.launch, Shadowed) for plan in plans if plan is not None)


def test_nothing_is_left_outside_a_block() -> None:
    x = rl.rand(3, 3)
    with rl.shadow(1.0) as outer:
        x.exp()
        with rl.shadow(0.0) as inner:
            x.exp()
        x.exp()
        assert shadowed_plans()
    assert not shadowed_plans() and Armed.shadow is None
    x.exp()
    assert (outer.launches, outer.checked) == (2, 2)
    assert (inner.launches, inner.checked) == (1, 0)


def test_inside_and_around_anomaly_checks() -> None:
    x = rl.rand(4, 9)
    with rl.shadow(1.0) as report:
        with detect_anomaly():
            x.exp()
        x.exp()
    with detect_anomaly(), rl.shadow(1.0) as within:
        x.exp()
    assert not shadowed_plans()
    assert (report.checked, within.checked) == (2, 1)


def test_a_function_can_be_decorated_and_a_share_is_a_share() -> None:
    @rl.shadow(fraction=1.0)
    def work(x: Any) -> Any:
        assert shadowed_plans()
        return x + 1

    assert work(rl.zeros(2)).tolist() == [1, 1]
    with pytest.raises(ValueError, match="from 0 to 1"):
        rl.shadow(2)
