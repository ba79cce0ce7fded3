"""ZeroRedundancyOptimizer against one optimiser, bit for bit."""

from __future__ import annotations

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import DDP
from rushlight.distributed.algorithms.join import Join
from rushlight.distributed.optim import ZeroRedundancyOptimizer
from rushlight.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def net():
    torch.manual_seed(2)
    return DDP(nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 30), nn.Linear(30, 3)))


def step(model, optimizer, n):
    drawn = torch.Generator().manual_seed(n * 10 + RANK)
    x, y = torch.randn(4, 6, generator=drawn), torch.randint(0, 3, (4,), generator=drawn)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def equal(a, b):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.equal(p, q)


def run(as_view, kind, **options):
    expected, model = net(), net()
    one = kind(expected.parameters(), **options)
    zero = ZeroRedundancyOptimizer(
        model.parameters(), kind, parameters_as_bucket_view=as_view, **options
    )
    rates = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (one, zero)]
    for n in range(3):
        step(expected, one, n)
        step(model, zero, n)
        for rate in rates:
            rate.step()
    equal(expected, model)
    own = sum(p.numel() for group in zero.optim.param_groups for p in group["params"])
    most = sum(p.numel() for p in model.parameters())
    assert own < most or SIZE == 1
    zero.consolidate_state_dict(to=SIZE - 1)
    if RANK == SIZE - 1:
        state, plain = zero.state_dict(), one.state_dict()
        assert state["state"].keys() == plain["state"].keys()
        for number, kept in plain["state"].items():
            for name, value in kept.items():
                assert torch.equal(torch.as_tensor(state["state"][number][name]), value)
        assert state["param_groups"][0]["params"] == plain["param_groups"][0]["params"]
        assert state["param_groups"][0]["lr"] == plain["param_groups"][0]["lr"]
    else:
        try:
            zero.state_dict()
        except RuntimeError as error:
            assert "has not been consolidated on this rank" in str(error)
        else:
            raise AssertionError("a state that is elsewhere")
    other = ZeroRedundancyOptimizer(model.parameters(), kind, **options)
    other.load_state_dict(one.state_dict())
    for n in range(3, 5):
        step(expected, one, n)
        step(model, other, n)
    equal(expected, model)


for view in (False, True):
    run(view, torch.optim.AdamW, lr=0.02)
    run(view, torch.optim.SGD, lr=0.02, momentum=0.9)
model = net()
layers = list(model.module)
zero = ZeroRedundancyOptimizer(layers[0].parameters(), torch.optim.AdamW, lr=0.1)
zero.add_param_group({"params": list(layers[2].parameters()), "lr": 0.2})
assert [group["lr"] for group in zero.param_groups] == [0.1, 0.2]
step(model, zero, 0)
few = DDP(nn.Linear(6, 3))  # some ranks have no parameter of their own
step(few, ZeroRedundancyOptimizer(few.parameters(), torch.optim.AdamW, lr=0.1), 0)
# Ranks without inputs bring no gradients, and step their parameters with those of the others.
uneven, plain = net(), net()
zero = ZeroRedundancyOptimizer(uneven.parameters(), torch.optim.AdamW, lr=0.02)
one = torch.optim.AdamW(plain.parameters(), lr=0.02)
with Join([uneven, zero]):
    for n in range(2 + RANK):
        step(uneven, zero, n)
for n in range(2 + SIZE - 1):
    there = n < 2 + RANK
    drawn = torch.Generator().manual_seed(n * 10 + RANK)
    x, y = torch.randn(4, 6, generator=drawn), torch.randint(0, 3, (4,), generator=drawn)
    one.zero_grad()
    (F.cross_entropy(plain(x), y) * there).backward()
    one.step()
equal(uneven, plain)
try:
    ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
except NotImplementedError:
    pass
else:
    raise AssertionError("overlap_with_ddp")
print("done", RANK, SIZE)
