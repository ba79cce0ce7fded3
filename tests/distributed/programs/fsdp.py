"""`fully_shard` against DistributedDataParallel, bit for bit, in 1, 2 or 4 processes."""

from __future__ import annotations

import contextlib
import copy
import sys

import rushlight as torch
import rushlight.distributed as dist
from rushlight import memory, nn
from rushlight.distributed import DDP, arenas
from rushlight.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from rushlight.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from rushlight.distributed.tensor import DTensor, Shard
from rushlight.nn import functional as F
from rushlight.utils.checkpoint import checkpoint

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
STEPS = 3


class Block(nn.Module):
    """A residual block of a decoder, whose sizes no number of ranks divides."""

    def __init__(self, width=24, again=False):
        super().__init__()
        self.again = again
        self.norm, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 37), nn.Linear(37, width)
        self.drop = nn.Dropout(0.1)

    def inner(self, x):
        q, k, v = self.query(self.norm(x)).view(*x.shape[:2], 2, -1).transpose(1, 2).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.drop(self.down(F.gelu(self.up(self.second(x)))))

    def forward(self, x):
        return checkpoint(self.inner, x) if self.again else self.inner(x)


class GPT(nn.Module):
    """A decoder with tied weights; forward gives the loss."""

    def __init__(self, depth=3, inside=False, outside=0):
        super().__init__()
        self.outside = outside
        self.embed, self.place = nn.Embedding(19, 24), nn.Embedding(8, 24)
        self.blocks = nn.ModuleList([Block(again=inside) for _ in range(depth)])
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 19, bias=False)
        self.head.weight = self.embed.weight

    def some(self, start, stop, x):
        for block in self.blocks[start:stop]:
            x = block(x)
        return x

    def forward(self, x, y):
        h = self.embed(x) + self.place(torch.arange(x.shape[1]))
        step = self.outside or len(self.blocks)
        for start in range(0, len(self.blocks), step):
            if self.outside:
                h = checkpoint(self.some, start, start + step, h)
            else:
                h = self.some(start, start + step, h)
        return F.cross_entropy(self.head(self.norm(h)).view(-1, 19), y.reshape(-1))

    def generate(self, x):
        return self.head(self.embed(x)).argmax(-1)


class Classifier(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        return F.cross_entropy(self.body(x), y)


def perceptron():
    layers = (nn.Linear(6, 31), nn.ReLU(), nn.Dropout(0.3), nn.Linear(31, 16), nn.Linear(16, 3))
    return Classifier(nn.Sequential(*layers))


def convolutions():
    return Classifier(
        nn.Sequential(
            *(nn.Conv2d(2, 7, 3, padding=1), nn.GroupNorm(1, 7), nn.GELU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(7, 8, 3), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 3)),
        )
    )


def batch(name, step, rows=3):
    drawn = torch.Generator().manual_seed(100 * step + RANK)
    if name == "gpt":
        made = torch.randint(0, 19, (rows, 9), generator=drawn)
        return made[:, :-1], made[:, 1:]
    shape = (4, 6) if name == "perceptron" else (4, 2, 8, 8)
    return torch.randn(*shape, generator=drawn), torch.randint(0, 3, (4,), generator=drawn)


def made(make, **options):
    torch.manual_seed(1)
    return make(**options)


def shard(model, **options):
    """Each block and each layer outside of blocks is a unit; tied layers are the root's."""
    within = {id(part) for b in model.modules() if isinstance(b, Block) for part in b.children()}
    for module in list(model.modules()):
        layer = isinstance(module, (nn.Linear, nn.Conv2d, Block)) and id(module) not in within
        if layer and module is not getattr(model, "head", None):
            fully_shard(module, **options)
    return fully_shard(model, **options)


def train(name, model, steps=STEPS, around=contextlib.nullcontext, clip=0.7, chosen=None):
    optimizer = (chosen or torch.optim.AdamW)(model.parameters(), lr=0.02)
    torch.manual_seed(50 + RANK)
    norms = []
    for step in range(steps):
        with around():
            loss = model(*batch(name, step))
            loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), clip)))
        optimizer.step()
        optimizer.zero_grad()
    return norms, optimizer


def state(model):
    return {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in named(model)}


def named(model):
    return [(n.removeprefix("module."), p.detach()) for n, p in model.named_parameters()]


def same(a, b, what):
    a, b = state(a), state(b)
    assert a.keys() == b.keys(), what
    for name in a:
        assert torch.equal(a[name], b[name]), (what, name, (a[name] - b[name]).abs().max())


MODELS = {"perceptron": perceptron, "convolutions": convolutions, "gpt": GPT}
REFERENCE = {}


def reference(name):
    """The model that DDP trains, and the norms of its gradients."""
    if name not in REFERENCE:
        model = DDP(made(MODELS[name]))
        REFERENCE[name] = model, train(name, model)[0]
    return REFERENCE[name]


def bits():
    for name, make in MODELS.items():
        expected, norms = reference(name)
        for options in ({}, {"reshard_after_forward": False}, {"reshard_after_forward": True}):
            model = shard(made(make), **options)
            assert train(name, model)[0] == norms, (name, options)
            same(expected, model, (name, options))
        whole = fully_shard(made(make))
        assert train(name, whole)[0] == norms
        same(expected, whole, (name, "one unit"))


def parts():
    model = shard(made(GPT))
    weight = model.blocks[0].query.weight
    assert isinstance(weight, DTensor) and isinstance(weight, nn.Parameter)
    assert isinstance(model, FSDPModule) and type(model).__name__ == "FSDPGPT"
    assert weight.shape == (72, 24) and weight.placements == (Shard(0),)
    assert weight.to_local().shape[0] == max(0, min(-(-72 // SIZE), 72 - RANK * -(-72 // SIZE)))
    assert model.head.weight is model.embed.weight
    loss = model(*batch("gpt", 0))
    assert model.blocks[0].query.weight is weight and model.head.weight is model.embed.weight
    loss.backward()
    assert isinstance(weight.grad, DTensor) and weight.grad.shape == weight.shape
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    moment = optimizer.state[weight]["exp_avg"]
    assert moment.to_local().shape == weight.to_local().shape
    block = model.blocks[1]
    assert block.unshard() is None
    assert type(block.query.weight) is nn.Parameter
    assert torch.equal(block.query.weight, whole_of(model, "blocks.1.query.weight"))
    block.reshard()
    assert isinstance(block.query.weight, DTensor)
    handle = block.unshard(async_op=True)
    handle.wait()
    block.reshard()
    with torch.no_grad():
        got = model(*batch("gpt", 1))
    assert not got.requires_grad
    register_fsdp_forward_method(model, "generate")
    assert model.generate(batch("gpt", 1)[0]).shape == (3, 8)
    with torch.inference_mode():
        model(*batch("gpt", 1))
    model(*batch("gpt", 1)).backward()
    # Parts can be made before there are elements, filled, cast.
    with torch.device("meta"):
        empty = GPT()
    shard(empty)
    assert empty.blocks[0].up.weight.device.type in ("meta", "null")
    empty.to_empty(device="cpu")
    empty.load_state_dict({name: value.full_tensor() for name, value in named(model)}, strict=False)
    same(model, empty, "meta")
    empty(*batch("gpt", 0)).backward()
    assert empty.double().embed.weight.dtype is torch.float64
    # A write through .data reaches the next forward, also of whole parameters that were kept.
    net = fully_shard(nn.Linear(4, 4, bias=False), reshard_after_forward=False)
    with torch.no_grad():
        net(torch.ones(1, 4))
        net.weight.data.fill_(2.0)
        assert net(torch.ones(1, 4)).tolist() == [[8.0] * 4]


def whole_of(model, name):
    parameter = dict(model.named_parameters())[name]
    if isinstance(parameter, DTensor):
        return parameter.full_tensor()
    unit = model.get_submodule(name.rpartition(".")[0].rpartition(".")[0])._unit
    return next(p.part.full_tensor() for p in unit.pieces if name.endswith(p.name))


def recompute():
    expected, norms = reference("gpt")
    for options in ({"inside": True}, {"outside": 1}, {"outside": 2}):
        model = shard(made(GPT, **options))
        assert train("gpt", model)[0] == norms, options
        same(expected, model, options)
    model = made(GPT)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    assert train("gpt", model)[0] == norms
    got = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    assert all(torch.equal(got[name], value) for name, value in state(expected).items())


def budgets():
    """A limit on each rank, below what the same steps take without one."""
    results, peak = [], 0
    for share in (None, 0.75, 0.55):
        model = shard(made(GPT))
        memory.empty_cache()
        before = memory.allocated()
        limit = None if share is None else before + int((peak - before) * share)
        repeated, most = memory.recomputed()["calls"], 0
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        torch.manual_seed(50 + RANK)
        for step in range(2):
            memory.reset_peak()
            with contextlib.nullcontext() if limit is None else memory.budget(limit):
                model(*batch("gpt", step, rows=96)).backward()
            most = max(most, memory.peak())
            optimizer.step()
            optimizer.zero_grad()
        results.append(state(model))
        peak = peak or most
        if limit is not None:
            assert memory.recomputed()["calls"] > repeated, share
            assert most <= limit, (most, limit)
            assert all(torch.equal(a, results[0][n]) for n, a in results[-1].items()), share


def accumulation():
    expected, model = DDP(made(GPT)), shard(made(GPT))
    results = []
    for one in (expected, model):
        torch.manual_seed(7 + RANK)
        if one is expected:
            with one.no_sync():
                one(*batch("gpt", 0)).backward()
        else:
            one.set_requires_gradient_sync(False)
            one.set_is_last_backward(False)
            one(*batch("gpt", 0)).backward()
            assert all(p.grad is None for p in one.parameters())
            one.set_requires_gradient_sync(True)
            one.set_is_last_backward(True)
        one(*batch("gpt", 1)).backward()
        results.append([p.grad for p in one.parameters()])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b.full_tensor())
    before = [g.full_tensor() for g in results[1]]
    model(*batch("gpt", 2)).backward()  # adds to what is there
    assert not torch.equal(before[0], model.embed.weight.grad.full_tensor())
    (model(*batch("gpt", 0)) + model(*batch("gpt", 1))).backward()


class Adapted(nn.Module):
    """A frozen layer with a trained one beside it; the trained one comes last in forward."""

    def __init__(self):
        super().__init__()
        self.frozen, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(3, 8)
        self.unused = nn.Linear(8, 8)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.frozen(x) + self.b(self.a(x))


def frozen_and_unused():
    for reshard in (True, False):
        nets = [made(lambda: nn.Sequential(Adapted(), Adapted(), nn.Linear(8, 2))) for _ in "ab"]
        expected = DDP(nets[0], find_unused_parameters=True)
        model = nets[1]
        for block in (model[0], model[1]):
            fully_shard(block, reshard_after_forward=reshard)
        fully_shard(model)
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(RANK))
        for one in (expected, model):
            one(x).square().sum().backward()
        for (name, a), (_, b) in zip(named_grads(expected), named_grads(model), strict=True):
            if a is None:
                assert b is None, name
            else:
                assert torch.equal(a, b.full_tensor()), name
        model[0].set_reduce_scatter_unused_params(True)
        model(x).square().sum().backward()
        assert model[0].unused.weight.grad is not None
        assert model[1].unused.weight.grad is None


def frozen_in_two_graphs():
    """Two forwards before their backwards; forwards without one hold nothing."""
    model = made(lambda: nn.Sequential(Adapted(), Adapted(), nn.Linear(8, 2)))
    for block in (model[0], model[1]):
        fully_shard(block)
    fully_shard(model)
    xs = [torch.randn(4, 8, generator=torch.Generator().manual_seed(RANK + n)) for n in (0, 5)]
    for x in xs:
        model(x).square().sum().backward()
    expected = [None if g is None else g.full_tensor().clone() for _, g in named_grads(model)]
    for order in ((1, 0), (0, 1)):
        model.zero_grad()
        losses = [model(x).square().sum() for x in xs]
        for n in order:
            losses[n].backward()
        del losses
        found = [None if g is None else g.full_tensor() for _, g in named_grads(model)]
        for a, b in zip(expected, found, strict=True):
            assert (a is None) == (b is None) and (a is None or torch.allclose(a, b)), order
    many = torch.ones(1 << 16, 8)
    held = []
    for _ in range(4):
        model(many)
        held.append(memory.allocated())
    assert held[3] == held[1], held


def named_grads(model):
    return [(n, p.grad) for n, p in model.named_parameters()]


def failures():
    model = shard(made(GPT))
    loss = model(*batch("gpt", 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(*batch("gpt", 1)).backward()
    optimizer.step()
    try:
        loss.backward()
    except torch.RushlightError as error:
        assert "were changed after the forward" in str(error)
    else:
        raise AssertionError("a backward over old parameters")
    optimizer.zero_grad()
    hooked = []

    def fail(_):
        if not hooked:
            hooked.append(1)
            raise RuntimeError("of the user")

    model.embed.weight.register_post_accumulate_grad_hook(fail)
    x = batch("gpt", 2)
    loss = model(*x)
    try:
        loss.backward(retain_graph=True)
    except RuntimeError as error:
        assert "of the user" in str(error)
    assert all(p.grad is None for p in model.parameters())
    loss.backward()  # again, whole
    got = [p.grad.full_tensor() for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(0)
    model.eval()
    model(*x).backward()
    assert len(got) == len(list(model.parameters()))

    class Stop(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x, stop=False):
            if stop:
                raise KeyError("stop")
            return self.inner(x)

    net = fully_shard(Stop())
    try:
        net(torch.ones(1, 3), stop=True)
    except KeyError:
        assert isinstance(net.inner.weight, DTensor)
    net(torch.ones(1, 3)).sum().backward()
    for wrong, told in (
        (lambda: fully_shard(net), "sharded already"),
        (lambda: fully_shard(nn.ModuleList([nn.Linear(2, 2)])), "no forward"),
        (lambda: tied(), "is tied to"),
        (lambda: fully_shard(Scalar()), "has no dimensions"),
    ):
        try:
            wrong()
        except ValueError as error:
            assert told in str(error), error
        else:
            raise AssertionError(told)


class Scalar(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))


def tied():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    fully_shard(net[0])
    fully_shard(net)


def precision():
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    model = made(GPT)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    fully_shard(model, mp_policy=policy)
    loss = model(*batch("gpt", 0))
    assert loss.dtype is torch.float32
    seen = []
    model.blocks[0].query.register_forward_hook(
        lambda m, a, out: seen.append((m.weight.dtype, a[0].dtype, out.dtype))
    )
    loss = model(*batch("gpt", 0))
    loss.backward()
    assert seen == [(torch.bfloat16,) * 3]
    assert all(p.dtype is torch.float32 is p.grad.dtype for p in model.parameters())
    model.zero_grad()
    norms, _ = train("gpt", model)
    _, exact = reference("gpt")
    assert abs(norms[0] - exact[0]) < 0.1 * exact[0]


def prefetch():
    expected, norms = reference("gpt")
    model = shard(made(GPT))
    blocks = list(model.blocks)
    for n, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[n + 1 : n + 3])
        block.set_modules_to_backward_prefetch(blocks[max(0, n - 2) : n][::-1])
    assert train("gpt", model)[0] == norms
    same(expected, model, "prefetch")
    model = made(GPT)
    fully_shard([model.blocks[0], model.blocks[1]])
    fully_shard([model.blocks[2], model.norm])
    fully_shard(model)
    assert train("gpt", model)[0] == norms
    same(expected, model, "several modules in one unit")
    model = made(GPT)
    for block in model.blocks:
        fully_shard(block, shard_placement_fn=lambda p: Shard(p.dim() - 1))
    fully_shard(model)
    assert model.blocks[0].up.weight.placements == (Shard(1),)
    assert train("gpt", model)[0] == norms
    same(expected, model, "other dimensions")


def hybrid():
    if SIZE < 4:
        return
    mesh = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("copies", "parts"))
    expected, norms = reference("gpt")
    model = shard(made(GPT), mesh=mesh)
    assert train("gpt", model)[0] == norms
    same(expected, model, "copies of parts")


def peaks():
    """Bytes per rank of parameters, gradients and optimiser state, and the peak of a step."""
    arenas.HALF = 0  # what ranks of one host share is no part of it
    torch.manual_seed(0)
    layers = [nn.Linear(512, 512, bias=False) for _ in range(8)]
    model = nn.Sequential(*layers)
    whole = sum(p.numel() * 4 for p in model.parameters())
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    del layers
    optimizer = torch.optim.AdamW(model.parameters())
    before = memory.allocated()
    for _ in range(2):
        optimizer.zero_grad()
        memory.reset_peak()
        start = memory.allocated()
        model(torch.ones(2, 512)).sum().backward()
        step_peak = memory.peak() - start
        optimizer.step()
    held = memory.allocated() - before + whole // SIZE
    if RANK == 0:
        print("peaks", whole, held, step_peak)


def optimizers_that_were_there():
    """An optimiser that was made, and stepped, before the model was shared out."""
    torch.manual_seed(3)
    plain = nn.Sequential(nn.Linear(6, 31), nn.Tanh(), nn.Linear(31, 3))
    model = copy.deepcopy(plain)
    optimizers = []
    for one in (plain, model):
        optimizers.append(torch.optim.AdamW(one.parameters(), 0.02))
        nn.functional.mse_loss(one(torch.ones(4, 6)), torch.ones(4, 3)).backward()
        optimizers[-1].step()
        optimizers[-1].zero_grad()
    wrapped = FullyShardedDataParallel(model)
    assert all(isinstance(p, DTensor) for p in optimizers[1].param_groups[0]["params"])
    for _ in range(3):
        for one, optimizer in zip((plain, wrapped), optimizers, strict=True):
            nn.functional.mse_loss(one(torch.ones(4, 6)), torch.ones(4, 3)).backward()
            optimizer.step()
            optimizer.zero_grad()
    for p, q in zip(wrapped.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(p.full_tensor(), q, atol=1e-6), (p.full_tensor(), q)
    told = FullyShardedDataParallel.optim_state_dict(wrapped, optimizers[1])
    loaded = FullyShardedDataParallel.optim_state_dict_to_load(wrapped, optimizers[1], told)
    optimizers[1].load_state_dict(loaded)
    kept = next(iter(optimizers[1].state.values()))
    assert isinstance(kept["exp_avg"], DTensor), kept


CASES = (
    *(
        bits,
        parts,
        recompute,
        budgets,
        accumulation,
        frozen_and_unused,
        frozen_in_two_graphs,
        failures,
        precision,
        prefetch,
    ),
    *(hybrid, optimizers_that_were_there, peaks),
)
for case in CASES:
    if len(sys.argv) < 2 or case.__name__ in sys.argv[1:]:
        case()
print("done", RANK, SIZE)
