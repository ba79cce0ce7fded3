"""The null device: memory is counted, nothing is computed."""

from __future__ import annotations

import pytest

import rushlight
from rushlight import memory, nn, optim
from rushlight.core.errors import BudgetError


def peak_of_a_step(device: str) -> tuple[int, int]:
    """Bytes before and at the peak of a training step."""
    rushlight.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 300), nn.GELU(), nn.LayerNorm(300), nn.Linear(300, 7)).to(
        device
    )
    optimizer = optim.AdamW(model.parameters())
    x = rushlight.ones(64, 40, device=device)
    target = rushlight.zeros(64, dtype=rushlight.int64, device=device)
    for _ in range(2):
        before = memory.allocated(device)
        memory.reset_peak(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
    start = memory.allocated(device) - before
    return start, memory.peak(device) - before


def test_null_counts_the_bytes_of_a_step() -> None:
    assert peak_of_a_step("null") == peak_of_a_step("cpu")


def test_budget_error_names_op_and_line() -> None:
    x = rushlight.ones(1 << 18)
    memory.empty_cache()
    message = r"exp of float32\[262144\], .*test_null\.py:\d+ in \w+: a budget of"
    with (
        pytest.raises(BudgetError, match=message) as caught,
        memory.budget(memory.reserved() + (1 << 16)),
    ):
        rushlight.exp(x)
    with memory.budget(caught.value.least):
        assert rushlight.exp(x).numel() == 1 << 18


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.to("cpu"),
        lambda x: x.cpu(),
        lambda x: x.numpy(),
        lambda x: x.tolist(),
        lambda x: x[0].item(),
        lambda x: bool(x[0]),
        lambda x: rushlight.zeros(2).copy_(x),
        lambda x: x.nonzero(),
        lambda x: rushlight.nn.Linear(2, 2, device="null").to("cpu"),
    ],
)
def test_elements_that_are_not_there_are_refused(read) -> None:
    with pytest.raises(NotImplementedError, match=r"no elements.*to_empty"):
        read(rushlight.ones(2, device="null"))


def test_a_model_without_memory_gets_some() -> None:
    made = rushlight.nn.Linear(2, 2, device="null").to_empty(device="cpu")
    made.load_state_dict({"weight": rushlight.ones(2, 2), "bias": rushlight.zeros(2)})
    assert made(rushlight.ones(1, 2)).tolist() == [[2.0, 2.0]]
