"""Gradients of a catalog row, against differences of its NumPy reference.

Note [Gradient projections]
1. The loss is L(x, w) = sum of w times the results, w random. Along random directions u and v,
   central differences of the *reference* give dL(v) and, mixed, d2L(v, u); so the expected numbers
   do not depend on the package. Weights and directions are numbers that every float type holds, so
   that casts keep them exactly.
2. First order: the sum of gradient times v must be dL(v). Second order: S = sum of gradient times v
   is differentiated again, also with respect to w, and projected on u.
3. The steps balance truncation against the 2e-16 of float64: h = 1e-5 leaves 1e-10, h = 1e-3 with a
   fourth-order stencil leaves about 1e-9 at second order. The tolerances are far above that and far
   below any wrong rule.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np

import rushlight
from rushlight.core.dtypes import DType, bfloat16, float32, float64
from rushlight.core.errors import DeviceUnavailable
from rushlight.devices.shared.registry import pool_of
from rushlight.tensor import Tensor
from tests.catalog.row import Array, Row, Sample, round_to
from tests.catalog.run import call, expected, samples_of, seed_of, to_array, to_tensor

FIRST_STEP, FIRST_TOLERANCE = 1e-5, 1e-6
SECOND_STEP, SECOND_TOLERANCE = 1e-3, 1e-5
# float32 on a device against float64 on the CPU: backward of a composed op is a few hundred rounded
# operations deep.
SINGLE_TOLERANCE = 2e-4


def smooth_samples(row: Row) -> list[Sample]:
    return [s for s in samples_of(row, float64) if s.smooth and float_arrays(s)]


def float_arrays(sample: Sample) -> list[Array]:
    found = []
    for value in (*sample.args, *sample.named.values()):
        found += [v for v in (value if isinstance(value, list) else [value]) if _is_float(v)]
    return found


def _is_float(value: Any) -> bool:
    return isinstance(value, Array) and value.dtype == np.float64


def moved(sample: Sample, arrays: list[Array]) -> Sample:
    """The sample with its float arrays replaced, in order."""
    rest = iter(arrays)

    def swap(value: Any) -> Any:
        if isinstance(value, list):
            return [swap(v) for v in value]
        return next(rest) if _is_float(value) else value

    return Sample(
        tuple(map(swap, sample.args)), {k: swap(v) for k, v in sample.named.items()}, sample.smooth
    )


class Projection:
    """One sample's random weights and directions, and the reference's differences along them."""

    def __init__(self, row: Row, sample: Sample) -> None:
        random = np.random.default_rng(seed_of(row) + 1)

        def like(arrays: Any) -> list[Array]:
            return [round_to(random.uniform(-1, 1, np.shape(a)), bfloat16) for a in arrays]

        self.sample = sample
        self.smooth = replace(row, reference=row.unrounded or row.reference)
        self.xs = float_arrays(sample)
        self.weights = like(expected(row, sample))
        self.v, self.u = like(self.xs), like(self.xs)
        self.u_weights = like(self.weights)

    def loss(self, s: float, t: float) -> float:
        """L at x + s v + t u, w + t u_w."""
        xs = [x + s * v + t * u for x, v, u in zip(self.xs, self.v, self.u, strict=True)]
        outs = expected(self.smooth, moved(self.sample, xs))
        weights = [w + t * u for w, u in zip(self.weights, self.u_weights, strict=True)]
        return float(sum((w * out).sum() for w, out in zip(weights, outs, strict=True)))

    def first(self) -> float:
        h = FIRST_STEP
        return (self.loss(h, 0) - self.loss(-h, 0)) / (2 * h)

    def second(self) -> float:
        h = SECOND_STEP
        stencil = ((-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12))
        return (
            sum(
                a * b * self.loss(i * h, j * h)
                for (i, a), (j, b) in itertools.product(stencil, stencil)
            )
            / h**2
        )


def dot(tensors: Any, arrays: Any, dtype: DType, device: str) -> Tensor:
    """The sum over all pairs of the sum of tensor times array."""
    total = None
    for tensor, array in zip(tensors, arrays, strict=True):
        part = (tensor * to_tensor(array, dtype, device)).sum()
        total = part if total is None else total + part
    return total


def close(got: float, want: float, tolerance: float) -> bool:
    return abs(got - want) <= tolerance * (1 + abs(want))


def projection_problems(row: Row, device: str, orders: int = 2) -> list[str]:
    """First- and second-order gradients in float64 against the projections."""
    problems = []
    for sample in smooth_samples(row):
        p = Projection(row, sample)
        where = f"{row.name}{sample}"
        leaves: list[Tensor] = []
        outs = call(row, sample, float64, device, leaves=leaves)
        weights = [to_tensor(w, float64, device).requires_grad_() for w in p.weights]
        loss = rushlight.tensor(0.0, dtype=float64, device=device)
        for out, w in zip(outs, weights, strict=True):
            loss = loss + (out * w).sum()
        grads = rushlight.autograd.grad(loss, leaves, create_graph=True)
        along = dot(grads, p.v, float64, device)
        if not close(along.item(), want := p.first(), FIRST_TOLERANCE):
            problems.append(
                f"{where}: gradient along v is {along.item():.9g}, differences give {want:.9g}"
            )
        if orders < 2:
            continue
        got = 0.0
        if along.requires_grad:  # the gradient of floor is a constant
            seconds = rushlight.autograd.grad(along, [*leaves, *weights], allow_unused=True)
            pairs = zip(seconds, [*p.u, *p.u_weights], strict=True)
            got = float(sum((to_array(s) * u).sum() for s, u in pairs if s is not None))
        if not close(got, want := p.second(), SECOND_TOLERANCE):
            problems.append(
                f"{where}: second derivative along v, u is {got:.9g}, differences give {want:.9g}"
            )
    return problems


def gradients(row: Row, sample: Sample, dtype: DType, device: str) -> list[Array]:
    leaves: list[Tensor] = []
    outs = call(row, sample, dtype, device, leaves=leaves)
    loss = dot(outs, Projection(row, sample).weights, dtype, device)
    found = rushlight.autograd.grad(loss, leaves, allow_unused=True)
    return [
        np.zeros(leaf.shape) if g is None else to_array(g)
        for g, leaf in zip(found, leaves, strict=True)
    ]


@functools.cache
def baseline() -> str:
    """The CPU, or the reference where a GPU machine has no llvmlite; other tests check both."""
    try:
        pool_of("cpu")
    except (DeviceUnavailable, ImportError):
        return "reference"
    return "cpu"


def single_errors(row: Row, device: str) -> list[tuple[str, float]]:
    """float32 gradients on a device against float64 on the CPU: (where, largest relative error).

    Errors are relative to 1 + |g|.
    """
    errors = []
    for sample in smooth_samples(row):
        # Both must see the same numbers.
        rounded = moved(
            sample, [a.astype(np.float32).astype(np.float64) for a in float_arrays(sample)]
        )
        got, want = (
            gradients(row, rounded, float32, device),
            gradients(row, rounded, float64, baseline()),
        )
        away = max(
            (
                float((np.abs(a - b) / (1 + np.abs(b))).max(initial=0))
                for a, b in zip(got, want, strict=True)
            ),
            default=0.0,
        )
        errors.append((f"{row.name}{sample}", away))
    return errors
