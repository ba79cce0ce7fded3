"""Several adapters or cards in one process: `webgpu:1`, `cuda:1` (Note [Numbered devices])."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import interop, memory, nn
from rushlight.core import cache, config
from rushlight.core.errors import DeviceError, DeviceUnavailable
from rushlight.devices import cuda
from rushlight.devices.shared import registry
from rushlight.devices.webgpu import adapter
from rushlight.ops.create import creation
from tests.devices.driver_of_streams import CardOfStreams


@pytest.fixture
def two(require_device: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a second adapter: the first one, opened once more."""
    require_device("webgpu")
    real = adapter.find_adapters
    monkeypatch.setattr(adapter, "find_adapters", lambda: [*real()[:1], *real()[:1]])
    yield "webgpu:1"
    creation.CURRENT.clear()
    registry.reopen("webgpu:1")


def test_devices_by_number(two: str) -> None:
    second = rl.device(two)
    assert (second.type, second.index, str(second)) == ("webgpu", 1, two)
    assert second == rl.device("webgpu", 1) == rl.device(second) != rl.device("webgpu:0")
    assert rl.device("webgpu:0") == rl.device("webgpu") and rl.device("webgpu").index is None
    assert pickle.loads(pickle.dumps(second)) == copy.deepcopy(second) == second
    assert registry.count_of("webgpu") == 2 and registry.count_of("cpu") == 1
    x = rl.zeros(2, device=second)
    assert x.device == second and x.new_ones(3).device == rl.ones_like(x).device == second
    with second:
        assert rl.ones(2).device == second
    assert rl.Generator(two).device == second
    assert rl.accelerator.current_device_index() == 0


def test_a_step_on_the_second_adapter_has_the_bits_of_the_first(
    two: str, first: str = "webgpu"
) -> None:
    def step(device: str) -> list[Any]:
        rl.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))
        model.to(device)
        optimizer = rl.optim.AdamW(model.parameters(), lr=0.1)
        x = rl.arange(30, dtype=rl.float32, device=device).reshape(5, 6).sin()
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        assert {p.device for p in model.parameters()} == {rl.device(device)}
        return [p.detach().cpu().numpy() for p in model.parameters()]

    for ours, theirs in zip(step(first), step(two), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_values_move_between_adapters_and_do_not_mix(two: str) -> None:
    x, y = rl.arange(3, device="webgpu"), rl.arange(3, device=two)
    with pytest.raises(DeviceError, match=r"webgpu and webgpu:1 .*\.to\('webgpu'\)"):
        x + y
    moved = x.to(two)
    assert moved.device == y.device and (moved + y).tolist() == [0, 2, 4]
    assert moved.to("webgpu:0").device == x.device
    leaf = rl.ones(3, device="webgpu", requires_grad=True)
    leaf.to(two).exp().sum().backward()
    assert leaf.grad is not None and leaf.grad.device == x.device


def test_each_adapter_counts_its_own_bytes(two: str) -> None:
    before = memory.allocated("webgpu"), memory.allocated(two)
    x = rl.ones(1 << 12, device=two)
    assert memory.allocated(two) - before[1] == x.nbytes
    assert memory.allocated("webgpu") == before[0]
    with memory.budget(memory.allocated(two) + (1 << 16), device=two):
        with pytest.raises(rl.BudgetError, match="webgpu:1"):
            rl.ones(1 << 20, device=two)
        assert rl.ones(1 << 20, device="webgpu").numel() == 1 << 20


def test_autocast_is_by_kind(two: str) -> None:
    x = rl.ones(2, 2, device=two)
    with rl.autocast("webgpu", dtype=rl.bfloat16):
        assert (x @ x).dtype is rl.bfloat16


def test_files_keep_the_number(two: str) -> None:
    file = io.BytesIO()
    rl.save({"x": rl.ones(2, device=two), "where": rl.device(two)}, file)
    file.seek(0)
    found = rl.load(file, weights_only=False)
    assert found["x"].device == found["where"] == rl.device(two)
    assert pickle.loads(pickle.dumps(rl.ones(2, device=two))).device == rl.device(two)
    file.seek(0)
    assert rl.load(file, map_location="cpu", weights_only=False)["x"].device == rl.device("cpu")


def test_cuda_stands_for_the_current_adapter(two: str) -> None:
    with rl.patch(device="webgpu") as torch:
        assert torch.cuda.device_count() == 2 and torch.cuda.current_device() == 0
        first = torch.ones(2, device="cuda")
        assert str(first.device) == "cuda:0"
        torch.cuda.set_device(1)
        second = torch.ones(2, device="cuda")
        assert (str(first.device), str(second.device)) == ("cuda:0", "cuda:1")
        assert first.is_cuda and second.is_cuda
        assert first.cuda().device == second.device != torch.zeros(1).cuda(0).device
        assert first.to(first.device) is first and second.to(1) is second
        with torch.cuda.device(0):
            assert torch.empty(1, device="cuda").device == first.device
            assert torch.cuda.current_device() == 0
        assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.cuda.memory_allocated(1) >= second.nbytes
        with pytest.raises(DeviceUnavailable, match="2 adapters"):
            torch.cuda.set_device(2)
        assert torch.cuda.current_device() == 1
    with rl.patch(device=two) as torch:
        assert torch.cuda.current_device() == 1 and torch.zeros(1, device="cuda").device.index == 1
    assert not creation.CURRENT


def test_names_mean_what_they_mean_now(require_device: Callable[[str], str]) -> None:
    """Calls are kept by their arguments: "cuda" is another device in each of these blocks."""
    require_device("webgpu")
    with rl.patch(device="webgpu") as torch:
        assert torch.ones(2, device="cuda").is_cuda
    with rl.patch(device="cpu") as torch, pytest.raises(DeviceUnavailable):
        torch.ones(2, device="cuda")


def test_number_0_is_the_kind_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUSHLIGHT_DEVICE", "cpu:0")
    config.default_device.cache_clear()
    assert rl.ones(2).add(rl.ones(2, device="cpu")).device == rl.device("cpu:0")
    config.default_device.cache_clear()


@pytest.mark.parametrize(
    "name, said",
    [
        ("webgpu:9", "adapters"),
        ("webgpu:x", "only number 0"),
        ("webgpu:-1", "only number 0"),
        ("webgpu:12345", "only number 0"),
        ("cpu:1", "write 'cpu'"),
        ("cuda:99", "CuPy cannot be imported|visible"),
    ],
)
def test_other_numbers_are_refused(
    require_device: Callable[[str], str], name: str, said: str
) -> None:
    require_device("webgpu")
    with pytest.raises((DeviceError, DeviceUnavailable), match=said):
        rl.ones(2, device=name)


# ---- cards ----


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CardOfStreams]]:
    """Two cards, which the reference device stands for."""
    made = []

    def open_card(number: int = 0) -> CardOfStreams:
        card = CardOfStreams(seed=number)
        card.name = registry.numbered("cuda", number)
        made.append(card)
        return card

    monkeypatch.setattr(cuda, "open_device", open_card)
    monkeypatch.setattr(cuda, "count_devices", lambda: 2)
    for name in ("cuda", "cuda:1"):
        monkeypatch.delitem(registry._POOLS, name, raising=False)
        registry.pool_of(name)
    monkeypatch.setattr(interop, "_COPIERS", {})
    cache.forget()  # plans of other cards
    yield made
    for card in made:
        card.runtime.run_all()
    creation.CURRENT.clear()
    cache.forget()
    for name in ("cuda", "cuda:1"):
        registry.reopen(name)


def test_cards_by_number(cards: list[CardOfStreams]) -> None:
    assert rl.cuda.device_count() == 2 and rl.cuda.current_device() == 0
    x, y = rl.arange(3, device="cuda"), rl.arange(3, device="cuda:1")
    assert (str(x.device), str(y.device), y.device.index) == ("cuda", "cuda:1", 1)
    with pytest.raises(DeviceError, match=r"cuda and cuda:1 .*\.to\('cuda'\)"):
        x + y
    assert (x.to(1) + y).tolist() == (x + y.to("cuda")).tolist() == [0, 2, 4]
    leaf = rl.ones(3, device="cuda", requires_grad=True)
    (leaf.to("cuda:1") * 3).sum().backward()
    assert leaf.grad is not None and leaf.grad.device == x.device
    assert leaf.grad.tolist() == [3, 3, 3]
    assert rl.ones(1, device="cuda:0").device == x.device
    assert cards[0].runtime.memory and cards[1].runtime.memory


def test_cuda_is_card_0(cards: list[CardOfStreams]) -> None:
    """Another is not the current one, and saying so is no silent use of card 0."""
    for choose in (rl.cuda.set_device, rl.accelerator.set_device_index):
        choose(0)
        with pytest.raises(DeviceError, match="write 'cuda:1'"):
            choose(1)
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES=1"), rl.cuda.device(1):
        pass
    assert rl.cuda.current_device() == 0 and not creation.CURRENT
    with pytest.raises(ValueError, match="patch: device"):
        rl.patch(device="cuda:1")
    with rl.patch(device="cuda") as torch:
        assert torch.ones(1, device="cuda:1").new_ones(2).device.index == 1
        with pytest.raises(DeviceError, match="write 'cuda:1'"):
            torch.cuda.set_device(1)
    made = rl.ones(2, device="cuda:1")
    assert made.new_ones(2).device == made.to("cuda:1").device == made.device
    assert rl.cuda.memory_allocated(1) == memory.allocated("cuda:1") >= made.nbytes
    assert pickle.loads(pickle.dumps(made)).device.index == 1
    file = io.BytesIO()
    rl.save(made, file)
    file.seek(0)
    assert rl.load(file).device == made.device


def test_streams_are_of_a_card(cards: list[CardOfStreams]) -> None:
    first, second = rl.cuda.Stream(), rl.cuda.Stream("cuda:1")
    assert (first.device_index, second.device_index, str(second.device)) == (0, 1, "cuda:1")
    host = rl.arange(64, dtype=rl.float32).pin_memory()
    with rl.cuda.stream(second):
        there = host.to("cuda:1", non_blocking=True)
        here = host.to("cuda", non_blocking=True)  # by the main queue of its card
    assert rl.cuda.default_stream(1).card is cards[1] is second.card
    assert there.tolist() == here.tolist() == host.tolist()
    assert any("on 0" in line for line in cards[0].runtime.log)
    assert not any(line.endswith(" on 0") and "copy 1" in line for line in cards[1].runtime.log)


def test_a_scaler_and_an_optimiser_on_the_second_card(cards: list[CardOfStreams]) -> None:
    p = rl.ones(3, device="cuda:1", requires_grad=True)
    optimizer, scaler = rl.optim.AdamW([p], lr=0.5), rl.amp.GradScaler("cuda", 4.0)
    scaler.scale((p * p).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4.0 and p.tolist() == pytest.approx([0.495] * 3)


def test_exported_memory_tells_its_card(cards: list[CardOfStreams]) -> None:
    x = rl.arange(3, device="cuda:1")
    assert (x.__dlpack_device__(), x.to("cuda").__dlpack_device__()) == ((2, 1), (2, 0))
    again = rl.from_dlpack(x)
    assert again.device == x.device and again.tolist() == [0, 1, 2]
    again[0] = 7
    assert x.tolist() == [7, 1, 2]


def test_calls_and_launches_go_to_their_card() -> None:
    """See `two_cards.py`; it exchanges parts of the package, so it runs by itself."""
    program = Path(__file__).parent / "two_cards.py"
    environment = {**os.environ, "PYTHONPATH": str(program.parents[2])}
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "'cuda:2' is not available: 2 GPUs are visible" in done.stdout


def test_a_step_on_a_second_card(require_device: Callable[[str], str]) -> None:
    require_device("cuda")
    if registry.count_of("cuda") < 2:
        pytest.skip("this machine has one card")
    test_a_step_on_the_second_adapter_has_the_bits_of_the_first("cuda:1", "cuda")


def listed(monkeypatch: pytest.MonkeyPatch, *adapters: tuple[str, str, int, str]) -> list[int]:
    """The places of the adapters that are found, among the listed ones, of which the first leads.

    An adapter is its kind, API, device number and name.
    """
    names = ("adapter_type", "backend_type", "device_id", "device")
    made = [
        SimpleNamespace(info={"vendor_id": 1, **dict(zip(names, facts, strict=True))})
        for facts in adapters
    ]
    gpu = SimpleNamespace(
        request_adapter_sync=lambda power_preference: SimpleNamespace(info=dict(made[0].info)),
        enumerate_adapters_sync=lambda: made,
    )
    monkeypatch.setattr(adapter, "_library", lambda: SimpleNamespace(gpu=gpu))
    first, *others = adapter.find_adapters()
    assert first.info == made[0].info
    return [next(i for i, one in enumerate(made) if one is other) for other in others]


def test_a_gpu_counts_once_whatever_its_apis(monkeypatch: pytest.MonkeyPatch) -> None:
    discrete, vulkan, opengl = "DiscreteGPU", "Vulkan", "OpenGL"
    one = (discrete, vulkan, 7, "a"), (discrete, opengl, 7, "a")
    assert listed(monkeypatch, *one) == []
    assert listed(monkeypatch, one[0], one[0], one[1]) == [1]  # two of one make
    other = ("IntegratedGPU", opengl, 8, "b")
    assert listed(monkeypatch, *one, other) == [2]
    assert listed(monkeypatch, *one, ("CPU", vulkan, 9, "llvmpipe")) == []
