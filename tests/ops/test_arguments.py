"""Arguments of public functions: ints in any form reach ops as ints; others are refused by name.

Refusals come before a loop and before memory is taken.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import operator
import pickle
import typing

import numpy as np
import pytest

import rushlight as torch
from rushlight.core.errors import (
    DTypeError,
    KindError,
    OutOfMemoryError,
    RushlightError,
    ShapeError,
)
from rushlight.ops.arguments import IntRangeError, checked
from rushlight.ops.registry import REGISTRY

F = torch.nn.functional

LARGE = 1 << 62
FEW, MANY = -(1 << 63), (1 << 63) - 1


def line(n=4):
    return torch.arange(float(n))


def square():
    return torch.arange(16.0).reshape(4, 4) + 0.5


def image():
    return torch.arange(16.0).reshape(1, 1, 4, 4)


class Index:
    """Something that is an int only by `__index__`."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


FORMS = {
    "0-dim": torch.tensor,
    "int32": lambda n: torch.tensor(n, dtype=torch.int32),
    "one element": lambda n: torch.tensor([n]),
    "numpy": np.int64,
    "index": Index,
}

# Calls with an int argument: every form of 1 must give the result of 1.
TAKEN = {
    "sum": lambda n: square().sum(dim=n),
    "sum of several": lambda n: square().sum(dim=[n]),
    "sum out": lambda n: torch.sum(square(), n, out=torch.empty(0)),
    "mean": lambda n: square().mean(n),
    "amax": lambda n: square().amax(n),
    "argmax": lambda n: square().argmax(dim=n),
    "std": lambda n: square().std(dim=n),
    "cumsum": lambda n: square().cumsum(n),
    "cumsum in place": lambda n: square().cumsum_(n),
    "sort": lambda n: square().sort(n),
    "topk": lambda n: square().topk(n),
    "kthvalue": lambda n: square().kthvalue(n),
    "chunk": lambda n: square().chunk(n),
    "chunk along": lambda n: square().chunk(2, n),
    "split": lambda n: square().split(n),
    "split into": lambda n: square().split([n, 3]),
    "roll": lambda n: square().roll(n, 0),
    "movedim": lambda n: square().movedim(0, n),
    "transpose": lambda n: square().transpose(0, n),
    "transpose in place": lambda n: square().transpose_(0, n),
    "permute": lambda n: square().permute(n, 0),
    "permute a list": lambda n: square().permute([n, 0]),
    "reshape": lambda n: square().reshape(n, 16),
    "view": lambda n: square().view((n, 16)),
    "expand": lambda n: square().expand(n, 4, 4),
    "repeat": lambda n: square().repeat(n, 2),
    "tile": lambda n: torch.tile(square(), (n, 2)),
    "flip": lambda n: square().flip(n),
    "rot90": lambda n: square().rot90(n),
    "squeeze": lambda n: square().squeeze(n),
    "unsqueeze": lambda n: square().unsqueeze(n),
    "unflatten": lambda n: square().unflatten(n, (2, 2)),
    "narrow": lambda n: square().narrow(n, n, 2),
    "select": lambda n: square().select(0, n),
    "unbind": lambda n: square().unbind(n),
    "diag": lambda n: torch.diag(torch.ones(2), n),
    "diagonal": lambda n: square().diagonal(n),
    "diag_embed": lambda n: torch.diag_embed(square(), n),
    "tril": lambda n: square().tril(n),
    "unfold": lambda n: line(6).unfold(0, n, n),
    "repeat_interleave": lambda n: square().repeat_interleave(2, n),
    "as_strided": lambda n: square().as_strided((2, n), (4, n), n),
    "gather": lambda n: square().gather(n, torch.tensor([[0]])),
    "index_select": lambda n: square().index_select(n, torch.tensor([0])),
    "scatter": lambda n: square().scatter(n, torch.tensor([[0]]), 1.0),
    "index_fill in place": lambda n: square().index_fill_(n, torch.tensor([0]), 1.0),
    "cat": lambda n: torch.cat([square(), square()], n),
    "stack": lambda n: torch.stack([square(), square()], n),
    "tensor_split": lambda n: torch.tensor_split(square(), (n,)),
    "zeros": lambda n: torch.zeros(n, 2),
    "zeros of a list": lambda n: torch.zeros((n, 2)),
    "full": lambda n: torch.full((n,), 1.0),
    "new_full": lambda n: square().new_full((n,), 1.0),
    "resize_": lambda n: square().resize_(n, 2),
    "eye": lambda n: torch.eye(2, n),
    "randint": lambda n: torch.randint(n, (2,)),
    "randint between": lambda n: torch.randint(0, n, (n, 2)),
    "arange": lambda n: torch.arange(n),
    "linspace": lambda n: torch.linspace(0, 1, n),
    "tril_indices": lambda n: torch.tril_indices(2, 2, n),
    "hann_window": lambda n: torch.hann_window(n),
    "combinations": lambda n: torch.combinations(line(), n),
    "softmax": lambda n: F.softmax(square(), n),
    "max_pool2d": lambda n: F.max_pool2d(image(), 2, n),
    "avg_pool2d": lambda n: F.avg_pool2d(image(), (n, 2)),
    "conv2d": lambda n: F.conv2d(image(), torch.ones(1, 1, 2, 2), stride=n, padding=(n, 0)),
    "conv_transpose2d": lambda n: F.conv_transpose2d(image(), torch.ones(1, 1, 2, 2), stride=n),
    "pad": lambda n: F.pad(image(), (n, 0)),
    "im2col": lambda n: F.unfold(image(), (n, 2)),
    "interpolate": lambda n: F.interpolate(image(), size=(n, 2)),
    "pixel_unshuffle": lambda n: F.pixel_unshuffle(image(), n),
    "fft": lambda n: torch.fft.fft(square(), 2, n),
    "vector_norm": lambda n: torch.linalg.vector_norm(square(), dim=n),
    "stride": lambda n: square().stride(n),
    "size": lambda n: square().size(n),
    "frombuffer": lambda n: torch.frombuffer(bytearray(8), dtype=torch.int32, count=n),
}


def plain(result):
    if isinstance(result, torch.Tensor):
        return result.tolist()
    return [plain(part) for part in result] if isinstance(result, (tuple, list)) else result


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", TAKEN)
def test_an_int_in_any_form_is_an_int(call, form):
    if call == "narrow" and form == "one element":
        pytest.skip("narrow takes a start of no dimensions, as PyTorch does")
    function = TAKEN[call]
    for _ in range(3):  # a later call may run from the cache
        assert plain(function(FORMS[form](1))) == plain(function(1))


BAD = [
    1.0,
    "1",
    1j,
    torch.tensor(1.0),
    torch.tensor([1, 1]),
    torch.tensor(1.0, requires_grad=True),
    object(),
]
# Where another kind has a meaning too, or the size itself is refused first.
OTHERWISE = {"arange", "size", "frombuffer"}


@pytest.mark.parametrize("call", [name for name in TAKEN if name not in OTHERWISE])
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: type(bad).__name__)
def test_what_is_no_int_is_refused(call, bad):
    try:
        TAKEN[call](bad)
    except (TypeError, ShapeError, DTypeError):
        return
    # A cached call's key compares numbers, and 1.0 == 1: the result is right.
    assert bad == 1.0
    assert plain(TAKEN[call](bad)) == plain(TAKEN[call](1))


@pytest.mark.parametrize("call", [name for name in TAKEN if name not in OTHERWISE])
@pytest.mark.parametrize(
    "beyond", [1 << 63, -(1 << 63) - 1, 1 << 200], ids=["2**63", "-2**63 - 1", "2**200"]
)
def test_an_int_beyond_int64_is_refused(call, beyond):
    with pytest.raises((IntRangeError, RushlightError, IndexError)):
        TAKEN[call](beyond)


def test_refusals_name_op_argument_and_value():
    with pytest.raises(
        KindError, match=r"topk\(\): argument 'k' must be an int, got 2\.5 of type float"
    ):
        torch.topk(square(), 2.5)
    with pytest.raises(
        KindError, match=r"max_pool2d\(\): argument 'stride' must be .* got 'a' of type str"
    ):
        F.max_pool2d(image(), 2, stride="a")
    with pytest.raises(
        KindError, match=r"argument 'dims' must be a sequence of ints, but one of them is 1\.5"
    ):
        torch.rot90(square(), 1, [0, 1.5])
    with pytest.raises(IntRangeError, match=r"narrow\(\): argument 'length'"):
        square().narrow(0, 0, 1 << 63)
    assert issubclass(IntRangeError, (ValueError, OverflowError, RuntimeError))


KINDS = {
    "can_cast": lambda: torch.can_cast(1, 1),
    "promote_types": lambda: torch.promote_types(torch.int8, "a"),
    "result_type": lambda: torch.result_type(square(), "a"),
    "norm dtype": lambda: torch.norm(square(), dtype=1),
    "sum dtype": lambda: torch.sum(square(), dtype="a"),
    "zeros dtype": lambda: torch.zeros(2, dtype=3),
    "frexp": lambda: torch.frexp(1.0),
    "sum": lambda: torch.sum(1.0),
    "diag": lambda: torch.diag(None),
    "pad": lambda: F.pad([1.0], (1, 1)),
    "elu": lambda: F.elu(square(), "a"),
    "layer_norm": lambda: F.layer_norm(square(), (4,), eps="a"),
    "full": lambda: torch.full((2,), "a"),
    "full_like": lambda: torch.full_like(square(), None),
    "arange": lambda: torch.arange("a"),
    "linspace": lambda: torch.linspace("a", 1, 2),
    "stft": lambda: torch.stft(line(16), 4, window=[1.0] * 4, return_complex=True),
}


@pytest.mark.parametrize("call", KINDS)
def test_another_kind_of_argument_is_a_type_error(call):
    with pytest.raises(TypeError, match=r"argument|needed|must be|operands|dtype"):
        KINDS[call]()


def test_an_operand_too_many_is_said():
    x = square()
    for _ in range(2):  # without a plan, and with one
        with pytest.raises(TypeError, match=r"exp\(\) takes 1 operand \(input\), got 2"):
            torch.exp(x, 2)
        torch.exp(x)
    with pytest.raises(TypeError, match=r"exp_\(\) takes 1 positional argument but 2"):
        x.exp_(2)
    with pytest.raises(TypeError, match=r"mul\(\) takes 2 operands"):
        torch.mul(x, x, 2)


@pytest.mark.parametrize("name", ["add", "sub", "add_"])
@pytest.mark.parametrize("alpha", ["a", None, [1]], ids=repr)
def test_a_factor_that_is_no_number_is_named(name, alpha):
    with pytest.raises(TypeError, match=r"(add|sub)_?\(\): argument 'alpha' must be a number"):
        getattr(square(), name)(square(), alpha=alpha)


def test_a_bad_subscript_is_an_index_error():
    with pytest.raises(IndexError):
        square()[np.float32(1)]
    with pytest.raises(IntRangeError):
        square()[[1 << 70]]


# ---- tensors in place of ints, and cached calls ----


@pytest.mark.parametrize("name", ["sum", "transpose", "gather", "split", "max_pool2d"])
def test_a_tensor_in_an_ints_place_is_read_in_each_call(name):
    dim = torch.tensor(0)
    x, index = torch.arange(6.0).reshape(2, 3), torch.zeros(1, 1, dtype=torch.int64)
    calls = {
        "sum": lambda n: x.sum(n),
        "transpose": lambda n: x.transpose(1, n),
        "gather": lambda n: x.gather(n, index),
        "split": lambda n: x.split(2 - n, 0),
        "max_pool2d": lambda n: F.max_pool2d(image(), n + 1),
    }
    call = calls[name]
    for number in (0, 1, 0):
        dim.fill_(number)
        assert plain(call(dim)) == plain(call(number))


def test_a_tensor_in_an_ints_place_is_not_kept_alive():
    x = square()
    gc.collect()
    before = torch.memory.allocated()
    for _ in range(20):
        x.sum(torch.tensor(1))
        x.gather(torch.tensor(0), torch.tensor([[0]]))
    gc.collect()
    assert torch.memory.allocated() <= before


def test_every_annotation_can_be_read():
    for entry in REGISTRY.values():
        inner = inspect.unwrap(entry.function)
        if not hasattr(entry.function, "op"):
            assert set(typing.get_type_hints(inner)) >= set(inner.__annotations__)


def test_a_checked_function_keeps_its_signature():
    def function(
        input: torch.Tensor, k: int, *sizes: int, dim: int | None = None, **named: object
    ) -> object:
        return input, k, sizes, dim, named

    public = checked("function", function)
    for _ in range(2):
        assert public(1, Index(2), 3, Index(4), dim=Index(5), more=6) == (
            1,
            2,
            (3, 4),
            5,
            {"more": 6},
        )
        assert public(1, k=2) == (1, 2, (), None, {})
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'k'"):
            public(1)
    assert inspect.signature(public) == inspect.signature(function)


# ---- ranges ----

REFUSED = {
    # views
    "split to negative sizes": lambda: torch.split(line(), [6, -2]),
    "split far beyond": lambda: line().split([1 << 28, 4 - (1 << 28)])[0].fill_(1.0),
    "split_with_sizes": lambda: torch.split_with_sizes(line(), [-1, 5]),
    "chunk of nothing": lambda: torch.zeros(0).chunk(1 << 40),
    "tensor_split of nothing": lambda: torch.tensor_split(line(), 1 << 40),
    "narrow": lambda: line().narrow(0, 1, MANY),
    "unfold size": lambda: line().unfold(0, 5, 1),
    "unfold negative": lambda: line().unfold(0, -1, 1),
    "unfold step": lambda: line().unfold(0, 2, 0),
    "as_strided": lambda: line().as_strided((2,), (LARGE,)),
    "as_strided offset": lambda: line().as_strided((2,), (1,), FEW),
    "expand": lambda: torch.ones(1).expand(LARGE, LARGE),
    "diag_embed": lambda: torch.diag_embed(line(), LARGE),
    "diag": lambda: torch.diag(line(), FEW),
    # repetition
    "repeat": lambda: line().repeat(LARGE),
    "tile": lambda: torch.tile(line(), (1 << 31, 1 << 31)),
    "repeat_interleave": lambda: line().repeat_interleave(LARGE),
    "repeats that overflow": lambda: torch.repeat_interleave(torch.tensor([MANY, 2, 1])),
    "repeats of a tensor that overflow": lambda: torch.repeat_interleave(
        line(3), torch.tensor([MANY, 2, 1])
    ),
    "negative repeats": lambda: torch.repeat_interleave(torch.tensor([3, -1])),
    "too small an output_size": lambda: torch.repeat_interleave(
        torch.tensor([1, 2]), output_size=1
    ),
    "too large an output_size": lambda: torch.repeat_interleave(
        line(2), torch.tensor([1, 2]), output_size=5
    ),
    "output_size of one number": lambda: torch.repeat_interleave(line(2), 2, output_size=5),
    "negative output_size": lambda: torch.repeat_interleave(torch.tensor([1, 2]), output_size=-1),
    # new tensors
    "zeros": lambda: torch.zeros(LARGE, LARGE),
    "negative zeros": lambda: torch.zeros(-1),
    "empty_strided": lambda: torch.empty_strided((2,), (LARGE,)),
    "eye": lambda: torch.eye(1 << 40, 2),
    "arange": lambda: torch.arange(1 << 62),
    "arange beyond": lambda: torch.arange(1 << 63),
    "arange of fractions": lambda: torch.arange(0.0, 1e300, 1e-300),
    "arange by infinity": lambda: torch.arange(0.0, 1.0, float("nan")),
    "range": lambda: torch.range(0, 1e300),
    "linspace": lambda: torch.linspace(0, 1, 1 << 50),
    "logspace": lambda: torch.logspace(0, 1, -1),
    "vander": lambda: torch.vander(line(), LARGE),
    "tril_indices": lambda: torch.tril_indices(1 << 40, 1),
    "triu_indices": lambda: torch.triu_indices(1, 1 << 40),
    "combinations": lambda: torch.combinations(torch.arange(3), 1 << 20, True),
    "many combinations": lambda: torch.combinations(torch.arange(200), 100),
    **{
        name: (lambda name=name: getattr(torch, name)(1 << 50))
        for name in (
            "hann_window",
            "hamming_window",
            "blackman_window",
            "bartlett_window",
            "kaiser_window",
        )
    },
    "negative window": lambda: torch.hann_window(-1),
    # windows
    "unfold of images": lambda: F.unfold(image(), 2, dilation=-1),
    "unfold stride": lambda: F.unfold(image(), 2, stride=-1),
    "unfold padding": lambda: F.unfold(image(), 2, padding=-1),
    "unfold kernel": lambda: F.unfold(image(), -2),
    "unfold without kernel": lambda: F.unfold(image(), 0),
    "fold dilation": lambda: F.fold(torch.ones(1, 4, 9), 4, 2, dilation=-1),
    "fold stride": lambda: F.fold(torch.ones(1, 4, 9), 4, 2, stride=-1),
    "fold padding": lambda: F.fold(torch.ones(1, 4, 9), 4, 2, padding=-1),
    "fold kernel": lambda: F.fold(torch.ones(1, 4, 9), 4, (-2, -2)),
    "fold size": lambda: F.fold(torch.ones(1, 4, 9), -4, 2),
    "max_pool kernel": lambda: F.max_pool2d(image(), LARGE),
    "max_pool stride": lambda: F.max_pool2d(image(), 2, 0),
    "max_pool padding": lambda: F.max_pool2d(image(), 2, 2, -1),
    "max_pool dilation": lambda: F.max_pool2d(image(), 2, 2, 0, FEW),
    "avg_pool": lambda: F.avg_pool2d(image(), 2, -1),
    "max_unpool": lambda: F.max_unpool2d(image(), torch.arange(16).reshape(1, 1, 4, 4), 2, 2, 100),
    "max_unpool stride": lambda: F.max_unpool2d(
        image(), torch.arange(16).reshape(1, 1, 4, 4), 2, -2
    ),
    "fractional": lambda: F.fractional_max_pool2d(image(), 2, LARGE),
    "conv stride": lambda: F.conv2d(image(), torch.ones(1, 1, 2, 2), stride=0),
    "conv padding": lambda: F.conv2d(image(), torch.ones(1, 1, 2, 2), padding=LARGE),
    "conv negative padding": lambda: F.conv2d(image(), torch.ones(1, 1, 2, 2), padding=-1),
    "conv dilation": lambda: F.conv2d(image(), torch.ones(1, 1, 2, 2), dilation=MANY),
    "conv groups": lambda: F.conv2d(image(), torch.ones(1, 1, 2, 2), groups=0),
    "conv_transpose stride": lambda: F.conv_transpose2d(
        image(), torch.ones(1, 1, 2, 2), stride=1 << 40
    ),
    "conv_transpose padding": lambda: F.conv_transpose2d(
        image(), torch.ones(1, 1, 2, 2), padding=-1
    ),
    "conv_transpose more": lambda: F.conv_transpose2d(
        image(), torch.ones(1, 1, 2, 2), output_padding=-1
    ),
    "pad": lambda: F.pad(image(), (LARGE, 0)),
    "pad away": lambda: F.pad(image(), (FEW, 0)),
    "reflected pad": lambda: F.pad(image()[0], (LARGE, 0), mode="reflect"),
    "repeated pad": lambda: F.pad(image()[0], (LARGE, 0), mode="replicate"),
    "pixel_shuffle": lambda: F.pixel_shuffle(torch.ones(1, 4, 2, 2), -2),
    "channel_shuffle": lambda: F.channel_shuffle(torch.ones(1, 4, 2, 2), 0),
    "interpolate": lambda: F.interpolate(image(), size=1 << 40),
    "interpolate to nothing": lambda: F.interpolate(image(), size=-1),
    # transforms
    "fft": lambda: torch.fft.fft(line(), 1 << 50),
    "fft of nothing": lambda: torch.fft.fft(line(), -2),
    "fftfreq": lambda: torch.fft.fftfreq(1 << 50),
    "stft": lambda: torch.stft(line(16), 4, -1, return_complex=True, window=torch.ones(4)),
    # positions
    "select": lambda: line().select(0, FEW),
    "gather": lambda: line().gather(0, torch.tensor([FEW])),
    "take": lambda: torch.take(line(), torch.tensor([MANY])),
    "scatter": lambda: line().scatter(0, torch.tensor([MANY]), 1.0),
    "index_add": lambda: line().index_add(0, torch.tensor([FEW]), torch.ones(1)),
    "put": lambda: torch.put(line(), torch.tensor([MANY]), torch.ones(1)),
    "subscript": lambda: line()[torch.tensor([FEW])],
    "embedding": lambda: F.embedding(torch.tensor([MANY]), square()),
    "embedding_bag": lambda: F.embedding_bag(
        torch.tensor([0, 1]), square(), torch.tensor([0, MANY])
    ),
    "one_hot": lambda: F.one_hot(torch.tensor([MANY])),
    "segment_reduce": lambda: torch.segment_reduce(line(), "sum", lengths=torch.tensor([-1, 5])),
    "nonzero_static": lambda: torch.nonzero_static(line(), size=-1),
    "unravel_index": lambda: torch.unravel_index(torch.tensor([1]), (-1, 2)),
    "frombuffer": lambda: torch.frombuffer(bytearray(8), dtype=torch.int32, count=MANY),
}


@pytest.mark.parametrize("call", REFUSED)
def test_sizes_counts_and_places_are_checked(call):
    with pytest.raises((RushlightError, IndexError, ValueError)):
        REFUSED[call]()


def test_what_no_machine_holds_is_out_of_memory():
    for call in (
        lambda: torch.zeros(1 << 45),
        lambda: torch.tril_indices(1 << 44, 1 << 44),
        lambda: torch.ones(1 << 50),
    ):
        with pytest.raises((OutOfMemoryError, ShapeError)):
            call()


def test_the_gradient_of_unfolded_windows_stays_inside():
    x = image().requires_grad_()
    with pytest.raises(ShapeError, match="padding must not be negative"):
        F.unfold(x, 2, padding=-1).sum().backward()
    F.unfold(x, 2, padding=1).sum().backward()
    assert x.grad.sum().item() == 16 * 4


def test_a_stride_larger_than_an_image_takes_no_time():
    x, w = torch.ones(1, 16, 1, 1), torch.ones(16, 1, 2, 2)
    assert F.conv_transpose2d(x, w, stride=1 << 40).sum().item() == 64.0
    x = torch.ones(1, 16, 4, 4, requires_grad=True)
    F.conv2d(x, torch.ones(16, 16, 2, 2), stride=1 << 40).sum().backward()
    assert x.grad.sum().item() == 16 * 16 * 4


def test_a_step_beyond_all_elements_finds_one():
    assert square()[::LARGE].tolist() == [[0.5, 1.5, 2.5, 3.5]]
    assert line().unfold(0, 2, LARGE).tolist() == [[0.0, 1.0]]
    assert F.unfold(image(), 2, stride=MANY).shape == (1, 4, 1)
    x = square().requires_grad_()
    x[::LARGE].sum().backward()
    assert x.grad.sum().item() == 4.0


def test_windows_of_nothing_take_no_time():
    empty = torch.ones(1, 0, 1)
    assert F.fold(empty, 1 << 20, 1 << 20).shape == (1, 0, 1 << 20, 1 << 20)
    none = torch.zeros(0, 1, 4, 4)
    assert F.conv2d(none, torch.ones(1, 1, 2, 2), padding=1 << 29).numel() == 0


# ---- results made without larger intermediates ----


@pytest.mark.parametrize("offset", [FEW, -9, -3, -1, 0, 1, 2, 5, MANY])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (4, 4), (5, 3), (3, 6)])
def test_triangles(shape, offset):
    near = max(-20, min(20, offset))
    assert torch.tril_indices(*shape, offset).tolist() == [
        part.tolist() for part in np.tril_indices(shape[0], near, shape[1])
    ]
    assert torch.triu_indices(*shape, offset).tolist() == [
        part.tolist() for part in np.triu_indices(shape[0], near, shape[1])
    ]


def test_the_corner_of_a_large_triangle():
    n = 1 << 40
    assert torch.tril_indices(n, n, 2 - n).tolist() == [[n - 2, n - 1, n - 1], [0, 0, 1]]
    assert torch.triu_indices(n, n, n - 2).tolist() == [[0, 0, 1], [n - 2, n - 1, n - 1]]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("n", [0, 1, 3, 5])
@pytest.mark.parametrize("r", [0, 1, 2, 3, 5])
def test_combinations(n, r, again):
    ways = (itertools.combinations_with_replacement if again else itertools.combinations)(
        range(n), r
    )
    expected = [list(way) for way in ways] if r else []
    assert torch.combinations(torch.arange(n), r, again).tolist() == expected


def test_few_combinations_of_many_elements():
    assert torch.combinations(torch.arange(40), 39).shape == (40, 39)


def test_int_forms_of_an_index_agree_with_python():
    assert [operator.index(FORMS[form](3)) for form in FORMS] == [3] * len(FORMS)


def test_numpy_numbers_stand_for_numbers_in_norms_extremes_and_layers():
    x, two, one = torch.arange(24.0).reshape(2, 3, 4), np.float32(2), np.int32(1)
    for order in (two, np.int64(2), torch.tensor(2), torch.tensor(2.0)):
        assert x.norm(order).item() == x.norm(2).item()
        assert torch.linalg.vector_norm(x, order).item() == x.norm(2).item()
    assert x.norm(2, one).tolist() == x.norm(2, 1).tolist()
    assert torch.dist(x, x + 1, np.int64(1)).item() == 24
    assert torch.cdist(x, x, two).tolist() == torch.cdist(x, x, 2).tolist()
    assert x.max(one).indices.tolist() == x.max(1).indices.tolist()
    assert x.min(dim=np.uint8(2)).values.tolist() == x.min(2).values.tolist()
    assert x.max(torch.tensor(5.0)).tolist() == x.clamp(min=5).tolist()
    at = torch.zeros(2, 3, 1, dtype=torch.int64)
    assert x.scatter(2, at, two).tolist() == x.scatter(2, at, 2.0).tolist()
    image = torch.ones(1, 2, 4, 4)
    for layer in (
        torch.nn.MaxPool2d,
        torch.nn.AvgPool2d,
        torch.nn.Upsample,
        torch.nn.Unfold,
        torch.nn.ZeroPad2d,
        torch.nn.ReflectionPad2d,
    ):
        for number in (np.int64(2), torch.tensor(2)):
            assert layer(number)(image).tolist() == layer(2)(image).tolist()
    assert torch.nn.Conv2d(2, 3, np.int32(3), padding=one)(image).shape == (1, 3, 4, 4)
    assert torch.nn.LayerNorm(np.int64(4))(image).tolist() == torch.nn.LayerNorm(4)(image).tolist()
    assert torch.nn.RMSNorm(np.int64(4)).normalized_shape == (4,)
    with pytest.raises(RushlightError, match="order is a real number"):
        torch.linalg.vector_norm(x, "two")
    with pytest.raises(TypeError, match=r"max.*dim"):
        x.max("one")
    with pytest.raises(ShapeError, match="padding is one number or 4"):
        torch.nn.ZeroPad2d([1])


def test_a_refused_call_keeps_nothing():
    """The error's frames hold operands only as long as somebody holds the error."""
    torch.ones(3).sum()
    gc.collect()
    gc.disable()
    try:
        before = torch.memory.allocated()
        x = torch.ones(5000)
        for function, wrong in ((torch.topk, "a"), (torch.sort, None), (torch.roll, 1.5)):
            with contextlib.suppress(TypeError):
                function(x, wrong)
        del x
        assert torch.memory.allocated() == before
    finally:
        gc.enable()


def test_a_flag_in_the_place_of_dimensions():
    x = torch.rand(4, 3)
    assert torch.nuclear_norm(x, True).shape == (1, 1) == torch.nuclear_norm(x, keepdim=True).shape
    assert torch.nuclear_norm(x, False).shape == ()


def test_an_in_place_method_has_its_name():
    x = torch.ones(2)
    assert torch.Tensor.add_.__qualname__ == "Tensor.add_" and torch.Tensor.exp_.__name__ == "exp_"
    assert pickle.loads(pickle.dumps(torch.Tensor.mul_)) is torch.Tensor.mul_
    assert str(inspect.signature(torch.clamp_)) == "(input, min=None, max=None)"
    with pytest.raises(TypeError, match=r"Tensor\.add_\(\) missing .* 'other'"):
        x.add_()
    with pytest.raises(TypeError, match=r"exp_\(\) got an unexpected keyword argument 'foo'"):
        x.exp_(foo=1)
    with pytest.raises(TypeError, match=r"mul_\(\) missing a required argument: 'other'"):
        x.mul_()


def test_arange_needs_its_end():
    with pytest.raises(TypeError, match="'end'"):
        torch.arange()
    assert torch.arange(end=3).tolist() == [0, 1, 2] and torch.arange(1, end=3).tolist() == [1, 2]
    assert torch.arange(end=6, step=2).tolist() == [0, 2, 4]


def test_none_and_numpy_integers_where_pytorch_takes_them():
    assert not torch.zeros(2, requires_grad=None).requires_grad
    assert not torch.ones_like(line(), requires_grad=None).requires_grad
    assert torch.full((2,), np.int32(3)).dtype is torch.int64
    assert (torch.zeros(64).random_(5, None) >= 5).all()
    whole = torch.arange(3)
    for new in (whole.new_zeros, whole.new_ones, whole.new_empty):
        assert new(2, dtype=float).dtype is torch.float64
        assert new(2, dtype=None, device=None).dtype is torch.int64
    assert whole.new_full((2,), 1, dtype=bool).dtype is torch.bool
    assert whole.new_tensor([1], dtype=None).dtype is torch.int64
    with pytest.raises(TypeError, match=r"new_zeros\(\): argument 'dtype' must be a dtype"):
        whole.new_zeros(2, dtype="float32")
    count = torch.get_num_threads()
    torch.set_num_threads(np.int64(count))
    assert torch.get_num_threads() == count


class OwnError(Exception):
    pass


def test_an_error_of_the_callers_own_code_stays_as_it_is():
    def fail(*_):
        raise OwnError("mine")

    x = square()
    for call in (
        lambda: F.triplet_margin_with_distance_loss(x, x, x, distance_function=fail),
        lambda: torch.cat(fail() for _ in range(2)),
    ):
        with pytest.raises(OwnError) as caught:
            call()
        assert caught.value.args == ("mine",)
    with pytest.raises(ZeroDivisionError):
        F.triplet_margin_with_distance_loss(x, x, x, distance_function=lambda a, b: 1 / 0)
    with pytest.raises(TypeError, match="argument 'distance_function' must be Callable"):
        F.triplet_margin_with_distance_loss(x, x, x, distance_function=3)
