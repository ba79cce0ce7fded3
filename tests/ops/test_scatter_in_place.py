"""Indexed writes to large tensors work in place, and give the pure op's result.

See Note [Scattering in place].
"""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.ops.index import scatter_onto
from rushlight.tape.record.op import Plan

SIZE = (40, 30, 20)  # of float32: over the least size


LAYOUTS = {
    "whole": lambda d: rl.randn(SIZE, device=d),
    "part": lambda d: rl.randn(42, 30, 20, device=d)[1:41],
    "columns": lambda d: rl.randn(40, 33, 20, device=d)[:, 2:32],
    "turned": lambda d: rl.randn(20, 30, 40, device=d).permute(2, 1, 0),
    "strided": lambda d: rl.randn(40, 30, 40, device=d)[:, :, ::2],
}


def at(d, *numbers):
    return rl.tensor(numbers, device=d)


WRITES = {
    "index_add": lambda d: (1, at(d, 3, 3, 29), rl.randn(40, 3, 20, device=d)),
    "index_copy": lambda d: (2, at(d, 3, 19, 0), rl.randn(40, 30, 3, device=d)),
    "index_fill": lambda d: (0, at(d, 3, -1), 2.5),
    "index_put": lambda d: ((at(d, 1, 1, 39), at(d, 2, 2, -1)), rl.randn(3, 20, device=d), True),
    "put": lambda d: (at(d, 5, -1, 23999), rl.randn(3, device=d)),
    "scatter": lambda d: (
        0,
        rl.arange(24, device=d).reshape(2, 3, 4) % 40,
        rl.randn(2, 3, 4, device=d),
    ),
    "scatter_add": lambda d: (
        1,
        rl.zeros(40, 2, 20, device=d, dtype=rl.int64),
        rl.randn(40, 2, 20, device=d),
    ),
    "scatter_reduce": lambda d: (
        2,
        rl.ones(5, 30, 2, device=d, dtype=rl.int64),
        rl.randn(5, 30, 2, device=d),
        "amax",
    ),
    "index_reduce": lambda d: (0, at(d, 1, 1), rl.randn(2, 30, 20, device=d), "prod"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WRITES)
def test_in_place_is_the_pure_op(name, layout, device):
    x = LAYOUTS[layout](device)
    arguments = WRITES[name](device)
    wanted = getattr(x, name)(*arguments)
    version = x._version
    assert getattr(x, f"{name}_")(*arguments) is x
    assert rl.equal(x, wanted) and x._version > version


KEYS = {
    "rows": lambda d: at(d, 1, 39, -2),
    "columns": lambda d: (slice(None), at(d, 1, 1, -2)),
    "last": lambda d: (Ellipsis, at(d, 0, 19)),
    "two": lambda d: (at(d, 1, 2), at(d, 3, 4)),
    "apart": lambda d: (at(d, 1, 2), slice(None), at(d, 3, 4)),
    "part": lambda d: (slice(5, 39), at(d, 3, 4)),
    "table": lambda d: rl.tensor([[1, 2], [3, 39]], device=d),
    "mask": lambda d: rl.arange(40, device=d) % 7 == 3,
    "number and index": lambda d: (3, at(d, 1, 2)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", KEYS)
def test_assignment_is_numpys(name, layout, device):
    x, key = LAYOUTS[layout](device), KEYS[name](device)
    copy = x.cpu().numpy().copy()
    keys = key if isinstance(key, tuple) else (key,)
    places = tuple(k.cpu().numpy() if isinstance(k, rl.Tensor) else k for k in keys)
    new = rl.randn(x[key].shape, device=device)
    x[key] = new
    if name != "columns":
        copy[places] = new.cpu().numpy()
    else:  # of equal positions the last
        copy[:, [1, -2]] = new.cpu().numpy()[:, 1:]
    assert np.array_equal(x.cpu().numpy(), copy)


def launched(monkeypatch, write) -> list[str]:
    """The names of the ops whose kernels a write runs with a result as large as the target."""
    seen: list[str] = []
    original = Plan.__init__

    def init(self, op, ins, outs, launch, *rest, **named):
        original(self, op, ins, outs, launch, *rest, **named)
        if launch is not None:
            plain = self.launch

            def run(*arguments):
                seen.append(op.name) if self.out.nbytes >= scatter_onto.LEAST and arguments[
                    0
                ] != arguments[1] else None
                plain(*arguments)

            self.launch = self.plain = run

    monkeypatch.setattr(Plan, "__init__", init)
    write()
    return seen


def test_nothing_of_the_size_of_the_target_is_made(monkeypatch):
    x, index = rl.zeros(51, 1009), at("cpu", 1, 7)
    values = rl.ones(2, 1009)

    def write():
        x[index] = values
        x[:, index] = 2.0
        x.index_add_(0, index, values)
        x.index_put_((index, index), rl.ones(2))

    assert launched(monkeypatch, write) == []
    assert x[1, :3].tolist() == [2, 1, 2] and x[7, 7] == 1 and x[2, 7] == 2 and x[2, 8] == 0


def test_an_index_out_of_range_changes_nothing():
    x = rl.zeros(200, 200)
    for write in (
        lambda: x.__setitem__(at("cpu", 1, 200), 1.0),
        lambda: x.index_add_(0, at("cpu", 1, 200), rl.ones(2, 200)),
        lambda: x.index_put_((at("cpu", 0, -201),), rl.ones(2, 200)),
        lambda: x.scatter_(1, rl.full((2, 2), 200), 1.0),
    ):
        with pytest.raises(IndexError):
            write()
    assert not x.any()


def test_operands_in_the_targets_own_memory():
    x = rl.arange(30000)
    x[x[5:8]] = x[:3]
    assert x[:10].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 8, 9]
    y = rl.arange(30000)
    y.index_add_(0, y[:3], y[1:4])
    assert y[:4].tolist() == [1, 3, 5, 3]


def test_what_is_recorded_is_recorded():
    x, v = rl.zeros(30000), rl.ones(2, requires_grad=True)
    x[at("cpu", 3, 4)] = v * 2
    x.sum().backward()
    assert v.grad.tolist() == [2, 2]
    leaf = rl.zeros(30000, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf[at("cpu", 1)] = 1.0
    with rl.no_grad():
        leaf[at("cpu", 1)] = 1.0
    assert leaf[1] == 1
    with pytest.raises(RuntimeError, match="share"):
        rl.zeros(1, 30000).expand(4, 30000)[at("cpu", 1)] = 1.0
