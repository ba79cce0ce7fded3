"""All gradients of attention's operands, composed of three Attend kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rushlight.core.dtypes import compute_type
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.protocol import Device, Launch
from rushlight.kernel.attend import operands_of
from rushlight.kernel.shapes import Attend


def kernels_of(kernel: Attend) -> tuple[Attend, Attend, Attend]:
    along = Attend(kernel.dtype, "along", kernel.width, kernel.depth)
    return along, replace(kernel, of="query"), replace(kernel, of="keys")


def build(kernel: Attend, device: Device, pool: Callable[[], Pool]) -> Launch:
    sum_along, to_query, to_keys = map(device.build, kernels_of(kernel))
    count, size = len(operands_of(kernel)), compute_type(kernel.dtype).itemsize

    def launch(*numbers: int) -> None:
        dq, dk, dv, g, out, level = numbers[:6]
        operands, sizes = numbers[6:count], numbers[count : count + 5]
        x, y, z, rows = sizes[:4]
        # The strides of dq, dk and dv, then of g, out, level and the operands, then params.
        own = (y * z * rows, z * rows, rows, 1, 1)
        results, of_g = count + 5, numbers[count + 20 : count + 25]
        inner = (*of_g, *numbers[count + 30 : count + 35], *own, *numbers[count + 35 :])
        with Scratch(pool(), room_for(max(1, x * own[0]) * size)) as (along,):
            sum_along(along, g, out, *sizes, *own, *of_g, *numbers[count + 25 : count + 30])
            given = (g, level, along, *operands, *sizes)
            to_query(dq, *given, *numbers[results : results + 5], *inner)
            to_keys(dk, dv, *given, *numbers[results + 5 : results + 15], *inner)

    return launch
