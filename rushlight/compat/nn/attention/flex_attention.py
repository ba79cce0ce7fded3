"""PyTorch's `torch.nn.attention.flex_attention`: attention with functions of scores and masks.

All scores are computed, and the functions are called once, with tensors of all indices: memory is
that of plain attention. A `BlockMask` is a mask for each pair of positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight.ops.create.creation import arange
from rushlight.tensor import Tensor

_DEFAULT_SPARSE_BLOCK_SIZE = 128
Mod = Callable[..., Any]


class AuxRequest(NamedTuple):
    """What `flex_attention` returns beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by an `AuxRequest`."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """A mask that holds everywhere."""
    return (token_q >= 0) & (token_kv >= 0)


def _positions(shape: tuple[int, int, int, int], device: Any) -> list[Tensor]:
    """The four indices of each score, shaped to broadcast."""
    return [
        arange(size, device=device).reshape(*(size if i == axis else 1 for i in range(4)))
        for axis, size in enumerate(shape)
    ]


def create_mask(
    mod_fn: Mod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    **named: Any,
) -> Tensor:
    """The mask of a function of indices: (B, H, Q_LEN, KV_LEN) bools."""
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    held: Tensor = mod_fn(*_positions(shape, device))
    return held.expand(shape)


class BlockMask:
    """A mask by a function of indices, with the shape of the scores."""

    def __init__(self, mask_mod: Mod, shape: tuple[int, int, int, int], device: Any) -> None:
        self.mask_mod, self._shape, self._device = mask_mod, shape, device
        self.seq_lengths = shape[2:]
        self.BLOCK_SIZE = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batches, heads, queries and keys."""
        return self._shape

    def to(self, device: Any) -> BlockMask:
        """The mask on another device."""
        return BlockMask(self.mask_mod, self._shape, device)

    def to_dense(self) -> Tensor:
        """The mask of each pair of positions."""
        return create_mask(self.mask_mod, *self._shape, device=self._device)


def create_block_mask(
    mask_mod: Mod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE,
    **named: Any,
) -> BlockMask:
    """The mask of a function of indices."""
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), device)


def and_masks(*mask_mods: Mod) -> Mod:
    """The mask that holds where all hold."""

    def every(*indices: Any) -> Any:
        held = mask_mods[0](*indices)
        for mod in mask_mods[1:]:
            held = held & mod(*indices)
        return held

    return every


def or_masks(*mask_mods: Mod) -> Mod:
    """The mask that holds where one holds."""

    def some(*indices: Any) -> Any:
        held = mask_mods[0](*indices)
        for mod in mask_mods[1:]:
            held = held | mod(*indices)
        return held

    return some


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Mod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attention whose scores are changed by `score_mod(score, b, h, q, kv)` and then masked."""
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(groups, 1)
        value = value.repeat_interleave(groups, 1)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores: Any = query @ key.transpose(-2, -1) * factor
    shape = tuple(scores.shape)
    if score_mod is not None:
        scores = score_mod(scores, *_positions(shape, query.device))
    if block_mask is not None:
        held = block_mask.mask_mod(*_positions(shape, query.device))
        scores = scores.masked_fill(~held, -math.inf)
    total = scores.logsumexp(-1, keepdim=True)
    weights = (scores - total).exp().masked_fill(total == -math.inf, 0.0)
    made = weights @ value
    if return_aux is not None:
        most = scores.amax(-1) if return_aux.max_scores else None
        return made, AuxOutput(total.squeeze(-1) if return_aux.lse else None, most)
    return (made, total.squeeze(-1)) if return_lse else made
