"""The count of an optimiser's steps: a tensor for those who read it, a number for the step."""

from __future__ import annotations

import copy
import pickle

import pytest

import rushlight as rl
from rushlight import nn

KINDS = ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop", "Adadelta", "Rprop"]
KINDS += ["ASGD", "Adafactor"]


def stepped(kind: str, steps: int = 2) -> tuple[nn.Parameter, rl.optim.Optimizer]:
    p = nn.Parameter(rl.ones(2, 2))
    optimizer = getattr(rl.optim, kind)([p])
    for _ in range(steps):
        p.grad = rl.ones(2, 2)
        optimizer.step()
    return p, optimizer


@pytest.mark.parametrize("kind", KINDS)
def test_the_count_is_a_tensor(kind: str) -> None:
    p, optimizer = stepped(kind)
    step = optimizer.state[p]["step"]
    assert isinstance(step, rl.Tensor) and step.dtype is rl.float32 and step.item() == 2
    assert optimizer.state[p]["step"] is step and step.device.type == "cpu"
    saved = optimizer.state_dict()["state"][0]
    assert type(saved) is dict and saved["step"].item() == 2
    p.grad = rl.ones(2, 2)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 3
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        (state,) = again.state.values()
        assert state["step"].item() == 3 and isinstance(state.get("step"), rl.Tensor)


def test_a_write_to_the_count_counts() -> None:
    p, optimizer = stepped("Adam", 5)
    q, fresh = stepped("Adam", 0)
    optimizer.state[p]["step"].zero_()
    optimizer.state[p]["exp_avg"].zero_()
    optimizer.state[p]["exp_avg_sq"].zero_()
    with rl.no_grad():
        p.fill_(1)
    for parameter, of in ((p, optimizer), (q, fresh)):
        parameter.grad = rl.ones(2, 2)
        of.step()
    assert p.tolist() == q.tolist() and optimizer.state[p]["step"].item() == 1
    optimizer.state[p]["step"] += 3
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 5


def test_counts_from_a_state_and_from_a_plain_dict() -> None:
    p, optimizer = stepped("AdamW", 3)
    q, other = stepped("AdamW", 0)
    other.load_state_dict(optimizer.state_dict())
    assert other.state[q]["step"].item() == 3
    kept = optimizer.state[p]
    other.state[q] = {name: kept[name].clone() for name in kept}
    with rl.no_grad():
        q.copy_(p)
    for parameter, of in ((p, optimizer), (q, other)):
        parameter.grad = rl.ones(2, 2)
        of.step()
    assert p.tolist() == q.tolist()
