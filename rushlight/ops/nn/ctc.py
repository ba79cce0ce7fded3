"""Connectionist temporal classification.

# Note [CTC]
1. The states are the labels of a target with blanks around each. `alpha[t][s]` is the log
   probability of all paths to state s in the first t + 1 rows; one elementwise op per row advances
   all states of all samples. It begins one row early, with probability 1 before the first state, so
   that no row is special.
2. A sample without rows left keeps its alpha: at the end it is that of its own last row.
3. The loss is a function of log probabilities that sum to 1. Its gradient includes the normaliser's
   part, as in PyTorch: exp(log_probs) less the share of the target's paths. Through log_softmax
   that part is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rushlight.core.dtypes import FLOAT, INDEX, float32, int64
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.ops.arguments import ArgumentKindError
from rushlight.ops.create import creation
from rushlight.ops.family import read_back
from rushlight.ops.family.declare import elementwise
from rushlight.ops.index.gather import gather
from rushlight.ops.index.scatter import filled
from rushlight.ops.nn.padding import constant_pad_nd
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.scaled import reduced
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const
from rushlight.tape.record import call
from rushlight.tape.record.op import check_dtypes
from rushlight.tape.record.value import Value


def _together(first: Expr, *others: Expr) -> Expr:
    """The logarithm of the sum of the exponentials; -inf where all are."""
    low, zero = const(-math.inf, first.dtype), const(0, first.dtype)
    top = first
    for x in others:
        top = s.maximum(top, x)
    none = top.eq(-math.inf)
    base = s.where(none, zero, top)
    total = s.exp(first - base)
    for x in others:
        total = total + s.exp(x - base)
    # The logarithm of 0 is avoided: its slope is not finite.
    return s.where(none, low, s.log(s.where(none, const(1, first.dtype), total)) + base)


def _joined(a: Expr, b: Expr, c: Expr, skips: Expr) -> Expr:
    """log(exp(a) + exp(b) + exp(c)), c only where the state before may be skipped."""
    return _together(a, b, s.where(skips, c, const(-math.inf, a.dtype)))


def _step(a: Expr, b: Expr, c: Expr, lp: Expr, skips: Expr, runs: Expr) -> Expr:
    return s.where(runs, _joined(a, b, c, skips) + lp, a)


def _step_vjp(
    g: Expr, out: Expr, a: Expr, b: Expr, c: Expr, lp: Expr, skips: Expr, runs: Expr
) -> tuple[Expr | None, ...]:
    total = _joined(a, b, c, skips)
    none, zero = total.eq(-math.inf), const(0, a.dtype)
    level = s.where(none, zero, total)

    def share(x: Expr) -> Expr:
        return s.where(none, zero, g * s.exp(x - level))

    stays = s.where(runs, share(a), g)
    skipped = s.where(skips, share(c), zero)
    return (
        stays,
        s.where(runs, share(b), zero),
        s.where(runs, skipped, zero),
        s.where(runs, g, zero),
        None,
        None,
    )


_advance = elementwise(
    "ctc_step",
    _step,
    "One row of the recursion of Note [CTC].",
    FLOAT,
    vjp=_step_vjp,
    conditions=(4, 5),
    listed=False,
)


def _end(a: Expr, b: Expr) -> Expr:
    return -_together(a, b)


def _end_vjp(g: Expr, out: Expr, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    none, zero = out.eq(math.inf), const(0, a.dtype)
    level = s.where(none, zero, -out)
    return tuple(s.where(none, zero, -g * s.exp(x - level)) for x in (a, b))  # type: ignore[return-value]


_finish = elementwise("ctc_end", _end, "-log(exp(a) + exp(b)).", FLOAT, vjp=_end_vjp, listed=False)


def _lengths(name: str, given: Any, count: int, most: int, like: Value) -> tuple[list[int], Value]:
    """Lengths as numbers and as a tensor on the device of `like`."""
    if isinstance(given, Value):
        if given._spec.dtype not in INDEX:
            raise DTypeError(
                f"ctc_loss: {name} must be integers, got {given._spec!r}; cast with .long()"
            )
        numbers = read_back.read(given)
    elif isinstance(given, str):
        raise ArgumentKindError(f"ctc_loss(): argument {name!r} must be ints, got {given!r:.60}")
    else:
        numbers = [int(n) for n in (given if isinstance(given, Sequence) else [given])]
    if len(numbers) != count:
        raise ShapeError(
            f"ctc_loss: {name} must have a number for each of the {count} samples, got "
            f"{len(numbers)}"
        )
    if any(not 0 <= n <= most for n in numbers):
        raise ShapeError(f"ctc_loss: {name} must lie between 0 and {most}, got {numbers}")
    here = isinstance(given, Value) and given._spec.device is like._spec.device
    if here:
        return numbers, e.cast(views.reshape(given, (count,)), int64)
    parts = [filled(like, int64, (), n) for n in numbers]
    return numbers, views.stack(parts) if parts else filled(like, int64, (0,), 0)


def _padded(targets: Value, lengths: list[int], count: int) -> Value:
    """Concatenated targets as rows of one width; entries after a target's end are any in range."""
    width = max(lengths, default=0)
    if targets._spec.numel != sum(lengths):
        raise ShapeError(
            f"ctc_loss: targets {targets._spec!r} of one dimension must hold the {sum(lengths)} "
            f"labels that target_lengths {lengths} add up to"
        )
    if not width:
        return filled(targets, int64, (count, 0), 0)
    starts = [filled(targets, int64, (), sum(lengths[:i])) for i in range(count)]
    steps = creation.arange(width, device=targets._spec.device.device.name)
    place = e.add(views.unsqueeze(views.stack(starts), 1), steps)
    place = e.minimum(place, filled(targets, int64, (), targets._spec.numel - 1))
    taken = gather(targets, 0, views.reshape(place, (count * width,)))
    return views.reshape(taken, (count, width))


def _states(targets: Value, lengths: Value, blank: int) -> tuple[Value, Value]:
    """The label of each state, (samples, 2 width + 1), and whether a skip to it is allowed."""
    count, width = targets._spec.shape
    steps = creation.arange(width, device=targets._spec.device.device.name)
    # Padding may be any number.
    labels = e.select(e.lt(steps, views.unsqueeze(lengths, 1)), targets, blank)
    blanks = filled(targets, int64, (count, width), blank)
    pairs = views.reshape(views.stack([blanks, labels], 2), (count, 2 * width))
    states = views.cat([pairs, filled(targets, int64, (count, 1), blank)], 1)
    before = constant_pad_nd(views.slice_dim(states, 1, 0, max(2 * width - 1, 0)), (2, 0), -1)
    before = views.slice_dim(before, 1, 0, 2 * width + 1)
    odd = e.eq(
        e.remainder(creation.arange(2 * width + 1, device=targets._spec.device.device.name), 2), 1
    )
    return states, e.logical_and(odd, e.ne(states, before))


def _forward(log_probs: Value, states: Value, skips: Value, input_lengths: Value) -> Value:
    """alpha after the last row of each sample, with two impossible states before the first."""
    rows, count, _ = log_probs._spec.shape
    width = states._spec.shape[1]
    first = filled(log_probs, log_probs._spec.dtype, (count, 1), 0.0)
    alpha = constant_pad_nd(first, (2, width - 1), -math.inf)
    if not rows:
        return alpha
    each = gather(log_probs, 2, views.expand(states, (rows, count, width)))
    each = views.reshape(each, (rows * count, width))
    for t, row in enumerate(views.parts(each, 0, [count] * rows)):
        a, b, c = (views.slice_dim(alpha, 1, 2 - i, width) for i in range(3))
        runs = views.unsqueeze(e.gt(input_lengths, t), 1)
        alpha = constant_pad_nd(_advance(a, b, c, row, skips, runs), (2, 0), -math.inf)
    return alpha


def _normaliser(log_probs: Value, input_lengths: Value) -> Value:
    """Zeros, one per sample, with the gradient exp(log_probs) at the rows in use.

    See Note [CTC].
    """
    steps = creation.arange(log_probs._spec.shape[0], device=log_probs._spec.device.device.name)
    used = e.lt(views.reshape(steps, (-1, 1, 1)), views.reshape(input_lengths, (-1, 1)))
    total = reductions.sum(e.select(used, e.exp(log_probs), 0.0), (0, 2))
    return e.sub(total, call.detached(total))


def _check_operands(log_probs: Value, targets: Value, blank: int) -> None:
    check_dtypes("ctc_loss", [log_probs._spec], FLOAT)
    if len(log_probs._spec.shape) != 3:
        raise ShapeError(
            "ctc_loss: log_probs must be (time, batch, classes) or (time, classes), got "
            f"{log_probs._spec!r}"
        )
    if targets._spec.dtype not in INDEX:
        raise DTypeError(
            f"ctc_loss: the targets must be class indices (int64), got {targets._spec!r}; cast "
            "with .long()"
        )
    if not 0 <= blank < log_probs._spec.shape[2]:
        raise RushlightError(
            f"ctc_loss: blank {blank} is not a class of log_probs {log_probs._spec!r}"
        )
    shape = targets._spec.shape
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != log_probs._spec.shape[1]):
        raise ShapeError(
            "ctc_loss: targets must be (batch, labels) or all labels in a line for "
            f"{log_probs._spec!r}, got {targets._spec!r}"
        )


def _losses(
    log_probs: Value, targets: Value, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[Value, Value]:
    """The loss of each sample and its number of labels."""
    rows, count, _ = log_probs._spec.shape
    _, given = _lengths("input_lengths", input_lengths, count, rows, log_probs)
    flat = len(targets._spec.shape) == 1
    most = targets._spec.numel if flat else targets._spec.shape[1]
    numbers, lengths = _lengths("target_lengths", target_lengths, count, most, log_probs)
    labels = e.cast(targets, int64)
    labels = (
        _padded(labels, numbers, count)
        if flat
        else views.slice_dim(labels, 1, 0, max(numbers, default=0))
    )
    states, skips = _states(labels, lengths, blank)
    alpha = _forward(log_probs, states, skips, given)
    last = views.unsqueeze(e.add(e.mul(lengths, 2), 2), 1)
    # Without labels the state before the last is one of the two impossible ones.
    end, before = (views.squeeze(gather(alpha, 1, place), 1) for place in (last, e.sub(last, 1)))
    return e.add(_finish(end, before), _normaliser(log_probs, given)), lengths


@composite("ctc_loss", method=False, autocast={"cpu": "float32"})
def ctc_loss(
    log_probs: Value,
    targets: Value,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Value:
    """-log of the probability of all alignments of the targets, with blanks and repeats.

    Example:
        >>> log_probs = F.log_softmax(torch.zeros(4, 1, 3), dim=-1)  # time, batch, classes
        >>> F.ctc_loss(log_probs, torch.tensor([[1, 2]]), [4], [2], reduction='sum')
        tensor(1.6864)
    """
    single = len(log_probs._spec.shape) == 2
    x = views.unsqueeze(log_probs, 1) if single else log_probs
    _check_operands(x, targets, blank)
    if x._spec.dtype.itemsize == 2:  # sums of many logarithms
        wide = ctc_loss(
            e.cast(log_probs, float32),
            targets,
            input_lengths,
            target_lengths,
            blank,
            reduction,
            zero_infinity,
        )
        return e.cast(wide, x._spec.dtype)
    loss, lengths = _losses(x, targets, input_lengths, target_lengths, blank)
    if zero_infinity:
        loss = e.select(e.eq(loss, math.inf), 0.0, loss)
    if reduction == "mean":
        parts = e.cast(e.maximum(lengths, filled(lengths, int64, (), 1)), loss._spec.dtype)
        return reductions.mean(e.div(loss, parts))
    if single:
        loss = views.reshape(loss, ())
    return reduced(loss, reduction, "ctc_loss")
