"""Recordings of memory: exact, without effect on what runs, and told as page, text and data."""

from __future__ import annotations

import dis
import gc
import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight import memory, nn
from rushlight.core import interrupts
from rushlight.memory.account import BEFORE, DROPPED, FREED, MADE, REBUILT, Account
from rushlight.memory.data import as_data, group_of
from rushlight.memory.owners import KINDS, OTHER, WORKSPACES
from rushlight.memory.savings import savings
from rushlight.memory.text import as_text
from rushlight.memory.watching import Recorder
from rushlight.tape.memory import replay
from rushlight.tape.record import call
from rushlight.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 8)

    def forward(self, x: Any, again: bool = False) -> Any:
        for block in self.blocks:
            x = checkpoint(block, x) if again else block(x)
        return self.head(x)


class Training:
    """A model, an optimiser and one batch; `before`: the bytes of other tests, by kind."""

    def __init__(self, device: str = "cpu") -> None:
        self.before = recorded(torch.ones, 1).by_kind(0)
        torch.manual_seed(0)
        self.model = Net().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.x = torch.randn(512, 64).to(device)

    def step(self, again: bool = False, **backward: Any) -> None:
        self.optimizer.zero_grad()
        self.model(self.x, again).square().mean().backward(**backward)
        self.optimizer.step()


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Modules and blocks of other tests would be recorded, or freed meanwhile."""
    gc.collect()


@pytest.fixture
def training() -> Iterator[Training]:
    made = Training()
    made.step()
    made.step()
    memory.empty_cache()
    memory.reset_peak()
    yield made
    assert Recorder.running is None
    assert call.new is call.make_storage.__globals__["new"] is object.__new__
    assert replay.COUNTERS.watch is None


def recorded(run: Callable[..., Any], *args: Any, **named: Any) -> Account:
    memory.reset_peak()
    with memory.record() as recording:
        run(*args, **named)
    return recording.account("cpu")


def check_sums(account: Account) -> None:
    """At every moment the spans are the bytes in use, but for what was there before."""
    for moment, live in enumerate(account.live):
        kinds = account.by_kind(moment)
        assert tuple(kinds) == KINDS
        assert sum(kinds.values()) == live
        assert kinds["other"] == account.by_kind(0)["other"] >= 0


# ---- the account ----


def test_a_recording_changes_neither_calls_nor_bytes(training: Training) -> None:
    training.step()
    plain = memory.peak()
    account = recorded(training.step)
    assert account.peak == memory.peak() == plain
    assert account.live[-1] == memory.allocated()
    check_sums(account)


def test_every_block_of_a_step_has_its_owner(training: Training) -> None:
    account = recorded(training.step)
    at = account.by_kind(account.peak_moment)
    weights = list(training.model.parameters())
    own = sum(p.untyped_storage()._memory.room for p in weights)
    assert at["parameters"] == own + training.before["parameters"]
    state = [s["exp_avg"] for s in training.optimizer.state.values()]
    assert at["optimizer state"] >= 2 * sum(t._memory.room for t in state)
    end = account.by_kind(len(account.live) - 1)
    assert end["gradients"] == own + training.before["gradients"]
    assert end["activations"] == end["gradients in flight"] == end["workspaces"] == 0
    wide = [s for s in account.spans if s.module == "blocks.2.wide" and s.kind == "activations"]
    assert [s.op for s in wide] == ["linear"]
    (span,) = wide
    assert span.origin is not None and span.origin.spec is not None
    assert span.origin.spec.shape == (512, 256)
    assert span.place.endswith("in Block.forward") and "test_report.py:" in span.place
    assert (span.began, span.ended) == (MADE, FREED)
    assert account.phases[span.born] == "forward" and account.phases[span.died or 0] == "backward"
    names = {s.name for s in account.spans if s.kind == "gradients"}
    assert names == {name for name, _ in training.model.named_parameters()}


def test_a_step_that_takes_no_memory_is_told() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 64)

    def step() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    step()
    account = recorded(step)
    assert not [s for s in account.spans if s.origin and s.origin.phase == "optimizer step"]
    runs = [name for name, *_ in as_data(account)["phases"]]
    assert runs == ["forward", "backward", "optimizer step"] * 2
    assert account.clocks == sorted(account.clocks)
    check_sums(account)


def test_the_class_stands_before_names_that_two_modules_have(training: Training) -> None:
    def told() -> set[str]:
        spans = recorded(training.step).spans
        return {s.name for s in spans if s.kind == "parameters"} & {
            "blocks.0.wide.weight",
            "Net.blocks.0.wide.weight",
        }

    stranger = nn.Linear(2, 3)  # its members are `weight` and `bias`, which `Net` has not
    assert told() == {"blocks.0.wide.weight"}
    second = Net()
    assert told() == {"Net.blocks.0.wide.weight"}
    del stranger, second


def test_derivatives_are_told_with_their_modules(training: Training) -> None:
    account = recorded(training.step)
    flight = [s for s in account.spans if s.kind == "gradients in flight"]
    assert any(s.module == "blocks.1.narrow" and "backward of" in s.work for s in flight)
    assert all("test_report.py:" in s.place for s in flight)


def test_the_events_of_workers_add_up(training: Training) -> None:
    account = recorded(training.step, workers=3)
    assert account.peak == memory.peak()
    check_sums(account)


@pytest.mark.parametrize("name", ["null", "webgpu", "cuda"])
def test_the_events_of_other_devices_add_up(
    name: str, require_device: Callable[[str], str]
) -> None:
    training = Training(require_device(name))
    training.step()
    memory.reset_peak(name)
    with memory.record() as recording:
        training.step()
    account = recording.account(name)
    assert account.peak == memory.peak(name) == recording.peak(name)
    assert not account.timed
    check_sums(account)
    assert "of the work" in recording.summary(name)


def test_values_from_before_keep_their_owners(training: Training) -> None:
    kept = training.model(training.x).sum()
    account = recorded(lambda: training.x * 2)
    old = [s for s in account.spans if s.kind == "activations" and s.began == BEFORE]
    assert {s.module for s in old} >= {"blocks.0.wide", "blocks.3.norm"}
    assert "let go of earlier results" in [s.change for s in savings(account)]
    del kept


def test_a_failed_step_is_recorded_and_leaves_nothing(training: Training) -> None:
    limit = memory.reserved() + 4096
    with memory.record() as recording, pytest.raises(torch.BudgetError), memory.budget(limit):
        training.model(training.x)
    check_sums(recording.account("cpu"))


def test_a_recording_ends_at_its_most_events(training: Training) -> None:
    with memory.record(max_events=40) as recording:
        training.step()
        assert Recorder.running is None
    assert not recording.account("cpu").complete
    assert "not complete" in recording.summary()


def test_a_recording_keeps_no_tensor(training: Training) -> None:
    before = memory.allocated()
    with memory.record() as recording:
        big = training.x * 2
        recording.summary()  # of the running one
    del big
    assert memory.allocated() == before
    gc.collect()
    assert recording.account("cpu").live[-1] == before + 512 * 64 * 4


def test_only_one_recording_runs(training: Training) -> None:
    with memory.record(), pytest.raises(RuntimeError, match="is running"):
        memory.record().start()


def test_the_count_of_a_watched_pool_is_not_interrupted() -> None:
    before = type(torch.zeros(1)._memory.pool)
    with memory.record():
        kind: Any = type(torch.zeros(1)._memory.pool)
        assert kind is not before and issubclass(kind, before)
        count = kind.live.fset.__code__
        assert interrupts.is_unheard(count) and interrupts.is_unheard(kind.take.__code__)
        assert not any("CALL" in step.opname for step in dis.get_instructions(count))
    assert type(torch.zeros(1)._memory.pool) is before


# ---- drops, rebuilds, savings ----


def test_drops_and_rebuilds_of_a_budget_are_told(training: Training) -> None:
    before = memory.recomputed()
    plain = recorded(training.step)
    memory.empty_cache()
    with memory.budget(int(plain.peak * 0.7)):
        account = recorded(training.step)
    after = memory.recomputed()
    check_sums(account)
    assert account.peak == memory.peak() <= account.limit == int(plain.peak * 0.7)  # type: ignore[operator]
    told = as_data(account)["replays"]
    assert told["calls"] == after["calls"] - before["calls"] > 0
    assert told["bytes"] == after["bytes"] - before["bytes"]
    assert told["dropped"] == sum(s.ended == DROPPED for s in account.spans) > 0
    assert any(s.began == REBUILT for s in account.spans)
    assert sum(row["calls"] for row in told["ops"]) == told["calls"]


def test_copies_of_an_offload_are_told(training: Training) -> None:
    plain = recorded(training.step)
    memory.empty_cache()
    before = memory.offloaded()
    with memory.budget(int(plain.peak * 0.7), offload="disk"):
        account = recorded(training.step)
    after = memory.offloaded()
    check_sums(account)
    told = as_data(account)["replays"]
    assert told["copied_out"]["bytes"] == after["out"] - before["out"] > 0
    assert told["copied_back"]["bytes"] == after["back"] - before["back"] > 0
    assert told["copied_out"]["seconds"] > 0 and told["copied_back"]["seconds"] > 0
    assert told["calls"] == 0 and "copied back" not in {row["op"] for row in told["ops"]}
    text = as_text(account)
    assert f"Copied {told['copied_out']['count']} values out (" in text
    assert f"Copied {told['copied_back']['count']} values back (" in text


def test_the_memory_of_libraries_is_a_workspace() -> None:
    x = torch.randn(64, 64)
    before = recorded(lambda: torch.empty(0))  # other tests may have left some
    account = recorded(lambda: torch.linalg.solve(x, x))
    check_sums(account)
    workspaces = [s for s in account.spans if s.kind == WORKSPACES and s.op == "solve"]
    assert sum(s.nbytes for s in workspaces) > 4 * x.nbytes
    others = [a.by_kind(a.peak_moment)[OTHER] for a in (before, account)]
    assert others[0] == others[1]


def test_rebuilds_of_a_checkpoint_are_told(training: Training) -> None:
    training.step(again=True)
    account = recorded(training.step, again=True)
    check_sums(account)
    assert account.rebuilds


def test_a_checkpoint_saves_what_was_said() -> None:
    """On `null`, where the order of changes follows from counts of work and not from times."""
    training = Training("null")
    accounts = []
    for again in (False, True):
        training.step(again)
        with memory.record() as recording:
            training.step(again)
        accounts.append(recording.account("null"))
    account, real = accounts
    (said,) = [s for s in savings(account) if s.kind == "checkpoint"]
    assert said.change == "checkpoint blocks.* (4 modules)"
    assert said.saved > 0.2 * account.peak
    assert said.peak == pytest.approx(real.peak, rel=0.02)
    assert 0 < (said.cost or 0) < 0.7


def test_freed_gradients_save_what_was_said(training: Training) -> None:
    def step(to_none: bool) -> None:
        training.optimizer.zero_grad(set_to_none=to_none)
        training.model(training.x).square().mean().backward()

    account = recorded(step, False)
    found = [s for s in savings(account, 6) if s.kind == "gradients"]
    real = recorded(step, True)
    assert found and found[0].cost == 0
    assert found[0].peak == pytest.approx(real.peak, rel=0.06)


def test_without_backward_no_grad_is_named(training: Training) -> None:
    account = recorded(lambda: training.model(training.x))
    found = [s for s in savings(account) if s.kind == "no_grad"]
    assert found and found[0].saved > 0


# ---- page, text, data ----


def test_the_page_is_one_file_that_loads_nothing(training: Training, tmp_path: Path) -> None:
    with memory.record() as recording:
        training.step()
    recording.report(tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text("utf-8")
    assert not re.search(r"https?:|//[a-z]|\bsrc=|\bhref=|@import|url\(|fetch\(|import\(", page)
    data = page_data(page)
    account = recording.account("cpu")
    (device,) = [d for d in data["devices"] if d["device"] == "cpu"]
    assert device["peak"] == account.peak == max(device["live"])
    assert device["live"][device["peak_moment"]] == device["peak"]
    assert sum(device["at_peak"].values()) == device["peak"]
    for born, died, _, owner, called, *_ in device["spans"]:
        assert 0 <= born < len(device["live"]) and (died == -1 or died > born)
        assert owner < len(device["owners"]) and called < len(device["calls"])


def page_data(page: str) -> Any:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    class Evil(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("</script><img onerror=alert(1) x>&amp;", nn.Linear(8, 8))

        def forward(self, x: Any) -> Any:
            for child in self.children():
                x = child(x)
            return x

    model = Evil()
    with memory.record() as recording:
        model(torch.ones(4, 8)).sum().backward()
    recording.report(tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text("utf-8")
    assert "<img" not in page and page.count("</script>") == 2
    modules = {row[1] for device in page_data(page)["devices"] for row in device["calls"]}
    assert any(m.endswith("</script><img onerror=alert(1) x>&amp;") for m in modules)
    assert "innerHTML" not in page and "document.write" not in page


def test_few_moments_of_many_keep_the_peak(training: Training) -> None:
    account = recorded(training.step)
    data = as_data(account, 20)
    assert len(data["live"]) <= 20 < len(account.live)
    assert data["live"][data["peak_moment"]] == account.peak
    rests = set()
    for moment, live in enumerate(data["live"]):
        spans = [s for s in data["spans"] if s[0] <= moment and (s[1] < 0 or moment < s[1])]
        rests.add(live - sum(s[2] for s in spans))
    assert rests == {training.before["other"]}


def test_report_writes_what_the_name_says(training: Training, tmp_path: Path) -> None:
    with memory.record() as recording:
        training.step()
    memory.report(tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text()) == recording.to_dict()
    memory.report(tmp_path / "m.txt")
    assert (tmp_path / "m.txt").read_text("utf-8") == recording.summary() + "\n"
    memory.report(tmp_path / "m.pickle")
    assert pickle.loads((tmp_path / "m.pickle").read_bytes()) == recording.snapshot()
    with pytest.raises(ValueError, match=r"\.html, \.json"):
        memory.report(tmp_path / "m.pdf")


def test_the_summary_names_the_peak_and_its_owners(training: Training) -> None:
    with memory.record() as recording:
        training.step()
    text = memory.summary()
    assert text == recording.summary() == recording.summary("cpu")
    for word in ("Memory on cpu: peak", "activations", "optimizer state", "blocks.", "would save"):
        assert word in text
    assert all(len(line) < 200 for line in text.splitlines())
    assert "Record a step" in memory.summary("reference")


def test_a_snapshot_adds_up_to_the_peak(training: Training) -> None:
    torch.cuda.memory._record_memory_history()
    training.step()
    snapshot = memory._snapshot()
    memory._record_memory_history(enabled=None)
    assert Recorder.running is None
    latest = memory.Recording.last
    assert latest is not None
    number = [account.device for account in latest.accounts].index("cpu")
    trace = snapshot["device_traces"][number]
    live, most, alive = 0, 0, dict[int, int]()
    for event in trace:
        if event["action"] == "alloc":
            begin, end = event["addr"], event["addr"] + event["size"]
            assert all(e <= begin or end <= b for b, e in alive.items())
            alive[begin] = end
            live += event["size"]
        elif event["action"] == "free_completed":
            del alive[event["addr"]]
            live -= event["size"]
        most = max(most, live)
    assert memory.peak() - most == training.before["other"]
    (segment,) = [s for s in snapshot["segments"] if s["device"] == number]
    assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]
    active = [b for b in segment["blocks"] if b["state"] == "active_allocated"]
    assert {b["address"] for b in active} == set(alive)


def test_groups_of_modules() -> None:
    assert group_of("blocks.0.attention.qkv") == "blocks.0"
    assert group_of("encoder.norm") == "encoder"
    assert group_of("0.1") == "0"
    assert group_of("") == ""


def test_ranges_of_modules_are_made_of_numbered_ones() -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)])
    x = torch.randn(100, 64)
    with memory.record() as recording:
        (model(x) + x.cos()).sum().backward()
    (data,) = [d for d in recording.to_dict()["devices"] if d["device"] == "cpu"]
    groups = {owner["group"] for owner in data["owners"] if owner["kind"] == "activations"}
    assert {"", "0-1", "8-9"} <= groups


@pytest.mark.parametrize("batch", [3, 8])
def test_a_smaller_batch_saves_what_was_said(batch: int) -> None:
    """Two passes have as many examples; rows of several sequences are no batch."""
    table = nn.Embedding(50, 48)
    model = nn.Sequential(nn.Linear(48, 256), nn.Tanh(), nn.Linear(256, 50))
    words = torch.randint(0, 50, (batch, 33))
    sizes = (batch, batch - batch // 2)

    def step(size: int) -> None:
        for p in (table.weight, *model.parameters()):
            p.grad = None
        logits = model(table(words[:size, :-1]).flatten(0, 1))
        nn.functional.cross_entropy(logits, words[:size, 1:].flatten()).backward()

    accounts = []
    for size in sizes:
        step(size)
        gc.collect()
        memory.empty_cache()
        accounts.append(recorded(step, size))
    (said,) = [s for s in savings(accounts[0], 6) if s.kind == "batch"]
    assert said.change == f"a batch of {sizes[1]} instead of {batch}"
    before = accounts[0].live[0]
    assert abs(said.peak - accounts[1].peak) < 0.05 * (accounts[0].peak - before)
