"""Bad input: the error names the op, the operands and the fix; then the program goes on.

Each case is (name, call, error, words): the words must all be in the message. After the error the
device's allocated bytes are what they were, and the next op works.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

import rushlight
from rushlight.core.dtypes import bool_, float64, int64
from rushlight.core.errors import (
    DeviceError,
    DeviceUnavailable,
    DTypeError,
    GraphFreedError,
    InplaceError,
    NotDifferentiable,
    RushlightError,
    ShapeError,
)
from rushlight.devices.shared import registry
from rushlight.nn import functional as F
from rushlight.ops.registry import REGISTRY


def op(name):
    return REGISTRY[name].function


class Room:
    """Makes zeros on one device, as short as a case needs."""

    def __init__(self, device):
        self.device = device

    def __call__(self, *size, dtype=None, grad=False):
        return rushlight.zeros(*size, dtype=dtype, device=self.device, requires_grad=grad)

    def whole(self, *numbers):
        return rushlight.tensor(list(numbers), dtype=int64, device=self.device)


SHAPES = [
    ("add", lambda t: t(2, 3) + t(4), "float32[2, 3] float32[4] broadcast"),
    ("maximum", lambda t: rushlight.maximum(t(2), t(3)), "float32[2] float32[3]"),
    ("where", lambda t: rushlight.where(t(2, 3, dtype=bool_), t(2), t(4)), "bool[2, 3] float32[2]"),
    ("masked_fill", lambda t: t(2, 3).masked_fill(t(4, dtype=bool_), 1.0), "bool[4] float32[2, 3]"),
    ("masked_fill", lambda t: t(2, 3).masked_fill(t(3, dtype=bool_), t(3)), "float32[3] 0-dim"),
    ("matmul", lambda t: t(2, 3) @ t(4, 5), "float32[2, 3] float32[4, 5]"),
    ("matmul", lambda t: t() @ t(4, 5), "float32[] float32[4, 5]"),
    ("matmul", lambda t: t(2, 2, 3) @ t(3, 3, 4), "float32[2, 2, 3] float32[3, 3, 4]"),
    ("linear", lambda t: op("linear")(t(2, 3), t(4, 5)), "float32[2, 3] float32[4, 5]"),
    ("linear", lambda t: op("linear")(t(2, 3), t(4, 3), t(5)), "float32[5]"),
    ("linear", lambda t: op("linear")(t(2, 3), t(3), t(3)), "float32[2, 3] float32[3]"),
    ("reshape", lambda t: t(2, 3).reshape(4), "[2, 3] [4]"),
    ("reshape", lambda t: t(2, 3).reshape(-1, 4), "[2, 3] [-1, 4]"),
    ("view", lambda t: t(2, 3).T.view(6), "[3, 2] [6] reshape"),
    ("expand", lambda t: t(2, 3).expand(2, 4), "[2, 3] [2, 4]"),
    ("permute", lambda t: t(2, 3).permute(0, 0), "[0, 0]"),
    ("cat", lambda t: rushlight.cat([t(2, 3), t(2, 4)]), "float32[2, 3] float32[2, 4]"),
    ("cat", lambda t: rushlight.cat([]), "empty"),
    ("stack", lambda t: rushlight.stack([t(2, 3), t(2, 4)]), "float32[2, 3] float32[2, 4]"),
    ("split", lambda t: t(5).split([2, 2]), "[2, 2] 5"),
    ("split", lambda t: t(5).split(0), "positive"),
    ("chunk", lambda t: t(5).chunk(0), "positive"),
    ("sum", lambda t: t(2, 3).sum((0, 0)), "twice"),
    ("tril", lambda t: t(3).tril(), "float32[3]"),
    ("layer_norm", lambda t: rushlight.layer_norm(t(2, 3), (4,)), "float32[2, 3] [4]"),
    ("layer_norm", lambda t: rushlight.layer_norm(t(2, 3), (3,), t(4)), "float32[2, 3] float32[4]"),
    ("batch_norm", lambda t: F.batch_norm(t(3), None, None, training=True), "float32[3]"),
    (
        "batch_norm",
        lambda t: F.batch_norm(t(1, 3), None, None, training=True),
        "float32[1, 3]",
    ),
    ("batch_norm", lambda t: F.batch_norm(t(4, 3), t(5), t(5)), "float32[4, 3] float32[5]"),
    (
        "cross_entropy",
        lambda t: op("cross_entropy")(t(2, 3), t.whole(0, 1, 2)),
        "float32[2, 3] int64[3]",
    ),
    ("cross_entropy", lambda t: op("cross_entropy")(t(2, 3), t.whole(0, 1), t(4)), "float32[4] 3"),
    ("nll_loss", lambda t: op("nll_loss")(t(2, 3), t.whole(0, 1, 2)), "float32[2, 3] int64[3]"),
    ("mse_loss", lambda t: op("mse_loss")(t(2, 3), t(2, 4)), "float32[2, 3] float32[2, 4]"),
    (
        "conv2d",
        lambda t: rushlight.conv2d(t(1, 3, 5, 5), t(2, 4, 3, 3)),
        "float32[1, 3, 5, 5] float32[2, 4, 3, 3]",
    ),
    (
        "conv2d",
        lambda t: rushlight.conv2d(t(1, 3, 5, 5), t(2, 3, 7, 7)),
        "float32[1, 3, 5, 5] float32[2, 3, 7, 7]",
    ),
    ("conv2d", lambda t: rushlight.conv2d(t(1, 3, 5, 5), t(2, 3, 3, 3), t(3)), "float32[3]"),
    ("max_pool2d", lambda t: rushlight.max_pool2d(t(1, 3, 5, 5), 7), "float32[1, 3, 5, 5]"),
    ("max_pool2d", lambda t: rushlight.max_pool2d(t(1, 3, 5, 5), 2, padding=2), "padding [2, 2]"),
    ("gather", lambda t: t(2, 3).gather(0, t.whole(0)), "int64[1] float32[2, 3]"),
    (
        "scatter_add",
        lambda t: t(2, 3).scatter_add(0, t(3, 4, dtype=int64), t(2, 3)),
        "int64[3, 4] float32[2, 3]",
    ),
    ("embedding", lambda t: op("embedding")(t.whole(0), t(3)), "float32[3]"),
    (
        "scaled_dot_product_attention",
        lambda t: op("scaled_dot_product_attention")(t(2, 3), t(4, 5), t(4, 5)),
        "float32[2, 3] float32[4, 5]",
    ),
    ("one_hot", lambda t: op("one_hot")(t.whole(0), 0), "num_classes 0"),
    ("copy_", lambda t: t(2).copy_(t(3)), "float32[2] float32[3]"),
    ("add_", lambda t: t(2).add_(t(2, 2)), "[2, 2] float32[2]"),
    ("zeros", lambda t: t(-1), "negative"),
    ("eye", lambda t: rushlight.eye(-1, device=t.device), "negative"),
    ("arange", lambda t: rushlight.arange(5, 1, device=t.device), "arange 5 1"),
    ("backward", lambda t: t(2, grad=True).exp().backward(t(3)), "backward float32[3] float32[2]"),
]
DTYPES = [
    ("bitwise_and", lambda t: t(2) & t(2), "float32[2] int32 int64 .to(dtype)"),
    ("sub", lambda t: t(2, dtype=bool_) - t(2, dtype=bool_), "bool logical_xor"),
    ("neg", lambda t: -t(2, dtype=bool_), "bool[2] .to(dtype)"),
    ("where", lambda t: rushlight.where(t(2), t(2), t(2)), "float32[2] .bool()"),
    ("masked_fill", lambda t: t(2).masked_fill(t(2), 1.0), "float32[2] .bool()"),
    ("mean", lambda t: t(2, dtype=int64).mean(), "int64[2] .float()"),
    ("softmax", lambda t: t(2, dtype=int64).softmax(0), "int64[2] .to(dtype)"),
    (
        "layer_norm",
        lambda t: rushlight.layer_norm(t(2, 3, dtype=int64), 3),
        "int64[2, 3] .to(dtype)",
    ),
    ("matmul", lambda t: t(2, 2) @ t(2, 2, dtype=int64), "float32[2, 2] int64[2, 2] .to(dtype)"),
    (
        "linear",
        lambda t: op("linear")(t(2, 2), t(2, 2, dtype=int64)),
        "float32[2, 2] int64[2, 2] .to(dtype)",
    ),
    ("embedding", lambda t: op("embedding")(t(2), t(2, 2)), "float32[2] .long()"),
    ("gather", lambda t: t(2).gather(0, t(2)), "float32[2] .long()"),
    (
        "scatter_add",
        lambda t: t(2).scatter_add(0, t.whole(0), t(1, dtype=int64)),
        "int64[1] float32[2] .to(dtype)",
    ),
    ("cross_entropy", lambda t: op("cross_entropy")(t(2, 3), t(2, dtype=bool_)), "bool[2] .long()"),
    ("rand", lambda t: rushlight.rand(2, dtype=int64, device=t.device), "int64[2] .to(dtype)"),
    ("dropout", lambda t: op("dropout")(t(2, dtype=int64)), "int64[2] .to(dtype)"),
    ("add", lambda t: t(2).add("x"), "str rushlight.tensor"),
    ("add", lambda t: rushlight.add(t(2), [1, 2]), "list rushlight.tensor"),
    (
        "tensor",
        lambda t: rushlight.tensor(np.zeros(2, "datetime64[s]"), device=t.device),
        "datetime64[s] .astype",
    ),
    ("full", lambda t: rushlight.full((2,), "a", device=t.device), "number str"),
    ("requires_grad", lambda t: t(2, dtype=int64, grad=True), "int64 floating-point"),
]
PLACES = [
    ("sum", lambda t: t(2, 3).sum(2), "dimension 2"),
    ("softmax", lambda t: t(2, 3).softmax(-3), "dimension -3"),
    ("transpose", lambda t: t(2, 3).transpose(0, 2), "dimension 2"),
    ("unsqueeze", lambda t: t(2, 3).unsqueeze(4), "dimension 4"),
    ("cat", lambda t: rushlight.cat([t(2), t(2)], 1), "dimension 1"),
    ("gather", lambda t: t(2).gather(1, t.whole(0)), "dimension 1"),
    ("narrow", lambda t: t(2, 3).narrow(0, 1, 2), "dimension 0 size 2"),
    ("select", lambda t: t(2, 3).select(0, 2), "2 dimension 0"),
    ("index", lambda t: t(2, 3)[2], "float32[2, 3]"),
    ("index", lambda t: t(2, 3)[0, 0, 0], "float32[2, 3]"),
    ("amax", lambda t: t(0, 3).amax(0), "float32[0, 3]"),
    ("argmax", lambda t: t(0).argmax(), "float32[0]"),
]
VALUES = [
    (IndexError, lambda t: t(2, 3)[t(3) > 0], "index mask [3] [2, 3]"),
    (IndexError, lambda t: t(2, 3)[t(2)], "index int64 float32[2]"),
    (IndexError, lambda t: t(2, 3)[1.5], "index float"),
    (
        IndexError,
        lambda t: t(2, 3).index_select(0, t(2, 2, dtype=int64)),
        "index_select int64[2, 2]",
    ),
    (ValueError, lambda t: t(2, 3)[::-1], "index positive flip"),
    (TypeError, lambda t: t(2, 3).softmax(), "softmax dim"),
    (ValueError, lambda t: op("dropout")(t(2), 1.5), "dropout 1.5"),
    (ValueError, lambda t: op("mse_loss")(t(2), t(2), reduction="median"), "mse_loss median"),
    (RuntimeError, lambda t: t(2).clamp(), "clamp min max"),
    (
        ValueError,
        lambda t: rushlight.tensor([[1, 2], [3]], device=t.device),
        "tensor equal lengths",
    ),
    (RuntimeError, lambda t: t(2).div(2, rounding_mode="up"), "div up trunc floor"),
    (RushlightError, lambda t: rushlight.randint(5, 5, (2,), device=t.device), "randint 5"),
    (ValueError, lambda t: t(2).item(), "item float32[2]"),
    (RushlightError, lambda t: bool(t(2)), "ambiguous any() all()"),
    (RushlightError, lambda t: t(2, grad=True).exp().backward(), "backward float32[2] gradient="),
    (RushlightError, lambda t: t(2, grad=True).numpy(), "numpy .detach()"),
    (NotDifferentiable, lambda t: t().backward(), "backward float32[] no_grad"),
    (
        NotDifferentiable,
        lambda t: rushlight.autograd.grad(t(grad=True).exp(), t(grad=True)),
        "grad allow_unused",
    ),
    (InplaceError, lambda t: t(2, grad=True).add_(1), "add_ float32[2] no_grad"),
]
CASES = [
    *[(f"shape-{name}", ShapeError, call, f"{name} {words}") for name, call, words in SHAPES],
    *[(f"dtype-{name}", DTypeError, call, f"{name} {words}") for name, call, words in DTYPES],
    *[(f"place-{name}", IndexError, call, f"{name} {words}") for name, call, words in PLACES],
    *[(f"value-{words.split()[0]}", error, call, words) for error, call, words in VALUES],
]
# zeros and eye name sizes, requires_grad names tensors: the message is clear without the name.
NAMELESS = {"shape-zeros", "shape-eye", "dtype-requires_grad"}


@pytest.fixture(scope="module", autouse=True)
def _quick_collections():
    """Freeze objects of earlier tests: otherwise each collection here traverses all of them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def provoke(call, room, error, words, nameless=False):
    """The error, with every word in its message; memory is freed and the device still works."""
    device = room.device
    rushlight.zeros(1, device=device)
    # Objects of an earlier test's traceback must not be freed in the middle of this one.
    gc.collect()
    before = rushlight.memory.allocated(device)
    message = _message(call, room, error)
    for word in _words(words)[nameless:]:
        assert word in message, f"{word!r} is not in {message!r}"
    if rushlight.memory.allocated(device) != before:
        gc.collect()  # the error's own traceback may hold partial results
    assert rushlight.memory.allocated(device) == before
    assert (rushlight.ones(3, device=device) * 2).tolist() == [2, 2, 2]


def _message(call, room, error):
    try:
        call(room)
    except error as met:
        return str(met)
    pytest.fail(f"no {error.__name__} was raised")


def _words(text):
    """Words, a shape in brackets being one of them."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == " " and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


@pytest.mark.parametrize(("name", "error", "call", "words"), CASES, ids=[c[0] for c in CASES])
def test_bad_input(name, error, call, words):
    provoke(call, Room("cpu"), error, words, name in NAMELESS)


@pytest.mark.parametrize("device", ["reference", "webgpu", "cuda"])
def test_bad_input_elsewhere(device, require_device):
    """The checks are the same on every device: one item each is enough."""
    require_device(device)
    for name, error, call, words in CASES:
        provoke(call, Room(device), error, words, name in NAMELESS)


# ---- several devices ----

MIXED = [
    ("add", lambda a, b: a(2, 2) + b(2, 2)),
    ("matmul", lambda a, b: a(2, 2) @ b(2, 2)),
    ("linear", lambda a, b: op("linear")(a(2, 2), b(2, 2))),
    ("where", lambda a, b: rushlight.where(a(2, dtype=bool_), a(2), b(2))),
    ("cat", lambda a, b: rushlight.cat([a(2), b(2)])),
    ("embedding", lambda a, b: op("embedding")(a.whole(0), b(2, 2))),
    ("gather", lambda a, b: a(2).gather(0, b.whole(0))),
    ("scatter_add", lambda a, b: a(2).scatter_add(0, a.whole(0), b(1))),
    ("cross_entropy", lambda a, b: op("cross_entropy")(a(2, 2), b.whole(0, 1))),
    ("layer_norm", lambda a, b: rushlight.layer_norm(a(2, 2), 2, b(2), b(2))),
    ("conv2d", lambda a, b: rushlight.conv2d(a(1, 1, 3, 3), b(1, 1, 2, 2))),
    ("add_", lambda a, b: a(2).add_(b(2))),
    ("copy_", lambda a, b: a(2, 2).__setitem__(0, b(2))),
]


@pytest.mark.parametrize(("name", "call"), MIXED, ids=[m[0] for m in MIXED])
def test_operands_on_two_devices(name, call):
    other = Room("reference")
    provoke(lambda room: call(room, other), Room("cpu"), DeviceError, f"{name} cpu reference .to(")


def test_unknown_device():
    with pytest.raises(
        DeviceUnavailable,
        match=r"'tpu' is not available: there is no such device.*Known: cpu, cuda",
    ) as caught:
        rushlight.zeros(2, device="tpu")
    assert caught.value.name == "tpu"


def test_second_of_a_kind():
    with pytest.raises(RushlightError, match=r"reference:1.*write 'reference'"):
        rushlight.zeros(2, device="reference:1")


def test_missing_device(monkeypatch):
    """Without CuPy, `cuda` says so and what to install; the package goes on."""
    monkeypatch.setattr(
        registry, "_POOLS", {k: v for k, v in registry._POOLS.items() if k != "cuda"}
    )
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(DeviceUnavailable, match=r"'cuda' is not available: .*[Ii]nstall") as caught:
        rushlight.zeros(2, device="cuda")
    assert caught.value.reason
    assert "pip install" in caught.value.fix
    assert rushlight.ones(2, device="cpu").tolist() == [1, 1]


def test_dtype_that_a_device_lacks(device):
    missing = [
        d for d in (float64, int64) if d not in registry.pool_of(device).device.limits.dtypes
    ]
    if not missing:
        pytest.skip(f"limit: {device} has every dtype")
    for dtype in missing:
        provoke(
            lambda t, d=dtype: t(2, dtype=d),
            Room(device),
            DTypeError,
            f"{device} {dtype.name} .to(dtype)",
        )


# ---- indices, which only the device reads ----

# (what the message names, call with an index into 3 positions, whether negative ones count from the
# end)
INDICES = [
    ("embedding", lambda t, i: op("embedding")(t.whole(0, i), t(3, 2)), False),
    ("gather", lambda t, i: t(3).gather(0, t.whole(i, 0)), False),
    ("scatter_add", lambda t, i: t(3).scatter_add(0, t.whole(i), t(1)), False),
    ("index_select", lambda t, i: t(3, 2).index_select(0, t.whole(i)), False),
    ("index_select", lambda t, i: t(3, 2)[t.whole(0, i)], True),
    ("index", lambda t, i: t(5, 3)[t.whole(0, 1), t.whole(0, i)], True),
    ("cross_entropy", lambda t, i: op("cross_entropy")(t(2, 3), t.whole(0, i)), False),
    ("gather", lambda t, i: op("nll_loss")(t(2, 3), t.whole(0, i)), False),
]


@pytest.mark.parametrize(
    ("name", "call", "from_end"), INDICES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(INDICES)]
)
def test_index_out_of_range(name, call, from_end, device):
    """At once on a synchronous device; at the next copy to the host on an asynchronous one."""
    limit = 3
    for index in (
        (limit, limit + 5, -limit - 1, 1 << 40) if from_end else (limit, limit + 5, -1, 1 << 40)
    ):
        provoke(lambda t, i=index: call(t, i).tolist(), Room(device), IndexError, f"{name} range")


def test_good_indices_after_bad_ones(device):
    """The error belongs to its call: results before and after it are right."""
    t = Room(device)
    table = rushlight.tensor([[1.0], [2.0], [3.0]], device=device)
    before = op("embedding")(t.whole(2, 0), table)
    with pytest.raises(IndexError, match="embedding"):
        op("embedding")(t.whole(5), table).tolist()
    after = op("embedding")(t.whole(1), table)
    assert before.tolist() == [[3], [1]]
    assert after.tolist() == [[2]]


def test_ignored_targets_are_no_indices(device):
    t = Room(device)
    loss = op("cross_entropy")(t(3, 4), t.whole(0, -100, 3))
    assert loss.item() == pytest.approx(np.log(4), rel=1e-6)


# ---- the tape ----


def test_second_backward_over_a_freed_graph(device):
    x = rushlight.ones(3, device=device, requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(GraphFreedError, match="retain_graph=True"):
        loss.backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_overwritten_value(device):
    x = rushlight.ones(3, device=device, requires_grad=True)
    y = x * 1
    loss = (y * y).sum()
    y.add_(1)
    with pytest.raises(InplaceError, match=r"mul: .*overwritten.*float32\[3\].*clone"):
        loss.backward()
    assert (x * 2).tolist() == [2, 2, 2]


def test_error_in_a_hook_gives_memory_back():
    gc.collect()  # what earlier failures left behind is not this test's
    before = rushlight.memory.allocated("cpu")

    def broken(g):
        raise KeyboardInterrupt

    def step():
        x = rushlight.ones(1000, device="cpu", requires_grad=True)
        y = x.exp()
        y.register_hook(broken)
        y.sum().backward()

    with pytest.raises(KeyboardInterrupt):
        step()
    gc.collect()
    assert rushlight.memory.allocated("cpu") == before
    assert rushlight.ones(2, device="cpu").exp().sum().item() == pytest.approx(2 * np.e)


def test_an_index_out_of_range_names_the_dimension_of_the_whole_key():
    x = rushlight.zeros(3, 4, device="cpu")
    for key, dim in (((0, 4), 1), ((0, -5), 1), (4, 0), ((..., 4), 1), ((None, 0, 4), 2)):
        with pytest.raises(IndexError, match=rf"dimension {dim} of size .*float32\[3, 4\]"):
            x[key]
    with pytest.raises(IndexError, match="dimension 1 of size 4"):
        x[0, 4] = 1.0


def test_slices_of_floats_are_refused_by_the_op():
    for key in (slice(1.0, 2), (slice(None), slice(0, 2, 1.5))):
        with pytest.raises(TypeError, match="index: slice indices must be integers"):
            rushlight.zeros(3, 4, device="cpu")[key]


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv_transpose2d"])
def test_convolutions_of_two_types_name_themselves(name):
    rank = int(name[-2])
    x = rushlight.zeros(1, 1, *[4] * rank, device="cpu")
    weight = rushlight.zeros(1, 1, *[2] * rank, device="cpu", dtype=float64)
    for _ in range(2):
        with pytest.raises(DTypeError, match=f"^{name}: input float32.* and weight float64"):
            getattr(F, name)(x, weight)


def test_python_suggests_the_nearest_attribute():
    # "Did you mean" of a traceback looks at 750 names at most.
    assert len(dir(rushlight.zeros(1, device="cpu"))) < 750
