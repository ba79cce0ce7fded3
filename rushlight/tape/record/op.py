"""The tape's interface to an op: a plan for given operands, and derivatives."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar

from rushlight.core.cache import Cache
from rushlight.core.dtypes import when_default_changes
from rushlight.core.errors import DeviceError, NotDifferentiable, RushlightError, UnsupportedDType
from rushlight.core.shapes import Spec, check_inside
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.kernel.shapes import Map, Rowwise

Static = tuple[Any, ...]


class Op:
    """A named, pure function of arrays. Families (in `ops/`) define `make_plan` and `make_grad`."""

    __slots__ = ("casts", "causes", "doc", "inputs", "name", "number_plans", "plans")

    # Whether a device may round float32 factors to TF32 where `core/precision.py` allows it.
    may_round = False

    def __init__(self, name: str, doc: str) -> None:
        self.inputs: int | None = (
            None  # of a user's function: the number of a plan's inputs that are arguments
        )
        self.name = name
        self.doc = doc
        self.casts: Any = None  # of an op that autocast lists: see Note [Autocast] 2
        # The number of first inputs that count as causes of a nonfinite result; None: all. Of a
        # derivative: the gradients.
        self.causes: int | None = None
        self.plans = Cache()
        # Plans of op(tensor, number), by the number's type and the tensor's spec.
        self.number_plans = {float: Cache(), int: Cache()}

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        raise NotDifferentiable(self.name)  # a family overrides this

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        raise NotDifferentiable(
            f"{self.name}: this op has no derivative, and a gradient is asked through it; "
            f"use .detach() on its input or result if none is meant (operands {describe(plan.ins)})"
        )

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Plan:
    """All that is equal in calls with the same specs of operands."""

    __slots__ = (
        "__weakref__",
        "beyond",  # a view that may reach beyond its input: each call checks the storage
        "blocks",  # of the first output: the pool's list of cached blocks of that size
        "bounds",  # of a moving view: the least and the most byte offset
        "checked",  # the launch with anomaly checks, made on first use
        "cost",
        # The first and second input's spec, and the first output's: tuples cost time in the hot
        # path.
        "first",
        "grads",
        "ins",
        "kernel",  # the one kernel of `plain`, if it can check for anomalies
        # The launch of a call: `plain`, or `checked` in anomaly mode. See Note [Anomaly checks].
        "launch",
        "offsets",
        "op",
        "out",
        "outs",
        "over",  # pairs of a result and an input that it may be written over, if no kernel tells
        "plain",
        "pool",
        "products",  # multiplications of a product or a convolution; 0 of any other op
        # Bytes that a call takes beside its first result: others, and scratch, where its launch
        # tells (`scratch_taken`).
        "rest",
        "room",
        "rooms",
        "roomy",  # whether another plan, with the same bits, is taken where there is little room
        "second",
        "shadows",  # of the operands and the results
        "size",  # the only number after the addresses; None where there are none or several
        "static",
        "stride",  # bytes per unit of a moving view's parameter, else 0: Note [Moving views]
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
        stride: int = 0,
        products: int = 0,
    ) -> None:
        for spec in ins:
            if spec.hidden:  # its memory is a batch's: see Note [Batching]
                raise RushlightError(
                    f"{op.name}: no batching rule for operands {describe(ins)}; take the op out of "
                    "vmap, or loop"
                )
        self.op = op
        self.ins = tuple(ins)
        self.outs = tuple(outs)
        self.shadows = [Shadow(spec) for spec in (*ins, *outs)]
        # None for a view: the outputs have the first input's storage at `offsets` (bytes).
        self.plain = launch
        self.launch = launch
        self.kernel = kernel
        self.checked: Callable[..., None] | None = None
        self.over: Sequence[tuple[int, int]] = ()
        self.static = static
        self.tail = tail
        self.offsets = offsets
        self.beyond = beyond
        self.stride = stride
        self.products = products
        self.bounds = (0, 0)
        if stride:
            self.bounds = ins[0].low - outs[0].low, ins[0].high - outs[0].high
        self.pool: Pool = outs[0].device
        self.rooms = tuple(room_for(max(spec.nbytes, spec.high)) for spec in outs)
        self.grads: dict[int, Grad] = {}
        self.first = ins[0] if ins else None
        self.second = ins[1] if len(ins) > 1 else None
        self.out = outs[0]
        self.room = self.rooms[0]
        self.rest = sum(self.rooms[1:]) + getattr(launch, "scratch_taken", 0)
        self.roomy = False
        self.blocks = self.pool.blocks(self.room)
        self.size = tail[0] if len(tail) == 1 else None
        # The work of one call in elements read or multiplied: a budget compares it with bytes.
        self.cost = cost if cost is not None else float(sum(s.numel for s in (*ins, *outs)))
        if listed and launch is not None and launch is not never:
            Plans.add(self)

    @property
    def scratch(self) -> int:
        return self.rest - sum(self.rooms[1:])

    def replace_launch(self, launch: Callable[..., None], tail: tuple[int, ...]) -> None:
        """Replace the launch by one of which the kernel is a part at most, and reads them last."""
        pairs = product(range(len(self.outs)), range(len(self.ins)))
        self.over = [pair for pair in pairs if writes_over(self, *pair)]
        self.plain = self.launch = launch
        self.tail = tail
        self.size = tail[0] if len(tail) == 1 else None
        self.kernel = None
        Plans.add(self)

    def skip(self, params: tuple[Any, ...]) -> int:
        """The byte offset of a moving view; refused where it reaches beyond its input."""
        skip: int = params[0] * self.stride
        if not self.bounds[0] <= skip <= self.bounds[1]:
            check_inside(self.op.name, self.ins[0], self.out, skip)
        return skip

    def grad(self, needs: int) -> Grad:
        found = self.grads.get(needs)
        if found is None:
            try:
                found = self.op.make_grad(self, needs)
            except NotDifferentiable as error:
                # Reading the result is allowed: the error is raised when a gradient arrives.
                found = Grad(needs, (), (), _refusing(str(error)))
            self.keep_grad(found)
        return found

    def keep_grad(self, grad: Grad) -> None:
        grad.programs = Cache()
        self.grads[grad.needs] = grad


def never(*_: Any) -> None:
    """The launch of a plan that only describes operands."""
    raise AssertionError("a user function is not run again")


def writes_over(plan: Plan, out: int, given: int) -> bool:
    """Whether result `out` may have the memory of input `given`: Note [Kernel arguments].

    Both have one spec, and the kernel walks them in the same way.
    """
    kernel, spec = plan.kernel, plan.outs[out]
    if spec is not plan.ins[given] or not spec.dense or not spec.numel:
        return False
    if kernel is None:
        return (out, given) in plan.over
    places = out, len(plan.outs) + given
    if kernel.steps[places[0]] != kernel.steps[places[1]]:
        return False  # a kernel may keep what it reads once, also along an axis of one element
    rank = kernel.rank if isinstance(kernel, Map) else 3
    if not rank:
        return kernel.steps[out] == "1"
    first, second = [plan.tail[rank * (k + 1) : rank * (k + 2)] for k in places]
    sizes = plan.tail[:rank]
    return all(n == 1 or a == b for n, a, b in zip(sizes, first, second, strict=True))


class Plans:
    """Every plan that can be launched."""

    every: ClassVar[dict[int, weakref.ref[Plan]]] = {}
    # Called with a new plan in anomaly mode.
    on_new: ClassVar[Callable[[Plan], None] | None] = None
    # Whether launches read their inputs again after they wrote, as in anomaly mode.
    read_twice: ClassVar[bool] = False

    @classmethod
    def add(cls, plan: Plan) -> None:
        every, key = cls.every, id(plan)
        # What takes it out again is no Python code, in which Ctrl-C would be lost.
        every[key] = weakref.ref(plan, functools.partial(every.pop, key))
        if cls.on_new is not None:
            cls.on_new(plan)


def _forget_call_sites() -> None:
    """Clear the caches of call sites' last plans."""
    for known in list(Plans.every.values()):
        plan = known()
        if plan is not None:
            plan.first = None


when_default_changes.append(_forget_call_sites)


class Grad:
    """The derivative of a plan for the inputs in the bit mask `needs`.

    `rule(grads, values, params)` gets a gradient per output (or None), a value per input and then
    per output (a `Shadow` where it was not saved) and returns a gradient per input (None where not
    needed). `only` is the index of the one input in `needs`; -1: there are several. `programs`
    keeps the programs made of it, by the specs of the present gradients (Note [Derivatives]); a
    derivative that no plan keeps has none. `fused(specs)` gives such a program without a trace, or
    None. `dense`: the rule reads contiguous gradients only, and gets such. `piece(g, values, low,
    high)` gives some rows of the gradient of input `only`: see Note [Backward] 6.
    """

    __slots__ = (
        *("dense", "fused", "hands_on", "needs", "only", "piece", "programs", "rule"),
        *("saves_in", "saves_out"),
    )

    def __init__(
        self,
        needs: int,
        saves_in: tuple[int, ...],
        saves_out: tuple[int, ...],
        rule: Callable[..., Any],
        fused: Callable[[Sequence[Spec | None]], Any] | None = None,
        hands_on: bool = False,
    ) -> None:
        self.needs = needs
        self.only = needs.bit_length() - 1 if needs.bit_count() == 1 else -1
        self.saves_in = saves_in
        self.saves_out = saves_out
        self.rule = rule
        self.fused = fused
        self.hands_on = hands_on  # whether the rule only passes launch parameters on
        self.dense = False
        self.piece: Callable[..., Any] | None = None
        self.programs: Cache | None = None


def _refusing(message: str) -> Callable[..., Any]:
    def rule(*_: Any) -> Any:
        raise NotDifferentiable(message)

    return rule


class Shadow:
    """Replaces a value that was not saved: its shape and dtype are known, not its elements."""

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
                f"{name}: operands are on {first.device.name} and {other.device.name} "
                f"({describe(specs)}); move one with .to({first.device.name!r})"
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
