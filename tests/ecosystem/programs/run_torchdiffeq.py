"""torchdiffeq: adaptive and fixed solvers, gradients through their steps and by the adjoint."""

import torch
from common import digest, fill, normal, tell
from torchdiffeq import odeint, odeint_adjoint


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
        )

    def forward(self, t, y):
        return self.net(y) - 0.1 * t * y


told = {}
times = torch.linspace(0, 1, 4, dtype=torch.float64)
start = normal(5, 3).double()
for solver in ("dopri5", "bosh3", "adaptive_heun", "fehlberg2", "rk4", "midpoint"):
    field = fill(Field(), 0.5).double()
    y0 = start.clone().requires_grad_()
    named = {} if solver not in ("rk4", "midpoint") else {"options": {"step_size": 0.1}}
    path = odeint(field, y0, times, method=solver, **named)
    path.square().sum().backward()
    told[solver] = [digest(path), digest(y0.grad), digest(field.net[0].weight.grad)]
field = fill(Field(), 0.5).double()
odeint_adjoint(field, start, times, method="dopri5").square().sum().backward()
told["adjoint"] = digest(field.net[0].weight.grad)
tell(**told)
