"""Names by which PyTorch's scripts reach layers, threads and devices."""

from __future__ import annotations

import importlib

import pytest

import rushlight as rl
from rushlight import nn


def test_layers_by_pytorchs_files() -> None:
    from rushlight.nn.modules.batchnorm import _BatchNorm, _NormBase
    from rushlight.nn.modules.conv import Conv2d, _ConvNd
    from rushlight.nn.modules.linear import Linear
    from rushlight.nn.modules.loss import CrossEntropyLoss, _Loss, _WeightedLoss
    from rushlight.nn.modules.sparse import Embedding

    from rushlight.nn.modules.module import Module
    from rushlight.nn.parameter import Parameter

    assert (Conv2d, Linear, Module, Embedding) == (nn.Conv2d, nn.Linear, nn.Module, nn.Embedding)
    assert (
        Parameter is nn.Parameter
        and issubclass(CrossEntropyLoss, _WeightedLoss)
        and issubclass(nn.L1Loss, _Loss)
    )
    assert isinstance(nn.ConvTranspose1d(1, 1, 1), _ConvNd) and not isinstance(
        nn.Linear(1, 1), _ConvNd
    )
    assert isinstance(nn.SyncBatchNorm(2), _BatchNorm) and isinstance(
        nn.LazyBatchNorm2d(), _BatchNorm
    )
    assert isinstance(nn.InstanceNorm2d(2), _NormBase) and not isinstance(
        nn.InstanceNorm2d(2), _BatchNorm
    )


def test_every_layer_has_its_file() -> None:
    listed = set(nn.modules.__all__)
    every = [getattr(nn, name) for name in nn.__all__]
    layers = [k for k in every if isinstance(k, type) and issubclass(k, nn.Module)]
    assert {k.__name__ for k in layers} - listed == {"DataParallel"}
    assert all(getattr(nn.modules, k.__name__) is k for k in layers if k.__name__ in listed)
    for name in nn.modules.FILES:
        assert importlib.import_module(f"rushlight.nn.modules.{name}") is getattr(nn.modules, name)


def test_numbers_for_several_dimensions() -> None:
    from rushlight.nn.modules.utils import (
        _list_with_default,
        _ntuple,
        _pair,
        _reverse_repeat_tuple,
        _single,
        _triple,
        consume_prefix_in_state_dict_if_present,
    )

    assert (_single(3), _pair(3), _triple([1, 2, 3]), _ntuple(5)(0)) == (
        (3,),
        (3, 3),
        (1, 2, 3),
        (0,) * 5,
    )
    assert _reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1) and _list_with_default(
        [None, 4], (7, 8, 9)
    ) == [8, 4]
    state = {"module.a": 1, "b": 2}
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert state == {"a": 1, "b": 2}


def test_threads() -> None:
    before = rl.get_num_threads()
    x = rl.rand(1 << 18)
    want = (x.exp() * 2).sum().item()
    try:
        for count in (1, 3):
            rl.set_num_threads(count)
            assert rl.get_num_threads() == count
            assert (x.exp() * 2).sum().item() == want
    finally:
        rl.set_num_threads(before)
    for bad in (0, -1, 1.5):
        with pytest.raises(RuntimeError):
            rl.set_num_threads(bad)  # type: ignore[arg-type]
    rl.set_num_interop_threads(2)
    assert rl.get_num_interop_threads() == 2
    rl.set_num_interop_threads(1)


def test_cuda_where_there_may_be_none() -> None:
    there = rl.cuda.is_available()
    assert (
        (rl.cuda.device_count() > 0) == there
        and rl.cpu.is_available()
        and rl.cpu.device_count() == 1
    )
    assert rl.cuda.memory_allocated() >= 0 and rl.cuda.max_memory_allocated("cuda:0") >= 0
    rl.cuda.empty_cache()
    rl.cuda.reset_peak_memory_stats()
    rl.cpu.synchronize()
    if there:
        rl.cuda.synchronize()
        assert rl.cuda.get_device_name(0) and rl.cuda.current_device() == 0
    else:
        with pytest.raises(rl.DeviceUnavailable):
            rl.cuda.synchronize()
    with pytest.raises(ValueError, match="card"):
        rl.cuda.set_device("cpu")
    with pytest.raises(RuntimeError, match="number"):
        rl.cuda.set_device(1)
    rl.cuda.manual_seed_all(5)
    first = rl.rand(2).tolist()
    rl.manual_seed(5)
    assert rl.rand(2).tolist() == first


def test_older_names_of_mixed_precision() -> None:
    from rushlight.cuda.amp import GradScaler, autocast

    assert issubclass(GradScaler, rl.amp.GradScaler)
    with autocast():
        assert rl.is_autocast_enabled("cuda") and rl.get_autocast_dtype("cuda") is rl.float16
        assert (rl.ones(2, 2) @ rl.ones(2, 2)).dtype is rl.float32  # on the CPU
    with autocast(enabled=False, cache_enabled=False):
        assert not rl.is_autocast_enabled("cuda") and not rl.is_autocast_cache_enabled()
