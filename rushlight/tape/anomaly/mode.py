"""`detect_anomaly`: a NaN or an infinity is an error that names its origin.

It checks every result, forward and backward, where PyTorch checks gradients; see
Note [Anomaly checks]. The mode is one for the process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from rushlight.core.errors import AnomalyError
from rushlight.core.interrupts import unheard
from rushlight.tape.anomaly import arming, asynchronous

F = TypeVar("F", bound=Callable[..., Any])


class Setting(NamedTuple):
    """The requested settings."""

    on: bool = False
    nan: bool = True
    infinite: bool = True


class _Now:
    setting = Setting()


def _set(setting: Setting, for_good: bool = False) -> None:
    _Now.setting = setting
    arming.switch(setting.on and setting.nan, setting.infinite, for_good)


def _restore(setting: Setting) -> None:
    try:
        _set(setting)
    except BaseException:  # Ctrl-C in between: a partial switch is repeated
        _set(setting)
        raise


def is_anomaly_enabled() -> bool:
    """Whether anomalies are detected."""
    return _Now.setting.on


def is_anomaly_check_nan_enabled() -> bool:
    """Whether results are checked while anomalies are detected."""
    return _Now.setting.nan


class set_detect_anomaly:
    """Turns the detection of anomalies on or off, at once; as a `with` block, until its end.

    check_nan=False checks no results; check_inf=False checks for NaN alone.
    """

    def __init__(self, mode: bool, check_nan: bool = True, check_inf: bool = True) -> None:
        self.before = _Now.setting
        if not mode:
            _read_asynchronous(None)
        try:
            _set(Setting(bool(mode), bool(check_nan), bool(check_inf)), for_good=not mode)
        except BaseException:  # Ctrl-C
            _restore(self.before)
            raise

    def __enter__(self) -> None:
        pass

    @unheard
    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _read_asynchronous(error)
        finally:
            _restore(self.before)


class detect_anomaly:
    """Inside, a NaN or an infinity that no operand had is an `AnomalyError`. Decorates too.

    The error names op, module and source line. check_nan=False checks no results; check_inf=False
    checks for NaN alone, for programs with intended infinities.
    """

    def __init__(self, check_nan: bool = True, check_inf: bool = True) -> None:
        self.setting = Setting(True, bool(check_nan), bool(check_inf))
        self.before: list[Setting] = []

    def __enter__(self) -> None:
        before = _Now.setting
        self.before.append(before)
        try:
            _set(self.setting)
        except BaseException:  # Ctrl-C: the block has no end
            del self.before[-1]
            _restore(before)
            raise

    @unheard
    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _read_asynchronous(error)
        finally:
            _restore(self.before.pop())

    def __call__(self, function: F) -> F:
        setting = self.setting

        @functools.wraps(function)
        def inside(*args: Any, **named: Any) -> Any:
            with detect_anomaly(setting.nan, setting.infinite):
                return function(*args, **named)

        return inside  # type: ignore[return-value]


def _read_asynchronous(error: BaseException | None) -> None:
    """Ask the asynchronous devices. An error under way stays, with a note of the anomaly."""
    if not asynchronous.LOGS:
        return
    try:
        asynchronous.read_all()
    except AnomalyError as found:
        if error is None:
            raise
        if not isinstance(error, AnomalyError):
            error.add_note(f"(an anomaly before it: {found})")
    finally:
        asynchronous.forget()
