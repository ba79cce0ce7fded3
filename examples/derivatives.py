"""Derivatives as functions: per-sample gradients, Hessian-vector products, a differential equation.

python examples/derivatives.py [--device webgpu]
"""

from __future__ import annotations

import argparse

import rushlight as torch
from rushlight.func import functional_call, grad, hessian, jvp, vmap


def per_sample(device: str) -> None:
    """The gradient of every sample's own loss, in one pass."""
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(
        device
    )
    params = {name: p.detach() for name, p in model.named_parameters()}
    x, y = torch.randn(16, 5, device=device), torch.randn(16, 1, device=device)

    def loss(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (functional_call(model, params, (x,)) - y).square().mean()

    each = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
    together = grad(loss)(params, x, y)
    error = max((each[name].mean(0) - together[name]).abs().max().item() for name in params)
    print(
        f"per-sample gradients: {len(x)} of them, their mean is the batch's gradient to {error:.0e}"
    )


def curvature(device: str) -> None:
    """The largest eigenvalue of a Hessian that is never formed, by power iteration."""
    scale = torch.arange(1.0, 33.0, device=device)

    def energy(x: torch.Tensor) -> torch.Tensor:
        return (scale * x.square()).sum() / 2 + x.sum().exp()

    x, v = torch.zeros(32, device=device), torch.ones(32, device=device)
    for _ in range(20):
        v = jvp(grad(energy), (x,), (v / v.norm(),))[1]
    whole = torch.linalg.eigvalsh(hessian(energy)(x).cpu())[-1].item()
    print(
        f"the largest curvature: {v.norm().item():.3f} by products, {whole:.3f} from the whole "
        "Hessian"
    )


def oscillator(device: str, steps: int) -> None:
    """A small network that satisfies u'' = -u, u(0) = 0, u'(0) = 1.

    It learns the sine from its own derivatives.
    """
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(
        device
    )
    time = torch.linspace(0, 2, 33, device=device)

    def u(t: torch.Tensor) -> torch.Tensor:
        n = model(t.reshape(1)).reshape(())
        return t + t * t * n  # the conditions at 0 hold for any network

    acceleration = vmap(grad(grad(u)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        residual = (acceleration(time) + vmap(u)(time)).square().mean()
        residual.backward()
        optimizer.step()
    with torch.no_grad():
        error = (vmap(u)(time) - time.sin()).abs().max().item()
    print(f"u'' = -u: residual {residual.item():.1e}, {error:.3f} from the sine at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    torch.manual_seed(0)
    per_sample(options.device)
    curvature(options.device)
    oscillator(options.device, options.steps)


if __name__ == "__main__":
    main()
