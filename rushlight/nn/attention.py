"""Attention with several heads, as a layer."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType
from rushlight.nn import init
from rushlight.nn.attention_backends import SDPBackend as SDPBackend, sdpa_kernel as sdpa_kernel
from rushlight.nn.linear import NonDynamicallyQuantizableLinear
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops.create import creation
from rushlight.ops.nn.multi_head import multi_head_attention_forward
from rushlight.tensor import Tensor


class MultiheadAttention(Module):
    """Attention in which each of `num_heads` heads uses its share of the features.

    Inputs are (length, batch, features), or (batch, length, features) with `batch_first`.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None
    out_proj: NonDynamicallyQuantizableLinear

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            kind = AssertionError if embed_dim > 0 and num_heads > 0 else ValueError
            raise kind(
                f"MultiheadAttention: embed_dim {embed_dim} must be positive and divisible by "
                f"num_heads {num_heads}"
            )
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn

        def made(wanted: bool, *shape: int) -> Parameter | None:
            return Parameter(creation.empty(*shape, device=device, dtype=dtype)) if wanted else None

        together = self.kdim == embed_dim and self.vdim == embed_dim
        self.register_parameter("in_proj_weight", made(together, 3 * embed_dim, embed_dim))
        self.register_parameter("q_proj_weight", made(not together, embed_dim, embed_dim))
        self.register_parameter("k_proj_weight", made(not together, embed_dim, self.kdim))
        self.register_parameter("v_proj_weight", made(not together, embed_dim, self.vdim))
        self.register_parameter("in_proj_bias", made(bias, 3 * embed_dim))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, device, dtype)
        self.register_parameter("bias_k", made(add_bias_kv, 1, 1, embed_dim))
        self.register_parameter("bias_v", made(add_bias_kv, 1, 1, embed_dim))
        self._reset_parameters()

    def _pytorch_attributes(self) -> dict[str, Any]:
        return {"_qkv_same_embed_dim": self.in_proj_weight is not None}

    def _reset_parameters(self) -> None:
        for weight in (
            self.in_proj_weight,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
        ):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.constant_(bias, 0.0)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        turned = self.batch_first and len(query.shape) == 3
        if turned:
            # One view per tensor, so that self-attention is still recognised by identity.
            views = {id(x): x.transpose(0, 1) for x in (query, key, value)}
            query, key, value = (views[id(x)] for x in (query, key, value))
        out, weights = multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            self.in_proj_weight is None,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return out.transpose(0, 1) if turned else out, weights
