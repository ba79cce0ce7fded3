"""Calls for gradcheck beyond the catalog's: convolution, pooling, norms, attention, interpolation.

Note [Gradcheck samples]
1. A `Case` is a function and its inputs, all float64 unless it says otherwise; every float among
   them is a leaf. They are small, since slow mode perturbs each of their elements, and away from
   kinks: distinct numbers where elements are compared.
2. `tests/autograd/gradcheck_samples_*.py` hold them by theme;
   `tests/autograd/test_gradcheck_samples.py` runs them.
3. A case with `second=False` is checked to first order only, and says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import rushlight as rl
from rushlight.nn import functional as F


class Case(NamedTuple):
    """One call."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    second: bool = True

    def inputs(self) -> tuple[Any, ...]:
        return tuple(
            rl.tensor(a, requires_grad=a.dtype.kind in "fc") if isinstance(a, np.ndarray) else a
            for a in self.arrays
        )


class Draw:
    """Arrays from a seed of their own: a case has the same numbers wherever it stands."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def __call__(self, *shape: int, low: float = -1, high: float = 1) -> np.ndarray:
        return np.asarray(self.random.uniform(low, high, shape))

    def complex(self, *shape: int) -> np.ndarray:
        return np.asarray(self(*shape) + 1j * self(*shape))

    def distinct(self, *shape: int) -> np.ndarray:
        """Steps of a tenth in random order: no two alike, none near 0."""
        count = int(np.prod(shape))
        return np.asarray((self.random.permutation(count).reshape(shape) - count // 2 + 0.5) / 10)

    def index(self, limit: int, *shape: int) -> np.ndarray:
        return np.asarray(self.random.integers(0, limit, shape))

    def positive(self, *shape: int) -> np.ndarray:
        """Symmetric positive definite matrices."""
        half = self(*shape)
        return np.asarray(half @ half.swapaxes(-1, -2) + np.eye(shape[-1]))


# ---- convolution ----

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def convolutions() -> Iterator[Case]:
    draw = Draw(1)
    for dims in (1, 2, 3):
        size = {1: 7, 2: 5, 3: 4}[dims]
        for stride, padding, dilation, groups in itertools.product((1, 2), (0, 1), (1, 2), (1, 2)):
            if dims == 3 and (stride, padding, dilation, groups).count(2) > 1:
                continue
            kernel = 2 if dims == 3 else 3 - (dilation - 1)
            x, w = draw(2, 2, *(size,) * dims), draw(2, 2 // groups, *(kernel,) * dims)
            named = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
            yield Case(
                f"conv{dims}d {named}",
                lambda x, w, b, d=dims, n=named: CONV[d](x, w, b, **n),
                (x, w, draw(2)),
            )
    for padding in ("same", "valid"):
        call = lambda x, w, p=padding: F.conv2d(x, w, None, 1, p, (1, 2))  # noqa: E731
        yield Case(f"conv2d padding={padding!r}", call, (draw(1, 2, 4, 5), draw(1, 2, 2, 3)))
    uneven = lambda x, w: F.conv2d(x, w, None, (2, 1), (0, 2), (1, 2))  # noqa: E731
    yield Case("conv2d uneven", uneven, (draw(2, 4, 5), draw(3, 2, 2, 3)))
    yield Case(
        "conv2d complex",
        lambda x, w: F.conv2d(x, w, stride=2),
        (draw.complex(1, 2, 4, 4), draw.complex(2, 2, 2, 2)),
    )


def transposed_convolutions() -> Iterator[Case]:
    draw = Draw(2)
    for dims in (1, 2, 3):
        size = {1: 4, 2: 3, 3: 2}[dims]
        for stride, padding, dilation, groups in itertools.product((1, 2), (0, 1), (1, 2), (1, 2)):
            if dims == 3 and (stride, padding, dilation, groups).count(2) > 1:
                continue
            extra = 1 if stride == 2 or dilation == 2 else 0
            x, w = draw(2, 2, *(size,) * dims), draw(2, 2 // groups, *(2,) * dims)
            named = {
                "stride": stride,
                "padding": padding,
                "output_padding": extra,
                "groups": groups,
                "dilation": dilation,
            }
            call = lambda x, w, b, d=dims, n=named: TRANSPOSED[d](x, w, b, **n)  # noqa: E731
            yield Case(f"conv_transpose{dims}d {named}", call, (x, w, draw(2 // groups * groups)))


def padded_modules() -> Iterator[Case]:
    draw = Draw(3)
    for mode in ("zeros", "circular", "reflect", "replicate"):
        for dims, kind in ((1, rl.nn.Conv1d), (2, rl.nn.Conv2d), (3, rl.nn.Conv3d)):
            layer = kind(1, 1, 2, padding=1, padding_mode=mode).double()
            call = lambda x, w, m=layer: rl.func.functional_call(m, {("weight"): w}, (x,))  # noqa: E731
            yield Case(
                f"Conv{dims}d {mode}", call, (draw(1, 1, *(3,) * dims), draw(1, 1, *(2,) * dims))
            )
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield Case(
            f"pad {mode}", lambda x, m=mode: F.pad(x, (1, 2, 2, 1), mode=m), (draw(1, 1, 4, 4),)
        )
    yield Case("pad cut", lambda x: F.pad(x, (-1, 2, 1, -1), value=0.5), (draw(3, 4),))
    yield Case("fold", lambda x: F.fold(x, (4, 4), 2, stride=1, padding=1), (draw(1, 8, 25),))
    yield Case(
        "unfold", lambda x: F.unfold(x, 2, dilation=2, padding=1, stride=2), (draw(1, 2, 5, 5),)
    )


# ---- pooling ----

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def pools() -> Iterator[Case]:
    draw = Draw(4)
    for dims in (1, 2, 3):
        size = {1: 9, 2: 6, 3: 5}[dims]
        shape = (1, 2, *(size,) * dims) if dims < 3 else (1, 1, 5, 4, 5)
        for stride, padding, dilation, ceil in itertools.product(
            (None, 1, 2), (0, 1), (1, 2), (False, True)
        ):
            if dims == 3 and not (ceil and stride == 2):
                continue
            named = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil}
            yield Case(
                f"max_pool{dims}d {named}",
                lambda x, d=dims, n=named: MAX[d](x, 2, **n),
                (draw.distinct(*shape),),
            )
        for stride, padding, ceil, include in itertools.product(
            (None, 2), (0, 1), (False, True), (False, True)
        ):
            named = {
                "stride": stride,
                "padding": padding,
                "ceil_mode": ceil,
                "count_include_pad": include,
            }
            yield Case(
                f"avg_pool{dims}d {named}",
                lambda x, d=dims, n=named: AVERAGE[d](x, 3, **n),
                (draw(*shape),),
            )
    yield Case(
        "avg_pool2d divisor", lambda x: F.avg_pool2d(x, 2, divisor_override=3), (draw(1, 2, 4, 4),)
    )
    for name, size in (("1d", (1, 2, 7)), ("2d", (1, 1, 5, 4)), ("3d", (1, 1, 3, 4, 3))):
        for kind in ("avg", "max"):
            op = getattr(F, f"adaptive_{kind}_pool{name}")
            yield Case(
                f"adaptive_{kind}_pool{name}", lambda x, op=op: op(x, 3), (draw.distinct(*size),)
            )
    for p in (1.0, 2.0, 3.0):
        for name, size in (("1d", (1, 2, 7)), ("2d", (1, 1, 5, 5)), ("3d", (1, 1, 4, 4, 4))):
            op = getattr(F, f"lp_pool{name}")
            call = lambda x, op=op, p=p: op(x, p, 2, stride=1, ceil_mode=True)  # noqa: E731
            yield Case(f"lp_pool{name} {p}", call, (draw(*size, low=0.3),))
    spots = {"2d": draw(1, 1, 2, low=0.1, high=0.9), "3d": draw(1, 1, 3, low=0.1, high=0.9)}
    for name, size in (("2d", (1, 1, 6, 6)), ("3d", (1, 1, 4, 4, 4))):
        op, spot = getattr(F, f"fractional_max_pool{name}"), rl.tensor(spots[name])
        call = lambda x, op=op, spot=spot: op(x, 2, output_size=3, _random_samples=spot)  # noqa: E731
        yield Case(f"fractional_max_pool{name}", call, (draw.distinct(*size),))
    index = rl.tensor([[[1, 2, 5]]])
    yield Case("max_unpool1d", lambda x: F.max_unpool1d(x, index, 2), (draw(1, 1, 3),))
    yield Case(
        "max_unpool2d",
        lambda x: F.max_unpool2d(x, rl.tensor([[[[1, 3], [8, 14]]]]), 2),
        (draw(1, 1, 2, 2),),
    )


# ---- norms and attention ----


def norms() -> Iterator[Case]:
    draw = Draw(5)
    x = draw(3, 4, 3)
    weight, bias, mean, var = draw(4), draw(4), draw(4), draw(4, low=0.5, high=2)
    for training, affine in itertools.product((True, False), (True, False)):

        def batch(x: Any, *wb: Any, training: bool = training) -> Any:
            stats = rl.tensor(mean), rl.tensor(var)
            return F.batch_norm(x, *stats, *wb, training=training)

        yield Case(
            f"batch_norm training={training} affine={affine}",
            batch,
            (x, weight, bias) if affine else (x,),
        )
    yield Case(
        "batch_norm without statistics", lambda x: F.batch_norm(x, None, None, training=True), (x,)
    )
    for affine in (True, False):
        more = (weight, bias) if affine else ()
        yield Case(
            f"group_norm affine={affine}", lambda x, *wb: F.group_norm(x, 2, *wb), (x, *more)
        )
        instance = lambda x, *wb: F.instance_norm(x, None, None, *wb)  # noqa: E731
        yield Case(f"instance_norm affine={affine}", instance, (x, *more))
        rows = (draw(4, 3), draw(4, 3)) if affine else ()
        yield Case(
            f"layer_norm affine={affine}", lambda x, *wb: F.layer_norm(x, (4, 3), *wb), (x, *rows)
        )
        yield Case(
            f"rms_norm affine={affine}", lambda x, *w: F.rms_norm(x, (4, 3), *w), (x, *rows[:1])
        )
    for op, given in ((F.instance_norm, {"use_input_stats": False}), (F.batch_norm, {})):
        call = lambda x, m, v, op=op, named=given: op(x, m, v, **named)  # noqa: E731
        yield Case(f"{op.__name__} of given statistics", call, (x, mean, var))
    yield Case("local_response_norm", lambda x: F.local_response_norm(x, 3, alpha=0.3, k=2.0), (x,))
    for p in (1.0, 2.0, 3.0):
        yield Case(
            f"normalize p={p}", lambda x, p=p: F.normalize(x, p, dim=1), (draw(2, 3, low=0.3),)
        )
    yield Case("renorm", lambda x: rl.renorm(x, 2, 0, 0.7), (draw(3, 4),))


def attention() -> Iterator[Case]:
    draw = Draw(6)
    q, k, v = draw(1, 2, 3, 4), draw(1, 2, 5, 4), draw(1, 2, 5, 4)
    sdpa = F.scaled_dot_product_attention
    yield Case("attention", sdpa, (q, k, v))
    yield Case("attention scaled", lambda q, k, v: sdpa(q, k, v, scale=0.7), (q, k, v))
    yield Case(
        "attention causal",
        lambda q, k, v: sdpa(q, k, v, is_causal=True),
        (q, k[:, :, :3], v[:, :, :3]),
    )
    allowed = rl.tensor(np.tril(np.ones((3, 5), bool), 1))
    yield Case("attention masked", lambda q, k, v: sdpa(q, k, v, attn_mask=allowed), (q, k, v))
    yield Case(
        "attention biased", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), (q, k, v, draw(2, 3, 5))
    )
    grouped = lambda q, k, v: sdpa(q, k, v, enable_gqa=True)  # noqa: E731
    yield Case(
        "attention of groups", grouped, (draw(1, 4, 2, 3), draw(1, 2, 3, 3), draw(1, 2, 3, 3))
    )

    def dropped(q: Any, k: Any, v: Any) -> Any:
        rl.manual_seed(7)
        return sdpa(q, k, v, dropout_p=0.3)

    yield Case("attention with dropout", dropped, (q, k, v))
    for heads in (1, 2):
        module = rl.nn.MultiheadAttention(4, heads, batch_first=True).double()
        yield Case(
            f"MultiheadAttention {heads}", lambda q, m=module: m(q, q, q)[0], (draw(1, 3, 4),)
        )


# ---- interpolation ----


def interpolations() -> Iterator[Case]:
    draw = Draw(7)
    shapes = {
        "linear": (1, 2, 5),
        "bilinear": (1, 1, 4, 5),
        "bicubic": (1, 1, 4, 5),
        "trilinear": (1, 1, 3, 4, 3),
    }
    for mode, shape in shapes.items():
        for corners in (False, True):
            for where in (
                {"size": tuple(n + 2 for n in shape[2:])},
                {"scale_factor": 0.6},
                {"scale_factor": 1.7},
            ):
                named = {"mode": mode, "align_corners": corners, **where}
                yield Case(
                    f"interpolate {named}",
                    lambda x, n=named: F.interpolate(x, **n),
                    (draw(*shape),),
                )
    for mode in ("bilinear", "bicubic"):
        for corners in (False, True):
            named = {"size": (3, 2), "mode": mode, "antialias": True, "align_corners": corners}
            yield Case(
                f"interpolate {named}",
                lambda x, n=named: F.interpolate(x, **n),
                (draw(1, 1, 5, 6),),
            )
    for mode in ("nearest", "nearest-exact", "area"):
        for shape in ((1, 2, 5), (1, 1, 4, 5), (1, 1, 3, 2, 3)):
            named = {"mode": mode, "size": tuple(n + 1 for n in shape[2:])}
            yield Case(
                f"interpolate {named}", lambda x, n=named: F.interpolate(x, **n), (draw(*shape),)
            )
    keep = {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}
    yield Case("interpolate recomputed", lambda x: F.interpolate(x, **keep), (draw(1, 1, 3, 4),))
    for mode, padding, corners in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
    ):
        named = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        grid = draw(1, 2, 3, 2, low=-1.1, high=1.1)
        yield Case(
            f"grid_sample {named}",
            lambda x, g, n=named: F.grid_sample(x, g, **n),
            (draw(1, 1, 4, 3), grid),
        )
    for mode in ("bilinear", "nearest"):
        named = {"mode": mode, "align_corners": False}
        arrays = draw(1, 1, 3, 3, 3), draw(1, 1, 2, 2, 3, low=-0.8, high=0.8)
        yield Case(
            f"grid_sample 3d {named}", lambda x, g, n=named: F.grid_sample(x, g, **n), arrays
        )
    for corners in (False, True):
        call = lambda t, c=corners: F.affine_grid(t, (1, 1, 3, 2), align_corners=c)  # noqa: E731
        yield Case(f"affine_grid {corners}", call, (draw(1, 2, 3),))
    yield Case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (draw(1, 4, 2, 3),))
    yield Case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), (draw(1, 1, 4, 6),))
    yield Case("channel_shuffle", lambda x: F.channel_shuffle(x, 2), (draw(1, 4, 3),))


GROUPS = (
    convolutions,
    transposed_convolutions,
    padded_modules,
    pools,
    norms,
    attention,
    interpolations,
)
