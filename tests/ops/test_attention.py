"""Attention against the plain formula: tiles, masks, dropout, grouped heads, peak memory."""

from __future__ import annotations  # noqa: I001

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rushlight.core.cache import Cache
import rushlight as rl
import rushlight.nn.functional as F
from rushlight import nn
from rushlight.core.dtypes import float32
from rushlight.devices.reference import ReferenceDevice
from rushlight.devices.shared.registry import pool_of
from rushlight.nn.attention import SDPBackend, sdpa_kernel
from rushlight.ops.nn import attention, attention_formulas as f, attention_tiles
from rushlight.ops.family.map import map_kernel
from rushlight.ops.random.random import default_generator, drop_again
from rushlight.utils.checkpoint import checkpoint
from tests.emit.cuda_emulation import Emulator

SEVERAL = {"TILE": 24, "WIDE_TILE": 24, "LEAST_ROWS": 2, "CAUSAL_ROWS": 2}  # many small tiles


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def tensors(values: list[np.ndarray], device: str = "cpu") -> list[Any]:
    return [rl.tensor(v, device=device, requires_grad=v.dtype != bool) for v in values]


def plain(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    causal: bool = False,
    drawn: Any = None,
    gqa: bool = False,
) -> Any:
    """The formula in ordinary ops, holding all scores."""
    if gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    p = attention.safe_softmax(
        attention.masked_scores(q, k, mask, causal, 1 / math.sqrt(q.shape[-1]))
    )
    return (p if drawn is None else drop_again(p, drawn)) @ v


def results(function: Any, values: list[np.ndarray], device: str = "cpu") -> list[np.ndarray]:
    """The output and the gradient of every float operand, for some incoming gradient."""
    operands = tensors(values, device)
    out = function(*operands)
    (g,) = arrays(tuple(out.shape), seed=9)
    out.backward(rl.tensor(g, device=device))
    return [out.detach().numpy(), *(x.grad.numpy() for x in operands if x.requires_grad)]


def check_same(got: list[np.ndarray], expected: list[np.ndarray], limit: float = 2e-5) -> None:
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=limit, atol=limit)


@pytest.fixture(params=["one tile", "many tiles"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of tiling: plans are made anew for each."""
    if request.param == "many tiles":
        for name, value in SEVERAL.items():
            monkeypatch.setattr(attention_tiles, name, value)
    for op in (attention._attention, attention._attention_grad):
        monkeypatch.setattr(op, "plans", Cache())
    return str(request.param)


Q, K, V = (2, 3, 7, 4), (2, 3, 6, 4), (2, 3, 6, 5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows, keys", [(7, 6), (3, 9), (9, 3), (1, 1), (5, 0), (0, 4)])
def test_sizes(cut: str, device: str, causal: bool, rows: int, keys: int) -> None:
    values = arrays((2, 3, rows, 4), (2, 3, keys, 4), (2, 3, keys, 5))
    got = results(lambda *x: F.scaled_dot_product_attention(*x, is_causal=causal), values, device)
    check_same(got, results(lambda *x: plain(*x, causal=causal), values))


@pytest.mark.parametrize(
    "shape", [(7, 6), (1, 6), (7, 1), (3, 1, 6), (2, 1, 7, 6), (1, 3, 7, 6), (2, 3, 7, 6), (6,)]
)
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_masks(cut: str, device: str, shape: tuple[int, ...], kind: str) -> None:
    values = [*arrays(Q, K, V), *arrays(shape, seed=3)]
    if kind == "bool":
        values[3] = values[3] > 0
    check_same(results(F.scaled_dot_product_attention, values, device), results(plain, values))


def test_row_without_keys_is_zero(cut: str, device: str) -> None:
    seen = np.ones((7, 6), bool)
    seen[2] = False
    values = [*arrays(Q, K, V), seen]
    got = results(F.scaled_dot_product_attention, values, device)
    assert not got[0][:, :, 2].any() and not got[1][:, :, 2].any()
    hidden = [*values[:3], np.where(seen, 0, -np.inf).astype(np.float32)]
    check_same(results(F.scaled_dot_product_attention, hidden, device)[:4], got)
    assert all(np.isfinite(x).all() for x in got)


@pytest.mark.parametrize("heads", [(6, 2, 2), (6, 1, 1), (6, 3, 2)])
def test_grouped_heads(cut: str, device: str, heads: tuple[int, int, int]) -> None:
    a, b, c = heads
    values = arrays((2, a, 5, 4), (2, b, 6, 4), (2, c, 6, 3), (a, 5, 6))
    got = results(lambda *x: F.scaled_dot_product_attention(*x, enable_gqa=True), values, device)
    check_same(got, results(lambda *x: plain(*x, gqa=True), values))


def test_batches_broadcast(cut: str) -> None:
    for shapes in (
        ((5, 4), (6, 4), (6, 3)),
        ((2, 1, 5, 4), (3, 6, 4), (1, 6, 3)),
        ((2, 2, 2, 3, 5, 4),) * 3,
    ):
        values = arrays(*shapes)
        check_same(results(F.scaled_dot_product_attention, values), results(plain, values))


def test_mask_shared_by_batches_that_do_not_merge(device: str) -> None:
    values = [*arrays(*((2, 2, 2, 2, 3, 4),) * 3), *arrays((1, 2, 1, 2, 3, 3), seed=3)]
    check_same(results(F.scaled_dot_product_attention, values, device), results(plain, values))


@pytest.mark.parametrize("causal", [False, True])
def test_dropout(cut: str, device: str, causal: bool) -> None:
    values = arrays(Q, K, V)
    rl.manual_seed(5)
    got = results(
        lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.4, is_causal=causal),
        values,
        device,
    )
    assert default_generator.position == 2 * 3 * 7 * 6
    drawn = (5, 0, 0.4, 1 / 0.6)
    check_same(got, results(lambda *x: plain(*x, causal=causal, drawn=drawn), values))
    everything = F.scaled_dot_product_attention(*tensors(values, device), dropout_p=1.0)
    assert not everything.detach().numpy().any()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves_are_summed_in_float32(name: str) -> None:
    """Many equal terms: sums in halves would stop growing."""
    dtype = getattr(rl, name)
    q = rl.zeros(1, 1, 2, 4, dtype=dtype, requires_grad=True)
    k = rl.ones(1, 1, 5000, 4, dtype=dtype, requires_grad=True)
    v = rl.ones(1, 1, 5000, 4, dtype=dtype, requires_grad=True)
    out = F.scaled_dot_product_attention(q, k, v)
    assert out.dtype is dtype and (out == 1).all()
    out.sum().backward()
    np.testing.assert_allclose(v.grad.float().numpy(), 2 / 5000, rtol=0.01)


def test_second_derivative_with_dropout_and_mask() -> None:
    """The recorded derivative is the same function as the tiled one, and its own derivative is
    right.
    """
    values = [
        x.astype(np.float64) for x in arrays((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 2), (3, 5))
    ]

    def slope(operands: list[Any], create: bool) -> list[Any]:
        rl.manual_seed(3)
        out = F.scaled_dot_product_attention(*operands, dropout_p=0.3)
        return list(rl.autograd.grad(out.square().sum(), operands, create_graph=create))

    operands = tensors(values)
    first, tiled = slope(operands, True), slope(operands, False)
    check_same([x.detach().numpy() for x in first], [x.numpy() for x in tiled], 1e-12)
    direction = [rl.tensor(x) for x in arrays(*(v.shape for v in values), seed=4)]
    total = sum((a * d.double()).sum() for a, d in zip(first, direction, strict=True))
    second = rl.autograd.grad(total, operands)
    step = 1e-6
    moved = [
        slope(
            tensors([v + s * step * d.numpy() for v, d in zip(values, direction, strict=True)]),
            False,
        )
        for s in (1, -1)
    ]
    for got, up, down in zip(second, *moved, strict=True):
        np.testing.assert_allclose(
            got.numpy(), (up.numpy() - down.numpy()) / (2 * step), rtol=1e-5, atol=1e-7
        )


def test_checkpoint_drops_the_same_elements() -> None:
    values = arrays((1, 2, 40, 8), (1, 2, 40, 8), (1, 2, 40, 8))
    found = []
    for wrap in (lambda f, *x: f(*x), lambda f, *x: checkpoint(f, *x, use_reentrant=False)):
        rl.manual_seed(1)
        found.append(
            results(
                lambda *x, w=wrap: w(
                    lambda *y: F.scaled_dot_product_attention(*y, dropout_p=0.5) * 2, *x
                ),
                values,
            )
        )
    for a, b in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("causal", [False, True])
def test_no_matrix_of_scores_is_held(causal: bool) -> None:
    """At 2048 rows the scores of 4 heads would be 64 MiB; only tiles and rows are held."""
    time, width = 2048, 16
    operands = tensors(arrays(*((1, 4, time, width),) * 3))
    pool = pool_of("cpu")
    rl.memory.empty_cache()
    rl.memory.reset_peak()
    before = pool.live
    out = F.scaled_dot_product_attention(*operands, is_causal=causal)
    rows = 4 * time * width * 4
    tile = attention_tiles.TILE * 4
    assert rl.memory.peak() - before < 2 * rows + 3 * tile
    out.sum().backward()
    assert rl.memory.peak() - before < 12 * rows + 3 * tile < 16 << 20


def test_bits_do_not_depend_on_threads() -> None:
    values = arrays(*((2, 3, 200, 32),) * 3)
    device: Any = pool_of("cpu").device
    found = []
    try:
        for count in (1, 2, 5):
            device.set_num_threads(count)
            found.append(
                results(lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), values)
            )
    finally:
        device.set_num_threads(1)
    for other in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], other, strict=True))


def test_wrong_operands() -> None:
    q, k, v = tensors(arrays(Q, K, V))
    attend = F.scaled_dot_product_attention
    with pytest.raises(RuntimeError, match="or is_causal, not both"):
        attend(q, k, v, rl.ones(7, 6), is_causal=True)
    with pytest.raises(RuntimeError, match=r"one dtype.*cast"):
        attend(q, k.double(), v)
    with pytest.raises(RuntimeError, match="attn_mask"):
        attend(q, k, v, rl.ones(7, 6, dtype=rl.int64))
    with pytest.raises(RuntimeError, match="scaled_dot_product_attention"):
        attend(q, k, v, rl.ones(3, 6))
    with pytest.raises(RuntimeError, match="enable_gqa"):
        attend(q, k[:, :2], v[:, :2], enable_gqa=True)
    with pytest.raises(ValueError, match="dropout_p"):
        attend(q, k, v, dropout_p=1.5)


def test_kernels_between_products_on_emulated_cuda(tmp_path: Path) -> None:
    """In place, with params, masked and with dropout: against the reference device."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    rows, keys = 6, 70
    scores, slopes, added = arrays((rows, keys), (rows, keys), (rows, keys))
    level, along = arrays((rows,), (rows,))
    counted = np.arange(keys, dtype=np.int32)
    softmax = f.softmax_kernel(float32)
    gradient = f.gradient_formula(float32, float32, True, True, True)
    found = []
    for device in (Emulator(tmp_path), ReferenceDevice()):
        x, g, bare = scores.copy(), slopes.copy(), np.zeros_like(scores)
        top, total = (np.zeros(rows, np.float32) for _ in range(2))
        strides = (keys, 1, 1, 1, 0, 1, 1, 0, 1, keys, 1, 1)
        place = [a.ctypes.data for a in (x, top, total, x)]
        device.build(softmax)(*place, rows, keys, 1, *strides, 0.5)
        each, one = (keys, 1), (1, 0)
        sides = [each] * 5 + [one, one, each, one, (0, 1)]
        kernel, tail = map_kernel(gradient, (rows, keys), sides, 3)
        operands = (x, g, bare, x, g, level, along, added, counted, counted)
        place = [a.ctypes.data for a in operands]
        device.build(kernel)(*place, *tail, 0.5, 3, 7, 11, 0.25, 1 / 0.75)
        found.append([x, g, bare, top, total])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


def _attention(q, k, v, scale):
    z = q @ k.T * scale
    z = np.where(np.tril(np.ones(z.shape, bool)), z, -np.inf)
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True) @ v


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.3])
def test_causal_attention_with_any_scale(device, require_device, scale):
    require_device(device)
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (5, 8), (5, 6))]
    leaves = [rl.tensor(a, device=device, requires_grad=True) for a in arrays]
    out = F.scaled_dot_product_attention(*leaves, is_causal=True, scale=scale)
    np.testing.assert_allclose(
        out.detach().cpu().numpy(), _attention(*arrays, scale), rtol=2e-5, atol=2e-6
    )
    out.sum().backward()
    for leaf in leaves:
        assert leaf.grad.isfinite().all().item()


def test_ways_of_attention_give_one_result():
    q = rl.randn(1, 2, 4, 8)
    plain = nn.functional.scaled_dot_product_attention(q, q, q)
    for way in (SDPBackend.MATH, [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        with sdpa_kernel(way):
            assert rl.equal(nn.functional.scaled_dot_product_attention(q, q, q), plain)
    with pytest.raises(AssertionError, match="SDPBackend"), sdpa_kernel("math"):
        pass


def _joined(device: str) -> list[Any]:
    """Query, key and value as views of one projection (batch, rows, 3, heads, features)."""
    (values,) = arrays((2, 6, 3, 4, 8))
    whole = rl.tensor(values, device=device, requires_grad=True)
    return [whole, *(x.transpose(1, 2) for x in whole.unbind(2))]


def test_views_of_one_projection(device: str) -> None:
    whole, q, k, v = _joined(device)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.sum().backward()
    copies = [x.detach().contiguous().requires_grad_() for x in (q, k, v)]
    same = F.scaled_dot_product_attention(*copies, is_causal=True)
    same.sum().backward()
    check_same([out.detach().numpy()], [same.detach().numpy()], 1e-6)
    expected = rl.stack([x.grad.transpose(1, 2) for x in copies], 2)
    check_same([whole.grad.numpy()], [expected.numpy()], 1e-6)


def test_results_lie_in_memory_as_the_operands() -> None:
    _, q, k, v = _joined("reference")
    out = F.scaled_dot_product_attention(q, k, v)
    assert out.transpose(1, 2).is_contiguous()
    for grad in rl.autograd.grad(out, [q, k, v], out.detach()):
        assert grad.transpose(1, 2).is_contiguous()
    dense = F.scaled_dot_product_attention(*(x.contiguous() for x in (q, k, v)))
    assert dense.is_contiguous()


@pytest.mark.parametrize("asked", [(0,), (1,), (2,), (0, 2), (3,)])
def test_some_gradients_alone(device: str, asked: tuple[int, ...]) -> None:
    values = [*arrays(Q, K, V), *arrays((7, 6), seed=3)]
    whole = results(F.scaled_dot_product_attention, values, device)[1:]
    operands = tensors(values, device)
    for i, x in enumerate(operands):
        x.requires_grad_(i in asked)
    out = F.scaled_dot_product_attention(*operands)
    (g,) = arrays(tuple(out.shape), seed=9)
    out.backward(rl.tensor(g, device=device))
    check_same([operands[i].grad.numpy() for i in asked], [whole[i] for i in asked], 1e-6)


def test_saves_that_a_hook_lays_out_anew():
    """Rows of the unpacked logsumexp lie apart."""
    q, k, v = (x.requires_grad_() for x in rl.randn(3, 2, 1, 64, 16).unbind())
    slope = rl.randn(2, 1, 64, 16)
    want = rl.autograd.grad(F.scaled_dot_product_attention(q, k, v), (q, k, v), slope)
    with rl.autograd.graph.saved_tensors_hooks(
        lambda x: rl.cat([x, x * 0 + 9], -1), lambda x: x[..., : x.shape[-1] // 2]
    ):
        out = F.scaled_dot_product_attention(q, k, v)
    for found, expected in zip(rl.autograd.grad(out, (q, k, v), slope), want, strict=True):
        assert rl.allclose(found, expected)
