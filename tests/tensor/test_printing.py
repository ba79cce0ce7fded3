"""Tensors as text. The expected strings are PyTorch 2.13's, with its name replaced."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight import memory

PRINTED = {
    "rl.tensor([1.0, 2.0, 3.0])": "tensor([1., 2., 3.])",
    "rl.tensor([1.5, -2.25])": "tensor([ 1.5000, -2.2500])",
    "rl.tensor([1, 2, -3])": "tensor([ 1,  2, -3])",
    "rl.tensor([True, False])": "tensor([ True, False])",
    "rl.tensor(3.0)": "tensor(3.)",
    "rl.tensor(3)": "tensor(3)",
    "rl.tensor(True)": "tensor(True)",
    "rl.tensor(1e-8)": "tensor(1.0000e-08)",
    "rl.tensor([1e5, 0.5])": "tensor([1.0000e+05, 5.0000e-01])",
    "rl.tensor([123456.0, 1.0])": "tensor([1.2346e+05, 1.0000e+00])",
    'rl.tensor([float("nan"), float("inf"), 1.0])': "tensor([nan, inf, 1.])",
    'rl.tensor([float("nan"), float("-inf"), 1.5])': "tensor([   nan,   -inf, 1.5000])",
    "rl.tensor([[1.0, 2.0], [3.0, 4.5]])": (
        "tensor([[1.0000, 2.0000],\n        [3.0000, 4.5000]])"
    ),
    "rl.zeros(0)": "tensor([])",
    "rl.zeros(2, 0)": "tensor([], size=(2, 0))",
    "rl.zeros(2, dtype=rl.int32)": "tensor([0, 0], dtype=rushlight.int32)",
    "rl.tensor([1.5, 2.0], dtype=rl.bfloat16)": (
        "tensor([1.5000, 2.0000], dtype=rushlight.bfloat16)"
    ),
    "rl.tensor([1.0], requires_grad=True)": "tensor([1.], requires_grad=True)",
    "rl.arange(1200)": "tensor([   0,    1,    2,  ..., 1197, 1198, 1199])",
    "rl.arange(30)": (
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])"
    ),
    "rl.zeros(2, 2, 2)": (
        "tensor([[[0., 0.],\n         [0., 0.]],\n\n        [[0., 0.],\n         [0., 0.]]])"
    ),
    "rl.ones(40, 40)": (
        "tensor([[1., 1., 1.,  ..., 1., 1., 1.],\n"
        "        [1., 1., 1.,  ..., 1., 1., 1.],\n"
        "        [1., 1., 1.,  ..., 1., 1., 1.],\n"
        "        ...,\n"
        "        [1., 1., 1.,  ..., 1., 1., 1.],\n"
        "        [1., 1., 1.,  ..., 1., 1., 1.],\n"
        "        [1., 1., 1.,  ..., 1., 1., 1.]])"
    ),
    "rl.tensor([1000.5, 0.25])": "tensor([1.0005e+03, 2.5000e-01])",
    "rl.tensor([1e10, 1e-10])": "tensor([1.0000e+10, 1.0000e-10])",
    "rl.tensor(2.0, dtype=rl.float64)": "tensor(2., dtype=rushlight.float64)",
    "rl.tensor(-0.0)": "tensor(-0.)",
}


@pytest.mark.parametrize("code", PRINTED)
def test_printed_like_pytorch(code):
    assert repr(eval(code)) == PRINTED[code]


def test_the_device_and_the_record_are_named(device):
    x = rl.ones(1, device=device, requires_grad=True)
    where = "" if device == "cpu" else f", device='{device}'"
    assert repr(x) == f"tensor([1.]{where}, requires_grad=True)"
    assert repr(x * 2) == f"tensor([2.]{where}, grad_fn=<MulBackward0>)"


def test_long_notes_go_to_a_new_line():
    text = repr(rl.full((8,), 0.123456, dtype=rl.float64, requires_grad=True))
    assert text.splitlines()[1] == "       dtype=rushlight.float64, requires_grad=True)"


def test_formats():
    assert f"{rl.tensor(2.5):.3f}" == "2.500"
    assert (
        f"{rl.tensor(7)}" == "7"
        and f"{rl.tensor(2.5, requires_grad=True) * 2}" == "5.0"
        and f"{rl.tensor(True)}" == "True"
    )
    with pytest.raises(TypeError):
        f"{rl.ones(2):.2f}"
    assert f"{rl.tensor([1.0])}" == "tensor([1.])"
    assert str(rl.tensor([1.0])) == "tensor([1.])"


def test_only_what_is_printed_is_copied(device):
    x = rl.ones(300, 400, device=device)
    x[2, -1] = 2.5
    str(x)
    before, moved = memory.allocated(device), memory.transfers()["bytes_to_host"]
    memory.reset_peak(device)
    assert str(x).splitlines()[2].endswith("1.0000, 1.0000, 2.5000],")
    assert memory.peak(device) - before < 64 << 10
    assert memory.transfers()["bytes_to_host"] - moved <= 6 * 6 * 4


def test_a_tensor_without_elements_in_memory() -> None:
    x = rl.empty(2, 3, device="null", dtype=rl.int32)
    assert repr(x) == "tensor(..., device='null', size=(2, 3), dtype=rushlight.int32)"
    assert repr(rl.empty(0, device="null")) == "tensor(..., device='null', size=(0,))"
