"""One CUDA card: NCCL with one rank, two ranks that share it through MPI, and what is refused.

    PYTHONPATH=$PWD python tests/distributed/programs/card.py

runs all parts, two processes by `rushlight launch`, or by Open MPI's mpiexec where mpi4py has that.
It prints a line for each part, and "all parts hold" last.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed import ReduceOp, mpi
from rushlight.distributed.collectives import span

PROGRAMS = Path(__file__).parent
SHAPES = ((), (0,), (7,), (3, 5), (2, 0, 3), (100_000,))
SUMMED = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16),
    *(torch.int32, torch.int64, torch.uint8, torch.complex64),
)
COPIED = (*SUMMED, torch.bool, torch.uint16, torch.complex128, torch.float8_e4m3fn)


def values(shape, dtype):
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, device="cuda") % 5).view(shape).to(dtype)


def same(got, wanted):
    assert got.device.type == "cuda" and got.dtype is wanted.dtype, (got, wanted)
    assert torch.equal(got.cpu(), wanted.cpu()), (got, wanted)


def transport_moves(transport, dtype):
    """Bytes really go through NCCL: a rank sends to itself."""
    x, y = values((1000,), dtype), torch.zeros(1000, dtype=dtype, device="cuda")
    for moving in (
        transport.exchange([span(x)], [span(y)], 0),
        transport.broadcast(span(y), 0, 0),
    ):
        while not moving.done():
            pass
    same(y, x)


def one_rank():
    """Every collective on every dtype, by a communicator of one rank."""
    dist.init_process_group("nccl", rank=0, world_size=1)
    assert dist.get_backend() == "nccl" and dist.get_world_size() == 1
    group = dist.group.WORLD
    assert group is not None
    for dtype in COPIED:
        transport_moves(group.transport, dtype)
    for shape, dtype in itertools.product(SHAPES, COPIED):
        x = values(shape, dtype)
        kept = x.clone()
        if dtype in SUMMED:
            dist.all_reduce(x)
            dist.reduce(x, dst=0)
            work = dist.all_reduce(x, ReduceOp.SUM, async_op=True)
            assert work is not None and work.wait()
            same(x, kept)
            made = torch.empty(shape, dtype=dtype, device="cuda")
            dist.reduce_scatter(made, [x])
            same(made, kept)
            dist.reduce_scatter_tensor(made.zero_(), x)
            same(made, kept)
        dist.broadcast(x, src=0)
        same(x, kept)
        for call in (
            lambda out, x: dist.all_gather([out], x),
            lambda out, x: dist.all_gather_into_tensor(out, x),
            lambda out, x: dist.gather(x, [out], dst=0),
            lambda out, x: dist.scatter(out, [x], src=0),
            lambda out, x: dist.all_to_all([out], [x]),
            lambda out, x: dist.all_to_all_single(out, x),
        ):
            out = torch.empty(shape, dtype=dtype, device="cuda")
            call(out, x)
            same(out, kept)
    base = torch.zeros(4, 6, device="cuda")
    base[:, ::2] = 3.0
    dist.broadcast(base[:, ::2], src=0)
    dist.all_reduce(base[:, ::2])
    assert base.sum().item() == 36
    mean = torch.full((3,), 2.0, device="cuda")
    dist.all_reduce(mean, ReduceOp.AVG)
    assert mean.tolist() == [2.0] * 3
    found = [None]
    dist.all_gather_object(found, {"a": 1})
    assert found == [{"a": 1}]
    dist.barrier()
    for wrong, error in (
        (lambda: dist.broadcast(torch.ones(3, device="cpu"), src=0), torch.RushlightError),
        (lambda: dist.all_reduce(values((2,), torch.float8_e4m3fn)), torch.RushlightError),
    ):
        try:
            wrong()
        except error:
            continue
        raise AssertionError("not refused")
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), shards=4)
    net(torch.ones(8, 4, device="cuda")).square().mean().backward()
    assert net.module.weight.grad is not None
    dist.destroy_process_group()
    print(f"NCCL with one rank: {len(COPIED)} dtypes, {len(SHAPES)} shapes")


def two_ranks():
    """Two ranks of NCCL on one card: refused, with what to do."""
    try:
        dist.init_process_group("nccl")
    except dist.DistributedError as error:
        assert "ranks [0, 1] share card 0" in str(error) and "init_process_group('mpi')" in str(
            error
        ), error
        print("refused:", error)
    else:
        raise AssertionError("two ranks of NCCL share a card")


def started(count, *words):
    """What rank 0 of so many processes prints."""
    program = [sys.executable, *words]
    if count > 1 and mpi.library().get_vendor()[0] == "Open MPI":
        given = ["mpiexec", "--allow-run-as-root", "--oversubscribe", "-n", str(count)]
        program = [*given, *program]
    elif count > 1:
        program = [sys.executable, "-m", "rushlight", "launch", "-n", str(count), *words]
    alone = {"RANK": "0", "WORLD_SIZE": "1"} if count == 1 else {}
    ended = subprocess.run(
        program, capture_output=True, text=True, timeout=300, env={**os.environ, **alone}
    )
    assert ended.returncode == 0, f"{words}: {ended.stdout[-2000:]}{ended.stderr[-4000:]}"
    return [line.removeprefix("[0] ") for line in ended.stdout.splitlines() if line[:3] != "[1]"]


def all_parts():
    device = torch.empty(1, device="cuda").device
    print("NCCL", started(1, str(PROGRAMS / "card.py"), "one"), device, flush=True)
    done = started(2, str(PROGRAMS / "collectives.py"), "cuda")
    assert "done 0 2" in done, done
    print("MPI between two ranks that share the card: all collectives", flush=True)
    told = started(2, str(PROGRAMS / "card.py"), "two")
    print(next(line for line in told if line.startswith("refused")), flush=True)
    digests = [started(n, str(PROGRAMS / "shards.py"), "cuda") for n in (1, 2)]
    assert len(digests[0]) == 3 and digests[0] == digests[1], digests
    print("the same bits of three models in 8 shards on 1 and 2 ranks:", *digests[0], sep="\n  ")
    print("all parts hold")


if __name__ == "__main__":
    {"one": one_rank, "two": two_ranks, "": all_parts}[(sys.argv[1:] or [""])[0]]()
