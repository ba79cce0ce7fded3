"""PyTorch's `torch.nn.attention.varlen`: attention of sequences that follow one another in a row.

Each sequence is one call of attention, so a token meets those of its own sequence alone.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from rushlight.nn import functional as F
from rushlight.ops.create import creation
from rushlight.ops.view.views import cat
from rushlight.tensor import Tensor

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """What is given beside the result: `lse` is the logarithm of the sum of each row's exps."""

    lse: bool = False


def _window(queries: int, keys: int, size: tuple[int, int], like: Tensor) -> Tensor | None:
    """Which keys a query sees; the last query stands at the last key."""
    left, right = size
    if left < 0 and right < 0:
        return None
    at: Any = creation.arange(queries, device=like.device)[:, None] + (keys - queries)
    seen: Any = creation.arange(keys, device=like.device)[None, :]
    mask = seen >= at - left if left >= 0 else seen >= 0
    return mask & (seen <= at + right) if right >= 0 else mask


def _log_sums(q: Any, k: Any, scale: float, mask: Any) -> Any:
    if k.shape[0] != q.shape[0]:
        k = k.repeat_interleave(q.shape[0] // k.shape[0], 0)
    scores = q.float() @ k.float().transpose(-2, -1) * scale
    return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).logsumexp(-1)


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """Attention inside of each of several sequences: tokens, heads, features.

    Args:
        query (Tensor): The queries of all sequences, one after another.
        key (Tensor): The keys; with `block_table` pages of them.
        value (Tensor): The values, as the keys.
        cu_seq_q (Tensor): Where each sequence's queries begin, and the end of the last.
        cu_seq_k (Tensor): The same of keys; that of queries without it.
        max_q (int): The longest sequence's queries; has no effect.
        max_k (int): The longest sequence's keys; has no effect.
        return_aux (AuxRequest): What is given beside the result.
        scale (float): Of the scores; one over the root of the features' number without it.
        window_size (tuple): How many keys to the left and right a query sees; -1 for all.
        enable_gqa (bool): Whether several heads of queries may share one of keys.
        seqused_k (Tensor): How many keys of each sequence are looked at.
        block_table (Tensor): The pages of each sequence.
        num_splits (int): Has no effect.
    """
    if block_table is not None and seqused_k is None:
        raise ValueError("varlen_attn: block_table needs seqused_k, the keys of each sequence")
    ends: Any = cu_seq_q.tolist()
    key_ends: Any = ends if cu_seq_k is None else cu_seq_k.tolist()
    used: Any = None if seqused_k is None else seqused_k.tolist()
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    outs: list[Any] = []
    sums: list[Any] = []
    for n, (first, last) in enumerate(itertools.pairwise(ends)):
        if block_table is None:
            start = key_ends[n]
            stop = key_ends[n + 1] if used is None else start + used[n]
            k, v = key[start:stop], value[start:stop]
        else:
            pages: Any = block_table[n]
            pages = pages[: -(-used[n] // key.shape[1])].long()
            k, v = (x[pages].flatten(0, 1)[: used[n]] for x in (key, value))
        q, k, v = (x.transpose(0, 1) for x in (query[first:last], k, v))
        mask = _window(q.shape[-2], k.shape[-2], window_size, query)
        made: Any = F.scaled_dot_product_attention(
            q[None], k[None], v[None], mask, scale=factor, enable_gqa=enable_gqa
        )
        outs.append(made[0].transpose(0, 1))
        if return_aux is not None and return_aux.lse:
            sums.append(_log_sums(q, k, factor, mask))
    whole: Any = cat(outs, 0)
    return (whole, cat(sums, -1)) if sums else whole


def varlen_attn_out(out: Tensor, *args: Any, **named: Any) -> Any:
    """`varlen_attn`, written to a tensor.

    Args:
        out (Tensor): Takes the result.
        *args: Those of `varlen_attn`.
        **named: Those of `varlen_attn`.
    """
    made = varlen_attn(*args, **named)
    if isinstance(made, tuple):
        return out.copy_(made[0]), made[1]
    return out.copy_(made)
