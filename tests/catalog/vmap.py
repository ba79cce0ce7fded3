"""Rows of the catalog under `vmap`, against a loop over the examples.

A batch is the same sample drawn from other seeds, so every example fits its op (positive definite
matrices, sorted lines, indices in range). Where the draws differ in shape or in an argument that is
no array, the examples are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import rushlight
from rushlight.core.dtypes import DType, float32, float64
from rushlight.ops.registry import REGISTRY
from rushlight.tensor import Tensor
from tests.catalog.row import EPSILON, Array, Make, Row, Sample
from tests.catalog.run import as_tensors, seed_of, to_array, to_tensor

BATCH = 3
ANYTHING = ("empty_like", "empty")  # the result is uninitialised memory
SINGLE = ("conv", "_convolution")  # in float32, for which the CPU has kernels of its own


def dtype_of(row: Row, device: str = "cpu") -> DType:
    wanted = (
        (float64, float32) if device == "cpu" and not row.name.startswith(SINGLE) else (float32,)
    )
    return next((d for d in wanted if d in row.dtypes), row.dtypes[0])


def _arrays(value: Any) -> list[Array]:
    if isinstance(value, list):
        return [a for item in value for a in _arrays(item)]
    return [value] if isinstance(value, Array) else []


def _plain(value: Any) -> Any:
    """An argument without its arrays' elements."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return (value.shape, str(value.dtype)) if isinstance(value, Array) else repr(value)


def _shape_of(sample: Sample) -> Any:
    return [_plain(a) for a in sample.args], {k: _plain(v) for k, v in sample.named.items()}


def batches_of(row: Row, dtype: DType, most: int = 3) -> Iterator[list[Sample]]:
    """The first few samples of a row with tensors in them, each as examples."""
    drawn = [list(row.samples(Make(seed_of(row) + 7 * k, dtype))) for k in range(BATCH)]
    count = 0
    for number, sample in enumerate(drawn[0]):
        if not _arrays(list(sample.args)) and not _arrays(list(sample.named.values())):
            continue
        others = [d[number] if number < len(d) else sample for d in drawn]
        if any(_shape_of(other) != _shape_of(sample) for other in others):
            others = [sample] * BATCH
        yield others
        count += 1
        if count == most:
            return


def _flat(sample: Sample) -> list[Array]:
    return [a for value in (*sample.args, *sample.named.values()) for a in _arrays(value)]


class Filled:
    """A sample with its arrays replaced, in order."""

    def __init__(self, row: Row, sample: Sample) -> None:
        self.row, self.sample = row, sample

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        rest = iter(tensors)

        def put(value: Any) -> Any:
            if isinstance(value, list) and value and isinstance(value[0], Array):
                return [next(rest) for _ in value]
            return next(rest) if isinstance(value, Array) else value

        args = [put(a) for a in self.sample.args]
        named = {k: put(v) for k, v in self.sample.named.items()}
        out = self.row.call(REGISTRY[self.row.name].function, *args, **named)
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)


def in_dims_of(row: Row, arrays: list[Array]) -> Iterator[tuple[int | None, ...]]:
    """All operands mapped over their first dimension; each of them alone.

    All over a new last one.
    """
    count = len(arrays)
    yield (0,) * count
    if count > 1:
        for i in range(min(count, 4)):
            yield tuple(0 if i == j else None for j in range(count))
    # Otherwise the op needs a layout that examples in the last dimension do not have.
    if row.layouts:
        yield (-1,) * count


def stacked(arrays: list[Array], dim: int | None) -> Array:
    return arrays[0] if dim is None else np.stack(arrays, dim if dim == 0 else arrays[0].ndim)


def tensor_of(array: Array, dtype: DType, device: str, leaves: list[Tensor] | None) -> Tensor:
    made: Tensor = as_tensors(array, dtype, device, "plain", leaves)
    return made


def problems(
    row: Row,
    device: str = "cpu",
    most: int = 2,
    gradients: bool = True,
    refused: list[str] | None = None,
) -> list[str]:
    """The problems of a row under vmap, in words; empty when there are none.

    With `refused`, errors are collected there.
    """
    dtype = dtype_of(row, device)
    found = []
    for examples in batches_of(row, dtype, most):
        filled = Filled(row, examples[0])
        flats = [_flat(e) for e in examples]
        smooth = (
            gradients
            and row.differentiable
            and dtype.kind == "f"
            and all(e.smooth for e in examples)
        )
        for dims in in_dims_of(row, flats[0]):
            where = f"{row.name}{examples[0]} {dtype.name} in_dims={dims}"
            try:
                found += [
                    f"{where}: {error}"
                    for error in _one(filled, flats, dims, dtype, device, smooth)
                ]
            except rushlight.RushlightError as error:
                if refused is None:
                    raise
                refused.append(f"{where}: {error}")
    return found


def _one(
    filled: Filled,
    flats: list[list[Array]],
    dims: tuple[int | None, ...],
    dtype: DType,
    device: str,
    smooth: bool,
) -> Iterator[str]:
    whole_leaves: list[Tensor] | None = [] if smooth else None
    whole = [
        tensor_of(stacked([f[i] for f in flats], d), dtype, device, whole_leaves)
        for i, d in enumerate(dims)
    ]
    loop, loop_leaves = [], []
    for k in range(len(flats)):
        leaves: list[Tensor] | None = [] if smooth else None
        args = [
            tensor_of(flats[0 if d is None else k][i], dtype, device, leaves)
            for i, d in enumerate(dims)
        ]
        rushlight.manual_seed(0)
        loop.append(filled(*args))
        loop_leaves.append(leaves)
    for _ in range(2):  # the second call runs the cached program
        rushlight.manual_seed(0)
        got = rushlight.vmap(filled, in_dims=dims, randomness="same")(*whole)
    allowed = (
        max(64 * filled.row.tolerance.full, 512) * EPSILON[dtype if dtype.kind == "f" else float32]
    )
    for i, out in enumerate(got):
        want = np.stack([to_array(one[i]) for one in loop])
        if out.shape != want.shape or out.dtype is not loop[0][i].dtype:
            yield f"result {i} is {out._spec!r}, expected {loop[0][i].dtype.name}{list(want.shape)}"
        elif filled.row.name not in ANYTHING:
            away = distance(to_array(out), want)
            if not away <= allowed:
                yield f"result {i} differs by {away:.3g}"
    if not smooth or not whole_leaves:
        return
    weights = [[_weight(o.shape, k, i) for i, o in enumerate(outs)] for k, outs in enumerate(loop)]
    joined = [np.stack([w[i] for w in weights]) for i in range(len(got))]
    together = _gradients(got, joined, whole_leaves, dtype, device)
    alone = [
        _gradients(outs, w, leaves, dtype, device)
        for outs, w, leaves in zip(loop, weights, loop_leaves, strict=True)
    ]
    places = [d for d, a in zip(dims, flats[0], strict=True) if a.dtype == np.float64]
    for j, (d, part) in enumerate(zip(places, together, strict=True)):
        each = [a[j] for a in alone]
        want = sum(each) if d is None else np.stack(each, d if d == 0 else each[0].ndim)
        away = distance(part, want)
        if not away <= 64 * allowed:
            yield f"gradient {j} differs by {away:.3g}"


def _weight(shape: tuple[int, ...], example: int, output: int) -> Array:
    return np.random.default_rng(31 * example + output).uniform(0.5, 1.5, shape)


def _gradients(
    outs: Any, weights: list[Array], leaves: Any, dtype: DType, device: str
) -> list[Array]:
    roots = [(o, w) for o, w in zip(outs, weights, strict=True) if o.requires_grad]
    if not roots:
        return [np.zeros(leaf.shape) for leaf in leaves]
    seeds = [
        to_tensor(w, o.dtype if o.dtype.kind == "f" else dtype, device).to(o.dtype)
        for o, w in roots
    ]
    parts = rushlight.autograd.grad([o for o, _ in roots], leaves, seeds, allow_unused=True)
    return [
        np.zeros(leaf.shape) if p is None else to_array(p)
        for p, leaf in zip(parts, leaves, strict=True)
    ]


def distance(got: Array, want: Array) -> float:
    """The largest |got - want| / (1 + |want|), infinite where NaN, Inf or integers differ."""
    if got.dtype.kind not in "fc":
        return 0.0 if np.array_equal(got, want) else math.inf
    finite = np.isfinite(want)
    if (
        not np.array_equal(got[~finite], want[~finite], equal_nan=True)
        or not np.isfinite(got[finite]).all()
    ):
        return math.inf
    if not finite.any():
        return 0.0
    return float((np.abs(got[finite] - want[finite]) / (1 + np.abs(want[finite]))).max())


# ---- two levels, and gradients ----


def nested_problems(row: Row) -> list[str]:
    """Two levels: one maps the first operand, the other the rest.

    a single operand is mapped by both.
    """
    dtype = dtype_of(row)
    found = []
    for examples in batches_of(row, dtype, 2):
        filled = Filled(row, examples[0])
        flats = [_flat(e) for e in examples]
        count = len(flats[0])
        outer = tuple(0 if i == 0 else None for i in range(count))
        inner = tuple(None if i == 0 and count > 1 else 0 for i in range(count))
        lists = [[f[i] for f in flats] for i in range(count)]
        if count == 1:
            lists = [[np.stack(lists[0]), np.stack(lists[0][::-1])]]
        tensors = [tensor_of(np.stack(each), dtype, "cpu", None) for each in lists]
        rushlight.manual_seed(0)
        inside = rushlight.vmap(filled, in_dims=inner, randomness="same")
        got = rushlight.vmap(inside, in_dims=outer, randomness="same")(*tensors)
        for i, out in enumerate(got):
            rows = [
                [_call(filled, tensors, a, b, count)[i] for b in range(BATCH)]
                for a in range(len(lists[0]))
            ]
            want = np.stack([np.stack([to_array(one) for one in each]) for each in rows])
            away = distance(to_array(out), want) if out.shape == want.shape else math.inf
            if row.name in ANYTHING and out.shape == want.shape:
                continue
            if not away <= 1e-6:
                found.append(
                    f"{row.name}{examples[0]} {dtype.name}, two levels: result {i} differs by "
                    f"{away:.3g}"
                )
    return found


def _call(
    filled: Filled, tensors: list[Tensor], first: int, second: int, count: int
) -> tuple[Any, ...]:
    rushlight.manual_seed(0)
    if count == 1:
        return filled(tensors[0][first][second])
    return filled(tensors[0][first], *[t[second] for t in tensors[1:]])


def cotangent_problems(row: Row) -> list[str]:
    """Gradients for a batch of cotangents, the operands not batched: one backward pass with batched
    gradients.
    """
    dtype = dtype_of(row)
    found: list[str] = []
    for sample in (e[0] for e in batches_of(row, dtype, 3) if e[0].smooth):
        leaves: list[Tensor] = []
        filled = Filled(row, sample)
        outs = [
            o
            for o in filled(*[tensor_of(a, dtype, "cpu", leaves) for a in _flat(sample)])
            if o.requires_grad
        ]
        if not outs or not leaves:
            continue

        def pull(*cotangents: Tensor, outs: Any = outs, leaves: Any = leaves) -> tuple[Tensor, ...]:
            return rushlight.autograd.grad(
                outs, leaves, cotangents, retain_graph=True, materialize_grads=True
            )

        draws = [
            [
                to_tensor(_weight(o.shape, k, i), float64, "cpu").to(o.dtype)
                for i, o in enumerate(outs)
            ]
            for k in range(BATCH)
        ]
        stacks = [rushlight.stack([d[i] for d in draws]) for i in range(len(outs))]
        for _ in range(2):
            got = rushlight.vmap(pull)(*stacks)
        alone = [pull(*d) for d in draws]
        for j, part in enumerate(got):
            away = distance(to_array(part), np.stack([to_array(a[j]) for a in alone]))
            if not away <= (1e-7 if dtype is float64 else 1e-3):
                found.append(
                    f"{row.name}{sample} {dtype.name}: gradient {j} for a batch of cotangents is "
                    f"off by {away:.3g}"
                )
    return found
