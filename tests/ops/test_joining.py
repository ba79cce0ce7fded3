"""cat and stack of empty tensors and of what is no sequence."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.ops.family.build import noted_builds


def test_cat_counts_empty_tensors_for_the_type():
    assert rl.cat([rl.empty(0, dtype=rl.float64), rl.ones(2)]).dtype is rl.float64
    assert rl.cat([rl.empty(0), rl.empty(0)], dim=1).shape == (0,)


@pytest.mark.parametrize("name", ["cat", "stack", "hstack", "vstack", "dstack", "column_stack"])
def test_one_tensor_is_no_sequence(name):
    with pytest.raises(TypeError, match="sequence"):
        getattr(rl, name)(rl.ones(2, 2))


@pytest.mark.parametrize(
    "lengths", [[3] * n for n in range(1, 10)] + [[2, 2, 2, 5, 5, 1, 4, 4, 4, 4, 4]]
)
@pytest.mark.parametrize("dim", [0, 1])
def test_neighbours_of_one_layout(lengths, dim, device):
    parts = [rl.rand(*((n, 4) if dim == 0 else (4, n))) for n in lengths]
    made = rl.cat([p.to(device) for p in parts], dim)
    np.testing.assert_array_equal(
        made.cpu().numpy(), np.concatenate([p.numpy() for p in parts], dim)
    )


def test_four_small_neighbours_are_one_launch():
    for size, count in ((7, 2), (1 << 17, 4)):
        parts = [rl.zeros(size) for _ in range(8)]
        with noted_builds() as built:
            rl.cat(parts)
        assert len(built) == count
