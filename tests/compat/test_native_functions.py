"""Functions beneath nn.functional: modes by number, layers as functions.

Expected numbers are PyTorch 2.13's.
"""

import math

import pytest

import rushlight as rl
from rushlight.nn import functional as F


def values(*shape):
    made = [math.sin(1.7 * i + 0.3) for i in range(math.prod(shape))]
    return rl.tensor(made, dtype=rl.float64).reshape(*shape)


A, B = values(3, 4), values(3, 4).cos()
SIGNS = rl.tensor([1.0, -1, 1], dtype=rl.float64)


@pytest.mark.parametrize(
    ("name", "args", "mean"),
    [
        ("kl_div", (A, B.abs()), -0.194035),
        ("binary_cross_entropy_with_logits", (A, B.abs(), None, None), 0.738858),
        ("binary_cross_entropy_with_logits", (A, B.abs(), B.abs(), None), 0.569633),
        ("poisson_nll_loss", (A, B.abs(), True, False, 1e-8), 1.243024),
        ("cosine_embedding_loss", (A, B, SIGNS, 0.1), 0.654242),
        ("hinge_embedding_loss", (A, B.sign(), 1.0), 0.017337),
        ("margin_ranking_loss", (A[:, 0], B[:, 0], SIGNS, 0.2), 0.348079),
        ("triplet_margin_loss", (A, B, B.sin(), 1.0, 2.0, 1e-6, False), 1.13503),
    ],
)
def test_losses_by_number(name, args, mean):
    loss = getattr(rl, name)
    assert loss(*args, 1).item() == pytest.approx(mean, abs=1e-6)
    each = loss(*args, 0)
    assert each.dim() > 0 and loss(*args, reduction=2).item() == pytest.approx(each.sum().item())
    if name == "poisson_nll_loss":
        with pytest.raises(TypeError, match=r"missing .*'reduction'"):
            loss(*args)
    else:
        assert rl.equal(loss(*args), each)  # PyTorch's default here
    with pytest.raises(RuntimeError, match="none of"):
        loss(*args, 7)
    with pytest.raises(TypeError, match=f"^{name}\\(\\).*'size_average'"):
        loss(*args, 0, size_average=True)


def test_tables_norms_and_grids():
    assert rl.equal(rl.embedding(A, rl.tensor([0, 2])), A[[0, 2]])
    table = A.clone().requires_grad_()
    rl.embedding(table, rl.tensor([0, 1]), 1).sum().backward()
    assert table.grad.sum(1).tolist() == [4, 0, 0]
    x = values(2, 3, 4)
    got = rl.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False)
    rl.testing.assert_close(got, F.instance_norm(x))
    image, grid = values(1, 1, 3, 3), values(1, 2, 2, 2)
    assert rl.grid_sampler(image, grid, 0, 0, False).flatten().tolist() == pytest.approx(
        [0.147207, 0.354416, 0.838139, -0.135226], abs=1e-6
    )
    assert rl.equal(
        rl.grid_sampler(image, grid, 1, 2, True),
        F.grid_sample(image, grid, "nearest", "reflection", True),
    )
    theta = values(1, 2, 3)
    assert rl.equal(
        rl.affine_grid_generator(theta, [1, 1, 2, 2], False),
        F.affine_grid(theta, [1, 1, 2, 2], False),
    )
    assert rl.norm_except_dim(x, 2, 1).flatten().tolist() == pytest.approx(
        [1.998561, 2.001057, 2.002519], abs=1e-6
    )
    assert rl.norm_except_dim(x, 2, -1).item() == pytest.approx(3.465336, abs=1e-6)
    best, at = rl.max_pool1d_with_indices(x, 2)
    assert rl.equal(best, F.max_pool1d(x, 2)) and at.flatten().tolist()[:4] == [1, 2, 0, 3]


def test_convolutions():
    got = rl.convolution(
        values(1, 2, 5, 5), values(3, 2, 2, 2), values(3), [2], [1], [1], False, [0], 1
    )
    assert got.flatten().tolist()[:3] == pytest.approx([0.398686, -0.498018, 0.979057], abs=1e-6)
    got = rl.convolution(values(1, 2, 5), values(2, 3, 2), values(3), [2], [1], [1], True, [1], 1)
    assert got.flatten().tolist()[:3] == pytest.approx([0.354702, 1.338101, 1.437475], abs=1e-6)
    got = rl.conv_tbc(values(5, 2, 3), values(2, 3, 4), values(4), 1)
    assert got.shape == (6, 2, 4) and got.flatten().tolist()[:2] == pytest.approx(
        [1.080438, 0.590744], abs=1e-6
    )
    with pytest.raises(RuntimeError, match="1 to 3 dimensions"):
        rl.convolution(values(1, 2), values(3, 2), None, [1], [0], [1], False, [0], 1)


def test_dropouts():
    x = values(2, 3, 4)
    z = x.clone()
    assert rl.dropout_(z, 0.5, True) is z and set((z / x).round().flatten().tolist()) == {0, 2}
    assert rl.equal(rl.dropout_(x.clone(), 0.5, False), x) and rl.equal(
        rl.feature_dropout_(x.clone(), 0.0, True), x
    )
    out, kept = rl.native_dropout(x, 0.5, True)
    assert kept.dtype is rl.bool and rl.equal(out != 0, kept) and rl.equal(out[kept], x[kept] * 2)
    assert rl.equal(rl.native_dropout(x, 0.5, False)[0], x)


@pytest.mark.parametrize(
    ("name", "gates"), [("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)]
)
@pytest.mark.parametrize("both_ways", [False, True])
def test_recurrent_layers_as_functions(name, gates, both_ways):
    layers: list = []
    for width in (3, 2 * (1 + both_ways)):
        for _ in range(1 + both_ways):
            layers += [
                values(gates * 2, width),
                values(gates * 2, 2),
                values(gates * 2),
                values(gates * 2) * 0.5,
            ]
    state = values(2 * (1 + both_ways), 4, 2)
    state = (state, state * 0.5) if name == "lstm" else state
    before = rl.get_rng_state()
    output, *last = getattr(rl, name)(
        values(5, 4, 3), state, layers, True, 2, 0.0, False, both_ways, False
    )
    assert rl.equal(rl.get_rng_state(), before)
    assert output.shape == (5, 4, 2 * (1 + both_ways)) and len(last) == (2 if name == "lstm" else 1)
    want = {"lstm": 0.326926, "gru": 0.976937, "rnn_tanh": 0.925696, "rnn_relu": 2.154961}
    if not both_ways:
        assert output[0, 0, 0].item() == pytest.approx(want[name], abs=1e-6)
        layers[0].requires_grad_()
        getattr(rl, name)(values(5, 4, 3), state, layers, True, 2, 0.0, False, False, False)[
            0
        ].sum().backward()
        assert layers[0].grad.isfinite().all()
    with pytest.raises(RuntimeError, match="weights are needed"):
        getattr(rl, name)(values(5, 4, 3), state, layers[1:], True, 2, 0.0, False, both_ways, False)


def test_copies_of_views():
    x = values(2, 3, 4)
    for copied, view in [
        (rl.select_copy(x, 1, 2), x.select(1, 2)),
        (rl.slice_copy(x, 1, 0, 3, 2), x[:, 0:3:2]),
        (rl.split_copy(x, 2, 2)[1], x.split(2, 2)[1]),
        (rl.view_as_real_copy(rl.view_as_complex_copy(values(3, 2))), values(3, 2)),
    ]:
        assert rl.equal(copied, view)
        copied.zero_()
    assert rl.equal(x, values(2, 3, 4))
    assert [p.shape[2] for p in rl.unsafe_split_with_sizes(x, [1, 3], 2)] == [1, 3]
