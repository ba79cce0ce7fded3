"""Which call is to blame for a NaN or an infinity, and the error. See Note [Anomaly checks]."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import DType, compute_type, float64, int32, int64
from rushlight.core.errors import AnomalyError
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.scalar.ir import arg, const, make, row
from rushlight.tape.anomaly.finite import INFINITE, NAMES, is_inexact, worst_number
from rushlight.tape.record.op import Plan, describe
from rushlight.tape.record.source_line import SourceLine
from rushlight.tape.record.value import Node, Output, Value


class Mode:
    """The switches; see tape/anomaly/mode.py."""

    on = False  # results are checked
    infinite = True  # infinities count


class _Excused(threading.local):
    """Whether, in this thread, a recent result was bad, and so were its inputs."""

    once = False


Excused = _Excused()


def can_check(plan: Plan) -> bool:
    """Whether the plan's kernel can check its own results.

    Complex results are made of others: Note [Complex kernels].
    """
    return plan.kernel is not None and not any(
        spec.dtype.kind == "c" for spec in (*plan.ins, *plan.outs)
    )


def causes(plan: Plan) -> list[int]:
    """The inputs that may explain the results."""
    count = len(plan.ins) if plan.op.causes is None else plan.op.causes
    return [i for i, spec in enumerate(plan.ins[:count]) if is_inexact(spec)]


def worst_given(plan: Plan, numbers: Sequence[Any]) -> int:
    """The badness of a launch's numbers that are no addresses: a fill's, and those of the plan."""
    first = len(plan.outs) + len(plan.ins) + len(plan.tail)
    return max(worst_number(numbers[first:]), worst_number(plan.static))


# ---- the error ----


def is_to_blame(found: int, from_worst: int) -> bool:
    return found > from_worst and (Mode.infinite or found > INFINITE)


def forward_error(plan: Plan, kind: int, where: str, called: str) -> AnomalyError:
    """`where` names the elements, as words in brackets."""
    name, what = plan.op.name, NAMES[kind] + where
    source = "from finite operands" if kind == INFINITE else "from operands without one"
    message = (
        f"{name}: {what} in its result, {source}, at {called} ({_operands(plan)}){_hint(kind)}"
    )
    return AnomalyError(message, what, name, called)


def backward_error(plan: Plan, kind: int, where: str, called: str) -> AnomalyError:
    """`plan` and `called` are those of the call whose derivative it was."""
    name, what = plan.op.name, NAMES[kind] + where
    source = "is finite" if kind == INFINITE else "has none"
    message = (
        f"{name}: {what} from its backward, where the gradient that came in {source}; {name} was "
        f"called at {called} ({_operands(plan)}){_hint(kind)}"
    )
    return AnomalyError(message, what, name, called, True)


def blame(error: AnomalyError, plan: Plan, called: str) -> None:
    """An anomaly found while the derivative of a call ran: the error names that call."""
    if error.in_backward:
        return
    name = plan.op.name
    message = (
        f"{name}: {error.what} in its backward, made by {error.op} at {error.place}; {name} was "
        f"called at {called}"
    )
    error.args = (f"{message} ({_operands(plan)})",)
    error.op, error.place, error.in_backward = name, called, True


# For a recorded call that a derivative made: the call whose derivative it was.
ORIGINS: weakref.WeakKeyDictionary[Node, tuple[Plan, SourceLine]] = weakref.WeakKeyDictionary()


def note_origins(node: Node, parts: Sequence[Value | None]) -> None:
    """Note the node whose derivative made the gradients, for the next order."""
    for part in parts:
        made = None if part is None else part._node
        made = made.node if type(made) is Output else made
        if isinstance(made, Node) and made is not node and made not in ORIGINS:
            ORIGINS[made] = (node.plan, node.place)


def called_at(place: SourceLine, origin: tuple[Plan, SourceLine] | None) -> str:
    """The place of a call, in words."""
    within = (
        "" if origin is None else f", in the backward of {origin[0].op.name} called at {origin[1]}"
    )
    return f"{place}{within}"


def _operands(plan: Plan) -> str:
    given = f"operands {describe(plan.ins)}" if plan.ins else "no operands"
    return f"{given}; result {describe(plan.outs)}"


def _hint(kind: int) -> str:
    return (
        ""
        if kind > INFINITE
        else "; where infinities are meant, use detect_anomaly(check_inf=False)"
    )


# ---- the kernel that tests another launch's results ----


def checker(dtype: DType, anomaly: tuple[int, ...] | None) -> Rowwise:
    """The largest magnitude of a row, as bits: NaN, if there is one, else an infinity."""
    compute = compute_type(dtype)
    word = int64 if compute is float64 else int32
    mask = (1 << (63 if word is int64 else 31)) - 1
    bits = make("and", (make("bitcast", (arg(0, compute),), word), const(mask, word)), word)
    store = make("bitcast", (row(0, word),), compute)
    return Rowwise(
        (compute,),
        ("row",),
        (dtype,),
        (),
        (Reduce("max", bits),),
        (store,),
        "axis",
        ("0", "1"),
        anomaly,
    )


def check_numbers(count: int, dtype: DType) -> tuple[int, ...]:
    """The numbers after the addresses in a launch of the `checker` on so many elements."""
    return (1, count * (2 if dtype.kind == "c" else 1), 1, 0, 0, 0, 0, 1, 0)
