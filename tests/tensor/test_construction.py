"""What PyTorch's own tests of tensors found: making them, their operators, their types, their places in memory."""

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


# ---- operators ----


class Foreign:
    def __radd__(self, other):
        return "mine"

    def __rsub__(self, other):
        return "mine too"


def test_operators_leave_what_is_foreign():
    x = rl.ones(2)
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert (x == "a") is False and x in [None, x] and (x == [1, 1]) is False
    assert x + Foreign() == "mine" and x - Foreign() == "mine too"
    for call in (lambda: x + "a", lambda: x - None, lambda: x < "a", lambda: x ** "a"):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(RuntimeError, match="str"):
        "a" in x  # noqa: B015


def test_reversed_turns_the_first_dimension():
    assert rl.equal(reversed(rl.arange(6).reshape(2, 3)), rl.tensor([[3, 4, 5], [0, 1, 2]]))


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


def test_expanded_views_are_written_where_that_means_one_thing():
    x = rl.zeros(3, 1)
    x.expand(3, 4)[1, 2] = 5
    assert x.tolist() == [[0], [5], [0]]
    x.expand(3, 4).fill_(2)
    assert x.tolist() == [[2], [2], [2]]
    for write in (lambda: x.expand(3, 4).copy_(rl.ones(3, 4)), lambda: x.expand(3, 4).mul_(2)):
        with pytest.raises(RuntimeError, match="share"):
            write()


def test_new_tensors_in_a_memory_format():
    like, strides = rl.ones(2, 3, 4, 5), (60, 1, 15, 3)
    last = {"memory_format": rl.channels_last}
    made = [
        rl.empty(2, 3, 4, 5, **last),
        rl.zeros_like(like, **last),
        rl.full_like(like, 3, **last),
        like.double(**last),
    ]
    made += [rl.zeros(120).resize_(2, 3, 4, 5, **last), rl.rand_like(like, **last), rl.empty_like(like, **last)]
    assert [x.stride() for x in made] == [strides] * len(made)
    assert rl.full_like(like, 3, **last).sum() == 360
    with pytest.raises(RuntimeError, match="dimensions"):
        rl.empty(2, 3, **last)
    assert pickle.loads(pickle.dumps(rl.channels_last)) is rl.channels_last
    assert copy.deepcopy(rl.channels_last) is rl.channels_last


# ---- joining ----


def test_cat_counts_empty_tensors_for_the_type():
    assert rl.cat([rl.empty(0, dtype=rl.float64), rl.ones(2)]).dtype is rl.float64
    assert rl.cat([rl.empty(0), rl.empty(0)], dim=1).shape == (0,)


@pytest.mark.parametrize("name", ["cat", "stack", "hstack", "vstack", "dstack", "column_stack"])
def test_one_tensor_is_no_sequence(name):
    with pytest.raises(TypeError, match="sequence"):
        getattr(rl, name)(rl.ones(2, 2))


# ---- small refusals and numbers ----


@pytest.mark.parametrize(
    "error, call",
    [
        (TypeError, lambda: rl.ones((rl.tensor(3.0), 4))),
        (TypeError, lambda: rl.ones(2).flip()),
        (TypeError, lambda: rl.unravel_index(rl.tensor(0.5), (2, 2))),
        (RuntimeError, lambda: rl.meshgrid(rl.ones(2), rl.ones(2, dtype=rl.int32))),
        (RuntimeError, lambda: rl.randperm(4096, dtype=rl.float16)),
        (RuntimeError, lambda: rl.ones(2).uniform_(0, float("inf"))),
        (RuntimeError, lambda: rl.ones(2, dtype=rl.float16).uniform_(0, 1e5)),
        (RuntimeError, lambda: rl.zeros(2, dtype=rl.bool).index_fill(0, rl.tensor([0]), 1j)),
        (ValueError, lambda: rl.broadcast_shapes((2, -3), (2, 3))),
        (ValueError, lambda: rl.frombuffer([1, 2], dtype=rl.int8)),
        (TypeError, lambda: rl.cat([rl.ones(2)], out=rl.empty(2, dtype=rl.int32))),
        (RuntimeError, lambda: rl.split(rl.zeros(3), 0)),
        (TypeError, lambda: rl.ones(2).__delitem__(0)),
        (TypeError, lambda: rl.unravel_index(rl.tensor([0]), (2, 2.5))),
        (RuntimeError, lambda: rl.repeat_interleave(rl.tensor([1, 2, -1, 3, 4]))),
        (RuntimeError, lambda: rl.linspace(1j, 2, 3, dtype=rl.float32)),
        (RuntimeError, lambda: rl.broadcast_shapes(1.5)),
    ],
)
def test_refused(error, call):
    with pytest.raises(error):
        call()


def test_random_integers_stay_below_their_bound_after_rounding():
    assert rl.ones(20000, dtype=rl.bfloat16).random_(0, 300).max() == 296
    assert rl.randint(0, 4097, (20000,), dtype=rl.float16).max() <= 4096
    assert rl.ones(2000).random_(5, 7).unique().tolist() == [5, 6]


def test_slopes_by_complex_steps():
    (slope,) = rl.gradient(rl.arange(4.0), spacing=1 + 1j)
    assert slope.dtype is rl.complex64 and rl.allclose(slope, rl.full((4,), 0.5 - 0.5j))


def test_split_of_nothing():
    assert [p.shape for p in rl.split(rl.zeros(0, 1), 0)] == [(0, 1)]


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


def test_as_strided_of_elements_that_share_memory():
    x = rl.arange(5.0, dtype=rl.float64, requires_grad=True)
    rl.autograd.gradcheck(lambda v: v.expand(5, 5).as_strided((5, 5), (0, 1), 0), [x])
    rl.autograd.gradcheck(lambda v: v.as_strided((3, 2), (1, 1), 1).as_strided((2, 2), (2, 1), 1), [x])


def test_a_line_fills_an_out_of_any_shape():
    x = rl.zeros(2, 3)
    rl.arange(0, 4, out=x.narrow(1, 1, 2))
    assert x.tolist() == [[0, 0, 1], [0, 2, 3]]
    rl.linspace(0, 3, 4, out=x.narrow(1, 0, 2))
    assert x.tolist() == [[0, 1, 1], [2, 3, 3]]


def test_clamped_truth_values_take_the_type_of_the_bounds():
    truth, low, high = rl.tensor([True, False]), rl.zeros(2, dtype=rl.float64), rl.ones(2)
    assert rl.clamp(truth, low[0], high).dtype is rl.float32
    assert rl.clamp(truth, low, high[0]).dtype is rl.float64


def test_ravel_lies_row_by_row():
    assert rl.zeros(5, 2)[:, 0].ravel().is_contiguous() and rl.zeros(4, 5).t().ravel().stride() == (1,)


def test_dense_tensors_have_no_sparse_dimensions():
    assert (rl.ones(2, 3).sparse_dim(), rl.ones(2, 3).dense_dim()) == (0, 2)


# ---- checks and switches ----


def test_checks_raise_what_they_say():
    kinds = {"": RuntimeError, "_index": IndexError, "_value": ValueError, "_type": TypeError}
    for name, error in (kinds | {"_not_implemented": NotImplementedError}).items():
        check = getattr(rl, f"_check{name}")
        check(True)
        with pytest.raises(error, match="the reason"):
            check(False, lambda: "the reason")
    with pytest.raises(TypeError, match="bool"):
        rl._check(rl.tensor(True))
    with pytest.raises(ValueError):
        rl._check_with(ValueError, False)
    rl._check_tensor_all(rl.tensor([True, True]))
    with pytest.raises(RuntimeError):
        rl._check_tensor_all(rl.tensor([True, False]))
    with pytest.raises(RuntimeError):
        rl._check_is_size(-1)
    with pytest.raises(AssertionError, match="why"):
        rl._assert(rl.tensor(0), "why")
    with pytest.raises(RuntimeError):
        rl._assert_async(rl.tensor(0))


def test_deterministic_switches_are_remembered():
    try:
        rl.use_deterministic_algorithms(True, warn_only=True)
        assert rl.are_deterministic_algorithms_enabled() and rl.is_deterministic_algorithms_warn_only_enabled()
        rl.set_deterministic_debug_mode("error")
        assert rl.get_deterministic_debug_mode() == 2 and not rl.is_deterministic_algorithms_warn_only_enabled()
        with pytest.raises(TypeError):
            rl.use_deterministic_algorithms(1)
        with pytest.raises(RuntimeError):
            rl.set_deterministic_debug_mode(3)
    finally:
        rl.use_deterministic_algorithms(False)
    assert not rl.are_deterministic_algorithms_enabled()


def test_numbers_in_a_file(tmp_path):
    path = str(tmp_path / "numbers")
    np.arange(6, dtype=np.float32).tofile(path)
    own, shared = rl.from_file(path, size=6), rl.from_file(path, shared=True, size=6)
    own[0], shared[1] = 7, 9
    assert np.fromfile(path, np.float32).tolist() == [0, 9, 2, 3, 4, 5]
    assert rl.from_file(path, size=3, dtype=rl.float32).tolist() == [0, 9, 2]


def test_bernoulli_into_any_type():
    for dtype in (rl.bool, rl.int32, rl.float64):
        assert rl.bernoulli(rl.ones(3), out=rl.zeros(3, dtype=dtype)).tolist() == [1, 1, 1]


def test_tensors_of_storages():
    x = rl.arange(3, dtype=rl.int16)
    assert rl.tensor(x.storage()).tolist() == [0, 1, 2] and rl.tensor(x.storage()).dtype is rl.int16


def test_older_constructors():
    assert rl.FloatTensor(rl.Size([2, 3])).shape == (2, 3) and rl.LongTensor([1, 2], device="cpu").tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="cpu"):
        rl.FloatTensor(2, device="cuda")
    assert rl.ones(2).new((3, 4)).tolist() == [3, 4] and rl.ones(2).new(rl.Size((3, 4))).shape == (3, 4)


def test_capsules_as_arrays():
    x = rl.ones(2)
    rl.asarray(rl.utils.dlpack.to_dlpack(x), copy=False)[0] = 5
    assert x.tolist() == [5, 1]
    with pytest.raises(TypeError):
        x.__dlpack__(stream=object())
