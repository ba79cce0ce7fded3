"""PyTorch's `torch.nn.attention.bias`: causal masks as operands of attention."""

from __future__ import annotations

import enum
import warnings
from typing import Any

from rushlight.compat.subclasses import _make_subclass
from rushlight.compat.torch_function import DisableTorchFunctionSubclass
from rushlight.core.dtypes import bool_
from rushlight.core.errors import RushlightError
from rushlight.nn import functional as F
from rushlight.ops.create import creation
from rushlight.tensor import Tensor

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """At which corner of the scores the diagonal begins where queries and keys differ in number."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A mask of bools, true where a query sees a key. Attention takes it for `attn_mask`.

    Where it says what `is_causal` says, attention gets that and stores no mask.

    Args:
        variant (CausalVariant): Where the diagonal begins.
        seq_len_q (int): How many queries.
        seq_len_kv (int): How many keys.
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        if not isinstance(variant, CausalVariant):
            raise TypeError(f"CausalBias: a CausalVariant is needed, got {variant!r}")
        lower = variant == CausalVariant.LOWER_RIGHT
        if lower and seq_len_q > seq_len_kv:
            warnings.warn(
                f"causal_lower_right: of {seq_len_q} queries the first {seq_len_q - seq_len_kv} "
                "see no key",
                stacklevel=3,
            )
        whole: Any = creation.ones(seq_len_q, seq_len_kv, dtype=bool_)
        made = _make_subclass(cls, whole.tril(seq_len_kv - seq_len_q if lower else 0))
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, *_: Any) -> None:
        pass

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as a plain tensor on a device."""
        with DisableTorchFunctionSubclass():
            mask: Any = self.detach()
            return mask if device is None else mask.to(device)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if getattr(func, "__name__", "") == "scaled_dot_product_attention":
            given = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False))
            bias = given.pop("attn_mask", named.pop("attn_mask", None))
            rest = dict(zip(("dropout_p", "is_causal"), args[4:], strict=False))
            if isinstance(bias, cls):
                return _attended(bias, given | rest | named)
        with DisableTorchFunctionSubclass():
            return func(*args, **named)


def _attended(bias: CausalBias, named: dict[str, Any]) -> Any:
    """Attention under a mask."""
    if named.pop("is_causal", False):
        raise ValueError("CausalBias should not be used with causal=True")
    query, key = named["query"], named["key"]
    if (query.shape[-2], key.shape[-2]) != (bias.seq_len_q, bias.seq_len_kv):
        raise RushlightError(
            f"scaled_dot_product_attention: a CausalBias of {bias.seq_len_q} queries and "
            f"{bias.seq_len_kv} keys, and {query.shape[-2]} queries and {key.shape[-2]} keys"
        )
    upper = bias.variant == CausalVariant.UPPER_LEFT or bias.seq_len_q == bias.seq_len_kv
    mask = None if upper else bias._materialize(query.device)
    with DisableTorchFunctionSubclass():
        return F.scaled_dot_product_attention(attn_mask=mask, is_causal=upper, **named)


def _lengths(name: str, size: tuple[Any, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise RushlightError(f"{name}: two lengths are needed, of queries and of keys; got {size}")
    return size[0], size[1]


def causal_upper_left(*size: int) -> CausalBias:
    """The mask whose diagonal begins at the first query and the first key.

    Args:
        *size (int): How many queries and how many keys.
    """
    return CausalBias(CausalVariant.UPPER_LEFT, *_lengths("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """The mask whose diagonal ends at the last query and the last key.

    Args:
        *size (int): How many queries and how many keys.
    """
    return CausalBias(CausalVariant.LOWER_RIGHT, *_lengths("causal_lower_right", size))
