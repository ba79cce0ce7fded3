"""Reductions, softmax and norms of tensors that are not row-major: the walk and the results."""

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.ops.family.row_layout import row_layout, scattered

N = 80  # squared it is more than SCATTERED


def test_rows_side_by_side_are_columns():
    vector, steps, tail = row_layout((N, 50, 1), [(1, 0, 1), (1, N, 0)])
    assert vector == "inner" and steps == ("1", "1")
    assert tail == (1, 50, N, 0, 0, 1, 0, N, 1)


def test_one_long_strided_row_has_no_columns():
    assert row_layout((1, 50, 1), [(1, 0, 1), (0, 2, 0)])[0] == "any"


def test_what_is_copied_first():
    whole, turned = rl.zeros(N, N)._spec, rl.zeros(N, N).t()._spec
    assert scattered(("row",), (turned,), (N, N), 1) == {}
    assert scattered(("element",), (turned,), (N, N), 1) == {0: (N, N)}
    assert scattered(("row",), (whole, turned), (N, N), 1) == {1: (N, N)}
    assert scattered(("element",), (whole, turned), (N, N), 0) == {1: (N, N)}
    sparse = rl.zeros(2 * N)[::2]._spec
    # Not a copy for each row.
    assert scattered(("element",), (whole, sparse), (N, N), 1) == {1: (N,)}


def test_small_ones_are_not_copied():
    assert scattered(("element",), (rl.zeros(5, 4).t()._spec,), (4, 5), 1) == {}


CASES = {
    "sum": (lambda x: x.sum(1), lambda a: a.sum(1)),
    "mean": (lambda x: x.mean(1), lambda a: a.mean(1)),
    "amax": (lambda x: x.amax(1), lambda a: a.max(1)),
    "argmin": (lambda x: x.argmin(1), lambda a: a.argmin(1)),
    "var": (lambda x: x.var(1), lambda a: a.var(1, ddof=1)),
    "logsumexp": (lambda x: x.logsumexp(1), lambda a: np.log(np.exp(a).sum(1))),
    "softmax": (lambda x: x.softmax(1), lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True)),
    "layer_norm": (
        lambda x: F.layer_norm(x, x.shape[1:], eps=0.0),
        lambda a: (a - a.mean(1, keepdims=True)) / a.std(1, keepdims=True),
    ),
}
LAYOUTS = {
    "transposed": lambda x: x.t(),
    "every other": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "backwards in memory": lambda x: x.flip(0).t().contiguous().t(),
    "of a cube": lambda x: x.unsqueeze(0).expand(3, N, N).permute(2, 0, 1)[:, 1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, layout, device):
    act, exact = CASES[name]
    numbers = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)
    x = LAYOUTS[layout](rl.tensor(numbers, device=device))
    plain = x.contiguous()
    assert not x.is_contiguous()
    found, expected = act(x), exact(plain.cpu().numpy().astype(np.float64))
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=2e-5, atol=2e-6)
    if found.dtype is rl.float32:
        g = rl.tensor(
            np.random.default_rng(1).standard_normal(tuple(found.shape)).astype(np.float32),
            device=device,
        )
        slopes = []
        for start in (x, plain):
            leaf = start.detach().requires_grad_()
            slopes += rl.autograd.grad(act(leaf), leaf, g)
        np.testing.assert_allclose(
            slopes[0].cpu().numpy(), slopes[1].cpu().numpy(), rtol=2e-4, atol=2e-6
        )
