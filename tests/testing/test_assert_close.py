"""rushlight.testing: assert_close and its messages, make_tensor. Messages are PyTorch 2.13's."""

import math

import numpy as np
import pytest

import rushlight as rl
from rushlight.testing import assert_allclose, assert_close, make_tensor

T = rl.tensor
NAN, INF = math.nan, math.inf


def message(*args, **named):
    with pytest.raises(AssertionError) as caught:
        assert_close(*args, **named)
    return str(caught.value)


@pytest.fixture(params=["cpu", "webgpu"])
def device(request):
    try:
        rl.ones(1, device=request.param)
    except rl.DeviceUnavailable as error:
        pytest.skip(str(error))
    return request.param


CLOSE = "Tensor-likes are not close!\n\nMismatched elements: "


@pytest.mark.parametrize(
    ("actual", "expected", "says"),
    [
        (
            [1.0, 2, 3],
            [1.0, 2, 4],
            "1 / 3 (33.3%)\nGreatest absolute difference: 1.0 at index (2,) (up to 1e-05 allowed)\n"
            "Greatest relative difference: 0.25 at index (2,) (up to 1.3e-06 allowed)",
        ),
        (
            [[1.0, 2, 3], [1, 2, 3]],
            [[1.0, 2, 4], [0, 2, 3]],
            "2 / 6 (33.3%)\nGreatest absolute difference: 1.0 at index (0, 2) (up to 1e-05 "
            "allowed)\n"
            "Greatest relative difference: inf at index (1, 0) (up to 1.3e-06 allowed)",
        ),
        (
            [1.0, INF],
            [1.0, 2.0],
            "1 / 2 (50.0%)\nGreatest absolute difference: inf at index (1,) (up to 1e-05 allowed)\n"
            "Greatest relative difference: inf at index (1,) (up to 1.3e-06 allowed)",
        ),
        (
            [NAN],
            [NAN],
            "1 / 1 (100.0%)\nGreatest absolute difference: nan at index (0,) (up to 1e-05 "
            "allowed)\n"
            "Greatest relative difference: nan at index (0,) (up to 1.3e-06 allowed)",
        ),
    ],
)
def test_what_is_said_of_float32(device, actual, expected, says):
    assert message(T(actual, device=device), T(expected, device=device)) == CLOSE + says


def test_what_is_said_of_other_types():
    exact = (
        "Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\nGreatest absolute "
        "difference: "
    )
    assert message(T([1, 2]), T([1, 3])) == (
        f"{exact}1 at index (1,)\nGreatest relative difference: 0.3333333432674408 at index (1,)"
    )
    assert message(T([1, 255], dtype=rl.uint8), T([1, 0], dtype=rl.uint8)) == (
        f"{exact}255 at index (1,)\nGreatest relative difference: inf at index (1,)"
    )
    assert message(T([True, True]), T([True, False])) == (
        f"{exact}1 at index (1,)\nGreatest relative difference: inf at index (1,)"
    )
    assert message(T([1.0, 2]), T([1.0, 2.1]), rtol=0, atol=0) == (
        f"{exact}0.09999990463256836 at index (1,)\nGreatest relative difference: "
        "0.04761900380253792 at index (1,)"
    )
    assert "0.4472135901451111 at index (0,) (up to 1.3e-06" in message(T([1 + 1j]), T([1 + 2j]))
    assert message(np.array([1.0, 2]), np.array([1.0, 3])).endswith(
        "0.3333333333333333 at index (1,) (up to 1e-07 allowed)"
    )


def test_what_is_said_of_numbers():
    assert message(1.0, 1.1) == (
        "Scalars are not close!\n\nExpected 1.1 but got 1.0.\nAbsolute difference: "
        "0.10000000000000009 (up to 1e-07 allowed)\n"
        "Relative difference: 0.09090909090909098 (up to 1e-07 allowed)"
    )
    assert message(1, 2) == (
        "Scalars are not equal!\n\nExpected 2 but got 1.\nAbsolute difference: 1\nRelative "
        "difference: 0.5"
    )
    assert "Expected 2.0 but got 1.0." in message(T(1.0), T(2.0)) and "inf (up to 1e-07" in message(
        1.0, 0.0
    )
    assert message(1, 1.0) == "The (d)types do not match: <class 'int'> != <class 'float'>."
    assert message(True, False) == "Booleans mismatch: True is not False"
    assert message(None, 1) == "None mismatch: None is not 1"
    assert "Expected nan but got nan" in message(NAN, NAN)
    assert_close(1, 1.0, check_dtype=False)
    assert_close(np.float64(1.0), 1.0)
    assert_close(NAN, NAN, equal_nan=True)
    assert_close(None, None)


def test_structure_is_compared_first_and_places_are_named():
    assert message([1], [1, 2]) == "The length of the sequences mismatch: 1 != 2"
    assert message({"a": 1}, {"b": 1}) == (
        "The keys of the mappings do not match:\nMissing keys in the actual mapping: ['b']\n"
        "Additional keys in the actual mapping: ['a']"
    )
    assert message([T(1.0), [1]], [T(2.0), [1, 2]]).endswith(
        "mismatch: 1 != 2\n\nThe failure occurred for item [1]"
    )
    assert message({"a": 1, "b": T([1.0])}, {"a": 1, "b": T([1.5])}).endswith(
        "The failure occurred for item ['b']"
    )
    assert message([[1, [T(1.0)]], 2], [[1, [T(3.0)]], 2]).endswith(
        "The failure occurred for item [0][1][0]"
    )
    assert_close((1, 2), [1, 2])
    assert_close([], [])


def test_attributes():
    assert message(T([1.0]), T([1])) == (
        "The values for attribute 'dtype' do not match: rushlight.float32 != rushlight.int64."
    )
    assert "attribute 'shape'" in message(T([1.0]), T([1.0, 2]))
    assert "attribute 'layout'" in message(T([1.0]).to_sparse(), T([1.0]))
    assert message(rl.ones(2, 3).t(), rl.ones(3, 2), check_stride=True) == (
        "The values for attribute 'stride()' do not match: (1, 3) != (2, 1)."
    )
    assert_close(rl.ones(2, 3).t(), rl.ones(3, 2))
    assert_close(T([1.0]), T([1]), check_dtype=False)
    assert_close(T([1.0]).to_sparse(), T([1.0]), check_layout=False)
    # The wider tolerance counts.
    assert_close(T([1.0], dtype=rl.float16), T([1.0009]), check_dtype=False)


def test_devices(device):
    if device == "cpu":
        return
    assert (
        message(rl.ones(2), rl.ones(2, device=device))
        == "The values for attribute 'device' do not match: cpu != webgpu."
    )
    assert_close(rl.ones(2), rl.ones(2, device=device), check_device=False)


def test_sparse_parts_are_named():
    one = T([[1.0, 0]]).to_sparse()
    assert message(one, T([[2.0, 0]]).to_sparse()).startswith("Sparse COO values are not close!")
    assert message(one, T([[0, 1.0]]).to_sparse()).startswith("Sparse COO indices are not equal!")
    assert "does not match: 1 != 2" in message(one, T([[1.0, 1]]).to_sparse())
    assert_close(one, one.clone())


@pytest.mark.parametrize(
    ("dtype", "near", "far"),
    [
        (rl.float16, 1.0009765625, 1.002),
        (rl.bfloat16, 1.015625, 1.024),
        (rl.float32, 1 + 1e-5, 1 + 2e-5),
        (rl.float64, 1 + 1.5e-7, 1 + 3e-7),
        (rl.complex64, 1 + 1e-5, 1 + 2e-5),
        (rl.int64, 1, 2),
    ],
)
def test_tolerances_are_those_of_the_type(dtype, near, far):
    one = rl.ones(2, dtype=dtype)
    assert_close(T([1, near], dtype=dtype), one)
    with pytest.raises(AssertionError):
        assert_close(T([1, far], dtype=dtype), one)


def test_options():
    assert message(T([1.0]), T([2.0]), msg="mine") == "mine"
    assert message(T([1.0]), T([2.0]), msg=lambda text: "Note: " + text).startswith(
        "Note: Tensor-likes"
    )
    assert_close(T([NAN, INF]), T([NAN, INF]), equal_nan=True)
    assert_close(T([1.0, 2]), T([1.0, 2.1]), rtol=0.1, atol=0.0)
    for given, missing in ({"rtol": 0.1}, "atol"), ({"atol": 0.1}, "rtol"):
        with pytest.raises(ValueError, match=f"no {missing}"):
            assert_close(1.0, 1.0, **given)
    x = rl.ones(2, requires_grad=True)
    assert_close(x * 2, T([2.0, 2]))
    assert_close(rl.nn.Parameter(T([1.0])), T([1.0]))


@pytest.mark.parametrize(
    "pair",
    [
        ("a", "a"),
        (T(1.0), 1.0),
        (np.ones(1), rl.ones(1)),
        ({}, []),
        (T([1.0]), [1.0]),
        (object(), object()),
    ],
)
def test_what_cannot_be_compared(pair):
    with pytest.raises(TypeError, match="cannot be compared"):
        assert_close(*pair)
    with pytest.raises(TypeError):
        assert_close(rl.nn.Parameter(T([1.0])), T([1.0]), allow_subclasses=False)


def test_the_older_comparison():
    with pytest.warns(FutureWarning):
        assert_allclose(T([1.0]), [1.00009])
    with pytest.warns(FutureWarning):
        assert_allclose(T([NAN]), T([NAN]))
    with pytest.warns(FutureWarning), pytest.raises(AssertionError, match=r"up to 0.0001 allowed"):
        assert_allclose(T([1.0]), T([1.00012]))


# ---- make_tensor ----


@pytest.mark.parametrize(
    "dtype",
    [rl.bool, rl.uint8, rl.int8, rl.int64, rl.float16, rl.float32, rl.float64, rl.complex64],
)
def test_elements_lie_between_the_usual_bounds(dtype):
    x = make_tensor(4, 250, dtype=dtype, device="cpu")
    assert x.shape == (4, 250) and x.dtype is dtype and not x.requires_grad
    wide = rl.view_as_real(x) if dtype is rl.complex64 else x.double()
    low, high = {"b": (0, 1), "u": (0, 9), "i": (-9, 9)}.get(dtype.kind, (-9, 9))
    assert low <= wide.min() < low + 1 and high - 1 < wide.max() <= high


def test_bounds(device):
    x = make_tensor((1000,), dtype=rl.float32, device=device, low=0.5, high=2)
    assert 0.5 <= x.min() < 0.6 and 1.9 < x.max() <= 2 and x.device.type == device
    assert make_tensor(
        (300,), dtype=rl.int32, device=device, low=0.5, high=2.5
    ).unique().tolist() == [1, 2]
    assert make_tensor(3, dtype=rl.float32, device=device, low=3, high=3).tolist() == [3, 3, 3]
    whole = (
        make_tensor(1000, dtype=rl.float32, device=device, low=-INF, high=INF).abs().max().item()
    )
    assert 3e38 < whole < INF


def test_layouts():
    named = {"dtype": rl.float32, "device": "cpu"}
    assert make_tensor((3, 4), noncontiguous=True, **named).stride() == (8, 2)
    assert make_tensor((1,), noncontiguous=True, **named).stride() == (1,)
    x = make_tensor((2, 3, 4, 5), memory_format=rl.channels_last, **named)
    assert x.stride() == (60, 1, 15, 3) and x.is_contiguous(memory_format=rl.channels_last)
    y = make_tensor((3, 4), noncontiguous=True, requires_grad=True, **named)
    assert y.is_leaf and y.requires_grad and not y.is_contiguous()
    assert make_tensor((), **named).shape == () and make_tensor([2, 0], **named).shape == (2, 0)


def test_no_zeros():
    assert make_tensor(
        300, dtype=rl.int64, device="cpu", low=-1, high=1, exclude_zero=True
    ).unique().tolist() == [
        -1,
        1,
    ]
    assert make_tensor(30, dtype=rl.bool, device="cpu", exclude_zero=True).all()


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"low": 4, "high": 3}, "4 >= 3"),
        ({"low": NAN}, "NaN"),
        ({"low": 3, "high": 3, "dtype": rl.int64}, "3 >= 3"),
        ({"low": -5, "high": -1, "dtype": rl.uint8}, r"\[0, 256\)"),
        ({"low": 0.5, "high": 0.7, "dtype": rl.int32}, "no integer"),
        ({"requires_grad": True, "dtype": rl.int64}, "requires_grad"),
        ({"noncontiguous": True, "memory_format": rl.channels_last}, "exclude each other"),
    ],
)
def test_bad_requests(named, says):
    with pytest.raises(ValueError, match=says):
        make_tensor((2, 3, 4, 5), **{"dtype": rl.float32, "device": "cpu", **named})
