"""Random numbers: a function of seed and position, the same on every device, in every order, after every resume."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.utils.checkpoint import checkpoint


def on(device: str, draw) -> np.ndarray:
    rl.manual_seed(123)
    draw("cpu")  # not at the beginning of the stream
    return draw(device).numpy(force=True)


@pytest.mark.parametrize("shape", [(), (1,), (7, 5), (1000,), (0,)])
def test_rand_is_the_same_everywhere(device, shape):
    def draw(where):
        return rl.rand(shape, device=where)

    np.testing.assert_array_equal(on(device, draw), on("reference", draw))


@pytest.mark.parametrize("bounds", [(0, 2), (-5, 5), (0, 1 << 31), (-(1 << 40), 1 << 40)])
def test_randint_is_the_same_everywhere(device, bounds):
    def draw(where):
        return rl.randint(*bounds, (333,), device=where)

    got = on(device, draw)
    np.testing.assert_array_equal(got, on("reference", draw))
    assert got.dtype == np.int64
    assert got.min() >= bounds[0]
    assert got.max() < bounds[1]


def test_randn_is_the_same_everywhere(device):
    def draw(where):
        return rl.randn(1000, device=where)

    np.testing.assert_allclose(on(device, draw), on("reference", draw), rtol=1e-5, atol=1e-6)


def test_dropout_is_the_same_everywhere(device):
    def draw(where):
        return F.dropout(rl.ones(999, device=where), 0.3)

    np.testing.assert_array_equal(on(device, draw), on("reference", draw))


def test_the_numbers_are_what_they_should_be():
    rl.manual_seed(0)
    u, n = rl.rand(200_000).numpy(), rl.randn(200_000).numpy()
    assert (u.min() >= 0, u.max() < 1) == (True, True)
    np.testing.assert_allclose([u.mean(), u.var()], [0.5, 1 / 12], atol=2e-3)
    np.testing.assert_allclose([n.mean(), n.var(), (n**3).mean(), (n**4).mean()], [0, 1, 0, 3], atol=5e-2)
    kept = F.dropout(rl.ones(200_000), 0.25).numpy()
    assert set(np.unique(kept)) == {0.0, np.float32(1 / 0.75)}
    assert abs((kept == 0).mean() - 0.25) < 5e-3
    assert abs(rl.bernoulli(rl.full((200_000,), 0.7)).mean().item() - 0.7) < 5e-3
    counts = np.bincount(rl.randint(0, 10, (200_000,)).numpy())
    assert counts.max() - counts.min() < 1500


@pytest.mark.parametrize("dtype", [rl.float16, rl.bfloat16, rl.float64])
def test_other_types(dtype):
    rl.manual_seed(0)
    u = rl.rand(10_000, dtype=dtype)
    assert u.dtype is dtype
    assert u.float().amin().item() >= 0
    assert abs(u.double().mean().item() - 0.5) < 2e-2
    assert abs(rl.randn(10_000, dtype=dtype).double().mean().item()) < 5e-2


def test_calls_continue_the_stream():
    rl.manual_seed(9)
    whole = rl.rand(10).tolist()
    rl.manual_seed(9)
    assert rl.rand(4).tolist() + rl.rand(6).tolist() == whole
    assert rl.rand(4).tolist() != whole[:4]


def test_dropout_gives_a_new_mask_each_time():
    rl.manual_seed(0)
    x = rl.ones(1000)
    assert F.dropout(x, 0.5).tolist() != F.dropout(x, 0.5).tolist()


def test_manual_seed_gives_the_default_generator():
    g = rl.manual_seed(5)
    assert g is rl.default_generator
    assert g.initial_seed() == 5
    rl.manual_seed(-1)  # PyTorch takes negative seeds too
    a = rl.rand(3).tolist()
    rl.manual_seed(-1)
    assert rl.rand(3).tolist() == a


def test_generators_are_independent():
    a, b = rl.Generator().manual_seed(1), rl.Generator("cpu").manual_seed(1)
    rl.manual_seed(1)
    first = rl.rand(5, generator=a).tolist()
    assert rl.rand(5, generator=b).tolist() == first
    assert rl.rand(5).tolist() == first
    assert rl.Generator().initial_seed() != rl.Generator().initial_seed()


def test_states_can_be_saved_and_restored():
    rl.manual_seed(3)
    rl.rand(17)
    state = rl.get_rng_state()
    a = [rl.rand(5).tolist(), rl.randn(5).tolist(), rl.randint(0, 100, (5,)).tolist()]
    rl.set_rng_state(state)
    assert [rl.rand(5).tolist(), rl.randn(5).tolist(), rl.randint(0, 100, (5,)).tolist()] == a


def test_training_resumes_with_the_same_bits():
    def steps(w, count):
        for _ in range(count):
            x = rl.randn(8, 16)
            w.grad = None
            F.dropout((x @ w).tanh(), 0.3).sum().backward()
            with rl.no_grad():
                w -= 0.1 * w.grad
        return w.detach().numpy().tobytes()

    rl.manual_seed(6)
    w = rl.randn(16, 16, requires_grad=True)
    steps(w, 3)
    saved = (w.detach().numpy().copy(), rl.get_rng_state())
    want = steps(w, 3)
    rl.manual_seed(999)
    again = rl.tensor(saved[0], requires_grad=True)
    rl.set_rng_state(saved[1])
    assert steps(again, 3) == want


def test_a_replay_draws_the_same_numbers_whatever_was_drawn_since():
    rl.manual_seed(6)
    x = rl.randn(64, 64, requires_grad=True)
    state = rl.get_rng_state()
    loss = checkpoint(lambda t: F.dropout(t.exp(), 0.5).square().sum(), x)
    rl.rand(1000)
    rl.manual_seed(77)
    loss.backward()
    got = x.grad.tolist()
    x.grad = None
    rl.set_rng_state(state)
    F.dropout(x.exp(), 0.5).square().sum().backward()
    assert x.grad.tolist() == got


def test_a_replay_does_not_move_the_stream():
    rl.manual_seed(6)
    with memory.budget(1 << 30):
        y = rl.rand(64, 64) * 2.0
        want = y.tolist()
    state = rl.get_rng_state()
    pool = y.storage.pool
    while pool.reclaim(pool, 1 << 40):
        pass
    assert y.tolist() == want
    assert rl.get_rng_state() == state


def test_edges():
    assert rl.rand(0).tolist() == []
    assert F.dropout(rl.ones(5), 1.0).tolist() == [0.0] * 5
    x = rl.ones(5)
    assert F.dropout(x, 0.0).tolist() == F.dropout(x, 0.5, training=False).tolist() == [1.0] * 5
    assert rl.randint(3, (4,)).shape == (4,)
    for bad in (lambda: F.dropout(x, 1.5), lambda: rl.randint(5, 5, (1,)), lambda: rl.rand(2, dtype=rl.int64)):
        with pytest.raises((ValueError, TypeError)):
            bad()
