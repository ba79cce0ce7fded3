"""No layout reaches outside of its memory: it is refused where it is made. See Note [Reach]."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.core.dtypes import float32
from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Spec, check_inside, reach
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.record import call

F = rl.nn.functional


def spec(shape, strides=None):
    return Spec.of(pool_of("cpu"), float32, shape, strides)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((), (), (0, 4)),
        ((3,), (1,), (0, 12)),
        ((3, 4), (4, 1), (0, 48)),
        ((3,), (-2,), (-16, 4)),
        ((2, 3), (0, 5), (0, 44)),
        ((0, 3), (100, 100), (0, 0)),
        ((5, 0), (-7, 1), (0, 0)),
    ],
)
def test_reach_is_the_bytes_of_the_elements(shape, strides, expected):
    assert reach(shape, strides, 4) == expected
    rows = [sum(i * s for i, s in zip(at, strides, strict=True)) for at in np.ndindex(*shape)]
    seen = (4 * min(rows), 4 * max(rows) + 4) if rows else (0, 0)
    assert seen == expected


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((-1,), (1,)),
        ((0, 1 << 62, 1 << 62), None),
        ((2, -3), (3, 1)),
        ((1 << 62,), (1,)),
        ((2,), (1 << 61,)),
        ((2,), (-(1 << 61),)),
        ((1,) * 65, None),
    ],
)
def test_a_spec_that_no_memory_holds_is_refused(shape, strides):
    with pytest.raises(ShapeError):
        spec(shape, strides)


@pytest.mark.parametrize(
    ("shape", "strides", "skip"),
    [((7,), (1,), 0), ((2,), (6,), 0), ((1,), (1,), -4), ((3,), (-1,), 4)],
)
def test_a_view_beyond_its_input_is_refused(shape, strides, skip):
    with pytest.raises(ShapeError, match="reaches beyond"):
        check_inside("view", spec((6,)), spec(shape, strides), skip)
    check_inside("view", spec((6,)), spec((0,)), skip)  # no elements


def test_a_layout_over_a_storage_is_checked_against_it():
    x = rl.zeros(16)  # one block of 64 bytes
    assert call.lay(spec((4,), (5,)), x._memory)._spec.shape == (4,)
    for shape, strides, offset in [
        ((17,), (1,), 0),
        ((1,), (1,), 64),
        ((1,), (1,), -4),
        ((2,), (-1,), 0),
    ]:
        with pytest.raises(ShapeError, match="reach outside"):
            call.lay(spec(shape, strides), x._memory, offset)


def test_split_refuses_negative_sizes():
    for sizes in ([6, -2], [1 << 28, 4 - (1 << 28)], [-1, 5]):
        with pytest.raises((ValueError, RuntimeError)):
            rl.split(rl.arange(4.0), sizes)
        with pytest.raises((ValueError, RuntimeError)):
            rl.arange(4.0, requires_grad=True).split(sizes)


@pytest.mark.parametrize("option", ["dilation", "stride", "padding"])
def test_windows_refuse_negative_options(option):
    x = rl.ones(1, 1, 4, 4, requires_grad=True)
    with pytest.raises((ValueError, RuntimeError)):
        F.unfold(x, 2, **{option: -1}).sum().backward()
    with pytest.raises((ValueError, RuntimeError)):
        F.unfold(x, -2)
    with pytest.raises((ValueError, RuntimeError)):
        F.fold(rl.ones(1, 4, 9), (4, 4), 2, **{option: -1})
    with pytest.raises((ValueError, RuntimeError)):
        F.fold(rl.ones(1, 4, 9), (4, 4), -2)


def test_as_strided_asks_the_storage_at_every_call():
    """The check is per storage, not per shape."""
    large = rl.arange(100.0)
    part = large[:10]
    for _ in range(3):
        assert part.as_strided((50,), (1,))[49].item() == 49
    with pytest.raises(RuntimeError):
        rl.arange(10.0).as_strided((50,), (1,))
    w = rl.arange(100.0, requires_grad=True)
    w[:10].as_strided((50,), (1,)).sum().backward()
    assert w.grad.sum().item() == 10  # elements beyond the input are not its own


def test_the_gradient_of_a_product_of_an_even_row_makes_no_view_beyond_it():
    x = rl.tensor([[2.0, 3.0, 0.0, 5.0]], requires_grad=True)
    x.prod(1).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0, 30.0, 0.0]]


def test_set_resize_and_storages_stay_inside():
    x, y = rl.zeros(4), rl.arange(16.0)
    for offset, size, stride in [
        (0, (17,), None),
        (16, (1,), None),
        (-1, (1,), (1,)),
        (0, (2,), (16,)),
        (0, (2,), (-1,)),
    ]:
        with pytest.raises((ValueError, RuntimeError)):
            x.set_(y.untyped_storage(), offset, size, stride)
    with pytest.raises((ValueError, RuntimeError)):
        x.resize_(-1)
    with pytest.raises((ValueError, RuntimeError)):
        x.untyped_storage().resize_(-1)
    x.resize_(64)
    x.fill_(1.0)
    assert x.sum().item() == 64 and y.sum().item() == 120


def test_numpy_memory_is_seen_as_far_as_the_array_goes():
    array = np.arange(12.0).reshape(3, 4)
    seen = rl.from_numpy(array[:, 1:3])
    assert seen.tolist() == array[:, 1:3].tolist()
    with pytest.raises((ValueError, RuntimeError)):
        seen.as_strided((3, 4), (4, 1), 2)


def test_a_request_beyond_the_machine_is_refused_at_once():
    with pytest.raises(MemoryError):
        rl.empty(1 << 44)


def test_set_takes_tensors_and_storages_only():
    for source in (1.0, [1.0], "bytes", b"bytes"):
        with pytest.raises(TypeError, match="set_"):
            rl.ones(3).set_(source)
