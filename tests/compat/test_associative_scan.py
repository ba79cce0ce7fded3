"""`torch._higher_order_ops.associative_scan`: running results, reversed, nested, with gradients."""

from __future__ import annotations

import pytest

import rushlight
from rushlight import testing


@pytest.fixture
def scan():
    with rushlight.patch("cpu"):
        from torch._higher_order_ops.associative_scan import associative_scan

        yield associative_scan


@pytest.mark.parametrize("length", range(1, 10))
def test_sums_and_products_of_every_length(scan, length: int) -> None:
    x = rushlight.randn(2, length, 3, dtype=rushlight.float64)
    for mode in ("generic", "pointwise"):
        testing.assert_close(scan(lambda a, b: a + b, x, 1, combine_mode=mode), x.cumsum(1))
    backwards = scan(lambda a, b: a * b, x, -2, reverse=True)
    testing.assert_close(backwards, x.flip(1).cumprod(1).flip(1))


def test_a_linear_recurrence_and_its_gradients(scan) -> None:
    """h[i] = a[i] * h[i-1] + b[i], the scan of pairs."""
    a = rushlight.rand(5, 4, dtype=rushlight.float64).requires_grad_()
    b = rushlight.randn(5, 4, dtype=rushlight.float64).requires_grad_()

    def combine(first, second):
        return {"a": first["a"] * second["a"], "b": second["a"] * first["b"] + second["b"]}

    made = scan(combine, {"a": a, "b": b}, 0, combine_mode="generic")["b"]
    h, wanted = rushlight.zeros(4, dtype=rushlight.float64), []
    for step in range(5):
        h = a[step] * h + b[step]
        wanted.append(h)
    testing.assert_close(made, rushlight.stack(wanted))
    found = rushlight.autograd.grad(made.square().sum(), (a, b))
    testing.assert_close(
        found, rushlight.autograd.grad(rushlight.stack(wanted).square().sum(), (a, b))
    )


def test_the_generic_function_sees_one_element(scan) -> None:
    """A matrix product is not elementwise: what is combined has no scanned dimension."""
    x = rushlight.randn(6, 2, 2, dtype=rushlight.float64)
    made = scan(lambda a, b: a @ b, x, 0, combine_mode="generic")
    wanted = [x[0]]
    for each in x[1:]:
        wanted.append(wanted[-1] @ each)
    testing.assert_close(made, rushlight.stack(wanted))


def test_wrong_arguments_are_named(scan) -> None:
    x = rushlight.ones(3)
    for given, what in (
        ((None, x, 0), "combine_fn"),
        ((max, x, 1), "dim 1"),
        ((max, x, 0.0), "dim must be an int"),
        ((max, [], 0), "no tensor"),
        ((max, [3], 0), "int"),
        ((max, rushlight.ones(0), 0), "elements"),
        ((max, x, 0, False, "other"), "other"),
    ):
        with pytest.raises(ValueError, match=what):
            scan(*given)
