"""In-place forms whose other operands alone need a gradient: derivatives read the old bits."""

from __future__ import annotations

import pytest

import rushlight as rl

INDEX = [0, 1, 1]
F = rl.nn.functional

WRITES = {
    **{
        f"scatter_reduce_ {kind}": (
            lambda x, y, kind=kind: x.scatter_reduce_(0, rl.tensor(INDEX), y, kind),
            lambda x, y, kind=kind: x.scatter_reduce(0, rl.tensor(INDEX), y, kind),
        )
        for kind in ("amax", "amin", "prod", "sum", "mean")
    },
    "index_reduce_": (
        lambda x, y: x.index_reduce_(0, rl.tensor(INDEX), y, "prod"),
        lambda x, y: x.index_reduce(0, rl.tensor(INDEX), y, "prod"),
    ),
    "lerp_": (
        lambda x, y: x.lerp_(rl.tensor([3.0, 1.0, 2.0], dtype=rl.float64), y),
        lambda x, y: x.lerp(rl.tensor([3.0, 1.0, 2.0], dtype=rl.float64), y),
    ),
    "clamp_": (lambda x, y: x.clamp_(max=y), lambda x, y: x.clamp(max=y)),
    "float_power_": (lambda x, y: x.float_power_(y), lambda x, y: x.float_power(y)),
    "addcmul_": (lambda x, y: x.addcmul_(y, y), lambda x, y: x.addcmul(y, y)),
}


@pytest.mark.parametrize("name", WRITES)
def test_the_gradient_is_that_of_the_pure_form(name: str) -> None:
    write, pure = WRITES[name]
    found = []
    for form in (write, pure):
        x = rl.tensor([0.5, 1.5, 2.5], dtype=rl.float64)
        y = rl.tensor([0.7, 1.2, 0.4], dtype=rl.float64, requires_grad=True)
        result = form(x, y)
        (result * rl.tensor([1.0, 2.0, 3.0], dtype=rl.float64)).sum().backward()
        found.append((result.tolist(), y.grad.tolist()))
    assert found[0] == found[1]


def test_a_variance_that_repeats_along_one_dimension() -> None:
    x, target = rl.ones(2, 4, 3), rl.zeros(2, 4, 3)
    for shape in ((2, 4, 1), (2, 1, 3), (1, 4, 3), (2, 4)):
        assert F.gaussian_nll_loss(x, target, rl.ones(shape)).item() == 0.5
    for shape in ((4, 3), (3,), (1, 1, 3)):
        with pytest.raises(ValueError, match="does not fit"):
            F.gaussian_nll_loss(x, target, rl.ones(shape))
