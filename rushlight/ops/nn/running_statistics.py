"""Running statistics: a mean and a variance that follow those of batches, written in place."""

from __future__ import annotations

from rushlight.core.errors import InplaceError
from rushlight.core.shapes import Spec
from rushlight.ops.view import lanes
from rushlight.ops.view.inplace import Update
from rushlight.scalar.ir import Expr
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.state import Changed
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import levels_of, physical_of


def _statistics_body(
    running_mean: Expr,
    running_var: Expr,
    mean: Expr,
    rstd: Expr,
    momentum: Expr,
    eps: Expr,
    correction: Expr,
) -> tuple[Expr, Expr]:
    variance = (1 / (rstd * rstd) - eps) * correction
    return running_mean + (mean - running_mean) * momentum, running_var + (
        variance - running_var
    ) * momentum


_statistics = Update(
    "batch_norm_statistics",
    _statistics_body,
    2,
    3,
    "Running mean and variance moved towards the batch's.",
)


def _update_batch(
    running: tuple[Value, Value], seen: tuple[Value, Value], numbers: tuple[float, ...]
) -> None:
    """Each example's own statistics; shared ones cannot be changed by each example."""
    if any(
        level not in levels_of(target)
        for target in running
        for v in (*seen, *running)
        for level in levels_of(v)
    ):
        raise InplaceError(
            "batch_norm: running statistics that all examples share would be written in place by "
            "each of them under vmap; map over them too, or use track_running_stats=False, "
            ".eval(), or func.replace_all_batch_norm_modules_"
        )
    levels, shape = levels_of(running[0]), running[0]._spec.shape
    with Changed(grad=False):
        ready = [lanes.spread(Needed.reshape(call.detached(v), shape), levels) for v in seen]
    _statistics((*[physical_of(v) for v in running], *ready), numbers)


def update_statistics(
    running_mean: Value,
    running_var: Value,
    mean: Value,
    rstd: Value,
    momentum: float,
    eps: float,
    count: int,
) -> None:
    shape = running_mean._spec.shape
    if any(v._spec.hidden for v in (running_mean, running_var, mean, rstd)):
        _update_batch(
            (running_mean, running_var), (mean, rstd), (momentum, eps, count / (count - 1))
        )
        return
    flat = [
        v
        if v._spec.shape == shape
        else call.lay(Spec.of(v._spec.device, v._spec.dtype, shape), v._memory, v._offset)
        for v in (mean, rstd)
    ]
    _statistics((running_mean, running_var, *flat), (momentum, eps, count / (count - 1)))
