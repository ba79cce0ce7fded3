"""User functions (`Function`) of dual values: by their own `jvp`, or by their backward.

See Note [Dual values].
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Spec
from rushlight.tape.dual.values import DualLevel
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Leaf, Output, Value
from rushlight.tape.vmap.batched import wrap
from rushlight.tape.walk import roots


def has_tangents(level: DualLevel, args: Sequence[Any]) -> bool:
    return any(t is not None for t in _tangents(level, args))


def _tangents(level: DualLevel, args: Sequence[Any]) -> list[Value | None]:
    return [level.tangent_of(a) if _may_have(a) else None for a in args]


def _may_have(a: Any) -> bool:
    return isinstance(a, Value) and hasattr(a, "_memory") and a._spec.differentiable


def apply_to_duals(cls: Any, level: DualLevel, args: Sequence[Any], named: dict[str, Any]) -> Any:
    """`cls.apply`, and the tangents of its results."""
    recorded = STATE.get().grad and any(
        edge_of(a) is not None for a in args if isinstance(a, Value)
    )
    given = _tangents(level, args)
    with Changed(dual=None, grad=True, inference=False):
        inner = [a if t is None else _mark(a) for a, t in zip(args, given, strict=True)]
        made = cls.apply(*inner, **named)
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    places = [i for i, r in enumerate(results) if _may_have(r) and edge_of(r) is not None]
    outs = [results[i] for i in places]
    if outs:
        pairs = [(a, t) for a, t in zip(inner, given, strict=True) if t is not None]
        own = getattr(cls, "jvp", None)
        found = (
            _by_backward(outs, pairs)
            if own is None
            else _by_jvp(cls, outs[0], args, given, places, len(results))
        )
        for i, tangent in zip(places, found, strict=True):
            if not recorded:
                results[i] = call.detached(results[i])
            if tangent is not None:
                level.attach(results[i], tangent)
    return type(made)(results) if isinstance(made, (tuple, list)) else results[0]


def _mark(a: Value) -> Value:
    """The argument with a record of its own."""
    if edge_of(a) is not None:
        return Needed.permute(a, tuple(range(len(a._spec.shape))))
    inner = call.detached(a)
    inner._node = Leaf(inner)
    return inner


def _by_backward(outs: list[Value], pairs: list[tuple[Value, Value]]) -> Sequence[Value | None]:
    state = STATE.get()
    tangents = [t for _, t in pairs]
    create = state.grad and any(edge_of(v) is not None for v in tangents)
    create = create or (state.grad and any(type(edge_of(a)) is not Leaf for a, _ in pairs))
    with Changed(dual=None, grad=True, inference=False):
        seeds = [_seed(out) for out in outs]
        pulled = roots.grad(
            outs, [a for a, _ in pairs], seeds, create_graph=True, allow_unused=True
        )
        live = [
            (p, t)
            for p, t in zip(pulled, tangents, strict=True)
            if p is not None and edge_of(p) is not None
        ]
        if not live:
            return [Needed.full(s._spec, 0.0) for s in seeds]
        parts, ways = [p for p, _ in live], [t for _, t in live]
        return roots.grad(parts, seeds, ways, create_graph=create, materialize_grads=True)


def _seed(out: Value) -> Value:
    """Zeros to differentiate by, batched where the result is."""
    if out._spec.hidden:
        seed = wrap(_seed(out.physical), out.levels)  # type: ignore[attr-defined]
        return seed
    spec = out._spec
    seed = Needed.full(Spec.of(spec.device, spec.dtype, spec.shape), 0.0)
    seed._node = Leaf(seed)
    return seed


def _by_jvp(
    cls: Any,
    out: Value,
    args: Sequence[Any],
    given: Sequence[Value | None],
    places: Sequence[int],
    count: int,
) -> Sequence[Value | None]:
    """The results of the user's `jvp(ctx, *tangents)`, for the results at `places`."""
    edge = edge_of(out)
    node: Any = edge.node if type(edge) is Output else edge
    ctx = node.context
    left, me = ctx._left, get_ident()
    tangents = [
        Needed.full(a._spec, 0.0) if t is None and left.materialize and _may_have(a) else t
        for a, t in zip(args, given, strict=True)
    ]
    left.unpacked[me] = left.forward
    try:
        with Changed(dual=None):
            found = cls.jvp(ctx, *tangents)
    finally:
        left.unpacked.pop(me, None)
    found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(found) != count:
        raise RushlightError(
            f"{cls.__name__}: jvp gave {len(found)} tangents for {count} results of forward"
        )
    for i in places:
        if found[i] is not None and not _may_have(found[i]):
            raise TypeError(
                f"{cls.__name__}: jvp gave a {type(found[i]).__name__} as tangent of result {i}"
            )
    return [found[i] for i in places]
