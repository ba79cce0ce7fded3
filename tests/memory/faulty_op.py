"""An op that doubles its operand by a kernel that is wrong on purpose."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

import rushlight as rl
from rushlight.tape.memory.proof import Proof
from rushlight.tape.record import call
from rushlight.tape.record.op import Grad, Op, Plan

WAYS = (
    *("counts launches", "counts from the second launch on", "leaves elements unwritten"),
    *("is wrong in replays that are compared", "adds what its result's memory held"),
)


class Faulty(Op):
    """`way`: one of WAYS, None for a right kernel, or a function that says when it is wrong.

    `launches` counts.
    """

    __slots__ = ("launches", "way")

    def __init__(self, way: str | Callable[[], bool] | None = None) -> None:
        super().__init__("faulty", "Twice the operand.")
        self.way = way
        self.launches = 0

    def make_plan(self, ins: Any, static: Any) -> Plan:
        (spec,) = ins
        device: Any = spec.device.device

        def launch(target: int, source: int) -> None:
            self.launches += 1
            raw = bytearray(spec.nbytes)
            device.copy_out(source, memoryview(raw))
            numbers = [2.0 * x for (x,) in struct.iter_unpack("f", raw)]
            if callable(self.way) and self.way():
                numbers[0] += 1.0
            if self.way == WAYS[0]:
                numbers[0] += self.launches
            if self.way == WAYS[1]:
                numbers[0] += self.launches - 1
            if self.way == WAYS[3] and sys._getframe(1).f_code is Proof.__call__.__code__:
                numbers[-1] = -numbers[-1]
            if self.way == WAYS[4]:
                device.copy_out(target, memoryview(raw))
                held = [x for (x,) in struct.iter_unpack("f", raw)]
                held = [x if abs(x) < 1e38 else 1.0 for x in held]
                numbers = [a + b for a, b in zip(numbers, held, strict=True)]
            if self.way == WAYS[2]:
                del numbers[len(numbers) // 2 :]
            device.copy_in(target, memoryview(struct.pack(f"{len(numbers)}f", *numbers)))

        return Plan(self, ins, [spec], launch)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            return [grads[0] * 2.0]

        return Grad(needs, (), (), rule)

    def __call__(self, x: rl.Tensor) -> rl.Tensor:
        return call.call(self, (x,))
