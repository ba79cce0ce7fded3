"""Storages, memory shared between processes, Python functions of elements."""

import copy
import gc
import multiprocessing
import os
import pickle
import sys

import numpy as np
import pytest

import rushlight as rl
from rushlight import sharing
from tests.time_limit import WAIT


@pytest.fixture(params=["cpu", "webgpu"])
def x(request):
    try:
        return rl.arange(6.0, device=request.param).view(2, 3)
    except rl.DeviceUnavailable as error:
        pytest.skip(str(error))


# ---- what a storage is ----


def test_views_have_one_storage(x):
    row = x[1]
    assert x.untyped_storage() is row.untyped_storage()
    assert x.untyped_storage() is not x.clone().untyped_storage()
    assert x.storage()._cdata == row.storage()._cdata != x.clone().storage()._cdata
    assert row.storage().data_ptr() == x.data_ptr() and row.data_ptr() == x.data_ptr() + 12
    assert row.storage_offset() == 3
    assert x.untyped_storage().device == x.device == row.storage().device


def test_sizes_and_elements(x):
    numbers, raw = x[1].storage(), x.untyped_storage()
    assert (len(numbers), numbers.size(), numbers.nbytes(), numbers.element_size()) == (6, 6, 24, 4)
    assert (len(raw), raw.size(), raw.nbytes(), raw.element_size()) == (24, 24, 24, 1)
    assert (
        numbers.tolist() == list(numbers) == [0, 1, 2, 3, 4, 5] and numbers[4] == 4.0 == numbers[-2]
    )
    assert raw.tolist()[:8] == raw[:8].tolist() == [0, 0, 0, 0, 0, 0, 128, 63] and raw[-1] == 64
    assert numbers.untyped() is raw and numbers.dtype is rl.float32


def test_writes_are_seen_by_the_tensors(x):
    x.storage()[4] = 9
    x.untyped_storage()[0:4] = x.untyped_storage().elements()[4:8]  # the bytes of 1.0
    assert x.tolist() == [[1, 1, 2], [3, 9, 5]]
    x[1].storage().fill_(2)
    assert x.tolist() == [[2, 2, 2], [2, 2, 2]]
    x.storage().copy_(rl.arange(6).storage())
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    x.untyped_storage().copy_(rl.ones(6, device=x.device).untyped_storage())
    assert x.sum() == 6


def test_a_write_to_the_storage_of_a_saved_value_is_noticed():
    w = rl.ones(3, requires_grad=True)
    y = w.exp()
    z = y * y
    y.detach().storage().fill_(0)
    with pytest.raises(rl.InplaceError):
        z.sum().backward()


def test_bad_places_and_sizes():
    numbers = rl.ones(6).storage()
    for place in (6, -7, 100):
        with pytest.raises(IndexError, match="out of range for storage of size 6"):
            numbers[place]
    with pytest.raises(RuntimeError, match="got str"):
        numbers["a"]
    with pytest.raises(RuntimeError, match="slice"):
        numbers[0:2]
    with pytest.raises(RuntimeError, match="5 elements does not fit one of 6"):
        numbers.copy_(rl.ones(5).storage())


def test_storages_by_themselves():
    made = rl.FloatStorage([1, 2, 3])
    assert (
        made.tolist() == [1, 2, 3]
        and rl.FloatStorage(5).size() == 5
        and rl.UntypedStorage(7).nbytes() == 7
    )
    assert isinstance(made, rl.FloatStorage) and isinstance(made, rl.TypedStorage)
    assert not isinstance(made, rl.DoubleStorage) and rl.ones(2).storage_type() is rl.FloatStorage
    assert rl.TypedStorage([1, 2], dtype=rl.int64).dtype is rl.int64
    assert rl.TypedStorage(wrap_storage=made.untyped(), dtype=rl.int32).size() == 3
    assert made.double().tolist() == [1, 2, 3] and made.type() == "torch.FloatStorage"
    assert made.type("torch.IntStorage").dtype is rl.int32 and made.float() is made
    assert rl.UntypedStorage([1, 2]).int().tolist() == [1, 2]
    assert rl.is_storage(made) and rl.is_storage(made.untyped()) and not rl.is_storage(rl.ones(2))
    assert repr(made) == (
        " 1.0\n 2.0\n 3.0\n[rushlight.storage.TypedStorage(dtype=torch.float32, device=cpu) of "
        "size 3]"
    )
    assert (
        repr(rl.UntypedStorage([3]))
        == " 3\n[rushlight.storage.UntypedStorage(device=cpu) of size 1]"
    )


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s)), lambda s: s.clone()],
)
def test_copies_of_storages_have_memory_of_their_own(again):
    for made in (rl.FloatStorage([1, 2, 3]), rl.UntypedStorage([1, 2, 3])):
        other = again(made)
        other.fill_(0)
        assert (
            made.tolist() == [1, 2, 3] and other.tolist() == [0, 0, 0] and type(other) is type(made)
        )


def test_set_takes_storages():
    numbers = rl.FloatStorage([1, 2, 3])
    assert rl.tensor([]).set_(numbers).tolist() == [1, 2, 3]
    assert rl.tensor([]).set_(numbers.untyped()).tolist() == [1, 2, 3]
    assert rl.tensor([]).set_(source=numbers, storage_offset=1, size=(2,)).tolist() == [2, 3]
    assert rl.tensor([]).set_(numbers, 0, (2, 2), (1, 1)).tolist() == [[1, 2], [2, 3]]
    assert rl.tensor([]).set_(rl.arange(4.0), 1, (2,), (2,)).tolist() == [1, 3]
    assert rl.Tensor(numbers).tolist() == rl.ones(1).new(numbers).tolist() == [1, 2, 3]
    with pytest.raises(RuntimeError, match="float64"):
        rl.tensor([]).set_(rl.DoubleStorage([1]))
    with pytest.raises(RuntimeError, match="reach outside"):
        rl.tensor([]).set_(numbers, 0, (1000,))


def test_resizing_gives_memory_back_and_takes_it_again():
    x = rl.ones(1 << 16)
    x[0] = 7
    gc.collect()  # errors that earlier tests caught hold their operands in cycles
    before = rl.memory.allocated("cpu")
    x.untyped_storage().resize_(0)
    assert before - rl.memory.allocated("cpu") == x.nbytes and x.untyped_storage().nbytes() == 0
    with pytest.raises(RuntimeError, match="resized to 0 bytes"):
        x.sum()
    x.untyped_storage().resize_(4 << 16)
    x.fill_(2)
    assert rl.memory.allocated("cpu") == before
    assert x.sum() == 2 << 16
    y = rl.arange(3.0)
    y.untyped_storage().resize_(4000)
    assert y.tolist() == [0, 1, 2] and y.storage().size() == 1000
    with pytest.raises(RuntimeError, match="belongs to NumPy"):
        rl.from_numpy(np.ones(3)).untyped_storage().resize_(0)


# ---- other processes ----


def _increase(tensors):
    for t in tensors:
        t.detach().add_(1)


def _run(kind, *tensors):
    process = multiprocessing.get_context(kind).Process(target=_increase, args=(tensors,))
    process.start()
    process.join(WAIT)
    assert process.exitcode == 0


@pytest.mark.parametrize("kind", ["fork", "spawn"])
def test_another_process_writes_to_shared_memory(kind):
    x = rl.arange(4.0)
    row, plain, weight = x[1:3], rl.zeros(2), rl.nn.Parameter(rl.ones(2))
    assert not x.is_shared()
    assert x.share_memory_() is x and x.is_shared() and row.is_shared() and x.storage().is_shared()
    weight.share_memory_()
    _run(kind, row, plain, weight)
    assert x.tolist() == [0, 2, 3, 3] and plain.tolist() == [0, 0] and weight.tolist() == [2, 2]
    (x * weight.sum()).sum().backward()
    assert weight.grad.tolist() == [8, 8]


def test_a_queue_carries_the_memory():
    queue = multiprocessing.get_context("fork").Queue()
    x = rl.ones(3).share_memory_()
    queue.put(x)
    got = queue.get(timeout=WAIT)
    got.add_(1)
    assert x.tolist() == got.tolist() == [2, 2, 2] and got.is_shared() and got is not x


def test_shared_memory_is_counted_and_goes_back():
    x = rl.ones(1 << 16)
    reserved = rl.memory.reserved("cpu")
    x.share_memory_()
    assert rl.memory.reserved("cpu") == reserved + x.nbytes
    with pytest.raises(RuntimeError, match="another process"):
        x.resize_(1 << 20)
    del x
    assert rl.memory.reserved("cpu") == reserved
    array = np.ones(3)
    y = rl.from_numpy(array).share_memory_()
    y.add_(1)
    assert y.is_shared() and y.tolist() == [2, 2, 2] and array.tolist() == [1, 1, 1]


def test_a_module_is_shared_whole():
    net = rl.nn.BatchNorm1d(2).share_memory()
    assert all(t.is_shared() for t in net.state_dict().values())
    assert net(rl.randn(4, 2)).shape == (4, 2)


def test_a_gpu_s_memory_cannot_be_shared(x):
    if x.device.type == "cpu":
        assert x.share_memory_().is_shared()
    else:
        with pytest.raises(RuntimeError, match="cannot be seen by other processes"):
            x.share_memory_()


# ---- Python functions of elements ----


def test_functions_of_elements():
    assert rl.tensor(2.0).apply_(lambda v: v + 1).item() == 3
    t = rl.arange(6.0).view(2, 3)
    assert t.t().apply_(lambda v: v * 2) is not t and t.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert rl.ones(2, dtype=rl.int32).apply_(lambda v: v + 1.7).tolist() == [2, 2]
    assert rl.ones(2, dtype=rl.bool).apply_(lambda v: 0).tolist() == [False, False]
    assert rl.ones(2, dtype=rl.complex64).apply_(lambda v: v * 1j).tolist() == [1j, 1j]
    assert rl.ones(2, dtype=rl.bfloat16).apply_(lambda v: v + 1).dtype is rl.bfloat16
    assert rl.ones(2, 3).map_(rl.arange(3.0), lambda a, b: a + b).tolist() == [[1, 2, 3], [1, 2, 3]]
    assert rl.ones(2).map2_(rl.arange(2.0), rl.arange(2.0), lambda a, b, c: a + b * c).tolist() == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: rl.ones(2, requires_grad=True).apply_(abs), RuntimeError, "requires gradients"),
        (
            lambda: rl.ones(2).map_(rl.ones(2, requires_grad=True), max),
            RuntimeError,
            "requires gradients",
        ),
        (lambda: rl.ones(2).apply_(3), TypeError, "function"),
        (lambda: rl.ones(2).map_(rl.arange(2), max), TypeError, "int64"),
        (lambda: rl.ones(2).map_(1.0, max), TypeError, "must be a tensor"),
        (lambda: rl.ones(2).map_(rl.ones(3), max), RuntimeError, r"\[3\]"),
    ],
)
def test_functions_of_elements_refuse(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_functions_of_elements_run_on_the_host_only(x):
    if x.device.type == "cpu":
        assert x.apply_(lambda v: -v).sum() == -15
    else:
        with pytest.raises(TypeError, match="on the host"):
            x.apply_(lambda v: v)


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
def test_shared_memory_cannot_be_cut():
    """A mapping beyond the end of its file kills the process that reads it."""
    x = rl.ones(1000)
    x.share_memory_()
    descriptor = sharing.block_of(x._memory).descriptor
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    assert x.sum().item() == 1000


def test_a_slice_of_bytes_is_the_same_memory() -> None:
    x = rl.arange(4.0)
    whole = x.untyped_storage()
    part = whole[4:12]
    assert part.nbytes() == 8 and part.data_ptr() == whole.data_ptr() + 4
    seen = rl.asarray(part, dtype=rl.uint8).view(rl.float32)
    assert seen.tolist() == [1, 2]
    x[1] = 9
    assert seen[0] == 9
    del x, whole
    assert seen.tolist() == [9, 2]  # the memory lives as long as a part of it
    assert rl.ones(2).untyped_storage()[3:3].nbytes() == 0
    with pytest.raises(RuntimeError, match="step 1"):
        part[::2]


def test_a_write_to_a_slice_of_bytes_is_noticed() -> None:
    x = rl.arange(4.0, requires_grad=True)
    for write in (
        lambda part: part.fill_(0),
        lambda part: part[4:8].fill_(0),  # a part of a part
        lambda part: rl.asarray(part).zero_(),
        lambda part: part.copy_(rl.zeros(2).untyped_storage()),
    ):
        h = x * 1
        y = h * h
        write(h.untyped_storage()[0:8])
        assert h.tolist() == [0, 0, 2, 3]
        with pytest.raises(rl.InplaceError):
            y.sum().backward()
    h = x * 1
    part = rl.asarray(h.untyped_storage()[0:8]).view(rl.float32).requires_grad_()
    y = (part * part).sum()
    h.detach().add_(1)
    with pytest.raises(rl.InplaceError):
        y.backward()


def test_tensors_of_storages() -> None:
    x = rl.arange(3.0)
    shared, bytes_ = rl.asarray(x.storage()), rl.asarray(x.untyped_storage())
    assert shared.dtype is rl.float32 and bytes_.dtype is rl.uint8 and bytes_.shape == (12,)
    copied = rl.tensor(x.untyped_storage())
    x[0] = 5
    assert shared[0] == 5 and bytes_.view(rl.float32)[0] == 5 and copied.view(rl.float32)[0] == 0
    assert rl.tensor(x.storage(), dtype=rl.int64).tolist() == [5, 1, 2]
