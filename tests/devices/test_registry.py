"""A device is a folder on the path of `rushlight.devices`, and nothing else."""

from __future__ import annotations

import sys
import textwrap

import pytest

import rushlight as rl
import rushlight.devices
from rushlight import array_api, memory
from rushlight.core.errors import DeviceError, DeviceUnavailable
from rushlight.devices.shared import registry
from rushlight.ops.create import creation
from tests.catalog.rows import ROWS
from tests.catalog.run import forward_problems

TOY = """
from rushlight.core.dtypes import float16
from rushlight.devices.reference import ReferenceDevice
from rushlight.devices.shared.protocol import Kind

KIND = Kind(rank=9, autocast=float16, captures=True)


class Toy(ReferenceDevice):
    name = "toy"


def open_device():
    return Toy()
"""
BARE = """
from rushlight.core.errors import DeviceUnavailable


def open_device():
    raise DeviceUnavailable("bare", "it is not plugged in", "Plug it in.")
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    for name, text in (("toy", TOY), ("bare", BARE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(textwrap.dedent(text))
    path = [*rushlight.devices.__path__, str(tmp_path)]
    monkeypatch.setattr(rushlight.devices, "__path__", path)
    yield "toy"
    for name in ("toy", "bare"):
        registry.reopen(name)
        sys.modules.pop(f"rushlight.devices.{name}", None)
        if hasattr(rushlight.devices, name):
            delattr(rushlight.devices, name)
    creation._checked.clear()


def test_a_folder_is_a_device(toy):
    assert {"toy", "bare", "cpu"} < set(registry.names())
    assert rl.device("toy").type == "toy" and str(rl.device("toy:0")) == "toy:0"
    x = rl.tensor([1.0, 2.0], device=toy, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0] and x.grad.device == rl.device("toy")
    with rl.device("toy"):
        assert rl.ones(2).device.type == "toy"


def test_its_bytes_are_counted_and_limited(toy):
    assert memory.allocated(toy) == 0
    x = rl.ones(1 << 12, device=toy)
    assert memory.allocated(toy) == 1 << 14 <= memory.peak(toy) <= memory.reserved(toy)
    with memory.budget(memory.reserved(toy) + (1 << 15), toy):
        total = sum((x * float(i)).sum().item() for i in range(4))
        assert total == 6 * (1 << 12)
        with pytest.raises(rl.BudgetError, match="toy"):
            rl.ones(1 << 15, device=toy)
    memory.empty_cache(toy)
    assert memory.reserved(toy) == memory.allocated(toy)


def test_its_facts_are_asked_for(toy):
    assert registry.accelerators()[0] == toy
    assert rl.accelerator.current_accelerator() == rl.device("toy")
    assert rl.amp.is_autocast_available("toy") and rl.get_autocast_dtype("toy") is rl.float16
    assert rl.device("toy") in array_api.__array_namespace_info__().devices()
    p = rl.ones(2, device=toy, requires_grad=True)
    p.grad = rl.ones(2, device=toy)
    rl.optim.Adam([p], lr=0.5, capturable=True).step()
    assert p.tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("op", ["add", "exp", "softmax", "matmul", "gather", "cumsum", "sort"])
def test_the_catalog_runs_on_it(toy, op):
    problems = [forward_problems(row, toy) for row in ROWS if row.name == op]
    assert problems and not any(problems), problems


def test_a_folder_without_facts(toy):
    kind = registry.kind_of("bare")
    assert kind.computes and kind.public and not kind.rank
    with pytest.raises(DeviceUnavailable, match="not plugged in"):
        rl.ones(2, device="bare")
    assert rl.device("bare") not in array_api.__array_namespace_info__().devices()


@pytest.mark.parametrize("name", ["none", "shared", "shared.allocator", "cpu.memory", ""])
def test_other_names_are_refused(name):
    assert creation.device_kind(name) is None
    with pytest.raises(DeviceUnavailable, match="no such device"):
        registry.pool_of(name)
    with pytest.raises(DeviceError, match="is none of"):
        rl.device(name)


def test_what_the_package_has():
    assert registry.names() == ["cpu", "cuda", "null", "reference", "webgpu"]
    assert registry.accelerators() == ["cuda", "webgpu"]
    assert [n for n in registry.names() if registry.kind_of(n).public] == ["cpu", "cuda", "webgpu"]
