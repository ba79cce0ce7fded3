"""The state around a call: grad mode, recipe mode, autocast.

The state is one immutable object in a context variable, so worker threads inherit it with their
context.

# Note [Inference tensors]
1. A tensor made in inference mode (not a view of an older one) is an inference tensor. Its storage
   has a negative version, so that nothing else need be kept or checked.
2. It is written to in inference mode only, and becomes a leaf that requires gradients in inference
   mode only.
3. A record refuses to save it, outside as well: the sum of the saves' versions, which a record
   keeps, is negative then.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeVar

from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Storage

F = TypeVar("F", bound=Callable[..., Any])
# One call of an op: its plan, inputs, numbers, result and grad mode.
Noted = tuple[Any, Sequence[Any], tuple[Any, ...], Any, bool]


# The first version of a storage made in inference mode. See Note [Inference tensors].
INFERENCE = -(1 << 62)


@dataclass(frozen=True, slots=True)
class State:
    """`region` is the innermost checkpoint or budget: calls inside leave recipes."""

    grad: bool = True
    region: Any = None
    autocast: Any = None  # settings that listed ops ask; see Note [Autocast]
    inference: bool = False
    trace: list[Noted | None] | None = None  # takes a note of every call; see Note [Traces]
    saving: Any = None  # hooks for saved tensors; see Note [Saved tensor hooks]
    saving_refused: str | None = None  # the reason why such hooks are refused
    batch: tuple[Any, ...] = ()  # the levels of every vmap around; see Note [Batching]
    dual: Any = None  # the level of tangents; see Note [Dual values]
    special: bool = field(init=False)  # something besides the grad mode and autocast is set
    regional: bool = field(init=False)  # that is a region, or hooks of saves, and nothing else
    birth: int = field(init=False)  # the version of new storages
    # The same state in the other grad mode, and without autocast, made on demand.
    turned: State | None = field(init=False, compare=False, repr=False)
    bare: State | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        fill = object.__setattr__
        quiet = self.trace is None and not self.batch and self.dual is None
        alone = self.region is None and self.saving is None
        fill(self, "special", not (quiet and alone))
        fill(self, "regional", quiet and not alone)
        fill(self, "birth", INFERENCE if self.inference else 0)
        fill(self, "turned", None)
        fill(self, "bare", None)
        if self.inference and self.grad:  # `enable_grad` inside records nothing either
            fill(self, "grad", False)

    def with_changes(self, **changes: Any) -> State:
        """A changed state; PROGRAM itself where nothing differs from it."""
        made = replace(self, **changes)
        return PROGRAM if made == PROGRAM else made

    def in_mode(self, grad: bool) -> State:
        """The same state with recording on or off, cached: modes change often."""
        if self.grad is grad or self.inference:
            return self
        found = self.turned
        if found is None:
            found = self.with_changes(grad=grad)
            if self is PROGRAM:  # a thread that turns back is in the program's state again
                object.__setattr__(found, "turned", self)
            if found.region is self.region:  # not where `set_program_region` came in between
                object.__setattr__(self, "turned", found)
        return found

    def without_autocast(self) -> State:
        """The same state with autocast off, cached: listed ops run in it."""
        if self.autocast is None:
            return self
        found = self.bare
        if found is None:
            found = self.with_changes(autocast=None)
            object.__setattr__(self, "bare", found)
        return found


# The state of a thread in which nothing was changed: one object, so that `set_program_region`
# reaches all threads, those that run and those to come.
PROGRAM = State()
STATE: ContextVar[State] = ContextVar("rushlight_state", default=PROGRAM)
# The running backward pass.
WALK: ContextVar[Any] = ContextVar("rushlight_walk", default=None)


def set_program_region(region: Any) -> None:
    """Make a region the outermost one of every thread; None takes it away.

    A thread inside a `with` block that changed the state gets it when that block ends; the calling
    thread gets it at once.
    """
    state, before = STATE.get(), PROGRAM.region
    object.__setattr__(PROGRAM, "region", region)
    PROGRAM.__post_init__()
    if state is not PROGRAM and state.region is before:
        STATE.set(state.with_changes(region=region))


def without_autocast(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> Any:
    """Call a function with autocast off."""
    state = STATE.get()
    if state.autocast is None:
        return function(*args, **named)
    try:  # not `Changed`, which makes a state
        STATE.set(state.without_autocast())
        return function(*args, **named)
    finally:
        STATE.set(state)


def impure() -> None:
    """Mark a trace as incomplete: this is no call of an op."""
    trace = STATE.get().trace
    if trace is not None:
        trace.append(None)


class Changed:
    """A change of state for a `with` block or a decorated function.

    One object may be entered recursively.
    """

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        self.tokens: list[Token[State]] = []

    def after(self, before: State) -> State:
        """The state inside."""
        changes = self.changes
        only_mode = len(changes) == 1 and "grad" in changes
        return before.in_mode(changes["grad"]) if only_mode else before.with_changes(**changes)

    def again(self) -> Changed:
        """The same change, for another block: of a decorated function, in any thread."""
        made = object.__new__(type(self))
        made.changes, made.tokens = self.changes, []
        return made

    def __enter__(self) -> Any:
        before = STATE.get()
        after = self.after(before)
        try:
            token = STATE.set(after)
            self.tokens = [*self.tokens, token]
        except BaseException:  # Ctrl-C, after it was set
            STATE.set(before)
            raise

    @unheard
    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token = self.tokens[-1]
        del self.tokens[-1]  # no call, after which Ctrl-C might leave the state changed
        try:
            STATE.reset(token)
        except ValueError:  # a generator that ends in another context than it began in
            STATE.set(PROGRAM if token.old_value is Token.MISSING else token.old_value)

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return _stepwise(self, function)  # type: ignore[return-value]

        @functools.wraps(function)
        def inside(*args: object, **named: object) -> object:
            with self.again():
                return function(*args, **named)

        return inside  # type: ignore[return-value]


def _stepwise(
    change: Changed, function: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Any]:
    """A generator function under a change of state, which holds only while it runs."""

    @functools.wraps(function)
    def inside(*args: Any, **named: Any) -> Generator[Any, Any, Any]:
        with change.again():
            steps = function(*args, **named)
        send: Callable[[], Any] = functools.partial(next, steps)
        while True:
            try:
                with change.again():
                    item = send()
            except StopIteration as end:
                return end.value
            try:
                answer = yield item
                send = functools.partial(steps.send, answer)
            except GeneratorExit:
                with change.again():
                    steps.close()
                raise
            except BaseException as error:
                send = functools.partial(steps.throw, error)

    return inside


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

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return super().__call__(function)
        grad = self.grad

        @functools.wraps(function)
        def inside(*args: object, **named: object) -> object:
            before = STATE.get()
            try:  # not a `with` block, which makes an object
                STATE.set(before.in_mode(grad))
                return function(*args, **named)
            finally:
                STATE.set(before)

        return inside  # type: ignore[return-value]


class no_grad(_Mode):
    """Nothing is recorded for backward inside."""

    grad = False


class enable_grad(_Mode):
    """Recording is on inside, also within `no_grad`."""

    grad = True


class inference_mode(Changed):
    """Nothing is recorded inside, as in `no_grad`; with False, recording is on.

    `@inference_mode` decorates too.
    """

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

    at_once = False

    def __init__(self, mode: bool) -> None:
        super().__init__(grad=bool(mode))
        self.at_once = True  # the constructor switched it, and it was not used as a block yet
        super().__enter__()

    def __enter__(self) -> None:
        if not self.at_once:
            super().__enter__()
            return
        self.at_once = False
        STATE.set(STATE.get().in_mode(self.changes["grad"]))  # it may have been switched since

    def __call__(self, function: F) -> F:
        # As a decorator it switches inside the function only.
        if self.at_once:
            self.at_once = False
            super().__exit__(None, None, None)
        return super().__call__(function)


def is_inference(storage: Storage) -> bool:
    """Whether a storage was made in inference mode."""
    return storage.version < 0


def is_grad_enabled() -> bool:
    """Whether calls are recorded for backward."""
    return STATE.get().grad
