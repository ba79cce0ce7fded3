"""In-place writes inside a budget: every version can be dropped and rebuilt. See Note [Recipes]."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight import InplaceError, memory
from rushlight.tape.memory.recipe import MOST_WRITES
from tests.memory.test_budget import drop_everything

SIZE = 64


def written(device: str) -> tuple[rl.Tensor, rl.Tensor]:
    """A tensor written to in whole and in part, and a view of it."""
    rl.manual_seed(4)
    x = rl.randn(SIZE, SIZE, device=device)
    y = x * 2.0
    view = y.t()[1:]
    y[:, ::2] *= 0.5
    y.add_(1.0)
    y[3:7].t()[1:] += x[3:7].t()[1:]
    y[5] = x[0]
    view.mul_(3.0)
    return y, view


def test_every_write_has_a_recipe(device):
    want = [t.numpy(force=True).copy() for t in written(device)]
    with memory.budget(1 << 30, device):
        made = written(device)
        for t, array in zip(made, want, strict=True):
            drop_everything(device)
            assert t._memory.recipe is not None and t._memory.present_address is None
            np.testing.assert_array_equal(t.numpy(force=True), array)


def test_what_was_made_of_an_old_version_is_rebuilt_from_it(device):
    x = rl.randn(SIZE, SIZE, device=device)
    with memory.budget(1 << 30, device):
        y = x * 2.0
        y[1:3] = 4.0
        before = y * 3.0
        want = before.numpy(force=True).copy()
        y[:, 1] = 7.0
        y.mul_(2.0)
        last = y.numpy(force=True).copy()
        drop_everything(device)
        np.testing.assert_array_equal(before.numpy(force=True), want)
        drop_everything(device)
        np.testing.assert_array_equal(y.numpy(force=True), last)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_save_that_was_written_to_is_refused(dropped):
    x = rl.randn(SIZE, SIZE, requires_grad=True)
    with memory.budget(1 << 30):
        y = x * 2.0
        loss = y.sin().sum()
        y[0] = 0.0
        if dropped:
            drop_everything()
        with pytest.raises(InplaceError):
            loss.backward()


def test_a_row_of_writes_ends():
    """A buffer that is written to again and again does not keep its whole past."""
    x = rl.ones(SIZE, SIZE)
    with memory.budget(1 << 30):
        y, kept = x * 1.0, []
        for i in range(2 * MOST_WRITES):
            y[i % SIZE].add_(1.0)
            kept.append(y._memory.recipe is not None)
        assert kept == [True] * MOST_WRITES + [False] * MOST_WRITES
        drop_everything()
        assert y.sum().item() == SIZE * SIZE + 2 * MOST_WRITES * SIZE


def test_a_row_of_writes_is_applied_to_one_block():
    x = rl.ones(SIZE, SIZE)
    with memory.budget(1 << 30):
        y = x * 1.0
        for i in range(20):
            y[i].add_(1.0)
        drop_everything()
        memory.empty_cache()
        live = memory.allocated()
        memory.reset_peak()
        before = memory.recomputed()["calls"]
        assert y[19, 0].item() == 2.0
        # The writes go to the product's own block: nothing else needs the product.
        assert memory.peak() - live <= y.nbytes + 4096
        assert memory.recomputed()["calls"] - before == 21


@pytest.mark.parametrize("first", [0, 1])
def test_an_old_version_that_a_replay_needs_again_is_copied(first):
    def bits(drop: bool) -> list[bytes]:
        x = rl.linspace(-1, 1, SIZE * SIZE).view(SIZE, SIZE).requires_grad_()
        y = x * 1.5
        old = y.detach() * 2.0
        y[:, ::2] *= 0.5
        y[3].add_(1.0)
        values = [old, y.tanh()]
        (values[first] * values[1 - first] * old).sum().backward(retain_graph=True)
        loss = (values[first] * values[1 - first]).sum()
        if drop:
            drop_everything()
        loss.backward()
        return [t.detach().numpy().tobytes() for t in (x.grad, *values, y)]

    want = bits(False)
    with memory.budget(1 << 30):
        assert bits(True) == want


@pytest.mark.parametrize("how", ["resize_", "set_"])
def test_bytes_beyond_the_old_shape_are_kept(how):
    """A block is larger than its tensor: a new handle may write to the rest of it."""
    with memory.budget(1 << 40):
        x = rl.zeros(1025) * 1.0
        if how == "resize_":
            wide = x.detach().resize_(1040)
        else:
            wide = rl.empty(0).set_(x.untyped_storage(), 0, (1040,), (1,))
        wide[1025:] = 7.0
        x.copy_(rl.ones(1025))
        drop_everything()
        others = [rl.full((1040,), 9.0) for _ in range(4)]
        del others  # their blocks come next
        assert wide.tolist() == [1.0] * 1025 + [7.0] * 15
