"""Data that only recipes hold is freed for a running sum of it. See Note [Recipes] 6."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rushlight as rl
from rushlight import memory
from rushlight.tape.memory.foresight import STEADY

SIZE = 256
NBYTES = SIZE * SIZE * 4


def batch(i: int, device: str) -> rl.Tensor:
    return rl.tensor(np.full((SIZE, SIZE), i, np.float32), device=device)


def added_in_place(total: rl.Tensor, x: rl.Tensor) -> rl.Tensor:
    total += x
    return total


def averaged(total: rl.Tensor, x: rl.Tensor) -> rl.Tensor:
    return total * 0.5 + x * 0.5


def row_sums(total: rl.Tensor, x: rl.Tensor) -> rl.Tensor:
    return total + (x * 2.0).sum(0)


@pytest.mark.parametrize("beside", [0, 1 << 20])
@pytest.mark.parametrize("add", [added_in_place, averaged, row_sums])
def test_a_running_sum_does_not_keep_its_data(device, add: Callable[..., rl.Tensor], beside: int):
    """Also where more is in use before the budget than may be used in it."""
    kept = rl.zeros(beside, device=device)

    def run() -> bytes:
        total = rl.zeros(1 if add is row_sums else SIZE, SIZE * (8 if add is row_sums else 1))
        total = total.to(device)
        for i in range(40):
            x = batch(i, device)
            total = add(total, x.view(-1, SIZE * 8) if add is row_sums else x)
        return total.numpy(force=True).tobytes()

    want = run()
    memory.empty_cache()
    with memory.budget(memory.allocated(device) + 8 * NBYTES, device):
        assert run() == want
    del kept


def test_a_followed_step_frees_the_data_of_a_running_sum(device):
    """Its calls keep no recipe of an input while room is made for their results."""

    def run() -> bytes:
        total = rl.zeros(SIZE, SIZE, device=device)
        for i in range(20):
            total = averaged(total, batch(i, device))
        return total.numpy(force=True).tobytes()

    want = run()
    memory.empty_cache()
    limit = memory.allocated(device) + 5 * NBYTES
    for _ in range(STEADY + 2):
        with memory.budget(limit, device):
            assert run() == want


def test_data_of_larger_results_is_kept():
    """It is cheaper to keep a batch than all that was made from it, which can be dropped."""
    memory.empty_cache()
    with memory.budget(memory.allocated() + 8 * NBYTES):
        x = batch(1, "cpu") * 2.0
        results = [x * float(i) for i in range(12)]
        assert [float(r[0, 0]) for r in results] == [2.0 * i for i in range(12)]


def test_data_that_is_in_use_elsewhere_is_no_reason():
    memory.empty_cache()
    data = [batch(i, "cpu") for i in range(4)]
    with memory.budget(memory.allocated() + 3 * NBYTES):
        total = rl.zeros(SIZE, SIZE) * 1.0
        for x in data:
            total = total + x
        others = [batch(9, "cpu") for _ in range(3)]
        assert total._memory.recipe is not None  # droppable, as before
        del others
        assert float(total[0, 0]) == 6.0
