"""What an estimate counts for cuDNN's workspaces: what the library says, where it is open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import rushlight as rl
from rushlight.devices.cuda import convolve, scratch_of
from rushlight.devices.cuda.convolve import Convolution
from rushlight.devices.shared.allocator import room_for
from rushlight.kernel.shapes import Convolve

# n, groups, m, c, pixels, window, image, stride, dilation, before, parts
NUMBERS = (2, 1, 16, 3, 8, 8, 3, 3, 8, 8, 1, 1, 1, 1, 1, 1, 4)
OPERANDS = 4 * (2 * 16 * 64 + 2 * 3 * 64 + 16 * 3 * 9)


def test_an_estimate_asks_the_open_library_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Convolve(rl.float32, "weights", 2)
    assert list(scratch_of(kernel, NUMBERS)) == [room_for(OPERANDS)]
    library, asked = SimpleNamespace(plans={}), []

    def plan(found: Any, kernel: Convolve, numbers: tuple[int, ...]) -> Any:
        asked.append((kernel.of, numbers))
        return None if kernel.of == "image" else SimpleNamespace(workspace=5000 * len(asked))

    monkeypatch.setattr(Convolution, "library_of", staticmethod(lambda: library))
    monkeypatch.setattr(convolve, "plan_convolution", plan)
    for _ in range(2):
        assert list(scratch_of(kernel, NUMBERS)) == [room_for(5000)]
    assert asked == [("weights", NUMBERS)]
    assert list(scratch_of(Convolve(rl.float32, "back", 2), NUMBERS)) == [room_for(10000)]
    assert list(scratch_of(Convolve(rl.float32, "image", 2), NUMBERS)) == []  # an own kernel
