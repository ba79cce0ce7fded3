"""DLPack: shared memory both ways, every form of request, nothing left behind."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import rushlight as rl
from rushlight import dlpack
from rushlight.core.dtypes import ANY, bfloat16

NUMPY_TYPES = [d for d in ANY if d is not bfloat16]


@pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=lambda d: d.name)
def test_numpy_takes_and_gives_the_same_memory(dtype):
    x = rl.tensor([[0, 1, 2], [3, 4, 5]], dtype=dtype)
    seen = np.from_dlpack(x)
    assert seen.dtype.name == dtype.name
    assert seen.tolist() == x.tolist()
    assert seen.ctypes.data == x.data_ptr()
    back = rl.from_dlpack(seen.T)
    assert (back.dtype, back.shape, back.data_ptr()) == (dtype, (3, 2), x.data_ptr())
    assert back.stride() == (1, 3)


def test_a_write_is_seen_by_both():
    x = rl.zeros(3)
    np.from_dlpack(x)[1] = 5
    assert x.tolist() == [0, 5, 0]
    array = np.zeros(3, np.float32)
    rl.from_dlpack(array).add_(2)
    assert array.tolist() == [2, 2, 2]


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
def test_memory_lives_until_the_taker_lets_go(version):
    before = len(dlpack._GIVEN)
    capsule = rl.arange(4.0).__dlpack__(max_version=version)
    assert len(dlpack._GIVEN) == before + 1
    del capsule
    assert len(dlpack._GIVEN) == before
    capsule = rl.arange(4.0)[1:].__dlpack__(max_version=version)
    taken = rl.from_dlpack(capsule)
    del capsule
    gc.collect()
    assert len(dlpack._GIVEN) == before + 1
    assert taken.tolist() == [1, 2, 3]
    del taken
    assert len(dlpack._GIVEN) == before


def test_an_array_lives_while_a_tensor_is_over_it():
    class Tracked(np.ndarray):
        gone = False

        def __del__(self):
            Tracked.gone = True

    array = np.arange(3.0).view(Tracked)
    x = rl.from_dlpack(array)
    view = x[1:]
    del array, x
    gc.collect()
    assert not Tracked.gone
    assert view.tolist() == [1, 2]
    del view
    gc.collect()
    assert Tracked.gone


def test_what_cannot_be_shared_is_copied_or_refused():
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    for array in (fixed, np.arange(3.0)[::-1]):
        assert rl.from_dlpack(array).tolist() == array.tolist()
        with pytest.raises((BufferError, ValueError)):
            rl.from_dlpack(array, copy=False)


def test_copies_are_copies():
    x = rl.arange(3.0)
    assert np.from_dlpack(x, copy=True).ctypes.data != x.data_ptr()
    array = np.arange(3.0)
    assert rl.from_dlpack(array, copy=True).data_ptr() != array.ctypes.data
    assert rl.from_dlpack(array, copy=False).data_ptr() == array.ctypes.data


def test_shapes_without_elements_and_of_none():
    assert np.from_dlpack(rl.zeros(0, 3)).shape == (0, 3)
    assert rl.from_dlpack(np.zeros((2, 0))).shape == (2, 0)
    assert rl.from_dlpack(np.array(2.5)).item() == 2.5
    assert np.from_dlpack(rl.tensor(2.5)).shape == ()


def test_errors():
    with pytest.raises(BufferError, match="detach"):
        rl.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="stream"):
        rl.ones(2).__dlpack__(stream=3)
    with pytest.raises(BufferError, match="not on"):
        rl.ones(2).__dlpack__(dl_device=(2, 0))
    capsule = rl.ones(2).__dlpack__()
    rl.from_dlpack(capsule)
    with pytest.raises(BufferError, match="nobody has taken"):
        rl.from_dlpack(capsule)
    with pytest.raises(BufferError, match="capsule"):
        rl.from_dlpack("text")


def test_gradients_pass_a_shared_leaf():
    array = np.array([1.0, 2.0])
    x = rl.from_dlpack(array).requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_old_functions():
    x = rl.arange(6.0).reshape(2, 3)
    again = rl.utils.dlpack.from_dlpack(rl.utils.dlpack.to_dlpack(x.t()))
    assert again.data_ptr() == x.data_ptr()
    assert again.tolist() == x.t().tolist()


def test_devices(device):
    x = rl.ones(2, device=device)
    if device == "webgpu":
        with pytest.raises(BufferError, match="cpu"):
            x.__dlpack__()
        return
    assert x.__dlpack_device__() == ((2, 0) if device == "cuda" else (1, 0))
    again = rl.from_dlpack(x)
    assert again.tolist() == [1, 1]
    if device == "cuda":
        cupy = pytest.importorskip("cupy")
        assert cupy.from_dlpack(x).data.ptr == x.data_ptr()
        there = cupy.arange(3.0)
        assert rl.from_dlpack(there).tolist() == [0, 1, 2]
        assert np.from_dlpack(x.cpu()).tolist() == [1, 1]


def test_torch_shares_memory():
    torch = pytest.importorskip("torch")
    x = rl.arange(6.0).reshape(2, 3)
    there = torch.from_dlpack(x)
    there[0, 0] = 9
    assert x[0, 0].item() == 9
    there = torch.arange(4, dtype=torch.bfloat16)
    assert rl.from_dlpack(there).tolist() == [0, 1, 2, 3]
    assert rl.from_dlpack(there).data_ptr() == there.data_ptr()


def test_capsules_as_arrays():
    x = rl.ones(2)
    rl.asarray(rl.utils.dlpack.to_dlpack(x), copy=False)[0] = 5
    assert x.tolist() == [5, 1]
    with pytest.raises(TypeError):
        x.__dlpack__(stream=object())


def test_a_consumer_that_refuses_the_elements_says_so():
    """NumPy has no bfloat16; its exception survives the capsule, and the memory is given back."""
    x = rl.ones(8, dtype=rl.bfloat16)
    before = len(dlpack._GIVEN)
    for _ in range(3):
        with pytest.raises((RuntimeError, BufferError), match=r"(?i)dtype"):
            np.from_dlpack(x)
    assert len(dlpack._GIVEN) == before
