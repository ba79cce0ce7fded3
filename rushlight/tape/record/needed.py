"""The few ops that the tape calls. `ops/` registers them, so that the tape imports no op."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rushlight.core.errors import InplaceError
from rushlight.core.shapes import Shape, Spec
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Output, Value, history_of
from rushlight.tape.record.written import describe_writes


class Needed:
    """Set by `ops/`; see `provide`."""

    add: Callable[[Value, Value], Value]
    # target += value, without record; with True target = value + target, of one spec.
    add_into: Callable[..., None]
    # `add_into` of pairs, prepared writes, and calls after them: all or none.
    add_all: Callable[[Any, Any, Any], None]
    # Copies a value's bits into another's memory, without record.
    copy_into: Callable[[Value, Value], None]
    clone: Callable[[Value], Value]
    cast: Callable[[Value, Any], Value]
    sum_to: Callable[[Value, Shape], Value]
    full: Callable[[Spec, float], Value]
    fill_plan: Callable[[Spec], Any]  # the plan of `full`
    # A view of a base by spec and byte offset, recorded.
    view_of: Callable[[Value, Spec, int], Value]
    reshape: Callable[[Value, Shape], Value]
    contiguous: Callable[[Value, Shape], Value]  # a contiguous copy, broadcast where its size is 1
    laid: Callable[[Value, Shape], Value]  # a copy with dense strides
    rooted: Callable[[Value], Value]  # makes a value independent of its base
    # The first, recorded as a constant function of the second.
    constant_in: Callable[[Value, Value], Value]
    # Gives the record of new bits to the target and its base.
    rebase: Callable[[Value, Any], None]
    store_out: Callable[..., Any]  # stores a result in `out`
    write_view: Any  # the op (base, value) -> base with a view replaced
    # A copy of a base with a view, by spec and offset, replaced.
    with_view: Callable[[Value, Value, Spec, int], Value]
    permute: Callable[[Value, Shape], Value]
    cat: Callable[[Any, int], Value]
    batch_rule: Callable[[Any], Any]  # an op's batching rule
    number: Callable[[Any], Value]  # a Python number as a 0-dim tensor on the default device
    moved: Callable[[Value, Any], Value]  # the elements on the device of a pool, recorded
    from_array: Callable[[Any], Value]  # a NumPy array as a tensor on the host
    spread: Callable[[Value, Any], Value]  # the physical value of a value repeated over levels
    batch_plan: Callable[..., Any]  # the BatchPlan of a call with batched operands
    detach_batch: Callable[[Value], Value]  # a batched value without a record
    replace_data: Callable[[Value, Value], None]  # `x.data = value`
    construct_subclass: Callable[..., Any]  # `MyTensor(...)`: see Note [Subclasses]
    reduce_subclass: Callable[[Value], Any]  # its pickle
    sparse_gradients: Callable[[], None]  # lets backward passes make sparse gradients


def provide(**functions: Any) -> None:
    for name, function in functions.items():
        setattr(Needed, name, staticmethod(function))


def provide_later(**places: str) -> None:
    """Functions by `module:name`, which are imported when they are first called."""
    for name, place in places.items():
        setattr(Needed, name, staticmethod(_importing(name, place)))


def _importing(name: str, place: str) -> Callable[..., Any]:
    module, _, attribute = place.partition(":")

    def function(*args: Any, **named: Any) -> Any:
        found = getattr(importlib.import_module(module), attribute)
        provide(**{name: found})
        return found(*args, **named)

    return function


def fits(part: Value, spec: Spec) -> bool:
    """Whether a gradient has the shape and dtype of its operand."""
    return part._spec.shape == spec.shape and part._spec.dtype is spec.dtype


def fitted(part: Value, spec: Spec) -> Value:
    """A gradient summed to the shape of its operand and cast to its dtype."""
    if part._spec.shape != spec.shape:
        part = Needed.sum_to(part, spec.shape)
    return part if part._spec.dtype is spec.dtype else Needed.cast(part, spec.dtype)


def make_dense(grads: list[Value | None]) -> None:
    """Replace gradients by contiguous copies, in the list: where it held the last reference, the
    memory of the old one is freed here.
    """
    for i, g in enumerate(grads):
        if g is not None and not g._spec.contiguous:
            grads[i] = Needed.clone(g)


def edge_of(value: Value) -> Any:
    """The value's node, updated where it is a view of a base that was written to since."""
    base = value._base
    if base is not None and history_of(value) != history_of(base):
        refresh_view(value)
    return value._node


def is_followed(value: Value) -> bool:
    """Whether a derivative of the value may be needed: it has a record, or a tangent."""
    state = STATE.get()
    if state.grad and edge_of(value) is not None:
        return True
    return state.dual is not None and state.dual.tangent_of(value) is not None


def refresh_view(value: Value) -> None:
    """Record a view again, from the base's present record: the base was written to since."""
    base = value._base
    assert base is not None
    if base._base is not None or base._memory is not value._memory:  # See Note [Views in place]
        root = base._base
        if root is None or root._memory is not value._memory:
            value._base = None
            Needed.rooted(value)
            value._history = 0
            return
        base = value._base = root
    _check_function(value)
    with Changed(grad=True):  # the caller may only be reading, under no_grad
        fresh = Needed.view_of(base, value._spec, value._offset - base._offset)
    value._node = fresh._node
    value._history = history_of(base)
    kept = getattr(value, "kept_grad", None)
    if kept is not None and kept.retains:
        kept.follow(value._node)


def _check_function(value: Value) -> None:
    """Refuse to record again a view of a user's function: its derivative is the function's."""
    edge = value._node
    node, index = (edge.node, edge.index) if edge.__class__ is Output else (edge, 0)
    context = getattr(node, "context", None)
    if context is None or index in context._left.written:
        return
    raise InplaceError(
        f"{node.op_name}: its result {value._spec!r} is a view of an argument, and that memory was "
        f"written to in place since {describe_writes([value._memory])}; let forward return a "
        "clone, or write to one"
    )
