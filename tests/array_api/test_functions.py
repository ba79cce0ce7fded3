"""Functions of rushlight.array_api that are not element by element, against NumPy."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import rushlight.array_api as xp
from tests.array_api.test_standard import to_numpy

M = np.array([[3.0, 1.0, 2.0], [1.0, -4.0, 2.0]])
V = np.array([3, 1, 1, 2, 3])
S = np.array([[4.0, 1.0], [1.0, 3.0]])

CALLS = {
    "arange": lambda p, a: [
        p.arange(5),
        p.arange(2, 8, 3),
        p.arange(0.5, 2.0, 0.5),
        p.arange(3, 0),
        p.arange(4, 0, -1),
    ],
    "linspace": lambda p, a: [p.linspace(0.0, 1.0, 5), p.linspace(0.0, 1.0, 5, endpoint=False)],
    "eye": lambda p, a: [p.eye(2), p.eye(2, 3, k=1), p.eye(3, 2, k=-1)],
    "full": lambda p, a: [
        p.full((2, 2), 3),
        p.full(2, 1.5),
        p.full((), True),
        p.full_like(a(M), 2.0),
    ],
    "like": lambda p, a: [p.zeros_like(a(V)), p.ones_like(a(M)), p.ones(3), p.zeros((2, 0))],
    "meshgrid": lambda p, a: [
        *p.meshgrid(a(V), a(V[:2])),
        *p.meshgrid(a(V), a(V[:2]), indexing="ij"),
    ],
    "triangles": lambda p, a: [p.tril(a(M), k=1), p.triu(a(M))],
    "concat": lambda p, a: [
        p.concat([a(M), a(M)]),
        p.concat([a(M), a(M)], axis=1),
        p.concat([a(M), a(M)], axis=None),
    ],
    "stack": lambda p, a: [
        p.stack([a(V), a(V)]),
        p.stack([a(V), a(V)], axis=-1),
        *p.unstack(a(M), axis=1),
    ],
    "shapes": lambda p, a: [
        p.expand_dims(a(V), axis=1),
        p.squeeze(a(V[None]), axis=0),
        p.permute_dims(a(M), (1, 0)),
        p.moveaxis(a(M[None]), 0, 2),
        p.reshape(a(M), (3, -1)),
        p.matrix_transpose(a(M)),
        p.broadcast_to(a(V), (2, 5)),
        *p.broadcast_arrays(a(M), a(M[0])),
    ],
    "orders": lambda p, a: [
        p.flip(a(M)),
        p.flip(a(M), axis=1),
        p.roll(a(V), 2),
        p.roll(a(M), (1, 1), axis=(0, 1)),
        p.tile(a(V), (2, 2)),
        p.repeat(a(V), 2),
        p.repeat(a(M), 2, axis=1),
        p.repeat(a(V), a(np.array([1, 0, 2, 1, 1]))),
    ],
    "take": lambda p, a: [
        p.take(a(V), a(np.array([0, -1]))),
        p.take(a(M), a(np.array([2, 0])), axis=1),
        p.take_along_axis(a(M), a(np.array([[0], [-1]])), axis=1),
    ],
    "sums": lambda p, a: [
        p.sum(a(V)),
        p.sum(a(M), axis=0, keepdims=True),
        p.sum(a(V.astype(np.int8))),
        p.prod(a(M), axis=(0, 1)),
        p.mean(a(M), axis=1),
        p.cumulative_sum(a(V)),
        p.cumulative_sum(a(M), axis=1, include_initial=True),
        p.cumulative_prod(a(M), axis=0),
    ],
    "spread": lambda p, a: [
        p.var(a(M)),
        p.std(a(M), axis=1, correction=1.0),
        p.var(a(M), keepdims=True),
    ],
    "extremes": lambda p, a: [
        p.max(a(M)),
        p.min(a(M), axis=0),
        p.argmax(a(M)),
        p.argmin(a(M), axis=1, keepdims=True),
        p.max(a(np.array([1.0, np.nan]))),
    ],
    "truth": lambda p, a: [
        p.all(a(M > 0)),
        p.any(a(M > 0), axis=1),
        p.all(a(np.zeros((0, 2), bool)), axis=0),
        p.count_nonzero(a(M), axis=0),
        p.any(a(V), keepdims=True),
    ],
    "places": lambda p, a: [
        *p.nonzero(a(M > 1)),
        p.searchsorted(a(np.sort(V)), a(V)),
        p.searchsorted(a(np.sort(V)), a(V), side="right"),
        p.where(a(M > 0), a(M), a(-M)),
    ],
    "sort": lambda p, a: [p.sort(a(M)), p.argsort(a(V), stable=True), p.sort(a(M), axis=0)],
    "diff": lambda p, a: [
        p.diff(a(V)),
        p.diff(a(M), axis=0),
        p.diff(a(M), n=2),
        p.diff(a(V), prepend=a(V[:1])),
    ],
    "unique": lambda p, a: [
        *p.unique_all(a(V)),
        *p.unique_counts(a(V)),
        *p.unique_inverse(a(M)),
        p.unique_values(a(M)),
    ],
    "unique complex": lambda p, a: [*p.unique_all(a(np.array([1j, 2.0, 1j, 1 + 1j])))],
    "products": lambda p, a: [
        p.matmul(a(M), a(M.T)),
        p.tensordot(a(M), a(M), axes=((0, 1), (0, 1))),
        p.vecdot(a(M), a(M)),
        p.linalg.outer(a(V), a(V)),
        p.linalg.cross(a(M), a(M[::-1].copy())),
        p.linalg.trace(a(S), offset=1),
        p.linalg.diagonal(a(M)),
    ],
    "fft": lambda p, a: [
        p.fft.fft(a(M)),
        p.fft.ifft(a(M), n=4, axis=0, norm="ortho"),
        p.fft.rfft(a(M)),
        p.fft.irfft(a(M + 0j), n=4),
        p.fft.hfft(a(M + 0j), norm="forward"),
        p.fft.ihfft(a(M)),
        p.fft.fftn(a(M)),
        p.fft.ifftn(a(M), axes=(0,)),
        p.fft.rfftn(a(M), s=(2, 2), axes=(0, 1)),
        p.fft.irfftn(a(M + 0j)),
        p.fft.fftshift(a(M)),
        p.fft.ifftshift(a(M), axes=1),
    ],
    "frequencies": lambda p, a: [p.fft.fftfreq(5, d=0.5), p.fft.rfftfreq(4)],
    "matrices": lambda p, a: [
        p.linalg.det(a(S)),
        p.linalg.inv(a(S)),
        p.linalg.cholesky(a(S)),
        p.linalg.eigvalsh(a(S)),
        p.linalg.solve(a(S), a(S[0].copy())),
        p.linalg.solve(a(S), a(S)),
        p.linalg.svdvals(a(M)),
        p.linalg.matrix_norm(a(M)),
        p.linalg.matrix_power(a(S), 3),
        p.linalg.matrix_rank(a(S)),
        p.linalg.pinv(a(M)),
        p.linalg.vector_norm(a(M)),
        p.linalg.vector_norm(a(M), axis=1, ord=1, keepdims=True),
        *p.linalg.slogdet(a(S)),
    ],
}


@pytest.mark.parametrize("name", CALLS)
def test_against_numpy(name):
    got = CALLS[name](xp, lambda array: xp.asarray(array.copy()))
    want = CALLS[name](np, lambda array: array)
    defaults = (
        {"float64": "float32"}
        if name in ("arange", "linspace", "eye", "full", "like", "frequencies")
        else {}
    )
    for ours, theirs in zip(got, want, strict=True):
        theirs = np.asarray(theirs)
        assert ours.shape == theirs.shape
        if ours.dtype.name != theirs.dtype.name:  # the default type of new arrays is float32 here
            assert defaults.get(theirs.dtype.name) == ours.dtype.name
        np.testing.assert_allclose(to_numpy(ours), theirs, rtol=1e-6, atol=1e-9)


def test_decompositions():
    q, r = xp.linalg.qr(xp.asarray(M))
    np.testing.assert_allclose(to_numpy(q @ r), M, atol=1e-12)
    u, s, vh = xp.linalg.svd(xp.asarray(M), full_matrices=False)
    np.testing.assert_allclose(to_numpy(u * s @ vh), M, atol=1e-12)
    values, vectors = xp.linalg.eigh(xp.asarray(S))
    np.testing.assert_allclose(
        to_numpy(xp.asarray(S) @ vectors), to_numpy(vectors * values), atol=1e-12
    )


def test_transforms_take_what_the_standard_says():
    with pytest.raises(TypeError, match="real floating"):
        xp.fft.rfft(xp.asarray(M + 0j))
    with pytest.raises(ValueError, match="norm"):
        xp.fft.fft(xp.asarray(M), norm="none")
    assert xp.fft.fft(xp.asarray(M, dtype=xp.float32)).dtype is xp.complex64


def test_descending_orders_are_stable():
    at = xp.argsort(xp.asarray(V), descending=True)
    assert to_numpy(at).tolist() == [0, 4, 3, 1, 2]
    assert to_numpy(xp.sort(xp.asarray(V), descending=True)).tolist() == [3, 3, 2, 1, 1]


def test_what_the_standard_forbids():
    bad = [
        lambda: xp.nonzero(xp.asarray(1)),
        lambda: xp.squeeze(xp.asarray(M), axis=0),
        lambda: xp.take(xp.asarray(M), xp.asarray([0])),
        lambda: xp.cumulative_sum(xp.asarray(M)),
        lambda: xp.asarray(V).mT,
        lambda: xp.zeros((2, 2, 2)).T,
        lambda: xp.max(xp.zeros((0,))),
        lambda: xp.reshape(xp.asarray(M).T, (6,), copy=False),
        lambda: xp.asarray([1.0], copy=False),
    ]
    for call in bad:
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: xp.mean(xp.asarray(V)),
        lambda: xp.sum(xp.asarray(M > 0)),
        lambda: xp.astype(xp.asarray(1j), xp.float32),
    ):
        with pytest.raises(TypeError):
            call()
    for call in (
        lambda: xp.expand_dims(xp.asarray(V), axis=3),
        lambda: xp.sum(xp.asarray(V), axis=1),
    ):
        with pytest.raises(IndexError):
            call()


def test_asarray_and_memory():
    array = np.arange(3.0)
    assert np.from_dlpack(xp.asarray(array)).ctypes.data == array.ctypes.data
    assert np.from_dlpack(xp.asarray(array, copy=True)).ctypes.data != array.ctypes.data
    assert xp.asarray([xp.asarray(1.0), 2.0]).shape == (2,)
    assert xp.astype(xp.asarray(array), xp.float32).dtype is xp.float32
    x = xp.from_dlpack(array)
    x += 1.0
    assert array.tolist() == [1, 2, 3]
    assert str(x.to_device(x.device).device) == "cpu"


def test_arrays_differentiate():
    import rushlight as rl

    leaf = rl.tensor([1.0, 2.0], requires_grad=True)
    total = xp.sum(xp.asarray(leaf) ** 2)
    total._tensor.backward()
    assert leaf.grad.tolist() == [2, 4]


def test_numpy_pickle_and_copies_of_arrays():
    x = xp.asarray(M)
    assert np.asarray(x).dtype == M.dtype and np.array_equal(np.asarray(x), M)
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert type(other) is type(x) and np.array_equal(np.asarray(other), M)
        other[0, 0] = 99
    assert float(x[0, 0]) == M[0, 0]


def test_names_of_2025():
    assert (
        np.asarray(xp.isin(xp.asarray(V), xp.asarray(V[:1]))).tolist() == np.isin(V, V[:1]).tolist()
    )
    inverted = xp.isin(xp.asarray(V), xp.asarray(V[:1]), invert=True)
    assert np.asarray(inverted).tolist() == np.isin(V, V[:1], invert=True).tolist()
    assert xp.broadcast_shapes((2, 1), (3,)) == (2, 3)
    with pytest.raises(ValueError):
        xp.broadcast_shapes((2,), (3,))
    assert xp.expand_dims(xp.asarray(V), 0).shape == (1, len(V))
    assert xp.expand_dims(xp.asarray(V), (0, -1)).shape == (1, len(V), 1)
    with pytest.raises(ValueError, match="twice"):
        xp.expand_dims(xp.asarray(V), (0, 0))
    assert type(xp.meshgrid(xp.asarray(V))) is tuple
    assert type(xp.broadcast_arrays(xp.asarray(V))) is tuple
    values, vectors = xp.linalg.eig(xp.asarray(S))
    assert values.dtype is xp.complex128 and vectors.shape == S.shape
    assert np.allclose(sorted(np.asarray(values).real), sorted(np.linalg.eigvalsh(S)))
    assert np.allclose(np.asarray(xp.linalg.eigvals(xp.asarray(S))), np.asarray(values))
    a, b = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 4.0])
    found = xp.linalg.cross(xp.asarray(a), xp.asarray(b))
    assert np.array_equal(np.asarray(found), np.cross(a, b))
