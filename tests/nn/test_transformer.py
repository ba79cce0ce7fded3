"""Attention layers and transformers against PyTorch 2.13's numbers (`measure` makes `EXPECTED`)."""

from __future__ import annotations

import math
from typing import Any

import pytest

import rushlight
from rushlight import nn


def waves(torch: Any, *shape: int, shift: float = 0.0) -> Any:
    """The same numbers in both libraries."""
    count = math.prod(shape)
    return torch.tensor(
        [math.sin(0.7 * i + 0.1 * i * i % 3 + shift) for i in range(count)]
    ).reshape(*shape)


def filled(torch: Any, module: Any) -> Any:
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(waves(torch, *p.shape, shift=i) * 0.4 + (0.8 if len(p.shape) == 1 else 0.0))
    return module.eval()


def causal(torch: Any, n: int) -> Any:
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def heads(
    torch: Any, options: dict[str, Any], call: dict[str, Any], sizes: tuple[int, int, int]
) -> list[Any]:
    """Outputs and weights of MultiheadAttention, and gradients of the query and of the first
    weight.
    """
    layer = filled(torch, torch.nn.MultiheadAttention(4, 2, **options))
    width = [4, options.get("kdim", 4), options.get("vdim", 4)]
    first = options.get("batch_first", False)
    rows, keys, batch = sizes
    operands = []
    for i, length in enumerate((rows, keys, keys)):
        shape = (batch, length, width[i]) if first else (length, batch, width[i])
        operands.append(
            waves(torch, *(shape if batch else (length, width[i])), shift=i).requires_grad_()
        )
    out, weights = layer(*operands, **call)
    (out * waves(torch, *out.shape)).sum().backward()
    seen = [out, operands[0].grad, operands[1].grad, next(layer.parameters()).grad]
    return seen if weights is None else [*seen, weights]


def attention_cases(torch: Any) -> dict[str, list[Any]]:
    hidden = torch.tensor([[False, False, True, False], [False, True, True, False]])
    square = causal(torch, 4)[:3]
    each = waves(torch, 4, 3, 4)
    whole = (3, 4, 2)
    return {
        "plain": heads(torch, {}, {}, whole),
        "every head": heads(torch, {"batch_first": True}, {"average_attn_weights": False}, whole),
        "no weights": heads(
            torch, {"bias": False}, {"need_weights": False, "attn_mask": square}, whole
        ),
        "padding": heads(torch, {}, {"key_padding_mask": hidden, "attn_mask": square}, whole),
        "padding, no weights": heads(
            torch, {}, {"key_padding_mask": hidden, "need_weights": False}, whole
        ),
        "added mask": heads(torch, {"add_zero_attn": True}, {"attn_mask": each}, whole),
        "bias of keys": heads(torch, {"add_bias_kv": True}, {"key_padding_mask": hidden}, whole),
        "other widths": heads(
            torch, {"kdim": 3, "vdim": 5, "batch_first": True}, {"need_weights": False}, whole
        ),
        "unbatched": heads(
            torch, {"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": square}, (3, 4, 0)
        ),
        "causal": heads(
            torch,
            {},
            {"attn_mask": causal(torch, 4), "is_causal": True, "need_weights": False},
            (4, 4, 2),
        ),
    }


def transformer_cases(torch: Any) -> dict[str, list[Any]]:
    layers = torch.nn
    mask = causal(torch, 3)
    x, memory = waves(torch, 2, 3, 4), waves(torch, 2, 5, 4, shift=1)
    encoder = filled(
        torch, layers.TransformerEncoderLayer(4, 2, 6, batch_first=True, activation="gelu")
    )
    first = filled(
        torch,
        layers.TransformerEncoderLayer(4, 2, 6, batch_first=True, norm_first=True, bias=False),
    )
    stack = filled(
        torch,
        layers.TransformerEncoder(encoder, 2, layers.LayerNorm(4), enable_nested_tensor=False),
    )
    decoder = filled(torch, layers.TransformerDecoderLayer(4, 2, 6, batch_first=True))
    late = filled(torch, layers.TransformerDecoderLayer(4, 2, 6, batch_first=True, norm_first=True))
    whole = filled(torch, layers.Transformer(4, 2, 1, 2, 6))
    source, target = x.transpose(0, 1), memory.transpose(0, 1)
    subsequent = layers.Transformer.generate_square_subsequent_mask(5)
    return {
        "encoder layer": [encoder(x, mask)],
        "encoder layer, norm first": [first(x)],
        "encoder": [stack(x, mask, is_causal=True)],
        "decoder layer": [decoder(x, memory, mask)],
        "decoder layer, norm first": [late(x, memory, mask)],
        "decoder": [filled(torch, layers.TransformerDecoder(decoder, 2))(x, memory)],
        "transformer": [whole(source, target, tgt_mask=subsequent, tgt_is_causal=True)],
    }


def measure(torch: Any) -> dict[str, list[float]]:
    """A number for every result: its elements weighted by position."""
    cases = {**attention_cases(torch), **transformer_cases(torch)}
    return {
        name: [round(float((x.detach() * waves(torch, *x.shape, shift=2)).sum()), 5) for x in found]
        for name, found in cases.items()
    }


EXPECTED = {
    "plain": [4.44504, 0.18215, 0.41954, -1.27518, 0.61324],
    "every head": [3.84459, 0.08762, 0.49224, -1.61763, 0.29133],
    "no weights": [-0.09511, 0.00681, -0.02335, 4.91673],
    "padding": [5.66343, 0.00559, 0.00207, 0.725, 1.56815],
    "padding, no weights": [4.46631, 0.14366, 0.29614, -1.13199],
    "added mask": [4.61172, -0.007, 0.30661, -1.17212, 0.81799],
    "bias of keys": [2.03176, 0.15027, 0.30428, -0.59035, 0.76342],
    "other widths": [1.48918, -0.08031, 0.23198, -0.16301],
    "unbatched": [-1.1986, 0.19807, 0.14933, -0.69477, 1.56591],
    "causal": [3.4217, 0.07496, -0.01117, 0.16116],
    "encoder layer": [0.66443],
    "encoder layer, norm first": [-7.52507],
    "encoder": [2.08858],
    "decoder layer": [-1.92445],
    "decoder layer, norm first": [-1.70647],
    "decoder": [-1.04176],
    "transformer": [3.44163],
}
NAMES = [
    "layers.0.self_attn.in_proj_weight",
    "layers.0.self_attn.in_proj_bias",
    "layers.0.self_attn.out_proj.weight",
    "layers.0.self_attn.out_proj.bias",
    "layers.0.multihead_attn.in_proj_weight",
    "layers.0.multihead_attn.in_proj_bias",
    "layers.0.multihead_attn.out_proj.weight",
    "layers.0.multihead_attn.out_proj.bias",
    "layers.0.linear1.weight",
    "layers.0.linear1.bias",
    "layers.0.linear2.weight",
    "layers.0.linear2.bias",
    "layers.0.norm1.weight",
    "layers.0.norm1.bias",
    "layers.0.norm2.weight",
    "layers.0.norm2.bias",
    "layers.0.norm3.weight",
    "layers.0.norm3.bias",
    "norm.weight",
    "norm.bias",
]
SEPARATE = [
    "q_proj_weight",
    "k_proj_weight",
    "v_proj_weight",
    "bias_k",
    "bias_v",
    "out_proj.weight",
]


@pytest.fixture(scope="module")
def measured() -> dict[str, list[float]]:
    return measure(rushlight)


@pytest.mark.parametrize("name", EXPECTED)
def test_as_in_pytorch(measured: dict[str, list[float]], name: str) -> None:
    assert measured[name] == pytest.approx(EXPECTED[name], rel=2e-4, abs=2e-4)


def test_names_of_parameters() -> None:
    assert (
        list(
            nn.TransformerDecoder(
                nn.TransformerDecoderLayer(4, 2, 6), 1, nn.LayerNorm(4)
            ).state_dict()
        )
        == NAMES
    )
    separate = nn.MultiheadAttention(4, 2, kdim=3, add_bias_kv=True, bias=False).state_dict()
    assert list(separate) == SEPARATE


def test_weights_are_dropped_in_training_only() -> None:
    layer = nn.MultiheadAttention(4, 2, dropout=0.5)
    x = waves(rushlight, 3, 2, 4)
    assert not (layer(x, x, x)[0] == layer(x, x, x)[0]).all()
    layer.eval()
    assert (layer(x, x, x)[0] == layer(x, x, x)[0]).all()
    assert rushlight.isclose(
        layer(x, x, x, need_weights=False)[0], layer(x, x, x)[0], atol=1e-6
    ).all()


def test_wrong_calls() -> None:
    with pytest.raises(AssertionError, match="divisible"):
        nn.MultiheadAttention(5, 2)
    layer = nn.MultiheadAttention(4, 2)
    x = waves(rushlight, 3, 2, 4)
    with pytest.raises(RuntimeError, match="is_causal is a hint"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(RuntimeError, match=r"attn_mask .* must have shape \[3, 3\]"):
        layer(x, x, x, attn_mask=rushlight.zeros(2, 3))
    with pytest.raises(RuntimeError, match=r"key_padding_mask .* must have shape \[2, 3\]"):
        layer(x, x, x, key_padding_mask=rushlight.zeros(3, 3))
    with pytest.raises(RuntimeError, match="embed_dim=4"):
        layer(rushlight.zeros(3, 2, 5), x, x)
    with pytest.raises(RuntimeError, match="relu/gelu"):
        nn.TransformerEncoderLayer(4, 2, activation="sine")
    with pytest.raises(RuntimeError, match="same batch"):
        nn.Transformer(4, 2, 1, 1, 6)(rushlight.zeros(3, 2, 4), rushlight.zeros(3, 1, 4))
