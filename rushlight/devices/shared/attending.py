"""All gradients of attention's operands, composed of three Attend kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from rushlight.core.dtypes import compute_type
from rushlight.core.shapes import contiguous_strides
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
        dq, dk, dv, g, out, level, *operands = numbers[:count]
        sizes, rest = numbers[count : count + 5], numbers[count + 5 :]
        steps = [rest[5 * i : 5 * i + 5] for i in range(count)]
        params = rest[5 * count :]
        own = (*contiguous_strides(sizes[:4]), 1)
        with Scratch(pool(), room_for(max(1, math.prod(sizes[:4])) * size)) as (along,):
            sum_along(along, g, out, *sizes, *own, *steps[3], *steps[4])
            inner = [n for step in (steps[3], steps[5], own, *steps[6:]) for n in step]
            given = (g, level, along, *operands)
            to_query(dq, *given, *sizes, *steps[0], *inner, *params)
            to_keys(dk, dv, *given, *sizes, *steps[1], *steps[2], *inner, *params)

    return launch
