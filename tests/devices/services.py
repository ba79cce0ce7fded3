"""75 services of a device, by name: each runs ops on the device and checks them against NumPy.

A service is a function of a device's name. `test_services.py` runs each on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.devices.shared.registry import pool_of

Service = Callable[[str], None]
SERVICES: dict[str, Service] = {}
NEEDS_FLOAT64 = ("add_f64", "sub_f64", "mul_f64", "neg_f64", "relu_f64", "matmul_f64", "sum_f64")

_LOOSE = {"rtol": 2e-5, "atol": 2e-6}


def sample(
    *shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0, dtype: Any = np.float32
) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def put(array: np.ndarray, device: str, grad: bool = False) -> rl.Tensor:
    return rl.tensor(array, device=device, requires_grad=grad)


def got(tensor: rl.Tensor) -> np.ndarray:
    return np.asarray(tensor.detach().numpy(force=True))


def close(tensor: rl.Tensor, want: np.ndarray, **tolerance: float) -> None:
    assert tensor.shape == want.shape
    np.testing.assert_allclose(got(tensor), want, **(tolerance or _LOOSE))


def service(function: Service) -> Service:
    SERVICES[function.__name__] = function
    return function


def pointwise(name: str, ours: Callable, theirs: Callable, *inputs: np.ndarray) -> None:
    """A service that is one op of tensors."""

    def run(device: str) -> None:
        result = ours(*[put(x, device) for x in inputs])
        assert result.device == rl.device(device)
        close(result, np.asarray(theirs(*inputs)))

    SERVICES[name] = run


def backward(name: str, ours: Callable, theirs: Callable, *inputs: np.ndarray) -> None:
    """A backward kernel: the gradient of the first input, for an incoming gradient that is not
    one.
    """

    def run(device: str) -> None:
        x = put(inputs[0], device, grad=True)
        result = ours(x, *[put(v, device) for v in inputs[1:]])
        g = sample(*result.shape, seed=9)
        result.backward(put(g, device))
        close(x.grad, np.asarray(theirs(g, *inputs), dtype=np.float32))

    SERVICES[name] = run


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu_slope(x: np.ndarray) -> np.ndarray:
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    t = np.tanh(inner)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


def windows(x: np.ndarray, size: int, stride: int) -> np.ndarray:
    """[..., rows, columns, size * size] of the last two dimensions."""
    seen = np.lib.stride_tricks.sliding_window_view(x, (size, size), (-2, -1))[
        ..., ::stride, ::stride, :, :
    ]
    return seen.reshape(*seen.shape[:-2], size * size)


A, B, POSITIVE = sample(5, 7), sample(5, 7, seed=1), sample(5, 7, seed=2, low=0.5)
ROW, COLUMN = sample(1, 7, seed=3, low=0.5), sample(5, 1, seed=4)
LEFT, RIGHT = sample(6, 9), sample(9, 4, seed=1)
LEFTS, RIGHTS = sample(3, 6, 9), sample(3, 9, 4, seed=1)


# ---- buffers ----


@service
def as_any(device: str) -> None:
    """The device behind a tensor can be asked for."""
    assert rl.ones(2, device=device).device == rl.device(device)
    assert pool_of(device).device.name == device


def _round_trip(device: str) -> None:
    for dtype in (np.float32, np.int64, np.uint8, np.bool_):
        array = (sample(4, 3) * 5).astype(dtype)
        assert got(rl.tensor(array).to(device)).tobytes() == array.tobytes()


SERVICES["cpu_to_gpu"] = SERVICES["gpu_to_cpu"] = _round_trip


@service
def cpu_to_gpu_pinned(device: str) -> None:
    held = rl.tensor(A).pin_memory()
    close(held.to(device, non_blocking=True), A)


@service
def clone_buffer(device: str) -> None:
    x = put(A, device)
    y = x.clone()
    y.zero_()
    close(x, A)


@service
def alloc_zeros(device: str) -> None:
    close(rl.zeros(5, 7, device=device), np.zeros((5, 7)))


# ---- arithmetic ----

for _kind, _type in (("f32", np.float32), ("f64", np.float64)):
    _a, _b = sample(5, 7, dtype=_type), sample(5, 7, seed=1, dtype=_type)
    pointwise(f"add_{_kind}", rl.add, np.add, _a, _b)
    pointwise(f"sub_{_kind}", rl.sub, np.subtract, _a, _b)
    pointwise(f"mul_{_kind}", rl.mul, np.multiply, _a, _b)
    pointwise(f"neg_{_kind}", rl.neg, np.negative, _a)
    pointwise(f"relu_{_kind}", rl.relu, lambda x: np.maximum(x, 0), _a)
    pointwise(f"sum_{_kind}", rl.sum, np.sum, _a)
    pointwise(f"matmul_{_kind}", rl.matmul, np.matmul, LEFT.astype(_type), RIGHT.astype(_type))

pointwise("div_f32", rl.div, np.divide, A, POSITIVE)
pointwise("exp_f32", rl.exp, np.exp, A)
pointwise("log_f32", rl.log, np.log, POSITIVE)
pointwise("sqrt_f32", rl.sqrt, np.sqrt, POSITIVE)
pointwise("pow_f32", lambda x: rl.pow(x, 2.5), lambda x: x**2.5, POSITIVE)
pointwise("abs_f32", rl.abs, np.abs, A)
pointwise("sigmoid_f32", rl.sigmoid, sigmoid, A)
pointwise("tanh_f32", rl.tanh, np.tanh, A)
pointwise("scale_f32", lambda x: x * 0.3, lambda x: x * np.float32(0.3), A)
pointwise("gelu_f32", lambda x: F.gelu(x, approximate="tanh"), lambda x: gelu_of(x), A)
for _name, _op in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)):
    pointwise(f"broadcast_{_name}_f32", getattr(rl, _name), _op, COLUMN, ROW)
pointwise("sum_axis_f32", lambda x: x.sum(1), lambda x: x.sum(1), sample(3, 5, 7))


def gelu_of(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


# ---- matrices ----

pointwise("bmm_f32", rl.bmm, np.matmul, LEFTS, RIGHTS)
pointwise("transpose_2d_f32", lambda x: x.t().contiguous(), np.transpose, A)
pointwise(
    "permute_0213_f32",
    lambda x: x.permute(0, 2, 1, 3).contiguous(),
    lambda x: x.transpose(0, 2, 1, 3),
    sample(2, 3, 4, 5),
)


def half_matmul(left: np.ndarray, right: np.ndarray) -> Service:
    """Operands rounded to float16, products summed in float32, as autocast to float16 does."""

    def run(device: str) -> None:
        x, y = put(left, device), put(right, device)
        with rl.autocast(device, dtype=rl.float16):
            product = x @ y
        assert product.dtype == rl.float16
        want = left.astype(np.float16).astype(np.float64) @ right.astype(np.float16).astype(
            np.float64
        )
        close(product.float(), want.astype(np.float32), rtol=1e-3, atol=1e-3)

    return run


SERVICES["matmul_f16_f32"] = half_matmul(LEFT, RIGHT)
SERVICES["bmm_f16_f32"] = half_matmul(LEFTS, RIGHTS)


@service
def svd_f32(device: str) -> None:
    u, s, vh = rl.linalg.svd(put(A, device), full_matrices=False)
    close(u * s @ vh, A, rtol=1e-4, atol=1e-5)


@service
def cholesky_f32(device: str) -> None:
    matrix = A @ A.T + 5 * np.eye(5, dtype=np.float32)
    factor = rl.linalg.cholesky(put(matrix, device))
    close(factor @ factor.t(), matrix, rtol=1e-4, atol=1e-4)


@service
def solve_f32(device: str) -> None:
    matrix, right = sample(5, 5) + 4 * np.eye(5, dtype=np.float32), sample(5, 2, seed=1)
    close(
        put(matrix, device) @ rl.linalg.solve(put(matrix, device), put(right, device)),
        right,
        rtol=1e-4,
        atol=1e-4,
    )


@service
def qr_f32(device: str) -> None:
    q, r = rl.linalg.qr(put(A, device))
    close(q @ r, A, rtol=1e-4, atol=1e-5)
    close(q.t() @ q, np.eye(5, dtype=np.float32), rtol=1e-4, atol=1e-5)


# ---- rows ----


def layer_norm_of(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


SCALE, SHIFT = sample(7, seed=5), sample(7, seed=6)
pointwise("softmax_f32", lambda x: rl.softmax(x, -1), softmax, A)
pointwise(
    "layernorm_f32",
    lambda x, w, b: F.layer_norm(x, (7,), w, b),
    lambda x, w, b: layer_norm_of(x) * w + b,
    *(A, SCALE, SHIFT),
)


def layer_norm_slope(g: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    h, gw = layer_norm_of(x), g * w
    inner = gw - gw.mean(-1, keepdims=True) - h * (gw * h).mean(-1, keepdims=True)
    return inner / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def softmax_slope(g: np.ndarray, x: np.ndarray) -> np.ndarray:
    p = softmax(x)
    return p * (g - (g * p).sum(-1, keepdims=True))


backward("relu_backward_f32", rl.relu, lambda g, x: g * (x > 0), A)
backward(
    "gelu_backward_f32", lambda x: F.gelu(x, approximate="tanh"), lambda g, x: g * gelu_slope(x), A
)
backward("sigmoid_backward_f32", rl.sigmoid, lambda g, x: g * sigmoid(x) * (1 - sigmoid(x)), A)
backward("tanh_backward_f32", rl.tanh, lambda g, x: g * (1 - np.tanh(x) ** 2), A)
backward("softmax_backward_f32", lambda x: rl.softmax(x, -1), softmax_slope, A)
backward(
    "layernorm_backward_f32", lambda x, w: F.layer_norm(x, (7,), w), layer_norm_slope, A, SCALE
)


# ---- random numbers ----


def _dropout(device: str) -> None:
    rl.manual_seed(3)
    x = rl.ones(2000, device=device)
    first = got(F.dropout(x, 0.25))
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.68 < (first != 0).mean() < 0.82


SERVICES["dropout_f32"] = SERVICES["dropout_philox_f32"] = _dropout


def _random_state(device: str) -> None:
    rl.manual_seed(3)
    state = rl.get_rng_state()
    first = got(rl.rand(10, device=device))
    assert got(rl.rand(10, device=device)).tobytes() != first.tobytes()
    rl.set_rng_state(state)
    assert got(rl.rand(10, device=device)).tobytes() == first.tobytes()


SERVICES["save_rng_state"] = SERVICES["restore_rng_state"] = _random_state


# ---- indexing ----

MANY = np.array([3, 0, 3, 4])
MASK = A > 0.5


@service
def slice_write_f32(device: str) -> None:
    """A step of a key-value cache: one row of each sequence."""
    cache, row = rl.zeros(2, 6, 3, device=device), sample(2, 3)
    cache[:, 4] = put(row, device)
    want = np.zeros((2, 6, 3), np.float32)
    want[:, 4] = row
    close(cache, want)


pointwise("slice_read_f32", lambda x: x[:, :4].contiguous(), lambda x: x[:, :4], sample(2, 6, 3))
pointwise("embed_lookup_f32", F.embedding, lambda i, w: w[i], np.array(2), A)
pointwise("embed_lookup_batch_f32", F.embedding, lambda i, w: w[i], MANY, A)
pointwise(
    "index_select_1d_f32", lambda x, i: x.index_select(0, i), lambda x, i: x[i], sample(5), MANY
)
pointwise(
    "masked_fill_f32",
    lambda x, m: x.masked_fill(m, 2.5),
    lambda x, m: np.where(m, np.float32(2.5), x),
    A,
    MASK,
)
backward(
    "masked_zero_f32",
    lambda x, m: x.masked_fill(m, 2.5),
    lambda g, x, m: np.where(m, 0, g),
    A,
    MASK,
)


def rows_added(g: np.ndarray, x: np.ndarray, i: np.ndarray) -> np.ndarray:
    want = np.zeros_like(x)
    np.add.at(want, i, g)
    return want


backward("scatter_add_rows_f32", lambda w, i: F.embedding(i, w), rows_added, A, MANY)
backward("scatter_add_1d_f32", lambda x, i: x.index_select(0, i), rows_added, sample(5), MANY)


@service
def strided_split_f32(device: str) -> None:
    x = sample(2, 6, 3)
    for part, want in zip(put(x, device).split(2, 1), np.split(x, 3, 1), strict=True):
        close(part.contiguous(), want)


pointwise(
    "strided_cat_f32", lambda x, y: rl.cat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), A, B
)


@service
def has_inf_nan_f32(device: str) -> None:
    for bad in (np.inf, -np.inf, np.nan):
        x = sample(300)
        assert bool(put(x, device).isfinite().all())
        x[211] = bad
        assert not bool(put(x, device).isfinite().all())


# ---- training and images ----


@service
def fused_adam_f32(device: str) -> None:
    p, g = sample(40), sample(40, seed=1)
    held = put(p, device, grad=True)
    optimizer = rl.optim.Adam([held], lr=0.01, betas=(0.9, 0.99), eps=1e-8)
    mean, square, want = np.zeros(40), np.zeros(40), p.astype(np.float64)
    for step in (1, 2, 3):
        held.grad = put(g * step, device)
        optimizer.step()
        mean, square = 0.9 * mean + 0.1 * g * step, 0.99 * square + 0.01 * (g * step) ** 2
        want -= 0.01 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    close(held, want.astype(np.float32))


@service
def fused_gru_cell_f32(device: str) -> None:
    x, h = sample(4, 5), sample(4, 3, seed=1)
    w, u, b, c = sample(9, 5, seed=2), sample(9, 3, seed=3), sample(9, seed=4), sample(9, seed=5)
    (r, z, n), (hr, hz, hn) = np.split(x @ w.T + b, 3, 1), np.split(h @ u.T + c, 3, 1)
    reset, update = sigmoid(r + hr), sigmoid(z + hz)
    want = (1 - update) * np.tanh(n + reset * hn) + update * h
    close(rl.gru_cell(*[put(v, device) for v in (x, h, w, u, b, c)]), want)


IMAGE = sample(2, 3, 8, 9)
pointwise(
    "maxpool2d_f32", lambda x: F.max_pool2d(x, 3, 2), lambda x: windows(x, 3, 2).max(-1), IMAGE
)
pointwise(
    "avgpool2d_f32", lambda x: F.avg_pool2d(x, 3, 2), lambda x: windows(x, 3, 2).mean(-1), IMAGE
)


def conv_of(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return (
        np.einsum("nchwk,ock->nohw", windows(padded, 3, 2), w.reshape(4, 3, 9)) + b[:, None, None]
    )


pointwise(
    "conv2d_f32",
    lambda x, w, b: F.conv2d(x, w, b, 2, 1),
    conv_of,
    IMAGE,
    sample(4, 3, 3, 3),
    sample(4),
)


# ---- order of work ----


@service
def synchronize(device: str) -> None:
    x = put(A, device)
    for _ in range(20):
        x = x * 0.5
    pool_of(device).device.synchronize()
    close(x, A * np.float32(0.5) ** 20)


@service
def stream_count(device: str) -> None:
    """One queue per device, in order: a result is complete whenever it is read."""
    x = put(A, device)
    y = x + 1.0
    x.mul_(0.0)
    close(y, A + 1)
