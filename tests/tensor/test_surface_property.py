"""In-place views, masks, indexed writes, promotion and reductions against NumPy (hypothesis)."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="limit: hypothesis is not installed")

from hypothesis import given, settings, strategies as st

import rushlight
from tests.catalog.run import to_array
from tests.ops.test_views_property import (
    broadcast_pairs,
    check,
    counted,
    filled,
    on,
    reductions,
    shapes,
)

few = settings(max_examples=50, deadline=None, derandomize=True)


# ---- views in place, with writes between ----


@st.composite
def changes(draw, shape):
    """One change of a handle: a view in place, or a write. (to the tensor, to the array)"""
    rank = len(shape)
    kind = draw(
        st.sampled_from(["unsqueeze", "squeeze", "write", "part", "transpose", "t", "strided"])
    )
    if kind == "transpose" and rank:
        a, b = draw(st.integers(-rank, rank - 1)), draw(st.integers(-rank, rank - 1))
        return (lambda x: x.transpose_(a, b)), (lambda v: v.swapaxes(a, b))
    if kind == "t" and rank <= 2:
        return (lambda x: x.t_()), (lambda v: v.T)
    if kind == "unsqueeze" and rank < 4:
        place = draw(st.integers(0, rank))
        return (lambda x: x.unsqueeze_(place)), (lambda v: np.expand_dims(v, place))
    if kind == "squeeze" and rank:
        return (lambda x: x.squeeze_()), (lambda v: v.squeeze())
    if kind == "part" and rank and shape[0]:
        index, factor = draw(st.integers(-shape[0], shape[0] - 1)), draw(st.integers(2, 4))
        return (lambda x: written(x, index, factor)), (lambda v: multiplied(v, index, factor))
    factor = draw(st.integers(2, 4))
    return (lambda x: x.mul_(factor)), (lambda v: np.multiply(v, factor, out=v))


def written(x, index, factor):
    x[index].mul_(factor)
    return x


def multiplied(array, index, factor):
    array[index] *= factor
    return array


@st.composite
def lives(draw):
    """A shape, and what happens to a tensor of it."""
    shape = draw(filled)
    array, found = np.zeros(shape), []
    for _ in range(draw(st.integers(1, 6))):
        change = draw(changes(array.shape))
        array = change[1](array)
        found.append(change)
    return shape, found


@few
@given(life=lives(), when=st.integers(0, 3))
def test_handles_that_change_what_they_see(life, when):
    """Values, values through an older view, and gradients: those of the product of all factors."""
    shape, found = life
    leaf = on("cpu", counted(shape) + 1, grad=True)
    x, a = leaf * 1, np.asarray(counted(shape) + 1)
    flat, memory = x.view(-1), a.reshape(-1)
    for number, (to_tensor, to_array_) in enumerate(found):
        if number == when:
            flat, memory = flat.view(-1), memory
        assert to_tensor(x) is x
        a = to_array_(a)
    check(x, a)
    check(flat, memory)
    weights = counted(a.shape) + 1
    total = (x * on("cpu", weights)).sum() + (flat * 2).sum()
    (g,) = rushlight.autograd.grad(total, leaf)
    factors = memory / (counted((memory.size,)) + 1)
    places = np.empty(memory.size)
    seen = np.lib.stride_tricks.as_strided(places, a.shape, a.strides)
    seen[...] = weights
    np.testing.assert_allclose(to_array(g).reshape(-1), factors * (places + 2), rtol=1e-12)


# ---- masks and writes by index ----


@st.composite
def masked(draw):
    shape = draw(filled.filter(len))
    rank = draw(st.integers(1, len(shape)))
    count = math.prod(shape[:rank])
    bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return shape, np.array(bits).reshape(shape[:rank])


@few
@given(case=masked(), number=st.booleans())
def test_masks_read_and_write(case, number):
    shape, mask = case
    leaf = on("cpu", counted(shape), grad=True)
    got, want = leaf[on("cpu", mask)], counted(shape)[mask]
    check(got, want)
    weights = counted(want.shape) + 1
    (g,) = rushlight.autograd.grad((got * on("cpu", weights)).sum(), leaf)
    spread = np.zeros(shape)
    spread[mask] = weights
    check(g, spread)
    x, a = on("cpu", counted(shape)), counted(shape)
    value = -5.0 if number else -1.0 - counted(want.shape)
    x[on("cpu", mask)] = value if number else on("cpu", value)
    a[mask] = value
    check(x, a)


@few
@given(
    shape=filled.filter(len),
    places=st.lists(st.integers(-1, 0), min_size=1, max_size=5),
    add=st.booleans(),
)
def test_writes_by_index_arrays(shape, places, add):
    """The last of equal positions wins; where they are added, each counts."""
    at = np.array(places) % shape[0]
    x, a = on("cpu", counted(shape)), counted(shape)
    new = counted((len(places), *shape[1:])) + 100
    if add:
        x.index_put_((on("cpu", at),), on("cpu", new), accumulate=True)
        np.add.at(a, at, new)
    else:
        x[on("cpu", at)] = on("cpu", new)
        a[at] = new
    check(x, a)


# ---- types ----

NAMES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
KIND = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def meeting(a: np.dtype, b: np.dtype) -> np.dtype:
    """PyTorch's rule for tensors with dimensions: NumPy's within a category.

    Else the higher one.
    """
    if KIND[a.kind] == KIND[b.kind]:
        return np.promote_types(a, b)
    low, high = sorted((a, b), key=lambda d: KIND[d.kind])
    if high.kind == "c" and low.kind == "f":
        return np.promote_types(low, high) if low.itemsize > 4 else high
    return high


@few
@given(
    first=st.sampled_from(NAMES),
    second=st.sampled_from(NAMES),
    pair=broadcast_pairs(),
    flat=st.booleans(),
)
def test_types_meet(first, second, pair, flat):
    a = (counted(pair[0]) % 5).astype(first)
    b = (counted(pair[1]) % 3).astype(second)
    if not a.ndim or not b.ndim:
        a, b = a.reshape(-1), b.reshape(-1)
        if a.size > 1 and b.size > 1:
            return
    common = meeting(a.dtype, b.dtype)
    out = on("cpu", a) * on("cpu", b)
    assert out.dtype.name == common.name
    assert (
        rushlight.promote_types(getattr(rushlight, first), getattr(rushlight, second)).name
        == common.name
    )
    assert np.array_equal(to_array(out), a.astype(common) * b.astype(common))
    if flat and a.size:  # a 0-dim tensor changes the type only from a higher category
        single = on("cpu", b.reshape(-1)[:1].reshape(())) if b.size else None
        if single is not None:
            higher = KIND[b.dtype.kind] > KIND[a.dtype.kind]
            got = (on("cpu", a) * single).dtype.name
            assert got == (meeting(a.dtype, b.dtype).name if higher else first)


@few
@given(name=st.sampled_from(NAMES), case=reductions())
def test_reductions_of_every_type(name, case):
    shape, order, dims, keepdim = case
    a = (counted(shape) % 4).astype(name).transpose(order)
    x = on("cpu", np.asarray(counted(shape) % 4).astype(name))
    x = x.permute(order) if order else x
    axes = dims or None
    summed = a.sum(axes, keepdims=keepdim, dtype=np.int64 if a.dtype.kind in "biu" else a.dtype)
    got = x.sum(dims, keepdim)
    assert got.dtype.name == summed.dtype.name
    assert np.array_equal(to_array(got), summed)
    if dims:
        assert np.array_equal(
            to_array((x != 0).any(dims, keepdim)), (a != 0).any(axes, keepdims=keepdim)
        )
    if a.size and a.ndim and a.dtype.kind not in "bc":
        assert np.array_equal(to_array(x.argmax(-1)), a.argmax(-1))
        assert np.array_equal(
            to_array(x.cumsum(0)), a.cumsum(0, dtype=np.int64 if a.dtype.kind in "iu" else a.dtype)
        )
        assert np.array_equal(
            to_array(x.flatten().sort(stable=True)[0]), np.sort(a.reshape(-1), kind="stable")
        )


@few
@given(shape=shapes, name=st.sampled_from(["float32", "int64", "bool"]))
def test_out_takes_any_shape(shape, name):
    a = (counted(shape) % 3).astype(name)
    x, out = on("cpu", a), rushlight.empty(0, dtype=getattr(rushlight, name))
    assert (
        rushlight.logical_not(x, out=rushlight.empty(0, dtype=rushlight.bool)).tolist()
        == np.logical_not(a).tolist()
    )
    assert rushlight.maximum(x, x, out=out) is out
    check(out, a)
