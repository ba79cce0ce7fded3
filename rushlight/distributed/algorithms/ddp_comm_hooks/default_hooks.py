"""Hooks that average gradients, as they are or in 16 bits."""

from __future__ import annotations

from typing import Any

from rushlight.compat.futures import Future
from rushlight.core.dtypes import DType, bfloat16, float16
from rushlight.distributed.collectives import all_reduce
from rushlight.distributed.process_groups import resolved
from rushlight.distributed.reducer import GradBucket, Hook
from rushlight.distributed.reducing import ReduceOp
from rushlight.tensor import Tensor


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The average, as without a hook."""
    work: Any = all_reduce(bucket.buffer(), ReduceOp.AVG, resolved(process_group), async_op=True)
    future: Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


def _compressed(process_group: Any, bucket: GradBucket, dtype: DType) -> Future[Tensor]:
    group, buffer = resolved(process_group), bucket.buffer()
    small = buffer.to(dtype).div_(group.size())
    work: Any = all_reduce(small, group=group, async_op=True)
    future: Future[Tensor] = work.get_future().then(lambda done: buffer.copy_(done.value()[0]))
    return future


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The average, of float16: half of the bytes travel."""
    return _compressed(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The average, of bfloat16: half of the bytes travel."""
    return _compressed(process_group, bucket, bfloat16)


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Another hook, on gradients in float16."""
    return _wrapped(hook, float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Another hook, on gradients in bfloat16."""
    return _wrapped(hook, bfloat16)


def _wrapped(hook: Hook, dtype: DType) -> Hook:
    def run(state: Any, bucket: GradBucket) -> Future[Tensor]:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        future: Future[Tensor] = hook(state, bucket).then(lambda done: buffer.copy_(done.value()))
        return future

    return run
