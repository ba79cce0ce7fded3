"""A Map kernel's operands and arguments inside its loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rushlight.core.dtypes import DType
from rushlight.emit.llvm.text import Arguments, Slot, Writer
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import topological


@dataclass
class Operand:
    """One output or input inside the loops."""

    dtype: DType
    step: str
    base: str
    strides: list[str]
    offset: Slot | None = None  # the start of the current row; None where there is one row only

    @property
    def inner(self) -> str:
        return self.strides[-1] if self.strides else "1"


@dataclass
class Frame:
    """A Map kernel's arguments, by name."""

    kernel: Map
    outputs: list[Operand]
    inputs: list[Operand]
    sizes: list[str]
    params: list[str]

    @property
    def operands(self) -> list[Operand]:
        return self.outputs + self.inputs


@lru_cache(maxsize=16)
def lanes(kernel: Map) -> tuple[int, int]:
    """The elements of one vector, and the vectors of one loop iteration."""
    every = topological(kernel.body)
    stored = max(d.itemsize for d in (*kernel.outputs, *kernel.inputs))
    wide = sum(e.dtype.itemsize == 8 for e in every)
    width = 8 if stored == 8 or wide * 4 > len(every) else 16
    return width, 1 if "n" in kernel.steps or len(every) > 12 else 4


def argument_count(kernel: Map) -> int:
    operands = len(kernel.outputs) + len(kernel.inputs)
    return operands + max(kernel.rank, 1) + operands * kernel.rank + len(kernel.params)


def read_frame(writer: Writer, kernel: Map) -> Frame:
    arguments = Arguments(writer)
    dtypes = (*kernel.outputs, *kernel.inputs)
    bases = [arguments.address() for _ in dtypes]
    sizes = arguments.words(max(kernel.rank, 1))
    strides = [arguments.words(kernel.rank) for _ in dtypes]
    params = [arguments.param(d) for d in kernel.params]
    for k, step in enumerate(kernel.steps):
        if step == "o":  # the other part of the same complex numbers
            strides[k] = strides[k - 1]
    operands = [
        Operand(d, s, b, t) for d, s, b, t in zip(dtypes, kernel.steps, bases, strides, strict=True)
    ]
    count = len(kernel.outputs)
    return Frame(kernel, operands[:count], operands[count:], sizes, params)
