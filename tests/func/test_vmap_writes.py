"""`x[i] = v` under `vmap`, with an index that differs between the examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import vmap
from rushlight.core.errors import InplaceError
from tests.func.vmap_cases import draw, looped

I = rl.tensor([0, 1, -1])  # noqa: E741
J = rl.tensor([2, -4, 1])
ROWS = rl.tensor([[0, 1], [1, 0], [0, -1]])


def assign(*keys: Any) -> Any:
    """A function (x, v, i, j, rows) that writes v at the keys, in which the strings stand for its
    arguments.
    """

    def f(x: Any, v: Any, i: Any, j: Any, rows: Any) -> Any:
        x = x.clone()
        named = {"i": i, "j": j, "rows": rows}
        x[tuple([named[k] if isinstance(k, str) else k for k in keys])] = v
        return x

    return f


ALL = slice(None)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("i",), (3, 5, 4)),
        (("i",), (3, 1)),
        (("i", 1), (3, 4)),
        (("i", "j"), (3, 4)),
        ((ALL, "j"), (3, 2, 4)),
        ((..., "j"), (3, 2, 5)),
        (("i", ALL, "j"), (3, 5)),
        (("i", "rows"), (3, 2, 4)),
        (("rows", "j"), (3, 2, 4)),
        (("i", ALL, "rows"), (3, 5, 2)),
        (("rows", ALL, "j"), (3, 2, 5)),
        ((ALL, "j", "rows"), (3, 2, 2)),
        (("i", slice(1, 4), None, "j"), (3, 3, 1)),
    ],
)
def test_as_a_loop(keys: Any, value: Any) -> None:
    x, v, f = draw(3, 2, 5, 4), draw(*value, seed=1), assign(*keys)
    got = vmap(f)(x, v, I, J, ROWS)
    np.testing.assert_array_equal(got.numpy(), looped(f, x, v, I, J, ROWS).numpy())
    got = vmap(f, in_dims=(None, 0, 0, 0, 0))  # the clone of an unmapped tensor is unmapped
    with pytest.raises(InplaceError):
        got(x[0], v, I, J, ROWS)


def test_numbers_sums_and_devices(device: str) -> None:
    x, i = draw(3, 6, device=device), rl.tensor([0, 5, -2]).to(device)

    def f(x: Any, i: Any) -> Any:
        x = x.clone()
        x[i] += 3.0
        x[i - 1] = 7.0
        return x

    want = x.cpu().numpy().copy()
    for row, at in zip(want, [0, 5, -2], strict=True):
        row[at] += 3
        row[at - 1] = 7
    np.testing.assert_array_equal(vmap(f)(x, i).cpu().numpy(), want)


def test_gradients() -> None:
    x, v, i = draw(3, 4, dtype="float64"), draw(3, dtype="float64"), rl.tensor([0, 3, 1])

    def f(x: Any, v: Any, i: Any) -> Any:
        y = x * 2
        y[i] = v * v
        return (y**3).sum()

    got = vmap(rl.func.grad(f, argnums=(0, 1)))(x, v, i)
    for k in range(3):
        want = rl.func.grad(f, argnums=(0, 1))(x[k], v[k], i[k])
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a[k].numpy(), b.numpy())
    bends = vmap(rl.func.hessian(f))(x, v, i)
    for k in range(3):
        np.testing.assert_allclose(bends[k].numpy(), rl.func.hessian(f)(x[k], v[k], i[k]).numpy())


def test_nested() -> None:
    x, v, i = draw(2, 3, 4), draw(3), rl.tensor([1, 3])
    f = assign("i")

    def g(x: Any, v: Any, i: Any) -> Any:
        return f(x, v, i, None, None)

    got = vmap(vmap(g, in_dims=(0, 0, None)), in_dims=(0, None, 0))(x, v, i)
    want = x.numpy().copy()
    for a in range(2):
        want[a, :, [1, 3][a]] = v.numpy()
    np.testing.assert_array_equal(got.numpy(), want)
