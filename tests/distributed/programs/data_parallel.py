"""DistributedDataParallel against one process that sees the whole batch."""

from __future__ import annotations

import copy
import io

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import DDP
from rushlight.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook as post,
    powerSGD_hook as power,
)
from rushlight.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from rushlight.distributed.optim import PostLocalSGDOptimizer
from rushlight.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
ROWS = 4 * SIZE


def net():
    torch.manual_seed(RANK)  # rank 0's parameters come to all
    return nn.Sequential(
        nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)
    )


def batch(seed=3):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, 5, generator=drawn), torch.randn(ROWS, 3, generator=drawn)


def mine(*tensors):
    return [one[4 * RANK : 4 * RANK + 4] for one in tensors]


def near(got, wanted, tolerance=1e-5):
    assert torch.allclose(got, wanted, rtol=tolerance, atol=tolerance), (RANK, got, wanted)


def equal_everywhere(tensors):
    for tensor in tensors:
        other = tensor.detach().clone()
        dist.broadcast(other, src=0)
        assert torch.equal(other, tensor.detach()), RANK


def gradients_of_the_whole(model, x, y):
    alone = copy.deepcopy(model)
    F.mse_loss(alone(x), y).backward()
    return [p.grad for p in alone.parameters()]


def check_gradients():
    x, y = batch()
    for options in (
        {},
        {"bucket_cap_mb": 0.001},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
    ):
        model = net()
        wrapped = DDP(model, **options)
        equal_everywhere(model.parameters())
        wanted = gradients_of_the_whole(model, x, y)
        for _ in range(2):
            wrapped.zero_grad()
            a, b = mine(x, y)
            F.mse_loss(wrapped(a), b).backward()
            for p, g in zip(model.parameters(), wanted, strict=True):
                near(p.grad, g)
            equal_everywhere([p.grad for p in model.parameters()])
        for p in model.parameters():  # a second pass adds to what is there
            p.grad = p.grad.clone()
        kept = [p.grad.clone() for p in model.parameters()]
        F.mse_loss(wrapped(a), b).backward()
        for p, g in zip(model.parameters(), kept, strict=True):
            near(p.grad, 2 * g)


def check_no_sync():
    x, y = batch()
    model = net()
    wrapped = DDP(model)
    a, b = mine(x, y)
    with wrapped.no_sync():
        F.mse_loss(wrapped(a), b).backward()
    own = [p.grad.clone() for p in model.parameters()]
    alone = copy.deepcopy(model)
    alone.zero_grad()
    F.mse_loss(alone(a), b).backward()
    for p, g in zip(alone.parameters(), own, strict=True):
        assert torch.equal(p.grad, g)
    F.mse_loss(wrapped(a), b).backward()
    for p, g in zip(model.parameters(), gradients_of_the_whole(model, x, y), strict=True):
        near(p.grad, 2 * g)


class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.never = (nn.Linear(5, 3) for _ in range(3))

    def forward(self, x):
        return self.first(x) if RANK == 0 else self.second(x)


def check_unused():
    x, y = batch()
    wrapped = DDP(Forked(), find_unused_parameters=True)
    a, b = mine(x, y)
    F.mse_loss(wrapped(a), b).backward()
    model = wrapped.module
    assert model.never.weight.grad is None
    assert model.first.weight.grad is not None and model.second.weight.grad is not None
    equal_everywhere([model.first.weight.grad, model.second.bias.grad])
    refused = DDP(Forked())
    F.mse_loss(refused(a), b).backward()
    try:
        refused(a)
    except RuntimeError as error:
        assert "find_unused_parameters=True" in str(error)
    else:
        raise AssertionError("unused parameters were not told")


def check_forwards_without_backward():
    x, y = batch()
    a, b = mine(x, y)
    model = net()
    wrapped = DDP(model)
    wrapped(a)
    F.mse_loss((wrapped(a) + wrapped(a)) / 2, b).backward()
    for p, g in zip(model.parameters(), gradients_of_the_whole(model, x, y), strict=True):
        near(p.grad, g)
    sharded = DDP(net(), shards=SIZE)
    sharded(a)
    try:
        sharded(a)
    except RuntimeError as error:
        assert "got no gradient in the last pass" in str(error)
    else:
        raise AssertionError("gradients of two forwards would be mixed up")


def check_buffers_and_state():
    torch.manual_seed(RANK)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    wrapped = DDP(model)
    x, _ = batch()
    wrapped(mine(x)[0] + RANK).sum().backward()
    wrapped(mine(x)[0] + RANK)
    assert model[1].num_batches_tracked.item() == 2
    alone = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    file = io.BytesIO()
    torch.save(wrapped.module.state_dict(), file)
    alone.load_state_dict(torch.load(io.BytesIO(file.getvalue())))
    assert list(wrapped.state_dict()) == [f"module.{name}" for name in alone.state_dict()]
    DDP(alone).load_state_dict(wrapped.state_dict())


def check_sync_batch_norm():
    drawn = torch.Generator().manual_seed(9)
    x = torch.randn(ROWS, 3, 4, generator=drawn)
    torch.manual_seed(0)
    alone = nn.BatchNorm1d(3)
    with torch.no_grad():
        alone.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
    shared = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone))
    wrapped = DDP(shared)
    whole, own = x.clone().requires_grad_(), mine(x)[0].clone().requires_grad_()
    wanted, got = alone(whole), wrapped(own)
    near(got, mine(wanted)[0])
    factor = torch.arange(x.numel()).view_as(x) % 7
    (wanted * factor).sum().backward()
    (got * mine(factor)[0]).sum().backward()
    near(own.grad, mine(whole.grad)[0], 1e-4)
    near(shared.weight.grad * SIZE, alone.weight.grad, 1e-4)
    near(shared.bias.grad * SIZE, alone.bias.grad, 1e-4)
    near(shared.running_var, alone.running_var)
    near(shared.running_mean, alone.running_mean)
    shared.eval(), alone.eval()
    near(shared(own), mine(alone(whole))[0])


def check_hooks():
    x, y = batch()
    a, b = mine(x, y)
    for hook, tolerance in (
        (default_hooks.allreduce_hook, 1e-6),
        (default_hooks.bf16_compress_hook, 2e-2),
        (default_hooks.fp16_compress_hook, 2e-3),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 2e-3),
    ):
        wrapped = DDP(net())
        wrapped.register_comm_hook(None, hook)
        F.mse_loss(wrapped(a), b).backward()
        wanted = gradients_of_the_whole(wrapped.module, x, y)
        for p, g in zip(wrapped.parameters(), wanted, strict=True):
            near(p.grad, g, tolerance)


def check_products_of_low_rank():
    x, y = batch()
    a, b = mine(x, y)
    for hook in (power.powerSGD_hook, power.batched_powerSGD_hook):
        # Of full rank nothing is left out.
        state = power.PowerSGDState(None, 4096, 2, 0.0, random_seed=1)
        wrapped = DDP(net())
        wrapped.register_comm_hook(state, hook)
        for _ in range(4):
            wrapped.zero_grad()
            F.mse_loss(wrapped(a), b).backward()
            wanted = gradients_of_the_whole(wrapped.module, x, y)
            for p, g in zip(wrapped.parameters(), wanted, strict=True):
                near(p.grad, g, 1e-4)
            equal_everywhere([p.grad for p in wrapped.parameters()])
        assert state.iter == 4 and state.compression_stats()[1] > 0
    # Of rank 1 what is left out comes later: the sum of many gradients is that of the averages.
    state = copy.deepcopy(power.PowerSGDState(None, 1, 2))
    wrapped = DDP(net())
    wrapped.register_comm_hook(state, power.powerSGD_hook)
    wanted = gradients_of_the_whole(wrapped.module, x, y)
    total = [torch.zeros_like(g) for g in wanted]
    for n in range(42):
        wrapped.zero_grad()
        F.mse_loss(wrapped(a), b).backward()
        if n >= 2:
            for t, p in zip(total, wrapped.parameters(), strict=True):
                t += p.grad / 40
    far = [float((t - g).norm() / g.norm()) for t, g in zip(total, wanted, strict=True)]
    once = [
        float((p.grad - g).norm() / g.norm())
        for p, g in zip(wrapped.parameters(), wanted, strict=True)
    ]
    assert max(far) < 0.1 and max(once) > max(far), (far, once)
    assert state.compression_stats()[0] > 2
    try:
        power.PowerSGDState(None, start_powerSGD_iter=1)
    except ValueError as error:
        assert "start_powerSGD_iter" in str(error)
    else:
        raise AssertionError("error feedback from the first step on")


def check_local_steps():
    alone = dist.new_subgroups(1)[0]
    a, b = mine(*batch())
    wrapped = DDP(net())
    wrapped.register_comm_hook(post.PostLocalSGDState(None, alone, 2), post.post_localSGD_hook)
    inside = torch.optim.SGD(wrapped.parameters(), 0.1)
    optimizer = PostLocalSGDOptimizer(inside, PeriodicModelAverager(3, warmup_steps=2))
    apart = []
    for _ in range(6):  # averages after the third and the sixth
        optimizer.zero_grad()
        F.mse_loss(wrapped(a), b).backward()
        optimizer.step()
        mean = next(wrapped.parameters()).detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        apart.append(not torch.allclose(mean, next(wrapped.parameters()), rtol=0, atol=1e-7))
    assert apart == [False, False, False, True, True, False], apart
    state = optimizer.state_dict()
    assert state["step"] == 6
    optimizer.averager.step = 0
    optimizer.load_state_dict(state)
    assert optimizer.averager.step == 6 and optimizer.state is inside.state


def check_passes_that_a_program_prepares():
    x, y = batch()
    a, b = mine(x, y)
    wrapped = DDP(net())
    wrapped.require_backward_grad_sync = False
    loss = F.mse_loss(wrapped(a), b)
    wrapped.require_backward_grad_sync = True
    wrapped.reducer.prepare_for_backward([])
    loss.backward()
    wanted = gradients_of_the_whole(wrapped.module, x, y)
    for p, g in zip(wrapped.parameters(), wanted, strict=True):
        near(p.grad, g)


def check_uneven_inputs_end_early():
    wrapped = DDP(net())
    a, b = mine(*batch())
    try:
        with wrapped.join(throw_on_early_termination=True):
            for _ in range(2 + RANK):
                F.mse_loss(wrapped(a), b).backward()
    except RuntimeError as error:
        assert "no more inputs" in str(error)
    else:
        raise AssertionError("uneven inputs were taken")
    F.mse_loss(wrapped(a), b).backward()  # outside of the block all is as before


def check_uneven_inputs():
    for by_all in (True, False):
        wrapped = DDP(net())
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
        x, y = batch()
        a, b = mine(x, y)
        with wrapped.join(divide_by_initial_world_size=by_all):
            for _ in range(2 + RANK):
                optimizer.zero_grad()
                F.mse_loss(wrapped(a), b).backward()
                optimizer.step()
        equal_everywhere(wrapped.parameters())


def check_uneven_inputs_without_collectives():
    wrapped = DDP(nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)))
    a, b = mine(*batch())
    with wrapped.join():
        for _ in range(2 + RANK):
            with wrapped.no_sync():
                F.mse_loss(wrapped(a), b).backward()
            F.mse_loss(wrapped(a), b).backward()
            wrapped.zero_grad()
            with torch.no_grad():
                wrapped(a)
    equal_everywhere(wrapped.buffers())
    try:
        with DDP(net(), shards=SIZE).join():
            pass
    except RuntimeError as error:
        assert "use no shards" in str(error)
    else:
        raise AssertionError("uneven shards were taken")


def check_a_failed_pass_changes_nothing():
    wrapped = DDP(net())
    a, b = mine(*batch())
    F.mse_loss(wrapped(a), b).backward()
    for options in ({}, {"shards": 2 * SIZE}):
        wrapped = DDP(net(), **options)
        try:
            wrapped(a[:, :2])  # on all ranks
        except torch.RushlightError:
            pass
        else:
            raise AssertionError("a shape that does not fit")
        F.mse_loss(wrapped(a), b).backward()
        assert all(p.grad is not None for p in wrapped.parameters())
    try:
        DDP(nn.Linear(2, 2 + RANK))
    except dist.DistributedError as error:
        assert "differs" in str(error)
    else:
        raise AssertionError("modules that differ were taken")


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
print("done", RANK, SIZE)
