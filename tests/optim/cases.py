"""Optimisers and schedules that are run both here and in PyTorch.

`python tests/optim/cases.py` prints the table of `test_optimisers_and_schedules.py` where torch is
installed.
"""

from __future__ import annotations

import math
from typing import Any

OPTIMISERS: dict[str, tuple[str, dict[str, Any]]] = {
    "adadelta": ("Adadelta", {"lr": 0.5}),
    "adadelta decay": ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    "adagrad": ("Adagrad", {"lr": 0.1}),
    "adagrad decay": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
    ),
    "adamax": ("Adamax", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    "nadam": ("NAdam", {"lr": 0.05}),
    "nadam decay": (
        "NAdam",
        {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.1, "decoupled_weight_decay": True},
    ),
    "radam": ("RAdam", {"lr": 0.05}),
    "radam decay": (
        "RAdam",
        {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True},
    ),
    "rmsprop": ("RMSprop", {"lr": 0.05}),
    "rmsprop centred": (
        "RMSprop",
        {"lr": 0.05, "centered": True, "momentum": 0.5, "weight_decay": 0.1, "maximize": True},
    ),
    "asgd": ("ASGD", {"lr": 0.1, "t0": 2, "lambd": 0.1, "weight_decay": 0.1}),
    "rprop": ("Rprop", {"lr": 0.05, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.2)}),
    "lbfgs": ("LBFGS", {"lr": 0.1, "max_iter": 3, "history_size": 2}),
    "lbfgs wolfe": ("LBFGS", {"max_iter": 4, "line_search_fn": "strong_wolfe"}),
}
SCHEDULES = {
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda t: 0.9),
    "multistep": lambda s, o: s.MultiStepLR(o, [2, 5, 5], 0.5),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "constant": lambda s, o: s.ConstantLR(o, 0.5, 3),
    "linear": lambda s, o: s.LinearLR(o, 0.2, 0.9, 4),
    "polynomial": lambda s, o: s.PolynomialLR(o, 5, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 3, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, 2, 0.01),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, 2, mode="triangular2"),
    "cyclic range": lambda s, o: s.CyclicLR(
        o, 0.01, 0.2, 3, mode="exp_range", gamma=0.9, cycle_momentum=False
    ),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=10),
    "one cycle of three": lambda s, o: s.OneCycleLR(
        o,
        0.3,
        epochs=2,
        steps_per_epoch=5,
        three_phase=True,
        anneal_strategy="linear",
        pct_start=0.25,
    ),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 20), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 3)], [2, 5]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=1, cooldown=1),
    "plateau of largest": lambda s, o: s.ReduceLROnPlateau(
        o, "max", 0.5, 0, 0.5, "abs", min_lr=0.03
    ),
}
MEASURED = [5.0, 4.0, 4.0, 4.0, 3.9999, 3.5, 3.6, 3.7, 2.0]


def minimised(
    torch: Any, name: str, options: dict[str, Any], device: str = "cpu", steps: int = 6
) -> list[float]:
    """The parameters after some steps down a curved valley."""
    p = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64, device=device, requires_grad=True)
    scale = torch.tensor([1.0, 3.0, -2.0], dtype=torch.float64, device=device)
    optimiser = getattr(torch.optim, name)([p], **options)

    def closure() -> Any:
        optimiser.zero_grad()
        loss = ((p * scale - 1) ** 2).sum() + (p.sum() ** 2).sin()
        loss.backward()
        return loss

    for _ in range(steps):
        if name == "LBFGS":
            optimiser.step(closure)
        else:
            closure()
            optimiser.step()
    return p.detach().tolist()


def rates(torch: Any, name: str, steps: int = 9) -> list[tuple[float, float]]:
    """Rate and momentum before each step."""
    p = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    schedule = SCHEDULES[name](torch.optim.lr_scheduler, optimiser)
    seen = []
    for i in range(steps):
        group = optimiser.param_groups[0]
        seen.append((round(float(group["lr"]), 9), round(float(group["momentum"]), 9)))
        optimiser.step()
        schedule.step(*([MEASURED[i]] if name.startswith("plateau") else []))
    return seen


if __name__ == "__main__":
    import torch

    print("MINIMA = {")
    for key, (kind, named) in OPTIMISERS.items():
        print(f"    {key!r}: {minimised(torch, kind, named)},")
    print("}\nRATES = {")
    for key in SCHEDULES:
        seen = rates(torch, key)
        momenta = sorted({m for _, m in seen})
        assert all(math.isfinite(r) for r, _ in seen)
        print(
            f"    {key!r}: ({[r for r, _ in seen]}, "
            f"{[m for _, m in seen] if len(momenta) > 1 else momenta[0]}),"
        )
    print("}")
