"""A small training step whose bits the memory tests compare."""

from __future__ import annotations

from collections.abc import Callable

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory

WIDTH = 64
ROWS = 64


def bits(*tensors: rl.Tensor | None) -> list[bytes | None]:
    """The elements as bytes; none where the device has no memory."""
    return [
        None
        if t is None
        else b""
        if t.device.type == "null"
        else bytes(t.detach().numpy(force=True).tobytes())
        for t in tensors
    ]


class Model:
    """Three residual blocks with a norm, dropout, a view and a write in place.

    From a fixed seed.
    """

    def __init__(self, device: str = "cpu", depth: int = 3) -> None:
        rl.manual_seed(11)
        self.device = device
        self.weights = [
            (rl.randn(WIDTH, WIDTH, device=device) * 0.2).requires_grad_() for _ in range(depth)
        ]
        self.scales = [rl.ones(WIDTH, device=device, requires_grad=True) for _ in range(depth)]
        self.mean, self.var = rl.zeros(WIDTH, device=device), rl.ones(WIDTH, device=device)

    @property
    def parameters(self) -> list[rl.Tensor]:
        return [*self.weights, *self.scales]

    def loss(self, x: rl.Tensor, wrap: Callable = lambda f, *a: f(*a)) -> rl.Tensor:
        h = x
        for w, scale in zip(self.weights, self.scales, strict=True):
            h = wrap(self.block, h, w, scale)
        h = F.batch_norm(h, self.mean, self.var, training=True)
        return h.reshape(-1, 8)[:, 1:].exp().mean()

    def block(self, h: rl.Tensor, w: rl.Tensor, scale: rl.Tensor) -> rl.Tensor:
        inner = F.dropout(F.gelu(rl.layer_norm(h, (WIDTH,)) @ w), 0.1)
        inner = (inner @ w.t()).mul_(0.5).tanh_()
        return h + inner * scale

    def step(self, wrap: Callable = lambda f, *a: f(*a)) -> list[bytes | None]:
        """One step of training from a fixed seed; the bits of everything it changed."""
        rl.manual_seed(5)
        x = rl.randn(ROWS, WIDTH, device=self.device)
        loss = self.loss(x, wrap)
        loss.backward()
        result = [loss, *[p.grad for p in self.parameters]]
        with rl.no_grad():
            for p in self.parameters:
                p -= 0.1 * p.grad
                p.grad = None
        return bits(*result, *self.parameters, self.mean, self.var)


def plain(device: str = "cpu") -> tuple[list, int, int]:
    """The bits of two steps, the bytes in use before them and the peak above those."""
    model = Model(device)
    memory.empty_cache(device)
    base = memory.allocated(device)
    memory.reset_peak(device)
    want = [model.step(), model.step()]
    return want, base, memory.peak(device) - base
