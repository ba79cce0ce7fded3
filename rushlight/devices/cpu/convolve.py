"""Convolve on the CPU: one kernel for each of its kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.devices.cpu import (
    convolve_image,
    convolve_weights,
    depthwise,
    stub,
    tiles,
    turned_weights,
)
from rushlight.devices.cpu.native import Source
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import Convolve


def kinds() -> tuple[str, ...]:
    """What it is of, where the processor has the instructions."""
    if not tiles.available():
        return ()
    return "image", "runs", "depthwise", "depthwise weights", "turned"


def build(kernel: Convolve, runner: int, pool: Callable[[], Pool]) -> Launch:
    if kernel.of == "image":
        return convolve_image.build(kernel, runner, pool)
    if kernel.of == "runs":
        return convolve_weights.build(kernel, runner, pool)
    if kernel.of == "depthwise":
        return depthwise.build_image(kernel, runner, pool)
    if kernel.of == "turned":
        return turned_weights.build(kernel, runner)
    return stub.callable_of(
        Source(key_of(kernel), lambda: depthwise.text(kernel)),
        depthwise.LETTERS,
        "convolve",
        runner,
    )


def scratch_rooms(kernel: Convolve, numbers: Sequence[int]) -> list[int]:
    """The rooms that a launch takes from the pool."""
    takes = {
        "image": convolve_image.scratch_room,
        "runs": convolve_weights.scratch_room,
        "depthwise": depthwise.scratch_room,
    }
    return [takes[kernel.of](numbers)] if kernel.of in takes else []


def least_scratch(kernel: Convolve, numbers: Sequence[int]) -> int:
    """The bytes that a launch takes at a limit: of one image, or of one part of the images."""
    n, *others, parts = numbers
    return sum(scratch_rooms(kernel, (-(-n // parts) if kernel.of == "runs" else 1, *others, 1)))


def text(kernel: Convolve) -> str:
    """The module's functions as text; see `emit.llvm`."""
    others = {
        "image": convolve_image.text,
        "runs": convolve_weights.text,
        "depthwise": depthwise.image_text,
        "turned": turned_weights.text,
    }
    return others[kernel.of]() if kernel.of in others else depthwise.text(kernel)
