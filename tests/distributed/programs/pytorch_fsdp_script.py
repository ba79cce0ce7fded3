"""A PyTorch program of sharded models as its users write it; nothing in it names Rushlight."""

import functools
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(400, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout(x), 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


class AppState(Stateful):
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )


def train(model, optimizer, clip, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        output = model(torch.randn(4, 1, 14, 14))
        F.nll_loss(output, torch.randint(0, 10, (4,)), reduction="sum").backward()
        clip()
        optimizer.step()


def whole(model):
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return {name: value.clone() for name, value in full.items()}


@record
def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
    model = FSDP(
        Net(),
        auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        sync_module_states=True,
    )
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    train(model, optimizer, lambda: model.clip_grad_norm_(1.0), 3)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if rank == 0:
        Net().load_state_dict(state)

    net = Net()
    for layer in (net.conv1, net.conv2, net.fc1):
        fully_shard(layer, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    fully_shard(net)
    adam = torch.optim.Adam(net.parameters(), lr=1e-2)
    train(net, adam, lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0), 2)
    dcp.save({"app": AppState(net, adam)}, checkpoint_id=f"{folder}/app")
    before = whole(net)
    train(net, adam, lambda: None, 1)
    assert not torch.equal(whole(net)["fc1.weight"], before["fc1.weight"])
    dcp.load({"app": AppState(net, adam)}, checkpoint_id=f"{folder}/app")
    after = whole(net)
    assert all(torch.equal(before[name], after[name]) for name in before)
    state = {"model": net.state_dict()}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{folder}/model"))
    dcp.load(state, storage_reader=dcp.FileSystemReader(f"{folder}/model"))
    print("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
