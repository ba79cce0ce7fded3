"""Reverse mode: from roots to leaves, in Kahn's order, without recursion.

# Note [Backward]
1. A node runs when all gradients that can reach it have arrived; they are summed in the order of
   arrival, which is fixed.
2. A node's derivative gives a gradient per operand, in the operand's shape and dtype, and tells
   which are fresh buffers: by a program where there is one (Note [Derivatives]), else by its rule
   (`differentiated`). `Walk.arrive` adds them up, in the memory of one of them where that is a
   fresh buffer (`Walk.owned`). The only gradient of a node, from a call with one operand that needs
   gradients, is stored without it: a chain is made of such calls.
3. Hooks get the sum, once. A leaf's `.grad` is a buffer of its own: a shared gradient or a view is
   copied first.
4. Saved values are freed as soon as their node has run, unless the graph is retained.
5. A pass that fails changes no `.grad`. The first gradient of a leaf, or of a value that keeps its
   own, is stored at once, and removed after an error. A gradient that is added to an existing one
   waits for the end of the pass (`Walk.commit`), when nothing can fail; only where a hook gets the
   sum is it added at once, the old bits copied first. Callbacks of hooks run last, in the pass.
6. Inside a budget that has no room for a gradient beside the sum that it is added to, the gradient
   is made and added by pieces, of some rows each, where its op can (`Grad.piece`): a table's, whose
   rows were read, beside that of the product with it. Every element is the same sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rushlight.core import locks
from rushlight.core.errors import AnomalyError, BudgetError, RushlightError
from rushlight.core.interrupts import Uninterrupted
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.anomaly import asynchronous, checks
from rushlight.tape.anomaly.blame import ORIGINS, Mode, blame, called_at
from rushlight.tape.memory.foresight import ENDED, FORESIGHT, Foresight
from rushlight.tape.memory.replay import LOCK, cut
from rushlight.tape.memory.requirement import most_rows, note_peak
from rushlight.tape.program.derivative import (
    Derivative,
    Parts,
    by_program,
    is_judged,
    key_of as program_key,
    recall,
)
from rushlight.tape.program.trace import trace
from rushlight.tape.record.call import make_view
from rushlight.tape.record.needed import Needed, fits, fitted, make_dense
from rushlight.tape.record.state import STATE, WALK, State
from rushlight.tape.record.value import Leaf, Node, Output, Value
from rushlight.tape.walk.edges import key_of
from rushlight.tape.walk.hooks import (
    run_after,
    run_before,
    run_hooks,
    run_post_hooks,
    run_value_hooks,
    tell_absent,
)
from rushlight.tape.walk.saves import saves_of


class Everything:
    """The `wanted` of a pass that gives the gradient of every value it reaches."""

    def __contains__(self, key: object) -> bool:
        return True


EVERYTHING = Everything()


def run_backward(
    edges: Sequence[Any],
    gradients: Sequence[Value],
    retain_graph: bool,
    create_graph: bool,
    wanted: set[Any] | Everything | None = None,
    collect: bool = True,
    make: Callable[..., Walk] | None = None,
) -> dict[Any, Value]:
    """Send `gradients` from the records `edges` to the leaves' `.grad`.

    `wanted` are keys (`edges.key_of`): only nodes that lead to them run. With `collect` the result
    maps each of them to its gradient and `.grad` does not change; without, the leaves among them
    get theirs. `make` constructs another walk than the sequential one.
    """
    checked, owner = Mode.on, asynchronous.Running.owner if Mode.on else None
    if checked and (create_graph or any(asynchronous.is_needed(g._memory.pool) for g in gradients)):
        make = _AnomalyWalk
    walk = (make or Walk.usual)(retain_graph, create_graph, wanted, collect and wanted is not None)
    walk.count(edges)
    state, outer = STATE.get(), WALK.get()
    if state.dual is not None:  # sums in place have no tangents: see Note [Dual values]
        walk.in_place = False
    batch = state.batch
    if batch:  # the tape's values are physical: see Note [Batching]
        if any(g._spec.hidden for g in gradients):
            walk.in_place = False  # sums may be of batched and other values
        else:
            batch = ()
    if state.inference or batch is not state.batch:
        inside = replace(state, grad=create_graph, inference=False, batch=batch)
    else:
        inside = state.in_mode(create_graph)
    try:  # not `Changed`: Ctrl-C on the way in or out must not leave the mode changed
        STATE.set(inside)
        WALK.set(walk)
        for edge, gradient in zip(edges, gradients, strict=True):
            walk.arrive(edge, gradient, owned=False)
        walk.run()
        for callback in walk.callbacks:  # it may grow
            callback()
        if checked:
            asynchronous.read_all()
        if walk.has_more:
            walk.commit()
    except BaseException:
        walk.take_back()
        raise
    finally:
        try:
            STATE.set(state)
        finally:  # after each call Ctrl-C may come
            WALK.set(outer)
        if checked:
            asynchronous.Running.owner = owner
    if checked:
        asynchronous.read_all()
    if gradients and gradients[0]._memory.pool.limit is None:
        changed = walk.changed or walk.waits
        if changed:
            note_peak(gradients[0]._memory.pool, changed[-1][0])
    return walk.found


class Walk:
    """One backward pass.

    A key is a Leaf, a node with one result, or (node, index) for one result of several.
    """

    usual: ClassVar[type[Walk]]  # the one that passes are made by
    by_node = False  # whether derivatives are counted, each as one call: Note [Foresight] 1

    def __init__(
        self, retain: bool, create: bool, wanted: set[Any] | Everything | None, collect: bool
    ) -> None:
        self.retain = retain
        self.create = create
        self.in_place = not create  # whether gradients are added in the memory of the first
        self.waiting: dict[Any, int] = {}  # pending gradients, per node
        self.sums: dict[Any, Value] = {}  # sums of gradients, per key
        # Keys whose sum is a fresh buffer, which may be written to.
        self.owned: set[Any] = set()
        self.roots: list[Any] = []
        self.found: dict[Any, Value] = {}
        self.wanted = wanted
        self.collect = collect  # the wanted gradients are the result, and no leaf changes
        self.useful: set[Any] | None = None
        self.quick = True  # elementwise calls may use programs
        self.waits: list[tuple[Leaf, Any]] = []  # gradients to be added to leaves' own
        # Values whose gradient was replaced, the old one, and its bits if they changed.
        self.changed: list[tuple[Any, Any, Any]] = []
        self.callbacks: list[Callable[[], None]] = []  # called when all nodes have run
        self.needs: dict[Any, int] = {}  # by pool: see `requirement.note_need`

    def count(self, edges: Sequence[Any]) -> None:
        waiting = self.waiting
        for edge in edges:
            node = edge.node if edge.__class__ is Output else edge
            if node not in waiting:
                waiting[node] = 0
                self.roots.append(node)
        reached = list(self.roots)
        for node in reached:  # it grows
            if node.__class__ is Leaf:
                continue
            for edge in node.edges:
                if edge is None:
                    continue
                if edge.__class__ is Output:
                    edge = edge.node
                if edge in waiting:
                    waiting[edge] += 1
                else:
                    waiting[edge] = 1
                    reached.append(edge)
        if self.wanted.__class__ is set:
            self._mark_useful(reached, self.wanted)

    def reaches(self, edge: Any) -> bool:
        """Whether a gradient of this record may arrive in this pass."""
        node = edge.node if type(edge) is Output else edge
        if node not in self.waiting or self.useful is None or node in self.useful:
            return node in self.waiting
        return self.wanted is not None and key_of(edge) in self.wanted

    def _mark_useful(self, reached: list[Any], wanted: Any) -> None:
        """The nodes from which a wanted input can be reached: only they run."""
        users: dict[Any, list[Any]] = {}
        for node in reached:
            if type(node) is not Leaf:
                for edge in node.edges:
                    if edge is not None:
                        users.setdefault(edge.node if type(edge) is Output else edge, []).append(
                            node
                        )
        stack = [k[0] if type(k) is tuple else k for k in wanted]
        useful: set[Any] = set()
        while stack:
            for user in users.get(stack.pop(), ()):
                if user not in useful:
                    useful.add(user)
                    stack.append(user)
        self.useful = useful

    def arrive(self, edge: Any, value: Value, owned: bool) -> None:
        """Add a gradient to those of other edges."""
        key = (edge.node, edge.index) if edge.__class__ is Output else edge
        sums = self.sums
        present = sums.get(key)
        if present is None:
            sums[key] = value
            if owned:
                self.owned.add(key)
        elif key in self.owned and self.in_place:
            Needed.add_into(present, value)
        elif owned and self.in_place and value._spec is present._spec:
            Needed.add_into(value, present, True)
            sums[key] = value
            self.owned.add(key)
        else:
            sums[key] = Needed.add(present, value)
            self.owned.add(key)

    def start(self) -> list[Any]:
        """The nodes without pending gradients."""
        return [n for n in self.roots if not self.waiting[n]]

    def run(self) -> None:
        waiting, sums, retain = self.waiting, self.sums, self.retain
        few, region, foresight, state = self._quick(), None, None, STATE.get()
        self.by_node = False
        if state.special:
            region, foresight = self._region(state), self._foresight(state)
        recalls = region is not None or self.recalls(state)
        arrive, owned = self.arrive, self.owned
        ready = self.start()
        while ready:
            node = ready.pop()
            if node.__class__ is Leaf:
                self._finish_leaf(node)
                continue
            if foresight is not None:
                with LOCK:  # `Foresight.enter`, inlined for the node that a record has next
                    now, followed = foresight.now + 1, foresight.followed
                    if now < len(followed) and followed[now] == id(node.grad):
                        foresight.now, foresight.is_inside, foresight.inner = now, True, 0.0
                    else:
                        foresight.enter(node)
            made = None
            if recalls and node.hooks is None and (few is None or node in few):
                try:
                    if region is not None and node.grad.piece is not None:
                        made = self._by_pieces(node)
                    made = made or recall(node, sums, owned, retain, region)
                except Exception as error:
                    tell_place(error, node)
                    raise
            if made is None:
                parts = part = None  # the node's own gradients: it may free them early
                parts, fresh = self._run_node(node)
            else:
                parts, fresh = made
            if foresight is not None:
                foresight.inner = ENDED
            only = node.grad.only
            if only >= 0 and parts:
                edge, part = node.edges[only], parts[only]
                alone = edge.__class__ is Node and waiting[edge] == 1 and edge not in sums
                if alone and part is not None:
                    sums[edge] = part  # see Note [Backward] 2
                    if fresh[only]:
                        owned.add(edge)
                    ready.append(edge)
                    continue
            for edge, part, mine in zip(node.edges, parts, fresh):  # noqa: B905 (they may be empty)
                if edge is None:
                    continue
                if part is not None:
                    arrive(edge, part, mine)
                if edge.__class__ is Output:
                    edge = edge.node
                left = waiting[edge]
                if left == 1:
                    ready.append(edge)
                else:
                    waiting[edge] = left - 1
            del made, parts  # a gradient is freed as soon as it has been passed on
            part = None

    def _by_pieces(self, node: Node) -> Parts | None:
        """Add the node's gradient to a sum, if it must be by pieces: Note [Backward] 6."""
        edge, g = node.edges[node.grad.only], self.sums.get(node)
        key = key_of(edge)
        target = self.sums.get(key)
        if target is None or g is None or key not in self.owned or not self.in_place:
            return None
        spec, pool = target._spec, target._memory.pool
        if spec is not node.plan.ins[node.grad.only] or g._spec.dtype is not spec.dtype:
            return None
        each = most_rows(pool, spec)
        if each is None:
            return None
        values = saved_values(node)
        for low in range(0, spec.shape[0], each):
            high = min(low + each, spec.shape[0])
            rows = Spec.of(pool, spec.dtype, (high - low, *spec.shape[1:]))
            offset = target._offset + low * spec.nbytes // spec.shape[0]
            piece = node.grad.piece(g, values, low, high)
            Needed.add_into(make_view(target, rows, offset), piece)
            del piece
        del self.sums[node]
        if not self.retain:
            node.saved, node.outs = None, ()
        return (None,) * len(node.edges), (False,) * len(node.edges)

    def recalls(self, state: State) -> bool:
        """Whether programs may run: nothing is recorded, checked or special."""
        return not (self.create or Mode.on or state.special)

    def _region(self, state: State) -> Any:
        """The region in which programs run and leave recipes; None where none is, or rules run."""
        if self.create or Mode.on or not state.regional:
            return None
        return None if state.region is None or state.region.witness is not None else state.region

    def _foresight(self, state: State) -> Foresight | None:
        """What counts the derivatives, where calls are counted and the pass records nothing."""
        region = state.region
        found: Foresight | None = None if region is None or self.create else region.foresight
        self.by_node = found is not None
        return found

    def _quick(self) -> set[Any] | None:
        """The nodes that only pass gradients on; None where that is all of them."""
        if not self.quick or isinstance(self.wanted, Everything):
            return set()
        if self.wanted is None or self.useful is None:
            return None
        return self.useful - {key[0] if type(key) is tuple else key for key in self.wanted}

    def _run_node(self, node: Node) -> Parts:
        """A gradient per operand, and whether it is a fresh buffer."""
        grads = self._collect_outputs(node)
        hooks, wanted = node.hooks, self.wanted
        if hooks is None and wanted is None:
            if grads[0] is None and not any(g is not None for g in grads):
                return _nothing(node)
        elif not self._prepare(node, grads):
            return _nothing(node)
        if hooks is not None and hooks.before:
            grads = run_before(node, grads)
            if all(g is None for g in grads):
                return _nothing(node)
        asked = wanted is not None and node in wanted
        mine = node in self.owned and self.in_place and hooks is None and not asked
        try:
            parts, fresh = differentiated(node, grads, self.retain, mine)
            if Mode.on and not is_judged(node, grads):
                checks.check_node(node, grads, parts, self.create)
        except Exception as error:
            tell_place(error, node)
            raise
        if hooks is not None and hooks.after:
            return run_after(node, parts, grads), _nothing(node)[1]  # it may have kept its argument
        return parts, fresh

    def _collect_outputs(self, node: Node) -> list[Value | None]:
        if len(node.plan.outs) == 1:
            return [self.sums.pop(node, None)]
        return [self.sums.pop((node, i), None) for i in range(len(node.plan.outs))]

    def _prepare(self, node: Node, grads: list[Value | None]) -> bool:
        """Hooks and wanted results; returns whether the node's derivative has to run."""
        several = len(node.plan.outs) > 1
        useful = self.useful is None or node in self.useful
        wanted = self.wanted
        for i, g in enumerate(grads):
            if g is None:
                if node.hooks is not None and useful:
                    tell_absent(node.hooks.values.get(i, {}))
                continue
            asked = wanted is not None and ((node, i) if several else node) in wanted
            if node.hooks is not None and (useful or asked):
                g = grads[i] = run_value_hooks(node, i, g)
            if asked and self.collect:
                self.found[(node, i) if several else node] = g
        return useful and any(g is not None for g in grads)

    def _finish_leaf(self, leaf: Leaf) -> None:
        arrived = self.sums.pop(leaf, None)
        if self.wanted is not None and leaf not in self.wanted:
            return
        if arrived is None:
            tell_absent(leaf.hooks)
            return
        g = run_hooks(leaf.hooks, arrived, leaf) if leaf.hooks else arrived
        if self.collect:
            self.found[leaf] = g
            return
        present = leaf.grad
        if present is None:
            owned = leaf in self.owned and not leaf.hooks  # a hook may have kept its argument
            g = _laid_for(leaf, g, owned)
            if g._memory.recipe is not None:
                cut(g._memory)  # a kept gradient must not keep the whole step's recipes
            if leaf.grad is None:
                leaf.grad = g  # in one stretch with its undo entry: see Note [Counting and threads]
                self.changed.append((leaf, None, None))
            else:
                self.waits.append((leaf, g))
        elif leaf.post_hooks:
            leaf.sums = True
            self._add_now(leaf, g)
        else:
            leaf.sums = True
            self.waits.append((leaf, g))
        if leaf.post_hooks:
            handle = leaf.handle()
            if handle is not None:
                run_post_hooks(leaf, handle)

    def deliver(self, leaf: Leaf, g: Value) -> None:
        """Give a leaf outside of the graph its gradient, a fresh buffer, as if reached."""
        self.sums[leaf] = g
        self.owned.add(leaf)
        self._finish_leaf(leaf)

    def _add_now(self, leaf: Leaf, g: Value) -> None:
        """Add to a leaf's gradient before its hooks, so that it can be undone."""
        present: Any = leaf.grad
        if not self.in_place or not _writable(present):
            leaf.grad = made = Needed.add(present, g)
            self.changed.append((leaf, present, None))
        else:
            made = present
            self.changed.append((leaf, present, Needed.clone(present)))
            with _ADDING:
                Needed.add_into(present, g)
        if made._memory.recipe is not None:
            cut(made._memory)

    @property
    def has_more(self) -> bool:
        """Whether additions wait for the end of the pass."""
        return bool(self.waits)

    def commit(self, writes: Sequence[Any] = ()) -> None:
        """Make the waiting additions to the leaves' gradients, and prepared writes: all or none."""
        with _ADDING:  # other threads' passes may add to the same
            sums: list[tuple[Value, Value]] = []
            new: list[tuple[Leaf, Value]] = []
            for leaf, g in self.waits:
                present = leaf.grad
                if present is None:  # it was set to None since
                    new.append((leaf, _laid_for(leaf, g, False)))
                elif self.in_place and _writable(present):
                    sums.append((present, g))
                else:
                    new.append((leaf, Needed.add(present, g)))
            for _, value in new:
                if value._memory.recipe is not None:
                    cut(value._memory)
            acts = [(setattr, leaf, "grad", value) for leaf, value in new]
            Needed.add_all(sums, writes, [*acts, (self.changed.clear,)])

    def take_back(self) -> None:
        """Restore all gradients from before this pass."""
        if self.changed:
            with Uninterrupted():
                for owner, old, bits in reversed(self.changed):
                    owner.grad = old
                    if bits is not None:
                        Needed.copy_into(old, bits)
                self.changed.clear()


Walk.usual = Walk


class _AnomalyWalk(Walk):
    """A walk that notes the node of every launch, for anomaly entries and errors."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.quick = self.wanted is None and not self.create

    def start(self) -> list[Any]:
        return _Announced(super().start())


class _Announced(list[Any]):
    """Nodes that are ready; the taker removes one."""

    def pop(self, *_: Any) -> Any:
        node = super().pop()
        asynchronous.Running.owner = None if node.__class__ is Leaf else node
        return node


_ADDING = locks.lock()  # held during additions to leaves' gradients


def tell_place(error: Exception, node: Node) -> None:
    """Add the source line of the call to an error of its derivative."""
    if isinstance(error, AnomalyError):
        blame(error, node.plan, called_at(node.place, ORIGINS.get(node)))
        return
    if isinstance(error, BudgetError):
        error.module = error.module or node.place.module
    place = str(node.place)
    if place not in str(error):
        error.add_note(f"(in the backward of {node.plan.op.name}, called at {place})")


def _laid_for(leaf: Leaf, g: Value, owned: bool) -> Value:
    """The gradient that a leaf keeps: g itself where it is `owned` and lies as the leaf does.

    See Note [Layouts of results] 5.
    """
    spec = leaf.spec
    if spec.contiguous or not spec.dense:
        return g if owned and g._spec.contiguous else Needed.clone(g)
    return g if owned and g._spec.strides == spec.strides else Needed.laid(g, spec.strides)


def _writable(grad: Value) -> bool:
    """Whether a gradient can be added to in place: its elements must not share memory."""
    spec = grad._spec
    return spec.contiguous or not any(
        st == 0 and n > 1 for n, st in zip(spec.shape, spec.strides, strict=True)
    )


def _nothing(node: Node) -> Parts:
    return (None,) * len(node.edges), (False,) * len(node.edges)


def differentiated(
    node: Node, grads: list[Value | None], retain: bool, mine: bool = False
) -> Parts:
    """What a node's derivative gives for the gradients that came; its program is kept.

    The saves are given back, unless the graph is retained, before gradients are fitted. `mine`: the
    only gradient is a fresh buffer that nobody else holds.
    """
    state, grad, params = STATE.get(), node.grad, node.params
    if grad.dense:
        make_dense(grads)
    if grad.programs is not None and (not params or grad.hands_on or bool(grad.fused)):
        region = None if state.grad or Mode.on or not state.regional else state.region
        if region is not None and region.witness is None:
            return _in_region(node, grads, retain, mine, state)
        if not (state.special or state.grad or node.dropped is not None):
            key = program_key(grads)
            if key not in grad.programs:
                made = _traced(node, grads, key, *saves_of(node))
                if made is not None:
                    if not retain:
                        node.saved, node.outs = None, ()
                    return made
            found = by_program(node, grads, retain)
            if found is not None:
                return found
    parts, fresh = _by_rule(node, grads, *saves_of(node))
    if not retain:
        node.saved, node.outs = None, ()
    return _fit(node, parts, fresh)


def _in_region(
    node: Node, grads: list[Value | None], retain: bool, mine: bool, state: Any
) -> Parts:
    """`differentiated` inside a region: see Note [Derivatives] 6."""
    key, programs = program_key(grads), node.grad.programs
    outs, saved = saves_of(node)
    made = None
    if key not in programs:
        made = _traced(node, grads, key, outs, saved)
    found = programs.get(key)
    if made is None and found is not None:
        came = [g for g in grads if g is not None]
        if node.dropped is None and FORESIGHT.is_quiet and not state.region.listens:
            made = found.run_quietly(node, mine, *came)
        if made is None:
            made = found.run_in_region(node, mine, [*came, *outs, *saved], state.region)
    if made is None:
        parts, fresh = _by_rule(node, grads, outs, saved)
    if not retain:
        node.saved, node.outs = None, ()
    return _fit(node, parts, fresh) if made is None else made


def _traced(
    node: Node,
    grads: list[Value | None],
    key: Any,
    outs: Sequence[Value],
    saved: Sequence[Value],
) -> Parts | None:
    """Keep the program of a node's derivative; what the rule gives, where it ran for that."""
    grad, params = node.grad, node.params
    came = [g for g in grads if g is not None]
    values = [*came, *outs, *saved]
    program = None if grad.fused is None else grad.fused([v._spec for v in values])
    made: Parts | None = None
    if program is None and (not params or grad.hands_on):
        steps = 0

        def run() -> Sequence[Value | None]:
            nonlocal made, steps
            parts, fresh = _by_rule(node, grads, outs, saved)
            steps = len(STATE.get().trace or ())
            made = _fit(node, parts, fresh)
            return made[0]

        program = trace(run, values, params)[1]
        program = None if program is None else program.hoisted(steps)
    grad.programs.keep(key, Derivative.of(program, grad, len(came), len(params)))
    return made


def _by_rule(
    node: Node, grads: list[Value | None], outs: Sequence[Value], saved: Sequence[Value]
) -> tuple[list[Value | None], list[bool]]:
    state, op = STATE.get(), node.plan.op
    own = state if op.inputs is not None else state.without_autocast()  # a user's rule sees it
    try:
        if own is not state:
            STATE.set(own)
        parts = node.grad.rule(grads, spread_values(node, outs, saved), node.params)
    finally:
        if own is not state:
            STATE.set(state)
    ins = node.plan.ins
    if len(parts) != len(ins):
        name, count = op.name, len(ins)
        raise RushlightError(
            f"{name}: its derivative gave {len(parts)} gradients for {count} inputs"
        )
    return list(parts), _fresh(parts, (*grads, *saved, *outs))


def _fit(node: Node, parts: list[Value | None], fresh: list[bool]) -> Parts:
    """Each gradient with the shape and type of its operand, in the place of what the rule gave.

    So that is freed before the next one is made.
    """
    for i, spec in enumerate(node.plan.ins):
        part = parts[i]
        if part is not None and part._spec is not spec and not fits(part, spec):
            made = parts[i] = fitted(part, spec)
            fresh[i] = fresh[i] or made._memory is not part._memory
        part = None
    return parts, fresh


def _fresh(parts: Sequence[Value | None], others: Sequence[Value | None]) -> list[bool]:
    """Which gradients are fresh buffers: no inputs, no views, not twice."""
    seen: dict[Storage, int] = {}
    for v in others:
        if v is not None:
            seen[v._memory] = 1
    for part in parts:
        if part is not None:
            seen[part._memory] = seen.get(part._memory, 0) + 1
    found = []
    for p in parts:
        found.append(p is not None and p._base is None and seen[p._memory] == 1)
    return found


def saved_values(node: Node) -> list[Any]:
    """A value per input and per output of the node's call; shadows for those not saved."""
    return spread_values(node, *saves_of(node))


def spread_values(node: Node, kept_outs: Sequence[Value], kept_ins: Sequence[Value]) -> list[Any]:
    plan, grad = node.plan, node.grad
    values: list[Any] = plan.shadows.copy()
    for i, value in zip(grad.saves_in, kept_ins, strict=True):
        values[i] = value
    if grad.saves_out:
        end = len(plan.ins)
        for j, value in zip(grad.saves_out, kept_outs, strict=True):
            values[end + j] = value
    return values
