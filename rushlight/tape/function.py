"""Functions whose derivative the user writes: PyTorch's `torch.autograd.Function`.

# Note [User functions]
1. The forward runs where nothing is recorded; its results get one node, whose derivative calls the user's backward.
2. What is saved with `save_for_backward` is saved by the node like any op's saves: its version is checked, a region may drop
   and rebuild it, and it is given back when the node has run. The saved come behind the inputs in the node's plan.
3. A result that is saved is saved without its record, because a node never refers to its own results; in backward it gets
   the record again.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from rushlight.core.errors import (
    DeviceError,
    DTypeError,
    InplaceError,
    LayoutError,
    NotDifferentiable,
    RushlightError,
    ShapeError,
)
from rushlight.tape import call
from rushlight.tape.batching import levels_of, wrap
from rushlight.tape.hooks import follow
from rushlight.tape.needed import Needed, edge_of
from rushlight.tape.op import Grad, Op, Plan, never
from rushlight.tape.per_example import PerExample, everywhere, levels_in, own_vmap, whole
from rushlight.tape.shown import FunctionNode, result_again
from rushlight.tape.state import STATE, Changed
from rushlight.tape.value import Leaf, Node, Output, Value, history_of


class Context:
    """What forward leaves for backward: tensors by `save_for_backward`, anything else as attributes."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.materialize = True
        self.to_save: tuple[Any, ...] = ()
        self.aside: dict[int, Value] = {}  # the saved that have no storage: sparse tensors, kept as they are
        self.dirty: tuple[Value, ...] = ()
        self.constant: tuple[Value, ...] = ()
        # The saved tensors, per thread that is in backward: several may be, on one retained graph.
        self.unpacked: dict[int, tuple[Any, ...]] = {}
        self.order: tuple[bool, ...] = ()  # per saved tensor: whether the record has it
        self.own: dict[int, int] = {}  # which of those are results, by their number among the results
        self.record: Callable[[], Any] = lambda: None  # weakly: the record knows this

    def save_for_backward(self, *tensors: Value | None) -> None:
        """Keep tensors, inputs or results, for backward."""
        self.aside = {i: v for i, v in enumerate(tensors) if isinstance(v, Value) and not _has_storage(v)}
        self.to_save = tuple(None if i in self.aside else v for i, v in enumerate(tensors))

    def mark_dirty(self, *args: Value) -> None:
        """Say which inputs the forward wrote into; they must be among the results."""
        self.dirty = args

    def mark_non_differentiable(self, *args: Value) -> None:
        """Say which results have no gradient."""
        self.constant = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients that do not come are zeros (the default) or None."""
        self.materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        found = self.unpacked.get(get_ident())
        if found is not None:
            return found
        node = self.record()
        if node is None:
            raise RushlightError("saved_tensors: there is no record; ask in backward, or while a result is held")
        return tuple(node.saved_tensors)

    def ordered(self, saved: Sequence[Value], node: Node) -> tuple[Any, ...]:
        """What the record saved, as `save_for_backward` was given it."""
        values = list(saved)
        for j, result in self.own.items():
            values[j] = result_again(node, values[j], result, len(node.plan.outs) == 1)
        parts = iter(values)
        return tuple(next(parts) if there else self.aside.get(i) for i, there in enumerate(self.order))


class Function:
    """A function with a derivative of its own: static methods `forward` and `backward`, called by `apply`."""

    @staticmethod
    def forward(*args: Any, **named: Any) -> Any:
        """forward(ctx, *args), or forward(*args) where there is a `setup_context`."""
        raise NotImplementedError("Function: write a static method forward(ctx, ...)")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """What to keep for backward, where forward takes no ctx."""
        raise NotImplementedError("Function: setup_context is not written")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradient of each argument of forward, None for those that have none."""
        raise NotImplementedError("Function: write a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward and record it."""
        batched = bool(STATE.get().batch) and bool(levels_in(args))
        own = getattr(cls, "vmap", None)
        if batched and own is not None:
            return own_vmap(own, cls.__name__, args)
        edges = [edge_of(a) if isinstance(a, Value) else None for a in args]
        ctx = Context(tuple(edge is not None for edge in edges))
        for a in args:
            if isinstance(a, Value) and not _has_storage(a) and a.requires_grad:  # type: ignore[attr-defined]
                raise LayoutError(
                    f"{cls.__name__}: a sparse argument cannot require gradients; pass indices and values"
                )
        versions = {id(a): a.storage.version for a in args if _has_storage(a)}
        with Changed(grad=False):
            if cls.setup_context is not Function.setup_context:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
        several = isinstance(result, (tuple, list))
        results = tuple(result) if several else (result,)
        for a in args:
            written = id(a) in versions and versions[id(a)] != a.storage.version
            if written and not any(a is d for d in ctx.dirty):
                raise InplaceError(f"{cls.__name__}: forward wrote into an input; say so with ctx.mark_dirty(...)")
        if STATE.get().grad and any(edge is not None for edge in edges):
            record = _recorded_batch if batched else _recorded
            results = record(cls, ctx, args, edges, results)
        ctx.to_save = ()
        return results if several else results[0]


def _has_storage(a: Any) -> bool:
    """Whether it is a tensor with memory of its own; a sparse one has none. See Note [Sparse operands]."""
    return isinstance(a, Value) and hasattr(a, "storage")


def _fresh_handle(value: Value) -> Value:
    """A handle that may get a record without giving it to the input it was."""
    return call.rooted(call.make_value(value.spec, value.storage, value.offset))


def _recorded(
    cls: type[Function], ctx: Context, args: tuple[Any, ...], edges: Sequence[Any], results: tuple[Any, ...]
) -> tuple[Any, ...]:
    places = [i for i, a in enumerate(args) if _has_storage(a)]
    inputs = [args[i] for i in places]
    kept = [v for v in ctx.to_save if v is not None]
    own = {j: n for j, v in enumerate(kept) for n, r in enumerate(results) if v is r and not _is(v, inputs)}
    values = [v for v in results if isinstance(v, Value)]
    saved = tuple(  # rooted: one that is nobody's view must start where its storage does
        call.rooted(call.make_value(v.spec, v.storage, v.offset, None if j in own else v.node))
        for j, v in enumerate(kept)
    )
    ins = [v.spec for v in inputs] + [v.spec for v in saved]
    op = Op(cls.__name__, cls.__doc__ or "")
    op.inputs = len(inputs)
    plan = Plan(op, ins, [v.spec for v in values], never)
    node = call.new(FunctionNode)
    node.context, ctx.record = ctx, weakref.ref(node)
    ctx.order, ctx.own = tuple(v is not None for v in ctx.to_save), own
    node.plan, node.params = plan, ()
    node.edges = (*[edges[i] for i in places], *[None] * len(saved))
    node.saved = saved
    node.version = sum(v.storage.version for v in saved)
    if node.version < 0:
        call.refuse_save(op.name, saved)
    node.outs = ()
    node.hooks = node.dropped = None
    call.mark(node, call.get_frame(1))
    given: list[Any] = []
    for value in results:
        if not isinstance(value, Value):
            given.append(value)
            continue
        dirty = _is(value, ctx.dirty)
        handle = value if dirty or not _is(value, inputs) else _fresh_handle(value)
        if dirty:
            _check_dirty(cls, value)
            handle.history = history_of(handle) + 1
        if value.spec.differentiable and not _is(value, ctx.constant):
            handle.node = Output(node, len([g for g in given if isinstance(g, Value)])) if len(values) > 1 else node
        if dirty:
            follow(handle)
        given.append(handle)
    rule = _rule(cls, ctx, places, len(args))
    needs = sum(1 << k for k, i in enumerate(places) if edges[i] is not None)
    node.grad = Grad(needs, tuple(range(len(inputs), len(ins))), (), rule)
    call.settle(node, STATE.get())
    return tuple(given)


def _recorded_batch(
    cls: type[Function], ctx: Context, args: tuple[Any, ...], edges: Sequence[Any], results: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The same inside `vmap`. See Note [User functions under vmap]."""
    spread = everywhere(results, args, ctx.dirty)
    given = {id(old): new for old, new in zip(results, spread, strict=True)}
    ctx.to_save, ctx.constant = (tuple(given.get(id(v), v) for v in values) for values in (ctx.to_save, ctx.constant))
    results = tuple(spread)
    seen: Any = PerExample(cls, args, results, ctx.to_save)
    levels = [levels_of(r) if _has_storage(r) else () for r in results]
    ctx.to_save = tuple(map(whole, ctx.to_save))
    ctx.dirty, ctx.constant = tuple(map(whole, ctx.dirty)), tuple(map(whole, ctx.constant))
    made = _recorded(seen, ctx, tuple(map(whole, args)), edges, tuple(map(whole, results)))
    return tuple(
        old if new is whole(old) else wrap(new, own) for old, new, own in zip(results, made, levels, strict=True)
    )


def _is(value: Value, among: Sequence[Any]) -> bool:
    return any(value is other for other in among)


def _check_dirty(cls: type[Function], value: Value) -> None:
    if type(value.node) is Leaf or value.base is not None:
        raise InplaceError(f"{cls.__name__}: a leaf that requires gradients, or a view, is written to in place")


def _rule(
    cls: type[Function],
    ctx: Context,
    places: Sequence[int],
    count: int,
) -> Callable[..., Any]:
    def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
        n = len(places)
        outs = values[len(values) - len(grads) :]
        if ctx.materialize:
            grads = [Needed.full(out.spec, 0) if g is None else g for g, out in zip(grads, outs, strict=True)]
        saved = values[n : len(values) - len(grads)]
        me = get_ident()
        ctx.unpacked[me] = ctx.ordered(saved, ctx.record())
        try:
            found = cls.backward(ctx, *grads)
        finally:
            ctx.unpacked.pop(me, None)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) < count or any(v is not None for v in found[count:]):
            raise RushlightError(
                f"{cls.__name__}: backward gave {len(found)} gradients for {count} arguments of forward"
            )
        checked = [_checked(cls, i, found[i], values[k].spec) for k, i in enumerate(places)]
        return [*checked, *[None] * len(saved)]

    return rule


def _checked(cls: type[Function], i: int, part: Any, spec: Any) -> Any:
    """A gradient that the user's backward gave for argument `i`: one that can be that argument's."""
    if part is None:
        return None
    wrong = f"{cls.__name__}: backward gave, for argument {i} of forward,"
    if not _has_storage(part):
        raise TypeError(f"{wrong} a {type(part).__name__}; give a tensor or None")
    if part.spec.device is not spec.device:
        raise DeviceError(f"{wrong} a gradient on another device: {part.spec!r} for {spec!r}")
    if part.spec.dtype.kind == "c" and spec.dtype.kind != "c":
        raise DTypeError(f"{wrong} a complex gradient {part.spec!r} for {spec!r}; give its .real")
    given, wanted = part.spec.shape, spec.shape
    extra = len(given) - len(wanted)
    if extra < 0 or any(n != m and m != 1 for n, m in zip(given[extra:], wanted, strict=True)):
        raise ShapeError(f"{wrong} a gradient {part.spec!r}, whose shape does not fit {spec!r}")
    return _shared(part)


def _shared(part: Any) -> Any:
    """The user's tensor as a view of itself: the walk must not add into memory that it does not own."""
    if part is None or part.spec.hidden:  # batched gradients are never added up in place
        return part
    seen = call.make_value(part.spec, part.storage, part.offset, edge_of(part))
    seen.base = part if part.base is None else part.base
    seen.history = history_of(seen.base)
    return seen


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of a backward: nothing is recorded inside, and a gradient through its results raises NotDifferentiable."""

    @functools.wraps(function)
    def called(ctx: Any, *grads: Any) -> Any:
        with Changed(grad=False):
            found = function(ctx, *grads)
        sources = [v for v in (*grads, *ctx.saved_tensors) if _has_storage(v) and edge_of(v) is not None]
        if not sources or not STATE.get().grad:
            return found
        name = function.__qualname__
        if isinstance(found, (tuple, list)):
            return tuple(_guarded(name, v, sources) for v in found)
        return _guarded(name, found, sources)

    return called


def _guarded(name: str, value: Any, sources: Sequence[Value]) -> Any:
    """The value with a record that refuses to be differentiated: without one it would count as a constant."""
    if not isinstance(value, Value) or not value.spec.differentiable:
        return value
    if value.spec.hidden or any(v.spec.hidden for v in sources):
        return wrap(_guarded(name, whole(value), [whole(v) for v in sources]), levels_of(value))
    op = Op(name, "A backward that is differentiable once.")
    plan = Plan(op, [v.spec for v in sources], [value.spec], never)
    node = call.new(Node)
    node.plan, node.params, node.saved, node.outs, node.version = plan, (), (), (), 0
    node.edges = tuple(edge_of(v) for v in sources)
    node.hooks = node.dropped = None
    node.grad = Grad((1 << len(sources)) - 1, (), (), functools.partial(_refuse, name))
    call.mark(node, call.get_frame(1))
    made = _fresh_handle(value)
    made.node = node
    return made


def _refuse(name: str, grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> Any:
    raise NotDifferentiable(
        f"{name}: a gradient is asked through a backward that is marked once_differentiable; write it with ops and without "
        f"the mark, or take no second derivative through it"
    )
