"""PyTorch's switches for deterministic algorithms: stored without effect; results always repeat."""

from __future__ import annotations

from rushlight.core.errors import RushlightError

_MODES = ("default", "warn", "error")
_mode = 0  # of PyTorch's debug modes: off, warnings only, errors


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Store the switch; results are the same from run to run in any case.

    Args:
        mode (bool): The switch.
        warn_only (bool): Stored too.
    """
    global _mode
    if not isinstance(mode, bool) or not isinstance(warn_only, bool):
        raise TypeError(
            f"use_deterministic_algorithms: True or False, got {mode!r} and warn_only={warn_only!r}"
        )
    _mode = 0 if not mode else 1 if warn_only else 2


def are_deterministic_algorithms_enabled() -> bool:
    """The argument of `use_deterministic_algorithms`."""
    return _mode > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The argument `warn_only`."""
    return _mode == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """The same by number or word: 0 "default", 1 "warn", 2 "error".

    Args:
        debug_mode (int or str): 0, 1, 2, or the word.
    """
    global _mode
    known = _MODES if isinstance(debug_mode, str) else (0, 1, 2)
    if debug_mode not in known:
        raise RushlightError(f"set_deterministic_debug_mode: one of {known}, got {debug_mode!r}")
    _mode = known.index(debug_mode)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2."""
    return _mode
