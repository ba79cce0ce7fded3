"""Skippable formulas: lanes that need no result skip them, and the bits do not change."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight.emit.llvm import kernels
from rushlight.kernel.shapes import Map
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg, const
from rushlight.scalar.named import skippable

LARGE = (1e3, 5e4, 1e10, 3e30)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", [rl.float32, rl.float64])
def test_lanes_do_not_see_each_other(name: str, dtype: rl.dtype) -> None:
    """A large angle among small ones, in every lane, and small ones among large ones."""
    function = getattr(rl, name)
    small = rl.linspace(-1, 1, 37, dtype=dtype)
    alone = function(small).tolist()
    for at in range(37):
        for large in LARGE:
            mixed = small.clone()
            mixed[at] = large
            found = function(mixed).tolist()
            assert found[at] == function(rl.full((16,), large, dtype=dtype)).tolist()[3]
            found[at] = alone[at]
            assert found == alone


def _double(x):
    return (x + x, x * x)


def _text(choose) -> str:
    x = arg(0, rl.float32)
    near = x < 1.0
    first, second = skippable(near, _double, x)
    body = choose(x, near, first, second)
    return kernels.emit(Map((rl.float32,), (rl.float32,), (), (body,), 0, ("1", "1")))


def test_it_is_called_under_a_branch() -> None:
    text = _text(
        lambda x, near, first, second: (
            s.where(near, x, first) - s.where(near, const(2.0, rl.float32), second)
        )
    )
    assert text.count("_double float32") >= 2 and "!prof" in text


@pytest.mark.parametrize(
    "choose",
    [
        lambda x, near, first, second: s.where(near, x, first) + second,
        lambda x, near, first, second: s.where(near, first, x),
        lambda x, near, first, second: s.where(x < 2.0, x, first),
        lambda x, near, first, second: first,
    ],
)
def test_what_others_look_at_is_written_out(choose) -> None:
    assert "_double float32" not in _text(choose)
