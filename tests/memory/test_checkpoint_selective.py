"""Selective checkpointing: which results a policy keeps, offloads or has rebuilt; the same bits."""

from __future__ import annotations

import functools
import gc
import random

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory, nn
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.memory import region
from rushlight.tape.memory.replay import COUNTERS
from rushlight.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

aten = rl.ops.aten
SAVE, RECOMPUTE = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE


class Rebuilt:
    """Takes the place of a recorder of memory: the names of the calls that are rebuilt."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def rebuilt(self, recipe, *_) -> None:
        self.names.append(recipe.plan.op.name)

    def dropped(self, storage) -> None:
        pass


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Blocks of other tests would be freed meanwhile."""
    gc.collect()


@pytest.fixture
def rebuilt(monkeypatch) -> list[str]:
    watch = Rebuilt()
    monkeypatch.setattr(COUNTERS, "watch", watch)
    return watch.names


def blocks(policy):
    return functools.partial(create_selective_checkpoint_contexts, policy)


def gradients(function, inputs, **named) -> list[bytes]:
    for x in inputs:
        x.grad = None
    rl.manual_seed(5)
    checkpoint(function, *inputs, use_reentrant=False, **named).sum().backward()
    return [x.grad.numpy(force=True).tobytes() for x in inputs]


def pair(device: str = "cpu", size: int = 10) -> list[rl.Tensor]:
    rl.manual_seed(0)
    return [rl.rand(size, size, device=device, requires_grad=True) for _ in range(2)]


def products(x, y):
    return rl.sigmoid(rl.matmul(rl.matmul(x, y), y)) * y


def test_a_list_and_a_function_of_the_same_ops(device, rebuilt):
    inputs = pair(device)
    want = gradients(products, inputs)
    assert rebuilt.count("matmul") == 2
    rebuilt.clear()
    listed = [aten.mm.default]

    def policy(ctx, op, *args, **named):
        return SAVE if op in listed else CheckpointPolicy.PREFER_RECOMPUTE

    for given in (listed, policy):
        assert gradients(products, inputs, context_fn=blocks(given)) == want
        assert rebuilt == ["sigmoid"]
        rebuilt.clear()


def test_a_policy_is_asked_once_for_each_recorded_call():
    asked = []

    def policy(ctx, op, *args, **named):
        assert isinstance(ctx, SelectiveCheckpointContext) and ctx.is_recompute is False
        asked.append((str(op), [tuple(x.shape) for x in args], tuple(ctx.op_output.shape)))
        return CheckpointPolicy.PREFER_RECOMPUTE

    def function(x, y):
        return F.linear(x, y).unsqueeze(0).sum()  # sizes that no other test has

    x, y = rl.rand(5, 7, requires_grad=True), rl.rand(11, 7, requires_grad=True)
    gradients(function, [x, y], context_fn=blocks(policy))
    assert asked == [
        ("aten.mm.default", [(5, 7), (11, 7)], (5, 11)),
        ("aten.view.default", [(5, 11)], (1, 5, 11)),
        ("aten.sum.default", [(1, 5, 11)], ()),
    ]


def test_a_policy_that_saves_every_second_product(rebuilt):
    counts = {"mm": 0}

    def policy(ctx, op, *args, **named):
        if op == aten.mm.default:
            counts["mm"] += 1
            return SAVE if counts["mm"] % 2 else RECOMPUTE
        return RECOMPUTE

    def chain(x, y):
        for _ in range(4):
            x = (x @ y).tanh()
        return x

    inputs = pair()
    want = gradients(chain, inputs)
    rebuilt.clear()
    assert gradients(chain, inputs, context_fn=blocks(policy)) == want
    assert counts["mm"] == 4
    assert rebuilt.count("matmul") == 2 and rebuilt.count("tanh") == 4


def test_a_bool_is_a_policy(rebuilt):
    inputs = pair()
    gradients(products, inputs, context_fn=blocks(lambda ctx, op, *args: op == aten.mm.default))
    assert rebuilt == ["sigmoid"]


def test_the_first_call_of_a_kind_is_asked_once(rebuilt):
    """Composite ops are traced at their first call: the trace is not asked about."""
    names = []

    def policy(ctx, op, *args):
        names.append(str(op))
        return SAVE

    x, w = rl.rand(3, 5, 13, requires_grad=True), rl.rand(13, 17, requires_grad=True)
    gradients(lambda x, w: x @ w, [x, w], context_fn=blocks(policy))
    assert names == ["aten.mm.default"] and rebuilt == []


def attention(**named):
    q = rl.rand(1, 2, 6, 4, requires_grad=True)
    return F.scaled_dot_product_attention(q, q, q, **named)


def rand(*sizes):
    return rl.rand(*sizes, requires_grad=True)


CALLS = {
    "x @ y": ("mm", lambda n: rand(n, n) @ rand(n, n)),
    "mm": ("mm", lambda n: rl.mm(rand(n, n), rand(n, n))),
    "mv": ("mv", lambda n: rl.mv(rand(n, n), rand(n))),
    "batch @ matrix": ("mm", lambda n: rand(2, n, n) @ rand(n, n)),
    "bmm": ("bmm", lambda n: rl.bmm(rand(2, n, n), rand(2, n, n))),
    "heads": ("bmm", lambda n: rand(2, 2, n, n) @ rand(2, 2, n, n)),
    "einsum": ("bmm", lambda n: rl.einsum("bij,bjk->bik", rand(2, n, n), rand(2, n, n))),
    "linear": ("addmm", lambda n: F.linear(rand(2, n, n), rand(n, n), rand(n))),
    "linear without bias": ("mm", lambda n: F.linear(rand(2, n, n), rand(n, n))),
    "attention": ("_scaled_dot_product_efficient_attention", lambda n: attention()),
    "causal": ("_scaled_dot_product_flash_attention", lambda n: attention(is_causal=True)),
    "masked": (
        "_scaled_dot_product_flash_attention_for_cpu",
        lambda n: attention(attn_mask=rl.zeros(6, 6)),
    ),
    "conv2d": (
        "convolution",
        lambda n: F.conv2d(rand(2, 3, 8, 8), rand(4, 3, 3, 3), rand(4), padding=1),
    ),
    "softmax": ("_softmax", lambda n: rl.softmax(rand(n, n), -1)),
    "log_softmax": ("_log_softmax", lambda n: rl.log_softmax(rand(n, n), -1)),
    "layer_norm": ("native_layer_norm", lambda n: F.layer_norm(rand(n, n), (n,), rand(n), rand(n))),
    "gelu": ("gelu", lambda n: F.gelu(rand(n, n))),
    "gelu, tanh": ("gelu", lambda n: F.gelu(rand(n, n), approximate="tanh")),
    "relu": ("relu", lambda n: rl.relu(rand(n, n))),
    "embedding": ("embedding", lambda n: F.embedding(rl.zeros(3, dtype=rl.int64), rand(n, n))),
    "dropout": ("native_dropout", lambda n: F.dropout(rand(n, n), 0.5)),
    "sum": ("sum", lambda n: rand(n, n).sum(-1)),
    "cat": ("cat", lambda n: rl.cat([rand(n, n), rand(n, n)])),
    "t": ("t", lambda n: rand(n, n).t()),
    "unsqueeze": ("unsqueeze", lambda n: rand(n, n).unsqueeze(0)),
    "cast": ("_to_copy", lambda n: rand(n, n).to(rl.bfloat16)),
}


@pytest.mark.parametrize("size", [8, 700], ids=["one record", "step by step"])
@pytest.mark.parametrize("call", CALLS)
def test_native_names(call, size):
    native, function = CALLS[call]
    seen = set()

    def policy(ctx, op, *args):
        seen.add(op)
        return RECOMPUTE

    checkpoint(lambda: function(size).sum(), context_fn=blocks(policy)).backward()
    assert getattr(aten, native).default in seen
    other = {"mm": "bmm", "mv": "bmm", "bmm": "mm", "addmm": "mm"}.get(native, "exp")
    assert getattr(aten, other).default not in seen


def test_native_names_as_objects():
    mm = aten.mm.default
    assert mm == aten.mm.default and mm != aten.bmm.default and mm in {aten.mm.default}
    assert mm.overloadpacket == aten.mm and aten.sum.dim_IntList == aten.sum.default
    assert str(mm) == "aten.mm.default" and mm.name() == "aten::mm"
    assert rl.equal(mm(rl.eye(2), rl.eye(2)), rl.eye(2))
    with pytest.raises(NotImplementedError, match=r"aten\._softmax names recorded calls"):
        aten._softmax.default(rl.eye(2))
    with pytest.raises(AttributeError, match="no 'addmn'"):
        aten.addmn  # noqa: B018


def test_a_policy_may_compare_by_identity():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append(op is aten.mm.default)
        return CheckpointPolicy.PREFER_RECOMPUTE

    x = rl.randn(8, 8, requires_grad=True)
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    checkpoint(lambda x: (x @ x).tanh(), x, context_fn=contexts)
    assert asked == [True, False]


@pytest.mark.parametrize(
    "given, error, message",
    [
        ([aten.mm], ValueError, "aten.mm.default, got <OpOverloadPacket"),
        ([rl.mm], ValueError, "a list has ops such as"),
        (3, TypeError, "a function or a list of ops is needed, got int"),
    ],
)
def test_what_is_no_policy_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        create_selective_checkpoint_contexts(given)


def test_an_answer_that_is_no_policy_is_refused():
    with pytest.raises(TypeError, match=r"got 'save' for aten.mm.default"):
        gradients(products, pair(), context_fn=blocks(lambda ctx, op, *args: "save"))


def test_the_blocks_belong_to_a_checkpoint():
    inside, _ = create_selective_checkpoint_contexts([])
    with pytest.raises(RuntimeError, match="give them to its context_fn"), inside:
        pass


def test_nothing_is_asked_where_nothing_is_recorded():
    def policy(ctx, op, *args):
        raise AssertionError

    with rl.no_grad():
        checkpoint(products, *pair(), context_fn=blocks(policy))


def deep(x, w):
    h = F.layer_norm(x @ w, (x.shape[-1],))
    for _ in range(3):
        h = h + F.dropout(F.gelu(h @ w), 0.2)
        h.mul_(0.5)
        h = rl.cat(list(h.split(4, 1)), 1).relu() + h.t().t()
    h[:, 2:4] = 1.0
    return rl.softmax(h, -1)


@pytest.mark.parametrize("seed", range(12))
def test_every_policy_gives_the_same_bits(device, seed):
    draw = random.Random(seed)
    inputs = pair(device, 8)
    want = gradients(deep, inputs)
    policies = list(CheckpointPolicy)
    chosen = blocks(lambda ctx, op, *args: draw.choice(policies))
    assert gradients(deep, inputs, context_fn=chosen, determinism_check="bits") == want


def kept(policy: CheckpointPolicy) -> int:
    """How many results a checkpoint of 8 exp and 8 tanh keeps, where tanh has this policy."""

    def function(x):
        for _ in range(8):
            x = x.exp().tanh()
        return x.sum()

    x = rl.rand(1 << 12, requires_grad=True)
    before = memory.allocated()
    chosen = blocks(lambda ctx, op, *args: policy if op == aten.tanh.default else RECOMPUTE)
    y = checkpoint(function, x, context_fn=chosen)
    count = (memory.allocated() - before) // x.nbytes
    y.backward()
    return count


def test_saved_results_stay_in_memory():
    assert [kept(p) for p in (SAVE, CheckpointPolicy.PREFER_SAVE, RECOMPUTE)] == [8, 8, 0]


def test_offloaded_results_lie_on_the_host(require_device, rebuilt):
    device = require_device("webgpu")
    inputs = pair(device, 64)
    want = gradients(products, inputs)
    rebuilt.clear()
    policy = blocks(
        lambda ctx, op, *args: (
            CheckpointPolicy.MUST_CPU_OFFLOAD if op == aten.mm.default else RECOMPUTE
        )
    )
    for x in inputs:
        x.grad = None
    before, host = memory.allocated(device), memory.allocated("cpu")
    back = memory.offloaded()["back"]
    y = checkpoint(products, *inputs, context_fn=policy)
    assert memory.allocated(device) - before == y.nbytes
    assert memory.allocated("cpu") - host == 2 * y.nbytes
    y.sum().backward()
    assert [x.grad.numpy(force=True).tobytes() for x in inputs] == want
    assert sorted(rebuilt) == ["copied back", "copied back", "sigmoid"]
    assert memory.offloaded()["back"] - back == 2 * y.nbytes
    del y
    assert memory.allocated("cpu") == host


def residual(x, y):
    """Residual blocks whose skip is read after more calls than stay."""
    for _ in range(6):
        h = x
        for _ in range(6):
            h = rl.matmul(h, y).tanh()
        x = x + h
    return x


@pytest.mark.parametrize("where", ["null", "webgpu", "cuda"])
def test_offloaded_results_leave_the_device_in_the_forward_pass(require_device, where):
    device = require_device(where)
    inputs = pair(device, 64)
    policy = blocks(lambda *_: CheckpointPolicy.MUST_CPU_OFFLOAD)
    if where != "null":  # which has no elements
        want = gradients(residual, inputs)
        assert gradients(residual, inputs, context_fn=policy) == want
    memory.empty_cache(device)
    memory.reset_peak(device)
    before, matrix = memory.allocated(device), inputs[0].nbytes
    y = checkpoint(residual, *inputs, context_fn=policy)
    assert memory.peak(device) - before <= 8 * matrix  # of 78 results
    assert memory.allocated(device) - before == y.nbytes


def test_on_the_cpu_offloading_is_saving(rebuilt):
    inputs = pair()
    gradients(products, inputs, context_fn=blocks(lambda *_: CheckpointPolicy.PREFER_CPU_OFFLOAD))
    assert rebuilt == []


def test_a_budget_drops_what_is_only_preferred():
    present = {}
    pool = pool_of("cpu")
    for policy in (SAVE, CheckpointPolicy.PREFER_SAVE):
        x = rl.rand(1 << 12, requires_grad=True)
        with memory.budget("1GiB"):
            y = checkpoint(
                lambda x: x.exp().tanh().sin(), x, context_fn=blocks(lambda *_, p=policy: p)
            )
            before = pool.live
            region.reclaim(pool, 1 << 40)
            present[policy] = (before - pool.live) // x.nbytes
            y.sum().backward()
        assert x.grad is not None
    assert present == {SAVE: 0, CheckpointPolicy.PREFER_SAVE: 3}


def test_a_checkpoint_around_drops_what_is_only_preferred(rebuilt):
    for policy, names in ((SAVE, []), (CheckpointPolicy.PREFER_SAVE, ["exp", "tanh"])):
        x = rl.rand(16, requires_grad=True)
        chosen = blocks(lambda *_, p=policy: p)

        def outer(x, chosen=chosen):
            return checkpoint(lambda x: x.exp().tanh(), x, context_fn=chosen) * x

        checkpoint(outer, x).sum().backward()
        assert rebuilt == names
        rebuilt.clear()


def test_a_policy_is_asked_about_checkpoints_inside(rebuilt):
    def outer(x, y):
        return checkpoint(products, x, y).exp()

    inputs = pair()
    want = gradients(outer, inputs)
    rebuilt.clear()
    assert gradients(outer, inputs, context_fn=blocks([aten.mm.default])) == want
    assert "matmul" not in rebuilt and "sigmoid" in rebuilt


def test_a_saved_result_that_is_overwritten(rebuilt):
    """PyTorch refuses; here what depends on the old bits is made first."""

    def function(x, y):
        h = x @ y
        z = h.tanh()
        with rl.no_grad():
            h.add_(1.0)
        return z * z

    inputs = pair()
    want = gradients(lambda x, y: (x @ y).tanh() ** 2, inputs)
    for mutation in (True, False):
        chosen = functools.partial(
            create_selective_checkpoint_contexts,
            [aten.mm.default],
            allow_cache_entry_mutation=mutation,
        )
        got = gradients(function, inputs, context_fn=chosen)
        for a, b in zip(got, want, strict=True):
            a, b = (rl.frombuffer(bytearray(raw), dtype=rl.float32) for raw in (a, b))
            assert rl.allclose(a, b)


def test_two_backward_passes():
    inputs = pair()
    y = checkpoint(products, *inputs, context_fn=blocks([aten.mm.default])).sum()
    first = rl.autograd.grad(y, inputs, retain_graph=True)
    again = rl.autograd.grad(y, inputs)
    assert all(rl.equal(a, b) for a, b in zip(first, again, strict=True))


def test_modules_and_parameters(device):
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(x)))

    rl.manual_seed(0)
    block = Block().to(device)
    x = rl.rand(4, 8, device=device)
    found = []
    for named in ({}, {"context_fn": blocks([aten.addmm.default])}):
        block.zero_grad()
        checkpoint(block, x, use_reentrant=False, **named).sum().backward()
        found.append([p.grad.numpy(force=True).tobytes() for p in block.parameters()])
    assert found[0] == found[1]


@pytest.mark.parametrize("policy", CheckpointPolicy)
def test_calls_with_several_results_and_reads_of_elements(device, policy):
    def function(x, y):
        spread, mean = rl.var_mean(x @ y, dim=-1)
        largest, where = rl.topk(x @ y, 2)
        scale = 2.0 if (x @ y).sum().item() > 0 else 3.0
        return spread.sin() + mean.exp() + (largest * scale).sum(-1) + where.sum(-1)

    inputs = pair(device)
    want = gradients(function, inputs)
    assert gradients(function, inputs, context_fn=blocks(lambda *_: policy)) == want


def test_inputs_and_detached_values_as_results():
    def function(x, y):
        return x, y.detach(), (x @ y).tanh()

    x, y = pair()
    a, b, c = checkpoint(function, x, y, context_fn=blocks([aten.mm.default]))
    (a * b + c).sum().backward()
    g = x.grad
    x.grad = None
    (x * y.detach() + (x @ y).tanh()).sum().backward()
    assert rl.equal(x.grad, g)


@pytest.mark.parametrize("policy", CheckpointPolicy)
def test_memory_is_given_back_after_backward(policy):
    x = rl.rand(64, 64, requires_grad=True)
    before = memory.allocated()
    y = checkpoint(lambda x: (x @ x).tanh().sum(), x, context_fn=blocks(lambda *_: policy))
    y.backward()
    x.grad = None
    del y
    assert memory.allocated() == before


def test_a_checkpoint_that_is_never_differentiated_is_freed():
    x = rl.rand(64, 64, requires_grad=True)
    before = memory.allocated()
    for policy in CheckpointPolicy:
        y = checkpoint(lambda x: (x @ x).tanh().exp(), x, context_fn=blocks(lambda *_, p=policy: p))
        del y
        assert memory.allocated() == before


def test_an_error_inside_frees_what_was_kept():
    x = rl.rand(64, 64, requires_grad=True)
    gc.collect()  # frames of earlier errors
    before = memory.allocated()

    def function(x):
        (x @ x).tanh()
        raise KeyError("mine")

    for policy in CheckpointPolicy:
        with pytest.raises(KeyError):
            checkpoint(function, x, context_fn=blocks(lambda *_, p=policy: p))
    gc.collect()
    assert memory.allocated() == before
