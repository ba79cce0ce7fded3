"""What a call must know of its surroundings: grad mode, recipe mode, autocast.

The state is one immutable object in a context variable, so it travels to worker threads with their context.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeVar

from rushlight.core.dtypes import DType

F = TypeVar("F", bound=Callable[..., Any])
# One call of an op: its plan, inputs, numbers, result and grad mode.
Noted = tuple[Any, Sequence[Any], tuple[Any, ...], Any, bool]


@dataclass(frozen=True, slots=True)
class State:
    """`region` is the innermost checkpoint or budget: while there is one, every call leaves a recipe."""

    grad: bool = True
    region: Any = None
    autocast: DType | None = None
    inference: bool = False
    watch: list[Noted | None] | None = None  # takes a note of every call; see Note [Shortcuts]
    walk: Any = None  # the backward pass that is under way
    saving: Any = None  # hooks for what records save; see Note [Saved tensor hooks]
    saving_refused: str | None = None  # why there must be no such hooks
    special: bool = field(init=False)  # something besides the grad mode is set

    def __post_init__(self) -> None:
        set_here = (self.region, self.autocast, self.watch, self.saving)
        object.__setattr__(self, "special", any(x is not None for x in set_here))


STATE: ContextVar[State] = ContextVar("rushlight_state", default=State())  # noqa: B039 (State is immutable)


def impure() -> None:
    """Tell who watches that something happens here which is no call of an op."""
    watch = STATE.get().watch
    if watch is not None:
        watch.append(None)


class Changed:
    """A change of state for a `with` block or a decorated function."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        self.tokens: list[Token[State]] = []

    def __enter__(self) -> None:
        before = STATE.get()
        try:
            self.tokens.append(STATE.set(replace(before, **self.changes)))
        except BaseException:  # Ctrl-C, when it was set already
            STATE.set(before)
            raise

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        token = self.tokens[-1]
        del self.tokens[-1]  # no call, after which Ctrl-C might leave the state as it is
        STATE.reset(token)

    def __call__(self, function: F) -> F:
        changes = self.changes

        @functools.wraps(function)
        def inside(*args: object, **named: object) -> object:
            with Changed(**changes):
                return function(*args, **named)

        return inside  # type: ignore[return-value]


class _Mode(Changed):
    """A fixed grad mode; `@no_grad` decorates as `@no_grad()` does."""

    grad: bool

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__(grad=self.grad)


class no_grad(_Mode):
    """Nothing is recorded for backward inside."""

    grad = False


class enable_grad(_Mode):
    """Recording is on inside, also within `no_grad`."""

    grad = True


class inference_mode(Changed):
    """Nothing is recorded inside, as in `no_grad`; with False, recording is on. `@inference_mode` decorates too."""

    def __new__(cls, mode: Any = True) -> Any:
        made = super().__new__(cls)
        if not callable(mode):
            return made
        made.__init__()  # type: ignore[misc]
        return made(mode)

    def __init__(self, mode: Any = True) -> None:
        super().__init__(grad=not mode, inference=bool(mode))


def is_inference_mode_enabled() -> bool:
    """Whether the call is inside `inference_mode`."""
    return STATE.get().inference


class set_grad_enabled(Changed):
    """Turns recording on or off, at once; as a `with` block, until its end."""

    def __init__(self, mode: bool) -> None:
        super().__init__(grad=bool(mode))
        self.tokens.append(STATE.set(replace(STATE.get(), grad=bool(mode))))

    def __enter__(self) -> None:
        if not self.tokens:
            super().__enter__()

    def __call__(self, function: F) -> F:
        # As a decorator it switches inside the function only.
        if self.tokens:
            STATE.reset(self.tokens.pop())
        return super().__call__(function)


def is_grad_enabled() -> bool:
    return STATE.get().grad
