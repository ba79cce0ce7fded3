"""DTensors in training: random numbers, in-place ops, optimisers, autocast, budgets, modules."""

from __future__ import annotations

import copy

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import tensor as dt
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from rushlight.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
MESH = init_device_mesh("cpu", (SIZE,))
MESHES = [MESH] if SIZE != 4 else [MESH, init_device_mesh("cpu", (2, 2))]


def kinds(mesh):
    line = [Replicate(), Shard(0), Shard(1), Shard(2)]
    if mesh.ndim == 1:
        return [[kind] for kind in line]
    return [[Shard(0), Shard(2)], [Shard(1), Shard(1)], [Replicate(), Shard(1)]]


def random_bits():
    """A shard has the bits that the whole tensor has there."""
    shape = (3, 5, 6)
    for mesh in MESHES:
        for kind in kinds(mesh):
            torch.manual_seed(3)
            whole = [torch.rand(shape), torch.randn(shape)]
            dropped = F.dropout(torch.ones(shape), 0.4)
            like = torch.rand_like(torch.ones(shape))
            noise = torch.empty(shape).normal_(1.0, 2.0)
            torch.manual_seed(3)
            ones = dt.ones(shape, device_mesh=mesh, placements=kind)
            assert torch.equal(
                dt.rand(shape, device_mesh=mesh, placements=kind).full_tensor(), whole[0]
            )
            assert torch.equal(
                dt.randn(*shape, device_mesh=mesh, placements=kind).full_tensor(), whole[1]
            )
            x = ones.clone().requires_grad_()
            y = F.dropout(x, 0.4)
            assert y.placements == tuple(kind)
            assert torch.equal(y.full_tensor(), dropped)
            y.sum().backward()
            assert torch.equal(x.grad.full_tensor(), dropped)
            made = torch.rand_like(ones)
            assert made.placements == tuple(kind) and torch.equal(made.full_tensor(), like)
            assert torch.equal(torch.empty_like(ones).normal_(1.0, 2.0).full_tensor(), noise)


def factories():
    for kind in kinds(MESH):
        for made, value in (
            (dt.zeros(4, 5, 6, device_mesh=MESH, placements=kind), 0.0),
            (dt.full((4, 5, 6), 2.5, device_mesh=MESH, placements=kind), 2.5),
        ):
            assert made.placements == tuple(kind) and made.shape == (4, 5, 6)
            assert torch.equal(made.full_tensor(), torch.full((4, 5, 6), value))
    like = torch.zeros_like(distribute_tensor(torch.ones(4, 6), MESH, [Shard(1)]))
    assert like.placements == (Shard(1),) and like.sum().full_tensor() == 0


def writes():
    whole = torch.arange(24.0).view(4, 6)
    for kind in ([Shard(0)], [Shard(1)], [Replicate()]):
        x = distribute_tensor(whole, MESH, kind)
        handle = x
        x += 1
        x.mul_(2).add_(distribute_tensor(whole, MESH, [Shard(0)]), alpha=3)
        x[1] = -1.0
        x.clamp_(max=40)
        assert x is handle and x.placements == tuple(kind)
        expected = (whole + 1) * 2 + whole * 3
        expected[1] = -1
        assert torch.equal(x.full_tensor(), expected.clamp(max=40))
        x.copy_(distribute_tensor(whole, MESH))
        assert torch.equal(x.full_tensor(), whole)
        assert torch.equal(x.zero_().full_tensor(), torch.zeros(4, 6))
        assert x.fill_(3).sum().item() == 72 and bool((x == 3).all())
        w = distribute_tensor(whole, MESH, kind).requires_grad_()
        y = w * 2
        y.add_(1).mul_(w)
        y.sum().backward()
        assert torch.equal(w.grad.full_tensor(), whole * 4 + 1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 12), nn.Linear(12, 4)
        self.norm = nn.LayerNorm(12)

    def forward(self, x):
        return self.second(self.norm(torch.relu(self.first(x))))


def shard(name, module, mesh):
    if isinstance(module, nn.Linear):
        for key, parameter in list(module.named_parameters(recurse=False)):
            kind = [Shard(0)] if name == "first" else [Shard(parameter.dim() - 1)]
            made = nn.Parameter(distribute_tensor(parameter, mesh, kind))
            module.register_parameter(key, made)


def optimisers():
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
    ):
        torch.manual_seed(0)
        whole = Model()
        parts = dt.distribute_module(copy.deepcopy(whole), MESH, shard)
        assert isinstance(parts.norm.weight, DTensor) and isinstance(
            parts.norm.weight, nn.Parameter
        )
        x = torch.randn(5, 8)
        both = [(whole, make(whole.parameters()), x)]
        both.append((parts, make(parts.parameters()), distribute_tensor(x, MESH)))
        for _ in range(3):
            for model, optimiser, given in both:
                optimiser.zero_grad()
                model(given).square().mean().backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimiser.step()
                if model is whole:
                    expected = norm
            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
            torch.testing.assert_close(norm, expected)
        for (name, a), b in zip(whole.named_parameters(), parts.parameters(), strict=True):
            torch.testing.assert_close(b.full_tensor(), a, rtol=1e-4, atol=1e-5, msg=name)
        state = both[1][1].state_dict()["state"][0]
        assert all(isinstance(v, DTensor) for v in state.values() if getattr(v, "ndim", 0))
        again = copy.deepcopy(parts)
        assert torch.equal(again.first.weight.full_tensor(), parts.first.weight.full_tensor())
        parts.load_state_dict(again.state_dict())


def autocast():
    x = distribute_tensor(torch.randn(4, 8), MESH, [Shard(0)])
    w = distribute_tensor(torch.randn(6, 8), MESH).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = F.linear(x, w)
        plain = F.linear(x.full_tensor(), w.full_tensor())
    assert y.dtype is torch.bfloat16 and torch.equal(y.full_tensor(), plain)
    y.float().sum().backward()
    assert w.grad.dtype is torch.float32


def recompute():
    """The same bits under a checkpoint and a budget; collectives are not repeated."""
    torch.manual_seed(1)
    x = distribute_tensor(torch.randn(16, 64), MESH, [Shard(0)])
    weights = [distribute_tensor(torch.randn(64, 64) / 8, MESH, [Shard(0)]) for _ in range(4)]

    def run(wrap):
        for w in weights:
            w.requires_grad_().grad = None
        torch.manual_seed(2)
        made = x
        for w in weights:
            made = wrap(lambda h, w=w: F.dropout(torch.tanh(F.linear(h, w)), 0.1), made)
        made.square().sum().backward()
        return [w.grad.full_tensor() for w in weights]

    plain = run(lambda f, h: f(h))
    kept = run(lambda f, h: torch.utils.checkpoint.checkpoint(f, h, use_reentrant=False))
    with torch.memory.budget("1MiB"):
        limited = run(lambda f, h: f(h))
    for a, b, c in zip(plain, kept, limited, strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)


def derivatives():
    """`autograd.grad`, second derivatives, hooks, sums over several passes."""
    whole = torch.linspace(-1, 1, 24).view(4, 6).requires_grad_()
    for kind in ([Shard(0)], [Shard(1)], [Replicate()]):
        x = distribute_tensor(whole.detach(), MESH, kind).requires_grad_()
        (g,) = torch.autograd.grad((x * x).sum(1).pow(3).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad((whole * whole).sum(1).pow(3).sum(), whole, create_graph=True)
        assert g.placements == tuple(kind)
        torch.testing.assert_close(g.full_tensor(), h)
        (second,) = torch.autograd.grad(g.square().sum(), x)
        (expected,) = torch.autograd.grad(h.square().sum(), whole)
        torch.testing.assert_close(second.full_tensor(), expected)
        seen = []
        y = x * 2
        y.register_hook(lambda grad, seen=seen: seen.append(grad) or grad * 3)
        x.register_post_accumulate_grad_hook(lambda p, seen=seen: seen.append(p))
        y.sum().backward()
        (x * 1).sum().backward()
        assert seen[0].placements == tuple(kind) and seen[1] is x and seen[2] is x
        assert torch.equal(x.grad.full_tensor(), torch.full((4, 6), 7.0))
        assert x.grad is x.grad
        x.grad = None
        torch.autograd.backward([(x * 2).sum()], [dt.full((), 2.0, device_mesh=MESH)])
        assert torch.equal(x.grad.full_tensor(), torch.full((4, 6), 4.0))


def refusals():
    x = distribute_tensor(torch.ones(4, 6), MESH, [Shard(0)])
    for call, words in (
        (lambda: x + torch.ones(4, 6), "mixed torch.Tensor and DTensor"),
        (lambda: DTensor.from_local(torch.ones(3), MESH, [Shard(1)]), "Shard(dim=1)"),
        (lambda: x @ x, "matmul"),
        (lambda: x.redistribute(placements=[dt.Partial()]), "never Partial"),
        (lambda: torch.ones(4, 6).copy_(x), "plain tensor"),
    ):
        try:
            call()
        except Exception as error:
            assert words in str(error), (words, str(error))
        else:
            raise AssertionError(words)


for check in (
    random_bits,
    factories,
    writes,
    optimisers,
    autocast,
    recompute,
    derivatives,
    refusals,
):
    try:
        check()
    except Exception as error:
        raise AssertionError(check.__name__) from error
if RANK == 0:
    print("done")
