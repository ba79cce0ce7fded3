"""Multi-head attention: projections, scaled_dot_product_attention for each head, a projection.

Masks are PyTorch's for this function: true hides a key, unlike in scaled_dot_product_attention.
"""

from __future__ import annotations

import math

from rushlight.core.dtypes import bool_
from rushlight.core.errors import DTypeError, ShapeError
from rushlight.core.shapes import Spec
from rushlight.ops.create.creation import full_spec
from rushlight.ops.linalg.matmul import linear, matmul
from rushlight.ops.nn.attention import scaled_dot_product_attention
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random.random import dropout
from rushlight.ops.reduce import reductions
from rushlight.ops.reduce.softmax import softmax
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.tape.record.value import Value

NAME = "multi_head_attention_forward"


def _zeros(like: Value, shape: tuple[int, ...]) -> Value:
    return full_spec(Spec.of(like._spec.device, like._spec.dtype, shape), 0.0)


def _check_heads(query: Value, key: Value, value: Value, width: int, heads: int) -> bool:
    """Whether there is a batch."""
    q, k, v = (x._spec.shape for x in (query, key, value))
    shown = f"query {query._spec!r}, key {key._spec!r} and value {value._spec!r}"
    if len(q) not in (2, 3) or not len(q) == len(k) == len(v):
        raise ShapeError(
            f"{NAME}: {shown} are all (length, batch, features) or all (length, features)"
        )
    if q[-1] != width or k[:-1] != v[:-1] or (len(q) == 3 and q[1] != k[1]):
        raise ShapeError(
            f"{NAME}: {shown} do not fit embed_dim={width}: same batch, keys as many as values"
        )
    if heads < 1 or width % heads:
        raise ShapeError(f"{NAME}: embed_dim {width} does not divide into {heads} heads")
    return len(q) == 3


def _added(mask: Value | None, like: Value, name: str) -> Value | None:
    """A mask as numbers to add: true hides."""
    if mask is None:
        return None
    if mask._spec.dtype is bool_:
        zero = _zeros(like, ())
        return e.select(mask, full_spec(zero._spec, -math.inf), zero)
    if mask._spec.dtype.kind != "f":
        raise DTypeError(
            f"{NAME}: {name} {mask._spec!r} must be bool (true: hidden) or float, which is added"
        )
    return e.cast(mask, like._spec.dtype)


def _projected(
    operands: list[Value], weights: list[Value | None], bias: Value | None
) -> list[Value]:
    """Query, key and value by their weights; `weights` is one for all three, or three."""
    if weights[1] is None:
        together = weights[0]
        assert together is not None
        if operands[0] is operands[1] is operands[2]:
            return list(views.chunk(linear(operands[0], together, bias), 3, -1))
        weights = list(views.chunk(together, 3, 0))
    biases = views.chunk(bias, 3, 0) if bias is not None else (None,) * 3
    return [linear(x, w, b) for x, w, b in zip(operands, weights, biases, strict=True)]


def _attn_mask(mask: Value | None, batch: int, heads: int, rows: int, keys: int) -> Value | None:
    """(batch or 1, heads or 1, rows, keys)."""
    if mask is None:
        return None
    if mask._spec.shape == (rows, keys):
        return views.reshape(mask, (1, 1, rows, keys))
    if mask._spec.shape == (batch * heads, rows, keys):
        return views.reshape(mask, (batch, heads, rows, keys))
    raise ShapeError(
        f"{NAME}: attn_mask {mask._spec!r} must have shape {[rows, keys]} or "
        f"{[batch * heads, rows, keys]}"
    )


def _padding_mask(mask: Value | None, batch: int, keys: int) -> Value | None:
    if mask is None:
        return None
    if mask._spec.shape not in ((batch, keys), (keys,) if batch == 1 else (batch, keys)):
        raise ShapeError(f"{NAME}: key_padding_mask {mask._spec!r} must have shape {[batch, keys]}")
    return views.reshape(mask, (batch, 1, 1, keys))


def _grown(mask: Value | None, count: int) -> Value | None:
    """The mask extended by `count` visible keys."""
    if mask is None or not count:
        return mask
    return views.cat([mask, _zeros(mask, (*mask._spec.shape[:-1], count))], -1)


def _heads(x: Value, heads: int) -> Value:
    """(length, batch, width) as (batch, heads, length, width / heads)."""
    length, batch, width = x._spec.shape
    return views.permute(views.reshape(x, (length, batch, heads, width // heads)), (1, 2, 0, 3))


def _static(x: Value | None, made: Value, heads: int, name: str) -> Value:
    """Given keys or values, (batch * heads, length, width / heads)."""
    if x is None:
        return made
    batch, depth = made._spec.shape[0], made._spec.shape[-1]
    if len(x._spec.shape) != 3 or x._spec.shape[0] != batch * heads or x._spec.shape[2] != depth:
        raise ShapeError(
            f"{NAME}: {name} {x._spec!r} must have shape [{batch * heads}, length, {depth}]"
        )
    return views.reshape(x, (batch, heads, *x._spec.shape[1:]))


def _weighed(q: Value, k: Value, v: Value, mask: Value | None, p: float) -> tuple[Value, Value]:
    """The attention and its weights, which are a matrix of all scores."""
    scores = matmul(e.mul(q, 1 / math.sqrt(q._spec.shape[-1])), views.transpose(k, -1, -2))
    weights = softmax(scores if mask is None else e.add(scores, mask), -1)
    weights = dropout(weights, p)
    return matmul(weights, v), weights


def _extended(
    operands: list[Value],
    heads: int,
    biases: tuple[Value | None, Value | None],
    statics: tuple[Value | None, Value | None],
    zero: bool,
) -> tuple[list[Value], int]:
    """Query, keys and values by heads, with added keys, and the number of those."""
    q, k, v = operands
    _, batch, width = q._spec.shape
    more = 0
    if biases[0] is not None and biases[1] is not None:
        more = 1
        k, v = (
            views.cat([x, views.expand(b, (1, batch, width))], 0)
            for x, b in zip((k, v), biases, strict=True)
            if b is not None
        )
    q, k, v = (_heads(x, heads) for x in (q, k, v))
    k, v = _static(statics[0], k, heads, "static_k"), _static(statics[1], v, heads, "static_v")
    if zero:
        more += 1
        k, v = (
            views.cat([x, _zeros(x, (*x._spec.shape[:2], 1, x._spec.shape[3]))], 2) for x in (k, v)
        )
    return [q, k, v], more


def _mask(
    attn: Value | None, padding: Value | None, q: Value, keys: int, more: int
) -> Value | None:
    """Both masks as one, for the given keys and `more` visible ones."""
    batch, heads, rows, _ = q._spec.shape
    mask = _grown(_attn_mask(_added(attn, q, "attn_mask"), batch, heads, rows, keys), more)
    hidden = _grown(_padding_mask(_added(padding, q, "key_padding_mask"), batch, keys), more)
    if mask is None or hidden is None:
        return hidden if mask is None else mask
    return e.add(mask, hidden)


@composite(NAME, method=False, top=False)
def multi_head_attention_forward(
    query: Value,
    key: Value,
    value: Value,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Value | None,
    in_proj_bias: Value | None,
    bias_k: Value | None,
    bias_v: Value | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Value,
    out_proj_bias: Value | None,
    training: bool = True,
    key_padding_mask: Value | None = None,
    need_weights: bool = True,
    attn_mask: Value | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Value | None = None,
    k_proj_weight: Value | None = None,
    v_proj_weight: Value | None = None,
    static_k: Value | None = None,
    static_v: Value | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Value, Value | None]:
    """Attention by several heads over (length, batch, features), and its weights if requested.

    Args:
        value: The values.
    """
    batched = _check_heads(query, key, value, embed_dim_to_check, num_heads)
    if is_causal and attn_mask is None:
        raise RuntimeError(f"{NAME}: is_causal is a hint about attn_mask; pass the mask too")
    operands = [query, key, value]
    if not batched:
        once = {id(x): views.unsqueeze(x, 1) for x in operands}
        operands = [once[id(x)] for x in operands]
    weights = (
        [q_proj_weight, k_proj_weight, v_proj_weight]
        if use_separate_proj_weight
        else [in_proj_weight, None, None]
    )
    if weights[0] is None:
        raise ValueError(f"{NAME}: pass in_proj_weight, or all three of q_, k_ and v_proj_weight")
    projected = _projected(operands, weights, in_proj_bias)
    keys = (projected[1] if static_k is None else static_k)._spec.shape[
        0 if static_k is None else 1
    ]
    (q, k, v), more = _extended(
        projected, num_heads, (bias_k, bias_v), (static_k, static_v), add_zero_attn
    )
    causal = is_causal and key_padding_mask is None and not need_weights and not more
    mask = None if causal else _mask(attn_mask, key_padding_mask, q, keys, more)
    p = dropout_p if training else 0.0
    if need_weights:
        seen, weights_seen = _weighed(q, k, v, mask, p)
    else:
        seen, weights_seen = scaled_dot_product_attention(q, k, v, mask, p, causal), None
    joined = views.reshape(
        views.permute(seen, (2, 0, 1, 3)), (*operands[0]._spec.shape[:2], embed_dim_to_check)
    )
    out = linear(joined, out_proj_weight, out_proj_bias)
    if weights_seen is not None:
        weights_seen = reductions.mean(weights_seen, 1) if average_attn_weights else weights_seen
        weights_seen = weights_seen if batched else views.squeeze(weights_seen, 0)
    return out if batched else views.squeeze(out, 1), weights_seen
