"""User functions (`Function`) under `vmap`: one example for the user, the batch on the record.

# Note [User functions under vmap]
1. The forward runs on batched values like any other code. The physical arguments, results and saves
   are recorded.
2. Backward may run after the `vmap` has ended: then levels of the same sizes are entered for it.
   Attributes that forward set on `ctx` otherwise than by `save_for_backward` belong to the ended
   levels and raise.
3. All results are batched at all levels of the call: only then is no incoming gradient a sum over
   examples already. The gradient of an argument that was not batched at a level is the sum over it.
4. A function with a static method `vmap(info, in_dims, *args)`, PyTorch's, defines its own batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, NamedTuple

from rushlight.core.cache import Cache
from rushlight.core.errors import RushlightError
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import (
    Level,
    Levels,
    joint_levels,
    levels_of,
    peel,
    physical_of,
    unpeel,
    wrap,
)


def is_dense(a: Any) -> bool:
    return isinstance(a, Value) and hasattr(a, "_memory")


def levels_in(values: Sequence[Any]) -> Levels:
    return joint_levels([v for v in values if is_dense(v)])


def whole(value: Any) -> Any:
    """The physical value of a batched value; anything else unchanged."""
    return physical_of(value) if is_dense(value) else value


class PerExample:
    """A function whose backward gets one example's gradients and saves."""

    def __init__(
        self, cls: Any, args: Sequence[Any], results: Sequence[Any], saved: Sequence[Any]
    ) -> None:
        self.cls = cls
        self.__name__, self.__doc__ = cls.__name__, cls.__doc__
        self._plans = Cache()  # of this call alone
        self.stack: Levels = STATE.get().batch
        self.joint = levels_in([*args, *results])
        self.ins, self.outs, self.saved = (
            [levels_of(v) if is_dense(v) else () for v in values]
            for values in (args, results, saved)
        )

    def backward(self, ctx: Any, *grads: Any) -> Any:
        state = STATE.get()
        alive = all(level.alive for level in self.stack)
        again = {level: level for level in self.stack}
        batch = state.batch or self.stack
        if not alive:
            depth = len(state.batch)
            again = {
                old: Level(depth + i, old.size, old.randomness)
                for i, old in enumerate(self.stack, 1)
            }
            batch = (*state.batch, *again.values())
        me = get_ident()
        kept = ctx._left.unpacked[me]
        try:
            with Changed(batch=batch):
                ctx._left.unpacked[me] = tuple(
                    _batched_again(v, ls, again) for v, ls in zip(kept, self.saved, strict=True)
                )
                found = self.cls.backward(
                    ctx,
                    *[_batched_again(g, ls, again) for g, ls in zip(grads, self.outs, strict=True)],
                )
                parts = tuple(found) if isinstance(found, (tuple, list)) else (found,)
                rest = parts[len(self.ins) :]
                return (
                    *[
                        _fitted(p, ls, self.joint, again)
                        for p, ls in zip(parts, self.ins, strict=False)
                    ],
                    *rest,
                )
        finally:
            ctx._left.unpacked[me] = kept
            if not alive:
                for level in again.values():
                    level.alive = False


def _batched_again(value: Any, levels: Levels, again: dict[Level, Level]) -> Any:
    return unpeel(value, tuple([again[level] for level in levels])) if is_dense(value) else value


def _fitted(part: Any, levels: Levels, joint: Levels, again: dict[Level, Level]) -> Any:
    """The physical gradient of an argument that is batched at `levels`. Rule 3."""
    if not is_dense(part):
        return part
    wanted = tuple([again[level] for level in levels])
    for level in joint:
        if again[level] not in wanted:
            part = Needed.sum_to(peel(part, (again[level],)), part._spec.shape)
    return peel(part, wanted)


def everywhere(results: Sequence[Any], args: Sequence[Any], dirty: Sequence[Any]) -> list[Any]:
    """The results at all levels of the call. Rule 3.

    An argument written in place stays the same object.
    """
    joint = levels_in([*args, *results])
    return [
        r
        if not is_dense(r) or levels_of(r) == joint or any(r is d for d in dirty)
        else wrap(Needed.spread(r, joint), joint)
        for r in results
    ]


# ---- a user's own batching rule ----


class Mapped(NamedTuple):
    """PyTorch's `info` argument of a function's own `vmap`."""

    batch_size: int
    randomness: str


def own_vmap(rule: Callable[..., Any], name: str, args: Sequence[Any]) -> Any:
    """`rule(info, in_dims, *args)` for the innermost level of the arguments.

    It returns (outputs, out_dims).
    """
    level = levels_in(args)[-1]
    mapped = [is_dense(a) and level in levels_of(a) for a in args]
    given = [peel(a, (level,)) if m else a for a, m in zip(args, mapped, strict=True)]
    outside = tuple([other for other in STATE.get().batch if other is not level])
    with Changed(batch=outside):
        made = rule(
            Mapped(level.size, level.randomness), tuple(0 if m else None for m in mapped), *given
        )
    if not isinstance(made, tuple) or len(made) != 2:
        raise RushlightError(
            f"{name}: its vmap must give (outputs, out_dims), got {type(made).__name__}"
        )
    outputs, dims = made
    if not isinstance(outputs, (tuple, list)):
        return _out(outputs, dims, level)
    places = dims if isinstance(dims, (tuple, list)) else (dims,) * len(outputs)
    return tuple(_out(v, d, level) for v, d in zip(outputs, places, strict=True))


def _out(value: Any, dim: int | None, level: Level) -> Any:
    if not is_dense(value) or dim is None:
        return value
    rank = len(value._spec.shape)
    first = dim % rank
    order = (first, *[i for i in range(rank) if i != first])
    return unpeel(value if first == 0 else Needed.permute(value, order), (level,))
