"""no_grad, enable_grad and set_grad_enabled: as contexts, as decorators, after errors."""

from __future__ import annotations

import pytest

import rushlight as rl


def leaf(number: float) -> rl.Tensor:
    return rl.tensor([number], requires_grad=True)


def test_modes_as_contexts():
    x = leaf(2.0)
    with rl.no_grad():
        assert not (x * 2).requires_grad
        with rl.enable_grad():
            assert (x * 2).requires_grad
        assert not rl.is_grad_enabled()
        with rl.set_grad_enabled(True):
            assert rl.is_grad_enabled()
        assert not rl.is_grad_enabled()
    assert rl.is_grad_enabled()


def test_modes_as_decorators():
    x = leaf(2.0)

    @rl.no_grad()
    def plain(t):
        return t * 2

    @rl.no_grad
    def bare(t):
        """Doubles."""
        return t * 2

    @rl.enable_grad()
    def recorded(t):
        return t * 2

    @rl.set_grad_enabled(False)
    def switched(t):
        return t * 2

    assert rl.is_grad_enabled()
    assert not plain(x).requires_grad
    assert not bare(x).requires_grad
    assert not switched(x).requires_grad
    assert (bare.__name__, bare.__doc__) == ("bare", "Doubles.")
    with rl.no_grad():
        assert recorded(x).requires_grad
    assert rl.is_grad_enabled()


def test_set_grad_enabled_as_a_switch():
    try:
        rl.set_grad_enabled(False)
        assert not rl.is_grad_enabled()
    finally:
        rl.set_grad_enabled(True)
    assert rl.is_grad_enabled()


def test_a_mode_is_restored_after_an_error():
    with pytest.raises(ValueError), rl.no_grad():
        raise ValueError
    assert rl.is_grad_enabled()


def test_backward_works_under_no_grad():
    x = leaf(2.0)
    y = x * x
    with rl.no_grad():
        y.backward()
    assert x.grad.item() == 4.0
    assert not x.grad.requires_grad
