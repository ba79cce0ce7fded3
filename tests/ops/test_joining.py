"""cat and stack of empty tensors and of what is no sequence."""

from __future__ import annotations

import pytest

import rushlight as rl


def test_cat_counts_empty_tensors_for_the_type():
    assert rl.cat([rl.empty(0, dtype=rl.float64), rl.ones(2)]).dtype is rl.float64
    assert rl.cat([rl.empty(0), rl.empty(0)], dim=1).shape == (0,)


@pytest.mark.parametrize("name", ["cat", "stack", "hstack", "vstack", "dstack", "column_stack"])
def test_one_tensor_is_no_sequence(name):
    with pytest.raises(TypeError, match="sequence"):
        getattr(rl, name)(rl.ones(2, 2))
