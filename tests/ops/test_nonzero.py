"""nonzero with few chosen elements counts blocks first: the same positions as element by
element.
"""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.ops.index import nonzero


@pytest.mark.parametrize("length", [1024, 5000, 256 * 40])
def test_few_places_are_those_of_many(length, device, monkeypatch):
    draw = np.random.default_rng(length)
    for wanted in (
        [0],
        [length - 1],
        [255, 256, 257, 511],
        np.sort(draw.choice(length, 9, replace=False)).tolist(),
    ):
        mask = np.zeros(length, bool)
        mask[wanted] = True
        given = rl.tensor(mask, device=device)
        for rare in (1, 1 << 30):
            monkeypatch.setattr(nonzero, "_RARE", rare)
            assert given.nonzero().reshape(-1).tolist() == wanted


def test_runs_of_a_long_line(device):
    line = rl.tensor(np.repeat([3, 5, 3], [1500, 1, 2600]), device=device)
    values, inverse, counts = rl.unique_consecutive(line, return_inverse=True, return_counts=True)
    assert values.tolist() == [3, 5, 3] and counts.tolist() == [1500, 1, 2600]
    assert rl.equal(values[inverse], line)


@pytest.mark.parametrize("length", [255, 257, 70_000])
def test_running_sums_of_whole_numbers_wrap_alike(length, device):
    numbers = np.random.default_rng(length).integers(-(1 << 31), 1 << 31, length)
    x = rl.tensor(numbers, device=device)
    assert np.array_equal(x.cumsum(0).cpu().numpy(), np.cumsum(numbers))
    small = rl.tensor(numbers.astype(np.int32), device=device).reshape(1, length, 1)
    found = small.cumsum(-2, dtype=rl.int32)
    assert found.shape == small.shape and found.is_contiguous()
    assert np.array_equal(
        found.cpu().numpy().reshape(-1), np.cumsum(numbers.astype(np.int32), dtype=np.int32)
    )
