"""FullyShardedDataParallel, states of sharded models, and checkpoints of them.

`fsdp_states.py FOLDER save` trains two steps and saves; `... load` goes on, on any number of ranks.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed import DDP, checkpoint
from rushlight.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from rushlight.distributed.fsdp import (
    BackwardPrefetch,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from rushlight.distributed.fsdp.wrap import (
    ModuleWrapPolicy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
from rushlight.distributed.tensor import DTensor
from rushlight.nn import functional as F

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else None


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(10), nn.Linear(10, 21), nn.Linear(21, 10)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 10), Layer(), Layer(), nn.Linear(10, 3))


def batch(step, rank=RANK):
    drawn = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(4, 5, generator=drawn), torch.randint(0, 3, (4,), generator=drawn)


def train(model, optimizer, steps, clip=0.4):
    norms = []
    for step in steps:
        x, y = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        own = getattr(model, "clip_grad_norm_", None)
        parameters = model.parameters()
        norms.append(float(own(clip) if own else nn.utils.clip_grad_norm_(parameters, clip)))
        optimizer.step()
    return norms


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.03)


def sharded():
    model = net()
    for layer in (model[1], model[2]):
        fully_shard(layer)
    return fully_shard(model)


REFERENCE = DDP(net())
OPTIMIZER = adam(REFERENCE)
NORMS = train(REFERENCE, OPTIMIZER, range(3))
WHOLE = {name: value.clone() for name, value in REFERENCE.module.state_dict().items()}


def equal(got, wanted=WHOLE):
    assert got.keys() == wanted.keys(), (list(got), list(wanted))
    for name, value in got.items():
        value = value.full_tensor() if isinstance(value, DTensor) else value
        assert torch.equal(value, wanted[name]), name


def wrapped():
    """Every strategy and policy gives the bits of DDP."""
    policies = (
        None,
        ModuleWrapPolicy({Layer}),
        functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer}),
        functools.partial(size_based_auto_wrap_policy, min_num_params=200),
    )
    cases = [{"auto_wrap_policy": policy} for policy in policies]
    cases += [
        {"auto_wrap_policy": policies[1], "sharding_strategy": strategy}
        for strategy in (
            *(ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD),
            ShardingStrategy.HYBRID_SHARD,
        )
    ]
    cases += [
        {"auto_wrap_policy": policies[1], "forward_prefetch": True, "use_orig_params": True},
        {"auto_wrap_policy": policies[1], "backward_prefetch": BackwardPrefetch.BACKWARD_POST},
        {"auto_wrap_policy": policies[1], "backward_prefetch": None, "limit_all_gathers": False},
    ]
    for case in cases:
        model = FSDP(net(), **case)
        assert train(model, adam(model), range(3)) == NORMS, case
        equal(model.state_dict())
    model = FSDP(net(), auto_wrap_policy=policies[1])
    assert len(FSDP.fsdp_modules(model)) == 3 and len(FSDP.fsdp_modules(model, True)) == 1
    assert isinstance(model[1], FSDP) and isinstance(model.module[1].module, Layer)
    name = "_fsdp_wrapped_module.1._fsdp_wrapped_module.up.weight"
    assert name in dict(model.named_parameters())
    with model.no_sync():
        F.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
    assert all(p.grad is None for p in model.parameters())


def beginnings():
    """Rank 0's parameters come to all; others are ignored; parts follow what is changed."""
    torch.manual_seed(RANK)
    model = FSDP(nn.Linear(4, 3), sync_module_states=True)
    whole = model.state_dict()["weight"]
    torch.manual_seed(0)
    assert torch.equal(whole, nn.Linear(4, 3).weight.detach())
    kept = nn.Linear(3, 3)
    model = FSDP(nn.Sequential(nn.Linear(3, 3), kept), ignored_modules=[kept])
    assert type(kept.weight) is nn.Parameter and isinstance(model[0].weight, DTensor)
    model = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Layer}))
    with FSDP.summon_full_params(model):
        names = [name for name, _ in model.named_parameters()]
        assert names == list(WHOLE) and model[1].up.weight.shape == (21, 10)
        with torch.no_grad():
            model[1].up.weight.fill_(2.0)
    assert isinstance(model[1].up.weight, DTensor)
    assert bool((model.state_dict()["1.up.weight"] == 2).all())
    with FSDP.summon_full_params(model, writeback=False), torch.no_grad():
        model[1].up.weight.fill_(3.0)
    assert bool((model.state_dict()["1.up.weight"] == 2).all())
    F.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
    with FSDP.summon_full_params(model, with_grads=True):
        assert model[1].up.weight.grad.shape == (21, 10)
    model.apply(lambda m: m.reset_parameters() if isinstance(m, nn.Linear) else None)
    last = FSDP.fsdp_modules(model)[-1]._unit
    last.fill = lambda: [][0]
    try:
        with FSDP.summon_full_params(model):
            raise AssertionError("no room was missed")
    except IndexError:
        del last.fill
    assert all(isinstance(p, DTensor) for p in model.parameters())


def precisions():
    mixed = MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
    model = FSDP(
        nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)), mixed_precision=mixed
    )
    seen = []
    for layer in model.module:
        layer.register_forward_hook(lambda m, a, out: seen.append((m.weight.dtype, out.dtype)))
    model(batch(0)[0]).float().sum().backward()
    half, single = torch.bfloat16, torch.float32
    assert seen[0] == seen[2] == (half, half) and seen[1][0] is single, seen
    assert all(p.dtype is single is p.grad.dtype for p in model.parameters())


def states():
    """Whole and as parts, there and back, between wrappings."""
    model = sharded()
    optimizer = adam(model)
    assert train(model, optimizer, range(3)) == NORMS
    state = model.state_dict()
    assert all(isinstance(value, DTensor) for value in state.values())
    equal(state)
    full = StateDictOptions(full_state_dict=True)
    equal(get_model_state_dict(model, options=full))
    equal(get_model_state_dict(REFERENCE, options=full))
    on_host = StateDictOptions(full_state_dict=True, cpu_offload=True)
    got = get_model_state_dict(model, options=on_host)
    assert bool(got) == (RANK == 0)
    assert bool(get_optimizer_state_dict(model, optimizer, options=on_host)) == (RANK == 0)
    short = StateDictOptions(keep_submodule_prefixes=False)
    assert set(get_model_state_dict(model, submodules={model[0]})) == {"0.weight", "0.bias"}
    below = get_model_state_dict(model, submodules={model[0]}, options=short)
    assert set(below) == {"weight", "bias"}
    mine, theirs = get_state_dict(model, optimizer), get_state_dict(REFERENCE, OPTIMIZER)
    assert mine[1]["param_groups"] == theirs[1]["param_groups"]
    for name, kept in theirs[1]["state"].items():
        for word, value in kept.items():
            got = mine[1]["state"][name][word]
            got = got.full_tensor() if isinstance(got, DTensor) else got
            assert torch.equal(got, value), (name, word)
    # Into another wrapping, which goes on as the first does.
    later = train(model, optimizer, range(3, 5))
    wholes = get_state_dict(REFERENCE, OPTIMIZER, options=full)
    for target in (sharded(), FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Layer})), DDP(net())):
        other = adam(target)
        found = set_state_dict(
            target, other, model_state_dict=wholes[0], optim_state_dict=wholes[1]
        )
        assert not found.missing_keys and not found.unexpected_keys
        assert train(target, other, range(3, 5)) == later, type(target)
    # From rank 0 alone.
    target = sharded()
    other = adam(target)
    given = wholes if RANK == 0 else ({}, {})
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(target, given[0], options=options)
    set_optimizer_state_dict(target, other, given[1], options=options)
    assert train(target, other, range(3, 5)) == later
    # A model of the meta device has memory with the state.
    with torch.device("meta"):
        target = sharded()
    set_model_state_dict(target, given[0], options=options)
    assert not any(p.is_meta for p in target.parameters())
    other = adam(target)
    set_optimizer_state_dict(target, other, given[1], options=options)
    assert train(target, other, range(3, 5)) == later
    # One level deep.
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    target = sharded()
    other = adam(target)
    set_model_state_dict(target, wholes[0])
    one_level = get_optimizer_state_dict(REFERENCE, OPTIMIZER, options=flat)
    assert "state.1.up.weight.exp_avg" in one_level and "param_groups.0.bias.lr" in one_level
    set_optimizer_state_dict(target, other, one_level, options=flat)
    assert train(target, other, range(3, 5)) == later
    # Module.load_state_dict takes wholes and parts, also as new parameters.
    target = sharded()
    target.load_state_dict(WHOLE)
    equal(target.state_dict())
    target = sharded()
    target.load_state_dict(state)
    target.load_state_dict(state, assign=True)
    again = adam(target)
    train(target, again, range(1))
    bad = {**WHOLE, "0.weight": torch.zeros(2, 2)}
    before = target.state_dict()["0.bias"].full_tensor()
    for refused in (
        lambda: set_model_state_dict(target, bad),
        lambda: set_model_state_dict(target, {"0.weight": WHOLE["0.weight"]}),
        lambda: target.load_state_dict(bad),
    ):
        try:
            refused()
        except torch.RushlightError:
            pass
        else:
            raise AssertionError("a state that does not fit")
    assert torch.equal(target.state_dict()["0.bias"].full_tensor(), before)


def wrapper_states():
    model = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Layer}))
    optimizer = adam(model)
    train(model, optimizer, range(3))
    kinds = StateDictType
    with FSDP.state_dict_type(model, kinds.SHARDED_STATE_DICT):
        parts = {name: value.clone() for name, value in model.state_dict().items()}
        assert all(isinstance(value, DTensor) for value in parts.values())
        equal(parts)
        saved = FSDP.optim_state_dict(model, optimizer)
        assert isinstance(saved["state"]["1.up.weight"]["exp_avg"], DTensor)
        for name, kept in saved["state"].items():
            saved["state"][name] = {word: value.clone() for word, value in kept.items()}
    with FSDP.state_dict_type(model, kinds.LOCAL_STATE_DICT):
        local = {name: value.clone() for name, value in model.state_dict().items()}
        assert not any(isinstance(value, DTensor) for value in local.values())
    rank0 = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    optim0 = FullOptimStateDictConfig(rank0_only=True)
    with FSDP.state_dict_type(model, kinds.FULL_STATE_DICT, rank0, optim0):
        assert bool(model.state_dict()) == (RANK == 0)
        whole = FSDP.optim_state_dict(model, optimizer)
        assert bool(whole) == (RANK == 0)
    assert FSDP.get_state_dict_type(model).state_dict_type is kinds.FULL_STATE_DICT
    later = train(model, optimizer, range(3, 5))
    for state, kind, settings in (
        (WHOLE, kinds.FULL_STATE_DICT, (rank0, optim0)),
        (parts, kinds.SHARDED_STATE_DICT, ()),
        (local, kinds.LOCAL_STATE_DICT, ()),
    ):
        target = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Layer}))
        other = adam(target)
        with FSDP.state_dict_type(target, kind, *settings):
            if kind is kinds.FULL_STATE_DICT:
                target.load_state_dict(state)
                load = FSDP.optim_state_dict_to_load(target, other, whole)
            else:
                target.load_state_dict(state)
                load = FSDP.optim_state_dict_to_load(target, other, saved)
            other.load_state_dict(load)
        equal(target.state_dict())
        assert train(target, other, range(3, 5)) == later, kind


def checkpoints(folder, word):
    model, whole = (sharded(), {})
    optimizer = adam(model)
    if word == "save":
        train_alike(model, optimizer, range(2))
        states = get_state_dict(model, optimizer)
        state = {"model": states[0], "optimizer": states[1], "step": 2}
        checkpoint.save(state, checkpoint_id=folder)
        checkpoint.async_save(state, checkpoint_id=f"{folder}-later").wait()
    else:
        states = get_state_dict(model, optimizer)
        state = {"model": states[0], "optimizer": states[1], "step": 0}
        checkpoint.load(state, checkpoint_id=folder)
        assert state["step"] == 2
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
    train_alike(model, optimizer, range(2, 4))
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    bits = b"".join(value.contiguous().numpy().tobytes() for value in whole.values())
    if RANK == 0:
        print("digest", hashlib.sha256(bits).hexdigest())


def train_alike(model, optimizer, steps):
    """Every rank has the same rows, so the average over ranks does not depend on their number."""
    for step in steps:
        x, y = batch(step, 0)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


if FOLDER is not None:
    checkpoints(FOLDER, sys.argv[2])
else:
    for case in (wrapped, beginnings, precisions, states, wrapper_states):
        case()
print("done", RANK, SIZE)
