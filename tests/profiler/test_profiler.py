"""Profiles: what is recorded on each device, tables, traces, and that the end leaves no trace."""

from __future__ import annotations

import dataclasses
import gzip
import json
import sys
import threading
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.compat.autograd import profiler as legacy
from rushlight.core.cache import forget
from rushlight.core.errors import AnomalyError, RushlightError
from rushlight.devices.shared.registry import pool_of
from rushlight.nn.hooks import ON_CALL
from rushlight.ops.family import build
from rushlight.ops.optim import whole_steps
from rushlight.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)
from rushlight.profiler.recorder import Recorder, Timed
from rushlight.tape.record.op import Plans
from rushlight.utils.checkpoint import checkpoint
from tests.profiler.trace_rules import check_trace

HERE = Path(__file__).name


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).relu())  # the only line of the model


class Training:
    def __init__(self, device: str = "cpu") -> None:
        torch.manual_seed(0)
        self.model = Net().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.x = torch.randn(8, 6).to(device)
        self.y = torch.randint(0, 4, (8,)).to(device)

    def step(self) -> Any:
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def bits(self) -> list[list[float]]:
        return [p.detach().flatten().tolist() for p in self.model.parameters()]


def nothing_left() -> None:
    """Whether everything that a profile exchanges is back in its place."""
    assert Recorder.running is None and Plans.on_new is None and not ON_CALL
    for reference in list(Plans.every.values()):
        plan = reference()
        assert plan is None or not isinstance(plan.launch, Timed)
    assert whole_steps.BuiltinFunctionType is BuiltinFunctionType
    assert whole_steps.Moves.make_at.__module__ == whole_steps.__name__
    assert "copy_in" not in vars(pool_of("cpu").device)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line and "line_of" not in line)


def test_profile_of_a_step(device):
    training = Training(device)
    training.step()
    with profile(record_shapes=True, profile_memory=True) as prof:
        training.step().tolist()
    nothing_left()
    ops = [event for event in prof.events() if event.kind == "op"]
    assert {event.device for event in ops} == {device}
    assert {"linear", "relu", "cross_entropy", "adamw"} <= {event.name for event in ops}
    length = (prof.recorder.ended - prof.recorder.began) * 1e6
    assert all(0 <= e.time_range.start <= e.time_range.end <= length for e in prof.events())
    line = f"{HERE}:{line_of('the only line of the model')}"
    relu = next(event for event in ops if event.name == "relu")
    assert relu.line.endswith(line) and relu.module == "Net" and relu.phase == "forward"
    assert relu.input_shapes == [[8, 16]] and relu.memory >= 8 * 16 * 4
    back = next(event for event in ops if event.name == "relu_grad")
    assert back.derived == "relu" and back.line.endswith(line) and back.phase == "backward"
    assert {e.module for e in ops if e.name == "linear"} == {"first", "second"}
    assert {e.phase for e in ops if e.name == "adamw"} == {"optimizer"}
    asynchronous = pool_of(device).device.limits.asynchronous
    assert all(bool(event.kernels) == asynchronous for event in ops)


def test_device_times(require_device):
    device = require_device("webgpu")
    x = torch.randn(64, 64, device=device)
    (x @ x).tolist()
    with profile() as prof:
        small = x + 1
        for _ in range(20):
            x = x @ x * 0.01
        assert small.sum().tolist() is not None
    kernels = [k for e in prof.events() for k in e.kernels]
    assert len(kernels) >= 42 and all(kernel.duration >= 0 for kernel in kernels)
    starts = [kernel.time_range.start for kernel in kernels]
    assert starts == sorted(starts)  # work is done in the order of the calls
    total = sum(kernel.duration for kernel in kernels)
    assert 0 < total <= (prof.recorder.ended - prof.recorder.began) * 1e6
    shown = prof.key_averages().table("cuda_time_total")
    assert "WEBGPU total" in shown and "timestamp queries" in shown
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x @ x
    assert not any(event.kernels for event in prof.events())


def test_a_device_without_a_clock(require_device, monkeypatch):
    pool = pool_of(require_device("webgpu"))
    monkeypatch.setattr(pool.device, "limits", dataclasses.replace(pool.device.limits, marks=None))
    x = torch.ones(4, device="webgpu")
    with profile() as prof:
        x + 1
    assert [len(e.kernels) for e in prof.events() if e.kind == "op"] == [1]
    assert "waited for after every launch" in prof.key_averages().table()


def test_a_profile_changes_no_bits_and_no_launches(device):
    plain, profiled = Training(device), Training(device)
    for _ in range(3):
        plain.step()
    with profile(with_stack=True) as prof:
        for _ in range(3):
            profiled.step()
    assert plain.bits() == profiled.bits()
    # A device with lists updates all parameters in one launch.
    parameters = 1 if pool_of(device).device.limits.lists is not None else 4
    assert sum(e.name == "adamw" for e in prof.events()) == 3 * parameters


def test_tables():
    training = Training()
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        training.step()
        training.step()
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["linear"].count == 4 and rows["Optimizer.step#AdamW.step"].count == 2
    assert rows["backward"].count == 2
    assert rows["linear"].cpu_time == rows["linear"].cpu_time_total / 4
    assert rows["linear"].self_cpu_memory_usage >= 2 * 8 * (16 + 4) * 4
    assert "Net" not in rows
    by_shape = prof.key_averages(group_by_input_shape=True)
    shapes = [row.input_shapes for row in by_shape if row.key == "linear"]
    assert sorted(shapes) == [[[8, 6], [16, 6], [16]], [[8, 16], [4, 16], [4]]]
    by_stack = prof.key_averages(group_by_stack_n=5)
    here = f"{HERE}({line_of('the only line of the model')}): Net.forward"
    assert any(row.stack and row.stack[0].endswith(here) for row in by_stack)
    modules = {row.key: row for row in prof.key_averages(by="module")}
    assert {"first", "second", "Net"} <= set(modules)
    lines = prof.key_averages(by="line")
    assert any(row.key.endswith(f":{line_of('the only line of the model')}") for row in lines)
    ops = sum(e.self_cpu_time_total for e in prof.events() if e.kind == "op")
    for found in (modules.values(), lines):  # each launch is counted once
        assert sum(row.self_cpu_time_total for row in found) == pytest.approx(ops)
    shown = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=3)
    totals = sorted((row.self_cpu_time_total for row in rows.values()), reverse=True)
    names = [line.split("  ")[0].strip() for line in shown.splitlines()[3:6]]
    assert [rows[name].self_cpu_time_total for name in names] == totals[:3]
    assert "Self CPU time total" in shown
    with pytest.raises(ValueError, match="sort_by is one of"):
        prof.key_averages().table(sort_by="beauty")
    with pytest.raises(ValueError, match="by is"):
        prof.key_averages(by="beauty")


def test_with_modules_shows_their_calls():
    training = Training()
    with profile(with_modules=True) as prof:
        training.step()
    rows = {row.key: row for row in prof.key_averages()}
    outer, inner = rows["Net"], rows["Linear (first)"]
    assert outer.count == inner.count == 1 and outer.cpu_time_total > inner.cpu_time_total
    events = prof.events()
    linear = next(e for e in events if e.name == "linear")
    assert linear.cpu_parent.name == "Linear (first)" and linear.cpu_parent.cpu_parent.name == "Net"


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_trace_keeps_the_rules_of_the_format(tmp_path, device, require_device):
    training = Training(require_device(device))
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        for _ in range(2):
            with record_function("whole step", args="with a note"):
                training.step()
            prof.step()
        training.x.tolist()
    prof.add_metadata("purpose", "a test")
    prof.add_metadata_json("numbers", "[1, 2]")
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(path)
    trace = json.loads(path.read_text())
    assert trace["purpose"] == "a test" and trace["numbers"] == [1, 2]
    slices = check_trace(trace)
    names = {event["name"] for event in slices}
    assert {"whole step", "ProfilerStep#0", "ProfilerStep#1", "Net", "linear", "backward"} <= names
    assert f"copy from {device}" in names
    linear = next(e for e in slices if e["name"] == "linear" and e["cat"] == "cpu_op")
    assert linear["args"]["module"] == "first" and linear["args"]["phase"] == "forward"
    assert linear["args"]["line"].endswith(f":{line_of('the only line of the model')}")
    assert linear["args"]["Input Dims"] == [[8, 6], [16, 6], [16]]
    kernels = [e for e in slices if e["cat"] == "kernel"]
    arrows = [e for e in trace["traceEvents"] if e["ph"] in "sf"]
    assert len(arrows) == 2 * len(kernels) and bool(kernels) == (device == "webgpu")
    counters = [e for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counters and all(e["args"]["bytes"] > 0 for e in counters)
    packed = tmp_path / "trace.json.gz"
    prof.export_chrome_trace(packed)
    assert json.loads(gzip.decompress(packed.read_bytes())) == trace


def test_rules_of_the_format_can_be_broken():
    first = {"ph": "X", "name": "a", "cat": "c", "pid": 1, "tid": 1, "ts": 0.0, "dur": 5.0}
    other = {**first, "name": "b", "ts": 3.0, "args": {}}
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0, "args": {"name": "t"}}
    events = [name, {**first, "args": {}}, other]
    with pytest.raises(AssertionError):
        check_trace({"displayTimeUnit": "ms", "traceEvents": events})
    other["dur"] = 1.0
    assert len(check_trace({"displayTimeUnit": "ms", "traceEvents": events})) == 2


def test_schedule():
    none, warm, record, save = ProfilerAction
    find = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    cycle = [none, warm, record, save]
    assert [find(i) for i in range(11)] == [none, *cycle, *cycle, none, none]
    find = schedule(wait=2, warmup=0, active=1, skip_first_wait=1)
    assert [find(i) for i in range(5)] == [save, none, none, save, none]
    with pytest.raises(ValueError, match="active is at least 1"):
        schedule(wait=0, warmup=0, active=0)


def test_steps_follow_the_schedule(tmp_path):
    training = Training()
    found: list[list[str]] = []

    def ready(prof: Any) -> None:
        rows = prof.key_averages()
        found.append(sorted(row.key for row in rows if row.key.startswith("ProfilerStep")))
        assert next(row for row in rows if row.key == "adamw").count == 2 * 4
        tensorboard_trace_handler(str(tmp_path / "log"), "me", use_gzip=True)(prof)

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=ready) as prof:
        for _ in range(10):
            training.step()
            prof.step()
    assert found == [[f"ProfilerStep#{i}" for i in each] for each in ((2, 3), (6, 7))]
    nothing_left()
    files = sorted((tmp_path / "log").iterdir())
    assert [file.name.split(".")[0] for file in files] == ["me", "me"]
    for file in files:
        assert file.name.endswith(".pt.trace.json.gz")
        check_trace(json.loads(gzip.decompress(file.read_bytes())))


def test_on_trace_ready_without_a_schedule():
    calls: list[Any] = []
    with profile(on_trace_ready=calls.append) as prof:
        torch.ones(3) + 1
    assert calls == [prof]


def test_labels():
    @record_function("labelled")
    def inner() -> Any:
        return torch.ones(3) + 1

    inner()  # without a profile
    with profile() as prof, record_function("outer", args="why"):
        inner()
        inner()
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["outer"].count == 1 and rows["labelled"].count == 2
    event = next(e for e in prof.events() if e.name == "labelled")
    assert event.cpu_parent.name == "outer" and event.is_user_annotation
    assert rows["outer"].cpu_time_total >= rows["labelled"].cpu_time_total


def test_builds_are_shown(monkeypatch):
    monkeypatch.setattr(build, "_BUILT", {})
    x = torch.randn(3, 5)
    forget()  # whatever ran before, the kernel is built again
    with profile() as prof:
        x.tanh()
    assert any(row.key == "build for cpu" for row in prof.key_averages())


def test_an_error_ends_the_profile():
    with pytest.raises(ZeroDivisionError), profile() as prof:
        torch.ones(3) + 1
        raise ZeroDivisionError
    nothing_left()
    assert prof.key_averages()


def test_one_profile_at_a_time():
    with profile(), pytest.raises(RuntimeError, match="another profile is running"):
        profile().start()
    with profile() as prof, pytest.raises(RushlightError, match="still recording"):
        prof.events()
    with pytest.raises(RushlightError, match="nothing was recorded"):
        profile().events()
    nothing_left()


def test_anomalies_are_found_in_a_profile():
    x = torch.tensor([-1.0], requires_grad=True)
    torch.log(torch.ones(1))
    with profile() as prof:
        with pytest.raises(AnomalyError), torch.autograd.detect_anomaly():
            torch.log(x)
        torch.log(torch.ones(1))
    assert [e.name for e in prof.events() if e.name == "log"]
    with torch.autograd.detect_anomaly(), profile() as prof:
        torch.ones(1).exp()
        with pytest.raises(AnomalyError):
            torch.log(x)
    assert "exp" in {e.name for e in prof.events()}
    torch.autograd.set_detect_anomaly(False)
    nothing_left()


def test_recomputation_is_shown():
    layer = nn.Linear(16, 16)
    x = torch.randn(8, 16, requires_grad=True)
    with profile() as prof:
        checkpoint(lambda x: layer(x).tanh().exp(), x, use_reentrant=False).sum().backward()
    found = {(event.name, event.phase) for event in prof.events() if event.kind == "op"}
    assert {("linear", "forward"), ("linear", "recompute"), ("tanh", "recompute")} <= found


def test_threads():
    with profile() as prof:
        thread = threading.Thread(target=lambda: torch.ones(3).exp(), name="the other")
        thread.start()
        thread.join()
        torch.ones(3).log()
    found = {e.name: e.thread for e in prof.events() if e.kind == "op"}
    assert found["exp"] != found["log"]
    assert "the other" in prof.recorder.names.values()


def test_stacks(tmp_path):
    with profile(with_stack=True) as prof:
        torch.randn(512, 512) @ torch.randn(512, 512)
    prof.export_stacks(tmp_path / "stacks.txt", "self_cpu_time_total")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert any("test_stacks" in line and ";matmul " in line for line in lines)
    assert all(int(line.rpartition(" ")[2]) > 0 for line in lines)
    with profile() as prof:
        torch.ones(2)
    with pytest.raises(RushlightError, match="with_stack"):
        prof.export_stacks(tmp_path / "stacks.txt")


def test_the_older_profiler():
    training = Training()
    with legacy.profile(record_shapes=True) as prof:
        training.step()
    assert prof.total_average().count == len(prof.function_events)
    assert prof.self_cpu_time_total > 0 and "linear" in prof.key_averages().table()
    assert "linear" in prof.table(sort_by="count")
    with legacy.profile(enabled=False) as off:
        training.step()
    assert str(off) == "<no profile>"
    with legacy.record_function("x"), legacy.emit_nvtx(enabled=False):
        assert not legacy.is_enabled()


def test_ranges_for_other_tools(monkeypatch):
    class Fake:
        pushed: list[str] = []  # noqa: RUF012
        RangePush = pushed.append

        @staticmethod
        def RangePop() -> None:
            Fake.pushed.append("end")

    monkeypatch.setitem(sys.modules, "cupy.cuda.nvtx", Fake)
    x = torch.ones(3)
    with legacy.emit_nvtx(record_shapes=True):
        x + 1
    assert len(Fake.pushed) == 2 and Fake.pushed[0].startswith("add") and Fake.pushed[1] == "end"
    assert "[3]" in Fake.pushed[0]
    nothing_left()
