"""A step that fits into a limit fits into every larger one, at every repetition."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

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


class Recurrent:
    """Layers that save more where a limit leaves room for it, and need less scratch then."""

    def __init__(self, kind: type[nn.Module], layers: int, *sizes: int) -> None:
        rl.manual_seed(0)
        steps, batch, inputs, width = sizes
        self.model = nn.ModuleList([kind(inputs, width, layers), nn.Linear(width, 100)])
        self.x = rl.randn(steps, batch, inputs)

    def step(self) -> None:
        self.model.zero_grad()
        recurrent, head = self.model
        head(recurrent(self.x)[0]).softmax(-1).square().sum().backward()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "sizes", [(2, 8, 64, 32, 64), (1, 24, 8, 32, 64), (3, 5, 100, 16, 48), (2, 40, 4, 8, 100)]
)
def test_recurrent_layers_fit_into_larger_limits_too(kind, sizes):
    """From 1.1 of the least limit on (docs/memory.md). Sizes: layers, steps, batch, widths."""
    net = Recurrent(kind, *sizes)
    for _ in range(2):
        net.step()
    net.model.zero_grad()
    gc.collect()
    memory.empty_cache()
    start = memory.allocated()
    memory.reset_peak()
    net.step()
    need = memory.peak() - start
    found = []
    for share in range(40, 101, 3):
        net.model.zero_grad()
        memory.empty_cache()
        found.append(fits(net.step, start + need * share // 100, times=3))
    least = 40 + 3 * found.index(True)
    refused = [share for share, fit in zip(range(40, 101, 3), found, strict=True) if not fit]
    assert all(share < 1.1 * least for share in refused), (least, refused)
