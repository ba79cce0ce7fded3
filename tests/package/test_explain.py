"""`rushlight.explain`: the tape, the kernels and the source of a tensor."""

from __future__ import annotations

import io
import sys

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.core.dtypes import float32
from rushlight.nn import functional as F
from tests.catalog.rows import ROWS
from tests.catalog.run import call, samples_of


def explained(tensor, **options) -> str:
    out = io.StringIO()
    rl.explain(tensor, file=out, **options)
    return out.getvalue()


def test_tape_lines_and_modules(device):
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).to(device)
    loss = model(rl.rand(2, 4, device=device)).sum()
    text = explained(loss)
    assert "tape: 3 records, 2 leaves" in text
    assert "%2 = linear(float32[2, 4], %0, %1) -> float32[2, 3]" in text
    assert f"at {__file__}:" in text
    assert "module 0 of Sequential" in text
    assert "| loss = model(rl.rand(2, 4, device=device)).sum()" in text
    assert "saves: result float32[2, 3]" in text


def test_kernels_and_their_source(device):
    x = rl.rand(8, device=device, requires_grad=True)
    y = rl.exp(x) * x
    text = explained(y, source=True)
    assert "forward: kernel 0" in text
    assert "out0[p] = exp(arg0)" in text
    assert "backward: mul_grad: kernel" in text
    if device != "reference":
        marks = {"cpu": "define", "webgpu": "@compute", "cuda": "__global__"}
        assert marks[device] in text
    assert "its source on" not in explained(y)
    assert "backward:" not in explained(y, backward=False)


def test_a_script_prints_and_a_prompt_shows_what_is_returned(capsys, monkeypatch):
    y = (rl.rand(8, requires_grad=True) * 2).sum()
    monkeypatch.delattr(sys, "ps1", raising=False)
    text = rl.explain(y)
    assert capsys.readouterr().out == f"{text}\n"
    assert len(text.splitlines()) < 60
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert repr(rl.explain(y)) == rl.explain(y) == text
    assert capsys.readouterr().out == ""


def test_explaining_changes_nothing():
    x = rl.rand(8, requires_grad=True)
    y = (x.exp() * x).sum()
    explained(y)
    assert x.grad is None
    y.backward()
    again = x.detach().clone().requires_grad_()
    (again.exp() * again).sum().backward()
    assert x.grad.tolist() == again.grad.tolist()


def test_trouble_is_part_of_the_explanation():
    x = rl.rand(8, requires_grad=True)
    y = x.exp()
    z = y.sin()
    y.add_(1)
    assert "it would raise InplaceError: sin: a value saved" in explained(z)
    w = (x * x).sum()
    w.backward()
    assert "a backward pass gave it back" in explained(w)


def test_tensors_without_a_record():
    x = rl.ones(3)
    x += 1
    text = explained(x)
    assert f"written to in place 1 times, last at {__file__}:" in text
    assert "no record" in text
    assert "a view of float32[3] from byte 4" in explained(x[1:])
    with rl.memory.budget("1GiB"):
        assert "made again by exp" in explained(rl.exp(rl.rand(1 << 16)))
    with pytest.raises(TypeError, match="takes a tensor"):
        rl.explain(3)


def test_a_long_tape_is_cut():
    x = rl.ones(2, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 0.5
    text = explained(y, most=10)
    assert "5000 records, 1 leaf" in text
    assert "the nearest 10 are shown" in text
    assert text.count(" = mul(") == 10


def test_a_users_function():
    class Double(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    text = explained(Double.apply(rl.ones(2, requires_grad=True)))
    assert "%1 = Double(%0) -> float32[2]" in text
    assert "no kernel of its own" in text


SOME = [
    row
    for i, row in enumerate(ROWS)
    if i % 12 == 0 and float32 in row.dtypes and samples_of(row, float32)
]


@pytest.mark.parametrize("row", SOME, ids=repr)
def test_any_op_can_be_explained(row, device):
    sample = next((s for s in samples_of(row, float32) if s.smooth), samples_of(row, float32)[0])
    for result in call(row, sample, float32, device, leaves=[]):
        assert "on " + device in explained(result, source=True)


def test_complex_and_libraries(device):
    if device == "reference":
        pytest.skip("limit: it interprets kernels, and has no source of them")
    x = rl.rand(4, 4, device=device, requires_grad=True)
    assert "library" in explained(rl.linalg.inv(x), source=True)
    assert "complex64" in explained(rl.complex(x, x) * 2, source=True)
    assert (
        "convolve" in explained(F.conv2d(x[None, None], x[None, None, :2, :2])) or device != "cpu"
    )
