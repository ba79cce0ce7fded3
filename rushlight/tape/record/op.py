"""What the tape asks of an op: a plan for given operands, and derivatives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rushlight.core.dtypes import when_default_changes
from rushlight.core.errors import DeviceError, NotDifferentiable, RushlightError, UnsupportedDType
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.kernel.shapes import Map, Rowwise

Static = tuple[Any, ...]
MOST_PLANS = 2048  # of one op; a training step with fixed shapes has some dozens


class Op:
    """A named, pure function of arrays. Families (in `ops/`) fill in `make_plan` and `make_grad`."""

    __slots__ = ("causes", "doc", "inputs", "name", "number_plans", "plans")

    def __init__(self, name: str, doc: str) -> None:
        self.inputs: int | None = (
            None  # of a user's function: how many of a plan's inputs it was given
        )
        self.name = name
        self.doc = doc
        # How many of the first inputs answer for a result that is not finite; None: all. A derivative's: the gradients.
        self.causes: int | None = None
        self.plans: dict[Any, Plan] = {}
        # Plans of op(tensor, number), by the number's type and the tensor's spec.
        self.number_plans: dict[type, dict[Any, Plan]] = {float: {}, int: {}}

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        raise NotDifferentiable(self.name)  # a family overrides this

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        raise NotDifferentiable(
            f"{self.name}: this op has no derivative, and a gradient is asked through it; "
            f"use .detach() on its input or result if none is meant (operands {describe(plan.ins)})"
        )

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def keep_plan(table: dict[Any, Plan], key: Any, plan: Plan) -> Plan:
    """Put a plan where it is found again. A program that sees ever new shapes starts over now and then."""
    if len(table) >= MOST_PLANS:
        table.clear()
    table[key] = plan
    return plan


class Plan:
    """Everything about a call that does not change from call to call with the same operands' specs."""

    __slots__ = (
        "__weakref__",
        "beyond",  # a view that may reach beyond its input: each call checks the storage
        "blocks",  # of the first output: the pool's list of cached blocks of that size
        "checked",  # the launch with anomaly checks, made on first use
        "cost",
        "first",  # the first and second input's spec, and the first output's: tuples cost time in the hot path
        "grads",
        "ins",
        "kernel",  # the one kernel that `plain` is, if it can check for anomalies
        "launch",  # what a call runs: `plain`, or `checked` in anomaly mode. See Note [Anomaly checks]
        "offsets",
        "op",
        "out",
        "outs",
        "plain",
        "pool",
        "room",
        "rooms",
        "second",
        "size",  # the one number that follows the addresses, where it is one; else None
        "static",
        "tail",
    )

    def __init__(
        self,
        op: Op,
        ins: Sequence[Spec],
        outs: Sequence[Spec],
        launch: Callable[..., None] | None,
        static: Static = (),
        tail: tuple[int, ...] = (),
        cost: float | None = None,
        offsets: tuple[int, ...] = (),
        kernel: Map | Rowwise | None = None,
        listed: bool = True,  # not where it runs other plans, which are checked themselves
        beyond: bool = False,
    ) -> None:
        for spec in ins:
            if spec.hidden:  # its memory is a batch's: see Note [Batching]
                raise RushlightError(
                    f"{op.name}: no batching rule for operands {describe(ins)}; take the op out of vmap, or loop"
                )
        self.op = op
        self.ins = tuple(ins)
        self.outs = tuple(outs)
        self.plain = launch  # None for a view: the outputs see the first input's storage at `offsets` (bytes)
        self.launch = launch
        self.kernel = kernel
        self.checked: Callable[..., None] | None = None
        self.static = static
        self.tail = tail
        self.offsets = offsets
        self.beyond = beyond
        self.pool: Pool = outs[0].device
        self.rooms = tuple(room_for(max(spec.nbytes, spec.high)) for spec in outs)
        self.grads: dict[int, Grad] = {}
        self.first = ins[0] if ins else None
        self.second = ins[1] if len(ins) > 1 else None
        self.out = outs[0]
        self.room = self.rooms[0]
        self.blocks = self.pool.blocks(self.room)
        self.size = tail[0] if len(tail) == 1 else None
        # The work of one call in elements touched or multiplied: what a budget weighs against bytes.
        self.cost = cost if cost is not None else float(sum(s.numel for s in (*ins, *outs)))
        if listed and launch is not None and launch is not never:
            Plans.add(self)

    def replace_launch(self, launch: Callable[..., None], tail: tuple[int, ...]) -> None:
        """Run something else instead, of which the kernel is a part at most."""
        self.plain = self.launch = launch
        self.tail = tail
        self.size = tail[0] if len(tail) == 1 else None
        self.kernel = None
        Plans.add(self)

    def grad(self, needs: int) -> Grad:
        found = self.grads.get(needs)
        if found is None:
            try:
                found = self.op.make_grad(self, needs)
                found.programs = {}
            except NotDifferentiable as error:
                # Who only looks at the result is not stopped: the error comes when a gradient does.
                found = Grad(needs, (), (), _refusing(str(error)))
            self.grads[needs] = found
        return found


def never(*_: Any) -> None:
    """The launch of a plan that only describes operands."""
    raise AssertionError("a user function is not run again")


class Plans:
    """Every plan that can be launched."""

    every: ClassVar[dict[int, weakref.ref[Plan]]] = {}
    # Called with a new plan in anomaly mode.
    on_new: ClassVar[Callable[[Plan], None] | None] = None

    @classmethod
    def add(cls, plan: Plan) -> None:
        every, key = cls.every, id(plan)
        every[key] = weakref.ref(plan, lambda _: every.pop(key, None))
        if cls.on_new is not None:
            cls.on_new(plan)


def _forget_plans() -> None:
    """Make plans of integers anew: the default type has changed, and with it what they become among floats."""
    for known in list(Plans.every.values()):
        plan = known()
        if plan is not None and any(spec.dtype.kind in "biu" for spec in plan.ins):
            plan.first = None  # a call site does not take it for the plan of its last call
            for table in (plan.op.plans, *plan.op.number_plans.values()):
                table.clear()


when_default_changes.append(_forget_plans)


class Grad:
    """The derivative of a plan for the inputs in the bit mask `needs`.

    `rule(grads, values, params)` gets a gradient per output (or None), a value per input and then per output (a `Shadow`
    where it was not saved) and gives a gradient per input (None where not asked). `direct(g, node)` does the same for a node with
    one output, with fewer steps: it gives the gradient of the input `only`, or one per input where several are asked.
    Each is either `g` itself or has a buffer of its own.
    """

    __slots__ = ("direct", "needs", "only", "programs", "rule", "saves_in", "saves_out")

    def __init__(
        self,
        needs: int,
        saves_in: tuple[int, ...],
        saves_out: tuple[int, ...],
        rule: Callable[..., Any],
        direct: Callable[..., Any] | None = None,
    ) -> None:
        self.needs = needs
        self.saves_in = saves_in
        self.saves_out = saves_out
        self.rule = rule
        self.direct = direct
        self.only = (
            needs.bit_length() - 1 if needs.bit_count() == 1 else -1
        )  # the one input asked for
        self.programs: dict[Any, Any] | None = (
            None  # of a derivative that a plan keeps: see Note [Derived programs]
        )


def _refusing(message: str) -> Callable[..., Any]:
    def rule(*_: Any) -> Any:
        raise NotDifferentiable(message)

    return rule


class Shadow:
    """Stands for a value that a derivative did not save: its shape and type are known, its elements are not."""

    __slots__ = ("_spec",)

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    @property
    def shape(self) -> tuple[int, ...]:
        return self._spec.shape

    @property
    def dtype(self) -> Any:
        return self._spec.dtype

    @property
    def ndim(self) -> int:
        return len(self._spec.shape)


def describe(specs: Sequence[Spec]) -> str:
    return ", ".join(map(repr, specs))


def check_devices(name: str, specs: Sequence[Spec]) -> Pool:
    first: Any = specs[0].device
    for spec in specs[1:]:
        other: Any = spec.device
        if other is not first:
            raise DeviceError(
                f"{name}: operands are on {first.device.name} and {other.device.name} ({describe(specs)}); "
                f"move one with .to({first.device.name!r})"
            )
    return first


def check_dtypes(name: str, specs: Sequence[Spec], accepted: Sequence[Any]) -> None:
    for spec in specs:
        if spec.dtype not in accepted:
            listed = ", ".join(d.name for d in accepted)
            raise UnsupportedDType(
                f"{name}: does not take {spec.dtype.name} (operands {describe(specs)}); "
                f"it takes {listed}: cast with .to(dtype)"
            )
