"""A sequence of calls over slots, as immutable data.

# Note [Programs]
1. A Program is in SSA form. Its slots are its inputs, then the results of each step in order; a
   slot is written once. A step is a plan, its launch parameters (None: those of the program's own
   call) and the slots it reads.
2. A `Reference` is a byte offset in a slot with a spec. Every slot has a root: itself, where it is
   an input or launched; a view's root is that of its source. Results are references, so a view and
   a gradient that is passed through cost no step.
3. View steps stay among the steps: `call` records them and `vjp` differentiates them. `launches` is
   derived from the steps once and reads roots only.
4. A block that a launch fills is allocated at the launch, and freed after its last reader, unless
   it is a result's. A kernel that reads a block last writes a result of the same layout over it
   (`writes_over`). The caller either gives the results' memory, which is no input's (`launch`, as a
   kernel is called), or gets it (`make`).
5. A Program depends on specs and static arguments only, never on elements, addresses or gradients.
   The same program makes the same launches in the same order, so the same bits.
6. Uses: `memo` keeps one per kind of call of a function, a derivative one per layout of the present
   gradients, `vmap` one per batched call. One step over all inputs, in order, is that step's plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rushlight.core.shapes import Spec, contiguous_strides
from rushlight.tape.program.launching import Block, Launch, filling, making
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, fitted, make_dense
from rushlight.tape.record.op import Grad, Op, Plan, Shadow, Static, writes_over
from rushlight.tape.record.value import Value


class Step(NamedTuple):
    """One call. `params` are its launch parameters; None: those of the program's own call."""

    plan: Plan
    params: tuple[Any, ...] | None
    sources: tuple[int, ...]
    outs: tuple[Spec, ...]

    @property
    def is_view(self) -> bool:
        return self.plan.launch is None

    @property
    def moves(self) -> bool:
        """Whether it is a view with parameters of the program's call: then nothing is launched."""
        return self.params is None and bool(self.plan.stride)


class Reference(NamedTuple):
    """Memory of a slot, at a byte offset from its value's start, with a spec."""

    slot: int
    offset: int
    spec: Spec


class Program:
    """See Note [Programs]."""

    __slots__ = (
        "_last_reads",
        "_launch",
        "_launches",
        "_make",
        "_wholes",
        "firsts",
        "given",
        "made",
        "makers",
        "results",
        "roots",
        "specs",
        "steps",
    )

    def __init__(
        self, given: Sequence[Spec], steps: Sequence[Step], results: Sequence[Reference | None]
    ) -> None:
        self.given = tuple(given)
        self.steps = tuple(steps)
        self.results = tuple(results)
        specs = list(given)
        roots: list[tuple[int, int]] = [(i, 0) for i in range(len(specs))]
        makers: list[tuple[int, int]] = [(-1, -1)] * len(specs)
        firsts: list[int] = []
        for number, step in enumerate(steps):
            firsts.append(len(specs))
            for i, spec in enumerate(step.outs):
                shows = step.plan.offsets and not step.moves
                roots.append(_root_of_view(step, roots, i) if shows else (len(specs), 0))
                makers.append((number, i))
                specs.append(spec)
        self.specs: tuple[Spec, ...] = tuple(specs)  # of every slot
        self.roots = tuple(roots)  # of every slot: a slot that has memory, and bytes into it
        self.makers = tuple(makers)  # of every slot: a step, and which of its results it is
        self.firsts = tuple(firsts)  # of every step: the slot of its first result
        owners = [roots[r.slot][0] for r in results if r is not None]
        # The results' roots that steps fill.
        self.made = tuple(dict.fromkeys(s for s in owners if s >= len(given)))
        self._launches: tuple[Launch, ...] | None = None
        self._launch: Callable[..., None] | None = None
        self._make: Callable[..., list[Any]] | None = None
        self._last_reads: tuple[tuple[int, ...], ...] | None = None
        self._wholes: tuple[int, ...] | None = None

    # ---- queries ----

    def rooted(self, reference: Reference) -> Reference:
        """The same memory, by a slot that has its own memory."""
        root, skip = self.roots[reference.slot]
        return Reference(root, skip + reference.offset, reference.spec)

    def whole(self, slot: int) -> Reference:
        return Reference(slot, 0, self.specs[slot])

    def shows_whole(self, slot: int) -> bool:
        """Whether a slot is a launch's result, or all of a contiguous one in another shape."""
        root = self.roots[slot][0]
        flat = self.specs[slot].contiguous and self.specs[root].contiguous
        return self._is_whole(slot) and (slot == root or flat)

    def _is_whole(self, slot: int) -> bool:
        """Whether a slot is all of a launch's result, with its dimensions in some order."""
        root, skip = self.roots[slot]
        made = root >= len(self.given) and not skip and self.specs[slot].dense
        return made and self.specs[slot].numel == self.specs[root].numel

    def kernels(self) -> Iterator[Step]:
        """The steps that launch something."""
        return (step for step in self.steps if not step.is_view)

    @property
    def only(self) -> Plan | None:
        """The plan that the program equals: one step over all inputs, in order."""
        if len(self.steps) != 1:
            return None
        plan, params, sources, outs = self.steps[0]
        count = len(self.given)
        plain = not params and sources == tuple(range(count))
        expected = [Reference(count + i, 0, spec) for i, spec in enumerate(outs)]
        return plan if plain and list(self.results) == expected else None

    @property
    def lone(self) -> tuple[Plan, tuple[Any, ...]] | None:
        """The plan and the parameters of one step over all inputs, whose first result is ours."""
        if len(self.steps) != 1:
            return None
        plan, params, sources, outs = self.steps[0]
        count = len(self.given)
        plain = plan.launch is not None and params is not None and sources == tuple(range(count))
        hidden = any(spec.hidden for spec in self.specs)
        if not plain or hidden or list(self.results) != [Reference(count, 0, outs[0])]:
            return None
        return plan, params or ()

    @property
    def kernel(self) -> Plan | None:
        """The plan of the only kernel, over all results and inputs, in order."""
        if len(self.launches) != 1:
            return None
        step = next(self.kernels())
        first = self.firsts[self.steps.index(step)]
        outs = tuple(range(first, first + len(step.outs)))
        read = [self.roots[s] for s in step.sources]
        same = self.made == outs and read == [(i, 0) for i in range(len(self.given))]
        return step.plan if same else None

    def __repr__(self) -> str:
        lines = [f"given {', '.join(f'%{i} {spec!r}' for i, spec in enumerate(self.given))}"]
        for first, (plan, params, sources, outs) in zip(self.firsts, self.steps, strict=True):
            names = ", ".join(f"%{first + i}" for i in range(len(outs)))
            numbers = ["the call's numbers"] if params is None else map(repr, params)
            static = [repr(x) for x in plan.static if x is not None]
            read = ", ".join([*[f"%{s}" for s in sources], *static, *numbers])
            note = "  # a view" if plan.launch is None else ""
            lines.append(f"{names} = {plan.op.name}({read}) -> {', '.join(map(repr, outs))}{note}")
        return "\n".join([*lines, f"gives {', '.join(map(self._shown, self.results))}"])

    def _shown(self, reference: Reference | None) -> str:
        if reference is None:
            return "nothing"
        slot, offset, spec = reference
        same = not offset and spec is self.specs[slot]
        return f"%{slot}" if same else f"%{slot} from byte {offset} as {spec!r}"

    def hoisted(self, first: int) -> Program:
        """The same program with the steps from `first` on as early as what they read allows."""
        order = list(range(first))
        for number in range(first, len(self.steps)):
            makers = [self.makers[s][0] for s in self.steps[number].sources]
            order.insert(max([order.index(m) + 1 for m in makers if m >= 0], default=0), number)
        slots = {i: i for i in range(len(self.given))}
        steps = []
        for number in order:
            step = self.steps[number]
            steps.append(step._replace(sources=tuple([slots[s] for s in step.sources])))
            for i in range(len(step.outs)):
                slots[self.firsts[number] + i] = len(slots)
        results = [None if r is None else r._replace(slot=slots[r.slot]) for r in self.results]
        return Program(self.given, steps, results)

    # ---- as one call ----

    def as_plan(self, op: Op, needs: int) -> Plan:
        """The program as one record, for calls whose operands in the bit mask need gradients.

        The record saves what the steps' derivatives save: intermediate results too, which are
        further results of the plan, not returned.
        """
        if self.only is not None:
            return self.only
        grads = self._step_grads(needs)
        shown = [self.rooted(r).slot for r in self.results if r is not None]
        hidden = [s for s in self._saved_roots(grads) if s >= len(self.given) and s not in shown]
        full = Program(self.given, self.steps, [*self.results, *map(self.whole, hidden)])
        outs = [r.spec for r in full.results if r is not None]
        cost = sum(launch.plan.cost for launch in full.launches)
        first = full.launches[0]
        inner = full.kernel
        if inner is not None and first.numbers == inner.tail:
            plan = Plan(
                op, self.given, outs, inner.plain, (), inner.tail, cost, kernel=inner.kernel
            )
            plan.products = inner.products
        else:
            plan = Plan(op, self.given, outs, full.launch, (), (), cost, listed=False)
            plan.rest += max(0, full.peak() - sum(plan.rooms))  # what its launches take beside
        if needs:
            plan.keep_grad(full.vjp(needs))
        return plan

    def vjp(self, needs: int) -> Grad:
        """The derivative for the operands in the bit mask; every launched save is a result."""
        grads = self._step_grads(needs)
        roots = self._saved_roots(grads)
        owners = [self.rooted(r).slot for r in self.results if r is not None]
        count = len(self.given)
        saves_in = tuple([slot for slot in roots if slot < count])
        saves_out = tuple([owners.index(slot) for slot in roots if slot >= count])
        return Grad(needs, saves_in, saves_out, Vjp(self, grads))

    def _step_grads(self, needs: int) -> list[Grad | None]:
        """The derivative of every step through which a gradient passes."""
        flows = [bool(needs >> i & 1) for i in range(len(self.given))]
        grads: list[Grad | None] = []
        for plan, _, sources, outs in self.steps:
            mask = sum(1 << i for i, s in enumerate(sources) if flows[s])
            recorded = bool(mask) and plan.out.differentiable
            grads.append((plan.grads.get(mask) or plan.grad(mask)) if recorded else None)
            flows += [recorded and bool(spec.differentiable) for spec in outs]
        return grads

    def _saved_roots(self, grads: Sequence[Grad | None]) -> list[int]:
        """The slots with memory that the steps' derivatives read, in order."""
        found: set[int] = set()
        for step, first, grad in zip(self.steps, self.firsts, grads, strict=True):
            if grad is not None:
                found |= {self.roots[step.sources[i]][0] for i in grad.saves_in}
                found |= {self.roots[first + j][0] for j in grad.saves_out}
        return sorted(found)

    # ---- as calls ----

    def call(self, values: Sequence[Value], params: tuple[Any, ...] = ()) -> list[Any]:
        """The results, each step an ordinary call: recorded, batched, with a recipe in a region."""
        slots: list[Any] = list(values)
        run = call.run
        for (plan, numbers, sources, _), last in zip(self.steps, self.last_reads, strict=True):
            made = run(plan, [slots[s] for s in sources], params if numbers is None else numbers)
            if made.__class__ is tuple:
                slots.extend(made)
            else:
                slots.append(made)
            for slot in last:
                slots[slot] = None
        results = [None if r is None else slots[r.slot] for r in self.results]
        self.release(results)
        return results

    def release(self, results: Sequence[Any]) -> None:
        """Let views that are all there is of a launch's result be values without a base."""
        for i in self.wholes:
            results[i]._base = None

    @property
    def wholes(self) -> tuple[int, ...]:
        """The results that are views of all of a launch's result, which is no result itself."""
        if self._wholes is None:
            shown = [r.slot for r in self.results if r is not None]
            roots = [self.roots[slot][0] for slot in shown]
            self._wholes = tuple(
                i
                for i, r in enumerate(self.results)
                if r is not None
                and roots.count(self.roots[r.slot][0]) == 1
                and self.roots[r.slot][0] != r.slot
                and not r.spec.hidden
                and self._is_whole(r.slot)
            )
        return self._wholes

    @property
    def last_reads(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the slots of earlier steps that nothing reads after it."""
        if self._last_reads is None:
            later = {result.slot for result in self.results if result is not None}
            found = []
            for step in reversed(self.steps):
                last = {s for s in step.sources if s >= len(self.given)} - later
                later |= last
                found.append(tuple(last))
            self._last_reads = tuple(reversed(found))
        return self._last_reads

    # ---- as launches ----

    @property
    def launches(self) -> tuple[Launch, ...]:
        if self._launches is None:
            self._launches = _launches(self)
        return self._launches

    @property
    def launch(self) -> Callable[..., None]:
        """Fills the memory of `made`, called like a kernel: results, then inputs."""
        if self._launch is None:
            self._launch = filling(self.launches, len(self.made), len(self.given))
        return self._launch

    def peak(self) -> int:
        """The most bytes that `make` has allocated at once."""
        used = most = 0
        for launch in self.launches:
            used += sum([block.room for block in launch.takes])
            most = max(most, used + launch.plan.scratch)
            used -= sum([block.room for block in launch.ends])
        return most

    def make(self, ins: Sequence[int], params: tuple[Any, ...] = (), birth: int = 0) -> list[Any]:
        """Fill new storages, one for each of `made`, from the addresses of the inputs."""
        if self._make is None:
            self._make = making(self.launches, len(self.made), len(self.given))
        return self._make(*ins, params, birth)


class ProgramOp(Op):
    """A program as one op."""

    __slots__ = ("program",)

    def __init__(self, name: str, program: Program) -> None:
        super().__init__(name, "Several calls in one record.")
        self.program = program

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        for step in self.program.kernels():  # builds are noted per kernel
            step.plan.op.make_plan(step.plan.ins, step.plan.static)
        return self.program.as_plan(self, 0)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        return self.program.as_plan(self, needs).grads[needs]


class Vjp:
    """The rule of a program's derivative: its steps' own rules, from the last to the first.

    It is made of ops, so it can be differentiated again; gradients of saved intermediate results,
    which the next order needs, are passed as any other result's.
    """

    __slots__ = ("grads", "program")

    def __init__(self, program: Program, grads: Sequence[Grad | None]) -> None:
        self.program = program
        self.grads = grads

    def __call__(self, grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
        program = self.program
        known = self._known(values)
        sums: dict[int, Value] = {}
        for result, g in zip(program.results, grads, strict=True):
            if result is not None and g is not None:
                sums[result.slot] = g
        for first, step, grad in zip(
            *map(reversed, (program.firsts, program.steps, self.grads)), strict=True
        ):
            slots = range(first, first + len(step.outs))
            arrived = [sums.pop(slot, None) for slot in slots]
            if grad is None or all(g is None for g in arrived):
                continue
            if grad.dense:
                make_dense(arrived)
            numbers = params if step.params is None else step.params
            saved = {
                *[step.sources[i] for i in grad.saves_in],
                *[first + j for j in grad.saves_out],
            }
            read = (*step.sources, *slots)
            operands = [
                self._value(s, known) if s in saved else Shadow(program.specs[s]) for s in read
            ]
            parts = grad.rule(arrived, operands, numbers)
            for s, part, spec in zip(step.sources, parts, step.plan.ins, strict=True):
                if part is not None:
                    part = fitted(part, spec)
                    sums[s] = part if s not in sums else Needed.add(sums[s], part)
        return [sums.get(i) for i in range(len(program.given))]

    def _known(self, values: list[Any]) -> dict[int, Any]:
        """The saved values by the slots that have memory."""
        program = self.program
        count = len(program.given)
        known: dict[int, Any] = {i: v for i, v in enumerate(values[:count]) if isinstance(v, Value)}
        for result, value in zip(program.results, values[count:], strict=True):
            if result is not None and isinstance(value, Value):
                known[result.slot] = value
                root = program.roots[result.slot][0]
                if root != result.slot:
                    known[root] = Needed.reshape(value, program.specs[root].shape)
        return known

    def _value(self, slot: int, known: dict[int, Any]) -> Any:
        """A slot's value; a view is made again."""
        found = known.get(slot)
        if found is None:
            number, i = self.program.makers[slot]
            plan, params, sources, _ = self.program.steps[number]
            source = self._value(sources[0], known)
            spec = plan.ins[0]
            if source._spec is spec:
                made = call.run(plan, (source,), params or ())
            else:  # it was packed, and was unpacked in another layout, which may have no such view
                strides = spec.strides if spec.dense else contiguous_strides(spec.shape)
                source = Needed.laid(source, strides)
                made = call.call(plan.op, (source,), plan.static, params or ())
            found = known[slot] = made[i] if made.__class__ is tuple else made
        return found


def _root_of_view(step: Step, roots: Sequence[tuple[int, int]], i: int) -> tuple[int, int]:
    """The root of a view step's result i, and the bytes into it."""
    root, skip = roots[step.sources[0]]
    plan = step.plan
    return root, skip + (plan.skip(step.params or ()) if plan.stride else plan.offsets[i])


def _launches(program: Program) -> tuple[Launch, ...]:
    """The steps that run kernels, over addresses: see `Launch`."""
    count = len(program.made)
    index = {slot: i for i, slot in enumerate(program.made)}
    index.update({i: count + i for i in range(len(program.given))})
    last = _last_readers(program)
    home = _homes(program, last)
    scratch: dict[int, Block] = {}  # by slot
    taken: set[int] = set()
    found: list[Launch] = []
    for number, (first, step) in enumerate(zip(program.firsts, program.steps, strict=True)):
        if step.is_view:
            continue
        plan = step.plan
        slots = range(first, first + len(step.outs))
        takes: list[Block] = []
        for slot, room in zip(slots, plan.rooms, strict=True):
            owner = home.get(slot, slot)
            if owner not in taken:
                taken.add(owner)
                if owner not in index:
                    index[owner] = count + len(program.given) + len(scratch)
                    scratch[owner] = Block(index[owner], plan.pool, room)
                takes.append(Block(index[owner], plan.pool, room))
            index[slot] = index[owner]
        read = [program.roots[source] for source in step.sources]
        places = (
            *[(index[slot], 0) for slot in slots],
            *[(index[root], skip) for root, skip in read],
        )
        ends = tuple([block for slot, block in scratch.items() if last[slot] == number])
        numbers = (*plan.tail, *(step.params or ()))
        found.append(Launch(plan, numbers, step.params is None, places, tuple(takes), ends))
    return tuple(found)


def _homes(program: Program, last: dict[int, int]) -> dict[int, int]:
    """Slots that lie in the block of another: the last that is written over them."""
    results = {program.rooted(r).slot for r in program.results if r is not None}
    over: dict[int, int] = {}
    for number, (first, step) in enumerate(zip(program.firsts, program.steps, strict=True)):
        if step.is_view:
            continue
        read = [program.roots[s] for s in step.sources]
        roots = [root for root, _ in read]
        free = set(range(len(step.outs)))
        for i, (root, skip) in enumerate(read):
            ends = root >= len(program.given) and root not in results and last[root] == number
            if not ends or skip or roots.count(root) > 1:
                continue
            whole = program.specs[root].nbytes == step.plan.ins[i].nbytes
            found = [j for j in free if whole and writes_over(step.plan, j, i)]
            if found:
                over[root] = first + found[0]
                free.discard(found[0])
    for slot in reversed(over):
        over[slot] = over.get(over[slot], over[slot])
    return over


def _last_readers(program: Program) -> dict[int, int]:
    """Of every slot that a launch fills: the index of the last step that reads or fills it."""
    last: dict[int, int] = {}
    for number, (first, step) in enumerate(zip(program.firsts, program.steps, strict=True)):
        if not step.is_view:
            last.update({program.roots[s][0]: number for s in step.sources})
            last.update(dict.fromkeys(range(first, first + len(step.outs)), number))
    return last
