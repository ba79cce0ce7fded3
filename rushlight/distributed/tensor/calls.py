"""Functions of distributed tensors: they run on this rank's parts. See Note [Calls on parts]."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

from rushlight.autograd import backward as _backward, grad as _grad
from rushlight.core.cache import Cache
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Spec
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.objects import broadcast_object_list
from rushlight.distributed.tensor.layout import Layout
from rushlight.distributed.tensor.placements import REPLICATE, Placement
from rushlight.distributed.tensor.redistribution import redistributed
from rushlight.distributed.tensor.routes import Route, find_route
from rushlight.distributed.tensor.steps import Part, walk
from rushlight.foreach import FUNCTIONS
from rushlight.memory.standing import on_stand_in
from rushlight.nn import init
from rushlight.ops.create.creation import Constant, full_spec
from rushlight.ops.random.random import TAKEN, Generator, default_generator
from rushlight.ops.registry import REGISTRY
from rushlight.tape.program.program import Program
from rushlight.tape.program.trace import trace
from rushlight.tape.record.state import STATE, is_grad_enabled, no_grad
from rushlight.tape.record.value import Value
from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_flatten, tree_unflatten

Wrap = Callable[[Value, Layout], Any]

# Whether plain tensors among distributed ones are replicas of one tensor.
REPLICATING: ContextVar[bool] = ContextVar("implicit_replication", default=False)
_MOVES = ("to", "cpu", "cuda")  # to another device: no op on the whole


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors among DTensors are replicas: the same on every rank."""
    token = REPLICATING.set(True)
    try:
        yield
    finally:
        REPLICATING.reset(token)


class Call(NamedTuple):
    """One call of a function: arguments as leaves of a tree, and which of them are distributed."""

    kind: Any
    wrap: Wrap
    func: Any
    leaves: list[Any]
    tree: Any
    mesh: DeviceMesh

    @property
    def name(self) -> str:
        return str(getattr(self.func, "__name__", ""))

    def with_leaves(self, leaves: Sequence[Any]) -> Any:
        """Call the function with other leaves."""
        args, named = tree_unflatten(list(leaves), self.tree)
        return self.func(*args, **named)

    def part_of(self, leaf: Any) -> Part:
        """A tensor's part and layout; a plain tensor is a replica."""
        if isinstance(leaf, self.kind):
            return leaf._local_tensor, leaf._layout
        return leaf, Layout(self.mesh, (REPLICATE,) * self.mesh.ndim, tuple(leaf._spec.shape))


def perform(kind: Any, wrap: Wrap, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call a function some of whose arguments are distributed tensors."""
    if func is _grad:
        return _gradients(kind, wrap, *args, **named)
    if func is _backward:
        return _from_roots(kind, *args, **named)
    name = getattr(func, "__name__", "")
    if name == "detach":
        return args[0].detach()
    target = named.pop("out", None) if isinstance(named.get("out"), kind) else None
    leaves, tree = tree_flatten((args, named))
    call = Call(kind, wrap, func, leaves, tree, _mesh_of(kind, name, leaves))
    _check_plain(call)
    if target is not None:
        return target.copy_(_drawn_alike(call, _compute))
    if name in _MOVES:
        first = leaves[0]
        parts = [leaf._local_tensor if isinstance(leaf, kind) else leaf for leaf in leaves]
        return wrap(call.with_leaves(parts), first._layout)
    if (name.endswith("_") and not name.startswith("__")) or name == "__setitem__":
        if getattr(func, "__module__", "") == init.__name__:  # these write leaves, unrecorded
            with no_grad():
                return _drawn_alike(call, _write)
        return _drawn_alike(call, _write)
    return _drawn_alike(call, _compute)


def _mesh_of(kind: Any, name: str, leaves: Sequence[Any]) -> DeviceMesh:
    found = [leaf._layout.mesh for leaf in leaves if isinstance(leaf, kind)]
    if any(mesh != found[0] for mesh in found):
        raise RushlightError(f"{name}: tensors on several meshes: {list(dict.fromkeys(found))}")
    mesh: DeviceMesh = found[0]
    return mesh


def _check_plain(call: Call) -> None:
    if REPLICATING.get():
        return
    for leaf in call.leaves:
        if isinstance(leaf, Tensor) and not isinstance(leaf, call.kind) and leaf._spec.shape:
            raise RushlightError(
                f"{call.name}: got mixed torch.Tensor and DTensor: {leaf._spec!r} is a plain "
                "tensor; make it a DTensor by DTensor.from_local or distribute_tensor, or use "
                "implicit_replication()"
            )


# ---- random numbers ----

_ALIKE: set[DeviceMesh] = set()


def _drawn_alike(call: Call, body: Callable[[Call], Any]) -> Any:
    """Run a call; ranks that draw have one stream. See Note [Streams of a mesh]."""
    stream = default_generator
    before, taken = (stream.seed_value, stream.position), TAKEN.words
    made = body(call)
    if TAKEN.words == taken or call.mesh in _ALIKE:
        return made
    if any(isinstance(leaf, Generator) for leaf in call.leaves):
        return made
    stream.seed_value, stream.position = before
    draw_alike(call.mesh)
    return body(call)


def draw_alike(mesh: DeviceMesh) -> None:
    """Give all ranks of a mesh the default stream of its first rank, once.

    # Note [Streams of a mesh]
    A random op on a DTensor draws the numbers of the whole tensor, so that its bits do not depend
    on the mesh. For that the ranks' default streams must be at one position: at the first such op
    of a mesh they become the first rank's. A program that draws differently on ranks afterwards
    parts them again.
    """
    if mesh in _ALIKE:
        return
    stream = default_generator
    for n in range(mesh.ndim):
        told = [(stream.seed_value, stream.position)]
        broadcast_object_list(told, group=mesh.get_group(n), group_src=0)
        stream.seed_value, stream.position = told[0]
    _ALIKE.add(mesh)


# ---- computing ----

_PROGRAMS = Cache()
_ROUTES = Cache()


class Traced(NamedTuple):
    """A function's program over its tensors, and the structure of its results."""

    program: Program
    made: Any  # the type of a tuple or list of results; None for one


def _compute(call: Call) -> Any:
    tensors = [leaf for leaf in call.leaves if isinstance(leaf, Tensor)]
    given = [call.part_of(leaf) for leaf in tensors]
    if all(_is_whole(layout) for _, layout in given):
        return _wrapped(call, call.with_leaves(_exchanged(call, [part for part, _ in given])))
    traced, key = _traced(call, tensors, [layout for _, layout in given])
    if traced is None:
        return _on_wholes(call)
    recorded = tuple([is_grad_enabled() and part.requires_grad for part, _ in given])
    layouts = tuple([layout for _, layout in given])
    like = _like_operand(traced.program, layouts)
    route: Route | None = None
    if key is not None:
        route = _ROUTES.get((key, layouts, recorded))
    if route is None:
        route = find_route(traced.program, layouts, recorded, like)
        if key is not None:
            _ROUTES.keep((key, layouts, recorded), route)
    pool = given[0][0]._spec.device
    slots: list[Part] = list(given)
    for leg in route.legs:
        slots.extend(walk(leg, [slots[n] for n in leg.step.sources], pool))
    made: list[Any] = []
    for result in route.results:
        if result is None:
            made.append(None)
        elif result[0] < len(tensors):
            made.append(tensors[result[0]])
        else:
            made.append(call.wrap(slots[result[0]][0], result[1]))
    if traced.made is None:
        return made[0]
    return traced.made(*made) if hasattr(traced.made, "_fields") else traced.made(made)


def _like_operand(program: Program, layouts: Sequence[Layout]) -> Layout | None:
    """The layout of a new tensor that a function makes like its operand."""
    ops = [step.plan.op for step in program.steps]
    if len(layouts) != 1 or len(ops) != 1 or not isinstance(ops[0], Constant):
        return None
    if program.steps[0].outs[0].shape != layouts[0].shape:
        return None
    kept = [REPLICATE if p.is_partial() else p for p in layouts[0].placements]
    return layouts[0].with_placements(kept)


def _is_whole(layout: Layout) -> bool:
    return all(p.is_replicate() for p in layout.placements)


def _exchanged(call: Call, parts: Sequence[Any]) -> list[Any]:
    """The leaves, with other tensors."""
    new = iter(parts)
    return [next(new) if isinstance(leaf, Tensor) else leaf for leaf in call.leaves]


def _traced(
    call: Call, tensors: Sequence[Any], layouts: Sequence[Layout]
) -> tuple[Traced | None, Any]:
    """The function's program, and the key under which it is kept; no key for random numbers."""
    key = _key(call, tensors, layouts)
    known: Any = _PROGRAMS.get(key, _PROGRAMS) if key is not None else _PROGRAMS
    if known is not _PROGRAMS:
        return known, key
    taken = TAKEN.words
    found = _trace(call, tensors, layouts)
    if TAKEN.words != taken:
        return found, None
    if key is not None:
        _PROGRAMS.keep(key, found)
    return found, key


def _trace(call: Call, tensors: Sequence[Any], layouts: Sequence[Layout]) -> Traced | None:
    stream = default_generator.seed_value, default_generator.position, TAKEN.words
    real = tensors[0]._spec.device
    stands = on_stand_in(real.device.name) if real.device.limits.computes else nullcontext(real)
    try:
        with no_grad(), stands as pool:
            whole = [
                full_spec(Spec.of(pool, leaf._spec.dtype, layout.shape), 0)
                for leaf, layout in zip(tensors, layouts, strict=True)
            ]
            made, program = trace(
                lambda: call.with_leaves(_exchanged(call, whole)), whole, casts=True
            )
    except Exception:  # the call on whole tensors says what is wrong
        program, made = None, None
    if program is None:
        default_generator.seed_value, default_generator.position, TAKEN.words = stream
        return None
    return Traced(program, type(made) if isinstance(made, (tuple, list)) else None)


def _key(call: Call, tensors: Sequence[Any], layouts: Sequence[Layout]) -> Any:
    """By what the program is known; None where an argument has no hash."""
    shapes = tuple(
        (leaf._spec.dtype, layout.shape) for leaf, layout in zip(tensors, layouts, strict=True)
    )
    rest = tuple(
        None if isinstance(leaf, Tensor) else (type(leaf), _hashable(leaf)) for leaf in call.leaves
    )
    autocast = STATE.get().autocast
    key = (call.func, shapes, rest, str(call.tree), None if autocast is None else repr(autocast))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _hashable(leaf: Any) -> Any:
    if isinstance(leaf, slice):
        return leaf.start, leaf.stop, leaf.step
    return repr(leaf) if isinstance(leaf, float) else leaf  # 0.0 is not -0.0


def _wrapped(call: Call, found: Any) -> Any:
    """Results on whole tensors."""
    parts, tree = tree_flatten(found)
    mesh = call.mesh
    made = [
        call.wrap(part, Layout(mesh, (REPLICATE,) * mesh.ndim, tuple(part._spec.shape)))
        if isinstance(part, Value)
        else part
        for part in parts
    ]
    return tree_unflatten(made, tree)


def _on_wholes(call: Call) -> Any:
    """Call the function on whole tensors. See Note [Calls on parts] 4."""
    parts = [_whole(call, leaf) for leaf in call.leaves if isinstance(leaf, Tensor)]
    return _wrapped(call, call.with_leaves(_exchanged(call, parts)))


def _whole(call: Call, leaf: Any) -> Any:
    part, layout = call.part_of(leaf)
    return redistributed(part, layout, [REPLICATE] * layout.mesh.ndim)


# ---- writing ----


def _write(call: Call) -> Any:
    """An in-place function: its result replaces the elements of the first tensor, or tensors."""
    first = tree_unflatten(call.leaves, call.tree)[0][0]
    if isinstance(first, (list, tuple)):
        return _write_several(call, first)
    if not isinstance(first, call.kind):
        raise RushlightError(f"{call.name}: a DTensor is written into a plain tensor")
    layout = first._layout
    if call.name == "copy_":
        source, lies = call.part_of(call.leaves[1])
        made = _spread(source, lies, layout)
    elif call.name in ("zero_", "fill_") and not any(p.is_partial() for p in layout.placements):
        leaves = [
            leaf._local_tensor if isinstance(leaf, call.kind) else leaf for leaf in call.leaves
        ]
        made = call.with_leaves([leaves[0].clone(), *leaves[1:]])
    else:
        made = _new_elements(call, first)
    _put(first, made)
    return first


def _new_elements(call: Call, first: Any) -> Any:
    """This rank's part of what an in-place function would write."""
    layout = first._layout
    form = REGISTRY[call.name[:-1]].inplace if call.name[:-1] in REGISTRY else ""
    if form == "view":
        raise RushlightError(f"{call.name}: a DTensor keeps its shape; use {call.name[:-1]}")
    if form:
        leaves = list(call.leaves)
        if is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in leaves):
            leaves[0] = call.wrap(first._local_tensor.clone(), layout)  # what is saved stays
        result = _compute(call._replace(func=REGISTRY[call.name[:-1]].function, leaves=leaves))
        return redistributed(result._local_tensor, result._layout, layout.placements)
    whole = [_whole(call, leaf) for leaf in call.leaves if isinstance(leaf, Tensor)]
    whole[0] = whole[0].clone()
    call.with_leaves(_exchanged(call, whole))
    alike = layout.with_placements((REPLICATE,) * layout.mesh.ndim)
    return redistributed(whole[0], alike, layout.placements)


def _spread(part: Any, layout: Layout, target: Layout) -> Any:
    """A part, broadcast and placed as another tensor's."""
    if layout.shape == target.shape:
        return redistributed(part, layout, target.placements)
    whole = redistributed(part, layout, [REPLICATE] * layout.mesh.ndim).expand(target.shape)
    alike = target.with_placements((REPLICATE,) * target.mesh.ndim)
    return redistributed(whole, alike, target.placements)


def _put(target: Any, made: Any) -> None:
    """Write a part; the handle gets the record of the write."""
    part = target._local_tensor
    part.copy_(made)
    target._node = part._node


def _write_several(call: Call, targets: Sequence[Any]) -> Any:
    plain = FUNCTIONS.get(call.name[:-1])
    if plain is None:
        raise RushlightError(f"{call.name}: no rule for lists of DTensors")
    made = _compute(call._replace(func=plain))
    for target, result in zip(targets, made, strict=True):
        _put(target, _spread(*call.part_of(result), target._layout))
    return targets


# ---- gradients ----


def _from_roots(
    kind: Any, tensors: Any, grad_tensors: Any = None, *args: Any, **named: Any
) -> None:
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    given = [grad_tensors] if isinstance(grad_tensors, Tensor) else grad_tensors
    plain, seeds = _roots(kind, roots, given)
    _backward(plain, seeds, *args, **named)


def _roots(kind: Any, roots: Sequence[Any], given: Any) -> tuple[list[Any], list[Any]]:
    """Parts of roots and of their gradients."""
    seeds = list(given) if given is not None else [None] * len(roots)
    plain = [root._local_tensor if isinstance(root, kind) else root for root in roots]
    for n, (root, seed) in enumerate(zip(roots, seeds, strict=True)):
        if isinstance(seed, kind):
            kept = _of_gradient(root._layout.placements)
            seeds[n] = redistributed(seed._local_tensor, seed._layout, kept)
    return plain, seeds


def _of_gradient(placements: Sequence[Placement]) -> list[Placement]:
    return [REPLICATE if p.is_partial() else p for p in placements]


def _gradients(
    kind: Any,
    wrap: Wrap,
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    *args: Any,
    **named: Any,
) -> Any:
    """`autograd.grad`: gradients of distributed inputs are distributed."""
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else grad_outputs
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    plain, seeds = _roots(kind, roots, given)
    parts = [one._local_tensor if isinstance(one, kind) else one for one in wanted]
    found = _grad(plain, parts, seeds, *args, **named)
    return tuple(
        wrap(g, one._layout.with_placements(_of_gradient(one._layout.placements)))
        if isinstance(one, kind) and g is not None
        else g
        for g, one in zip(found, wanted, strict=True)
    )
