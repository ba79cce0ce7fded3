"""A training run that is saved and continued in another process gives the bits of one run."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rushlight as rl
from rushlight.optim import lr_scheduler as schedules
from tests.time_limit import WAIT

ROOT = Path(__file__).parent.parent.parent


def train(*args: object) -> None:
    command = [sys.executable, "-m", "tests.io.training", *map(str, args)]
    subprocess.run(command, check=True, timeout=WAIT, cwd=ROOT)


def check_equal(a: Any, b: Any, at: str = "") -> None:
    """Compare nested states; tensors and numbers bit by bit."""
    assert type(a) is type(b), at
    if isinstance(a, rl.Tensor):
        assert a.dtype is b.dtype and a.shape == b.shape and a.device == b.device, at
        a, b = (x.detach().cpu().numpy().tobytes() for x in (a, b))
        assert a == b, at
    elif isinstance(a, dict):
        assert list(a) == list(b), at
        for key in a:
            check_equal(a[key], b[key], f"{at}/{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), at
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            check_equal(one, other, f"{at}/{i}")
    elif isinstance(a, float):
        assert a.hex() == b.hex(), at
    else:
        assert a == b, at


@pytest.mark.parametrize(
    ("device", "workers", "half", "steps"),
    [
        ("cpu", 0, 13, 26),  # inside an epoch, with a gradient that is not complete
        ("cpu", 2, 13, 26),
        ("cpu", 2, 10, 15),  # after the last batch of an epoch
        ("webgpu", 0, 3, 6),
        ("cuda", 0, 3, 6),
    ],
)
def test_training_continues_with_equal_bits(
    device: str,
    workers: int,
    half: int,
    steps: int,
    tmp_path: Path,
    require_device: Callable[[str], str],
) -> None:
    require_device(device)
    given = ["--device", device, "--workers", workers, "--steps", steps]
    train(*given, "--until", steps, "--save", tmp_path / "whole")
    train(*given, "--until", half, "--save", tmp_path / "half")
    train(*given, "--until", steps, "--resume", tmp_path / "half", "--save", tmp_path / "resumed")
    whole, resumed = rl.load(tmp_path / "whole"), rl.load(tmp_path / "resumed")
    assert len(set(whole["losses"])) > len(whole["losses"]) // 2  # it does train
    check_equal(whole, resumed)


def saved_and_loaded(state: Any) -> Any:
    file = io.BytesIO()
    rl.save(state, file)
    file.seek(0)
    return rl.load(file)


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1}),
    ("Adamax", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01}),
    ("Adadelta", {}),
    ("Adafactor", {}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True}),
    ("Rprop", {}),
    ("ASGD", {"t0": 1}),
    ("LBFGS", {"max_iter": 3, "history_size": 4, "line_search_fn": "strong_wolfe"}),
]


class Stepped:
    """Two parameters, an optimiser and a schedule; a step with gradients that depend on both."""

    def __init__(self, dtype: Any, optimizer: str, named: dict[str, Any], schedule: Any) -> None:
        grid = rl.arange(12.0).reshape(4, 3) / 7 - 0.8
        starts = [grid, grid[0].clone()]
        self.params = [start.to(dtype).requires_grad_() for start in starts]
        self.optimizer = getattr(rl.optim, optimizer)(self.params, **named)
        self.schedule = schedule(self.optimizer)
        self.rates: list[float] = []

    def loss(self) -> Any:
        self.optimizer.zero_grad()
        matrix, row = self.params
        loss = ((matrix * row).sum() - 1).square() + matrix.exp().mean()
        loss.backward()
        return loss

    def step(self) -> None:
        loss = self.optimizer.step(self.loss)
        plateau = isinstance(self.schedule, rl.optim.lr_scheduler.ReduceLROnPlateau)
        self.schedule.step(*([loss] if plateau else []))
        self.rates += [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {
            "params": [p.detach() for p in self.params],
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rates": list(self.rates),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with rl.no_grad():
            for p, value in zip(self.params, state["params"], strict=True):
                p.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.rates = state["rates"]


def check_steps_continue(
    dtype: Any, optimizer: str, named: dict[str, Any], schedule: Any, steps: int = 3
) -> None:
    one, other = (Stepped(dtype, optimizer, named, schedule) for _ in range(2))
    for _ in range(steps):
        one.step()
    other.load_state_dict(saved_and_loaded(one.state_dict()))
    for _ in range(steps):
        one.step()
        other.step()
    check_equal(one.state_dict(), other.state_dict())


@pytest.mark.parametrize("dtype", [rl.float32, rl.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("optimizer", "named"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
def test_every_optimiser_continues(optimizer: str, named: dict[str, Any], dtype: Any) -> None:
    check_steps_continue(dtype, optimizer, named, lambda o: schedules.ExponentialLR(o, 0.9))


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda o: schedules.LambdaLR(o, lambda epoch: 0.9**epoch),
    "multiplicative": lambda o: schedules.MultiplicativeLR(o, lambda epoch: 0.97),
    "steps": lambda o: schedules.MultiStepLR(o, [2, 4, 4]),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 7),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 2, 2),
    "linear": lambda o: schedules.LinearLR(o, total_iters=5),
    "polynomial": lambda o: schedules.PolynomialLR(o, 9),
    "cyclic": lambda o: schedules.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.9),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, 20, three_phase=True),
    "plateau": lambda o: schedules.ReduceLROnPlateau(o, patience=0, threshold=0.5),
    "sequence": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o), schedules.CosineAnnealingLR(o, 5)], [4]
    ),
    "chain": lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, total_iters=4), schedules.ExponentialLR(o, 0.9)]
    ),
    "average": lambda o: rl.optim.swa_utils.SWALR(o, 0.05, anneal_epochs=5),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_continues(schedule: str) -> None:
    named = {"lr": 0.1, "momentum": 0.9}
    check_steps_continue(rl.float32, "SGD", named, SCHEDULES[schedule], 4)
    rate = {"lr": rl.tensor(0.1), "betas": (0.9, 0.99)}
    if schedule != "plateau":
        check_steps_continue(rl.float32, "AdamW", rate, SCHEDULES[schedule], 4)
