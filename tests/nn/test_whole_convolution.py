"""Convolutions of a device with a kernel for each op, as the reference is: against windows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import memory
from rushlight.core.precision import allow_tf32, allows_tf32
from rushlight.devices.cuda import convolve, cudnn
from rushlight.kernel.shapes import Convolve
from rushlight.nn import functional as F
from rushlight.utils.checkpoint import checkpoint

# transposed, x, w, options
CASES: list[tuple[bool, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (False, (2, 4, 9, 11), (5, 4, 3, 3), {"padding": 1}),
    (False, (2, 4, 12, 20), (6, 4, 2, 5), {"stride": (3, 2), "padding": (0, 2)}),
    (False, (2, 4, 17, 19), (6, 4, 4, 3), {"dilation": (2, 3), "stride": (4, 6), "padding": 2}),
    (False, (2, 8, 9, 9), (8, 4, 2, 4), {"groups": 2, "padding": "same"}),
    (False, (2, 6, 9, 21), (12, 1, 3, 3), {"groups": 6, "stride": 2, "padding": 1}),
    (False, (2, 16, 8, 8), (20, 16, 1, 1), {"stride": 2}),
    (False, (2, 3, 30), (16, 3, 4), {"stride": 5, "dilation": 2}),
    (False, (2, 4, 6, 7, 8), (12, 2, 3, 2, 3), {"groups": 2, "stride": (1, 2, 1), "padding": 1}),
    (True, (1, 8, 5, 6), (8, 4, 3, 2), {"stride": (3, 2), "output_padding": (2, 1), "groups": 2}),
    (True, (2, 4, 15), (4, 6, 5), {"stride": 2, "padding": 1}),
    (True, (2, 4, 5, 6, 4), (4, 5, 2, 3, 2), {"stride": (1, 2, 3), "dilation": (2, 1, 1)}),
]


def convolve_by(transposed: bool, rank: int) -> Any:
    return getattr(F, f"conv_transpose{rank}d" if transposed else f"conv{rank}d")


def values_of(
    transposed: bool,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    options: dict[str, Any],
    device: str,
    dtype: Any,
) -> list[np.ndarray]:
    """The result, both gradients and their gradients."""
    random = np.random.default_rng(1)
    x, w = (
        rl.tensor(random.standard_normal(s)).to(dtype).to(device).requires_grad_() for s in shapes
    )
    out = convolve_by(transposed, len(shapes[0]) - 2)(x, w, None, **options)
    g = rl.tensor(random.standard_normal(tuple(out.shape))).to(dtype).to(device).requires_grad_()
    first = rl.autograd.grad(out, (x, w), g, create_graph=True)
    total = sum((part.double().square() * 0.01).sum() for part in first)
    second = rl.autograd.grad(total, (x, w, g))
    return [v.detach().double().cpu().numpy() for v in (out, *first, *second)]


@pytest.mark.parametrize("transposed, x, w, options", CASES)
def test_as_by_windows(transposed: bool, x: Any, w: Any, options: dict[str, Any]) -> None:
    want = values_of(transposed, (x, w), options, "cpu", rl.float64)  # which has no kernels
    for dtype, limit in ((rl.float64, 1e-12), (rl.float32, 2e-6), (rl.bfloat16, 2e-2)):
        got = values_of(transposed, (x, w), options, "reference", dtype)
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= limit * np.abs(b).max()


def test_each_op_is_one_launch() -> None:
    x, w = (rl.randn(*s, device="reference").requires_grad_() for s in ((2, 3, 5, 5), (4, 3, 3, 3)))
    out = F.conv2d(x, w, None, stride=2, padding=1)
    kernels = []
    for grad in (out, *rl.autograd.grad(out, (x, w), rl.ones_like(out), create_graph=True)):
        kernels.append(grad.grad_fn.plan.op.name)
        assert len(grad.grad_fn.plan.tail) == 5 + 6 * 2
    assert kernels == ["convolution", "convolution_back", "convolution_weights"]


def test_a_record_keeps_the_precision_of_its_time() -> None:
    assert allows_tf32("convolution")
    x, w = (rl.randn(*s, device="reference").requires_grad_() for s in ((1, 2, 4, 4), (2, 2, 3, 3)))
    first = F.conv2d(x, w)
    try:
        allow_tf32("convolution", False)
        second = F.conv2d(x, w)
        (late,) = rl.autograd.grad(first, x, rl.ones_like(first), create_graph=True)
    finally:
        allow_tf32("convolution", True)
    found = [v.grad_fn.plan.static[-1] for v in (first, second, late, F.conv2d(x, w))]
    assert found == [True, False, True, True]


def test_vmap_is_a_loop() -> None:
    x = rl.randn(3, 2, 4, 6, 6, device="reference")
    w = rl.randn(3, 5, 4, 3, 3, device="reference")
    for dims, pick in (((0, 0), lambda i: (x[i], w[i])), ((0, None), lambda i: (x[i], w[0]))):
        given = (x, w if dims[1] == 0 else w[0])
        whole = rl.vmap(lambda a, b: F.conv2d(a, b, padding=1), dims)(*given)
        for i in range(3):
            one = F.conv2d(*pick(i), padding=1)
            assert rl.allclose(whole[i], one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("device", ["reference", "webgpu"])
def test_checkpoints_and_budgets_keep_the_bits(
    device: str, require_device: Callable[[str], str]
) -> None:
    require_device(device)
    rl.manual_seed(3)
    x = rl.randn(2, 3, 12, 12).to(device)
    weights = [(rl.randn(6, c, 3, 3) / 3).to(device).requires_grad_() for c in (3, 6, 6)]

    def layers(h: Any) -> Any:
        for w in weights:
            h = F.relu(F.conv2d(h, w, padding=1))
        return h

    def gradients(run: Any) -> list[bytes]:
        found = rl.autograd.grad(run(x).square().sum(), weights)
        return [g.cpu().numpy().tobytes() for g in found]

    want = gradients(layers)
    assert gradients(lambda h: checkpoint(layers, h, use_reentrant=False)) == want
    with memory.budget(memory.allocated(device) + (1 << 18), device=device):
        assert gradients(layers) == want


class FakePlan:
    workspace = 0

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def run(self, addresses: Any, workspace: int) -> None:
        self.calls.append(addresses)


class FakePool:
    def take(self, room: int) -> int:
        return 1 << 20

    def give_all(self, blocks: Any) -> None:
        """Nothing to free."""


def test_own_kernels_run_without_an_engine_and_odd_operands_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, own, built = FakePlan(), [], []
    plans: list[Any] = [plan, None]
    monkeypatch.setattr(convolve, "plan_convolution", lambda *a: plans.pop(0))

    def build() -> Any:
        built.append(1)
        return lambda *numbers: own.append(numbers[:3])

    kernel = Convolve(rl.float32, "image")
    copies: list[Any] = []
    runtime = SimpleNamespace(memcpyAsync=lambda *n: copies.append(n[:3]), memcpyDeviceToDevice=3)
    session: Any = SimpleNamespace(runtime=runtime, await_arrival=lambda: None)
    pool: Any = FakePool()
    library: Any = SimpleNamespace(plans={})
    launch = convolve.Convolution(kernel, library, session, build, lambda: pool)
    numbers = (2, 1, 3, 5, 4, 4, 1, 1, 4, 4, 1, 1, 1, 1, 0, 0, 1)
    launch(64, 128, 256, *numbers)
    assert plan.calls == [(64, 128, 256)] and not built
    launch(64, 132, 256, *numbers)
    assert plan.calls[1] == [64, 1 << 20, 256] and copies == [(1 << 20, 132, 4 * 2 * 5 * 16)]
    launch(68, 128, 256, *numbers)
    size = 4 * 2 * 3 * 16
    assert copies[1:] == [(1 << 20, 68, size), (68, 1 << 20, size)]
    assert not own and cudnn.ALIGNMENT == 16
    launch(64, 128, 256, 2, *numbers)
    assert len(own) == 1 and len(built) == 1 and not plans
