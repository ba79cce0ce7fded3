"""Batch normalisation whose statistics are those of all ranks' batches.

# Note [Statistics of ranks]
1. Each rank gives its count, mean and sum of squared differences; all combine them, two by two, in
   the tree of Note [Sums of ranks], so that all ranks have the same bits.
2. The derivative needs two sums over all rows, which are one all-reduce in backward. Gradients of
   scale and shift are the rank's own: DistributedDataParallel averages them.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import compute_type
from rushlight.core.errors import ShapeError
from rushlight.distributed.collectives import NonMember, all_gather, all_reduce
from rushlight.distributed.process_groups import ProcessGroup, default_group
from rushlight.nn.norm import SyncBatchNorm, _BatchNorm
from rushlight.ops.create.creation import empty
from rushlight.ops.view.views import cat
from rushlight.tape.function import Function
from rushlight.tensor import Tensor

Moments = tuple[float, Any, Any]  # count, mean, sum of squared differences


def merged(left: Moments, right: Moments) -> Moments:
    """The moments of two sets of rows together."""
    count = left[0] + right[0]
    if not count:
        return left
    apart = right[1] - left[1]
    share = right[0] / count
    return (
        count,
        left[1] + apart * share,
        left[2] + right[2] + apart * apart * (left[0] * share),
    )


def over_ranks(mine: Moments, group: ProcessGroup) -> Moments:
    """The moments of all ranks' rows. See Note [Statistics of ranks] 1."""
    count, mean, squares = mine
    sent = cat([mean, squares, mean.new_full((1,), count)])
    rows = [empty(sent.shape, dtype=sent.dtype, device=sent.device) for _ in range(group.size())]
    all_gather(rows, sent, group)
    width = mean.numel()
    parts = [(float(row[-1].item()), row[:width], row[width:-1]) for row in rows]

    def of(low: int, high: int) -> Moments:
        if high - low == 1:
            return parts[low]
        middle = (low + high) // 2
        return merged(of(low, middle), of(middle, high))

    return of(0, len(parts))


class _Normalised(Function):
    """(x - mean) / deviation * weight + bias, with statistics of all ranks."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, moments: list[Any], eps: float, group: Any
    ) -> Any:
        dims = [n for n in range(x.dim()) if n != 1]
        shape = [1, -1] + [1] * (x.dim() - 2)
        wide = x.to(compute_type(x.dtype))
        count = x.numel() // max(1, x.shape[1])
        mean = wide.mean(dims) if count else wide.sum(dims)
        squares = (wide - mean.view(shape)).square().sum(dims)
        moments[:] = over_ranks((float(count), mean, squares), group)
        total, mean, squares = moments
        inverse = (squares / total + eps).rsqrt()
        made = (wide - mean.view(shape)) * inverse.view(shape)
        if weight is not None:
            made = made * weight.to(wide.dtype).view(shape)
        if bias is not None:
            made = made + bias.to(wide.dtype).view(shape)
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.total, ctx.group, ctx.dims, ctx.shape = total, group, dims, shape
        return made.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, weight, mean, inverse = ctx.saved_tensors
        shape, dims = ctx.shape, ctx.dims
        wide, incoming = x.to(mean.dtype), g.to(mean.dtype)
        normal = (wide - mean.view(shape)) * inverse.view(shape)
        shift, scale = incoming.sum(dims), (incoming * normal).sum(dims)
        sums = cat([shift, scale])
        all_reduce(sums, group=ctx.group)
        width = shift.numel()
        own = None
        if ctx.needs_input_grad[0]:
            mean_g = (sums[:width] / ctx.total).view(shape)
            mean_p = (sums[width:] / ctx.total).view(shape)
            factor = inverse if weight is None else inverse * weight.to(mean.dtype)
            own = ((incoming - mean_g - normal * mean_p) * factor.view(shape)).to(x.dtype)
        by_weight = None if weight is None else scale.to(weight.dtype)
        by_bias = shift.to(mean.dtype if weight is None else weight.dtype)
        return own, by_weight, by_bias if ctx.needs_input_grad[2] else None, None, None, None


def normalise(layer: Any, x: Tensor) -> Tensor:
    """The forward of SyncBatchNorm in a group of several processes."""
    group = layer.process_group if layer.process_group is not None else default_group()
    known = layer.training or layer.running_mean is None
    if group is None or isinstance(group, NonMember) or group.size() == 1 or not known:
        return _BatchNorm.forward(layer, x)
    if x.dim() < 2:
        raise ShapeError(f"SyncBatchNorm: input must have 2 dimensions, got {list(x.shape)}")
    moments: list[Any] = []
    made: Tensor = _Normalised.apply(x, layer.weight, layer.bias, moments, layer.eps, group)
    total, mean, squares = moments
    if layer.training and layer.track_running_stats and layer.running_mean is not None:
        share = layer._share_of_batch()
        varied = squares / max(1.0, total - 1)
        for kept, found in ((layer.running_mean, mean), (layer.running_var, varied)):
            kept.copy_(kept * (1 - share) + found.to(kept.dtype) * share)
        layer.num_batches_tracked.add_(1)
    return made


SyncBatchNorm.over_processes = normalise
