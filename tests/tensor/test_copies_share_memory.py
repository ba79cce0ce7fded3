"""Copies, pickles and files: tensors that share memory share it afterwards, as in PyTorch."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import rushlight as rl
from rushlight import nn


def _saved(obj):
    file = io.BytesIO()
    rl.save(obj, file)
    file.seek(0)
    return rl.load(file), file


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: _saved(x)[0]])
def test_views_of_one_memory_stay_views_of_one(device, require_device, again):
    require_device(device)
    x = rl.arange(6.0, device=device)
    a, b, c = again([x, x[2:5], x.view(2, 3).t()])
    assert (
        b.tolist() == [2, 3, 4]
        and c.shape == (3, 2)
        and c.stride() == (1, 3)
        and b.device == x.device
    )
    a[2] = 99
    assert b[0].item() == 99 and c[2, 0].item() == 99 and x[2].item() == 2
    b.zero_()
    assert a.tolist() == [0, 1, 0, 0, 0, 5]


def test_a_view_alone_is_saved_without_the_rest():
    x = rl.zeros(100000)
    loaded, file = _saved(x[:3])
    assert loaded.tolist() == [0, 0, 0] and len(file.getvalue()) < 2000


def test_tied_weights_are_saved_once():
    m = nn.Sequential(nn.Linear(100, 100, bias=False), nn.Linear(100, 100, bias=False))
    m[1].weight = m[0].weight
    loaded, file = _saved(m.state_dict())
    assert len(file.getvalue()) < 1.5 * 4 * 100 * 100
    loaded["0.weight"][0, 0] = 7
    assert loaded["1.weight"][0, 0].item() == 7
    other = copy.deepcopy(m)
    assert other[0].weight is other[1].weight and other[0].weight is not m[0].weight


def test_deepcopy_keeps_layout_gradient_and_identity():
    x = rl.arange(6.0).reshape(2, 3).t().requires_grad_()
    x.sum().backward()
    a, b = copy.deepcopy([x, x])
    assert (
        a is b
        and a.stride() == (1, 3)
        and a.grad.tolist() == x.grad.tolist()
        and a.is_leaf
        and a.requires_grad
    )
    assert (
        copy.deepcopy(rl.zeros(0, 3)).shape == (0, 3) and copy.deepcopy(rl.tensor(2.0)).item() == 2
    )
    with pytest.raises(RuntimeError):
        copy.deepcopy(x * 2)


def test_a_shallow_copy_sees_the_same_memory():
    x = rl.zeros(2)
    y = copy.copy(x)
    y[0] = 5
    assert x.tolist() == [5, 0] and y is not x
    p = nn.Parameter(rl.ones(2))
    p.note = "kept"
    q = copy.copy(p)
    assert (
        type(q) is nn.Parameter
        and q.data_ptr() == p.data_ptr()
        and q.requires_grad
        and q.note == "kept"
    )
    assert copy.deepcopy(p).note == "kept"


def test_sizes_are_loaded_without_trust():
    assert _saved({"shape": rl.ones(2, 3).shape})[0]["shape"] == (2, 3)
    assert type(pickle.loads(pickle.dumps(rl.ones(2).shape))) is rl.Size
