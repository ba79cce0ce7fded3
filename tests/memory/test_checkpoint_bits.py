"""`checkpoint(..., determinism_check="bits")`: every replay is compared with a digest."""

from __future__ import annotations

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import ExactnessError, memory, nn
from rushlight.utils.checkpoint import checkpoint
from tests.memory.faulty_op import WAYS, Faulty


class Block(nn.Module):
    def __init__(self, op) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.op = op

    def forward(self, x):
        h = F.dropout(self.inner(x), 0.3).tanh()
        return (self.op(h).exp() * x).sum()


def model(op, device: str) -> Block:
    rl.manual_seed(1)
    return Block(op).to(device)


def gradients(block: Block, device: str, **named) -> list[bytes]:
    rl.manual_seed(2)
    x = rl.rand(8, 16, device=device, requires_grad=True)
    block.zero_grad()
    checkpoint(block, x, **named).backward()
    return [t.grad.numpy(force=True).tobytes() for t in (x, *block.parameters())]


def test_right_kernels_pass_with_the_same_bits(device):
    block = model(Faulty(), device)
    before = memory.recomputed()["calls"]
    assert gradients(block, device, determinism_check="bits") == gradients(block, device)
    assert memory.recomputed()["calls"] > before


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_kernel_is_named(device, way):
    block = model(Faulty(way), device)
    with pytest.raises(ExactnessError, match=r"faulty of float32\[8, 16\], called at") as caught:
        gradients(block, device, determinism_check="bits")
    error = caught.value
    assert error.op == "faulty" and error.module == "Block"
    assert "faulty_op.py" in error.place and error.shapes == ((8, 16),)
    assert all(p.grad is None for p in block.parameters())  # a failed pass adds nothing


@pytest.mark.parametrize("check", ["default", "none"])
def test_other_checks_compare_no_bits(check):
    op = Faulty(WAYS[0])
    gradients(model(op, "cpu"), "cpu", determinism_check=check)
    assert op.launches == 2


def test_a_wrong_kernel_in_a_checkpoint_inside_is_named():
    block = model(Faulty(WAYS[1]), "cpu")

    def outer(x):
        return checkpoint(block, x) * 2.0

    x = rl.rand(8, 16, requires_grad=True)
    with pytest.raises(ExactnessError, match="faulty"):
        checkpoint(outer, x, determinism_check="bits").backward()


def test_a_replay_that_a_budget_makes_is_compared():
    op = Faulty(WAYS[1])
    x = rl.rand(1 << 14, requires_grad=True)
    with memory.budget(5 * x.nbytes), pytest.raises(ExactnessError, match="faulty"):

        def chain(x):
            h = op(x)
            for _ in range(6):
                h = h.tanh()
            return h.sum()

        checkpoint(chain, x, determinism_check="bits").backward()


def test_bits_inside_in_place_writes_and_views():
    w = rl.rand(16, 16, requires_grad=True)

    def block(x):
        h = (x @ w).relu_() * 2.0
        h[:, :4] = 0.5
        h = (h.t() @ w[:, 2:10]).mul_(2.0)
        return h.exp_().sum()

    x = rl.rand(16, 16, requires_grad=True)
    block(x).backward()
    want = x.grad.numpy().tobytes()
    x.grad = None
    checkpoint(block, x, determinism_check="bits").backward()
    assert x.grad.numpy().tobytes() == want


def test_an_unknown_check_is_refused():
    with pytest.raises(ValueError, match="determinism_check is one of 'default', 'none', 'bits'"):
        checkpoint(rl.exp, rl.ones(2), determinism_check="hash")
