"""Weights and inputs that are the same under PyTorch and Rushlight; a program's numbers."""

from __future__ import annotations

import json
import sys
import traceback

import numpy as np
import torch

_cases, _failed = {}, []


def fill(module, scale=0.1):
    """Set every parameter to numbers of NumPy, by its place."""
    numbers = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in module.parameters():
            made = np.asarray(numbers.standard_normal(tuple(parameter.shape)) * scale)
            parameter.copy_(torch.from_numpy(made.astype(np.float32)))
    return module


def normal(*shape, seed=1):
    made = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(made)


def tokens(*shape, most=50, seed=2):
    return torch.from_numpy(np.random.default_rng(seed).integers(1, most, shape))


def digest(x):
    """Some numbers of a tensor: the first elements, the sum of squares."""
    flat = x.detach().double().flatten()
    return [*flat[:8].tolist(), flat.square().sum().item()]


def draw_by_numpy():
    """Let `torch.multinomial` draw by NumPy's numbers, so that samples can be compared."""
    numbers = np.random.default_rng(5)

    def multinomial(weights, num_samples, *args, **named):
        rows = weights.detach().double().cpu().numpy()
        sums = np.cumsum(rows / rows.sum(-1, keepdims=True), -1)
        marks = numbers.random((*rows.shape[:-1], num_samples))
        found = (marks[..., None] >= sums[..., None, :]).sum(-1).clip(max=rows.shape[-1] - 1)
        return torch.from_numpy(found)

    torch.multinomial = multinomial


def train(module, loss_of, steps=3, lr=1e-2):
    """The losses of a few steps of AdamW."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def case(function):
    """Run a part of a program; what it returns are its numbers. A failed one stops no other."""
    torch.manual_seed(0)
    try:
        _cases[function.__name__.replace("_", " ")] = function()
    except Exception:
        print(f"FAILED CASE {function.__name__}", traceback.format_exc(), sep="\n", file=sys.stderr)
        _failed.append(function.__name__)


def cases_of(names):
    """`case` for each of some names: `function(name)`."""

    def decorate(function):
        for name in names:

            def part(name=name):
                return function(name)

            part.__name__ = name
            case(part)

    return decorate


def tell(**numbers):
    print("NUMBERS " + json.dumps({**numbers, **_cases}))
    if _failed:
        sys.exit(f"failed: {_failed}")
