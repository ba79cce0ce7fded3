"""Anomaly checks of results as they are made: which call made the first NaN or infinity.

# Note [Anomaly checks]
1. While results are checked every plan's `launch` is another one, `checked`, made when it is first
   needed: the hot path is unchanged, and runs other kernels. The switch is one for the process, as
   in PyTorch. See Note [Arming].
2. A plan that is one Map or Rowwise kernel runs that kernel with checks (Note [Anomaly kernels]);
   after any other launch a kernel reads the results again (`checker`).
3. The call to blame is one whose result is worse than all its inputs: NaN is worse than an
   infinity, which is worse than finite numbers. So a fill with -inf is not reported (its number is
   its input), a bad operand is not reported again, and NaN from infinities is.
4. A derivative's inputs are the incoming gradients: saved values that are not finite do not excuse
   it (`Op.causes`). Where it is made of several calls, which such values do excuse, the node's
   gradients are checked when one was (`check_node`).
5. Where launches are synchronous and memory is the host's, all this happens before the launch
   returns, so the error comes from the user's line. Elsewhere see
   Note [Asynchronous anomaly checks].
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import ref

from rushlight.core.dtypes import real_type
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Pool
from rushlight.kernel.verify import verify
from rushlight.tape.anomaly import asynchronous
from rushlight.tape.anomaly.arming import Armed, known, loosen
from rushlight.tape.anomaly.blame import (
    ORIGINS,
    Excused,
    Mode,
    backward_error,
    called_at,
    can_check,
    causes,
    check_numbers,
    checker,
    forward_error,
    is_to_blame,
    note_origins,
    worst_given,
)
from rushlight.tape.anomaly.finite import (
    count_in,
    elements,
    is_inexact,
    worst_in,
    worst_loaded,
    worst_stored,
)
from rushlight.tape.record import source_line
from rushlight.tape.record.op import Plan, never
from rushlight.tape.record.value import Node, Value

Launch = Callable[..., None]


def _make_checked(plan: Plan, numbers: Sequence[Any]) -> Launch:
    assert plan.plain is not None
    limits = plan.pool.device.limits
    # A copy from one device to another.
    moves = any(spec.device is not plan.pool for spec in plan.ins)
    if moves or not limits.computes or not any(is_inexact(spec) for spec in plan.outs):
        return plan.plain
    if limits.asynchronous or not limits.host_memory:
        return asynchronous.make_checked(plan)
    if not can_check(plan):
        return _checked_after(plan)
    outs, count = len(plan.outs), len(plan.ins)
    in_place = set(numbers[:outs]) & set(numbers[outs : outs + count])
    kernel: Any = replace(plan.kernel, anomaly=tuple(causes(plan)) if in_place else ())  # type: ignore[type-var]
    verify(kernel)
    return plan.pool.device.build(kernel, partial(_judge, ref(plan), bool(in_place)))


Armed.make = _make_checked


# ---- after a launch ----

_WORD = ctypes.c_double()
SCRATCH = ctypes.addressof(_WORD)  # where checks store results that nobody reads


class _Bad(Exception):
    """The finding of a check."""


def _raise_bad(met: int, *_: int) -> None:
    raise _Bad


def _checked_after(plan: Plan) -> Launch:
    """The plain launch, and a test of each result."""
    plain: Any = plan.plain
    reference = ref(plan)
    checks = [
        (i, *_check_launch(plan.pool, spec)) for i, spec in enumerate(plan.outs) if is_inexact(spec)
    ]

    def launch(*numbers: Any) -> None:
        plain(*numbers)
        if not Mode.on:
            loosen(known(reference))
            return
        try:
            for i, test, tail in checks:
                test(SCRATCH, numbers[i], *tail)
        except _Bad:
            _judge(reference, False, 0, *numbers)

    if len(checks) > 1 or checks[0][0]:
        return launch
    _, test, tail = checks[0]

    def launch_one(*numbers: Any) -> None:
        plain(*numbers)
        if not Mode.on:
            loosen(known(reference))
            return
        try:
            test(SCRATCH, numbers[0], *tail)
        except _Bad:
            _judge(reference, False, 0, *numbers)

    return launch_one


def _check_launch(pool: Pool, spec: Spec) -> tuple[Launch, tuple[int, ...]]:
    """A test of one operand in host memory, which raises _Bad.

    A launch, and the numbers after its two addresses.
    """
    if not spec.dense:
        return partial(_check_slowly, spec), ()
    kernel = checker(real_type(spec.dtype), ())
    verify(kernel)
    return pool.device.build(kernel, _raise_bad), check_numbers(spec.numel, spec.dtype)


def _check_slowly(spec: Spec, _: int, operand: int) -> None:
    if worst_in(elements(operand, spec)):
        raise _Bad


# ---- fault ----


def _judge(reference: ref[Plan], in_place: bool, met: int, *numbers: Any) -> None:
    """A result in host memory is not finite: raise, unless an input was as bad."""
    plan = known(reference)
    if not Mode.on:
        loosen(plan)
        return
    found = 0
    where = ""
    for i, spec in enumerate(plan.outs):
        if is_inexact(spec):
            array = elements(numbers[i], spec)
            kind = worst_in(array)
            if kind > found:
                found, where = kind, count_in(array, kind)
    from_worst = worst_given(plan, numbers)
    if in_place:  # the old value is gone; the kernel has tested it
        found = worst_stored(met)
        from_worst = max(from_worst, worst_loaded(met))
    else:
        first = len(plan.outs)
        from_worst = max(
            [
                from_worst,
                *[worst_in(elements(numbers[first + i], plan.ins[i])) for i in causes(plan)],
            ]
        )
    if is_to_blame(found, from_worst):
        raise forward_error(plan, found, where, str(source_line.here()))
    if found:
        Excused.once = True


def check_node(
    node: Node, grads: Sequence[Value | None], parts: Sequence[Value | None], create: bool
) -> None:
    """Check a node's gradients where a call in its derivative was excused or was the user's own.

    See Note [Anomaly checks] 4.
    """
    own = node.plan.plain is never
    if asynchronous.is_needed(node.plan.pool):
        asynchronous.check_node(node, grads, parts, own)
    elif own or Excused.once:
        found, where = _worst_value(parts)
        if found and is_to_blame(found, _worst_value(grads)[0]):
            raise backward_error(node.plan, found, where, called_at(node.place, ORIGINS.get(node)))
    Excused.once = False
    if create:
        note_origins(node, parts)


def _worst_value(values: Sequence[Value | None]) -> tuple[int, str]:
    found = 0
    where = ""
    for i, value in enumerate(values):
        if (
            value is None
            or value._spec.hidden
            or not is_inexact(value._spec)
            or value._memory.present_address is None
        ):
            continue
        array = elements(value._memory.present_address + value._offset, value._spec)
        kind = worst_in(array)
        if kind > found:
            found, where = kind, f" for input {i}{count_in(array, kind)}"
    return found, where
