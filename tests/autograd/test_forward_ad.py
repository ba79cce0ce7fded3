"""Forward mode by dual tensors. See Note [Dual values]."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import rushlight as rl
import rushlight.autograd.forward_ad as fwAD
import rushlight.nn.functional as F
from rushlight import func
from rushlight.tape.record.state import STATE
from rushlight.utils.checkpoint import checkpoint
from tests.catalog.rows import ROWS
from tests.catalog.run import call, samples_of

float64 = rl.float64


def draw(*shape: int, seed: int = 0) -> Any:
    return rl.tensor(np.random.default_rng(seed).uniform(0.2, 1.5, shape))


X, V = draw(2, 3), draw(2, 3, seed=1) - 0.8


def tangent(f: Any, x: Any = X, v: Any = V) -> Any:
    with fwAD.dual_level():
        return fwAD.unpack_dual(f(fwAD.make_dual(x, v))).tangent


def close(got: Any, want: Any, **named: Any) -> None:
    np.testing.assert_allclose(
        got.detach().cpu().numpy(),
        want.detach().cpu().numpy(),
        **{"rtol": 1e-9, "atol": 1e-12, **named},
    )


# ---- every op ----

FLOAT_ROWS = [
    row
    for row in ROWS
    if float64 in row.dtypes and not row.random and not row.makes and samples_of(row, float64)
]


def twice(made: list[Any], leaves: list[Any], ways: list[Any]) -> list[Any]:
    """The derivative along `ways`, as the derivative of the gradients by the incoming gradient."""
    seeds = [rl.zeros_like(y).requires_grad_() for y in made]
    pulled = rl.autograd.grad(made, leaves, seeds, create_graph=True, allow_unused=True)
    live = [(p, t) for p, t in zip(pulled, ways, strict=True) if p is not None and p.requires_grad]
    if not live:
        return [rl.zeros_like(y) for y in made]
    return list(
        rl.autograd.grad([p for p, _ in live], seeds, [t for _, t in live], materialize_grads=True)
    )


@pytest.mark.parametrize("row", FLOAT_ROWS, ids=repr)
def test_every_op_carries_tangents(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = next((s for s in samples_of(row, float64) if s.smooth), None)
    if sample is None:
        return
    leaves: list[Any] = []
    rl.manual_seed(0)
    made = list(call(row, sample, float64, "cpu", leaves=leaves))
    recorded = [i for i, y in enumerate(made) if isinstance(y, rl.Tensor) and y.requires_grad]
    if not recorded:
        return
    ways = [draw(*x.shape, seed=i).to(x.dtype) - 0.7 for i, x in enumerate(leaves)]
    refused = None
    try:
        want = twice([made[i] for i in recorded], leaves, ways)
    except rl.NotDifferentiable as error:
        refused = error
    given = iter(ways)
    before = rl.Tensor.requires_grad_

    def dual(self: Any, requires_grad: bool = True) -> Any:
        return fwAD.make_dual(self, next(given))

    rl.manual_seed(0)
    with fwAD.dual_level():
        monkeypatch.setattr(rl.Tensor, "requires_grad_", dual)
        try:
            outs = call(row, sample, float64, "cpu", leaves=[])
        except rl.NotDifferentiable:
            assert refused is not None
            return
        finally:
            monkeypatch.setattr(rl.Tensor, "requires_grad_", before)
        assert refused is None
        for i, expected in zip(recorded, want, strict=True):
            found = fwAD.unpack_dual(outs[i]).tangent
            assert not outs[i].requires_grad
            if found is None:
                assert not expected.count_nonzero().item(), "a tangent was lost"
            else:
                loose = 1e-6 if row.name == "lobpcg" else 1e-9  # it iterates to a tolerance
                close(found, expected, rtol=loose, atol=loose, equal_nan=True)
    assert next(given, None) is None


# ---- writes, views, modes ----


def written(d: Any) -> Any:
    y = d * 1
    y.mul_(d)
    y[0] = y[1] * 2
    y[:, 1] = 3.0
    return y


def written_view(d: Any) -> Any:
    y = d * 1
    y[0].exp_()
    return y


def seen_after(d: Any) -> Any:
    y = d * 1
    row = y[0]
    y.sin_()
    return row


def shaped_in_place(d: Any) -> Any:
    y = d * 1
    row = y[0]
    y.t_()
    y[1] *= 3
    return row @ y


def into_zeros(d: Any) -> Any:
    y = rl.zeros(2, 3, dtype=float64)
    y[1] = d[0]
    y += d
    y.add_(d, alpha=2)
    return y.clamp_(-1, 2.5)


def complex_parts(d: Any) -> Any:
    z = rl.complex(d, d * d)
    z.real[0] = d[1]
    return rl.view_as_real(z * z)


@pytest.mark.parametrize(
    "f", [written, written_view, seen_after, shaped_in_place, into_zeros, complex_parts]
)
def test_writes_in_place(f: Any) -> None:
    close(tangent(f), func.jvp(f, (X,), (V,))[1])


def test_a_write_of_a_constant_ends_the_tangent() -> None:
    assert not tangent(lambda d: (d * 2).zero_()).any()
    assert not tangent(lambda d: d.floor()).any()
    assert tangent(lambda d: d.detach() * 2) is None and tangent(lambda d: d.argmax(1)) is None
    close(tangent(lambda d: d.detach() * d), X * V)


def test_modes() -> None:
    @rl.no_grad()
    def quiet(d: Any) -> Any:
        return d.sin() * d

    close(tangent(quiet), (X.cos() * X + X.sin()) * V)

    def inferred(d: Any) -> Any:
        with rl.inference_mode():
            return d.exp()

    close(tangent(inferred), X.exp() * V)
    with rl.autocast("cpu", dtype=rl.bfloat16):
        close(
            tangent(lambda d: d.float() @ d.float().t()), X @ V.t() + V @ X.t(), rtol=0.1, atol=0.1
        )


def test_on_devices(device: str) -> None:
    x, v = X.float().to(device), V.float().to(device)
    w = draw(4, 3, seed=2).float().to(device)

    def f(d: Any) -> Any:
        y = F.layer_norm(F.gelu(F.linear(d, w)), (4,))
        y[0].mul_(2)
        return F.softmax(y, -1) @ w

    want = func.jvp(f, (x,), (v,))[1]
    close(tangent(f, x, v), want, rtol=2e-4, atol=1e-5)


# ---- together with reverse mode ----


def test_reverse_over_forward_and_forward_over_reverse() -> None:
    x = X.clone().requires_grad_()
    with fwAD.dual_level():
        d = fwAD.make_dual(x, V)
        y = (d**3).sum() + d.exp().prod()
        along = fwAD.unpack_dual(y).tangent
        (g,) = rl.autograd.grad(along, x, retain_graph=True)
        hessian = func.hessian(lambda x: (x**3).sum() + x.exp().prod())(X)
        want = (hessian * V).sum((2, 3))
        close(g, want)
        (g,) = rl.autograd.grad(y, x)  # nothing is recorded, the tangent is still followed
        close(fwAD.unpack_dual(g).tangent, want)
        assert fwAD.unpack_dual(x).tangent is None and fwAD.unpack_dual(d).primal.requires_grad


def test_backward_into_leaves() -> None:
    p = rl.ones(2, 3, dtype=float64, requires_grad=True)
    with fwAD.dual_level():
        d = fwAD.make_dual(X, V)
        for _ in range(2):
            ((d * p).tanh() * p + d * p * p * p.exp()).sum().backward()
        found = fwAD.unpack_dual(p.grad).tangent

    def gradient(x: Any) -> Any:
        return func.grad(lambda p: ((x * p).tanh() * p + x * p * p * p.exp()).sum())(p.detach())

    close(found, 2 * func.jvp(gradient, (X,), (V,))[1])


def test_modules_and_many_layers() -> None:
    rl.manual_seed(0)
    model = rl.nn.Sequential(
        rl.nn.Conv2d(1, 2, 3, padding=1),
        rl.nn.BatchNorm2d(2),
        rl.nn.ReLU(),
        rl.nn.MaxPool2d(2),
        rl.nn.Flatten(),
        rl.nn.Linear(8, 3),
    ).double()
    model.eval()
    x, v = draw(2, 1, 4, 4), draw(2, 1, 4, 4, seed=3)
    want = func.jvp(lambda x: model(x), (x,), (v,))[1]
    close(tangent(model, x, v), want)
    params = dict(model.named_parameters())
    ways = {k: draw(*p.shape, seed=5) for k, p in params.items()}
    with fwAD.dual_level():
        duals = {k: fwAD.make_dual(p, ways[k]) for k, p in params.items()}
        found = fwAD.unpack_dual(func.functional_call(model, duals, (x,))).tangent
    plain = {k: p.detach() for k, p in params.items()}
    close(found, func.jvp(lambda q: func.functional_call(model, q, (x,)), (plain,), (ways,))[1])


def test_checkpoint_and_transforms_inside() -> None:
    p = draw(2, 3, seed=4).requires_grad_()

    def f(d: Any) -> Any:
        y = checkpoint(lambda a: (a * p).exp().sin(), d, use_reentrant=False)
        return rl.autograd.grad(y.sum(), p)[0]

    close(
        tangent(f),
        func.jvp(lambda x: func.grad(lambda p: (x * p).exp().sin().sum())(p.detach()), (X,), (V,))[
            1
        ],
    )
    close(tangent(func.grad(lambda x: (x**4).sum())), 12 * X**2 * V)
    rows = tangent(lambda d: rl.vmap(lambda r: (r * r.sum()).exp())(d))
    close(rows, func.jvp(lambda x: (x * x.sum(1, keepdim=True)).exp(), (X,), (V,))[1])


def test_inside_vmap() -> None:
    def along(x: Any, v: Any) -> Any:
        with fwAD.dual_level():
            return fwAD.unpack_dual((fwAD.make_dual(x, v) ** 2).sum() * x.sum()).tangent

    ways = draw(5, 3, seed=7)
    close(rl.vmap(along, in_dims=(None, 0))(X[0], ways), (2 * X[0] * ways).sum(1) * X[0].sum())
    close(rl.vmap(along)(X, V), (2 * X * V).sum(1) * X.sum(1))


class Cube(rl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.factor = factor
        return x**3 * factor, x.argmax()

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x * x * g * ctx.factor, None


class CubeForward(Cube):
    @staticmethod
    def jvp(ctx: Any, t: Any, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 7 * x * x * t * ctx.factor, None  # 7 distinguishes it from backward's own gradient


def test_users_functions() -> None:
    for kind, number in ((Cube, 3), (CubeForward, 7)):
        close(tangent(lambda d, kind=kind: kind.apply(d, 2.0)[0]), number * 2 * X * X * V)
        with fwAD.dual_level():
            y, place = kind.apply(fwAD.make_dual(X, V), 2.0)
            assert not y.requires_grad and fwAD.unpack_dual(place).tangent is None
            p = X.clone().requires_grad_()
            y = kind.apply(fwAD.make_dual(p * 1, V), 2.0)[0]
            t = fwAD.unpack_dual(y).tangent
            (g,) = rl.autograd.grad(t.sum(), p)
            close(g, 2 * number * 2 * X * V)
            assert y.requires_grad
    rows = rl.vmap(lambda x, v: tangent(lambda d: Cube.apply(d, 2.0)[0], x, v))(X, V)
    close(rows, 6 * X * X * V)


# ---- levels ----


def test_levels_and_what_is_refused() -> None:
    assert fwAD.enter_dual_level() == 0
    d = fwAD.make_dual(X, V)
    assert fwAD.unpack_dual(d).primal.data_ptr() == X.data_ptr()
    with pytest.raises(RuntimeError, match="nest"):
        fwAD.enter_dual_level()
    with pytest.raises(RuntimeError, match="already"):
        fwAD.make_dual(d, V)
    with pytest.raises(RuntimeError, match="detach"):
        (d * 1).resize_(3)
    p = rl.ones(2, 3, dtype=float64, requires_grad=True)
    with (
        pytest.raises(RuntimeError, match="packing"),
        rl.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        d * p
    with pytest.raises(RuntimeError, match="outside of the level"), rl.no_grad():
        w = fwAD.make_dual(p.detach().clone().requires_grad_(), V)
        w.grad = rl.ones(2, 3, dtype=float64)
        rl.optim.SGD([w], lr=0.1).step()
    fwAD.exit_dual_level()
    assert STATE.get().dual is None and not STATE.get().special
    assert fwAD.unpack_dual(d).tangent is None
    for call_it in (lambda: fwAD.make_dual(X, V), fwAD.exit_dual_level):
        with pytest.raises(RuntimeError, match="level"):
            call_it()
    with fwAD.dual_level():
        assert fwAD.unpack_dual(d).tangent is None
        for bad in (V[0], V.to(rl.complex128)):
            with pytest.raises(RuntimeError):
                fwAD.make_dual(X, bad)
        with pytest.raises(ValueError, match="floating point"):
            fwAD.make_dual(X.long(), V)
        with pytest.raises(TypeError):
            fwAD.make_dual(X, 1.0)
        assert fwAD.unpack_dual(fwAD.make_dual(X, V.float())).tangent.dtype is float64


def test_tangents_go_with_their_tensors() -> None:
    gc.collect()
    with fwAD.dual_level():
        level = STATE.get().dual
        d = fwAD.make_dual(X, V)
        for _ in range(5):
            d = d.sin() * 2
        assert len(level.tangents) == 1
        del d
        assert not level.tangents


def test_an_error_inside_ends_the_level() -> None:
    with pytest.raises(ZeroDivisionError), fwAD.dual_level():
        1 / 0  # noqa: B018
    assert STATE.get().dual is None


def test_inside_a_budget_and_in_anomaly_mode() -> None:
    x, v = draw(64, 64), draw(64, 64, seed=2)

    def net(d: Any) -> Any:
        for _ in range(6):
            d = (d @ x / 64).tanh() * d.sigmoid()
        return d

    want = tangent(net, x, v)
    with rl.memory.budget(64 * 64 * 8 * 13 + rl.memory.reserved()):
        assert rl.equal(tangent(net, x, v), want)
    with rl.autograd.detect_anomaly():
        assert rl.equal(tangent(net, x, v), want)
