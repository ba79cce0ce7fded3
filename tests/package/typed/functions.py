"""Transforms of functions, linear algebra, and tensors in and out."""

from __future__ import annotations

import numpy as np

import rushlight as torch
from rushlight.func import grad, jacrev, vmap


def loss(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x @ w - y) ** 2).mean()


def per_example(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = vmap(grad(loss), in_dims=(None, 0, 0))(w, x, y)
    return found


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, g: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = ctx.saved_tensors[0]
        return 3 * x * x * g


def main() -> None:
    w = torch.zeros(3, requires_grad=True)
    x, y = torch.randn(5, 3), torch.rand(5)
    print(per_example(w.detach(), x, y).shape, jacrev(torch.sin)(w).shape)
    (g,) = torch.autograd.grad(loss(w, x, y), [w])
    array: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = g.numpy()
    back = torch.from_numpy(array).double().to(torch.float16)
    q, r = torch.linalg.qr(x)
    values, vectors = torch.linalg.eigh(x.T @ x)
    ordered = torch.sort(values, descending=True)
    print(q.mT, r, vectors, ordered.indices, back.element_size(), Cube.apply(w))
    z = torch.fft.rfft(x, dim=-1).abs().clamp_(min=1e-3).log_()
    z += 1
    z[z > 0] = 0.5
    out = torch.empty(0)
    torch.add(x, 2.0, out=out)
    size: torch.Size = z.shape
    first: int = z.size(0)
    n: float = torch.einsum("ij,ij->", x, x).item()
    uses = [1 - z, 2 / z, -z, abs(z), ~(z > 1), z // 2, z % 2, z == 1, z != z, 2**z, 1 in z]
    print(size, first, n, len(uses), bool(z.any()), float(z.sum()), int(first), z.unique().tolist())
    torch.special.expit(z).squeeze_(0).requires_grad_()


if __name__ == "__main__":
    main()
