"""Functions with a user's derivative: PyTorch's `torch.autograd.Function`.

# Note [User functions]
1. The forward runs where nothing is recorded; its results get one node, whose derivative calls the
   user's backward.
2. Tensors of `save_for_backward` are saved by the node like any op's saves: their versions are
   checked, a region may drop and rebuild them, and they are freed when the node has run. They come
   after the inputs in the node's plan.
3. A saved result is saved without its record, because a node never refers to its own results; in
   backward it gets the record again.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from threading import get_ident
from types import MappingProxyType
from typing import Any, ClassVar

from rushlight.core.cache import Cache
from rushlight.core.errors import (
    DeviceError,
    DTypeError,
    InplaceError,
    KindError,
    LayoutError,
    NotDifferentiable,
    RushlightError,
    ShapeError,
)
from rushlight.core.shapes import Spec
from rushlight.tape.dual.function import apply_to_duals, has_tangents
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.op import Grad, Op, Plan, never
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Leaf, Node, Output, Value, history_of
from rushlight.tape.record.written import are_hidden
from rushlight.tape.vmap.batched import levels_of, wrap
from rushlight.tape.vmap.function import PerExample, everywhere, levels_in, own_vmap, whole
from rushlight.tape.walk.shown import FunctionNode, result_again

_NONE: Mapping[int, Any] = MappingProxyType({})
_NOTHING: frozenset[int] = frozenset()


def _no_record() -> None:
    return None


class _Left:
    """The settings of a context by forward, without the user's own attributes."""

    __slots__ = (
        "aside",  # saved tensors without a storage: sparse tensors
        "constant",
        "dirty",
        "forward",  # kept for the user's `jvp`
        "materialize",
        "order",  # per saved tensor: whether the record has it
        "own",  # indices of those that are results, among the results
        "record",  # weakly: the record refers to this
        "saves",
        # The saved tensors, per thread in backward: several may run on one retained graph.
        "unpacked",
        "written",  # indices of the results that are arguments written to in place
    )

    aside: Mapping[int, Value]
    constant: tuple[Any, ...]
    dirty: tuple[Any, ...]
    forward: tuple[Any, ...]
    materialize: bool
    order: tuple[bool, ...]
    own: Mapping[int, int]
    record: Callable[[], Any]
    saves: tuple[Any, ...]
    unpacked: dict[int, tuple[Any, ...]]
    written: frozenset[int]

    def ordered(self, saved: Sequence[Value]) -> tuple[Any, ...]:
        """The tensors given to `save_for_backward`."""
        if not self.own and not self.aside and len(saved) == len(self.order):
            return tuple(saved)
        values, node = list(saved), self.record()
        for j, result in self.own.items():
            values[j] = result_again(node, values[j], result, len(node.plan.outs) == 1)
        parts = iter(values)
        return tuple(
            next(parts) if there else self.aside.get(i) for i, there in enumerate(self.order)
        )


class Context:
    """Forward's context for backward: tensors by `save_for_backward`, others as attributes."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        left = self._left = call.new(_Left)
        left.materialize = True
        left.saves = left.forward = left.dirty = left.constant = left.order = ()
        left.aside = left.own = _NONE
        left.written = _NOTHING
        left.record = _no_record
        left.unpacked = {}

    def save_for_backward(self, *tensors: Value | None) -> None:
        """Keep tensors, inputs or results, for backward."""
        handle, left = call.Handle, self._left
        for v in tensors:
            if v.__class__ is not handle and not _has_storage(v):
                break
        else:
            left.saves = tensors
            if left.aside:
                left.aside = _NONE
            return
        _only_tensors("save_for_backward", [v for v in tensors if v is not None])
        left.aside = {
            i: v for i, v in enumerate(tensors) if isinstance(v, Value) and not _has_storage(v)
        }
        left.saves = tuple(None if i in left.aside else v for i, v in enumerate(tensors))

    def save_for_forward(self, *tensors: Value | None) -> None:
        """Keep tensors for the function's own `jvp`; without one, forward mode uses backward."""
        _only_tensors("save_for_forward", [v for v in tensors if v is not None])
        self._left.forward = tensors

    def mark_dirty(self, *args: Value) -> None:
        """Declare the inputs that forward wrote into; they must be among the results."""
        _only_tensors("mark_dirty", args)
        self._left.dirty = args

    def mark_non_differentiable(self, *args: Value) -> None:
        """Declare the results that have no gradient."""
        _only_tensors("mark_non_differentiable", args)
        self._left.constant = args

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether missing gradients are zeros (the default) or None."""
        self._left.materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        left = self._left
        found = left.unpacked.get(get_ident())
        if found is not None:
            return found
        node = left.record()
        if node is None:
            raise RushlightError(
                "saved_tensors: there is no record; ask in backward, or while a result is held"
            )
        return tuple(node.saved_tensors)


def _only_tensors(method: str, given: Sequence[Any]) -> None:
    for i, value in enumerate(given):
        if not isinstance(value, Value):
            raise KindError(
                f"{method}: takes tensors, got {type(value).__name__} at {i}; put it on ctx as an "
                "attribute"
            )


class Function:
    """A function with its own derivative: static methods `forward` and `backward`.

    It is called by `apply`.
    """

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        own = vars(cls)
        if "vjp" in own:  # PyTorch's other name of backward
            cls.backward = staticmethod(_refuse_both if ("backward") in own else cls.vjp)  # type: ignore[method-assign]
        cls._plans = Cache()

    _plans: ClassVar[Cache] = Cache()  # descriptions of calls, by operands and results

    @staticmethod
    def forward(*args: Any, **named: Any) -> Any:
        """forward(ctx, *args), or forward(*args) where there is a `setup_context`."""
        raise NotImplementedError("Function: write a static method forward(ctx, ...)")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Set up the context, where forward takes no ctx."""
        raise NotImplementedError("Function: setup_context is not written")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradient of each argument of forward, None for those that have none."""
        raise NotImplementedError("Function: write a static method backward(ctx, ...)")

    vjp = backward

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise RushlightError(
            f"{type(self).__name__}: a function has no instances; call "
            f"{type(self).__name__}.apply(...)"
        )

    @classmethod
    def apply(cls, *args: Any, **named: Any) -> Any:
        """Run forward and record it. Gradients are of the positional arguments.

        With `setup_context`, arguments by name count as those.
        """
        apart = cls.setup_context is not _NO_SETUP
        if apart:
            bound = inspect.signature(cls.forward).bind(*args, **named)
            bound.apply_defaults()
            args, named = bound.args, bound.kwargs
        if named:
            _check_named(cls.__name__, named)
        state = STATE.get()
        batched = False
        if state.special:
            dual = state.dual
            if dual is not None and has_tangents(dual, args):
                return apply_to_duals(cls, dual, args, named)
            batched = bool(state.batch) and bool(levels_in(args))
            own = getattr(cls, "vmap", None)
            if batched and own is not None:
                return own_vmap(own, cls.__name__, args)
        handle = call.Handle
        edges: list[Any] = []
        needs: list[bool] = []
        versions: list[int | None] = []
        for a in args:
            edge = version = None
            if a.__class__ is handle or isinstance(a, Value):
                edge = a._node if a._base is None else edge_of(a)
                if a.__class__ is handle or hasattr(a, "_memory"):
                    version = a._memory.version
                elif a.requires_grad:  # type: ignore[attr-defined]
                    raise LayoutError(
                        f"{cls.__name__}: a sparse argument cannot require gradients; pass indices "
                        "and values"
                    )
            edges.append(edge)
            needs.append(edge is not None)
            versions.append(version)
        ctx = Context(tuple(needs))
        left = ctx._left
        try:  # not `Changed`: Ctrl-C on the way in or out must not leave the mode changed
            STATE.set(state.in_mode(False))
            if apart:
                result = cls.forward(*args, **named)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **named)
        finally:
            STATE.set(state)
        several = isinstance(result, (tuple, list))
        results = tuple(result) if several else (result,)
        for a, version in zip(args, versions):  # noqa: B905 (they are as many)
            if version is not None and a._memory.version != version:
                _check_write(cls.__name__, left, a, version)
        if left.dirty:
            _check_returned(cls.__name__, left, results)
        if state.grad and True in needs and True in map(_has_storage, results):
            record = _recorded_batch if batched else _recorded
            given = record(cls, ctx, args, edges, results)
            # A result must not be held by its own record.
            left.saves = left.dirty = left.constant = ()
        else:
            given = [_handed_back(r) if _is_passed(r, args, left) else r for r in results]
        if several:
            return given if isinstance(result, list) else tuple(given)
        return given[0]


_NO_SETUP = Function.setup_context


def _check_named(function: str, named: Mapping[str, Any]) -> None:
    for name, a in named.items():
        if isinstance(a, Value) and edge_of(a) is not None:
            raise RushlightError(f"{function}: {name}= requires gradients; give it by position")


def _refuse_both(*_: Any) -> Any:
    raise RushlightError(
        "Function: backward and vjp are two names of one method; write one of them"
    )


def _check_write(name: str, left: _Left, a: Value, version: int) -> None:
    """Refuse a write of forward into an argument that it did not declare."""
    if not are_hidden(a._memory.version - version) and not _is(a, left.dirty):
        raise InplaceError(f"{name}: forward wrote into an input; say so with ctx.mark_dirty(...)")


def _check_returned(name: str, left: _Left, results: Sequence[Any]) -> None:
    for a in left.dirty:
        if not _is(a, results):
            raise InplaceError(
                f"{name}: {a._spec!r} is marked dirty and is not among the results; forward must "
                "return what it wrote into"
            )


def _has_storage(a: Any) -> bool:
    """Whether it is a tensor with its own memory; a sparse one has none.

    See Note [Sparse operands].
    """
    return isinstance(a, Value) and hasattr(a, "_memory")


def _is_passed(value: Any, args: Sequence[Any], left: _Left) -> bool:
    """Whether a result is an argument itself."""
    return _has_storage(value) and _is(value, args) and not _is(value, left.dirty)


def _handed_back(value: Value) -> Value:
    """An argument as a result: a view of it, so that the record and writes refer to that memory."""
    if value._spec.hidden:
        return wrap(_handed_back(whole(value)), levels_of(value))
    return call.make_view(value, value._spec, value._offset)


def _fresh_handle(value: Value) -> Value:
    """A new handle, which may get a record without changing the given one."""
    return call.rooted(call.make_value(value._spec, value._memory, value._offset))


def _recorded(
    cls: type[Function],
    ctx: Context,
    args: tuple[Any, ...],
    edges: Sequence[Any],
    results: tuple[Any, ...],
) -> list[Any]:
    left, handle = ctx._left, call.Handle
    key: list[Any] = []
    for a, edge in zip(args, edges):  # noqa: B905 (they are as many)
        key.append(a._spec if a.__class__ is handle else _spec_of(a))
        key.append(edge is not None)
    key.append(...)
    node = call.new(FunctionNode)
    saved: list[Value] = []
    version = 0
    for v in left.saves:
        if v is None:
            key.append(None)
            continue
        spec, memory, offset, edge = v._spec, v._memory, v._offset, v._node
        key.append(spec)
        for r in results:
            if v is r and not _is_passed(v, args, left):
                edge = None
                left.own = {**left.own, len(saved): _place(v, results)}
        value = call.make_value(spec, memory, offset, edge)
        # Rooted: a value without a base must start at its storage's start.
        saved.append(value if not offset and spec.dense else call.rooted(value))
        version += memory.version
    key.append(...)
    for r in results:
        key.append(r._spec if r.__class__ is handle or isinstance(r, Value) else None)
    kind: _Kind | None = cls._plans.get(kinds := tuple(key))
    if kind is None:
        kind = cls._plans.keep(kinds, _Kind(cls, key))
    plan = kind.plan
    node.context, left.record, left.order = ctx, weakref.ref(node), kind.order
    node.plan, node.params, node.grad = plan, (ctx,), kind.grad
    if kind.whole:
        node.edges = (*edges, *kind.unlinked)
    else:
        node.edges = (*[edges[i] for i in kind.places], *kind.unlinked)
    node.saved = tuple(saved)
    node.version = version
    if version < 0:
        call.refuse_save(cls.__name__, saved)
    node.outs = ()
    node.hooks = node.dropped = None
    call.mark(node, 3)
    if kind.plain and not (left.dirty or left.constant or _is(results[0], args)):
        results[0]._node = node
        given = [results[0]]
    else:
        given = _with_records(cls, left, node, args, results, len(plan.outs))
    state = STATE.get()
    if state.special:
        call.announce(node, state)
    return given


def _spec_of(given: Any) -> Any:
    """What a description of calls knows of an argument; None of what is no tensor."""
    if not isinstance(given, Value):
        return None
    return given._spec if hasattr(given, "_memory") else _SPARSE


_SPARSE = object()


def _place(value: Value, results: Sequence[Any]) -> int:
    """The number of a result among those that are tensors."""
    tensors = [r for r in results if isinstance(r, Value)]
    return next(n for n, r in enumerate(tensors) if r is value)


def _with_records(
    cls: type[Function],
    left: _Left,
    node: Node,
    inputs: Sequence[Any],
    results: Sequence[Any],
    count: int,
) -> list[Any]:
    """The results, of which `count` are tensors, each with its Output of the record."""
    given: list[Any] = []
    number = 0
    for value in results:
        if not isinstance(value, Value):
            given.append(value)
            continue
        handle = _handed_back(value) if _is_passed(value, inputs, left) else value
        edge: Any = Output(node, number) if count > 1 else node
        if not value._spec.differentiable or _is(value, left.constant):
            edge = None
        if _is(value, left.dirty):
            _check_dirty(cls, value)
            Needed.rebase(handle, edge)
            left.written |= {number}
        else:
            handle._node = edge
        given.append(handle)
        number += 1
    return given


class _Kind:
    """What calls with the same specs of arguments, saves and results have in common.

    The key is, per argument, its spec and whether it needs a gradient; of the tensors that were
    saved the specs; those of the results; an ellipsis between them.
    """

    def __init__(self, cls: Any, key: list[Any]) -> None:
        first = key.index(...)
        second = key.index(..., first + 1)
        args, needs, saves = key[0:first:2], key[1:first:2], key[first + 1 : second]
        results = key[second + 1 :]
        self.tensors = tuple([a is not None for a in args])
        # The arguments that are the record's operands; the saves come after them.
        self.places = tuple([i for i, a in enumerate(args) if isinstance(a, Spec)])
        self.count, self.whole = len(args), len(self.places) == len(args)
        self.results = tuple([r is not None for r in results])
        self.order = tuple([v is not None for v in saves])
        kept = [v for v in saves if v is not None]
        self.unlinked = (None,) * len(kept)
        op = Op(cls.__name__, cls.__doc__ or "")
        count = op.inputs = len(self.places)
        outs = [r for r in results if r is not None]
        self.plan = Plan(op, [*[args[i] for i in self.places], *kept], outs, never)
        self.plain = len(results) == 1 and results[0].differentiable
        mask = sum([needs[i] << k for k, i in enumerate(self.places)])
        saved = tuple(range(count, count + len(kept)))
        self.grad = Grad(mask, saved, (), _Rule(cls, self))


def _recorded_batch(
    cls: type[Function],
    ctx: Context,
    args: tuple[Any, ...],
    edges: Sequence[Any],
    results: tuple[Any, ...],
) -> list[Any]:
    """The same inside `vmap`. See Note [User functions under vmap]."""
    left = ctx._left
    spread = everywhere(results, args, left.dirty)
    given = {id(old): new for old, new in zip(results, spread, strict=True)}
    left.saves, left.constant = (
        tuple(given.get(id(v), v) for v in values) for values in (left.saves, left.constant)
    )
    results = tuple(spread)
    seen: Any = PerExample(cls, args, results, left.saves)
    levels = [levels_of(r) if _has_storage(r) else () for r in results]
    left.saves, left.dirty, left.constant = (
        tuple(map(whole, v)) for v in (left.saves, left.dirty, left.constant)
    )
    made = _recorded(seen, ctx, tuple(map(whole, args)), edges, tuple(map(whole, results)))
    return [
        old if new is whole(old) else wrap(new, own)
        for old, new, own in zip(results, made, levels, strict=True)
    ]


def _is(value: Value, among: Sequence[Any]) -> bool:
    for other in among:  # noqa: SIM110
        if value is other:
            return True
    return False


def _check_dirty(cls: type[Function], value: Value) -> None:
    if Leaf in (type(value._node), type(value._base._node) if value._base is not None else None):
        raise InplaceError(
            f"{cls.__name__}: a leaf that requires gradients ({value._spec!r}), or a view of it, "
            "is written to in place"
        )


class _Rule:
    """The derivative of calls of a kind: it calls the user's backward and checks the results.

    The context is the record's parameter.
    """

    __slots__ = ("cls", "kind")

    def __init__(self, cls: Any, kind: _Kind) -> None:
        self.cls = cls
        self.kind = kind

    def __call__(self, grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
        (context,), kind = params, self.kind
        left, places, count = context._left, kind.places, kind.count
        n = len(places)
        end = len(values) - len(grads)
        if not kind.plain:
            if left.materialize and len(grads) > 1:  # of one result there is a gradient
                grads = [
                    Needed.full(values[end + i]._spec, 0) if g is None else g
                    for i, g in enumerate(grads)
                ]
            coming = iter(grads)  # None for each result that is no tensor
            grads = [next(coming) if there else None for there in kind.results]
        me, unpacked = get_ident(), left.unpacked
        unpacked[me] = left.ordered(values[n:end])
        try:
            found = self.cls.backward(context, *grads)
        finally:
            unpacked.pop(me, None)
        if not isinstance(found, tuple):
            found = tuple(found) if isinstance(found, list) else (found,)
        if len(found) != count:
            _check_count(self.cls.__name__, found, count)
        parts: list[Any] = []
        for k, i in enumerate(places):
            part = found[i]
            if part is not None:
                spec = values[k]._spec
                if part.__class__ is not call.Handle or part._spec is not spec:
                    _check_gradient(self.cls, i, part, spec)
                # What nobody else holds, neither the handle nor its memory, need not be shared:
                # `found`, `part` and the argument hold the one, the handle and the argument the
                # other.
                mine = getrefcount(found) == 2 and getrefcount(part) == 3 and part._base is None
                if not (mine and getrefcount(part._memory) == 2):
                    part = _shared(part)
            parts.append(part)
        if n < count:
            _check_others(self.cls.__name__, found, kind.tensors)
        parts += kind.unlinked
        return parts


def _check_count(name: str, found: Sequence[Any], count: int) -> None:
    if len(found) < count or any(v is not None for v in found[count:]):
        raise RushlightError(
            f"{name}: backward gave {len(found)} gradients for {count} arguments of forward"
        )


def _check_others(name: str, found: Sequence[Any], tensors: Sequence[bool]) -> None:
    for i, is_tensor in enumerate(tensors):
        if not is_tensor and found[i] is not None:
            raise RushlightError(
                f"{name}: backward gave a gradient for argument {i} of forward, which was no tensor"
            )


def _check_gradient(cls: type[Function], i: int, part: Any, spec: Any) -> None:
    """Check a gradient that the user's backward returned for argument `i`."""
    wrong = f"{cls.__name__}: backward gave, for argument {i} of forward,"
    if not _has_storage(part):
        raise KindError(f"{wrong} a {type(part).__name__}; give a tensor or None")
    if part._spec.device is not spec.device:
        raise DeviceError(f"{wrong} a gradient on another device: {part._spec!r} for {spec!r}")
    if part._spec.dtype.kind == "c" and spec.dtype.kind != "c":
        raise DTypeError(f"{wrong} a complex gradient {part._spec!r} for {spec!r}; give its .real")
    given, wanted = part._spec.shape, spec.shape
    extra = len(given) - len(wanted)
    if extra < 0 or any(n != m and m != 1 for n, m in zip(given[extra:], wanted, strict=True)):
        raise ShapeError(f"{wrong} a gradient {part._spec!r}, whose shape does not fit {spec!r}")


def _shared(part: Any) -> Any:
    """The user's tensor as a view of itself: the walk must not add into the user's memory."""
    if part._spec.hidden:  # batched gradients are never added in place
        return part
    seen = call.make_value(part._spec, part._memory, part._offset, edge_of(part))
    seen._base = part if part._base is None else part._base
    seen._history = history_of(seen._base)
    return seen


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a backward: nothing is recorded inside, and a gradient through its results raises.

    The error is NotDifferentiable.

    Args:
        function (function): The `backward` of a Function.
    """

    @functools.wraps(function)
    def called(ctx: Any, *grads: Any) -> Any:
        with Changed(grad=False):
            found = function(ctx, *grads)
        if not STATE.get().grad:
            return found
        given = [
            whole(v)
            for v in (*grads, *ctx.saved_tensors)
            if _has_storage(v) and edge_of(v) is not None
        ]
        sources = [(v._spec, edge_of(v)) for v in given]
        record = ctx._left.record()
        # Backward gets everything but the saves from its arguments.
        if record is not None:
            sources += [
                pair
                for pair in zip(record.plan.ins, record.edges, strict=True)
                if pair[1] is not None
            ]
        name = function.__qualname__
        if isinstance(found, (tuple, list)):
            return tuple(_guarded(name, v, sources) for v in found)
        return _guarded(name, found, sources)

    return called


def _guarded(name: str, value: Any, sources: Sequence[tuple[Spec, Any]]) -> Any:
    """The value with a record that raises in backward: without one it would be a constant."""
    if not isinstance(value, Value) or not value._spec.differentiable or not sources:
        return value
    if value._spec.hidden:
        return wrap(_guarded(name, whole(value), sources), levels_of(value))
    op = Op(name, "A backward that is differentiable once.")
    plan = Plan(op, [spec for spec, _ in sources], [value._spec], never)
    node = call.new(Node)
    node.plan, node.params, node.saved, node.outs, node.version = plan, (), (), (), 0
    node.edges = tuple([edge for _, edge in sources])
    node.hooks = node.dropped = None
    node.grad = Grad((1 << len(sources)) - 1, (), (), functools.partial(_refuse, name))
    call.mark(node, 1)
    made = _fresh_handle(value)
    made._node = node
    return made


def _refuse(name: str, grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> Any:
    raise NotDifferentiable(
        f"{name}: a gradient is asked through a backward that is marked once_differentiable; write "
        "it with ops and without the mark, or take no second derivative through it"
    )
