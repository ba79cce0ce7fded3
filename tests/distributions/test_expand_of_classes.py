"""`expand` of users' distributions, as PyTorch's are written."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight.distributions import Normal


class Shifted(Normal):
    def __init__(self, loc, scale, shift, validate_args=None):
        self.shift = shift
        super().__init__(loc, scale, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Shifted, _instance)
        new.shift = (self.shift + 1).expand(batch_shape)
        return super().expand(batch_shape, _instance=new)


def test_an_expand_that_hands_its_instance_on() -> None:
    one = Shifted(rl.zeros(1), rl.ones(1), rl.ones(1))
    wide = one.expand((3,))
    assert type(wide) is Shifted and wide.loc.shape == (3,) and wide.batch_shape == (3,)
    assert wide.shift.tolist() == [2.0, 2.0, 2.0] and one.shift.tolist() == [1.0]


def test_a_class_without_an_expand_of_its_own_is_told() -> None:
    class More(Shifted):
        def __init__(self, loc):
            super().__init__(loc, rl.ones(1), rl.ones(1))

    with pytest.raises(NotImplementedError, match="needs an expand of its own"):
        More(rl.zeros(1)).expand((2,))
