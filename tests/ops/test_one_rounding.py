"""One rounding: of a product and what is added to it, of a sum of gradients; on every device."""

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F

HALVES = pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16], ids=str)


def _operands(dtype, device):
    """Small whole numbers: their product is exact, and what is added is not a multiple of it."""
    rng = np.random.default_rng(0)
    x, w = (rl.tensor(rng.integers(-4, 5, size).astype("f")) for size in ((17, 40), (12, 40)))
    c = rl.tensor(rng.standard_normal((17, 12)).astype("f"))
    return [v.to(dtype).to(device) for v in (x, w, c)]


def _once(dtype, wide):
    return rl.tensor(wide.astype("f")).to(dtype).tolist()


def _wide(*values):
    return [np.array(v.cpu().double().tolist()) for v in values]


@HALVES
def test_linear_and_its_batches(dtype, device):
    x, w, c = _operands(dtype, device)
    wide_x, wide_w, wide_c = _wide(x, w, c)
    wanted = _once(dtype, wide_x @ wide_w.T + wide_c[0])
    assert F.linear(x, w, c[0]).tolist() == wanted
    assert F.linear(x[None], w, c[0]).tolist() == [wanted]
    assert rl.addmm(c[0], x, w.T).tolist() == wanted
    weights, biases = rl.stack([w, w + 1]), rl.stack([c[0], c[1]])
    batch = rl.vmap(F.linear, (None, 0, 0))(x, weights, biases)
    assert batch[0].tolist() == wanted
    assert batch[1].tolist() == F.linear(x, weights[1], biases[1]).tolist()


@HALVES
def test_addmm_and_baddbmm(dtype, device):
    x, w, c = _operands(dtype, device)
    wide_x, wide_w, wide_c = _wide(x, w, c)
    for beta, alpha in ((1, 1), (0.5, 2), (-3, 0.25)):
        wanted = _once(dtype, alpha * (wide_x @ wide_w.T) + beta * wide_c)
        assert rl.addmm(c, x, w.T, beta=beta, alpha=alpha).tolist() == wanted
        found = rl.baddbmm(c, x[None], w.T[None], beta=beta, alpha=alpha)
        assert found.tolist() == [wanted]
    batch = rl.vmap(rl.addmm, (0, None, None))(rl.stack([c, -c]), x, w.T)
    assert batch[1].tolist() == rl.addmm(-c, x, w.T).tolist()


@HALVES
def test_addmv_and_addbmm(dtype, device):
    x, w, c = _operands(dtype, device)
    wide_x, wide_w, wide_c = _wide(x, w, c)
    for beta, alpha in ((1, 1), (0.5, 2), (-3, 0.25)):
        product = alpha * (wide_x @ wide_w.T)
        found = rl.addmv(c[:, 0], x, w[0], beta=beta, alpha=alpha)
        assert found.tolist() == _once(dtype, product[:, 0] + beta * wide_c[:, 0])
        found = rl.addmv(c[0, 0], x, w[0], beta=beta, alpha=alpha)
        assert found.tolist() == _once(dtype, product[:, 0] + beta * wide_c[0, 0])
        batches = x.reshape(17, 2, 20).transpose(0, 1), w.T.reshape(2, 20, 12)
        found = rl.addbmm(c, *batches, beta=beta, alpha=alpha)
        assert found.tolist() == _once(dtype, product + beta * wide_c)
    leaf = c[:, 0].clone().requires_grad_()
    rl.addmv(leaf, x, w[0], beta=2).sum().backward()
    assert leaf.grad.tolist() == [2.0] * 17


@HALVES
def test_gradients(dtype, device):
    x, w, c = (v.requires_grad_() for v in _operands(dtype, device))
    rl.addmm(c, x, w.T, beta=2, alpha=3).sum().backward()
    assert c.grad.unique().tolist() == [2]
    wide_x, wide_w = _wide(x.detach(), w.detach())
    assert w.grad.tolist() == _once(dtype, np.tile(3 * wide_x.sum(0), (12, 1)))
    assert x.grad.tolist() == _once(dtype, np.tile(3 * wide_w.sum(0), (17, 1)))


@HALVES
def test_a_sum_over_nothing(dtype, device):
    c = rl.ones(2, 3, dtype=dtype, device=device)
    empty = rl.zeros(2, 0, dtype=dtype, device=device), rl.zeros(0, 3, dtype=dtype, device=device)
    assert rl.addmm(c, *empty, beta=2).tolist() == [[2.0] * 3] * 2
    assert F.linear(empty[0], empty[1].T, c[0]).tolist() == [[1.0] * 3] * 2


def test_shapes_that_do_not_fit():
    a = rl.ones(2, 3, dtype=rl.bfloat16)
    with pytest.raises(RuntimeError, match="addmm"):
        rl.addmm(a, a, a)
    with pytest.raises(RuntimeError, match="addmm"):
        rl.addmm(rl.ones(4, 2, 2, dtype=rl.bfloat16), a, a.T)
    with pytest.raises(RuntimeError, match="baddbmm"):
        rl.baddbmm(a, rl.ones(2, 3, 3, dtype=rl.bfloat16), rl.ones(3, 3, 3, dtype=rl.bfloat16))
    with pytest.raises(RuntimeError, match="addmv"):
        rl.addmv(a, a, a[0])
    for dtype in (rl.bfloat16, rl.float32):  # an inner size of 1 does not expand
        narrow, wide = rl.ones(2, 3, 1, dtype=dtype), rl.ones(2, 4, 5, dtype=dtype)
        with pytest.raises(RuntimeError, match="addbmm"):
            rl.addbmm(rl.ones(3, 5, dtype=dtype), narrow, wide)


@pytest.mark.parametrize("create_graph", [False, True])
@HALVES
def test_a_gradient_is_summed_before_it_is_rounded(dtype, create_graph, device):
    """Of an operand that is repeated beside one of a wider type."""
    rng = np.random.default_rng(0)
    wide = rl.tensor(rng.standard_normal((300, 5)).astype("f")).to(device)
    terms = _wide(wide)[0]
    for f, slope in (
        (lambda x: x * wide, terms),
        (lambda x: x + wide, np.ones_like(terms)),
        (lambda x: rl.where(wide > 0, x, wide), (terms > 0) * 1.0),
    ):
        x = rl.ones(5, dtype=dtype, device=device, requires_grad=True)
        (g,) = rl.autograd.grad((f(x) * wide).sum(), [x], create_graph=create_graph)
        want = (slope * terms).sum(0)
        assert g.dtype is dtype
        assert np.allclose(_wide(g)[0], np.array(_once(dtype, want)), rtol=0, atol=1e-4)


# ---- sums of halves have room ----

_MEANS = {
    "mean": lambda x: x.mean(),
    "mean along one": lambda x: x.mean(1)[0],
    "mean of several": lambda x: x[:, :, None].mean((0, 2))[3],
    "nanmean": lambda x: x[:, :1].nanmean(),
    "mse_loss": lambda x: F.mse_loss(x / 20, x * 0),
    "l1_loss": lambda x: F.l1_loss(x, x * 0),
    "avg_pool2d": lambda x: F.avg_pool2d(x[None], 40)[0, 0, 0],
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[None], 1)[0, 0, 0],
    "uneven adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[None], 3)[0, 1, 2],
    "normalize": lambda x: F.normalize(x, dim=1)[0, 0] * 400 * 40**0.5,
    "cosine_similarity": lambda x: F.cosine_similarity(x, x)[0] * 400,
    "std": lambda x: rl.cat([x, -x]).std(correction=0),
    "std_mean": lambda x: rl.std_mean(rl.cat([x, -x]), correction=0)[0],
}


@HALVES
@pytest.mark.parametrize("mean", _MEANS.values(), ids=_MEANS)
def test_means_of_halves_have_room_for_their_sum(mean, dtype, device):
    """The sum of 1600 times 400, and the square of 400, are beyond float16."""
    x = rl.full((40, 40), 400.0, dtype=dtype, device=device).requires_grad_()
    made = mean(x)
    assert made.dtype is dtype
    assert abs(made.item() - 400) <= 400 * rl.finfo(dtype).eps
    made.backward()
    assert x.grad.dtype is dtype and x.grad.isfinite().all()


@HALVES
def test_deviations_of_halves_are_rounded_once(dtype, device):
    values = rl.arange(64.0, device=device).sin() + 1000
    x = values.to(dtype)
    wide = x.cpu().double()
    for found, wanted in zip(rl.var_mean(x), (wide.var(), wide.mean()), strict=True):
        assert found.item() == wanted.to(dtype).item()
    assert x.std().item() == wide.std().to(dtype).item()
    assert x.var(0, correction=0).item() == wide.var(0, correction=0).to(dtype).item()
