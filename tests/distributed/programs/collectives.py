"""Every collective, against NumPy, on every dtype, layout and size.

"messages" goes without shared memory, "pieces" with little of it. Any other word is the device.
"""

from __future__ import annotations

import itertools
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed import ReduceOp, arenas
from rushlight.distributed.work import Work

how = sys.argv[1] if len(sys.argv) > 1 else ""
arenas.HALF = {"messages": 0, "pieces": 1 << 15}.get(how, arenas.HALF)
if how in ("webgpu", "cuda"):
    torch.set_default_device(how)
dist.init_process_group("gloo", timeout=timedelta(seconds=120))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
NUMBERS = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16),
    *(torch.int32, torch.int64, torch.uint8, torch.complex64),
)
COPIED = (*NUMBERS, torch.bool, torch.uint16, torch.complex128)
CODES = (torch.float8_e4m3fn, torch.float8_e5m2)
if how == "webgpu":  # what this device has
    NUMBERS = (torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.uint8)
    COPIED = (*NUMBERS, torch.bool)
SHAPES = ((), (0,), (1,), (7,), (3, 5), (2, 0, 3), (40_000,))


def values(shape, dtype, rank=RANK):
    """Small integers, so that sums are exact in every dtype."""
    count = int(np.prod(shape))
    made = torch.tensor((np.arange(count) % 5 + rank).reshape(shape))
    return made.to(dtype)


def same(got, wanted):
    assert got.dtype is wanted.dtype and got.shape == wanted.shape, (got, wanted)
    assert torch.equal(got, wanted), (RANK, got, wanted)


def everyone(shape, dtype):
    return [values(shape, dtype, rank) for rank in range(SIZE)]


def check_all_reduce():
    for shape, dtype in itertools.product(SHAPES, NUMBERS):
        x = values(shape, dtype)
        assert dist.all_reduce(x) is None
        wanted = sum(
            v.to(torch.complex128 if dtype.is_complex else torch.float64)
            for v in everyone(shape, dtype)
        )
        same(x, wanted.to(dtype))
    x = torch.arange(24.0).view(4, 6)[:, ::2] + RANK  # a view is not contiguous
    base = torch.zeros(4, 6)
    base[:, ::2] = x
    dist.all_reduce(base[:, ::2])
    wanted = torch.zeros(4, 6)
    wanted[:, ::2] = torch.arange(24.0).view(4, 6)[:, ::2] * SIZE + sum(range(SIZE))
    same(base, wanted)
    flags = torch.tensor([RANK == 0, True, False])
    dist.all_reduce(flags)
    same(flags, torch.tensor([True, True, False]))
    for op, wanted in (
        (ReduceOp.MIN, 1),
        (ReduceOp.MAX, SIZE),
        (ReduceOp.BOR, None),
        (ReduceOp.PRODUCT, int(np.prod(range(1, SIZE + 1)))),
    ):
        y = torch.full((3,), RANK + 1)
        dist.all_reduce(y, op)
        assert wanted is None or y.tolist() == [wanted] * 3, (op, y)
    mean = torch.full((4,), float(RANK))
    dist.all_reduce(mean, op=ReduceOp.AVG)
    assert mean.tolist() == [(SIZE - 1) / 2] * 4
    works = [dist.all_reduce(torch.full((50_000,), float(n)), async_op=True) for n in range(4)]
    assert all(work.wait() and work.is_completed() for work in works)
    assert [work.result()[0][0].item() for work in works] == [n * SIZE for n in range(4)]
    assert works[0].get_future().wait()[0][0].item() == 0


def check_sums_have_one_order():
    """All ranks have the same bits, and those of the tree."""
    parts = [torch.randn(1001, generator=torch.Generator().manual_seed(r)) for r in range(SIZE)]
    whole = parts[RANK].clone()
    dist.all_reduce(whole)

    def tree(low, high):
        middle = (low + high) // 2
        return parts[low] if high - low == 1 else tree(low, middle) + tree(middle, high)

    same(whole, tree(0, SIZE))
    parts = [torch.randn(40_001, generator=torch.Generator().manual_seed(r)) for r in range(SIZE)]
    whole = parts[RANK].clone()
    dist.all_reduce(whole)
    same(whole, tree(0, SIZE))


def check_traffic():
    """Bytes for other ranks, the same whether ranks share memory or not."""
    dist.traffic(reset=True)
    dist.all_reduce(torch.ones(10, dtype=torch.float64))
    assert dist.traffic() == {"all_reduce": dist.Traffic(1, 80 * (SIZE - 1), 1, SIZE - 1)}
    dist.all_reduce(torch.ones(120_000))  # divisible by the ranks of the tests
    found = dist.traffic(reset=True)["all_reduce"]
    sent = 80 * (SIZE - 1) + 2 * 480_000 * (SIZE - 1) // SIZE
    assert found == dist.Traffic(2, sent, 3, 3 * (SIZE - 1))
    dist.all_gather_into_tensor(torch.empty(30_000 * SIZE), torch.ones(30_000))
    dist.reduce_scatter_tensor(torch.empty(30_000), torch.ones(30_000 * SIZE))
    dist.broadcast(torch.empty(100_000))
    found = dist.traffic(reset=True)
    assert found["all_gather_into_tensor"] == dist.Traffic(1, 120_000 * (SIZE - 1), 1, SIZE - 1)
    assert found["reduce_scatter_tensor"] == dist.Traffic(1, 120_000 * (SIZE - 1), 1, SIZE - 1)
    handed = [torch.tensor([float(found["broadcast"].sent)]) for _ in range(SIZE)]
    dist.all_gather(handed, handed[0].clone())
    assert sum(one.item() for one in handed) == 400_000 * (SIZE - 1)
    assert dist.traffic(reset=True)["all_gather"].sent == 4 * (SIZE - 1)


def check_copies():
    shapes = ((), (0,), (5,), (3, 4), (40_001,))
    for shape, dtype in itertools.product(shapes, (*COPIED, *CODES)):
        x = values(shape, dtype)
        dist.broadcast(x, src=SIZE - 1)
        same(x, values(shape, dtype, SIZE - 1))
        got = [torch.empty(shape, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(got, values(shape, dtype))
        for one, wanted in zip(got, everyone(shape, dtype), strict=True):
            same(one, wanted)
    mine = values((3, 2), torch.float32)
    whole = torch.empty(3 * SIZE, 2)
    dist.all_gather_into_tensor(whole, mine)
    same(whole, torch.cat(everyone((3, 2), torch.float32)))
    large = values((30_001,), torch.int32)
    whole = torch.empty(2, 30_001 * SIZE, dtype=torch.int32).t()[:, 0]  # not contiguous
    dist.all_gather_into_tensor(whole, large)
    same(whole, torch.cat(everyone((30_001,), torch.int32)))
    got = [torch.empty(3, 2) for _ in range(SIZE)] if RANK == 1 else None
    dist.gather(mine, got, dst=1)
    if got:
        for one, wanted in zip(got, everyone((3, 2), torch.float32), strict=True):
            same(one, wanted)
    target = torch.empty(2, 3).t()
    dist.scatter(target, [torch.full((3, 2), float(n)) for n in range(SIZE)] if not RANK else None)
    same(target, torch.full((3, 2), float(RANK)))
    x = torch.full((4,), RANK + 1.0)
    dist.reduce(x, dst=0)
    assert x.tolist() == [SIZE * (SIZE + 1) / 2 if RANK == 0 else RANK + 1.0] * 4


def check_scattered_sums():
    rows = [torch.full((2, 3), float(n + RANK)) for n in range(SIZE)]
    wanted = torch.full((2, 3), float(SIZE * RANK + sum(range(SIZE))))
    out = torch.empty(2, 3)
    dist.reduce_scatter(out, rows)
    same(out, wanted)
    whole = torch.cat(rows)
    kept = whole.clone()
    dist.reduce_scatter_tensor(out.zero_(), whole)
    same(out, wanted)
    same(whole, kept)
    rows = [values((20_001,), torch.float32, RANK + n) for n in range(SIZE)]
    wanted = sum(values((20_001,), torch.float32, RANK + n) for n in range(SIZE))
    for out in (torch.empty(20_001), torch.empty(20_001, 2)[:, 0]):
        dist.reduce_scatter_tensor(out, torch.cat(rows))
        same(out, wanted)
        dist.reduce_scatter(out.zero_(), rows)
        same(out, wanted)


def check_exchanges():
    out = [torch.empty(2) for _ in range(SIZE)]
    dist.all_to_all(out, [torch.full((2,), 10.0 * RANK + n) for n in range(SIZE)])
    assert [one[0].item() for one in out] == [10.0 * n + RANK for n in range(SIZE)]
    x = torch.arange(2 * SIZE) + 100 * RANK
    got = torch.empty_like(x)
    dist.all_to_all_single(got, x)
    assert got.tolist() == [100 * n + 2 * RANK + k for n in range(SIZE) for k in range(2)]
    sizes = [n + 1 for n in range(SIZE)]  # rank n gets n + 1 rows of each
    got = torch.empty(SIZE * (RANK + 1), 2)
    dist.all_to_all_single(got, torch.full((sum(sizes), 2), float(RANK)), [RANK + 1] * SIZE, sizes)
    assert got[:, 0].tolist() == [float(n) for n in range(SIZE) for _ in range(RANK + 1)]


def check_messages():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    x, y = torch.full((30_000,), float(RANK)), torch.empty(30_000)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)]
    )
    for work in works:
        work.wait()
    assert y[0].item() == before
    assert dist.traffic()["send"] == dist.Traffic(1, 120_000, 1, 1)
    if RANK == 0:
        dist.send(torch.tensor([5]), 1, tag=3)
        box = [None]
        dist.recv_object_list(box, 1)
        assert box == [{"answer": (1, 2)}]
    elif RANK == 1:
        z = torch.empty(1, dtype=torch.int64)
        assert dist.recv(z, tag=3) == 0 and z.item() == 5
        dist.send_object_list([{"answer": (1, 2)}], 0)


def check_objects():
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK, "text": "x" * RANK})
    assert [one["rank"] for one in found] == list(range(SIZE))
    given = ["a", 2, None] if RANK == 0 else [None] * 3
    dist.broadcast_object_list(given)
    assert given == ["a", 2, None]
    one = [None]
    dist.scatter_object_list(one, [f"for {n}" for n in range(SIZE)] if RANK == 0 else None)
    assert one == [f"for {RANK}"]
    got = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK, got)
    assert got is None or got == list(range(SIZE))


def check_order_of_groups():
    given = dist.new_group([SIZE - 1, 0])
    assert dist.get_rank(given) == {0: 0, SIZE - 1: 1}.get(RANK, -1)


def check_groups_that_their_members_make():
    """The others do not make the call; groups of all ranks are made before and after."""
    x = torch.tensor([RANK + 1.0])
    for _ in range(2):
        if RANK < 2:
            pair = dist.new_group([1, 0], use_local_synchronization=True)
            y = x.clone()
            dist.all_reduce(y, group=pair)
            assert y.item() == 3.0 and dist.get_rank(pair) == RANK
            dist.send(y, 1, group=pair) if RANK == 0 else dist.recv(y, 0, group=pair)
        every = dist.new_group()
        y = x.clone()
        dist.all_reduce(y, group=every)
        assert y.item() == SIZE * (SIZE + 1) / 2
    own = dist.new_group([RANK], use_local_synchronization=True)
    assert dist.get_world_size(own) == 1
    absent = dist.new_group([(RANK + 1) % SIZE], use_local_synchronization=True)
    assert dist.get_world_size(absent) == -1


def check_calls_of_two_groups():
    """Ranks make them in another order, and none waits for the other group's."""
    pair = [dist.new_group() for _ in range(2)]
    order = pair[::-1] if RANK % 2 else pair
    rows = {group: torch.full((5,), float(RANK)) for group in pair}
    for work in [dist.all_reduce(rows[group], group=group, async_op=True) for group in order]:
        work.wait()
    assert all(row.tolist() == [sum(range(SIZE))] * 5 for row in rows.values())
    for first, second in (order, order):
        work = dist.barrier(first, async_op=True)
        dist.barrier(second)
        work.wait()


def check_a_call_after_another_groups():
    """Both are under way; the second reads what the first writes."""
    first, second = dist.new_group(), dist.new_group()
    x = torch.full((50_000,), RANK + 1.0)
    first.worker.submit(Work(lambda: time.sleep(0.3)))
    before = dist.all_reduce(x, group=first, async_op=True)
    dist.all_reduce(x, group=second, async_op=True, after=before).wait()
    assert x.tolist() == [SIZE * sum(range(1, SIZE + 1))] * 50_000, x
    after = Work(lambda: 1 / 0)
    after._perform()
    work = dist.all_reduce(x, group=second, async_op=True, after=after)
    try:
        work.wait()
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError(x)


def check_groups():
    last = dist.new_group([SIZE - 1, 0], sort_ranks=False)
    inside = RANK in (0, SIZE - 1)
    assert dist.get_world_size(last) == (2 if inside else -1)
    x = torch.tensor([RANK + 1.0])
    dist.all_reduce(x, group=last)
    assert x.item() == (1.0 + SIZE if inside else RANK + 1.0)
    if inside:
        assert dist.get_rank(last) == (0 if RANK == SIZE - 1 else 1)
        assert dist.get_global_rank(last, 0) == SIZE - 1 and dist.get_group_rank(last, 0) == 1
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    mine, every = dist.new_subgroups(1)
    assert len(every) == SIZE and dist.get_world_size(mine) == 1
    dist.destroy_process_group(mine)
    own, every = dist.new_subgroups_by_enumeration([[n] for n in range(SIZE)])
    assert own.ranks == [RANK] and len(every) == SIZE
    assert dist.get_pg_count() >= 2 and dist.supports_complex(ReduceOp.SUM)


def check_store_and_memory():
    store = dist.group.WORLD.world.store
    store.add("count", 1)
    store.set(f"key{RANK}", b"\x00\xff")
    store.wait([f"key{n}" for n in range(SIZE)])
    store.set("text", "€")
    assert store.get("text") == "€".encode()
    assert store.get("key0") == b"\x00\xff" and not store.check(["nothing"])
    dist.barrier()
    assert store.add("count", 0) == SIZE
    x = torch.ones(100_000)
    with torch.memory.budget(torch.memory.allocated() + (64 << 20)):
        dist.all_reduce(x)
        before = torch.memory.allocated("cpu")
        assert before >= 2 * arenas.half_for(400_000) or x.device.type != "cpu"
    assert x[0].item() == SIZE
    tight = dist.new_group(range(SIZE))
    try:
        with torch.memory.budget(torch.memory.allocated("cpu") + 1000, device="cpu"):
            dist.all_reduce(x, group=tight)
    except torch.BudgetError:
        pass
    else:
        raise AssertionError("buffers of collectives are not counted")


def check_memory_that_was_used():
    """Blocks of the pool are not empty: what lay where ranks meet does not count as a rank."""
    count = (4096 + 2 * arenas.half_for(400_000)) // 4
    for come in (1, 2):  # times that a rank came, as the word has it
        held = [torch.full((count,), come << 15, dtype=torch.int32) for _ in range(4)]
        del held
        group = dist.new_group(range(SIZE))
        if RANK == 0:
            time.sleep(0.1)
        x = torch.full((100_000,), RANK + 1.0)
        dist.all_reduce(x, group=group)
        same(x, torch.full((100_000,), SIZE * (SIZE + 1) / 2))


def check_memory_of_mpi():
    """It has no name, which would outlive ranks that are all killed."""
    if sys.platform == "linux":
        lines = Path("/proc/self/maps").read_text().splitlines()
        names = [line for line in lines if "/dev/shm/mpich" in line]
        assert all(line.endswith("(deleted)") for line in names), names


def check_bad_calls():
    for call, error in (
        (lambda: dist.all_reduce(torch.ones(2), "sum"), TypeError),
        (lambda: dist.all_reduce([1.0]), TypeError),
        (lambda: dist.all_reduce(torch.ones(2), ReduceOp.BAND), torch.RushlightError),
        (lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2)), torch.RushlightError),
        (lambda: dist.broadcast(torch.ones(2), src=SIZE), ValueError),
        (lambda: dist.broadcast(torch.ones(2), group_src=SIZE), ValueError),
        (lambda: dist.isend(torch.ones(2), group_dst=-1), ValueError),
        (lambda: dist.irecv(torch.ones(2), group_src=SIZE), ValueError),
        (lambda: dist.recv(torch.ones(2), RANK), ValueError),  # would wait for itself
        (lambda: dist.broadcast_object_list([1], group_src=SIZE), ValueError),
        (lambda: dist.new_group([0, 0]), ValueError),
        (lambda: dist.all_gather([torch.ones(2)] * (SIZE + 1), torch.ones(2)), ValueError),
        (
            lambda: dist.all_gather_into_tensor(
                torch.ones(2 * SIZE, dtype=torch.float64), torch.ones(2)
            ),
            torch.RushlightError,
        ),
        (
            lambda: dist.all_to_all(
                [torch.ones(3) if n == RANK else torch.ones(2) for n in range(SIZE)],
                [torch.ones(2)] * SIZE,
            ),
            torch.RushlightError,
        ),
        (lambda: dist.init_process_group("gloo"), ValueError),
    ):
        try:
            call()
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")


for name, check in list(globals().items()):
    if name.startswith("check_") and name != "check_store_and_memory":
        check()
dist.destroy_process_group()
assert not dist.is_initialized() and dist.get_rank() == 0
dist.init_process_group("mpi")  # again, in the same processes
assert dist.get_rank() == RANK and dist.get_backend() == "mpi"
check_store_and_memory()  # last: a refused budget leaves its call unmade
print("done", RANK, SIZE)
