"""Memory, order of work and errors of the WebGPU device."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.core import dtypes as t
from rushlight.core.errors import DeviceError, DeviceUnavailable, OutOfMemoryError
from rushlight.devices.shared import registry
from rushlight.devices.webgpu import adapter, dispatch, groups, launch as launching, open_device
from rushlight.devices.webgpu.stream import split
from rushlight.kernel.shapes import Kernel, Map
from rushlight.scalar.ir import arg
from tests.devices import webgpu_arrays
from tests.devices.webgpu_arrays import Bench
from tests.fuzz.programs import Interrupting

bench = webgpu_arrays.bench  # a fixture is found by its name here

ADD_ONE = Map((t.float32,), (t.float32,), (), (arg(0, t.float32) + 1,), 0, ("1", "1"))


@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_copies_of_odd_sizes_touch_nothing_else(bench: Bench, offset: int, size: int) -> None:
    address = bench.put(np.zeros(32, "?"))
    content = bytes(range(1, size + 1))
    bench.device.copy_in(address + offset, memoryview(content))
    got = bytearray(32)
    bench.device.copy_out(address, memoryview(got))
    assert bytes(got) == bytes(offset) + content + bytes(32 - offset - size)
    part = bytearray(size)
    bench.device.copy_out(address + offset, memoryview(part))
    assert bytes(part) == content


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("offset, extra", [(0, 0), (8, 0), (1, 0), (0, 3)])
def test_large_maps_read_and_write_vectors(
    require_device: Callable[[str], str], name: str, offset: int, extra: int
) -> None:
    require_device("webgpu")
    dtype, end = getattr(torch, name), offset + (1 << 16) + extra
    x, y = (torch.arange(-40000, 40000).remainder(m).to(dtype) for m in (301, 77))
    there = x.to("webgpu"), y.to("webgpu")
    wide, narrow = there[0][offset:end], there[1][offset:end]
    assert torch.equal((wide * narrow).cpu(), x[offset:end] * y[offset:end])
    wider = (narrow.float() + wide).to(torch.bfloat16)
    assert torch.equal(wider.cpu(), (y[offset:end].float() + x[offset:end]).to(torch.bfloat16))
    wide += narrow
    x[offset:end] += y[offset:end]
    assert torch.equal(there[0].cpu(), x)


def test_copy_in_waits_for_queued_work(bench: Bench) -> None:
    launch = bench.device.build(ADD_ONE)
    source, out = bench.put(np.zeros(8, "f4")), bench.put(np.zeros(8, "f4"))
    launch(out, source, 8)
    bench.device.copy_in(source, memoryview(np.full(8, 5, "f4")).cast("B"))
    assert np.array_equal(bench.get(out, (8,), t.float32), np.ones(8))


def test_free_lets_queued_work_finish(bench: Bench) -> None:
    launch = bench.device.build(ADD_ONE)
    source, out = bench.device.alloc(64), bench.put(np.zeros(8, "f4"))
    bench.device.copy_in(source, memoryview(np.full(8, 2, "f4")).cast("B"))
    launch(out, source, 8)
    bench.device.free(source, 64)
    assert np.array_equal(bench.get(out, (8,), t.float32), np.full(8, 3))
    with pytest.raises(DeviceError, match="freed"):
        launch(out, source, 8)


def test_freed_blocks_leave_no_bind_groups(bench: Bench) -> None:
    launch = bench.device.build(
        Map((t.float32,), (t.float32,), (), (arg(0, t.float32),), 0, ("1", "1"))
    )
    kept = bench.put(np.zeros(8, "f4"))
    for _ in range(5):
        passing = bench.device.alloc(64)
        launch(passing, kept, 8)
        bench.device.free(passing, 64)
    assert not bench.device.users[kept >> 40]
    bench.device.synchronize()


@pytest.mark.parametrize("way", ["native", "methods"])
def test_bind_groups_by_each_way(bench: Bench, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    made = []
    create = bench.device.gpu.create_bind_group
    monkeypatch.setattr(
        bench.device.gpu, "create_bind_group", lambda **given: made.append(given) or create(**given)
    )
    if way == "methods":
        monkeypatch.setattr(bench.device, "group", groups._by_method(bench.device.gpu))
    count = 20  # more than the entries that are made at first
    formula = arg(0, t.float32)
    for i in range(1, count):
        formula = formula + arg(i, t.float32) * i
    kernel = Map((t.float32,), (t.float32,) * count, (), (formula,), 0, ("1",) * (count + 1))
    inputs = [bench.put(np.full(8, i, "f4")) for i in range(count)]
    out = bench.put(np.zeros(8, "f4"))
    bench.device.build(kernel)(out, *inputs, 8)
    want = sum(i * i for i in range(count))
    assert np.array_equal(bench.get(out, (8,), t.float32), np.full(8, want))
    assert bool(made) == (way == "methods")


def test_equal_steps_use_equal_bind_groups(
    require_device: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device: Any = registry.pool_of(require_device("webgpu")).device
    made, bind = [], device.bind_group
    monkeypatch.setattr(device, "bind_group", lambda *given: made.append(given) or bind(*given))
    weights = [torch.ones(8, 8, device="webgpu", requires_grad=True) for _ in range(6)]
    optimizer = torch.optim.SGD(weights, lr=0.1)

    def step() -> int:
        before = len(made)
        optimizer.zero_grad()
        x = torch.ones(8, 8, device="webgpu")
        for weight in weights:
            x = (x @ weight).tanh() + x
        x.sum().backward()
        optimizer.step()
        return len(made) - before

    assert [step() for _ in range(6)][3:] == [0, 0, 0]


def test_old_pipelines_are_dropped_and_compiled_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "KEPT_PIPELINES", 4)
    bodies = [arg(0, t.float32) * i + i for i in range(2, 12)]
    kernels = [Map((t.float32,), (t.float32,), (), (body,), 0, ("1", "1")) for body in bodies]
    launches = [bench.device.build(kernel) for kernel in kernels]
    source = bench.put(np.arange(8, dtype="f4"))
    for _ in range(2):
        outs = [bench.put(np.zeros(8, "f4")) for _ in launches]
        for launch, out in zip(launches, outs, strict=True):
            launch(out, source, 8)  # queued when its pipeline is dropped
        for i, out in enumerate(outs, 2):
            assert np.array_equal(bench.get(out, (8,), t.float32), np.arange(8) * i + i)
    assert len(bench.device.compiled) == 4
    held = {built for users in bench.device.users.values() for built, _ in users}
    assert sum(len(built.pipelines) for built in held) <= 4


def test_long_chains_of_launches(bench: Bench) -> None:
    launch = bench.device.build(
        Map((t.int32,), (t.int32,), (), (arg(0, t.int32) + 1,), 0, ("1", "1"))
    )
    address = bench.put(np.zeros(8, "i4"))
    for _ in range(700):
        launch(address, address, 8)
    assert np.array_equal(bench.get(address, (8,), t.int32), np.full(8, 700))


def test_a_block_beyond_the_binding_limit_is_out_of_memory(bench: Bench) -> None:
    with pytest.raises(OutOfMemoryError, match="at most"):
        bench.device.alloc(bench.device.limits.largest_block + 64)


def test_ctrl_c_leaves_no_bind_group_of_a_freed_block(bench: Bench) -> None:
    device = bench.device
    built = launching.Built(device, ADD_ONE)
    out = device.alloc(64)
    for at in range(1, 300):
        source = device.alloc(64)
        key = (out >> 40, source >> 40)
        try:
            with Interrupting(at):
                built.binding(key, "")
            break
        except KeyboardInterrupt:
            pass
        finally:
            device.free(source, 64)
            assert (key, "") not in built.bindings
            assert all((built, (key, "")) not in users for users in device.users.values())
    assert at > 20
    built.forget((key, ""))  # it is gone: nothing happens


def test_too_many_buffers_names_the_count(bench: Bench) -> None:
    count = bench.device.most_bindings + 1
    body = arg(0, t.int32)
    for i in range(1, count):
        body = body + arg(i, t.int32)
    kernel: Kernel = Map((t.int32,), (t.int32,) * count, (), (body,), 0, ("1",) * (count + 1))
    addresses = [bench.put(np.zeros(4, "i4")) for _ in range(count + 1)]
    with pytest.raises(DeviceError, match=f"{count + 1} buffers"):
        bench.device.build(kernel)(*addresses, 4)


def test_a_lost_device_says_how_to_open_it_again(
    require_device: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_device("webgpu")
    monkeypatch.setattr(registry, "_POOLS", {})  # this test's own
    pool = registry.pool_of("webgpu")
    lost = pool.device
    launch = lost.build(ADD_ONE)
    first, second = pool.take(64), pool.take(64)
    launch(first, first, 4)
    lost.synchronize()
    lost.gpu.destroy()
    launch(first, first, 4)
    for work in (
        lost.synchronize,
        lambda: launch(first, second, 4),
        lambda: lost.copy_in(first, memoryview(bytes(8))),
        lambda: lost.copy_in(first, memoryview(bytes(3))),
        lambda: lost.copy_out(first, memoryview(bytearray(8))),
        lambda: lost.alloc(64),
    ):
        with pytest.raises(DeviceError, match=r"registry\.reopen\('webgpu'\)"):
            work()
    assert registry.pool_of("webgpu") is pool
    registry.reopen("webgpu")
    again = registry.pool_of("webgpu")
    assert again is not pool and again.live == again.device.limits.own
    address, back = again.take(64), bytearray(8)
    again.device.copy_in(address, memoryview(np.ones(2, "f4")).cast("B"))
    again.device.build(ADD_ONE)(address, address, 2)
    again.device.copy_out(address, memoryview(back))
    assert np.array_equal(np.frombuffer(back, "f4"), [2, 2])


def test_four_hundred_dispatches_are_one_submit_where_nothing_is_read(
    require_device: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_device("webgpu")
    device = registry.pool_of("webgpu").device
    x = torch.zeros(4, device="webgpu")
    device.synchronize()
    made, submit = 0, device.gpu.queue.submit
    submits: list[int] = []
    monkeypatch.setattr(
        device.gpu.queue, "submit", lambda work: (submits.append(made), submit(work))
    )
    while made < 448 + 400:
        x = x + 1
        made += 1
    assert submits == [64, 64 + 128, 448]  # the device was idle: it begins with little
    assert x.tolist() == [848.0] * 4


def test_dispatches_by_the_methods_of_wgpu(
    require_device: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where this version of wgpu has no native functions by these names."""
    require_device("webgpu")
    x = torch.arange(-3.0, 3.0, device="webgpu")
    monkeypatch.setattr(registry.pool_of("webgpu").device.stream, "_dispatch", dispatch._by_methods)
    assert (x.relu() + x.abs() + x.abs()).tolist() == [6.0, 4.0, 2.0, 0.0, 3.0, 6.0]


def test_a_type_name_is_parsed_without_other_typedefs(
    require_device: Callable[[str], str],
) -> None:
    """See `webgpu/type_names.py`."""
    require_device("webgpu")
    ffi = importlib.import_module("wgpu.backends.wgpu_native._ffi").ffi
    short, whole = ffi._parser._parse, type(ffi._parser)._parse
    for name in ("WGPULimits *", "void(WGPUDevice const *, WGPUStringView)", "uint8_t[3]"):
        text = f"void __dummy(\n{name}\n);"
        assert len(short(text)[0].ext) < 60 < 400 < len(whole(ffi._parser, text)[0].ext)
        quick = ffi._parser.parse_type(name)
        ffi._parser._parse = whole.__get__(ffi._parser)
        try:
            assert quick == ffi._parser.parse_type(name)
        finally:
            ffi._parser._parse = short


def test_reopening_what_is_not_open_is_no_error() -> None:
    registry.reopen("no such device")


def test_missing_package_and_adapter_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(adapter.importlib, "import_module", missing)
    with pytest.raises(DeviceUnavailable, match="pip install wgpu"):
        open_device()


@pytest.mark.parametrize(
    ("groups", "work"),
    [(1, 1), (65535, 1), (65536, 1), (200000, 3), (70000, 1 << 30), (5, 1 << 40)],
)
def test_split_runs_each_workgroup_once(groups: int, work: int) -> None:
    parts = split(groups, work)
    reached = 0
    for first, (wide, tall) in parts:
        assert first == reached and 0 < wide <= 65535 and 0 < tall <= 65535
        reached += wide * tall
    assert reached >= groups
    assert parts[-1][0] < groups
