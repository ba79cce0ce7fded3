"""A model in stages: gradients equal, bit for bit, those of microbatches in one process."""

from __future__ import annotations

import rushlight as torch
import rushlight.distributed as dist
from rushlight import memory, nn
from rushlight.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    pipeline,
)
from rushlight.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
WIDTH, ROWS, CHUNKS = 16, 16, 8


class Two(nn.Module):
    """A layer that hands two tensors on, one of which needs no gradient."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, kept=None):
        kept = x.detach() if kept is None else kept
        return torch.tanh(self.layer(x)) + 0.1 * kept, kept


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x, kept):
        return self.layer(self.norm(x) + kept)


def layers(count):
    torch.manual_seed(2)
    return [*(Two() for _ in range(count - 1)), Last()]


def batch():
    torch.manual_seed(3)
    return torch.randn(ROWS, WIDTH), torch.randint(0, 5, (ROWS,))


def reference(count):
    """Gradient accumulation over the microbatches."""
    model = layers(count)
    x, y = batch()
    losses = []
    for part, goal in zip(x.chunk(CHUNKS), y.chunk(CHUNKS), strict=True):
        made = (part,)
        for layer in model:
            made = layer(*made) if isinstance(made, tuple) else layer(made)
        losses.append(F.cross_entropy(made, goal))
        losses[-1].backward()
    for layer in model:
        for p in layer.parameters():
            p.grad.div_(CHUNKS)
    return model, losses


def check(make, each=1):
    count = SIZE * each
    expected, losses = reference(count)
    own = [RANK + SIZE * n for n in range(each)]
    stages = [PipelineStage(layers(count)[n], n, count, "cpu") for n in own]
    schedule = make(stages)
    x, y = batch()
    found: list = []
    for step in range(2):
        for stage in stages:
            stage.submod.zero_grad()
        given = (x,) if 0 in own else ()
        target = y if count - 1 in own else None
        out = schedule.step(*given, target=target, losses=found)
        for stage in stages:
            pairs = zip(
                stage.submod.parameters(), expected[stage.stage_index].parameters(), strict=True
            )
            for p, q in pairs:
                assert torch.equal(p.grad, q.grad), (stage.stage_index, step)
        if count - 1 in own:
            assert out.shape == (ROWS, 5)
            assert all(torch.equal(a, b) for a, b in zip(found, losses, strict=True))
        else:
            assert out is None and not found
    test = schedule.eval(*given)
    assert (test is None) == (count - 1 not in own)
    return [stage.held for stage in stages]


def peaks():
    """Bytes of activations: 1F1B's peak is below GPipe's on all but the last microbatch's worth."""
    found = []
    for kind in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(0)
        wide = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(4)))
        stage = PipelineStage(wide, RANK, SIZE)
        schedule = kind(stage, CHUNKS, lambda a, b: (a - b).square().mean())
        x = torch.ones(512, 128)
        for _ in range(2):
            memory.reset_peak()
            before = memory.allocated()
            schedule.step(
                *((x,) if RANK == 0 else ()),
                target=x if RANK == SIZE - 1 else None,
                return_outputs=False,
            )
            peak = memory.peak() - before
        found.append(peak)
    return found


def many():
    """More microbatches than there are tags."""
    torch.manual_seed(7)
    stage = PipelineStage(nn.Linear(4, 4), RANK, SIZE)
    schedule = Schedule1F1B(stage, 200, F.mse_loss)
    x = torch.randn(200, 4)
    schedule.step(*((x,) if RANK == 0 else ()), target=x if RANK == SIZE - 1 else None)
    whole = [torch.empty(4, 4) for _ in range(SIZE)]
    dist.all_gather(whole, stage.submod.weight.detach())
    biases = [torch.empty(4) for _ in range(SIZE)]
    dist.all_gather(biases, stage.submod.bias.detach())
    made = [nn.Linear(4, 4) for _ in range(SIZE)]
    for layer, weight, bias in zip(made, whole, biases, strict=True):
        with torch.no_grad():
            layer.weight.copy_(weight), layer.bias.copy_(bias)
    for row in x:
        F.mse_loss(nn.Sequential(*made)(row[None]), row[None]).backward()
    assert torch.equal(stage.submod.weight.grad, made[RANK].weight.grad / 200)


def refusals():
    stage = PipelineStage(layers(SIZE)[RANK], RANK, SIZE)
    schedule = Schedule1F1B(stage, 3, F.cross_entropy)
    x, y = batch()
    for call, words in (
        (lambda: schedule.step(x, target=y) if RANK == 0 else schedule.step(target=y), "multiple"),
        (lambda: PipelineStage(stage.submod, RANK + 1, SIZE + 1), "lies on rank"),
        (lambda: ScheduleGPipe(PipelineStage(stage.submod, RANK, SIZE + 1), 2), "one on each"),
    ):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            assert words in str(error), str(error)
        else:
            raise AssertionError(words)


class Net(nn.Module):
    """Two inputs, one of which the last stage reads; residuals that pass by a cut."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)
        )
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x, scale):
        first = self.embed(x)
        made = first
        for block in self.blocks:
            made = made + block(made)
        return self.head(made * scale + first)


def cutting():
    torch.manual_seed(5)
    net = Net()
    x, y = batch()
    scale = torch.rand(ROWS, 1)
    points = {f"blocks.{4 * n // SIZE}": SplitPoint.BEGINNING for n in range(1, SIZE)}
    pipe = pipeline(net, (x[:2], scale[:2]), split_spec=points)
    assert pipe.num_stages == SIZE
    stage = pipe.build_stage(RANK, "cpu")
    schedule = Schedule1F1B(stage, CHUNKS, F.cross_entropy)
    schedule.step(*((x, scale) if RANK == 0 else ()), target=y if RANK == SIZE - 1 else None)
    found = {n: p.grad.clone() for n, p in stage.submod.named_parameters()}
    net.zero_grad()
    for part in range(CHUNKS):
        rows = slice(part * 2, part * 2 + 2)
        F.cross_entropy(net(x[rows], scale[rows]), y[rows]).backward()
    expected = {n: p.grad / CHUNKS for n, p in net.named_parameters()}
    assert found and all(torch.equal(g, expected[n]) for n, g in found.items())
    assert len(pipeline(net, (x, scale), split_spec={"embed": SplitPoint.END}).state_dict()) == 12
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    for model, given, words in (
        (tied, torch.ones(1, 4), "untie"),
        (Branching(), torch.ones(1, 4), "cut it by hand"),
    ):
        try:
            pipeline(model, (given,), split_spec={"1": SplitPoint.BEGINNING})
        except RuntimeError as error:
            assert words in str(error), str(error)
        else:
            raise AssertionError(words)


class Branching(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, x):
        return self[1](x) if self[0](x).sum() > 0 else x


held = check(lambda stages: ScheduleGPipe(stages[0], CHUNKS, F.cross_entropy))
assert held == [CHUNKS]
held = check(lambda stages: Schedule1F1B(stages[0], CHUNKS, F.cross_entropy))
assert held == [min(CHUNKS, SIZE - RANK)]
check(lambda stages: ScheduleInterleaved1F1B(stages, CHUNKS, F.cross_entropy), 2)
many()
refusals()
cutting()
gpipe, one = peaks()
assert one < gpipe, (one, gpipe)
print("done", gpipe, one)
