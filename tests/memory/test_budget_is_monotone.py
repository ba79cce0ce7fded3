"""A step that fits into a limit fits into every larger one, at every repetition."""

from __future__ import annotations

import gc
from collections.abc import Callable

import rushlight as rl
from rushlight import memory, nn


class Perceptron:
    """Layers whose derivatives are several kernels: by their program, or by the rule at a limit."""

    def __init__(self) -> None:
        rl.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(48, 48), nn.GELU()) for _ in range(6)]
        self.model = nn.Sequential(*layers)
        self.optimizer = rl.optim.AdamW(self.model.parameters())
        self.x = rl.randn(192, 48)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.x).square().mean().backward()
        self.optimizer.step()


def fits(step: Callable[[], None], limit: int, times: int) -> bool:
    try:
        for _ in range(times):
            with memory.budget(limit):
                step()
    except rl.BudgetError:
        return False
    return True


def test_larger_limits_fit_too():
    net = Perceptron()
    for _ in range(2):
        net.step()
    gc.collect()
    start = memory.allocated()
    memory.reset_peak()
    net.step()
    need = memory.peak() - start
    found = [fits(net.step, start + need * share // 160, times=3) for share in range(24, 64)]
    assert found == sorted(found)
    assert not found[0] and found[-1]
