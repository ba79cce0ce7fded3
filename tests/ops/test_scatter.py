"""Note [Scattering]: what is stored or folded at one position, in which order, and the
gradients.
"""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl

SHAPES = [((5,), 0, (9,)), ((3, 4), 1, (3, 7)), ((4, 3), 0, (300, 2)), ((2, 3, 4), 1, (2, 5, 4))]
FOLDS = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def dense(x, dim, index, src, kind, include_self):
    """The same by ordinary ops: each position compares with each element."""
    rows = [x.unsqueeze(-1).movedim(dim, 0)]
    size = x.shape[dim]
    names = rl.arange(size, device=x.device).reshape((size,) + (1,) * x.dim())
    mine = index.movedim(dim, -1).unsqueeze(0) == names
    none = {"prod": 1.0, "amax": -float("inf"), "amin": float("inf")}[kind]
    spread = rl.where(mine, src.movedim(dim, -1).unsqueeze(0), none)
    if not include_self:
        rows = [rl.where(mine.any(-1, keepdim=True), none, rows[0])]
    return getattr(rl, kind)(rl.cat([*rows, spread], -1), -1).movedim(0, dim)


@pytest.mark.parametrize("kind", ["amax", "amin", "prod"])
@pytest.mark.parametrize("include_self", [True, False])
def test_folds_and_their_gradients(kind, include_self, device):
    draw = np.random.default_rng(5)
    for shape, dim, wide in SHAPES:
        # Small integers: many ties and zeros; the long row has only 1 and -1, so that its product
        # stays small.
        covered = tuple(n if i != dim else shape[dim] for i, n in enumerate(wide))
        x = draw.integers(-3, 4, covered).astype(np.float32)
        src = (
            draw.integers(-3, 4, wide) if wide[dim] < 300 else draw.choice([1, -1], wide)
        ).astype(np.float32)
        index = rl.tensor(draw.integers(0, shape[dim], wide), device=device)
        weights = rl.tensor(draw.standard_normal(covered).astype(np.float32), device=device)
        found = []
        for way in (rl.scatter_reduce, dense):
            leaf, given = (rl.tensor(a, device=device, requires_grad=True) for a in (x, src))
            out = way(leaf, dim, index, given, kind, include_self=include_self)
            first = rl.autograd.grad((out * weights).sum(), [leaf, given], create_graph=True)
            second = [None, None]
            if kind == "prod":
                total = sum((g * g).sum() for g in first)
                second = rl.autograd.grad(total, [leaf, given])
            found.append([out, *first, *second])
        assert rl.equal(found[0][0], found[1][0])
        for ours, theirs in zip(found[0][1:], found[1][1:], strict=True):
            if ours is not None:
                np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-4, atol=1e-4)


def test_the_order_is_that_of_the_index(device):
    x = rl.tensor([2048.0, 1.0], dtype=rl.float16, device=device)
    index, src = (
        rl.tensor([0, 0, 0], device=device),
        rl.tensor([3.0, 1.0, 0.5], dtype=rl.float16, device=device),
    )
    assert x.scatter(0, index, src).tolist() == [0.5, 1.0]
    assert x.scatter_reduce(0, index, src, "prod").tolist() == [3072.0, 1.0]
    assert x.index_copy(0, index, src).tolist() == [0.5, 1.0]
    assert x.put(index, src).tolist() == [0.5, 1.0]
    assert x.index_put((index,), src).tolist() == [0.5, 1.0]


def test_nan_is_the_extreme(device):
    x, src = rl.zeros(2, device=device), rl.tensor([1.0, float("nan"), 2.0], device=device)
    for kind in ("amax", "amin"):
        out = x.scatter_reduce(0, rl.tensor([0, 0, 0], device=device), src, kind).tolist()
        assert out[0] != out[0]
        assert out[1] == 0


def test_every_writer_gets_the_gradient_of_its_place(device):
    """As in PyTorch: the derivative of what is stored is a gather."""
    index, weights = rl.tensor([1, 1, 0], device=device), rl.tensor([2.0, 3.0, 5.0], device=device)
    ways = {
        "scatter": lambda x, v: x.scatter(0, index, v),
        "index_copy": lambda x, v: x.index_copy(0, index, v),
        "put": lambda x, v: x.put(index, v),
        "index_put": lambda x, v: x.index_put((index,), v),
    }
    for way in ways.values():
        x, v = (rl.ones(3, device=device).requires_grad_(True) for _ in range(2))
        (way(x, v) * weights).sum().backward()
        assert x.grad.tolist() == [0, 0, 5]
        assert v.grad.tolist() == [3, 3, 2]
        target, v = rl.ones(3, device=device), v.detach().requires_grad_()
        target.scatter_(0, index, v)
        (target * weights).sum().backward()
        assert v.grad.tolist() == [3, 3, 2]


@pytest.mark.parametrize("kind", ["prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", [rl.uint8, rl.int32], ids=str)
def test_whole_numbers_without_self(kind, dtype, device):
    x, index = rl.tensor([7, 8, 9], dtype=dtype, device=device), rl.tensor([0, 0, 2], device=device)
    src = rl.tensor([3, 5, 4], dtype=dtype, device=device)
    whole = x.scatter_reduce(0, index, src, kind, include_self=False).tolist()
    assert whole == [FOLDS[kind](3, 5), 8, 4]


def test_complex_numbers_are_multiplied_where_an_index_says():
    x = rl.tensor([[1 + 1j, 2j], [3, 4]]).requires_grad_()
    src = rl.tensor([[2, 1j], [1j, 1 + 1j], [5, 1]]).requires_grad_()
    out = x.scatter_reduce(0, rl.tensor([[0, 0], [0, 1]]), src, "prod")
    assert out.tolist() == [[(1 + 1j) * 2j, -2 + 0j], [3 + 0j, 4 + 4j]]
    assert rl.autograd.gradcheck(
        lambda a, b: a.scatter_reduce(0, rl.tensor([[0, 0], [0, 1]]), b, "prod"),
        (
            x.detach().to(rl.complex128).requires_grad_(),
            src.detach().to(rl.complex128).requires_grad_(),
        ),
    )


def test_a_slice_filled_twice_counts_once():
    x = rl.zeros(2, 5, dtype=rl.float64, requires_grad=True)
    value = rl.tensor(3.0, dtype=rl.float64, requires_grad=True)
    index = rl.tensor([1, -1, 2, 4, 4])
    made = rl.index_fill(x, 1, index, value)
    assert made.tolist() == [[0.0, 3.0, 3.0, 0.0, 3.0]] * 2
    made.sum().backward()
    assert value.grad.item() == 6 and x.grad.tolist() == [[1.0, 0.0, 0.0, 1.0, 0.0]] * 2
    value.grad = None
    (x * 1).index_fill_(1, index, value).sum().backward()
    assert value.grad.item() == 6
    assert rl.autograd.gradgradcheck(lambda a, v: rl.index_fill(a, -1, index, v) ** 2, (x, value))
    with pytest.raises(IndexError):
        rl.index_fill(x, 1, rl.tensor([5]), value)
