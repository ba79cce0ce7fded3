"""Names and forms of calls: keywords, NumPy's keywords, shapes, devices, old constructors."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest

import rushlight as rl

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def _x():
    return rl.tensor(X)


INPUT = """
    all amax amin any argmax argmin arccos arcsin arctan clamp flatten mean prod softmax square
    squeeze sum tril triu var cumsum logsumexp sort topk kthvalue flip roll rot90 diag diagonal
    movedim unflatten aminmax chunk gather index_select matmul narrow permute reshape select
    transpose unsqueeze masked_fill scatter_add tensor_split median mode cummax unique nonzero
    absolute multiply subtract true_divide clip negative
"""


@pytest.mark.parametrize("name", INPUT.split())
def test_the_first_argument_is_called_input(name):
    assert next(iter(inspect.signature(getattr(rl, name)).parameters)) == "input"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: rl.sum(input=x, dim=1, keepdim=True), X.sum(1, keepdims=True)),
        (lambda x: rl.sum(x, axis=1, keepdims=True), X.sum(1, keepdims=True)),
        (lambda x: x.sum(axis=(0, 1)), X.sum()),
        (lambda x: x.max(axis=1).values, X.max(1)),
        (lambda x: rl.amax(input=x, axis=0), X.max(0)),
        (lambda x: rl.cat((x, x), axis=1), np.concatenate((X, X), 1)),
        (lambda x: rl.stack((x, x), axis=1), np.stack((X, X), 1)),
        (lambda x: rl.concatenate((x, x), axis=0), np.concatenate((X, X))),
        (lambda x: x.cumsum(axis=0), X.cumsum(0)),
        (lambda x: x.median(axis=1).values, X[:, 1]),
        (lambda x: x.argsort(axis=1), np.argsort(X, 1)),
        (lambda x: rl.std(x, axis=0, correction=0), X.std(0)),
        (lambda x: x.unsqueeze(axis=0), X[None]),
        (lambda x: rl.permute(input=x, dims=(1, 0)), X.T),
        (lambda x: x.permute(dims=(1, 0)), X.T),
        (lambda x: rl.reshape(input=x, shape=(4, 3)), X.reshape(4, 3)),
        (lambda x: x.view(size=(4, 3)), X.reshape(4, 3)),
        (lambda x: x.view(dtype=rl.int32), X.view(np.int32)),
        (lambda x: x[:1].expand(size=(2, 4)), np.repeat(X[:1], 2, 0)),
        (
            lambda x: rl.gather(
                input=x, dim=0, index=rl.zeros(1, 4, dtype=rl.int64), sparse_grad=False
            ),
            X[:1],
        ),
        (lambda x: x.split(split_size=2, dim=1)[1], X[:, 2:]),
        (lambda x: rl.split(tensor=x, split_size_or_sections=2, dim=1)[1], X[:, 2:]),
        (lambda x: rl.hsplit(x, sections=2)[1], X[:, 2:]),
        (lambda x: rl.tensor_split(x, indices=(1,), dim=0)[0], X[:1]),
        (lambda x: rl.arctan2(input=x, other=x + 1), np.arctan2(X, X + 1)),
        (lambda x: rl.arctan(input=x, out=rl.empty(3, 4)), np.arctan(X)),
        (lambda x: x.add(2, alpha=3), X + 6),
        (lambda x: x.sub_(2, alpha=3), X - 6),
        (lambda x: rl.repeat_interleave(repeats=rl.tensor([1, 0, 2])), np.array([0, 2, 2])),
        (lambda x: rl.selu_(x.clone() * 0), X * 0),
    ],
)
def test_calls_by_name(call, expected):
    for _ in range(3):  # the first call is traced
        np.testing.assert_allclose(call(_x()).numpy(), expected, rtol=1e-6)


def test_an_argument_given_under_two_names_is_refused():
    with pytest.raises(TypeError, match="dim"):
        rl.sum(_x(), axis=0, dim=0)
    with pytest.raises(TypeError):
        rl.sum(_x(), nonsense=0)
    with pytest.raises(TypeError):
        rl.sum()


def test_alpha_must_suit_the_operands():
    for wrong in (
        lambda: rl.add(rl.tensor([1]), rl.tensor([1]), alpha=1.5),
        lambda: rl.tensor([1]).sub_(1, alpha=0.5),
        lambda: rl.add(rl.tensor([1.0]), 1, alpha=True),
    ):
        with pytest.raises(RuntimeError, match="alpha"):
            wrong()


def test_types_by_name():
    assert rl.promote_types(type1=rl.int8, type2=rl.float16) is rl.float16
    assert rl.result_type(tensor=rl.ones(2), other=1) is rl.float32
    assert rl.result_type(scalar1=1, scalar2=1.0) is rl.float32
    with pytest.raises(TypeError):
        rl.result_type(1)


def test_a_shape_is_a_size():
    size = rl.ones(2, 3).shape
    assert isinstance(size, rl.Size) and isinstance(size, tuple) and size == (2, 3)
    assert size.numel() == 6 and repr(size) == "rushlight.Size([2, 3])"
    for part in (
        size[:1],
        size + (1,),  # noqa: RUF005
        (1,) + size,  # noqa: RUF005
        size * 2,
        rl.ones(2, 3).size(),
        copy.copy(size),
    ):  # noqa: RUF005, RUF100
        assert type(part) is rl.Size
    assert type(pickle.loads(pickle.dumps(size))) is rl.Size
    assert rl.Size([rl.tensor(3)]) == (3,) and type(rl.Size([rl.tensor(3)])[0]) is int
    with pytest.raises(TypeError, match="float"):
        rl.Size([1.5])
    assert rl.zeros(size).reshape(size[::-1]).shape == (3, 2)


def test_devices_by_name():
    assert (
        repr(rl.device("cpu", 0)) == "device(type='cpu', index=0)"
        and str(rl.device("cpu:0")) == "cpu:0"
    )
    assert rl.device("cpu").index is None and rl.device(type="cpu", index=0).type == "cpu"
    assert rl.device(rl.device("cpu:0")).index == 0 and rl.ones(
        2, device=rl.device("cpu:0")
    ).device == rl.device("cpu")
    for wrong in ("foo", "cpu:1"):
        with pytest.raises(RuntimeError):
            rl.device(wrong)


def test_the_old_constructor():
    assert rl.Tensor([1, 2]).dtype is rl.float32 and rl.Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert (
        rl.Tensor(2, 3).shape == (2, 3)
        and rl.Tensor().shape == (0,)
        and rl.Tensor(rl.Size([2])).shape == (2,)
    )
    x = rl.ones(2)
    same = rl.Tensor(x)
    same[0] = 5
    assert x.tolist() == [5, 1]


@pytest.mark.filterwarnings("ignore:torch.range:UserWarning")
def test_range_includes_its_end():
    assert rl.range(1, 4).tolist() == [1, 2, 3, 4] and rl.range(1, 2, 0.5).tolist() == [1, 1.5, 2]
    with pytest.raises(RuntimeError, match="range"):
        rl.range(1, 0)
