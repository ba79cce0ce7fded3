"""Gradient checkpointing by replay: the user's function runs once.

Its interior is dropped and rebuilt.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rushlight.lazy import shown
from rushlight.tape.memory.checkpoint import Checkpoint
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value

__all__ = ["checkpoint", "checkpoint_sequential", "is_checkpointing", "set_checkpoint_early_stop"]

_CHECKS = ("default", "none", "bits")


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
    """Whether the call is inside a checkpoint, whose interior may be dropped and rebuilt."""
    region = STATE.get().region
    while region is not None and not isinstance(region, Checkpoint):
        region = region.outer
    return region is not None


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **named: Any,
) -> Any:
    """`function(*args)` without keeping its interior: that is rebuilt when backward needs it.

    The function itself runs once, so prints, hooks and statistics happen once; dropout masks and
    autocast decisions are in the record and repeat exactly. `context_fn` gives a block for the run
    and one for recomputing; the latter is not entered, because no user code runs again. PyTorch's
    other arguments are accepted for compatibility: replay needs none of them.
    """
    if STATE.get().dual is not None:  # Note [Dual values] 5
        return function(*args, **named)
    if determinism_check not in _CHECKS:
        raise ValueError(
            f"checkpoint: determinism_check is one of {', '.join(map(repr, _CHECKS))}, "
            f"got {determinism_check!r}"
        )
    region = Checkpoint(checks_bits=determinism_check == "bits")
    block = contextlib.nullcontext() if context_fn is None else context_fn()[0]
    try:
        with Changed(region=region, saving=None), block:  # Note [Saved tensor hooks] 7
            result = function(*args, **named)
    except BaseException:
        region.give_up()
        raise
    region.close({tensor._memory for tensor in _tensors(result)})
    return result


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Accepted for compatibility: replay rebuilds only what is needed in any case."""
    yield


def checkpoint_sequential(functions: Any, segments: int, input: Any, **named: Any) -> Any:
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
