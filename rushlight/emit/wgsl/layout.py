"""The arguments of a WGSL kernel: its operands, its bindings and the block of launch numbers.

# Note [Launch block]
The numbers of Note [Kernel arguments] are passed in one uniform struct of 32-bit words, in this
order: `base` (the first workgroup of this dispatch), `hidden` (zero), the operands' offsets in
elements, sizes, strides, params (64-bit ones as two words). Buffers are bound whole as arrays of
u32. Operands in one buffer share one binding: the alias pattern is a tuple of each operand's
binding number.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType, compute_type, int32, uint32
from rushlight.kernel.attend import operands_of, outputs_of, params_of
from rushlight.kernel.shapes import (
    Attend,
    Contract,
    Convolve,
    Gather,
    Kernel,
    Map,
    Rowwise,
    Scan,
    Scatter,
)

Aliases = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """One array that a kernel reads or writes."""

    dtype: DType
    written: bool
    dims: int  # the number of its strides


@dataclass(frozen=True, slots=True)
class Layout:
    """The argument list of a kernel, as types."""

    operands: tuple[Operand, ...]
    sizes: int
    params: tuple[DType, ...]

    def fields(self) -> list[str]:
        """The words of the launch block by name."""
        names = ["base", "hidden"]
        names += [f"offset{i}" for i in range(len(self.operands))]
        names += [f"size{i}" for i in range(self.sizes)]
        names += [f"stride{i}_{d}" for i, o in enumerate(self.operands) for d in range(o.dims)]
        for i, dtype in enumerate(self.params):
            names += [f"param{i}"] if dtype.itemsize <= 4 else [f"param{i}_low", f"param{i}_high"]
        return names

    def pack_format(self) -> str:
        """The format of the same words for struct.pack."""
        strides = sum(o.dims for o in self.operands)
        params = "".join(_PACK[d.name] for d in self.params)
        return f"<{2 + len(self.operands) + self.sizes}I{strides}i{params}"


_PACK = {
    "bool": "I",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "f",
    "bfloat16": "f",
    "float32": "f",
    "float64": "d",
}


def layout_of(kernel: Kernel) -> Layout:
    if isinstance(kernel, Map | Rowwise):
        dims, sizes = (kernel.rank, max(kernel.rank, 1)) if isinstance(kernel, Map) else (3, 3)
        flag = () if kernel.anomaly is None else (Operand(uint32, True, 0),)
        return Layout(_arrays(kernel.outputs, kernel.inputs, dims) + flag, sizes, kernel.params)
    if isinstance(kernel, Scan):
        return Layout(_arrays((kernel.output,), kernel.inputs, 3), 4, ())
    if isinstance(kernel, Attend):
        operands, outputs = operands_of(kernel).items(), outputs_of(kernel)
        arrays = tuple(Operand(dtype, name in outputs, 5) for name, dtype in operands)
        return Layout(arrays, 5, params_of(kernel))
    if isinstance(kernel, Contract):
        arrays = _arrays((kernel.dtype,), (kernel.dtype,) * (3 if kernel.added else 2), 4)
        return Layout(arrays, 5, kernel.params)
    if isinstance(kernel, Convolve):
        arrays = _arrays((kernel.dtype,), (kernel.dtype, kernel.dtype), 0)
        return Layout(arrays, 5 + 6 * kernel.rank, ())
    assert isinstance(kernel, Gather | Scatter)
    index = Operand(kernel.index_dtype, False, 3)
    status = Operand(int32, True, 0)
    return Layout(
        (Operand(kernel.dtype, True, 3), Operand(kernel.dtype, False, 3), index, status), 4, ()
    )


def _arrays(
    outputs: tuple[DType, ...], inputs: tuple[DType, ...], dims: int
) -> tuple[Operand, ...]:
    return tuple(Operand(d, True, dims) for d in outputs) + tuple(
        Operand(d, False, dims) for d in inputs
    )


def flag_of(kernel: Kernel) -> int | None:
    """The operand of the anomaly flags, or None; see Note [Anomaly kernels]."""
    if not isinstance(kernel, Map | Rowwise) or kernel.anomaly is None:
        return None
    return len(kernel.outputs) + len(kernel.inputs)


def with_scratch(layout: Layout) -> Layout:
    """The layout with one more operand: words for results between dispatches."""
    return Layout((*layout.operands, Operand(uint32, True, 0)), layout.sizes, layout.params)


def separate(layout: Layout) -> Aliases:
    """The alias pattern of operands in separate buffers."""
    return tuple(range(len(layout.operands)))


def alias_pattern(buffers: tuple[int, ...]) -> Aliases:
    """Binding numbers for operands in these buffers, in order of first appearance."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(b, len(numbers)) for b in buffers)


def written_bindings(layout: Layout, aliases: Aliases) -> tuple[bool, ...]:
    """For each binding, whether the kernel writes to it."""
    written = [False] * (max(aliases, default=-1) + 1)
    for operand, binding in zip(layout.operands, aliases, strict=True):
        written[binding] |= operand.written
    return tuple(written)


def param_types(layout: Layout) -> tuple[DType, ...]:
    return tuple(compute_type(d) for d in layout.params)
