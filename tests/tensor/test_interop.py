"""Elements in and out: NumPy, Python numbers, pickles, copies, other devices.

And every transfer counted.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import io
import pickle

import ml_dtypes
import numpy as np
import pytest

import rushlight as rl
from rushlight import DTypeError, RushlightError, interop, memory
from rushlight.devices.shared.pinned import Pinned

DTYPES = [rl.float16, rl.bfloat16, rl.float32, rl.float64, rl.int32, rl.int64, rl.bool]


# ---- shared memory ----


def test_numpy_sees_the_same_memory():
    t = rl.zeros(2, 3)
    array = t.numpy()
    array[0, 1] = 5
    t[1] = 7.0
    assert t.tolist() == [[0, 5, 0], [7, 7, 7]]
    np.testing.assert_array_equal(array, t.tolist())
    view = t[:, 1:].numpy()
    view[:] = 9
    assert t.tolist() == [[0, 9, 9], [7, 9, 9]]


def test_the_array_keeps_the_memory():
    array = (rl.ones(1000) * 3.0).numpy()
    for _ in range(20):
        rl.zeros(1000)
    assert (array == 3).all()


def test_the_array_keeps_the_memory_when_the_tensor_is_given_other():
    t = rl.ones(1000) * 3.0
    array = t.numpy()
    t.data = rl.zeros(1000)
    for _ in range(20):
        rl.zeros(1000)
    assert (array == 3).all()


def test_from_numpy_sees_the_same_memory():
    array = np.zeros((2, 3), np.float32)
    t = rl.from_numpy(array)
    array[0, 1] = 5
    t.add_(1.0)
    t[1, 2] = 8.0
    np.testing.assert_array_equal(array, [[1, 6, 1], [1, 1, 8]])
    assert t.tolist() == array.tolist()
    assert (t * 2).sum().item() == 36


def test_from_numpy_keeps_the_array():
    t = rl.from_numpy(np.full(1000, 3.0, np.float32))
    for _ in range(20):
        np.zeros(1000, np.float32)
    assert (t == 3.0).all().item()
    array = t.numpy()
    del t
    assert (array == 3).all()


VIEWS = {
    "transposed": lambda array: array.T,
    "every second": lambda array: array[::2],
    "columns": lambda array: array[:, 1:3],
    "a row": lambda array: array[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_from_numpy_of_views(name):
    view = VIEWS[name](np.arange(24, dtype=np.float64).reshape(4, 6))
    t = rl.from_numpy(view)
    assert t.stride() == tuple(s // 8 for s in view.strides)
    np.testing.assert_array_equal(t.numpy(), view)
    t[0] = -1.0
    np.testing.assert_array_equal(t.numpy(), view)
    w = rl.ones(view.shape, dtype=rl.float64, requires_grad=True)
    t.mul_(w)
    t[1:].sum().backward()
    want = np.zeros(view.shape)
    want[1:] = view[1:]
    np.testing.assert_array_equal(w.grad.numpy(), want)


def test_from_numpy_copies_what_cannot_be_shared():
    array = np.arange(6, dtype=np.float32)
    frozen = array.copy()
    frozen.flags.writeable = False
    odd = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:].view(np.float32)
    for given in (array[::-1], frozen, array.astype(">f4"), odd):
        t = rl.from_numpy(given)
        assert t.tolist() == given.tolist()
        t.zero_()
        assert given.sum() == 15
    assert rl.from_numpy(np.zeros((0, 3), np.int64)).shape == (0, 3)


def test_borrowed_memory_is_not_counted():
    start = memory.allocated()
    t = rl.from_numpy(np.zeros(100_000, np.float32))
    assert memory.allocated() == start
    t.requires_grad_()
    (t * 2).sum().backward()
    assert t.grad[0].item() == 2.0


def test_numpy_of_a_value_with_a_record():
    x = rl.ones(2, requires_grad=True)
    with pytest.raises(RushlightError, match="detach"):
        x.numpy()
    with pytest.raises(RushlightError, match="detach"):
        np.asarray(x * 2)
    assert x.detach().numpy().tolist() == x.numpy(force=True).tolist() == [1, 1]


def test_array_protocol():
    t = rl.arange(4, dtype=rl.float32)
    assert np.asarray(t).tolist() == [0, 1, 2, 3]
    shared, own = np.asarray(t), np.array(t)
    t[0] = 9.0
    assert (shared[0], own[0]) == (9, 0)
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    assert np.exp(rl.zeros(2)).tolist() == [1, 1]
    np.testing.assert_allclose(rl.ones(3), [1, 1, 1])


# ---- types ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_type_goes_to_numpy_and_back(dtype):
    t = rl.tensor([[0, 1], [1, 0]], dtype=dtype)
    array = t.numpy()
    assert str(array.dtype) == dtype.name
    back = rl.tensor(array)
    assert back.dtype is dtype
    assert back.tolist() == t.tolist() == [[0, 1], [1, 0]]
    assert rl.from_numpy(array).dtype is dtype


def test_bfloat16():
    t = rl.tensor([1.0, 3.14159, -1e30, float("inf")], dtype=rl.bfloat16)
    assert t.numpy().dtype == ml_dtypes.bfloat16
    assert t.tolist()[:2] == [1.0, 3.140625]
    assert t[1].item() == 3.140625
    assert type(t[1].item()) is float
    assert t.float().tolist()[3] == float("inf")


def test_what_numpy_has_and_tensors_have_not():
    for array in (np.zeros(2, np.longdouble), np.array(["a"]), np.zeros(2, "datetime64[s]")):
        with pytest.raises(DTypeError, match="counterpart"):
            rl.tensor(array)
        with pytest.raises(DTypeError, match="counterpart"):
            rl.from_numpy(array)
    with pytest.raises(TypeError, match="from_numpy"):
        rl.from_numpy([1.0])


def test_types_of_python_data():
    assert rl.tensor([1, 2]).dtype is rl.int64
    assert rl.tensor([1, 2.0]).dtype is rl.float32
    assert rl.tensor([True]).dtype is rl.bool
    assert rl.tensor(2).dtype is rl.int64
    assert rl.tensor(2.0).dtype is rl.float32
    assert rl.tensor(np.float64(2)).dtype is rl.float64
    assert rl.tensor([]).dtype is rl.float32
    assert rl.tensor([[], []]).shape == (2, 0)
    assert rl.tensor([rl.tensor(1.0), 2]).tolist() == [1, 2]
    assert rl.tensor([np.float32(1.5), 2]).tolist() == [1.5, 2]
    assert rl.tensor((1, (2))).tolist() == [1, 2]
    assert rl.tensor([2**40]).item() == 2**40


def test_tensor_copies():
    array = np.zeros(3, np.float32)
    t = rl.tensor(array)
    u = rl.tensor(t)
    array[0] = 1
    t[1] = 2.0
    assert t.tolist() == [0, 2, 0]
    assert u.tolist() == [0, 0, 0]


def test_ragged_lists_are_refused():
    for data in ([[1], [1, 2]], [1, [2]], ["a"], [None]):
        with pytest.raises((DTypeError, ValueError)):
            rl.tensor(data)


# ---- Python numbers ----


def test_numbers(device):
    t = rl.tensor(2.5, device=device)
    assert (t.item(), float(t), int(t)) == (2.5, 2.5, 2)
    assert bool(rl.tensor([1], device=device)) is True
    assert not rl.tensor(0.0, device=device)
    assert [10, 20, 30][rl.tensor(1, device=device)] == 20
    assert type(rl.tensor(3, device=device).item()) is int
    assert type(rl.tensor(True, device=device).item()) is bool
    with pytest.raises(RushlightError, match="ambiguous"):
        bool(rl.ones(2, device=device))
    with pytest.raises(ValueError, match="one number"):
        rl.ones(2, device=device).item()
    with pytest.raises(TypeError, match="integer"):
        [1, 2][rl.tensor(1.0, device=device)]


def test_numpy_numbers_count_as_python_numbers():
    t = rl.ones(2)
    for number in (np.float32(2), np.float64(2), np.int64(2), np.array(2)):
        for result in (t * number, number * t, t + number, t.clone().mul_(number)):
            assert result.dtype is rl.float32
            assert isinstance(result, rl.Tensor)
    assert (np.float32(6) / rl.full((2,), 3.0)).tolist() == [2, 2]


def test_lists_and_iteration(device):
    t = rl.arange(6, device=device).reshape(2, 3)
    assert t.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert t.t().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert [row.tolist() for row in t] == t.tolist()
    assert (len(t), 4 in t, 9 in t) == (2, True, False)
    assert rl.tensor(5, device=device).tolist() == 5
    _a, b = t
    assert b.tolist() == [3, 4, 5]
    for bad in (lambda: len(rl.tensor(1)), lambda: list(rl.tensor(1))):
        with pytest.raises(TypeError, match="0-dim"):
            bad()


# ---- copies ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pickle(device, dtype):
    if dtype not in rl.zeros(1, device=device)._memory.pool.device.limits.dtypes:
        pytest.skip(f"limit: no {dtype.name}")
    t = rl.tensor([[0, 1, 1]], dtype=dtype, device=device)
    again = pickle.loads(pickle.dumps(t.t()))
    assert (again.dtype, again.device, again.shape) == (t.dtype, t.device, (3, 1))
    assert again.tolist() == [[0], [1], [1]]


def test_pickle_of_a_leaf_and_of_a_result():
    x = rl.ones(2, requires_grad=True)
    stream = io.BytesIO()
    pickle.dump({"x": x, "y": x * 2}, stream)
    stream.seek(0)
    made = pickle.load(stream)
    assert made["x"].requires_grad
    assert made["x"].is_leaf
    assert not made["y"].requires_grad
    assert made["y"].tolist() == [2, 2]


def test_deepcopy(device):
    x = rl.ones(2, device=device, requires_grad=True)
    (x * 3).sum().backward()
    a, b = copy.deepcopy([x, x])
    assert a is b
    assert a.requires_grad
    assert a.grad.tolist() == [3, 3]
    with rl.no_grad():
        a.zero_()
        a.grad.zero_()
    assert x.tolist() == [1, 1]
    assert x.grad.tolist() == [3, 3]
    with pytest.raises(RushlightError, match="leaves"):
        copy.deepcopy(x * 2)


# ---- devices ----


def test_moves_between_devices(device):
    x = rl.arange(6, dtype=rl.float32, requires_grad=True)
    there = x.to(device)
    assert there.device.type == device
    assert (there is x) == (device == "cpu")
    back = (there * there).reshape(2, 3).t().to("cpu")
    assert back.tolist() == [[0, 9], [1, 16], [4, 25]]
    back.sum().backward()
    assert x.grad.tolist() == [0, 2, 4, 6, 8, 10]
    assert there.to(rl.float16).dtype is rl.float16 or device == "webgpu"
    assert there.to(device, rl.int64).dtype is rl.int64
    assert there.to(rl.ones(1, dtype=rl.int32)).device.type == "cpu"


def test_operands_on_two_devices_are_refused(device):
    if device == "cpu":
        pytest.skip("limit: one device is not two")
    with pytest.raises(rl.DeviceError, match=r"\.to\("):
        rl.ones(2) + rl.ones(2, device=device)


def counted(action) -> dict[str, int]:
    before = memory.transfers()
    action()
    return {name: n - before[name] for name, n in memory.transfers().items() if n != before[name]}


@pytest.mark.parametrize("name", ["webgpu", "cuda"])
def test_every_transfer_is_counted(name, require_device):
    device = require_device(name)
    down, up = ("to_host", "bytes_to_host"), ("to_device", "bytes_to_device")

    def once(direction, nbytes):
        return dict(zip(direction, (1, nbytes), strict=True))

    host = rl.ones(5)
    assert counted(lambda: rl.tensor([1.0, 2.0, 3.0], device=device)) == once(up, 12)
    assert counted(lambda: host.to(device)) == once(up, 20)
    x = rl.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    assert counted(lambda: x.sum().item()) == once(down, 4)
    assert counted(lambda: x.detach().numpy(force=True)) == once(down, 12)
    assert counted(lambda: x.tolist()) == once(down, 12)
    assert counted(lambda: x.detach().cpu()) == once(down, 12)
    assert counted(lambda: repr(x)) == once(down, 12)
    assert counted(lambda: bool(x.sum() > 0)) == once(down, 1)
    for silent in (
        lambda: rl.zeros(100, device=device),
        lambda: rl.tensor(3.0, device=device),
        lambda: rl.rand(100, device=device),
        lambda: (x * 2).exp().sum().backward(),
        lambda: x.to(device),
        lambda: x[1:].clone(),
        lambda: memory.allocated(device),
    ):
        assert counted(silent) == {}


def test_nothing_is_counted_on_the_host():
    def work():
        x = rl.tensor([1.0, 2.0])
        (x + 1).numpy()
        return x.sum().item()

    assert counted(work) == {}


# ---- pinned memory ----


class _Locked:
    """Stands in for page-locked memory of a driver."""

    def __init__(self) -> None:
        self.blocks: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def take(self, room: int) -> int:
        block = ctypes.create_string_buffer(room + 64)
        address = -(-ctypes.addressof(block) // 64) * 64
        self.blocks[address] = block
        return address

    def give(self, address: int, room: int, marks: object) -> None:
        del self.blocks[address]

    def pin(self, pool, room: int) -> Pinned:
        return Pinned(pool, room, self)


def test_a_pinned_copy_is_recorded_and_keeps_its_strides(monkeypatch) -> None:
    locked = _Locked()
    monkeypatch.setattr(interop, "_copier", lambda: locked)
    w = rl.arange(6.0).reshape(2, 3).requires_grad_()
    for x in (w, w * 2, w.t(), w[:, :1].expand(2, 4), w[:0]):
        pinned = x.pin_memory()
        assert pinned.is_pinned() and not pinned.is_leaf and pinned.tolist() == x.tolist()
        assert pinned.stride() == x.stride() or 0 in x.stride()
        (got,) = rl.autograd.grad(pinned.sum() * 3, w, retain_graph=True)
        (expected,) = rl.autograd.grad(x.sum() * 3, w)
        assert got.tolist() == expected.tolist()
        assert pinned.pin_memory() is pinned
    plain = rl.ones(2).pin_memory()
    assert plain.is_leaf and not plain.requires_grad
    with rl.no_grad():
        assert not w.pin_memory().requires_grad
    del x, pinned, plain
    gc.collect()
    assert not locked.blocks


def test_numbers_beyond_a_type_are_infinite(recwarn):
    assert rl.tensor([1e308, -1e308, 1e-300]).tolist() == [float("inf"), float("-inf"), 0.0]
    assert rl.tensor([1e6], dtype=rl.float16).item() == float("inf")
    assert not recwarn.list
