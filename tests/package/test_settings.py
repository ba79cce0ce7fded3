"""Functions that are no ops: modes, type promotion, data as tensors, printing."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn


def test_inference_mode():
    x = rl.ones(2, requires_grad=True)
    assert not rl.is_inference_mode_enabled()
    with rl.inference_mode():
        assert rl.is_inference_mode_enabled()
        assert not rl.is_grad_enabled()
        assert not (x * 2).requires_grad
        with rl.inference_mode(False):
            assert not rl.is_inference_mode_enabled()
            assert (x * 2).requires_grad

    @rl.inference_mode
    def bare():
        return (x * 2).requires_grad, rl.is_inference_mode_enabled()

    @rl.inference_mode()
    def called():
        return (x * 2).requires_grad, rl.is_inference_mode_enabled()

    assert bare() == called() == (False, True)
    assert (x * 2).requires_grad


def test_types_that_meet():
    assert rl.result_type(rl.ones(2, dtype=rl.int32), 1.5) is rl.float32
    assert rl.result_type(rl.ones(2, dtype=rl.int32), rl.tensor(1)) is rl.int32
    assert rl.result_type(1, True) is rl.int64
    casts = {
        (rl.float64, rl.float32): True,
        (rl.float32, rl.int64): False,
        (rl.int64, rl.bool): False,
    }
    casts |= {
        (rl.bool, rl.int32): True,
        (rl.complex64, rl.float64): False,
        (rl.int8, rl.uint8): True,
    }
    for (source, target), want in casts.items():
        assert rl.can_cast(source, target) is want


def test_asarray_shares_where_it_can():
    array = np.arange(3.0)
    assert rl.asarray(array).data_ptr() == array.ctypes.data
    assert rl.asarray(array, copy=True).data_ptr() != array.ctypes.data
    assert rl.asarray([1, 2]).tolist() == [1, 2]
    x = rl.ones(2)
    assert rl.asarray(x) is x
    assert rl.asarray(x, dtype=rl.int64).dtype is rl.int64
    assert rl.asarray(x, requires_grad=True).is_leaf
    with pytest.raises(ValueError, match="copy"):
        rl.asarray([1, 2], copy=False)
    with pytest.raises(ValueError, match="copy"):
        rl.asarray(x, dtype=rl.int64, copy=False)


def test_frombuffer():
    memory = bytearray(np.arange(4, dtype=np.int32).tobytes())
    x = rl.frombuffer(memory, dtype=rl.int32, offset=4)
    assert x.tolist() == [1, 2, 3]
    x[0] = 9
    assert np.frombuffer(memory, np.int32).tolist() == [0, 9, 2, 3]
    for bad in ({"offset": 16}, {"count": 5}, {"offset": 1}):
        with pytest.raises(ValueError, match="frombuffer"):
            rl.frombuffer(memory, dtype=rl.int32, **bad)


def test_autocast_is_seen():
    assert not rl.is_autocast_enabled()
    with rl.autocast("cpu", rl.float16):
        assert rl.is_autocast_cpu_enabled()
        assert rl.get_autocast_cpu_dtype() is rl.float16
    assert rl.get_autocast_gpu_dtype() is rl.float16
    assert rl.get_autocast_cpu_dtype() is rl.bfloat16


def test_printing():
    x = rl.tensor([1.23456, 2.0])
    try:
        rl.set_printoptions(precision=2)
        assert repr(x) == "tensor([1.23, 2.00])"
        rl.set_printoptions(sci_mode=True)
        assert repr(x) == "tensor([1.23e+00, 2.00e+00])"
        rl.set_printoptions(profile="short", threshold=3)
        assert repr(rl.arange(6)) == "tensor([0, 1,  ..., 4, 5])"
        with pytest.raises(ValueError, match="profile"):
            rl.set_printoptions(profile="wide")
    finally:
        rl.set_printoptions(profile="default")
    assert repr(x) == "tensor([1.2346, 2.0000])"


def test_unravel_index():
    assert [p.tolist() for p in rl.unravel_index(rl.tensor([0, 5, 11]), (3, 4))] == [
        [0, 1, 2],
        [0, 1, 3],
    ]
    with pytest.raises(TypeError, match="integers"):
        rl.unravel_index(rl.ones(2), (2,))
    with pytest.raises(ValueError, match="negative"):
        rl.unravel_index(rl.tensor([1]), (-2,))


def test_names():
    assert rl.typename(rl.ones(1)).endswith("FloatTensor") or "float32" in rl.typename(rl.ones(1))
    assert rl.version.cuda is None
    assert rl.is_nonzero(rl.tensor([2]))
    assert rl.is_same_size(rl.ones(2), rl.zeros(2))
    assert not rl.is_storage(rl.ones(2))
    assert rl.is_storage(rl.ones(2).untyped_storage())
    rl.use_deterministic_algorithms(True)
    assert rl.are_deterministic_algorithms_enabled()
    rl.set_float32_matmul_precision("high")
    assert rl.get_float32_matmul_precision() == "highest"


def test_small_functions():
    x = rl.ones(2, requires_grad=True)
    h = x * 2
    assert rl.detach(h).data_ptr() == h.data_ptr()
    assert rl.detach_copy(h).data_ptr() != h.data_ptr()
    assert not rl.detach_copy(h).requires_grad
    assert rl.get_device(x) == -1


def test_numpy_functions_of_tensors_give_tensors():
    x = rl.tensor([0.0, 1.0])
    assert isinstance(np.exp(x), rl.Tensor)
    np.testing.assert_allclose(np.exp(x).numpy(), np.exp([0.0, 1.0]), rtol=1e-6)


def test_lists_are_copied():
    targets = [rl.zeros(2), rl.zeros(1)]
    rl._foreach_copy_(targets, [rl.ones(2), rl.tensor([3.0])])
    assert [t.tolist() for t in targets] == [[1, 1], [3]]
    with pytest.raises(ValueError, match="length"):
        rl._foreach_copy_(targets, [rl.ones(2)])


# ---- GradScaler ----


def scaled_step(scaler, parameter, optimizer, factor):
    optimizer.zero_grad()
    scaler.scale((parameter * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_a_scaled_step_is_the_step():
    parameter = rl.ones(2, requires_grad=True)
    optimizer = rl.optim.SGD([parameter], lr=0.5)
    scaler = rl.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    scaled_step(scaler, parameter, optimizer, 3.0)
    assert parameter.tolist() == [-0.5, -0.5]
    assert scaler.get_scale() == 1024
    scaled_step(scaler, parameter, optimizer, 3.0)
    assert scaler.get_scale() == 2048
    before = parameter.tolist()
    scaled_step(scaler, parameter, optimizer, float("inf"))
    assert parameter.tolist() == before
    assert scaler.get_scale() == 1024
    again = rl.amp.GradScaler("cpu")
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == 1024


def test_unscaled_gradients_are_seen_once():
    parameter = rl.ones(2, requires_grad=True)
    optimizer = rl.optim.SGD([parameter], lr=0.5)
    scaler = rl.amp.GradScaler("cpu", init_scale=4.0)
    with pytest.raises(rl.RushlightError, match="looked at"):
        scaler.update()
    scaler.scale(parameter.sum()).backward()
    assert parameter.grad.tolist() == [4, 4]
    scaler.unscale_(optimizer)
    assert parameter.grad.tolist() == [1, 1]
    with pytest.raises(rl.RushlightError, match="already"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert parameter.tolist() == [0.5, 0.5]
    with pytest.raises(rl.RushlightError, match="already"):
        scaler.step(optimizer)
    off = rl.amp.GradScaler(enabled=False)
    assert off.scale(parameter) is parameter
    assert (off.get_scale(), off.state_dict(), off.is_enabled()) == (1.0, {}, False)


def test_a_device_is_the_default_inside_its_block() -> None:
    with rl.device("reference"):
        assert rl.zeros(2).device.type == "reference"
        with rl.device("cpu"):
            assert rl.zeros(2).device.type == "cpu"
        assert nn.Linear(1, 1).weight.device.type == "reference"
    assert rl.zeros(2).device.type != "reference"
