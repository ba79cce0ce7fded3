"""Gradient checkpointing by replay: the user's function runs once.

Its interior is dropped and rebuilt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar

from rushlight.accelerator import current_accelerator
from rushlight.core.errors import ExactnessError
from rushlight.lazy import shown
from rushlight.tape.memory.checkpoint import Checkpoint
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value
from rushlight.tensor import Tensor
from rushlight.utils.selective import (
    SAC_IGNORED_OPS as SAC_IGNORED_OPS,
    CheckpointPolicy as CheckpointPolicy,
    SelectiveCheckpointContext as SelectiveCheckpointContext,
    create_selective_checkpoint_contexts as create_selective_checkpoint_contexts,
)

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "is_checkpointing",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

# Raised by a replay whose bits differ; a replay cannot make other shapes or dtypes.
CheckpointError = ExactnessError

_CHECKS = ("default", "none", "bits")
_DEBUG: ContextVar[bool | None] = ContextVar("rushlight_checkpoint_debug", default=None)
_GROUP: ContextVar[Any] = ContextVar("rushlight_graph_exec_group", default=None)


def __dir__() -> list[str]:
    return shown(__name__)


def _tensors(thing: Any) -> Iterator[Value]:
    """The tensors in any nesting of tuples, lists, sets, dicts and dataclasses."""
    stack = [thing]
    while stack:
        item = stack.pop()
        if isinstance(item, Value):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple, set)):
            stack.extend(item)
        elif dataclasses.is_dataclass(item) and not isinstance(item, type):
            stack.extend(getattr(item, field.name) for field in dataclasses.fields(item))


def is_checkpointing() -> bool:
    """Whether the running code is the function of a checkpoint, whose interior may be dropped.

    It is never true in backward: a replay runs kernels and no user code, so there is no second run
    of the function to ask in.
    """
    region = STATE.get().region
    while region is not None and not isinstance(region, Checkpoint):
        region = region.outer
    return region is not None


def noop_context_fn() -> tuple[Any, Any]:
    """The default `context_fn`: two blocks that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **named: Any,
) -> Any:
    """`function(*args)` without keeping its interior: that is rebuilt when backward needs it.

    The function itself runs once, so prints, hooks and statistics happen once; dropout masks and
    autocast decisions are in the record and repeat exactly.

    `context_fn` gives a block for the run and one for recomputing; the latter is not entered,
    because no user code runs again. See `create_selective_checkpoint_contexts`.

    `determinism_check="bits"` compares every value that a replay makes with a digest of its first
    bits, and raises ExactnessError with the op, its line and its module. "default" compares
    PyTorch's metadata, which a replay cannot change: it does what "none" does.

    With `debug` an error of a replay lists the calls of the checkpoint. PyTorch's other arguments
    are accepted for compatibility: a replay runs only what is needed (`early_stop`), with the
    random numbers of the first run (`preserve_rng_state`), in all kinds of passes
    (`use_reentrant`).
    """
    if determinism_check not in _CHECKS:
        raise ValueError(
            f"checkpoint: determinism_check is one of {', '.join(map(repr, _CHECKS))}, "
            f"got {determinism_check!r}"
        )
    asked = _DEBUG.get()
    debug = debug if asked is None else asked
    if debug and context_fn is not noop_context_fn:
        raise ValueError("checkpoint: debug=True takes no context_fn of your own")
    if STATE.get().dual is not None:  # Note [Dual values] 5
        return function(*args, **named)
    region = Checkpoint(checks_bits=determinism_check == "bits", debug=debug)
    block, _ = context_fn() if STATE.get().grad else noop_context_fn()
    try:
        with Changed(region=region, saving=None), block:  # Note [Saved tensor hooks] 7
            result = function(*args, **named)
        region.close({tensor._memory for tensor in _tensors(result)})
    except BaseException:
        region.give_up()
        raise
    return result


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Accepted for compatibility: replay rebuilds only what is needed in any case."""
    yield


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """A block that overrides the `debug` of checkpoints inside; None overrides nothing."""
    before = _DEBUG.set(enabled)
    try:
        yield
    finally:
        _DEBUG.reset(before)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Run a chain of functions, checkpointing it in `segments` parts; the last part is kept."""
    steps: Sequence[Callable[..., Any]] = list(functions)
    if segments < 1:
        raise ValueError(f"checkpoint_sequential: at least one segment is needed, got {segments}")
    size = max(1, len(steps) // segments)

    def run(start: int, stop: int) -> Callable[[Any], Any]:
        def part(x: Any) -> Any:
            for step in steps[start:stop]:
                x = step(x)
            return x

        return part

    at = 0
    for _ in range(segments - 1):
        input = checkpoint(run(at, at + size), input)
        at += size
    return run(at, len(steps))(input)


class GraphExecGroup:
    """A block whose backward passes rebuild each checkpoint at most once between them.

    That holds outside of it too: what a pass rebuilt stays until its node has run.
    """

    def __enter__(self) -> GraphExecGroup:
        if _GROUP.get() is not None:
            raise RuntimeError("GraphExecGroup: one is entered already, and they do not nest")
        self._before = _GROUP.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _GROUP.reset(self._before)


class DefaultDeviceType:
    """The device whose random state PyTorch's checkpoint saves; a replay needs none."""

    _device: ClassVar[str | None] = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        DefaultDeviceType._device = device

    @staticmethod
    def get_device_type() -> str:
        """What was set, else the accelerator, else "cpu"."""
        if DefaultDeviceType._device is None:
            found = current_accelerator()
            DefaultDeviceType._device = "cpu" if found is None else found.type
        return DefaultDeviceType._device


class CheckpointFunction:
    """`CheckpointFunction.apply(function, preserve_rng_state, *args)` is a checkpoint."""

    @staticmethod
    def apply(run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        return checkpoint(run_function, *args, preserve_rng_state=preserve_rng_state)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """No devices and no states: one random stream serves all of them (`get_rng_state`)."""
    return [], []


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Restore what `get_device_states` gave: nothing."""


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, with tensors as leaves that require gradients where they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"detach_variable: takes a tuple, got {type(inputs).__name__}")
    return tuple(
        [x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs]
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no input requires gradients."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("no input requires gradients: none will be computed", stacklevel=2)
