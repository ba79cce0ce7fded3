"""Functions of lists of tensors."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as rl


def pair() -> list[Any]:
    return [rl.tensor([1.0, 4.0]), rl.tensor([9.0])]


def listed(tensors: Any) -> list[Any]:
    return [t.tolist() for t in tensors]


def test_numbers_lists_and_tensors() -> None:
    f: Any = rl
    assert listed(f._foreach_add(pair(), 1.0)) == [[2.0, 5.0], [10.0]]
    assert listed(f._foreach_mul(pair(), [2.0, 3.0])) == [[2.0, 8.0], [27.0]]
    assert listed(f._foreach_sub(pair(), pair(), alpha=2)) == [[-1.0, -4.0], [-9.0]]
    assert listed(f._foreach_div(pair(), rl.tensor(2.0))) == [[0.5, 2.0], [4.5]]
    assert listed(f._foreach_sqrt(pair())) == [[1.0, 2.0], [3.0]]
    assert listed(f._foreach_pow(2.0, [rl.tensor([1.0, 3.0])])) == [[2.0, 8.0]]
    assert listed(f._foreach_lerp(pair(), [rl.zeros(2), rl.zeros(1)], 0.5)) == [[0.5, 2.0], [4.5]]
    assert listed(f._foreach_maximum(pair(), 3.0)) == [[3.0, 4.0], [9.0]]
    assert listed(f._foreach_norm(pair(), 1)) == [5.0, 9.0]
    assert listed(f._foreach_addcmul(pair(), pair(), pair(), rl.tensor([1.0, 2.0]))) == [
        [2.0, 20.0],
        [171.0],
    ]


def test_in_place() -> None:
    f: Any = rl
    held = pair()
    first = held[0]
    assert f._foreach_mul_(held, 2.0) is held
    f._foreach_addcdiv_(held, pair(), pair(), value=0.5)
    assert held[0] is first and listed(held) == [[2.5, 8.5], [18.5]]
    f._foreach_minimum_(held, 3.0)
    f._foreach_zero_(held[1:])
    assert listed(held) == [[2.5, 3.0], [0.0]]


def test_what_lists_must_be() -> None:
    f: Any = rl
    with pytest.raises(RuntimeError, match="at least one"):
        f._foreach_add([], 1.0)
    for other in ([rl.ones(2)], [1.0]):
        with pytest.raises(RuntimeError, match="one length"):
            f._foreach_add(pair(), other)
