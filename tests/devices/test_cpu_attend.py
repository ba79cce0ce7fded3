"""Attend kernels in LLVM against the reference device, and where the CPU takes them."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.core.dtypes import DType, bfloat16, float16, float32, float64
from rushlight.core.shapes import Spec
from rushlight.devices.cpu import CpuDevice
from rushlight.devices.reference import ReferenceDevice
from rushlight.devices.shared.registry import pool_of
from rushlight.kernel.shapes import Kernel
from rushlight.ops.nn import attend
from rushlight.ops.nn.attention_tiles import Shapes
from tests.devices import attend_cases

DTYPES = [float32, float64, float16, bfloat16]


def on(device: CpuDevice | ReferenceDevice) -> attend_cases.Run:
    def run(kernel: Kernel, arrays: list[np.ndarray], numbers: list[float]) -> None:
        device.build(kernel)(*(a.ctypes.data for a in arrays), *numbers)

    return run


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_every_case(dtype: DType):
    cases = list(attend_cases.cases(dtype))
    if dtype is not float64:
        cases += attend_cases.wide_cases(dtype)
    run, reference = on(CpuDevice()), on(ReferenceDevice())
    found = [text for case in cases for text in attend_cases.wrong(case, run, reference)]
    assert not found, "\n".join(found)


def test_keys_of_several_chunks():
    """The highest score grows from chunk to chunk, and a chunk may have no score at all."""
    random = np.random.default_rng(0)
    q, v = (random.standard_normal((1, 1, n, 8)).astype(np.float32) for n in (3, 700))
    k = random.standard_normal((1, 1, 700, 8)).astype(np.float32)
    k *= np.linspace(0, 3, 700, dtype=np.float32)[:, None]
    mask = np.ones((3, 700), bool)
    mask[0, :300] = mask[1, 256:512] = mask[2] = False
    made = F.scaled_dot_product_attention(*map(rl.tensor, (q, k, v)), rl.tensor(mask)).numpy()
    scores = np.where(mask, q.astype(float) @ k[0, 0].T.astype(float) / np.sqrt(8), -np.inf)
    powers = np.exp(scores[..., :2, :] - scores[..., :2, :].max(-1, keepdims=True))
    want = powers / powers.sum(-1, keepdims=True) @ v[0, 0]
    np.testing.assert_allclose(made[..., :2, :], want, rtol=2e-5, atol=2e-6)
    assert (made[..., 2, :] == 0).all()


def test_not_a_number_stays_in_its_row():
    q, k, v = rl.randn(3, 2, 2, 20, 16).unbind()
    q[0, 1, 3, 5] = float("nan")
    found = F.scaled_dot_product_attention(q, k, v).isnan()
    assert found[0, 1, 3].all() and found.sum() == 16


def test_threads_do_not_change_bits():
    device = pool_of("cpu").device
    before = device.num_threads
    made = []
    try:
        for count in (1, 3):
            device.set_num_threads(count)
            rl.manual_seed(0)
            q, k, v = rl.randn(3, 64, 90, 24).unsqueeze(1).unbind()
            assert attend.takes(_shapes(q, causal=True), q._spec, k._spec, v._spec)
            made.append(F.scaled_dot_product_attention(q, k, v, is_causal=True).numpy())
    finally:
        device.set_num_threads(before)
    assert (made[0] == made[1]).all()


def _shapes(q: rl.Tensor, causal: bool = False) -> Shapes:
    *batch, rows, width = q.shape
    return Shapes(tuple(batch), rows, rows, width, width, causal, False)


def test_where_it_is_taken():
    """By sizes, widths and layouts; a derivative by fewer scores than the call."""
    pool = pool_of("cpu")

    def takes(rows: int, width: int, causal: bool = False, back: bool = False) -> bool:
        spec = Spec.of(pool, float32, (1, 2, rows, width))
        shapes = Shapes((1, 2), rows, rows, width, width, causal, False)
        return attend.takes(shapes, spec, spec, spec, back=back)

    assert takes(16, 16) and takes(16, 16, back=True)
    assert takes(90, 64) and not takes(90, 64, back=True)
    assert takes(128, 64, causal=True) and not takes(128, 64)
    assert takes(16, 256) and not takes(16, 257)
    turned = Spec.of(pool, float32, (1, 2, 16, 8), (256, 128, 1, 16))
    assert not attend.takes(Shapes((1, 2), 16, 16, 8, 8, False, False), turned, turned, turned)


def test_a_gradient_whose_features_lie_apart():
    """That of a sum is one number in all places."""
    q, k, v = (x.requires_grad_() for x in rl.randn(3, 2, 2, 16, 16).unbind())
    F.scaled_dot_product_attention(q, k, v).sum().backward()
    got = [x.grad.numpy() for x in (q, k, v)]
    for x in (q, k, v):
        x.grad = None
    F.scaled_dot_product_attention(q, k, v).backward(rl.ones(2, 2, 16, 16))
    for x, found in zip((q, k, v), got, strict=True):
        assert (x.grad.numpy() == found).all()


@pytest.mark.parametrize("width", [1, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_rows_write_no_neighbours(dtype: DType, width: int):
    """The feature after a row's last is that of another head, which may be written before."""
    q, k, v = rl.randn(3, 2, 9, 3, width, dtype=float32).to(dtype).unbind()
    made = []
    for turned in (False, True):
        leaves = [
            x.transpose(1, 2) if turned else x.transpose(1, 2).contiguous() for x in (q, k, v)
        ]
        for x in leaves:
            x.detach_().requires_grad_()
        out = F.scaled_dot_product_attention(*leaves)
        out.backward(rl.ones_like(out))
        made.append([x.detach().float().numpy() for x in (out, *(x.grad for x in leaves))])
    for plain, found in zip(*made, strict=True):
        assert (plain == found).all()
