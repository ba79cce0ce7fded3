"""Views, indexing, broadcasting and reductions over random shapes, against NumPy (hypothesis)."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="limit: hypothesis is not installed")

from hypothesis import given, settings, strategies as st

import rushlight
from rushlight.core.dtypes import float64
from tests.catalog.run import to_array

# The same examples every time: a failure here comes from the change under test. Longer runs by hand
# draw new ones.
few = settings(max_examples=60, deadline=None, derandomize=True)
devices = pytest.mark.parametrize("device", ["cpu", "reference"])

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
filled = st.lists(st.integers(1, 4), max_size=4).map(tuple)  # no dimension of size 0


def counted(shape):
    """An array whose elements are their positions, so that any mix-up shows."""
    return np.arange(math.prod(shape), dtype=np.float64).reshape(shape)


def on(device, array, grad=False):
    return rushlight.tensor(array, device=device, requires_grad=grad)


def check(tensor, array):
    assert tensor.shape == array.shape
    assert np.array_equal(to_array(tensor), array)


# ---- chains of views ----


@st.composite
def factors(draw, count):
    """A shape of `count` elements."""
    shape = []
    while count > 1 and len(shape) < 3:
        size = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
        shape.append(size)
        count //= size
    return (*shape, count) if count != 1 or draw(st.booleans()) else tuple(shape)


@st.composite
def steps(draw, shape):
    """One view of `shape`: (how to do it to a tensor, how to do it to an array)."""
    rank = len(shape)
    kinds = ["reshape", "unsqueeze", "expand"]
    if rank:
        kinds += ["permute", "slice", "select", "transpose", "squeeze", "flatten"]
    kind = draw(st.sampled_from(kinds))
    dim = draw(st.integers(-rank, rank - 1)) if rank else 0
    if kind == "reshape":
        target = draw(factors(math.prod(shape))) if math.prod(shape) else tuple(reversed(shape))
        return (lambda x: x.reshape(target)), (lambda a: a.reshape(target))
    if kind == "unsqueeze":
        place = draw(st.integers(-rank - 1, rank))
        return (lambda x: x.unsqueeze(place)), (lambda a: np.expand_dims(a, place))
    if kind == "expand":
        lead = tuple(draw(st.lists(st.integers(1, 3), max_size=1)))
        sizes = (*lead, *(draw(st.integers(0, 3)) if n == 1 else n for n in shape))
        return (lambda x: x.expand(sizes) if sizes else x), (lambda a: np.broadcast_to(a, sizes))
    if kind == "permute":
        order = draw(st.permutations(range(rank)))
        return (lambda x: x.permute(tuple(order))), (lambda a: a.transpose(order))
    if kind == "transpose":
        other = draw(st.integers(-rank, rank - 1))
        return (lambda x: x.transpose(dim, other)), (lambda a: a.swapaxes(dim, other))
    if kind == "squeeze":
        return (lambda x: x.squeeze(dim)), (lambda a: a.squeeze(dim) if a.shape[dim] == 1 else a)
    if kind == "flatten":
        return (lambda x: x.flatten()), (lambda a: a.reshape(-1))
    size = shape[dim]
    if kind == "select" and size:
        index = draw(st.integers(-size, size - 1))
        return (lambda x: x.select(dim, index)), (lambda a: a.take(index, dim))
    stop = draw(st.none() | st.integers(-size, size + 1))
    part = slice(draw(st.integers(-size, size)), stop, draw(st.integers(1, 3)))
    key = (slice(None),) * (dim % rank) + (part,)
    return (lambda x: x[key]), (lambda a: a[key])


@st.composite
def chains(draw):
    """A shape and up to five views on top of each other."""
    shape = draw(shapes)
    array, found = counted(shape), []
    for _ in range(draw(st.integers(1, 5))):
        to_tensor, to_view = draw(steps(array.shape))
        array = to_view(array)
        if array.ndim > 6 or array.size > 500:
            break
        found.append((to_tensor, to_view))
    return shape, found


@devices
@few
@given(chain=chains())
def test_chains_of_views(device, chain):
    """The elements, and the gradient: each element gets the weights of all places at which it is
    seen.
    """
    shape, found = chain
    places = counted(shape)
    leaf = on(device, places, grad=True)
    x, a = leaf, places
    for to_tensor, to_view in found:
        x, a = to_tensor(x), to_view(a)
    check(x, a)
    if not x.requires_grad or not a.size:
        return
    weights = counted(a.shape) + 1
    (g,) = rushlight.autograd.grad((x * on(device, weights)).sum(), leaf)
    want = np.bincount(a.astype(int).ravel(), weights.ravel(), minlength=places.size).reshape(shape)
    check(g, want)


@devices
@few
@given(chain=chains())
def test_kernels_read_any_view(device, chain):
    """An op on a view gives what it gives on a copy of it."""
    shape, found = chain
    x, a = on(device, counted(shape)), counted(shape)
    for to_tensor, to_view in found:
        x, a = to_tensor(x), to_view(a)
    check(x + x.contiguous(), a + a)
    check(x.sum(), np.asarray(a.sum()))
    if a.ndim:
        check(x.sum(-1), a.sum(-1))
        check(x.sum(0, keepdim=True), a.sum(0, keepdims=True))


# ---- keys ----


@st.composite
def keys(draw, shape):
    """Ints, slices, None and Ellipsis; or slices with one or two index arrays of one shape."""
    arrays = draw(st.integers(0, 2))
    many = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple))
    found, dims = [], 0
    for size in shape:
        if draw(st.integers(0, 4)) == 0:
            break
        if arrays and size and draw(st.booleans()):
            count = math.prod(many)
            places = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count))
            found.append(np.array(places).reshape(many))
            arrays -= 1
        elif (
            size
            and not any(isinstance(k, np.ndarray) for k in found)
            and not arrays
            and draw(st.booleans())
        ):
            found.append(draw(st.integers(-size, size - 1)))
        else:
            bounds = st.none() | st.integers(-size - 1, size + 1)
            found.append(slice(draw(bounds), draw(bounds), draw(st.none() | st.integers(1, 3))))
        dims += 1
    if draw(st.booleans()) and not any(isinstance(k, np.ndarray) for k in found):
        found.insert(draw(st.integers(0, len(found))), None)
    if dims < len(shape) and draw(st.booleans()):
        found.append(Ellipsis)
    return tuple(found)


shaped_keys = filled.flatmap(lambda shape: st.tuples(st.just(shape), keys(shape)))


@devices
@few
@given(case=shaped_keys)
def test_reading_by_key(device, case):
    shape, key = case
    tensors = tuple(on(device, k) if isinstance(k, np.ndarray) else k for k in key)
    leaf = on(device, counted(shape), grad=True)
    got, want = leaf[tensors], counted(shape)[key]
    check(got, want)
    weights = counted(want.shape) + 1
    (g,) = rushlight.autograd.grad((got * on(device, weights)).sum(), leaf)
    check(
        g,
        np.bincount(want.astype(int).ravel(), weights.ravel(), minlength=math.prod(shape)).reshape(
            shape
        ),
    )


@devices
@few
@given(case=shaped_keys, whole=st.booleans())
def test_writing_by_key(device, case, whole):
    shape, key = case
    if any(isinstance(k, np.ndarray) for k in key):
        return
    x, a = on(device, counted(shape)), counted(shape)
    value = -1.0 - counted(a[key].shape) if whole else -7.0
    x[key] = on(device, np.asarray(value)) if whole else value
    a[key] = value
    check(x, a)


# ---- joining, broadcasting, reducing ----


@devices
@few
@given(
    shape=filled.filter(len),
    at=st.integers(0, 3),
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4),
)
def test_cat_and_split_undo_each_other(device, shape, at, sizes):
    dim = at % len(shape)
    parts = [counted((*shape[:dim], n, *shape[dim + 1 :])) + 100 * i for i, n in enumerate(sizes)]
    whole = rushlight.cat([on(device, p) for p in parts], dim)
    check(whole, np.concatenate(parts, dim))
    for got, want in zip(whole.split(sizes, dim), parts, strict=True):
        check(got, want)


@st.composite
def broadcast_pairs(draw):
    """Two shapes that broadcast: sizes and leading dimensions left out or made 1."""
    full = draw(shapes)

    def thinned():
        kept = tuple(n if draw(st.booleans()) else 1 for n in full)
        return kept[draw(st.integers(0, len(kept))) :]

    return thinned(), thinned()


@devices
@few
@given(pair=broadcast_pairs())
def test_broadcasting(device, pair):
    a, b = (counted(shape) + 1 for shape in pair)
    x, y = on(device, a, grad=True), on(device, b, grad=True)
    out = x * y
    check(out, a * b)
    gx, gy = rushlight.autograd.grad(out.sum(), (x, y))
    ones = np.ones(np.broadcast_shapes(a.shape, b.shape))
    check(gx, unbroadcast(ones * b, a.shape))
    check(gy, unbroadcast(ones * a, b.shape))


def unbroadcast(g, shape):
    g = g.sum(tuple(range(g.ndim - len(shape))))
    dims = tuple(i for i, n in enumerate(shape) if n == 1)
    return g.sum(dims, keepdims=True) if dims else g


@st.composite
def reductions(draw):
    shape = draw(shapes)
    rank = len(shape)
    dims = (
        draw(st.lists(st.integers(0, max(rank - 1, 0)), unique=True, max_size=rank)) if rank else []
    )
    order = draw(st.permutations(range(rank)))
    return (
        shape,
        tuple(order),
        tuple(d - rank if draw(st.booleans()) else d for d in dims),
        draw(st.booleans()),
    )


@devices
@few
@given(case=reductions())
def test_reductions(device, case):
    shape, order, dims, keepdim = case
    x = on(device, counted(shape)).permute(order) if order else on(device, counted(shape))
    a = counted(shape).transpose(order)
    axes = dims or None  # PyTorch: no dimensions are all dimensions
    check(x.sum(dims, keepdim), a.sum(axes, keepdims=keepdim))
    if a.size:
        check(x.amax(dims, keepdim), a.max(axes, keepdims=keepdim))
        check(x.amin(dims, keepdim), a.min(axes, keepdims=keepdim))
        assert np.allclose(
            to_array(x.mean(dims, keepdim)), a.mean(axes, keepdims=keepdim), rtol=1e-14
        )


@devices
@few
@given(
    pair=broadcast_pairs(),
    m=st.integers(0, 3),
    n=st.integers(0, 3),
    k=st.integers(0, 3),
    flip=st.booleans(),
)
def test_batches_of_matrices(device, pair, m, n, k, flip):
    a, b = counted((*pair[0], m, k)) + 1, counted((*pair[1], k, n)) - 3
    x, y = on(device, a), on(device, b)
    if flip:  # transposed operands are read in place
        x = on(device, np.ascontiguousarray(a.swapaxes(-1, -2))).transpose(-1, -2)
    check(x @ y, a @ b)


def test_views_share_memory(device):
    """A write through a view is visible in the base, and vice versa."""
    dtype = float64 if device in ("cpu", "reference") else rushlight.float32
    x = rushlight.zeros(3, 4, dtype=dtype, device=device)
    x.T[1:, ::2].add_(1)
    x[1].zero_()
    want = np.zeros((3, 4))
    want[::2, 1:] = 1
    check(x, want)
    view = x.reshape(2, 6)
    x.mul_(3)
    check(view, 3 * want.reshape(2, 6))
