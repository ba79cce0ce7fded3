"""PyTorch's `torch._dynamo._trace_wrapped_higher_order_op`: indexing inside vmap."""

from __future__ import annotations

import contextlib


class TransformGetItemToIndex(contextlib.nullcontext[None]):
    """A block in which nothing changes: batched tensors may be indices here."""
