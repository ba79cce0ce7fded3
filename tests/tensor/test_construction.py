"""Construction of tensors: default dtypes, dtypes read off elements, lists, devices, memory
formats, storages.
"""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import rushlight as rl

# ---- the default type ----


@pytest.fixture
def doubles():
    rl.set_default_dtype(rl.float64)
    yield
    rl.set_default_dtype(rl.float32)


def mixed() -> list[rl.Tensor]:
    whole = rl.arange(1, 4)
    return [
        whole + 5.5,
        whole / whole,
        whole.sqrt(),
        whole * 1j,
        rl.where(whole > 1, whole, 0.5),
        whole.clamp(1.5),
        rl.cat([whole, whole * 2.5]),
    ]


def test_default_type_changes_between_equal_calls():
    single = [x.dtype for x in mixed()]
    rl.set_default_dtype(rl.float64)
    try:
        double = [x.dtype for x in mixed()]
    finally:
        rl.set_default_dtype(rl.float32)
    assert single == [x.dtype for x in mixed()]
    assert [d for d in single if d not in (rl.float32, rl.complex64)] == []
    assert [d for d in double if d not in (rl.float64, rl.complex128)] == []


def test_default_type_counts_in_place(doubles):
    x = rl.ones(2)
    x += rl.arange(2) / 2
    assert x.dtype is rl.float64 and x.tolist() == [1.0, 1.5]


# ---- tensors of lists ----


@pytest.mark.parametrize(
    "data, dtype",
    [
        (lambda: [rl.tensor(1.0, dtype=rl.bfloat16)] * 2, rl.bfloat16),
        (lambda: [rl.tensor(1, dtype=rl.int8)], rl.int8),
        (lambda: [rl.tensor(1, dtype=rl.int8), 2], rl.int64),
        (lambda: [rl.tensor(1.0, dtype=rl.float64), 2.0], rl.float64),
        (lambda: [[7, 5], [9, np.array(5.0)]], rl.float64),
        (lambda: [np.float64(1)], rl.float64),
        (lambda: [np.int32(1), 2.5], rl.float32),
        (lambda: [True, np.bool_(False)], rl.bool),
        (lambda: bytearray(b"ab"), rl.int64),
        (lambda: range(3), rl.int64),
        (lambda: [1, 2.0, 1j], rl.complex64),
        (list, rl.float32),
    ],
)
def test_elements_say_the_type(data, dtype):
    assert rl.tensor(data()).dtype is dtype


def test_lists_that_are_no_tensors():
    endless: list = []
    endless.append(endless)
    for error in (ValueError, TypeError):
        with pytest.raises(error, match="dimensions"):
            rl.tensor(endless)
        with pytest.raises(error, match="lengths"):
            rl.tensor([[1], 2])
    with pytest.raises(TypeError, match="complex"):
        rl.tensor([1j], dtype=rl.float32)
    with pytest.raises(TypeError, match="dtype"):
        rl.tensor([1], dtype="float32")
    assert rl.tensor([float("nan"), 0, -(2**63) - 1], dtype=rl.bool).tolist() == [True, False, True]


def test_complex_elements_as_real_numbers():
    assert int(rl.tensor(2 + 0j)) == 2 and float(rl.tensor(2 + 0j)) == 2.0
    for kind in (int, float):
        with pytest.raises(RuntimeError, match="complex"):
            kind(rl.tensor(1.5j))


# ---- devices ----


def test_device_as_a_block():
    with rl.device("reference"):
        inside, nested = rl.ones(2), []
        with rl.device("cpu"):
            nested.append(rl.tensor([1]))
        after = rl.zeros(1)
    assert inside.device.type == after.device.type == "reference"
    assert nested[0].device.type == "cpu" and rl.ones(1).device.type == "cpu"

    @rl.device("reference")
    def make():
        return rl.zeros(2)

    assert make().device.type == "reference"


# ---- memory ----


def test_new_tensors_in_a_memory_format():
    like, strides = rl.ones(2, 3, 4, 5), (60, 1, 15, 3)
    last = {"memory_format": rl.channels_last}
    made = [
        rl.empty(2, 3, 4, 5, **last),
        rl.zeros_like(like, **last),
        rl.full_like(like, 3, **last),
        like.double(**last),
    ]
    made += [
        rl.zeros(120).resize_(2, 3, 4, 5, **last),
        rl.rand_like(like, **last),
        rl.empty_like(like, **last),
    ]
    assert [x.stride() for x in made] == [strides] * len(made)
    assert rl.full_like(like, 3, **last).sum() == 360
    with pytest.raises(RuntimeError, match="dimensions"):
        rl.empty(2, 3, **last)
    assert pickle.loads(pickle.dumps(rl.channels_last)) is rl.channels_last
    assert copy.deepcopy(rl.channels_last) is rl.channels_last


# ---- small refusals and numbers ----


def test_type_by_the_tensor_class():
    assert rl.ones(2).int().type(rl.Tensor).dtype is rl.float32


def test_asarray_keeps_the_record():
    x = rl.ones(2, requires_grad=True)
    assert rl.asarray(x, requires_grad=True) is x
    assert rl.asarray(x * 2, requires_grad=True).grad_fn is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rl.asarray(x).requires_grad and not rl.asarray(x, requires_grad=False).requires_grad
        assert not rl.asarray([1.0]).requires_grad and rl.asarray([1.0], requires_grad=True).is_leaf


# ---- checks and switches ----


def test_tensors_of_storages():
    x = rl.arange(3, dtype=rl.int16)
    assert rl.tensor(x.storage()).tolist() == [0, 1, 2] and rl.tensor(x.storage()).dtype is rl.int16


def test_floats_become_whole_numbers_where_the_type_is_whole():
    assert rl.full((2,), 2.5, dtype=rl.int64).tolist() == [2, 2]
    assert rl.full_like(rl.zeros(2, dtype=rl.int8), -2.5).tolist() == [-2, -2]
    assert rl.zeros(2, dtype=rl.int32).new_full((1,), 3.9).tolist() == [3]
    assert rl.tensor(2.5, dtype=rl.int64).item() == 2
    x = rl.zeros(2, dtype=rl.uint8)
    for _ in range(2):
        assert x.fill_(2.9).tolist() == [2, 2]
        for wrong in (300, float("nan"), float("inf"), -1.5):
            with pytest.raises(RuntimeError):
                x.fill_(wrong)


def test_lists_with_tensors_and_large_integers():
    assert rl.tensor([rl.tensor([1]), rl.tensor(2)]).tolist() == [1, 2]
    with pytest.raises(TypeError, match="stack"):
        rl.tensor([rl.ones(2), rl.ones(2)])
    with pytest.raises(ValueError, match="equal lengths"):
        rl.tensor([[1], [2, 3]])
    with pytest.raises(ValueError, match="int64"):
        rl.tensor([2**63])
    assert rl.tensor([2**64], dtype=rl.float32).item() == 2.0**64
    assert rl.tensor([2**63], dtype=rl.uint64).tolist() == [2**63]


@pytest.mark.parametrize("size", [1.5, "a", True, None, 2.0])
def test_sizes_are_integers(size):
    with pytest.raises(TypeError):
        rl.zeros(size)
    with pytest.raises(TypeError):
        rl.ones((2, size))


def test_pythons_types_are_types():
    for given, want in (
        (float, rl.float64),
        (int, rl.int64),
        (bool, rl.bool),
        (complex, rl.complex128),
    ):
        for made in (
            rl.zeros(2, dtype=given),
            rl.tensor([1], dtype=given),
            rl.full((1,), 1, dtype=given),
            rl.ones_like(rl.ones(2), dtype=given),
            rl.ones(2).to(given),
            rl.ones(2).to(dtype=given),
        ):
            assert made.dtype is want
    assert (
        rl.ones(2).sum(dtype=float).dtype is rl.float64
        and rl.arange(3, dtype=float).dtype is rl.float64
    )
