"""Subscripts: NumPy's result for the same key, where PyTorch agrees with it; and PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

SHAPE = (3, 4, 5)
MASK = np.arange(60).reshape(SHAPE) % 3 == 0
KEYS = {
    "list": [2, 0],
    "negative list": [-1, 0, -1],
    "two lists": ([2, 0, 1], [3, 3, 0]),
    "lists apart": ([2, 0], slice(None), [1, 4]),
    "lists broadcast": (np.array([[0], [2]]), np.array([1, 3, 0])),
    "index in the middle": (slice(1, None), np.array([[0, 3], [2, 2]])),
    "index behind a slice and a new dimension": (None, slice(None, None, 2), [1, 1, 2]),
    "ellipsis": (..., [4, 0]),
    "two ellipses": (..., 1),
    "no index": (np.zeros(0, int),),
    "mask": MASK,
    "mask of two dimensions": MASK[..., 0],
    "mask in the middle": (slice(None), np.array([True, False, True, True])),
    "mask and list": (np.array([True, False, True]), [3, 0]),
    "mask of nothing": np.zeros(SHAPE, bool),
    "mask behind an ellipsis": (..., MASK[0]),
    "true": True,
    "false": (False, slice(None)),
}


def to_key(key, device):
    if isinstance(key, tuple):
        return tuple(to_key(part, device) for part in key)
    return rl.tensor(key, device=device) if isinstance(key, np.ndarray) else key


def numbers(shape=SHAPE):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("name", KEYS)
def test_reading(name, device):
    key = KEYS[name]
    leaf = rl.tensor(numbers(), device=device, requires_grad=True)
    out = leaf[to_key(key, device)]
    want = numbers()[key]
    assert out.shape == want.shape
    assert np.array_equal(out.detach().cpu().numpy(), want)
    assert out.requires_grad
    if not out.numel():
        return
    (out * out).sum().backward()
    counts = np.zeros(SHAPE, np.float32)
    np.add.at(counts, key, 2 * want)
    assert np.array_equal(leaf.grad.cpu().numpy(), counts)


@pytest.mark.parametrize("name", KEYS)
def test_writing(name, device):
    key = KEYS[name]
    want = numbers()
    shape = want[key].shape
    values = -np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 1
    for value in (values, values[..., :1], np.float32(-7)):
        x, want = rl.tensor(numbers(), device=device), numbers()
        x[to_key(key, device)] = rl.tensor(value, device=device) if np.ndim(value) else float(value)
        want[key] = value
        assert np.array_equal(x.cpu().numpy(), want)


def test_an_int_takes_its_dimension_before_indices_meet(device):
    """NumPy counts an int among the index arrays here and puts their dimension first.

    PyTorch does not.
    """
    x = rl.tensor(numbers(), device=device)
    for zero in (0, rl.tensor(0, device=device)):
        out = x[zero, :, rl.tensor([1, 3], device=device)]
        assert np.array_equal(out.cpu().numpy(), numbers()[0][:, [1, 3]])
        y = x.clone()
        y[zero, :, rl.tensor([1, 3], device=device)] = -1.0
        assert (y.cpu().numpy() == -1).sum() == 8


def test_the_last_of_equal_places_stays(device):
    at = np.array([1, 0, 1, 1, 2, 0])
    x = rl.zeros(4, device=device)
    x[rl.tensor(at, device=device)] = rl.arange(1.0, 7.0, device=device)
    assert x.tolist() == [6, 4, 5, 0]
    x = rl.zeros(4, device=device).scatter(
        0, rl.tensor(at, device=device), rl.arange(1.0, 7.0, device=device)
    )
    assert x.tolist() == [6, 4, 5, 0]


def test_a_write_has_a_gradient(device):
    x = rl.tensor(numbers((3, 2)), device=device, requires_grad=True)
    v = rl.tensor([[10.0, 20.0], [30.0, 40.0]], device=device, requires_grad=True)
    h = x * 2
    h[rl.tensor([2, 0], device=device)] = v
    (h * rl.tensor(numbers((3, 2)) + 1, device=device)).sum().backward()
    assert x.grad.tolist() == [[0, 0], [6, 8], [0, 0]]
    assert v.grad.tolist() == [[5, 6], [1, 2]]


def test_what_sizes_cost(device):
    """The count of a mask is one number read back; a number written under a mask reads nothing."""
    x = rl.tensor(numbers(), device=device)
    mask = x > 30
    before = rl.memory.transfers()
    x[mask] = 0.0
    rl.where(mask, x, 1.0)
    rl.nonzero_static(mask, size=4)
    x[rl.tensor([1, 2], device="cpu") if device == "cpu" else [1, 2]] = 5.0
    assert rl.memory.transfers() == before
    assert x[mask].shape == (29,)
    moved = rl.memory.transfers()["to_host"] - before["to_host"]
    assert moved == (0 if pool_of(device).device.limits.host_memory else 1)


def test_one_argument_where(device):
    found = rl.where(rl.tensor(MASK, device=device))
    assert all(
        np.array_equal(a.cpu().numpy(), b) for a, b in zip(found, np.where(MASK), strict=True)
    )


def test_windows_and_strided_views_write_their_base(device):
    x = rl.zeros(6, device=device)
    x.unfold(0, 2, 2)[1] = 3.0
    x.as_strided((2,), (5,))[1] = 4.0
    x.reshape(2, 3).diagonal()[0] = 5.0
    assert x.tolist() == [5, 0, 3, 3, 0, 4]


WRITES = {
    "scatter_": lambda x, i, v: x.scatter_(0, i, v),
    "scatter_add_": lambda x, i, v: x.scatter_add_(0, i, v),
    "scatter_reduce_": lambda x, i, v: x.scatter_reduce_(0, i, v, "amax"),
    "index_add_": lambda x, i, v: x.index_add_(0, i, v, alpha=2),
    "index_copy_": lambda x, i, v: x.index_copy_(0, i, v),
    "index_fill_": lambda x, i, v: x.index_fill_(0, i, 9.0),
    "index_put_": lambda x, i, v: x.index_put_([i], v, accumulate=True),
    "put_": lambda x, i, v: x.put_(i, v),
}


@pytest.mark.parametrize("name", WRITES)
def test_the_underscore_writes_the_same(name, device):
    def operands():
        i, v = rl.tensor([3, 0], device=device), rl.tensor([7.0, -8.0], device=device)
        return rl.tensor([1.0, 2.0, 3.0, 4.0], device=device), i, v

    x, i, v = operands()
    view = x[:]
    assert WRITES[name](x, i, v) is x
    pure = {"scatter_reduce_": ("amax",)}.get(name, ())
    plain, i, v = operands()
    function = getattr(plain, name[:-1])
    if name == "index_put_":
        want = function([i], v, accumulate=True)
    elif name == "put_":
        want = function(i, v)
    elif name == "index_fill_":
        want = function(0, i, 9.0)
    else:
        want = function(0, i, v, *pure, **({"alpha": 2} if name == "index_add_" else {}))
    assert x.tolist() == want.tolist() == view.tolist()


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (IndexError, lambda x: x[..., 0, 0, 0, 0]),
        (IndexError, lambda x: x[[3]].tolist()),
        (IndexError, lambda x: x[[0, 1], [0, 4]].tolist()),
        (IndexError, lambda x: x[[0, 1], [0, 1, 2]]),
        (IndexError, lambda x: x[rl.tensor([0.5])]),
        (IndexError, lambda x: x[rl.tensor([True, False])]),
        (TypeError, lambda x: x["a"]),
        (ValueError, lambda x: x[::-1]),
        (RuntimeError, lambda x: x.__setitem__([0, 1], rl.zeros(3, 4, 5))),
        (TypeError, lambda x: x.__setitem__(0, [1.0, 2.0])),
    ],
)
def test_errors_are_pytorchs(error, call):
    with pytest.raises(error):
        call(rl.tensor(numbers()))


@pytest.mark.parametrize("place", [(0, 4), (0, -5), (3, 0), (-4, 3)])
def test_pairs_out_of_range_are_errors_of_the_index(place, device):
    x = rl.arange(12.0, device=device).view(3, 4)
    i, j = (rl.tensor([n], device=device) for n in place)
    told = "index: an index is out" + ("side the range of its dimension" if device == "cpu" else "")
    with pytest.raises(IndexError, match=told):
        x[i, j].tolist()
