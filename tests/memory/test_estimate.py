"""`memory.estimate`, `fits` and `suggest`: bytes before they are taken, and no trace."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import amp, memory, nn, optim
from rushlight.core.errors import DeviceError, OutOfMemoryError, RushlightError
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.program import launching

F = nn.functional


class Block(nn.Module):
    """A block of a GPT of width 32."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])
        self.joint, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: rl.Tensor) -> rl.Tensor:
        b, t, d = x.shape
        q, k, v = self.joint(self.norms[0](x)).reshape(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.dropout(F.gelu(self.up(self.norms[1](x))), 0.1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        # Enough of them that a batch norm alone is not the peak.
        *[layer for _ in range(3) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())],
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 8 * 8, 10),
    )


def gpt() -> nn.Module:
    return nn.Sequential(nn.Embedding(64, 32), Block(), Block(), nn.Linear(32, 64))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "mlp": (mlp, (128, 32), 10),
    "cnn": (cnn, (16, 3, 16, 16), 10),
    "gpt": (gpt, (8, 32), 64),
}


class Training:
    """A model with AdamW."""

    def __init__(self, name: str, device: str | None = None) -> None:
        make, shape, classes = MODELS[name]
        rl.manual_seed(0)
        self.model = make().to(device or "cpu")
        self.opt = optim.AdamW(self.model.parameters())
        tokens = name == "gpt"
        self.x = rl.randint(0, 64, shape) if tokens else rl.randn(*shape)
        self.y = rl.randint(0, classes, shape if tokens else shape[:1])
        self.x, self.y = self.x.to(device or "cpu"), self.y.to(device or "cpu")
        self.losses: list[Any] = []

    def step(self) -> None:
        self.opt.zero_grad()
        out = self.model(self.x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), self.y.reshape(-1))
        loss.backward()
        self.opt.step()
        self.losses.append(loss)


def measured(step: Callable[[], None], limit: int | None = None, device: str = "cpu") -> int:
    """The peak of a step, above what is in use before it."""
    gc.collect()
    memory.empty_cache(device)
    memory.reset_peak(device)
    before = memory.allocated(device)
    if limit is None:
        step()
    else:
        with memory.budget(before + limit, device):
            step()
    return memory.peak(device) - before


def near(estimated: int, real: int) -> bool:
    return abs(estimated - real) <= 0.05 * real


# ---- bytes ----


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("where", ["cpu", "webgpu", "cuda"])
def test_estimates_are_the_measured_peaks(
    name: str, where: str, require_device: Callable[[str], str]
) -> None:
    device = require_device(where)
    training = Training(name, device)
    gc.collect()  # what other tests left behind
    first = memory.estimate(training.step)
    assert first.before == memory.allocated(device) and first.device == device
    assert near(first.peak - first.before, measured(training.step, device=device))
    training.losses.clear()
    second = memory.estimate(training.step)
    assert near(second.peak - second.before, measured(training.step, device=device))
    training.losses.clear()
    # The second call of the first estimate starts with gradients and state, too.
    assert near(first.second, second.peak)
    assert second.parameters == sum(
        p.untyped_storage()._memory.room for p in training.model.parameters()
    )
    assert second.optimizer_state >= 2 * second.parameters * 0.9
    assert second.activations > 0 and second.calls > 0
    assert sum(second.owners.values()) == second.peak
    assert any("test_estimate.py" in line for line in second.lines)


@pytest.mark.parametrize(("name", "share"), [("mlp", 0.85), ("cnn", 0.7), ("gpt", 0.7)])
def test_estimates_inside_a_budget(name: str, share: float) -> None:
    training = Training(name)
    training.step()
    training.losses.clear()
    free = memory.estimate(training.step)
    limit = int(share * (free.peak - free.before))
    inside = memory.estimate(training.step, budget=free.before + limit)
    assert near(inside.peak - inside.before, measured(training.step, limit))
    assert inside.budget == free.before + limit and inside.recomputed > 0
    assert 1.0 < inside.slowdown < 3.0
    assert free.recomputed == 0 and free.slowdown == 1.0
    with memory.budget(free.before + limit):
        assert memory.estimate(training.step).budget == free.before + limit
    with pytest.raises(rl.BudgetError):
        memory.estimate(training.step, budget=free.before + 4096)


def test_an_estimate_of_convolutions_succeeds_where_the_step_does() -> None:
    training = Training("cnn")
    training.step()
    training.losses.clear()
    free = memory.estimate(training.step)
    limit = (free.peak - free.before) * 48 // 100
    measured(training.step, limit)  # it succeeds
    training.losses.clear()
    refused = False
    try:
        memory.estimate(training.step, budget=free.before + limit)
    except rl.BudgetError:
        refused = True
    del training  # the failure's traceback is kept
    assert not refused


def test_an_estimate_in_the_middle_of_a_step_that_repeats() -> None:
    """The record that the step follows goes on after it."""
    rl.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)])
    x = rl.randn(256, 64)

    def step(asks: bool = False) -> rl.Tensor:
        h = net[:3](x)
        if asks:
            memory.estimate(lambda: net(x).sum().backward())
        net[3:](h).sum().backward()
        found = net[0][0].weight.grad
        net.zero_grad()
        return found

    want = step()
    with memory.budget("1GiB"):
        for i in range(10):
            assert rl.equal(step(asks=i in (6, 8)), want)


def test_an_estimate_takes_the_step_of_a_gradient_scaler() -> None:
    training = Training("mlp")
    scaler = amp.GradScaler("cpu")

    def step() -> None:
        training.opt.zero_grad()
        with rl.autocast("cpu", dtype=rl.bfloat16):
            loss = training.model(training.x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(training.opt)
        scaler.update()

    found = memory.estimate(step)
    assert near(found.peak - found.before, measured(step))
    assert near(found.second - memory.allocated(), measured(step))
    assert training.opt.state and scaler.get_scale() == 65536.0


def test_estimates_of_offloading() -> None:
    training = Training("gpt")
    training.step()
    free = memory.estimate(training.step)
    limit = (free.peak + free.before) // 2
    counts = memory.offloaded(), memory.recomputed()
    rebuilt = memory.estimate(training.step, budget=limit)
    # On the CPU values go to no other memory.
    host = memory.estimate(training.step, budget=memory.budget(limit, offload=True))
    assert host.recomputed == rebuilt.recomputed > 0 and host.offloaded == 0
    with memory.budget(limit, offload="disk"):
        disk = memory.estimate(training.step)
    assert disk.recomputed == 0 and disk.offloaded > 0 and disk.slowdown > 1.0
    away = memory.estimate(training.step, budget=memory.budget(limit, offload=True), device="cuda")
    assert away.recomputed == 0 and away.offloaded > 0
    assert (memory.offloaded(), memory.recomputed()) == counts


def test_no_memory_is_taken_on_the_device() -> None:
    training = Training("mlp")
    memory.reset_peak()
    before = memory.allocated(), memory.reserved(), memory.peak(), memory.transfers()
    memory.estimate(training.step)
    assert before == (memory.allocated(), memory.reserved(), memory.peak(), memory.transfers())


@pytest.mark.parametrize("device", ["null", "cuda", "webgpu"])
def test_a_device_that_is_not_there(device: str) -> None:
    memory.estimate(Training("cnn").step)  # programs are traced, which takes other calls
    training = Training("cnn", "null" if device == "null" else None)
    seen = []

    def step() -> None:
        seen.append(str(training.x.device))
        training.step()

    found = memory.estimate(step, device=None if device == "null" else device)
    named = "cpu" if device == "null" else device
    assert found.device == named and list(found.peaks) == [named]
    assert seen == []  # put back
    if device == "null":
        real = Training("cnn")
        same = memory.estimate(real.step)
        assert found.peak - found.before == same.peak - same.before
    elif pool_of("cpu").device.limits.convolves:
        # Nowhere are all windows held: 9 for each pixel.
        here = memory.estimate(training.step)
        assert found.peak - found.before < 1.5 * (here.peak - here.before)


def test_new_tensors_are_made_on_the_stand_in() -> None:
    x = rl.ones(64, 64)

    def step() -> rl.Tensor:
        noise = rl.randn(64, 64) + rl.zeros(64, 64, device="cpu") + rl.ones_like(x)
        noise = noise + rl.tensor([1.0] * 64, device=x.device) + rl.arange(64).to(x)
        with rl.device("cpu"):
            return (x + noise + rl.zeros(64, 64)) // 2

    step()  # the calls are known
    found = memory.estimate(step)
    assert found.peak - found.before >= 3 * x.nbytes
    assert (rl.arange(4) // rl.tensor([1, 1, 2, 2])).tolist() == [0, 1, 1, 1]

    def divide() -> rl.Tensor:
        return rl.arange(4) // rl.tensor([1, 1, 2, 2])

    memory.estimate(divide)


# ---- no trace ----


def test_all_state_is_put_back() -> None:
    training = Training("cnn")
    training.step()
    loss = training.losses[0]
    training.model.eval()
    generator = rl.Generator().manual_seed(3)
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        training.model.train()
        random.random()
        np.random.random()
        rl.rand(3, generator=generator)
        training.step()
        training.extra = rl.zeros(3)  # type: ignore[attr-defined]
        raise KeyError("late")

    def content() -> list[Any]:
        model, opt = training.model, training.opt
        tensors = [*model.parameters(), *model.buffers(), *[p.grad for p in model.parameters()]]
        tensors += [v for s in opt.state.values() for v in s.values() if isinstance(v, rl.Tensor)]
        numbers = [v for s in opt.state.values() for v in s.values() if isinstance(v, int)]
        return [
            *[t.tolist() for t in tensors],
            *[t.device.type for t in tensors],
            numbers,
            [id(t) for t in (*model.parameters(), *model.buffers())],
            [module.training for module in model.modules()],
            rl.get_rng_state().tolist(),
            generator.get_state().tolist(),
            random.getstate(),
            repr(np.random.get_state()),
            vars(training).keys(),
            count,
        ]

    before = content()
    with pytest.raises(KeyError):
        memory.estimate(step)
    assert content() == before
    assert training.losses == [loss] and training.losses[0] is loss
    training.step()
    assert training.losses[-1].item() > 0


def test_a_view_and_its_base_share_a_storage() -> None:
    base = rl.zeros(1 << 16)
    part, buffers = base[: 1 << 15], {"pair": (base, base.view(256, 256))}

    def step() -> None:
        part.add_(1)
        base.mul_(2)
        buffers["pair"] = (base + 1, base)

    found = memory.estimate(step)
    assert found.before == memory.allocated() and found.peak - found.before == base.nbytes
    assert base.sum().item() == 0 and part._base is base
    assert buffers["pair"][0] is base and buffers["pair"][1]._base is base
    part.add_(1)
    assert base.sum().item() == 1 << 15


def test_a_tensor_that_is_let_go_is_freed_and_comes_back() -> None:
    held = {"state": rl.ones(1 << 16)}
    address = held["state"].data_ptr()

    def step() -> None:
        held.clear()
        held["state"] = rl.zeros(1 << 16)

    found = memory.estimate(step)
    assert found.peak == found.before == found.after
    assert held["state"].data_ptr() == address and held["state"].sum().item() == 1 << 16


class Kept:
    __slots__ = ("__own", "value")

    def __init__(self) -> None:
        self.__own = 0

    def count(self) -> int:
        self.__own += 1
        return self.__own


class Shown(Kept):
    """A property hides the slot of its name."""

    __slots__ = ()

    @property
    def value(self) -> str:
        return "shown"


def test_slots_behind_properties_come_back() -> None:
    thing, slot = Shown(), Kept.value
    slot.__set__(thing, "kept")

    def step() -> None:
        thing.count()
        slot.__set__(thing, "changed")
        (rl.ones(8) * 2).sum()

    memory.estimate(step)
    assert slot.__get__(thing) == "kept" and thing.value == "shown"
    assert thing.count() == 1


def test_objects_of_the_standard_library_are_let_be(tmp_path: Path) -> None:
    assert os.fspath(tmp_path)  # a path computes its parts when they are first asked for
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def step() -> None:
        assert tmp_path.name and pool is not None
        (rl.ones(8) * 2).sum()

    memory.estimate(step)
    pool.shutdown()


# ---- rules ----


def test_elements_read_as_zeros_and_the_lines_are_told() -> None:
    x, seen = rl.ones(8), rl.ones(1)
    values: list[float] = []

    def step() -> None:
        values.append(x.sum().item())
        print(x)
        if x.sum() > 0:
            raise AssertionError
        assert values[-1] == 0.0

    found = memory.estimate(step)
    assert values == [] and seen.item() == 1.0
    assert all("test_estimate.py" in line for line in found.reads) and len(found.reads) == 3
    assert "read as zeros" in str(found)


def test_a_tensor_that_is_not_found_is_an_error() -> None:
    x, hidden = rl.ones(8), rl.ones(8)
    reference = weakref.ref(hidden)
    with pytest.raises(DeviceError, match=r"memory\.estimate: a tensor .* was not found"):
        memory.estimate(lambda: x + reference())
    with pytest.raises(DeviceError, match=r"bytes on cpu were taken .* was not found"):
        memory.estimate(lambda: reference().exp())  # type: ignore[union-attr]
    assert (x + hidden).sum().item() == 16


def test_a_graph_from_before_is_refused() -> None:
    w = rl.ones(8, requires_grad=True)
    h = w * 2
    with pytest.raises(RushlightError, match="a result from before the estimate"):
        memory.estimate(lambda: (h * 3).sum().backward())
    memory.estimate(lambda: h + 1)
    (h * 3).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [6.0] * 8


def test_an_estimate_inside_an_estimate_is_refused() -> None:
    x = rl.ones(8)
    with pytest.raises(RuntimeError, match="another estimate"):
        memory.estimate(lambda: memory.estimate(lambda: x + 1))
    assert memory.estimate(lambda: x + 1).calls == 1


@pytest.mark.parametrize("function", [memory.estimate, memory.suggest, memory.fits])
def test_what_is_no_function_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=rf"memory\.{function.__name__}: .* a function, got 3"):
        function(3, lambda n: rl.ones(n))


# ---- fits and suggest ----


def test_fits_finds_the_largest_batch() -> None:
    training = Training("mlp")
    limit = memory.allocated() + (2 << 20)

    def step(x: rl.Tensor) -> None:
        training.opt.zero_grad()
        training.model(x).sum().backward()
        training.opt.step()

    def inputs(n: int) -> rl.Tensor:
        return rl.randn(n, 32)

    n, found = memory.fits(step, inputs, limit=limit)
    assert max(found.peak, found.second) <= limit
    more = memory.estimate(lambda: step(inputs(n + 1)))
    assert max(more.peak, more.second) > limit
    memory.empty_cache()
    with memory.budget(limit):
        inside, slower = memory.fits(step, inputs)
        step(inputs(inside))
    assert inside > n and slower.slowdown > 1.0
    assert memory.fits(step, inputs, high=4)[0] == 4
    with pytest.raises(OutOfMemoryError, match=r"a batch of 1 needs \d+ bytes on cpu"):
        memory.fits(step, inputs, limit="64KiB")
    with pytest.raises(TypeError, match=r"memory\.fits: make_inputs is a function, got 8"):
        memory.fits(step, 8)  # type: ignore[arg-type]


def test_suggest_asks_for_no_more_than_what_succeeded(capsys: pytest.CaptureFixture[str]) -> None:
    training = Training("cnn")
    choices = memory.suggest(training.step, shares=(1.0, 0.7, 0.6, 0.5, 0.1, 0.05))
    least = min(choice.budget for choice in choices if choice.succeeds)
    failed = [choice for choice in choices if not choice.succeeds]
    assert failed and all(choice.budget < choice.least <= least for choice in failed)
    assert capsys.readouterr().out.count(" suffice") == len(failed)


def test_suggest_prints_a_curve(capsys: pytest.CaptureFixture[str]) -> None:
    training = Training("gpt")
    rows = memory.suggest(training.step)
    assert [row.share for row in rows] == [1.0, 0.75, 0.5, 0.35, 0.25]
    good = [row for row in rows if row.succeeds]
    assert good[0].slowdown < 1.05 and good[0].recomputed <= 2
    assert all(row.peak <= row.budget for row in good) and len(good) >= 3
    assert good[-1].slowdown > good[0].slowdown
    assert all(row.least > row.budget for row in rows if not row.succeeds)
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 2
    for shares in ((), (0.5, -1.0), (0.0,)):
        with pytest.raises(ValueError, match=r"memory\.suggest: shares are positive numbers"):
            memory.suggest(training.step, shares=shares)


def test_what_generated_code_refers_to_is_let_be() -> None:
    text = "def bind(blocks0):\n    def launch():\n        return blocks0\n    return launch\n"
    blocks = [1, 2]
    launch = launching.bound(text, "a program of a test", {"blocks0": blocks})
    memory.estimate(lambda: launch().append(3))
    assert blocks == [1, 2, 3, 3]  # the function runs twice


def test_the_length_of_a_table_is_no_work():
    """A lookup moves the rows that it reads; a budget that runs it again costs these."""
    slower = []
    for rows in (16, 4096):
        table = nn.Embedding(rows, 64)
        layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(8)])
        words = rl.randint(0, rows, (512,))

        def step(table=table, layers=layers, words=words) -> None:
            h = table(words)
            for layer in layers:
                h = h + layer(h).tanh()
            h.square().mean().backward()
            layers.zero_grad()
            table.zero_grad()

        free = memory.estimate(step)
        limit = free.before + (free.second - free.before) * 6 // 10
        slower.append(memory.estimate(step, budget=limit).slowdown)
    assert slower[0] > 1.02 and abs(slower[1] - slower[0]) < 0.1, slower
