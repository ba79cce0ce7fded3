"""The start of a backward pass: roots, their gradients, and wanted inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.cache import Cache
from rushlight.core.errors import (
    DeviceError,
    DTypeError,
    NotDifferentiable,
    RushlightError,
    ShapeError,
)
from rushlight.core.shapes import Spec
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Leaf, Value
from rushlight.tape.vmap.batched import levels_of, peel, unpeel
from rushlight.tape.walk.backward import run_backward
from rushlight.tape.walk.edges import end_of, ends, key_of
from rushlight.tape.walk.parallel import walk_by

Root = tuple[Any, Spec]  # a record and its spec


def _called(root: Root) -> str:
    """A root in words: its spec, and its op."""
    edge, spec = root
    return (
        f"{spec!r}, a leaf"
        if type(edge) is Leaf
        else f"{spec!r}, the result of {key_node(edge).op_name}"
    )


def key_node(edge: Any) -> Any:
    key = key_of(edge)
    return key[0] if type(key) is tuple else key


def _seed(name: str, root: Root, gradient: Any) -> Value:
    """The gradient at a root: the given one, or 1 where the root is one real number."""
    spec = root[1]
    if gradient is None:
        if spec.numel != 1:
            raise RushlightError(
                f"{name}: a gradient must be given for a root that is not one number, here "
                f"{_called(root)}; pass gradient=, or reduce with .sum() or .mean()"
            )
        if spec.dtype.kind == "c":
            raise RushlightError(
                f"{name}: a gradient must be given for a complex root, here {_called(root)}; "
                f"pass gradient=, or go from a real number such as .abs().sum()"
            )
        if spec.contiguous and not spec.hidden and spec not in SEEDS:
            SEEDS.keep(spec, Needed.fill_plan(spec))
        return Needed.full(Spec.of(spec.device, spec.dtype, spec.shape), 1.0)
    if not isinstance(gradient, Value):
        raise TypeError(
            f"{name}: a gradient is a tensor or None, got {type(gradient).__name__} for "
            f"{_called(root)}"
        )
    given = gradient._spec
    if given.shape != spec.shape:
        raise ShapeError(f"{name}: a gradient {given!r} does not fit the root {_called(root)}")
    if given.device is not spec.device:
        raise DeviceError(
            f"{name}: a gradient {given!r} is on another device than the root {_called(root)}"
        )
    if (given.dtype.kind == "c") is not (spec.dtype.kind == "c"):
        raise DTypeError(
            f"{name}: a gradient {given!r} for the root {_called(root)}: both are complex or both "
            "are real"
        )
    return Needed.cast(gradient, spec.dtype)


def roots_of(name: str, tensors: Any, gradients: Any) -> tuple[list[Any], list[Value]]:
    """The records a pass starts from, and their gradients."""
    things = ends(tensors)
    roots = [end_of(thing) for thing in things]
    for i, (edge, spec) in enumerate(roots):
        if edge is None:
            raise NotDifferentiable(
                f"{name}: root {i}, {spec!r}, does not require gradients: it was made from "
                "constants, under no_grad(), or after .detach()"
            )
    given = [None] * len(roots) if gradients is None else ends(gradients)
    if len(given) != len(roots):
        raise RushlightError(
            f"{name}: {len(given)} gradients were given for {len(roots)} roots "
            f"({', '.join(map(_called, roots))}); give one for each, None for those that are one "
            "number"
        )
    seeds = [_seed(name, r, g) for r, g in zip(roots, given, strict=True)]
    if STATE.get().batch:
        seeds = [
            peel(g, levels_of(t) if isinstance(t, Value) else ())
            for t, g in zip(things, seeds, strict=True)
        ]
    return [edge for edge, _ in roots], seeds


SEEDS = Cache()  # by spec: the plan that fills the initial 1


def backward_from(root: Value, gradient: Any, retain: bool) -> bool:
    """The common `root.backward(gradient)`, where nothing need be converted or checked.

    That is a gradient of the root's spec, or none where a pass has started from a root like this
    one. Else False.
    """
    state = STATE.get()
    if state.special:
        return False
    if gradient is None:
        plan = SEEDS.get(root._spec)
    elif not isinstance(gradient, Value) or gradient._spec is not root._spec:
        return False
    edge = edge_of(root)
    if edge is None:
        return False
    if gradient is None:
        if plan is None:
            return False
        gradient = call.launch_at(plan, (), (1.0,), state.birth)
    run_backward((edge,), (gradient,), retain, False)
    return True


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
    *,
    workers: int = 1,
) -> None:
    """Sum the gradients of the roots into the leaves' `.grad`.

    With `inputs`, into theirs alone; one of them that is no leaf keeps its gradient as after
    `retain_grad`. With several `workers`, independent branches of the graph run in parallel, with
    the same bits: Note [Parallel backward].

    Args:
        tensors (Tensor or tensors): The roots.
        grad_tensors (Tensor or tensors): The gradients of the roots; None for one of a single
          element.
        retain_graph (bool): Keep what was saved, for another pass; by default `create_graph`.
        create_graph (bool): Record the pass itself, for higher derivatives.
        grad_variables: An older form of `grad_tensors`.
        inputs (Tensor or tensors): Where gradients are summed up; None for all leaves.
        workers (int): How many threads run branches of the graph.
    """
    if STATE.get().batch and any(isinstance(t, Value) and t._spec.hidden for t in ends(tensors)):
        raise RushlightError(
            "backward: a root is one example of a batch inside vmap, where leaves' .grad has no "
            "meaning; use rushlight.func.grad or vjp in the function, or call backward() on what "
            "vmap gives"
        )
    make = walk_by(workers, "backward")
    edges, seeds = roots_of(
        "backward", tensors, grad_variables if grad_tensors is None else grad_tensors
    )
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run_backward(edges, seeds, retain, create_graph, make=make)
        return
    chosen = ends(inputs)
    if not chosen:
        raise RushlightError(
            "backward: inputs is empty; name the tensors to get gradients, or leave it out"
        )
    for thing in chosen:
        edge, spec = end_of(thing)
        if edge is None:
            raise NotDifferentiable(f"backward: an input {spec!r} does not require gradients")
        if type(edge) is not Leaf and isinstance(thing, Value):
            thing.retain_grad()  # type: ignore[attr-defined]
    run_backward(
        edges, seeds, retain, create_graph, {key_of(end_of(t)[0]) for t in chosen}, False, make
    )


def _check_examples(place: int, outputs: Any, thing: Any) -> None:
    """Refuse a sum over examples where one gradient per example is meant.

    The root is one example's, the input is all of theirs.
    """
    levels = levels_of(thing) if isinstance(thing, Value) else ()
    for root in ends(outputs):
        if isinstance(root, Value) and any(level not in levels for level in levels_of(root)):
            raise RushlightError(
                f"grad: inside vmap, input {place} ({end_of(thing)[1]!r}) is one tensor for all "
                f"examples and the root {root._spec!r} one example's, so the gradient would be a "
                "sum over the batch; use rushlight.func.grad or vjp with that tensor as an argument"
            )


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    materialize_grads: bool = False,
    *,
    workers: int = 1,
    make: Any = None,
) -> tuple[Any, ...]:
    """The gradients of the outputs' sum with respect to the inputs; `.grad` does not change.

    `make`: as in `run_backward`.
    """
    make = walk_by(workers, "grad") or make
    edges, seeds = roots_of("grad", outputs, grad_outputs)
    asked: Sequence[Any] = ends(inputs)
    if not asked:
        raise RushlightError(
            "grad: inputs is empty; name the tensors whose gradients are asked for"
        )
    batched = bool(STATE.get().batch)
    wanted = [end_of(thing) for thing in asked]
    for i, (edge, spec) in enumerate(wanted):
        if edge is None:
            raise NotDifferentiable(f"grad: input {i}, {spec!r}, does not require gradients")
    retain = create_graph if retain_graph is None else retain_graph
    found = run_backward(
        edges, seeds, retain, create_graph, {key_of(edge) for edge, _ in wanted}, make=make
    )
    result: list[Any] = []
    for i, (thing, (edge, spec)) in enumerate(zip(asked, wanted, strict=True)):
        part = found.get(key_of(edge))
        if batched and part is not None:
            _check_examples(i, outputs, thing)
        if part is not None and isinstance(thing, Value) and thing._spec.hidden:
            part = unpeel(part, levels_of(thing))
        if part is None and materialize_grads:
            part = Needed.full(Spec.of(spec.device, spec.dtype, spec.shape), 0.0)
        if part is None and not allow_unused:
            raise NotDifferentiable(
                f"grad: input {i}, {spec!r}, was not used in the outputs; pass allow_unused=True, "
                f"or materialize_grads=True for zeros"
            )
        if create_graph and part is not None and edge_of(part) is None and isinstance(thing, Value):
            if not hasattr(part, "_memory"):  # sparse
                result.append(part)
                continue
            part = Needed.constant_in(part, thing)  # its derivative is zero, not absent
        result.append(part)
    return tuple(result)
