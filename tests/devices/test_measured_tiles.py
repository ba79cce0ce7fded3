"""The tiles of matrix products on WebGPU: Note [Measured tiles]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as rl
from rushlight.devices.shared.registry import pool_of
from rushlight.devices.webgpu import tuning
from rushlight.devices.webgpu.tuning import COUNTS, Measured
from rushlight.emit.wgsl.contract import ENOUGH, LARGE, SMALL

Asked = list[tuple[int, int]]


@pytest.fixture
def device(require_device: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device, and a disk that is a dictionary."""
    disk: dict[tuple[str, str], bytes] = {}
    monkeypatch.setattr(tuning, "read_object", lambda *key: disk.get(key))
    monkeypatch.setattr(tuning, "write_object", lambda *key: disk.update({key[:2]: key[2]}))
    return pool_of(require_device("webgpu")).device


def timing(monkeypatch: pytest.MonkeyPatch, better_from: int) -> Asked:
    """Large tiles are faster from so many on; the sizes and sides that are timed."""
    asked: Asked = []

    def seconds(device: Any, places: Any, size: int, side: int) -> float:
        asked.append((size, side))
        return 2.0 if side == SMALL else 1.0 if (size // LARGE) ** 2 >= better_from else 3.0

    monkeypatch.setattr(tuning, "seconds", seconds)
    return asked


@pytest.mark.parametrize("better_from, least", [(1, 4), (5, 16), (64, 64), (65, ENOUGH)])
def test_the_least_number_is_found_once(device, monkeypatch, better_from, least):
    asked = timing(monkeypatch, better_from)
    measured = Measured(device)
    assert measured(ENOUGH) and not measured(COUNTS[0] - 1) and not asked  # known without it
    assert measured(50) == (least <= 50)
    assert [measured(n) for n in (least - 1, least)] == [False, True]
    counted = len(asked)
    assert counted == 2 * (1 + COUNTS.index(least) if least in COUNTS else len(COUNTS))
    again = Measured(device)
    assert [again(n) for n in (least - 1, least, 50)] == [False, True, least <= 50]
    assert len(asked) == counted  # remembered


def test_a_product_is_timed_and_its_memory_freed(device):
    before = len(device._buffers)
    measured = Measured(device)
    measured(20)
    assert measured.least in (*COUNTS, ENOUGH)
    assert len(device._buffers) == before


@pytest.mark.parametrize("dtype", [rl.float32, rl.float16], ids=str)
def test_bits_do_not_depend_on_the_tiles(device, monkeypatch, dtype):
    rl.manual_seed(0)
    a, b = rl.randn(200, 130).to(dtype), rl.randn(130, 260).to(dtype)
    bias = rl.randn(260).to(dtype).to("webgpu")
    found = []
    for large in (False, True):
        monkeypatch.setattr(device.occupied, "least", 1 if large else 1000)
        out = rl.nn.functional.linear(a.to("webgpu"), b.T.contiguous().to("webgpu"), bias)
        found.append(out.cpu())
    assert rl.equal(*found)
