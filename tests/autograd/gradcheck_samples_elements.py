"""Calls for gradcheck: indexing, ordering, running sums, scatters, in-place writes, losses.

See Note [Gradcheck samples].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rushlight as rl
from rushlight.nn import functional as F
from tests.autograd.gradcheck_samples import Case, Draw


def indexing() -> Iterator[Case]:
    draw = Draw(11)
    x = draw(3, 4, 2)
    again = rl.tensor([0, 2, 2, 0])
    mask = rl.tensor(np.arange(12).reshape(3, 4) % 3 == 0)
    gets: dict[str, Callable[[Any], Any]] = {
        "x[1]": lambda x: x[1],
        "x[:, ::2, None]": lambda x: x[:, ::2, None],
        "x[..., -1]": lambda x: x[..., -1],
        "x[again]": lambda x: x[again],
        "x[:, again]": lambda x: x[:, again],
        "x[again, again]": lambda x: x[again, again],
        "x[again, :, 0]": lambda x: x[again, :, 0],
        "x[[2, 0]]": lambda x: x[[2, 0]],
        "x[mask]": lambda x: x[mask],
        "x[mask[:, 0], :, 1]": lambda x: x[mask[:, 0], :, 1],
        "x[again[:2, None], again]": lambda x: x[again[:2, None], again],
    }
    for name, get in gets.items():
        yield Case(f"get {name}", get, (x,))

    def writes(place: Any) -> Callable[..., Any]:
        def call(x: Any, v: Any) -> Any:
            y = x.clone()
            y[place] = v
            return y

        return call

    places = {
        "1": (1, (4, 2)),
        ":, ::2": ((slice(None), slice(None, None, 2)), (3, 2, 2)),
        "[2, 0]": ([2, 0], (2, 4, 2)),
        "mask": (mask, (4, 2)),
        "..., 0": ((..., 0), (3, 4)),
        "broadcast": (slice(1, 3), (2,)),
    }
    for name, (place, shape) in places.items():
        yield Case(f"set {name}", writes(place), (x, draw(*shape)))
    for accumulate in (False, True):
        at = (rl.tensor([0, 2, 0] if accumulate else [0, 2, 1]), rl.tensor([1, 1, 1]))
        put = lambda x, v, at=at, a=accumulate: x.index_put(at, v, accumulate=a)  # noqa: E731
        yield Case(f"index_put accumulate={accumulate}", put, (x, draw(3, 2)))
    rows = rl.tensor([0, 2])
    yield Case("index_select", lambda x: x.index_select(1, again), (x,))
    yield Case(
        "index_add",
        lambda x, v: x.index_add(0, rl.tensor([2, 2]), v, alpha=0.5),
        (x, draw(2, 4, 2)),
    )
    yield Case("index_copy", lambda x, v: x.index_copy(0, rows, v), (x, draw(2, 4, 2)))
    yield Case("index_fill", lambda x, v: x.index_fill(0, rows, v), (x, draw()))
    yield Case("masked_fill", lambda x, v: x.masked_fill(mask[..., None], v), (x, draw()))
    yield Case("masked_select", lambda x: x.masked_select(mask[..., None]), (x,))
    yield Case("masked_scatter", lambda x, v: x.masked_scatter(mask[..., None], v), (x, draw(12)))
    yield Case("take", lambda x: x.take(rl.tensor([0, 5, 5, 23])), (x,))
    yield Case("put", lambda x, v: x.put(rl.tensor([0, 5, 5]), v, accumulate=True), (x, draw(3)))
    yield Case(
        "take_along_dim", lambda x: rl.take_along_dim(x, x.argsort(1), 1), (draw.distinct(3, 4),)
    )
    yield Case("diagonal_scatter", lambda x, v: rl.diagonal_scatter(x, v, 1), (draw(3, 3), draw(2)))
    yield Case("select_scatter", lambda x, v: rl.select_scatter(x, v, 1, 2), (x, draw(3, 2)))
    yield Case("slice_scatter", lambda x, v: rl.slice_scatter(x, v, 1, 0, 4, 2), (x, draw(3, 2, 2)))
    yield Case("where", lambda x, y: rl.where(mask[..., None], x, y), (x, draw(3, 4, 2)))
    yield Case(
        "embedding",
        lambda w: F.embedding(rl.tensor([[0, 2], [2, 0]]), w, padding_idx=1),
        (draw(3, 2),),
    )
    for mode in ("sum", "mean", "max"):
        bag = lambda w, m=mode: F.embedding_bag(  # noqa: E731
            rl.tensor([0, 2, 2, 1]), w, rl.tensor([0, 2]), mode=m
        )  # noqa: E731, RUF100
        yield Case(f"embedding_bag {mode}", bag, (draw.distinct(3, 2),))


def scatters() -> Iterator[Case]:
    draw = Draw(12)
    index = rl.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    once = rl.tensor([[0, 1, 2, 0], [2, 0, 1, 1]])
    x, src = draw.distinct(3, 4) + 0.03, draw.distinct(2, 4)
    yield Case("gather", lambda x: x.gather(0, index), (x,))
    yield Case("scatter", lambda x, v: x.scatter(0, once, v), (x, src))
    yield Case("scatter a number", lambda x: x.scatter(0, index, 1.5), (x,))
    yield Case("scatter_add", lambda x, v: x.scatter_add(0, index, v), (x, src))
    for kind in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            call = lambda x, v, k=kind, own=own: x.scatter_reduce(0, index, v, k, include_self=own)  # noqa: E731
            yield Case(f"scatter_reduce {kind} include_self={own}", call, (x, src))
        if kind != "sum":
            rows = lambda x, v, k=kind: x.index_reduce(0, rl.tensor([2, 2]), v, k)  # noqa: E731
            yield Case(f"index_reduce {kind}", rows, (x, src))
    none = rl.tensor([0, 0])
    zeros = np.array([[0.0, 0.4], [0.0, 0.7], [0.3, -0.2]])
    call = lambda x, v: x.scatter_reduce(0, none[None].expand(3, 2), v, "prod")  # noqa: E731
    yield Case("scatter_reduce prod of zeros", call, (draw(1, 2), zeros))


def orders() -> Iterator[Case]:
    draw = Draw(13)
    x = draw.distinct(3, 5)
    for down in (False, True):
        yield Case(f"sort descending={down}", lambda x, d=down: x.sort(1, d)[0], (x,))
        yield Case(f"topk largest={down}", lambda x, d=down: x.topk(3, 1, d)[0], (x,))
    yield Case("msort", rl.msort, (x,))
    yield Case("kthvalue", lambda x: x.kthvalue(2, 1)[0], (x,))
    for name in ("median", "nanmedian", "mode", "max", "min", "cummax", "cummin"):
        yield Case(name, lambda x, n=name: getattr(x, n)(1)[0], (x,))
    for name in (
        "amax",
        "amin",
        "max",
        "min",
        "median",
        "nanmedian",
        "logsumexp",
        "prod",
        "std",
        "var",
    ):
        yield Case(
            f"{name} of all",
            lambda x, n=name: getattr(rl, n)(x, *((0,) if n == "logsumexp" else ())),
            (x,),
        )
    yield Case("aminmax", lambda x: tuple(rl.aminmax(x, dim=1)), (x,))
    for way in ("linear", "lower", "higher", "midpoint"):
        shares = rl.tensor([0.3, 0.55], dtype=rl.float64)
        yield Case(
            f"quantile {way}",
            lambda x, q, w=way: rl.quantile(x, q, 1, interpolation=w),
            (x, shares),
        )
    yield Case("nanquantile", lambda x: rl.nanquantile(x, 0.3, 1), (x,))
    for op in (rl.maximum, rl.minimum, rl.fmax, rl.fmin):
        yield Case(op.__name__, op, (x, draw.distinct(3, 5) + 0.03))
    for bound in ((-0.4, 0.4), (None, 0.3), (-0.3, None)):
        yield Case(f"clamp {bound}", lambda x, b=bound: x.clamp(*b), (x,))
    yield Case("clamp by tensors", rl.clamp, (x, draw(5) - 1, draw(3, 1) + 1))


def running() -> Iterator[Case]:
    draw = Draw(14)
    x = draw(2, 4)
    for dim in (0, 1):
        for name in ("cumsum", "cumprod", "logcumsumexp"):
            yield Case(f"{name} {dim}", lambda x, n=name, d=dim: getattr(x, n)(d), (x,))
    one, two = np.array([0.5, 0.0, 2.0, -1.0]), np.array([0.5, 0.0, 0.0, -1.0])
    for name, zeros in (("one zero", one), ("two zeros", two)):
        yield Case(f"cumprod {name}", lambda x: x.cumprod(0), (zeros,))
        yield Case(f"prod {name}", lambda x: x.prod(), (zeros,))
        yield Case(f"prod along {name}", lambda x: x.prod(1), (np.stack([zeros, one]),))
    yield Case("diff", lambda x, p: rl.diff(x, n=2, prepend=p), (x, draw(2, 1)))
    yield Case("trapezoid", lambda y, x: rl.trapezoid(y, x), (x, draw(4)))
    yield Case("cumulative_trapezoid", lambda y, x: rl.cumulative_trapezoid(y, x), (x, draw(4)))
    yield Case(
        "gradient",
        lambda x, s: tuple(rl.gradient(x, spacing=(s,), dim=1)),
        (x, np.array([0.0, 1.0, 2.5, 3.0])),
    )
    yield Case("cumprod complex", lambda x: x.cumprod(0), (draw.complex(4),))
    yield Case("logcumsumexp complex", lambda x: x.logcumsumexp(0), (draw.complex(3),))


# ---- in place ----


def in_place() -> Iterator[Case]:
    draw = Draw(15)
    x = draw(3, 4, low=0.3, high=0.9)
    for name in [
        "exp_",
        "log_",
        "sqrt_",
        "sin_",
        "cos_",
        "tanh_",
        "sigmoid_",
        "relu_",
        "abs_",
        "neg_",
        "reciprocal_",
        "rsqrt_",
        "square_",
        "erf_",
        "erfinv_",
        "lgamma_",
        "digamma_",
        "floor_",
        "frac_",
        "log1p_",
        "expm1_",
        "atanh_",
        "asin_",
        "acos_",
        "tan_",
        "logit_",
        "sinc_",
        "i0_",
        "nan_to_num_",
        "trunc_",
    ]:
        yield Case(name, lambda x, n=name: getattr(x.clone(), n)(), (x,))
    for name in [
        "add_",
        "sub_",
        "mul_",
        "div_",
        "pow_",
        "atan2_",
        "hypot_",
        "xlogy_",
        "copysign_",
        "fmod_",
        "remainder_",
    ]:
        yield Case(
            name, lambda x, y, n=name: getattr(x.clone(), n)(y), (x, draw(3, 4, low=1.1, high=1.9))
        )
        if name == "hypot_":
            continue  # it saves the value that it overwrites, in PyTorch too
        yield Case(
            f"{name} twice", lambda x, n=name: getattr(getattr(x.clone(), n)(1.5), n)(1.3), (x,)
        )
    more: dict[str, Callable[..., Any]] = {
        "addcmul_": lambda x, y: x.clone().addcmul_(y, y, value=0.5),
        "addcdiv_": lambda x, y: x.clone().addcdiv_(y, y + 2, value=0.5),
        "lerp_": lambda x, y: x.clone().lerp_(y, 0.3),
        "addmm_": lambda x, y: x.clone().addmm_(y, y.T @ y, beta=0.5, alpha=2),
        "clamp_": lambda x, y: x.clone().clamp_(0.4, 0.8) * y,
        "cumsum_": lambda x, y: x.clone().cumsum_(1) * y,
        "cumprod_": lambda x, y: x.clone().cumprod_(1) * y,
        "tril_": lambda x, y: x.clone().tril_() * y,
        "masked_fill_": lambda x, y: x.clone().masked_fill_(y.detach() > 0, 2.0) * y,
        "copy_": lambda x, y: x.clone().copy_(y * 2) * x,
        "fill_": lambda x, y: x.clone().fill_(y[0, 0]) * x,
        "zero_": lambda x, y: x.clone().zero_() + y,
        "index_add_": lambda x, y: x.clone().index_add_(0, rl.tensor([1, 1, 0]), y),
        "scatter_": lambda x, y: x.clone().scatter_(1, rl.tensor([[0], [2], [1]]), y),
        "index_put_": lambda x, y: x.clone().index_put_(
            (rl.tensor([0, 0]),), y[:2], accumulate=True
        ),
        "transpose_": lambda x, y: x.clone().transpose_(0, 1) @ y,
        "a view": _through_a_view,
        "a view of a view": _through_two_views,
        "a view, read before": _read_before,
        "the base, seen through a view": _seen_through_a_view,
        "a diagonal": _through_a_diagonal,
    }
    for name, call in more.items():
        yield Case(name, call, (x, draw(3, 4)))


def _through_a_view(x: Any, y: Any) -> Any:
    z = x.clone()
    z[:, 1:3].mul_(y[:, :2])
    return z.exp()


def _through_two_views(x: Any, y: Any) -> Any:
    z = (x * 2).T
    z[1:][:, ::2].add_(y.T[1:, ::2])
    return z * z


def _read_before(x: Any, y: Any) -> Any:
    z = x.clone()
    part = z[0]
    first = part * 3
    part.mul_(y[0])
    return first, z, part


def _seen_through_a_view(x: Any, y: Any) -> Any:
    z = x.clone()
    part = z[1:]
    z.mul_(y)
    return part.exp()


def _through_a_diagonal(x: Any, y: Any) -> Any:
    z = x.clone()
    z.diagonal().copy_(y[0, :3] * 2)
    return z @ y.T


# ---- losses ----


def losses() -> Iterator[Case]:
    draw = Draw(16)
    for reduction in ("none", "mean", "sum"):
        yield from _losses(draw, reduction)


def _losses(draw: Draw, reduction: str) -> Iterator[Case]:
    named = {"reduction": reduction}
    x, y = draw(3, 4), draw(3, 4) + 3
    for name in ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"]:
        target = rl.tensor(np.sign(x) if name == "soft_margin_loss" else y)
        yield Case(
            f"{name} {reduction}",
            lambda x, y, n=name, r=named: getattr(F, n)(x, y, **r),
            (x, target),
        )
    both = lambda x, y, r=named: (  # noqa: E731
        F.smooth_l1_loss(x, y, beta=9.0, **r) + F.huber_loss(x, y, delta=0.3, **r)
    )  # noqa: E731, RUF100
    yield Case(f"smooth_l1 and huber of both {reduction}", both, (x, y))
    p, t = draw(3, 4, low=0.1, high=0.9), draw(3, 4, low=0.1, high=0.9)
    w = draw(4, low=0.5, high=2)
    weight = rl.tensor(w)
    bce = lambda p, t, r=named: F.binary_cross_entropy(p, t, weight, **r)  # noqa: E731
    yield Case(f"binary_cross_entropy {reduction}", bce, (p, t))
    logits = lambda x, t, w, r=named: F.binary_cross_entropy_with_logits(x, t, pos_weight=w, **r)  # noqa: E731
    yield Case(f"binary_cross_entropy_with_logits {reduction}", logits, (x, t, w))
    for logged in (False, True):
        kl = lambda x, t, r=named, k=logged: F.kl_div(x, t, log_target=k, **r)  # noqa: E731
        yield Case(f"kl_div log_target={logged} {reduction}", kl, (x, t))
    kinds = rl.tensor([0, 2, 3])
    for smooth in (0.0, 0.2):
        entropy = lambda x, r=named, s=smooth: F.cross_entropy(  # noqa: E731
            x, kinds, weight, label_smoothing=s, ignore_index=2, **r
        )
        yield Case(f"cross_entropy smoothing={smooth} {reduction}", entropy, (x,))
    soft = lambda x, t, r=named: F.cross_entropy(x, t.softmax(1), weight, **r)  # noqa: E731
    yield Case(f"cross_entropy of shares {reduction}", soft, (x, t))
    nll = lambda x, r=named: F.nll_loss(x.log_softmax(1), rl.tensor([[0, 1], [3, 2]]), **r)  # noqa: E731
    yield Case(f"nll_loss {reduction}", nll, (draw(2, 4, 2),))
    gauss = lambda x, y, v, r=named: F.gaussian_nll_loss(x, y, v, full=True, **r)  # noqa: E731
    yield Case(f"gaussian_nll_loss {reduction}", gauss, (x, y, p))
    for logged in (False, True):
        poisson = lambda x, r=named, k=logged: F.poisson_nll_loss(  # noqa: E731
            x, rl.tensor(y), log_input=k, full=True, **r
        )  # noqa: E731, RUF100
        yield Case(f"poisson_nll_loss log_input={logged} {reduction}", poisson, (p,))
    margin = lambda x, y, r=named: F.margin_ranking_loss(  # noqa: E731
        x, y, rl.tensor([1.0, -1.0, 1.0]).double(), 5.0, **r
    )  # noqa: E731, RUF100
    yield Case(f"margin_ranking_loss {reduction}", margin, (draw(3), draw(3)))
    hinge = lambda x, r=named: F.hinge_embedding_loss(  # noqa: E731
        x, rl.tensor([1.0, -1.0, 1.0]).double(), 3.0, **r
    )  # noqa: E731, RUF100
    yield Case(f"hinge_embedding_loss {reduction}", hinge, (draw(3),))
    signs = rl.tensor([1, -1, 1])
    cosine = lambda x, y, r=named: F.cosine_embedding_loss(x, y, signs, -3.0, **r)  # noqa: E731
    yield Case(f"cosine_embedding_loss {reduction}", cosine, (x, y))
    triplet = lambda a, b, c, r=named: F.triplet_margin_loss(a, b, c, margin=9.0, swap=True, **r)  # noqa: E731
    yield Case(f"triplet_margin_loss {reduction}", triplet, (x, y, draw(3, 4) - 2))
    for p_norm in (1, 2):
        multi = lambda x, r=named, p=p_norm: F.multi_margin_loss(x, kinds, p=p, margin=4.0, **r)  # noqa: E731
        yield Case(f"multi_margin_loss p={p_norm} {reduction}", multi, (x,))
    labels = rl.tensor([[1, 3, -1, 0], [0, -1, 0, 0], [2, 1, 0, -1]])
    many = lambda x, r=named: F.multilabel_margin_loss(x * 0.1, labels, **r)  # noqa: E731
    yield Case(f"multilabel_margin_loss {reduction}", many, (x,))
    ones = rl.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0], [1, 1, 0, 0]]).double()
    soft_many = lambda x, r=named: F.multilabel_soft_margin_loss(x, ones, **r)  # noqa: E731
    yield Case(f"multilabel_soft_margin_loss {reduction}", soft_many, (x,))
    ctc = lambda x, r=named: F.ctc_loss(  # noqa: E731
        x.log_softmax(2), rl.tensor([[1, 2], [2, 2]]), rl.tensor([5, 4]), rl.tensor([2, 1]), **r
    )
    yield Case(f"ctc_loss {reduction}", ctc, (draw(5, 2, 3),))


# ---- recurrence, products, distances ----


def recurrences() -> Iterator[Case]:
    draw = Draw(17)
    x, h, c = draw(2, 3), draw(2, 2), draw(2, 2)
    for kind, gates in ((rl.nn.RNNCell, 1), (rl.nn.GRUCell, 3), (rl.nn.LSTMCell, 4)):
        cell = kind(3, 2).double()

        def step(x: Any, h: Any, c: Any, w: Any, cell: Any = cell) -> Any:
            state = (h, c) if isinstance(cell, rl.nn.LSTMCell) else h + c
            return rl.func.functional_call(cell, {"weight_ih": w}, (x, state))

        yield Case(kind.__name__, step, (x, h, c, draw(2 * gates, 3)))
    for kind in (rl.nn.RNN, rl.nn.GRU, rl.nn.LSTM):
        for two_ways in (False, True):
            net = kind(2, 2, num_layers=2, bidirectional=two_ways, batch_first=True).double()
            yield Case(
                f"{kind.__name__} bidirectional={two_ways}",
                lambda x, n=net: n(x)[0],
                (draw(2, 3, 2),),
            )


def products() -> Iterator[Case]:
    draw = Draw(18)
    a, b, c = draw(2, 3), draw(3, 4), draw(4)
    for text, parts in (
        ("ij,jk,k->i", (a, b, c)),
        ("ij,jk->ki", (a, b)),
        ("ij->j", (a,)),
        ("ii->i", (draw(3, 3),)),
        ("bij,bjk->bik", (draw(2, 2, 3), draw(2, 3, 2))),
        ("...i,...i->...", (draw(2, 3), draw(3))),
        ("ij,kl->jl", (a, b)),
    ):
        yield Case(f"einsum {text}", lambda *v, t=text: rl.einsum(t, *v), parts)
    yield Case(
        "einsum complex",
        lambda x, y: rl.einsum("ij,kj->ik", x, y),
        (draw.complex(2, 2), draw.complex(3, 2)),
    )
    yield Case("tensordot", lambda x, y: rl.tensordot(x, y, dims=2), (draw(2, 3, 2), draw(3, 2, 2)))
    yield Case("bilinear", F.bilinear, (draw(2, 3), draw(2, 2), draw(3, 3, 2), draw(3)))
    yield Case(
        "baddbmm",
        lambda m, x, y: rl.baddbmm(m, x, y, beta=0.5, alpha=2),
        (draw(2, 2, 2), draw(2, 2, 3), draw(2, 3, 2)),
    )
    yield Case("addbmm", rl.addbmm, (draw(2, 2), draw(2, 2, 3), draw(2, 3, 2)))
    yield Case("chain_matmul", lambda *m: rl.linalg.multi_dot(m), (a, b, draw(4, 2)))
    yield Case("kron", rl.kron, (a, draw(2, 2)))
    yield Case(
        "matmul of vectors", lambda x, y, m: (x @ y, m @ x, x @ m.T), (draw(3), draw(3), draw(2, 3))
    )
    yield Case("matmul that broadcasts", rl.matmul, (draw(2, 1, 2, 3), draw(3, 3, 2)))
    yield Case("vdot complex", rl.vdot, (draw.complex(3), draw.complex(3)))
    yield Case("cross", rl.linalg.cross, (draw(2, 3), draw(2, 3)))
    x, y = draw(3, 4), draw(2, 4) + 3
    for p in (0.0, 0.7, 1.0, 1.5, 2.0, 3.0, float("inf")):
        yield Case(f"cdist p={p}", lambda x, y, p=p: rl.cdist(x, y, p), (x, y))
        yield Case(f"pdist p={p}", lambda x, p=p: F.pdist(x, p), (draw.distinct(3, 2) ** 3 * 9,))
        yield Case(f"dist p={p}", lambda x, y, p=p: rl.dist(x[:2], y, p), (x, y))
    yield Case("pairwise_distance", lambda x, y: F.pairwise_distance(x[:2], y, 3.0), (x, y))
    yield Case("cosine_similarity", lambda x, y: F.cosine_similarity(x[:2], y, 1), (x, y))
    yield Case("cov", lambda x, w: rl.cov(x, aweights=w.abs()), (x, draw(4, low=0.5)))
    yield Case("corrcoef", rl.corrcoef, (x,))


def special_functions() -> Iterator[Case]:
    draw = Draw(19)
    sp = rl.special
    near, unit = draw(5, low=0.3, high=2.7), draw(5, low=0.1, high=0.9)
    names = [
        "bessel_j0",
        "bessel_j1",
        "bessel_y0",
        "bessel_y1",
        "digamma",
        "entr",
        "erf",
        "erfc",
        "erfcx",
        "exp2",
        "expit",
        "expm1",
        "gammaln",
        "i0",
        "i0e",
        "i1",
        "i1e",
        "log1p",
        "log_ndtr",
        "modified_bessel_i0",
        "modified_bessel_i1",
        "modified_bessel_k0",
        "modified_bessel_k1",
        "ndtr",
        "psi",
        "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1",
        "sinc",
        "spherical_bessel_j0",
        "airy_ai",
        "softmax",
    ]
    for name in names:
        call = lambda x, n=name: getattr(sp, n)(x, *((0,) if n == "softmax" else ()))  # noqa: E731
        yield Case(f"special.{name}", call, (near,))
    for name in ["erfinv", "logit", "ndtri"]:
        yield Case(f"special.{name}", lambda x, n=name: getattr(sp, n)(x), (unit,))
    for name in ["xlogy", "xlog1py", "zeta"]:
        yield Case(
            f"special.{name}",
            lambda x, y, n=name: getattr(sp, n)(x, y),
            (near + 1.2, draw(5, low=0.3, high=3)),
        )
    for name in ["gammainc", "gammaincc"]:
        yield Case(
            f"special.{name}", lambda x, n=name: getattr(sp, n)(rl.tensor(near), x), (near + 0.5,)
        )
    for n in range(4):
        yield Case(f"polygamma {n}", lambda x, n=n: rl.polygamma(n, x), (near,))
    yield Case("multigammaln", lambda x: sp.multigammaln(x, 2), (near + 1,))
    yield Case(
        "at 0",
        lambda x: (sp.i0(x), sp.i1(x), rl.sinc(x), sp.bessel_j0(x), sp.bessel_j1(x)),
        (np.zeros(1),),
    )


GROUPS = (
    indexing,
    scatters,
    orders,
    running,
    in_place,
    losses,
    recurrences,
    products,
    special_functions,
)
