"""Switches of deterministic algorithms, and the checks `_check*`."""

from __future__ import annotations

import pytest

import rushlight as rl


def test_checks_raise_what_they_say():
    kinds = {"": RuntimeError, "_index": IndexError, "_value": ValueError, "_type": TypeError}
    for name, error in (kinds | {"_not_implemented": NotImplementedError}).items():
        check = getattr(rl, f"_check{name}")
        check(True)
        with pytest.raises(error, match="the reason"):
            check(False, lambda: "the reason")
    with pytest.raises(TypeError, match="bool"):
        rl._check(rl.tensor(True))
    with pytest.raises(ValueError):
        rl._check_with(ValueError, False)
    rl._check_tensor_all(rl.tensor([True, True]))
    with pytest.raises(RuntimeError):
        rl._check_tensor_all(rl.tensor([True, False]))
    with pytest.raises(RuntimeError):
        rl._check_is_size(-1)
    with pytest.raises(AssertionError, match="why"):
        rl._assert(rl.tensor(0), "why")
    with pytest.raises(RuntimeError):
        rl._assert_async(rl.tensor(0))


def test_deterministic_switches_are_remembered():
    try:
        rl.use_deterministic_algorithms(True, warn_only=True)
        assert (
            rl.are_deterministic_algorithms_enabled()
            and rl.is_deterministic_algorithms_warn_only_enabled()
        )
        rl.set_deterministic_debug_mode("error")
        assert (
            rl.get_deterministic_debug_mode() == 2
            and not rl.is_deterministic_algorithms_warn_only_enabled()
        )
        with pytest.raises(TypeError):
            rl.use_deterministic_algorithms(1)
        with pytest.raises(RuntimeError):
            rl.set_deterministic_debug_mode(3)
    finally:
        rl.use_deterministic_algorithms(False)
    assert not rl.are_deterministic_algorithms_enabled()
