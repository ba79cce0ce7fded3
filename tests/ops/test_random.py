"""Random numbers: a function of seed and position, equal on every device and after every resume."""

from __future__ import annotations

import pickle

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
    np.testing.assert_allclose(
        [n.mean(), n.var(), (n**3).mean(), (n**4).mean()], [0, 1, 0, 3], atol=5e-2
    )
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
    # PyTorch's
    assert rl.Generator().initial_seed() == rl.Generator().initial_seed() == 67280421310721


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
    pool = y._memory.pool
    while pool.reclaim(pool, 1 << 40):
        pass
    assert y.tolist() == want
    assert rl.get_rng_state().equal(state)


def test_edges():
    assert rl.rand(0).tolist() == []
    assert F.dropout(rl.ones(5), 1.0).tolist() == [0.0] * 5
    x = rl.ones(5)
    assert F.dropout(x, 0.0).tolist() == F.dropout(x, 0.5, training=False).tolist() == [1.0] * 5
    assert rl.randint(3, (4,)).shape == (4,)
    for bad in (
        lambda: F.dropout(x, 1.5),
        lambda: rl.randint(5, 5, (1,)),
        lambda: rl.rand(2, dtype=rl.int64),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            bad()


def test_states_are_tensors_of_bytes():
    g = rl.Generator(device="cpu").manual_seed((1 << 64) - 3)
    rl.rand(5, generator=g)
    state = g.get_state()
    assert (state.dtype, state.shape, state.device.type, g.device.type) == (
        rl.uint8,
        (16,),
        "cpu",
        "cpu",
    )
    other = rl.Generator().set_state(state)
    assert other.initial_seed() == g.initial_seed() == (1 << 64) - 3
    copy = g.clone_state()
    want = rl.rand(5, generator=g).tolist()
    assert rl.rand(5, generator=other).tolist() == rl.rand(5, generator=copy).tolist() == want
    for bad in (
        lambda: g.set_state((1, 2)),
        lambda: g.set_state(rl.zeros(16)),
        lambda: g.set_state(state[:4]),
    ):
        with pytest.raises((TypeError, RuntimeError)):
            bad()
    with pytest.raises(RuntimeError):
        g.manual_seed(1 << 64)


def test_a_generator_is_pickled_where_it_stands():
    g = rl.Generator().manual_seed(4)
    rl.rand(7, generator=g)
    back = pickle.loads(pickle.dumps(g))
    assert rl.randn(5, generator=back).tolist() == rl.randn(5, generator=g).tolist()


def test_fork_rng_leaves_the_stream_as_it_was():
    rl.manual_seed(1)
    with rl.random.fork_rng(devices=[], device_type="cpu"):
        inside = rl.rand(3).tolist()
        rl.random.manual_seed(5)
    assert rl.rand(3).tolist() == inside
    with rl.random.fork_rng(enabled=False):
        rl.manual_seed(5)
    assert rl.initial_seed() == 5
    assert rl.seed() == rl.random.initial_seed()


def test_ops_take_words_of_their_own():
    """Consecutive draws are independent, whatever was drawn."""
    g = rl.Generator().manual_seed(0)
    for draw, words in (
        (lambda: rl.rand(10, generator=g), 10),
        (lambda: rl.rand(10, dtype=rl.float64, generator=g), 20),
        (lambda: rl.randn(10, generator=g), 20),
        (lambda: rl.randn(10, dtype=rl.float64, generator=g), 40),
        (lambda: rl.randint(0, 5, (10,), generator=g), 20),
    ):
        before = g.get_offset()
        draw()
        assert g.get_offset() - before == words
    plain = rl.rand(60, generator=rl.Generator().manual_seed(0)).numpy().astype(np.float64)
    drawn = rl.randn(20, generator=rl.Generator().manual_seed(0).set_offset(20)).numpy()
    made = np.sqrt(-2 * np.log1p(-plain[20::2])) * np.cos(2 * np.pi * plain[21::2])
    np.testing.assert_allclose(drawn, made, atol=1e-5)


def test_float64_has_all_its_digits():
    x = rl.rand(1000, dtype=rl.float64, generator=rl.Generator().manual_seed(0)).numpy()
    assert (x * 2**24 != np.floor(x * 2**24)).any()
    assert (x * 2**53 == np.floor(x * 2**53)).all()
    assert (x * 2**52 != np.floor(x * 2**52)).any()


def test_randint_over_everything_an_integer_holds(device):
    g = rl.Generator().manual_seed(0)
    drawn = rl.randint(-(1 << 63), (1 << 63) - 1, (2000,), generator=g, device=device).numpy(
        force=True
    )
    assert abs(drawn.astype(np.float64).mean() / 2**63) < 0.05
    assert abs(np.abs(drawn.astype(np.float64)).mean() / 2**63 - 0.5) < 0.05
    assert len(np.unique(drawn & 0xFFFF)) > 1900


@pytest.mark.parametrize(
    "dtype, high", [(rl.uint8, 257), (rl.int8, 129), (rl.bool, 3), (rl.float16, 1 << 17)]
)
def test_randint_refuses_what_the_type_does_not_hold(dtype, high):
    with pytest.raises(RuntimeError, match="fit"):
        rl.randint(0, high, (3,), dtype=dtype)
    with pytest.raises(RuntimeError, match="fit"):
        rl.empty(3, dtype=dtype).random_(high)


@pytest.mark.parametrize(
    "dtype, beyond", [(rl.uint8, 256), (rl.int16, 1 << 15), (rl.bool, 2), (rl.float16, 2049)]
)
def test_random_fills_with_what_the_type_holds(dtype, beyond):
    drawn = rl.empty(5000, dtype=dtype).random_(generator=rl.Generator().manual_seed(0)).double()
    assert drawn.amin().item() >= 0
    assert beyond * 0.9 <= drawn.amax().item() + 1 <= beyond


def test_multinomial_refuses_what_is_no_distribution():
    for weights in ([1.0, -1.0], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]):
        with pytest.raises(RuntimeError, match="multinomial"):
            rl.multinomial(rl.tensor(weights), 1)
    with pytest.raises(RuntimeError, match="above 0"):
        rl.multinomial(rl.tensor([1.0, 0.0, 2.0]), 3)


def test_multinomial_never_gives_a_place_of_weight_zero(device):
    weights = rl.tensor([0.0, 1.0, 0.0, 3.0, 0.0], device=device)
    rl.manual_seed(0)
    drawn = np.array(rl.multinomial(weights, 20_000, replacement=True).tolist())
    assert set(drawn) == {1, 3}
    assert abs((drawn == 3).mean() - 0.75) < 0.015
    assert set(rl.multinomial(weights, 2).tolist()) == {1, 3}


def test_bernoulli_takes_probabilities_as_numbers_and_tensors():
    x = rl.zeros(4000, dtype=rl.int64)
    rl.manual_seed(0)
    assert rl.bernoulli(x, p=0.25).dtype is rl.int64
    assert rl.bernoulli(x, 0.25).double().mean().item() == pytest.approx(0.25, abs=0.03)
    for bad in (
        lambda: rl.bernoulli(rl.tensor([1.5])),
        lambda: rl.bernoulli(x),
        lambda: rl.bernoulli(x, 2.0),
    ):
        with pytest.raises(RuntimeError):
            bad()


def test_normal_takes_tensors_that_broadcast():
    rl.manual_seed(0)
    drawn = rl.normal(rl.tensor([[0.0], [100.0]]), rl.tensor([1.0, 2.0, 3.0]).expand(2, 3))
    assert drawn.shape == (2, 3)
    with pytest.raises(RuntimeError, match="negative"):
        rl.normal(rl.zeros(2), rl.tensor([1.0, -1.0]))
    with pytest.raises(TypeError):
        rl.normal(rl.zeros(2), 1.0, (3,))


def test_an_unseeded_generator_begins_at_pytorchs_seed():
    a, b = (rl.rand(3, generator=rl.Generator()).tolist() for _ in range(2))
    assert a == b and rl.Generator().initial_seed() == 67280421310721


def test_random_integers_stay_below_their_bound_after_rounding():
    assert rl.ones(20000, dtype=rl.bfloat16).random_(0, 300).max() == 296
    assert rl.randint(0, 4097, (20000,), dtype=rl.float16).max() <= 4096
    assert rl.ones(2000).random_(5, 7).unique().tolist() == [5, 6]


def test_bernoulli_into_any_type():
    for dtype in (rl.bool, rl.int32, rl.float64):
        assert rl.bernoulli(rl.ones(3), out=rl.zeros(3, dtype=dtype)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [rl.float32, rl.float64, rl.float16, rl.bfloat16])
def test_tensors_are_filled_in_place(device, dtype):
    limits = rl.empty(0, device=device)._spec.device.device.limits
    if dtype not in limits.dtypes:
        pytest.skip(f"{device} has no {dtype}")
    for name, draw, numbers in (
        ("uniform_", rl.rand, (-2.0, 3.0)),
        ("normal_", rl.randn, (3.0, 5.0)),
    ):
        width, start = (5.0, -2.0) if name == "uniform_" else (5.0, 3.0)
        wide = dtype if dtype is rl.float64 else rl.float32
        source = dtype if name == "uniform_" else wide  # uniform numbers of few bits
        rl.manual_seed(5)
        wanted = (draw(4, 6, device=device, dtype=source).to(wide) * width + start).to(dtype)
        after = rl.get_rng_state()
        whole, turned = rl.zeros(4, 6, device=device, dtype=dtype), rl.zeros(6, 4, dtype=dtype)
        for target in (whole, turned.to(device).t()):
            rl.manual_seed(5)
            version = target._version
            assert getattr(target, name)(*numbers) is target
            assert rl.equal(target, wanted)
            assert target._version == version + 1
            assert rl.equal(rl.get_rng_state(), after)


def test_a_filled_leaf_and_a_filled_result():
    leaf = rl.ones(3, requires_grad=True)
    state = rl.get_rng_state()
    with pytest.raises(rl.InplaceError, match="uniform_"):
        leaf.uniform_()
    assert rl.equal(rl.get_rng_state(), state)  # nothing was drawn
    with rl.no_grad():
        leaf.uniform_(2, 3)
    made = leaf * 2
    made.normal_()
    (made.sum() + leaf.sum()).backward()
    assert leaf.grad.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("columns", [3, 200])  # checked on the host, and by kernels
def test_weights_are_checked_whatever_their_number(columns):
    good = rl.ones(2, columns)
    assert rl.multinomial(good, 4, True).shape == (2, 4)
    for wrong, said in ((-1.0, "negative"), (float("nan"), "NaN"), (float("inf"), "Inf")):
        bad = good.clone()
        bad[1, 1] = wrong
        state = rl.get_rng_state()
        with pytest.raises(rl.RushlightError, match=said):
            rl.multinomial(bad, 4, True)
        assert rl.equal(rl.get_rng_state(), state)
    with pytest.raises(rl.RushlightError, match="different places"):
        rl.multinomial(rl.eye(2, columns), 2)
    with pytest.raises(rl.RushlightError, match="0 places"):
        rl.multinomial(rl.ones(2, 0), 1, True)
    assert rl.multinomial(rl.ones(0, columns), 1, True).shape == (0, 1)


@pytest.mark.parametrize("std", [-1.0, float("nan")])
def test_a_deviation_that_is_none(std: float):
    before = rl.get_rng_state()
    for draw in (lambda: rl.zeros(2).normal_(0.0, std), lambda: rl.normal(0.0, std, (2,))):
        with pytest.raises(rl.RushlightError, match="must not be negative"):
            draw()
    assert (rl.get_rng_state() == before).all()
