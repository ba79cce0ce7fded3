"""Sobol's points: PyTorch's, in any order of drawing; scrambled ones fill the cube as evenly."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight.quasirandom import SobolEngine

pytest.importorskip("scipy")

PYTORCHS = [[0, 0, 0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25], [0.25, 0.75, 0.75]]
PYTORCHS += [[0.375, 0.375, 0.625]]


def test_the_points_are_pytorchs() -> None:
    engine = SobolEngine(3)
    assert engine.draw(5).tolist() == PYTORCHS and engine.num_generated == 5
    assert engine.reset().fast_forward(3).draw(2, dtype=rl.float64).tolist() == PYTORCHS[3:]
    assert repr(engine) == "SobolEngine(dimension=3)"
    out = rl.empty(0)
    assert engine.reset().draw(2, out=out) is out and out.tolist() == PYTORCHS[:2]


def test_scrambled_points_are_seeded_and_even() -> None:
    points = SobolEngine(4, scramble=True, seed=3).draw_base2(7)
    assert rl.equal(points, SobolEngine(4, scramble=True, seed=3).draw(128))
    assert not rl.equal(points, SobolEngine(4, scramble=True, seed=4).draw(128))
    assert points.min() >= 0 and points.max() < 1
    for column in (points * 128).long().unbind(1):  # one point in each interval
        assert column.sort().values.tolist() == list(range(128))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dimension lies between 1 and 21201, got 0"):
        SobolEngine(0)
    engine = SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match="no power of 2; use draw"):
        engine.draw_base2(2)
