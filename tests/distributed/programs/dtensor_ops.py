"""Ops of DTensors under all placements, compared with the whole tensors' results and gradients."""

from __future__ import annotations

import itertools
import sys

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from rushlight.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
MESH = init_device_mesh("cpu", (SIZE,))
PLANE = init_device_mesh("cpu", (2, 2)) if SIZE == 4 else None


def numbers(*shape):
    count = 1
    for size in shape:
        count *= size
    return torch.sin(torch.arange(float(count)) * 1.7).view(shape)


X, Y = numbers(4, 6, 8), numbers(6, 1).abs() + 0.5
W, B = numbers(12, 8), numbers(12)
INDEX = (torch.arange(24) % 5).view(4, 6)
Q = numbers(2, 4, 6, 8)
# name: function, operands
CASES = {
    "add": (lambda x, y: x + y, (X, Y)),
    "sub_number": (lambda x: 2.0 - x, (X,)),
    "pointwise": (lambda x, y: F.gelu(x) * torch.exp(-y) / (1 + y), (X, Y)),
    "where": (lambda x, y: torch.where(x > 0, x, y), (X, Y)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (X,)),
    "cast": (lambda x: x.double().float() * 2, (X,)),
    "sum": (lambda x: x.sum(), (X,)),
    "sum_dims": (lambda x: x.sum((0, 2)), (X,)),
    "mean": (lambda x: x.mean(1, keepdim=True), (X,)),
    "mean_all": (lambda x: (x * 3).mean(), (X,)),
    "var": (lambda x: x.var(1), (X,)),
    "max": (lambda x: x.amax(1), (X,)),
    "max_pair": (lambda x: x.max(1)[0], (X,)),
    "prod": (lambda x: (x + 2).prod(0), (X,)),
    "norm": (lambda x: x.norm(), (X,)),
    "norm_of_zeros": (lambda x: (x * 0).norm(dim=1) + (x * 0).norm(dim=2).sum(), (X,)),
    "std_of_equals": (lambda x: (x * 0).std(1) + (x * 0).std(2).sum(), (X,)),
    "logsumexp": (lambda x: x.logsumexp(-1), (X,)),
    "softmax": (lambda x: F.softmax(x, -1), (X,)),
    "log_softmax": (lambda x: F.log_softmax(x, 1), (X,)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (8,), w), (X, numbers(8))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (8,), w), (X, numbers(8))),
    "linear": (F.linear, (X, W, B)),
    "linear_plain": (F.linear, (X, W)),
    "matmul": (torch.matmul, (X, numbers(8, 10))),
    "bmm": (lambda a, b: a @ b.transpose(1, 2), (X, numbers(4, 6, 8) * 2)),
    "addmm": (
        lambda c, a, b: torch.addmm(c, a, b, alpha=2.0),
        (numbers(6, 4), X[0].clone(), numbers(8, 4)),
    ),
    "einsum": (lambda a, b: torch.einsum("bik,jk->bij", a, b), (X, W)),
    "view_split": (lambda x: x.view(4, 6, 4, 2) * 2, (X,)),
    "view_merge": (lambda x: x.reshape(24, 8) * 2, (X,)),
    "flatten": (lambda x: x.flatten() * 2, (X,)),
    "transpose": (lambda x: x.transpose(0, 2).contiguous() + 1, (X,)),
    "heads": (lambda x: x.view(4, 6, 4, 2).transpose(1, 2) * 3, (X,)),
    "permute": (lambda x: x.permute(2, 0, 1) + 1, (X,)),
    "unsqueeze": (lambda x: x[:, None] + x.unsqueeze(1), (X,)),
    "expand": (lambda y: y.expand(6, 8) * 2, (Y,)),
    "slice": (lambda x: x[:, 1:4] * 2, (X,)),
    "whole_slice": (lambda x: x[:, :, :] * 2, (X,)),
    "select": (lambda x: x[1] + x[:, 2].mean(0), (X,)),
    "chunk": (lambda x: x.chunk(2, 1)[1] * 2, (X,)),
    "cat": (lambda x, y: torch.cat([x, y * 2], 1), (X, numbers(4, 3, 8))),
    "stack": (lambda x, y: torch.stack([x, y], 0), (X, X * 2)),
    "rotate": (lambda x: torch.cat([-x[..., 4:], x[..., :4]], -1), (X,)),
    "cumsum": (lambda x: x.cumsum(1), (X,)),
    "sort": (lambda x: x.sort(1)[0], (X,)),
    "topk": (lambda x: x.topk(2)[0], (X,)),
    "gather": (lambda x, i: x.gather(1, i[..., None].expand(4, 6, 8)), (X, INDEX)),
    "embedding": (lambda i, w: F.embedding(i, w), (INDEX, W)),
    "padded": (lambda i, w: F.embedding(i, w, padding_idx=1), (INDEX, W)),
    "cross_entropy": (F.cross_entropy, (X.view(24, 8).clone(), INDEX.view(24).clone())),
    "ignored": (
        lambda x, i: F.cross_entropy(x, i, ignore_index=2),
        (X.view(24, 8).clone(), INDEX.view(24).clone()),
    ),
    "smooth": (
        lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1),
        (X.view(24, 8).clone(), INDEX.view(24).clone()),
    ),
    "nll": (
        lambda x, i: F.nll_loss(F.log_softmax(x, -1), i),
        (X.view(24, 8).clone(), INDEX.view(24).clone()),
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (Q, Q * 0.5, Q + 1),
    ),
    "mse": (F.mse_loss, (X, X * 0.5)),
    "convolution": (lambda x, w: F.conv1d(x, w, padding=1), (X, numbers(3, 6, 3))),
    "tril": (lambda x: x.tril(), (X,)),
    "inverse": (lambda x: torch.linalg.inv(x + 3 * torch.eye(5)), (numbers(5, 5),)),
}


# Those that run on gathered tensors, or whose second derivative has no gradient or is NaN.
FIRST_ORDER = {"norm_of_zeros", "std_of_equals", "inverse", "padded", "max_pair", "cast"}


def results(name, function, operands, mesh, kinds):
    whole = [x.clone().requires_grad_(x.is_floating_point()) for x in operands]
    if name == "inverse":
        from rushlight.distributed.tensor.experimental import implicit_replication

        with implicit_replication():
            return _compared(name, function, whole, mesh, kinds)
    return _compared(name, function, whole, mesh, kinds)


def _compared(name, function, whole, mesh, kinds):
    expected = function(*whole)
    weight = numbers(*expected.shape) + 0.3
    (expected * weight).sum().backward()
    parts = [distribute_tensor(x, mesh, kind) for x, kind in zip(whole, kinds, strict=True)]
    found = function(*parts)
    assert isinstance(found, DTensor) and found.shape == expected.shape, (name, kinds)
    torch.testing.assert_close(found.full_tensor(), expected, rtol=1e-5, atol=1e-5)
    (found * distribute_tensor(weight, mesh)).sum().backward()
    for x, part in zip(whole, parts, strict=True):
        if x.requires_grad:
            assert part.grad.placements == part.placements
            torch.testing.assert_close(part.grad.full_tensor(), x.grad, rtol=1e-5, atol=1e-5)
    if mesh.ndim == 1 and name not in FIRST_ORDER:
        _compare_second(function, whole, parts, weight)
    return found


def _compare_second(function, whole, parts, weight):
    """Gradients of a function of gradients."""
    expected = second(function, whole, weight)
    found = second(function, parts, distribute_tensor(weight, MESH))
    for a, b in zip(expected, found, strict=True):
        if a is not None:
            size = float(a.abs().max())
            torch.testing.assert_close(b.full_tensor(), a, rtol=1e-3, atol=1e-3 * size)


def second(function, operands, weight):
    leaves = [x for x in operands if x.requires_grad]
    made = (function(*operands).square() * weight).sum()
    first = torch.autograd.grad(made, leaves, create_graph=True)
    total = first[0].square().sum()
    for one in first[1:]:
        total = total + one.square().sum()
    return torch.autograd.grad(total, leaves, allow_unused=True)


def combinations(operands, mesh):
    """All placements on a line; a few on a plane."""
    choices = [
        [Replicate(), *(Shard(d) for d in range(x.dim()) if x.shape[d] > 1)] for x in operands
    ]
    if mesh.ndim == 1:
        for kinds in itertools.product(*choices):
            yield [[kind] for kind in kinds]
    else:
        for shift in range(3):
            yield [[own[shift % len(own)], own[(shift + 1) % len(own)]] for own in choices]
        yield [[own[-1], own[-1]] for own in choices]


wanted = sys.argv[1].split(",") if len(sys.argv) > 1 else list(CASES)
for name in wanted:
    function, operands = CASES[name]
    for mesh in (MESH, PLANE):
        for kinds in () if mesh is None else combinations(operands, mesh):
            try:
                results(name, function, operands, mesh, kinds)
            except Exception as error:
                raise AssertionError(f"{name} under {kinds}: {error}") from error
if RANK == 0:
    print("done", len(wanted))
