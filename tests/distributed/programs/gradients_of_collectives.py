"""Collectives with gradients, each against the same function in one process."""

from __future__ import annotations

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed import functional_collectives as funcol
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
AVG = dist.ReduceOp.AVG


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weighed(tensors, weights):
    return sum((t * w).sum() for t, w in zip(tensors, weights, strict=True))


def check(act, model, rows=3):
    """`act(x)` gives this rank's tensors; `model(xs)` those of all ranks, from all inputs."""
    xs = [drawn(n, rows, 2).requires_grad_() for n in range(SIZE)]
    x = xs[RANK].detach().clone().requires_grad_()
    wanted, got = model(xs), act(x)
    weights = [
        [drawn(100 + 10 * n + m, *t.shape) for m, t in enumerate(wanted[n])] for n in range(SIZE)
    ]
    for one, other in zip(got, wanted[RANK], strict=True):
        assert torch.allclose(one, other, atol=1e-6), (act, one, other)
    sum(weighed(ts, ws) for ts, ws in zip(wanted, weights, strict=True)).backward()
    weighed(got, weights[RANK]).backward()
    g = torch.zeros_like(x) if xs[RANK].grad is None else xs[RANK].grad
    assert torch.allclose(x.grad, g, atol=1e-5), (act, x.grad, g)


def pieces(x):
    return [x + n for n in range(SIZE)]


check(lambda x: [F.all_reduce(x)], lambda xs: [[sum(xs)]] * SIZE)
check(lambda x: [F.broadcast(x, 1)], lambda xs: [[xs[1]]] * SIZE)
check(
    lambda x: [F.reduce(x, 1)],
    lambda xs: [[sum(xs) if n == 1 else torch.zeros(3, 2)] for n in range(SIZE)],
)
check(lambda x: [F.all_reduce(x, AVG)], lambda xs: [[sum(xs) / SIZE]] * SIZE)
check(
    lambda x: [F.reduce(x, 1, AVG)],
    lambda xs: [[sum(xs) / SIZE if n == 1 else torch.zeros(3, 2)] for n in range(SIZE)],
)
check(
    lambda x: [F.reduce_scatter(torch.empty(3, 2), pieces(x), AVG)],
    lambda xs: [[sum(x + n for x in xs) / SIZE] for n in range(SIZE)],
)
check(lambda x: F.all_gather(x), lambda xs: [list(xs)] * SIZE)
check(
    lambda x: F.gather(x, 1),
    lambda xs: [list(xs) if n == 1 else [torch.zeros(3, 2)] * SIZE for n in range(SIZE)],
)
check(lambda x: [F.scatter(pieces(x), 1)], lambda xs: [[xs[1] + n] for n in range(SIZE)])
check(
    lambda x: [F.reduce_scatter(torch.empty(3, 2), pieces(x))],
    lambda xs: [[sum(x + n for x in xs)] for n in range(SIZE)],
)
check(
    lambda x: F.all_to_all([torch.empty(3, 2) for _ in range(SIZE)], pieces(x)),
    lambda xs: [[x + n for x in xs] for n in range(SIZE)],
)
check(
    lambda x: [F.all_to_all_single(torch.empty(2 * SIZE, 2), x)],
    lambda xs: [[torch.cat([x[2 * n : 2 * n + 2] for x in xs])] for n in range(SIZE)],
    rows=2 * SIZE,
)
check(
    lambda x: [F._all_gather_base(torch.empty(3 * SIZE, 2), x)],
    lambda xs: [[torch.cat(xs)]] * SIZE,
)
mesh = init_device_mesh("cpu", (SIZE,))
check(
    lambda x: [funcol.wait_tensor(funcol.all_gather_tensor(x, 1, mesh))],
    lambda xs: [[torch.cat(xs, 1)]] * SIZE,
)
check(
    lambda x: [funcol.reduce_scatter_tensor(x, "sum", 0, (mesh, 0))],
    lambda xs: [[sum(xs)[2 * n : 2 * n + 2]] for n in range(SIZE)],
    rows=2 * SIZE,
)
check(
    lambda x: [funcol.reduce_scatter_tensor(x, "avg", 0, (mesh, 0))],
    lambda xs: [[sum(xs)[2 * n : 2 * n + 2] / SIZE] for n in range(SIZE)],
    rows=2 * SIZE,
)
check(lambda x: [funcol.all_reduce(x, "sum", mesh)], lambda xs: [[sum(xs)]] * SIZE)
check(
    lambda x: [funcol.all_to_all_single(x, None, None, dist.group.WORLD)],
    lambda xs: [[torch.cat([x[n : n + 1] for x in xs])] for n in range(SIZE)],
    rows=SIZE,
)
twice = drawn(0, 2).requires_grad_()  # the derivative of a derivative
(g,) = torch.autograd.grad(F.all_reduce(twice**3).sum(), twice, create_graph=True)
g.sum().backward()
assert torch.allclose(twice.grad, 6 * twice * SIZE)
twice = drawn(0, 2).requires_grad_()
made = F.reduce_scatter(torch.empty(2), [twice**3] * SIZE, AVG)
(g,) = torch.autograd.grad(made.sum(), twice, create_graph=True)
g.sum().backward()
assert torch.allclose(twice.grad, 6 * twice)

for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
    for name, act in (
        ("all_reduce", lambda x, op: F.all_reduce(x, op)),
        ("reduce", lambda x, op: F.reduce(x, 1, op)),
        ("reduce_scatter", lambda x, op: F.reduce_scatter(torch.empty(3, 2), pieces(x), op)),
    ):
        x = drawn(RANK, 3, 2).requires_grad_()
        made = act(x, op)
        try:
            made.sum().backward()
        except torch.NotDifferentiable as error:
            assert f"{name}(op=ReduceOp.{op.name})" in str(error), error
        else:
            raise AssertionError((name, op, x.grad))
        assert x.grad is None
check(  # as the error says
    lambda x: [torch.stack(F.all_gather(x)).amax(0)],
    lambda xs: [[torch.stack(xs).amax(0)]] * SIZE,
)
print("done", RANK, SIZE)
