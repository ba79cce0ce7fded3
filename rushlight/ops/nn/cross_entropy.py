"""Cross entropy: a fused rowwise kernel with class indices, and ops made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.cache import cached
from rushlight.core.dtypes import FLOAT, INDEX, DType, float32, int32, int64, integer_range, uint8
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Scratch
from rushlight.kernel.shapes import Gather, Reduce, Rowwise
from rushlight.ops.family.build import built, step_of
from rushlight.ops.family.map import Formula, map_kernel
from rushlight.ops.family.rowwise import CHUNK, COMPUTE, DeclaredRow, Rows, call_rows
from rushlight.ops.index.gather import checked, gather
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.scaled import chosen, reduced
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.softmax import log_softmax
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, const, param, row
from rushlight.tape.record.op import Plan, Static
from rushlight.tape.record.value import Value


def _body(r: Rows, x: Expr, target: Expr, ignored: int) -> tuple[Expr, Expr]:
    target = s.cast(target, int64)  # the dtype of positions
    top = r.max(x, constant=True)
    level = s.log(r.sum(s.exp(x - top))) + top
    hit = r.sum(s.where(r.index.eq(target), x, const(0, x.dtype)))
    return s.where(target.eq(ignored), const(0, x.dtype), level - hit), level


def _vjp(r: Rows, g: Expr, g_level: Expr, level: Expr, x: Expr, target: Expr, ignored: int) -> Expr:
    target = s.cast(target, int64)
    share = s.exp(x - level)
    at_target = s.where(r.index.eq(target), const(1, x.dtype), const(0, x.dtype))
    # Where all are ignored their mean's gradient is infinite; selected before it is multiplied, it
    # stays out of the next one too.
    kept = s.where(target.eq(ignored), const(0, x.dtype), g)
    return kept * (share - at_target) + g_level * share


class CrossEntropy(DeclaredRow):
    """loss[i] = log(sum(exp(x[i]))) - x[i, target[i]], and the first term.

    Checks the targets' range.
    """

    __slots__ = ("ignored",)

    batching = "elementwise.classes"

    ignored: int  # the ignored target

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        plan = super().make_plan(ins, static)
        x, target = ins
        pool: Any = x.device
        classes = x.shape[static[0]]
        check = _range_check(pool, target, classes, self.ignored)
        run = plan.plain
        assert run is not None
        rest = plan.tail

        def launch(loss: int, level: int, logits: int, classes_at: int) -> None:
            check(classes_at)
            run(loss, level, logits, classes_at, *rest)

        plan.replace_launch(launch, ())
        return plan


def _range_check(pool: Any, target: Spec, classes: int, ignored: int) -> Any:
    """A launch that detects targets out of range."""
    if not target.numel:
        return lambda *_: None
    # Other devices' status words are set by indexed kernels only; long folds have one thread.
    few = pool.device.limits.host_memory and target.numel < 2 * CHUNK
    check = (_fold_check if few else _gather_check)(pool, target, classes, ignored)
    return checked(pool, check, "cross_entropy", classes)


def _fold_check(pool: Any, target: Spec, classes: int, ignored: int) -> Any:
    """The largest of the status word and, for a target out of range, 1."""
    index, word = arg(0, target.dtype), arg(1, int32)
    end, spared = (param(i, target.dtype) for i in range(2))
    bad = ((index < 0) | (index >= end)) & index.ne(spared)
    passes = (Reduce("max", s.where(bad, const(1, int32), const(0, int32))),)
    types, stores = (target.dtype, int32), (s.maximum(row(0, int32), word),)
    step = target.strides[0]
    kernel = Rowwise(
        *((int32,), ("row",), types, (target.dtype,) * 2, passes, stores),
        *("axis", ("0", step_of(step), "0")),
    )
    fold = built(pool, kernel)
    tail = (1, target.numel, 1, 0, 0, 0, 0, step, 0, 0, 0, 0, classes, ignored)

    def run(address: int, place: int) -> None:
        pool.lend(place, int32.itemsize)  # the word is no block of the pool
        try:
            fold(place, address, place, *tail)
        finally:
            pool.take_back(place, int32.itemsize)

    return run


def _gather_check(pool: Any, target: Spec, classes: int, ignored: int) -> Any:
    """A gather from one row at the targets: many threads take part."""
    index = arg(0, target.dtype)
    place = s.where(index.eq(ignored), const(0, target.dtype), index)
    formula = Formula((target.dtype,), (), (target.dtype,), (place,))
    kernel, tail = map_kernel(formula, (target.numel,), ((1,), (target.strides[0],)), 1)
    clean, read = built(pool, kernel), built(pool, Gather(target.dtype, target.dtype))
    sizes = (1, target.numel, 1, classes, 0, 1, 0, 0, 0, 0, 0, 1, 0)
    room = -(-target.nbytes // 64) * 64 or 64

    def run(address: int, word: int) -> None:
        with Scratch(pool, room) as (places,):
            clean(places, address, *tail)
            # The source's stride is 0: every index reads its first element; only the range matters.
            read(places, address, places, word, *sizes)

    return run


@cached
def _cross_entropy(ignored: int, wide: bool = False) -> CrossEntropy:
    """The op that ignores a target; `wide`: losses of halves are float32."""
    op = CrossEntropy(
        "cross_entropy",
        lambda r, x, target: _body(r, x, target, ignored),
        lambda r, g, g_level, loss, level, x, target: _vjp(
            r, g, g_level, level, x, target, ignored
        ),
        FLOAT,
        (1,),
        ("row", "row"),
        (COMPUTE if wide else None, COMPUTE),
        None,
        "Negative log likelihood of classes under softmax.",
    )
    op.ignored = ignored
    return op


def _kept_mean(r: Rows, loss: Expr, target: Expr, ignored: int) -> Expr:
    return r.sum(loss) / r.sum(_is_kept(target, loss, ignored))


def _is_kept(target: Expr, like: Expr, ignored: int) -> Expr:
    return s.where(target.eq(ignored), const(0, like.dtype), const(1, like.dtype))


@cached
def _mean_of_kept(ignored: int) -> DeclaredRow:
    """The losses' sum over the number of targets that are not ignored."""
    return DeclaredRow(
        "mean_of_kept",
        lambda r, loss, target: _kept_mean(r, loss, target, ignored),
        lambda r, g, out, loss, target: g / r.sum(_is_kept(target, g, ignored)),
        FLOAT,
        (),
        ("row",),
        (None,),
        None,
        "Mean of the losses whose target is not ignored.",
    )


def _class_last(input: Value, target: Value) -> tuple[Value, Value]:
    """(N, C, ...) and (N, ...) as (rows, C) and (rows,)."""
    shape = input._spec.shape
    if len(shape) == 1:
        return views.unsqueeze(input, 0), views.reshape(target, (1,))
    if len(shape) > 2:
        order = (0, *range(2, len(shape)), 1)
        input = views.permute(input, order)
    return views.reshape(input, (-1, shape[1])), views.reshape(target, (-1,))


def _fits(number: int, dtype: DType) -> bool:
    least, most = integer_range(dtype)
    return least <= number <= most


def _classes(
    op: str, input: Value, target: Value, weight: Value | None, ignore_index: int
) -> Value:
    """The target, checked; in int64 where its dtype does not hold `ignore_index`."""
    shape, wanted = input._spec.shape, target._spec.shape
    expected = shape[:1] + shape[2:] if len(shape) > 1 else ()
    if not shape or wanted != expected:
        raise ShapeError(
            f"{op}: input {input._spec!r} (batch, classes, ...) needs a target of shape "
            f"{list(expected)}, got {target._spec!r}"
        )
    if target._spec.dtype not in (*INDEX, uint8):
        raise DTypeError(
            f"{op}: the target must hold class indices (int64), got {target._spec!r}; cast with "
            ".long()"
        )
    classes = shape[1] if len(shape) > 1 else shape[0]
    if weight is not None and weight._spec.shape != (classes,):
        raise ShapeError(
            f"{op}: weight {weight._spec!r} must have one number for each of the {classes} classes"
        )
    held = target._spec.dtype is not uint8 and _fits(ignore_index, target._spec.dtype)
    return target if held else e.cast(target, int64)


@composite("cross_entropy", method=False, top=False, pure=True, autocast="dtype")
def cross_entropy(
    input: Value,
    target: Value,
    weight: Value | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    dtype: DType | None = None,
) -> Value:
    """Negative log likelihood of the target classes under softmax(input) along dimension 1.

    `dtype` is that of the loss: float32 for halves, which are read without a copy.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
        >>> F.cross_entropy(logits, torch.tensor([0, 1]))
        tensor(0.4100)
        >>> F.cross_entropy(logits, torch.tensor([0, 1]), reduction='none')
        tensor([0.1269, 0.6931])
    """
    reduction = chosen(size_average, reduce, reduction)
    if not 0 <= label_smoothing <= 1:
        raise RushlightError(
            f"cross_entropy: label_smoothing must lie between 0 and 1, got {label_smoothing}"
        )
    held = input._spec.dtype
    wide = dtype is float32 and held.kind == "f" and held.itemsize == 2
    if dtype is not None and not wide:
        input = e.cast(input, dtype)
    if dtype is not None and weight is not None:
        weight = e.cast(weight, dtype)
    if target._spec.dtype.kind == "f":
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing, dtype)
    target = _classes("cross_entropy", input, target, weight, ignore_index)
    x, classes = _class_last(input, target)
    loss, level = call_rows(
        _cross_entropy(ignore_index, wide), (x, views.unsqueeze(classes, 1)), 1, False
    )
    held = loss._spec.dtype
    if (
        reduction == "mean"
        and weight is None
        and not label_smoothing
        and classes._spec.numel < 2 * CHUNK
    ):
        # Longer sums have work for many threads.
        return call_rows(_mean_of_kept(ignore_index), (loss, classes), 0, False)
    kept = e.ne(classes, ignore_index)
    scale = None
    if weight is not None:
        safe = e.select(kept, classes, 0)
        scale = e.mul(gather(weight, 0, safe), e.cast(kept, held))
        loss = e.mul(loss, scale)
    if label_smoothing:
        loss = _smooth(x, level, loss, kept, weight, label_smoothing)
    if reduction == "mean":
        total = reductions.sum(e.cast(kept, held) if scale is None else scale)
        return e.div(reductions.sum(loss), total)
    loss = views.reshape(loss, target._spec.shape)
    return reduced(loss, reduction, "cross_entropy")


def _smooth(
    x: Value, level: Value, loss: Value, kept: Value, weight: Value | None, share: float
) -> Value:
    away = e.sub(views.unsqueeze(level, 1), x)
    spread = (
        reductions.mean(away, 1)
        if weight is None
        else e.div(reductions.sum(e.mul(away, weight), 1), float(x._spec.shape[1]))
    )
    spread = e.cast(e.select(kept, spread, 0), loss._spec.dtype)  # `level` of halves is float32
    return e.add(e.mul(loss, 1 - share), e.mul(spread, share))


def _soft_cross_entropy(
    x: Value,
    target: Value,
    weight: Value | None,
    reduction: str,
    smoothing: float,
    dtype: DType | None,
) -> Value:
    """Targets that are probabilities."""
    if x._spec.shape != target._spec.shape:
        raise ShapeError(
            f"cross_entropy: input {x._spec!r} and probabilities {target._spec!r} must have one "
            "shape"
        )
    dim = 1 if len(x._spec.shape) > 1 else 0
    if smoothing:
        target = e.add(e.mul(target, 1 - smoothing), smoothing / x._spec.shape[dim])
    likelihood = log_softmax(x, dim, dtype=dtype)
    if weight is not None:
        shape = (-1,) + (1,) * (len(x._spec.shape) - dim - 1)
        likelihood = e.mul(likelihood, views.reshape(weight, shape))
    loss = e.neg(reductions.sum(e.mul(likelihood, target), dim))
    if reduction == "mean" and loss._spec.shape:
        return e.div(reductions.sum(loss), float(loss._spec.numel))
    return reduced(loss, reduction, "cross_entropy")


@composite("nll_loss", method=False, top=False, pure=True, autocast="float32")
def nll_loss(
    input: Value,
    target: Value,
    weight: Value | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Value:
    """Negative log likelihood of the target classes, given log probabilities along dimension 1.

    Example:
        >>> F.nll_loss(torch.log(torch.tensor([[0.5, 0.5]])), torch.tensor([1]))
        tensor(0.6931)
    """
    reduction = chosen(size_average, reduce, reduction)
    target = _classes("nll_loss", input, target, weight, ignore_index)
    x, classes = _class_last(input, target)
    kept = e.ne(classes, ignore_index)
    safe = e.select(kept, classes, 0)
    scale = e.cast(kept, x._spec.dtype)
    if weight is not None:
        scale = e.mul(scale, gather(weight, 0, safe))
    picked = views.squeeze(gather(x, 1, views.unsqueeze(safe, 1)), 1)
    # Selected, not multiplied by 0: where all are ignored the gradient of their mean is infinite.
    loss = e.select(kept, e.neg(picked if weight is None else e.mul(picked, scale)), 0)
    if reduction == "mean":
        return e.div(reductions.sum(loss), reductions.sum(scale))
    return reduced(views.reshape(loss, target._spec.shape), reduction, "nll_loss")


@composite("linear_cross_entropy", method=False, top=False)
def linear_cross_entropy(
    input: Value,
    linear_weight: Value,
    target: Value,
    *,
    linear_bias: Value | None = None,
    weight: Value | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Value:
    """cross_entropy of a linear layer's logits, classes first in its weight.

    PyTorch's `options` choose how the batch is cut to save memory; they change no value, and a
    budget does that here.
    """
    op = "linear_cross_entropy"
    shape, table = input._spec.shape, linear_weight._spec.shape
    if (
        len(shape) not in (1, 2)
        or len(table) < 2
        or shape[-1] != table[-1]
        or (len(table) > 2 and len(shape) == 1)
    ):
        raise ShapeError(
            f"{op}: input {input._spec!r} (batch, features) and linear_weight "
            f"{linear_weight._spec!r} (classes, ..., features) do not fit"
        )
    if linear_bias is not None and linear_bias._spec.shape != table[:-1]:
        raise ShapeError(
            f"{op}: linear_bias {linear_bias._spec!r} must have the shape {list(table[:-1])}"
        )
    wanted = (*shape[:-1], *table[:-1])
    if target._spec.shape == wanted and ignore_index is not None:
        raise RushlightError(
            f"{op}: ignore_index does not go with a target of probabilities, {target._spec!r}"
        )
    logits = matmul(input, views.transpose(views.reshape(linear_weight, (-1, table[-1])), 0, 1))
    if linear_bias is not None:
        logits = e.add(logits, views.reshape(linear_bias, (-1,)))
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        views.reshape(logits, wanted),
        target,
        weight,
        ignore_index=ignored,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
