"""A Llama-like model in tensor parallel: the logits and gradients of one process."""

from __future__ import annotations

import hashlib

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from rushlight.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from rushlight.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
WIDTH, HEADS, WORDS, LENGTH, BATCH = 32, 8, 48, 8, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.wo = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t = x.shape[:2]
        q, k, v = (
            w(x).view(b, t, -1, WIDTH // HEADS).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        made = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(made.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.w2 = nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


MEGATRON = {
    "embed": RowwiseParallel(input_layouts=Replicate()),
    "layers.*.attention.w[qkv]": ColwiseParallel(),
    "layers.*.attention.wo": RowwiseParallel(),
    "layers.*.feed_forward.w[13]": ColwiseParallel(),
    "layers.*.feed_forward.w2": RowwiseParallel(),
    "output": ColwiseParallel(output_layouts=Replicate()),
}
SEQUENCE = {
    "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "layers.*.attention_norm": SequenceParallel(),
    "layers.*.ffn_norm": SequenceParallel(),
    "layers.*.attention": PrepareModuleInput(
        input_layouts=Shard(1), desired_input_layouts=Replicate()
    ),
    "layers.*.feed_forward": PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
    ),
    "layers.*.attention.w[qkv]": ColwiseParallel(),
    "layers.*.attention.wo": RowwiseParallel(output_layouts=Shard(1)),
    "layers.*.feed_forward.w[13]": ColwiseParallel(),
    "layers.*.feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "output": ColwiseParallel(
        input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
    ),
}


def batch():
    torch.manual_seed(7)
    return torch.randint(0, WORDS, (BATCH, LENGTH)), torch.randint(0, WORDS, (BATCH, LENGTH))


def model():
    torch.manual_seed(1)
    return Llama()


def step(net, shards_classes):
    words, targets = batch()
    logits = net(words)
    if shards_classes:
        with loss_parallel():
            assert logits.placements == (Shard(2),)
            goal = distribute_tensor(targets.view(-1), logits.device_mesh)
            loss = F.cross_entropy(logits.view(-1, WORDS), goal)
            loss.backward()
        return logits.full_tensor(), loss.full_tensor()
    loss = F.cross_entropy(logits.view(-1, WORDS), targets.view(-1))
    loss.backward()
    return logits, loss


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def digest(net):
    bits = b"".join(whole(p.grad).contiguous().numpy().tobytes() for p in net.parameters())
    return hashlib.sha256(bits).hexdigest()


def compare(plan, shards_classes, mesh):
    one = model()
    logits, loss = step(one, False)
    digests = set()
    for _ in range(2):
        net = parallelize_module(model(), mesh, plan)
        found = step(net, shards_classes)
        torch.testing.assert_close(found[0], logits, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[1], loss, rtol=1e-5, atol=1e-5)
        for (name, a), b in zip(one.named_parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(whole(b.grad), a.grad, rtol=1e-4, atol=1e-6, msg=name)
        digests.add(digest(net))
    assert len(digests) == 1  # the same bits from run to run
    share = net.layers[0].attention.wq.weight
    assert share.to_local().shape == (WIDTH // mesh.size(), WIDTH)
    optimiser, other = (torch.optim.AdamW(n.parameters(), lr=1e-2) for n in (net, one))
    for opt, m, sharded in ((optimiser, net, shards_classes), (other, one, False)):
        opt.step()
        opt.zero_grad()
        losses = step(m, sharded)[1]
        if m is net:
            mine = losses
    torch.testing.assert_close(mine, losses, rtol=1e-4, atol=1e-5)
    return digests.pop()


def styles(mesh):
    class Pair(nn.Module):
        def forward(self, x, *, scale):
            return x * scale, x

    pair = Pair()
    style = PrepareModuleInputOutput(
        input_layouts=Replicate(),
        desired_input_layouts=Shard(0),
        input_kwarg_layouts={"scale": Replicate()},
        desired_input_kwarg_layouts={"scale": Replicate()},
        output_layouts=(Shard(0), None),
        desired_output_layouts=(Replicate(), None),
    )
    parallelize_module(pair, mesh, style)
    x = torch.arange(8.0).view(8, 1)
    a, b = pair(x, scale=torch.full((1,), 3.0))
    assert torch.equal(a, x * 3) and b.placements == (Shard(0),)
    layer = parallelize_module(
        nn.Identity(),
        mesh,
        PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=Replicate()),
    )
    assert layer(torch.ones(2, 3)).shape == (2 * mesh.size(), 3)
    for call, words in (
        (lambda: parallelize_module(nn.Conv1d(1, 1, 1), mesh, ColwiseParallel()), "Conv1d"),
        (lambda: parallelize_module(model(), mesh, {"embed": 3}), "ParallelStyle"),
    ):
        try:
            call()
        except (TypeError, RuntimeError) as error:
            assert words in str(error)
        else:
            raise AssertionError(words)
    embedding = parallelize_module(nn.Embedding(WORDS, WIDTH), mesh, ColwiseParallel())
    assert embedding.weight.placements == (Shard(1),)
    assert embedding(torch.arange(3)).shape == (3, WIDTH // mesh.size())


mesh = init_device_mesh("cpu", (SIZE,))
found = [compare(MEGATRON, False, mesh), compare(SEQUENCE, True, mesh)]
styles(mesh)
if SIZE == 4:
    plane = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert plane["tp"] is plane["tp"] and plane["tp"].get_local_rank() == RANK % 2
    compare(MEGATRON, False, plane["tp"])
if RANK == 0:
    print("done", *found)
