"""Edge cases of common ops: operands without dimensions, truth values, strided gradients, overwritten records."""

import pytest

import rushlight
import rushlight.nn.functional as F


def test_zero_gradient_of_a_strided_tensor_stays_in_its_memory(device):
    """The gradient of a step function is made, not computed; it must not take the strides of what it belongs to."""
    base = rushlight.ones(64, 40, device=device).requires_grad_()
    base[:, ::2].sign().sum().backward()
    assert float(base.grad.abs().sum()) == 0


def test_overwriting_gives_zero_gradients(device):
    x = rushlight.tensor([1.0, 2.0, 3.0], device=device).requires_grad_()
    y = x * 2
    y.zero_()
    assert y.requires_grad
    (y + x).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_overwriting_a_view_gives_zero_gradients_there(device):
    x = rushlight.tensor([1.0, 2.0, 3.0], device=device).requires_grad_()
    y = x * 2
    view = y[1:]
    view.fill_(7)
    assert view.requires_grad
    y[0] = 5
    y[0:1].copy_(rushlight.tensor([4.0], device=device))
    (y * y).sum().backward()
    assert y.tolist() == [4, 7, 7]
    assert x.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
@pytest.mark.parametrize("dim", [0, -1])
def test_extremes_of_one_number(name, dim, device):
    x = rushlight.tensor(2.5, device=device)
    y = getattr(x, name)(dim)
    assert y.shape == () and float(y) == (0 if name.startswith("arg") else 2.5)
    with pytest.raises(IndexError):
        getattr(x, name)(1)


def test_extremes_of_truth_values(device):
    x = rushlight.tensor([[True, False], [False, False]], device=device)
    assert x.amax(1).tolist() == [True, False]
    assert x.amin().tolist() is False
    assert x.amax().dtype is rushlight.bool
    assert x.sign().tolist() == x.tolist()
    assert x.square().dtype is rushlight.int64


def test_indexing_operands_without_dimensions(device):
    x = rushlight.tensor(3.0, device=device).requires_grad_()
    zero = rushlight.tensor(0, device=device)
    zeros = rushlight.tensor([0, 0], device=device)
    assert x.gather(0, zero).shape == ()
    assert x.gather(0, zeros).tolist() == [3, 3]
    assert x.index_select(0, zero).shape == ()
    assert x.scatter_add(0, zeros, rushlight.tensor([1.0, 2.0], device=device)).tolist() == 6
    x.gather(0, zeros).sum().backward()
    assert x.grad.tolist() == 2
    assert rushlight.ones(3, 4, device=device).gather(
        0, rushlight.zeros(0, 7, dtype=rushlight.int64, device=device)
    ).shape == (0, 7)


def test_variance_takes_unbiased_in_every_place():
    x = rushlight.tensor([1.0, 2.0, 4.0, 9.0])
    assert float(x.var(False)) == pytest.approx(9.5)
    assert float(x.var(0, False)) == pytest.approx(9.5)
    assert float(x.var(correction=None)) == pytest.approx(38 / 3)
    assert float(x.var(correction=2)) == pytest.approx(19)


def test_one_hot_counts_the_classes():
    assert F.one_hot(rushlight.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_batch_norm_of_no_elements():
    assert F.batch_norm(rushlight.zeros(0, 3), None, None, training=True).shape == (0, 3)


def test_einsum_takes_the_cheapest_order():
    """A chain whose left-to-right order would hold a matrix of 2000 x 2000."""
    a, b, c = rushlight.ones(2000, 3), rushlight.ones(3, 2000), rushlight.ones(2000, 2)
    rushlight.memory.reset_peak()
    before = rushlight.memory.peak()
    out = rushlight.einsum("ij,jk,kl->il", a, b, c)
    assert rushlight.equal(out, rushlight.full((2000, 2), 6000.0))
    assert rushlight.memory.peak() - before < 1 << 20


def test_more_indices_than_a_software_gpu_runs_a_loop(device):
    """Mesa's llvmpipe leaves a loop after 65535 rounds, without a word."""
    count = 70_000
    index = rushlight.zeros(count, dtype=rushlight.int64, device=device)
    index[-1] = 1
    source = rushlight.ones(count, device=device)
    assert rushlight.zeros(2, device=device).scatter_add(0, index, source).tolist() == [count - 1.0, 1.0]
    pairs = rushlight.stack([source, source * 2], 1)
    added = rushlight.zeros(2, 2, device=device).index_add(0, index, pairs)
    assert added.tolist() == [[count - 1.0, 2 * count - 2.0], [1.0, 2.0]]
