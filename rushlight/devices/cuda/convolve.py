"""Convolve on CUDA: by cuDNN where it has the type and an engine, else by own kernels.

A plan of cuDNN may take a workspace of at most 2.5 times the operands together: their copies in
another layout, or transformed. The partial sums of an own weight gradient are added by a row
kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import ClassVar

from rushlight.core.dtypes import DType, compute_type, float32
from rushlight.core.shapes import contiguous_strides
from rushlight.devices.cuda import cudnn
from rushlight.devices.cuda.aligned import Aligned
from rushlight.devices.cuda.cudnn import Cudnn, Descriptor, Plan, describe, tensor
from rushlight.devices.cuda.driver import Session
from rushlight.devices.cuda.turned import Turned, turned
from rushlight.devices.shared.allocator import Pool, Scratch, room_for
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Convolve, Reduce, Rowwise
from rushlight.scalar.ir import arg, row

_MOST_PLANS = 1024
_SLACK = 1 << 25  # bytes of a workspace for partial sums

# cudnnBackendDescriptorType_t of the operations, and cudnnBackendAttributeName_t of their alpha,
# beta, convolution and operands in the order of our addresses.
_OPERATIONS = {
    "image": (10, 700, 701, 702, (705, 704, 703)),
    "back": (12, 706, 707, 708, (710, 711, 709)),
    "weights": (11, 712, 713, 714, (715, 717, 716)),
}
_COMPUTE_TYPE, _MODE, _DILATION, _STRIDE, _AFTER, _BEFORE, _RANK = 100, 101, 102, 103, 104, 105, 106
_CROSS_CORRELATION = 1


class Sizes:
    """A launch's sizes by name; one dimension is two, the first of size 1."""

    def __init__(self, rank: int, numbers: Sequence[int]) -> None:
        self.n, self.groups, self.m, self.c = numbers[:4]
        runs = [numbers[4 + rank * i : 4 + rank * (i + 1)] for i in range(6)]
        if rank == 1:
            runs = [(fill, *run) for fill, run in zip((1, 1, 1, 1, 1, 0), runs, strict=True)]
        self.pixels, self.window, self.image, self.stride, self.dilation, self.before = runs

    def shapes(self, of: str) -> tuple[tuple[int, ...], ...]:
        """The operands' shapes, in the order of the addresses."""
        outs = self.groups * self.m
        x = (self.n, self.groups * self.c, *self.image)
        y = (self.n, outs, *self.pixels)
        w = (outs, self.c, *self.window)
        return {"image": (y, x, w), "back": (x, y, w), "weights": (w, y, x)}[of]

    def after(self) -> list[int]:
        """The padding at the far end: as much as before where the sizes allow that."""
        found = []
        for i, t in enumerate(self.before):
            reach = self.dilation[i] * (self.window[i] - 1) + 1
            least = (self.pixels[i] - 1) * self.stride[i] + reach - self.image[i] - t
            found.append(t if least <= t < least + self.stride[i] else max(least, 0))
        return found


def _operand_bytes(kernel: Convolve, numbers: Sequence[int]) -> int:
    shapes = Sizes(kernel.rank, numbers).shapes(kernel.of)
    return kernel.dtype.itemsize * sum(map(prod, shapes))


def _partial_bytes(kernel: Convolve, numbers: Sequence[int]) -> int:
    """The partial sums of an own weight gradient."""
    count = prod(Sizes(kernel.rank, numbers).shapes("weights")[0])
    return compute_type(kernel.dtype).itemsize * numbers[-1] * count


def scratch_rooms(kernel: Convolve, numbers: Sequence[int]) -> list[int]:
    """The rooms that a launch takes from the pool.

    A plan's workspace is known to the library alone. Without it the operands' bytes are counted:
    most workspaces hold copies in another layout.
    """
    found = _partial_bytes(kernel, numbers) if kernel.of == "weights" else 0
    if takes(kernel):
        library = Convolution.library_of()
        plan = None if library is None else find_plan(library, kernel, tuple(numbers))
        if plan is not None:
            found = plan.workspace
        elif library is None:
            found = _operand_bytes(kernel, numbers)
    return [room_for(found)] if found else []


def _operation(library: Cudnn, kernel: Convolve, sizes: Sizes) -> Descriptor:
    kind, alpha, beta, described, names = _OPERATIONS[kernel.of]
    how = describe(
        library.library,
        cudnn.CONVOLUTION,
        (_COMPUTE_TYPE, cudnn.DATA_TYPE, [cudnn.FLOAT]),
        (_MODE, cudnn.MODE, [_CROSS_CORRELATION]),
        (_RANK, cudnn.INT64, [len(sizes.window)]),
        (_DILATION, cudnn.INT64, sizes.dilation),
        (_STRIDE, cudnn.INT64, sizes.stride),
        (_BEFORE, cudnn.INT64, sizes.before),
        (_AFTER, cudnn.INT64, sizes.after()),
    )
    operands = [
        tensor(library.library, i + 1, kernel.dtype, shape, contiguous_strides(shape))
        for i, shape in enumerate(sizes.shapes(kernel.of))
    ]
    return describe(
        library.library,
        kind,
        (described, cudnn.DESCRIPTOR, [how]),
        *[(name, cudnn.DESCRIPTOR, [o]) for name, o in zip(names, operands, strict=True)],
        (alpha, cudnn.REAL, [1.0]),
        (beta, cudnn.REAL, [0.0]),
    )


def plan_convolution(
    library: Cudnn, kernel: Convolve, numbers: Sequence[int]
) -> Plan | Turned | None:
    """A plan for a launch with these sizes, or None. See Note [Turned convolutions]."""
    own = _plan_of_library(library, kernel, numbers)
    if kernel.of != "back" or kernel.dtype is not float32 or kernel.tf32:
        return own
    image = replace(kernel, of="image")
    found = turned(
        library, float32, tuple(numbers), kernel.rank, own,
        lambda its: _plan_of_library(library, image, its),
    )  # fmt: skip
    return own if found is None else found


def _plan_of_library(library: Cudnn, kernel: Convolve, numbers: Sequence[int]) -> Plan | None:
    refused = [cudnn.NONDETERMINISTIC, cudnn.DOWN_CONVERTS, cudnn.REDUCED_SUM, cudnn.WINOGRAD_13X13]
    if kernel.dtype is float32 and not kernel.tf32:
        refused.append(cudnn.TENSOR_CORE)
    try:
        operation = _operation(library, kernel, Sizes(kernel.rank, numbers))
    except cudnn.Failure:
        return None
    most = 5 * _operand_bytes(kernel, numbers) // 2 + _SLACK
    return library.plan(operation, (1, 2, 3), refused, most)


def find_plan(library: Cudnn, kernel: Convolve, numbers: tuple[int, ...]) -> Plan | Turned | None:
    """`plan_convolution`, asked once for launches and estimates."""
    plans = library.plans
    try:
        return plans[kernel, numbers]
    except KeyError:
        if len(plans) >= _MOST_PLANS:
            plans.clear()
        plan = plan_convolution(library, kernel, numbers)
        plans[kernel, numbers] = plan
        return plan


def _no_library() -> Cudnn | None:
    return None


class Convolution:
    """The launcher of one Convolve kernel: cuDNN where it can, else what `own` builds."""

    __slots__ = ("build", "kernel", "library", "own", "plans", "pool", "session")

    # cuDNN of the open device, which estimates ask too; set by `CudaDevice`.
    library_of: ClassVar[Callable[[], Cudnn | None]] = staticmethod(_no_library)

    def __init__(
        self,
        kernel: Convolve,
        library: Cudnn,
        session: Session,
        own: Callable[[], Launch],
        pool: Callable[[], Pool],
    ) -> None:
        self.kernel = kernel
        self.library = library
        self.session = session
        self.build = own
        self.own: Launch | None = None
        self.pool = pool
        self.plans: dict[tuple[int, ...], Plan | Turned | None] = {}

    def __call__(self, out: int, a: int, b: int, *numbers: int) -> None:
        try:
            plan = self.plans[numbers]
        except KeyError:
            if len(self.plans) >= _MOST_PLANS:
                self.plans.clear()
            plan = self.plans[numbers] = find_plan(self.library, self.kernel, numbers)
        if plan is None:
            if self.own is None:
                self.own = self.build()
            self.own(out, a, b, *numbers)
        elif (out | a | b) % cudnn.ALIGNMENT:
            shapes = Sizes(self.kernel.rank, numbers).shapes(self.kernel.of)
            spans = [prod(shape) * self.kernel.dtype.itemsize for shape in shapes]
            with Aligned(self.pool(), self.session, (out, a, b), spans, 1) as places:
                self._run(plan, places)
        else:
            self._run(plan, (out, a, b))

    def _run(self, plan: Plan | Turned, addresses: Sequence[int]) -> None:
        if not plan.workspace:
            plan.run(addresses, 0)
            return
        # The block may be reused at once: its next use comes later on the stream.
        with Scratch(self.pool(), room_for(plan.workspace)) as (workspace,):
            plan.run(addresses, workspace)


def takes(kernel: Convolve) -> bool:
    return kernel.dtype in cudnn.TYPES


def sum_kernel(dtype: DType) -> Rowwise:
    """The sums over the first of two dimensions, from the compute type to the type."""
    wide = compute_type(dtype)
    passes = (Reduce("sum", arg(0, wide)),)
    return Rowwise((dtype,), ("row",), (wide,), (), passes, (row(0, wide),), "inner", ("1", "1"))


def in_parts(kernel: Convolve, run: Launch, add: Launch, pool: Callable[[], Pool]) -> Launch:
    """A weight gradient by an own kernel, which makes `parts` partial sums, and their sum."""

    def launch(out: int, y: int, x: int, *numbers: int) -> None:
        parts, count = numbers[-1], prod(Sizes(kernel.rank, numbers).shapes("weights")[0])
        with Scratch(pool(), room_for(_partial_bytes(kernel, numbers))) as (partial,):
            run(partial, y, x, *numbers)
            add(out, partial, 1, parts, count, count, 0, 1, 0, count, 1)

    return launch
