"""Parallel backward: the same bits, an end on every error, the caller's modes in every worker."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import rushlight as rl
from rushlight import memory
from rushlight.tape.walk import parallel
from rushlight.utils.checkpoint import checkpoint
from tests.time_limit import WAIT, time_limit as time_limit

COUNTS = (2, 3, 8)


@pytest.fixture(autouse=True)
def every_node_is_worth_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LONG", 0)


Graph = tuple[list[rl.Tensor], list[rl.Tensor]]  # roots and leaves


def rough(*shape: int, seed: int = 0, device: str = "cpu") -> rl.Tensor:
    """Numbers of very different sizes, so that another order of additions gives other bits."""
    draw = np.random.default_rng(seed)
    numbers = draw.standard_normal(shape) * 10.0 ** draw.integers(-3, 4, shape)
    return rl.tensor(numbers.astype(np.float32), device=device, requires_grad=True)


class Halves(rl.autograd.Function):
    """Two results; of three arguments the second gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any, factor: float) -> Any:
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return x * factor, x * y

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        _, y = ctx.saved_tensors
        return first * ctx.factor + second * y, None, None


def chain(device: str) -> Graph:
    x = rough(30, device=device)
    y = x
    for _ in range(50):
        y = (y * 1.5).sin()
    return [y.sum()], [x]


def diamond(device: str) -> Graph:
    x = rough(40, device=device)
    a = x.sin()
    return [(a * 2 + a.exp() * x + a * a).sum()], [x]


def fan(device: str) -> Graph:
    """A leaf reached along many edges, some of them from one node."""
    x = rough(7, 5, device=device)
    parts = [(x * float(i) * x).sin() + x for i in range(12)]
    return [rl.stack(parts).sum() + (x + x).sum() + rl.cat([x, x]).exp().mean()], [x]


def layers(device: str) -> Graph:
    x = rough(9, 8, device=device)
    weights = [rough(8, 8, seed=i, device=device) for i in range(1, 5)]
    h, kept = x, []
    for w in weights:
        h = (h @ w).tanh() + h
        kept.append(h)
    return [sum([k.mean() for k in kept], start=(h * h).sum())], [x, *weights]


def several_results(device: str) -> Graph:
    """Ops with several results, some of them unused: those get no gradients."""
    x, y = rough(6, 4, device=device), rough(6, 4, seed=3, device=device)
    a, _, c = x.split(2)
    values, _ = (x * y).sort(dim=1)
    most, _ = values.max(dim=0)
    first, second = Halves.apply(x, y, 3.0)
    _, unused = Halves.apply(y, x, 2.0)
    low = y.unbind(1)[2]
    return [
        (a * c).sum() + most.sum() + (first * second).sum() + unused.sin().sum() + low.exp().sum()
    ], [x, y]


def roots_above_roots(device: str) -> Graph:
    x = rough(10, device=device)
    a = x * x
    b = a.sin()
    return [a.sum(), b.sum(), (b * a + x).sum(), b.sum()], [x]


def unbroadcast(device: str) -> Graph:
    x, y = rough(5, 1, device=device), rough(6, seed=2, device=device)
    narrow = rl.tensor(
        [1.5, -2.0, 0.25, 1.0, 3.0, 7.0], dtype=rl.float16, device=device, requires_grad=True
    )
    return [((x * y) + (x - narrow) * y).sum() + (narrow * narrow).sum()], [x, y, narrow]


def written_in_place(device: str) -> Graph:
    x, y = rough(6, 6, device=device), rough(6, seed=5, device=device)
    z = x * 2
    z[1:3] = y * y
    z += y
    z[:, 2].mul_(3.0)
    return [(z * z).sum() + z[0].sin().sum()], [x, y]


GRAPHS: list[Callable[[str], Graph]] = [
    chain, diamond, fan, layers, several_results, roots_above_roots, unbroadcast, written_in_place,
]  # fmt: skip


def bits(values: Any) -> list[bytes | None]:
    return [None if v is None else v.detach().numpy().tobytes() for v in values]


def run(
    graph: Callable[[str], Graph], device: str, workers: int, times: int = 1, **options: Any
) -> list[bytes | None]:
    roots, leaves = graph(device)
    for i in range(times):
        more = {"retain_graph": True} if i < times - 1 else options
        rl.autograd.backward(roots, workers=workers, **more)
    return bits(leaf.grad for leaf in leaves)


# ---- bits ----


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_bits_are_those_of_one_thread(graph, device):
    alone = run(graph, device, 1)
    for workers in COUNTS:
        assert run(graph, device, workers) == alone


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_bits_with_accumulation_over_calls(graph):
    alone = run(graph, "cpu", 1, times=3)
    for workers in COUNTS:
        assert run(graph, "cpu", workers, times=3) == alone


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_bits_of_grad_with_inputs(graph):
    def asked(workers: int) -> list[bytes | None]:
        roots, leaves = graph("cpu")
        found = rl.autograd.grad(roots, leaves, allow_unused=True, workers=workers)
        assert all(leaf.grad is None for leaf in leaves)
        roots[-1].detach_()
        return bits(found)

    alone = asked(1)
    assert all(asked(workers) == alone for workers in COUNTS)


@pytest.mark.parametrize("graph", [diamond, fan, layers, unbroadcast], ids=lambda g: g.__name__)
def test_bits_of_second_derivatives(graph):
    def twice(workers: int) -> list[bytes | None]:
        roots, leaves = graph("cpu")
        first = rl.autograd.grad(roots, leaves, create_graph=True, workers=workers)
        total = sum([g.float().sin().sum() for g in first], start=first[0].float().sum())
        total.backward(workers=workers)
        return bits([*first, *[leaf.grad for leaf in leaves]])

    alone = twice(1)
    assert all(twice(workers) == alone for workers in COUNTS)


def test_inputs_of_backward():
    for workers in (1, *COUNTS):
        (root,), (x, *weights) = layers("cpu")
        root.backward(inputs=[weights[0], weights[2]], workers=workers)
        assert x.grad is None and weights[1].grad is None
        assert weights[0].grad is not None and weights[2].grad is not None


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub": lambda a, b: a - b,
    "sin": lambda a, b: a.sin(),
    "row": lambda a, b: a - b[0],
    "sums": lambda a, b: a + b.sum(0, keepdim=True),
    "turn": lambda a, b: a.t() * 0.5 + b,
    "matmul": lambda a, b: (a @ b) * 0.1,
    "halves": lambda a, b: rl.cat(list(reversed(a.chunk(2))), 0),
    "most": lambda a, b: rl.maximum(a, b),
    "sort": lambda a, b: a.sort(dim=0)[0],
    "cut": lambda a, b: a.detach() + b,
}


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99), st.integers(0, 99)),
        min_size=2,
        max_size=30,
    ),
    st.lists(st.integers(0, 99), min_size=1, max_size=4),
)
def test_bits_of_any_graph(steps, ends_at):
    def made(device: str) -> Graph:
        values = leaves = [rough(4, 4, seed=i, device=device) for i in range(3)]
        for name, i, j in steps:
            values = [*values, STEPS[name](values[i % len(values)], values[j % len(values)])]
        roots = [values[-1 - (i % len(steps))].mean() for i in ends_at]
        return [r for r in roots if r.requires_grad] or [leaves[0].sum()], leaves

    alone = run(made, "cpu", 1)
    for workers in COUNTS:
        assert run(made, "cpu", workers) == alone


@pytest.mark.parametrize("late", range(4))
def test_a_late_gradient_is_added_in_its_place(late):
    def sums(workers: int) -> float:
        x = rl.tensor([1.0], requires_grad=True)
        branches = []
        for i, factor in enumerate([1e8, 1.0, -1e8, 3.0]):
            branch = x * factor
            branch.register_hook(lambda g, i=i: time.sleep(0.05 if i == late else 0.0))
            branches.append(branch)
        rl.stack(branches).sum().backward(workers=workers)
        return x.grad.item()

    assert sums(8) == sums(1)


def test_a_deep_graph():
    def ends_of(workers: int) -> list[bytes | None]:
        x = rough(2)
        y, z = x, x
        for _ in range(50_000):
            y, z = y * 1.00001, z * 0.99999
        (y + z).sum().backward(workers=workers)
        return bits([x.grad])

    assert ends_of(2) == ends_of(1)


def test_a_deep_chain_and_a_wide_graph_have_no_quadratic_cost():
    x = rough(2)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.sum().backward(workers=4)
    leaves = [rl.ones(1, requires_grad=True) for _ in range(5_000)]
    total = rl.cat(leaves).sum()
    for part in leaves:
        total = total * part
    total.backward(workers=4)
    assert leaves[77].grad.item() == 5001.0


# ---- hooks and modes ----


def test_hooks_run_once_on_the_sum():
    for workers in (1, *COUNTS):
        seen: list[tuple[str, list[float]]] = []
        x = rl.tensor([2.0], requires_grad=True)
        a = x * 3
        a.register_hook(lambda g, seen=seen: seen.append(("a", g.tolist())) or g * 2)
        x.register_hook(lambda g, seen=seen: seen.append(("x", g.tolist())))
        x.register_post_accumulate_grad_hook(
            lambda p, seen=seen: seen.append(("post", p.grad.tolist()))
        )
        (a.sin() + a * 5 + a.exp() * 0 + x).sum().backward(workers=workers)
        assert [name for name, _ in seen] == ["a", "x", "post"]
        assert seen[1] == ("x", x.grad.tolist()) == ("x", seen[2][1])


def test_workers_have_the_callers_modes():
    seen: dict[str, Any] = {}

    def look(name: str) -> Callable[[Any], None]:
        def hook(g: Any) -> None:
            product = rl.ones(2, 2) @ rl.ones(2, 2)
            seen[name] = (rl.is_grad_enabled(), product.dtype, threading.current_thread())
            time.sleep(0.02)

        return hook

    def go(**options: Any) -> list[Any]:
        x = rl.ones(3, requires_grad=True)
        a, b = x * 2, x * 3
        a.register_hook(look("a"))
        b.register_hook(look("b"))
        (a * b).sum().backward(workers=2, **options)
        return [seen["a"], seen["b"]]

    plain = go()
    assert [s[:2] for s in plain] == [(False, rl.float32)] * 2
    assert all(s[2] is not threading.main_thread() for s in plain)
    with rl.autocast("cpu", dtype=rl.bfloat16):
        assert [s[:2] for s in go()] == [(False, rl.bfloat16)] * 2
    assert [s[:2] for s in go(create_graph=True)] == [(True, rl.float32)] * 2


def test_independent_branches_run_at_once():
    meet = threading.Barrier(3)
    x = rl.ones(3, requires_grad=True)
    branches = [x * float(i) for i in range(3)]
    for branch in branches:
        branch.register_hook(lambda g: meet.wait(WAIT) * 0 or None)
    rl.stack(branches).sum().backward(workers=3)
    assert not meet.broken


def test_one_worker_and_chains_stay_in_the_callers_thread():
    seen: list[threading.Thread] = []
    for workers in (1, 4):
        x = rl.ones(3, requires_grad=True)
        y = (x * 2).sin()
        y.register_hook(lambda g: seen.append(threading.current_thread()))
        y.exp().sum().backward(workers=workers)
    assert seen == [threading.main_thread()] * 2


def test_a_graph_of_small_calls_stays_in_the_callers_thread(monkeypatch):
    monkeypatch.undo()
    started: list[str] = []
    monkeypatch.setattr(
        parallel.ParallelWalk, "_start_thread", lambda walk: started.append("thread")
    )
    assert run(fan, "cpu", 4) == run(fan, "cpu", 1)
    assert not started


def test_backward_inside_hooks_and_functions():
    class Inner(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            with rl.enable_grad():
                own = x.detach().requires_grad_()
                (own.exp() * 0.5 + own.exp() * 0.5).sum().backward(workers=2)
            return g * own.grad

    def go(workers: int) -> list[bytes | None]:
        other = rough(4, seed=9)
        x = rough(4) * 1e-3
        x = x.detach().requires_grad_()
        a, b = Inner.apply(x), Inner.apply(x * 2)

        def hook(g: Any) -> None:
            with rl.enable_grad():
                (other.sin() + other * g.sum()).sum().backward(workers=workers)

        a.register_hook(hook)
        (a + b).sum().backward(workers=workers)
        return bits([x.grad, other.grad])

    alone = go(1)
    assert all(go(workers) == alone for workers in COUNTS)


# ---- regions ----


def test_checkpoints_and_budgets(device):
    weights = [rough(64, 64, seed=i, device=device) for i in range(4)]

    def block(x: Any, w: Any) -> Any:
        return (x @ (w * 1e-3)).tanh() + x.sin() * w

    def loss() -> Any:
        x = rough(64, 64, seed=8, device=device)
        h = [checkpoint(block, x, w, use_reentrant=False) for w in weights]
        h = [
            checkpoint(block, a, w, use_reentrant=False)
            for a, w in zip(h, reversed(weights), strict=True)
        ]
        return rl.stack(h).sum() + (h[0] * h[3]).mean()

    def go(workers: int, limit: str | None) -> list[bytes | None]:
        for w in weights:
            w.grad = None
        if limit is None:
            loss().backward(workers=workers)
        else:
            with memory.budget(limit, device):
                loss().backward(workers=workers)
        return bits(w.grad for w in weights)

    alone = go(1, None)
    gc.collect()
    memory.empty_cache(device)
    in_use = memory.allocated(device)
    for workers in COUNTS:
        assert go(workers, None) == alone
        assert go(workers, str(in_use + 700_000)) == alone


# ---- errors ----


def broken(graph: Callable[[Any], Any], workers: int) -> tuple[rl.Tensor, BaseException]:
    x = rl.ones(8, requires_grad=True)
    root = graph(x)
    with pytest.raises(Exception) as caught:
        root.backward(workers=workers)
    return x, caught.value


def assert_works() -> None:
    assert run(fan, "cpu", 3) == run(fan, "cpu", 1)


@pytest.mark.parametrize("workers", [1, *COUNTS])
@pytest.mark.parametrize("where", ["hook", "function", "leaf hook", "post hook"])
def test_an_error_ends_the_walk_and_is_raised(workers, where):
    class Broken(rl.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return fail(g)

    def fail(g: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    def graph(x: Any) -> Any:
        branches = [x * float(i) for i in range(6)]
        if where == "hook":
            branches[3].register_hook(fail)
        elif where == "function":
            branches[3] = Broken.apply(branches[3])
        elif where == "leaf hook":
            x.register_hook(fail)
        else:
            x.register_post_accumulate_grad_hook(fail)
        return rl.stack([b.sin() for b in branches]).sum()

    before = threading.active_count()
    _, error = broken(graph, workers)
    assert isinstance(error, ZeroDivisionError) and "on purpose" in str(error)
    assert "in fail" in "".join(traceback.format_exception(error))
    assert threading.active_count() == before
    assert_works()


def test_of_two_errors_the_earlier_in_order_is_raised():
    both = threading.Barrier(2)

    def graph(x: Any) -> Any:
        first, second = x * 2, x * 3

        def fail(name: str) -> Callable[[Any], None]:
            def hook(g: Any) -> None:
                both.wait(WAIT)
                raise ValueError(name)

            return hook

        first.register_hook(fail("first"))
        second.register_hook(fail("second"))
        return rl.stack([first, second]).sum()

    # The last that became ready runs first.
    assert {str(broken(graph, 2)[1]) for _ in range(5)} == {"second"}


def test_a_freed_graph_is_an_error_in_workers_too():
    (root,), _ = fan("cpu")
    root.backward(workers=3)
    with pytest.raises(rl.GraphFreedError):
        root.backward(workers=3)


def test_what_an_error_leaves_is_given_back():
    gc.collect()
    before = memory.allocated()
    for workers in (1, *COUNTS):
        x = rl.ones(1000, requires_grad=True)
        branches = [x * float(i) for i in range(6)]
        branches[2].register_hook(lambda g: 1 / 0)
        root = rl.stack([b.sin() for b in branches]).sum()
        with contextlib.suppress(ZeroDivisionError):
            root.backward(workers=workers)
        del x, branches, root
        assert memory.allocated() == before


@pytest.mark.parametrize("workers", [0, -1, True, 2.0, "2", None])
def test_a_bad_number_of_workers(workers):
    kind = ValueError if type(workers) is int else TypeError
    x = rl.ones(3, requires_grad=True)
    for go in (
        lambda: (x * 2).sum().backward(workers=workers),
        lambda: rl.autograd.grad((x * 2).sum(), x, workers=workers),
        lambda: rl.autograd.backward([(x * 2).sum()], inputs=[x], workers=workers),
    ):
        with pytest.raises(kind, match="workers"):
            go()
    assert x.grad is None


def test_anomalies_are_found_by_workers():
    for workers in (1, *COUNTS):
        x = rl.tensor([0.0, 1.0], requires_grad=True)
        root = rl.stack([(x * float(i)).sqrt() for i in range(1, 4)]).sum()
        with pytest.raises(rl.AnomalyError, match="sqrt"), rl.autograd.detect_anomaly():
            root.backward(workers=workers)
