"""Kernels as LLVM IR text.

A module has two or three functions over one array of 64-bit slots, the launch's numbers, in the
order of Note [Kernel arguments]; the table `functions` has their addresses.
- `kernel(args, begin, end)` runs the tasks begin <= t < end, which are independent of each other.
- `counts(args, numbers)` computes the number of tasks and about how many element-instructions they
  take in all, by which a device decides on threads. It runs under the GIL; a negative number of
  tasks means that it has raised.
- `launch(args, runner, tasks, work)` runs all tasks by calls of
  `runner(function, args, tasks, work)`, which distributes them; where it is null, one such call for
  `kernel` suffices.
The bits of a result do not depend on how the tasks are split.
"""

from __future__ import annotations

from dataclasses import replace

from rushlight.emit.llvm import attend, columns, contract, index, map, rows, scan, search, sort
from rushlight.emit.llvm.text import FUNCTION, Writer
from rushlight.kernel.shapes import (
    Attend,
    Contract,
    Gather,
    Kernel,
    Map,
    Reduce,
    Rowwise,
    Scan,
    Scatter,
    Search,
    Sort,
)
from rushlight.scalar.elementary import lower

COUNTS = "define internal void @counts(ptr readonly %args, ptr %numbers)"


def emit(kernel: Kernel) -> str:
    """The module of one kernel."""
    kernel = lowered(kernel)
    declared: set[str] = set()
    body, counts = Writer(declared), Writer(declared)
    if isinstance(kernel, Rowwise):
        walk = rows if kernel.vector == "axis" else columns
        return module(walk.functions(kernel, declared), counts, walk.write_counts(counts, kernel))
    if isinstance(kernel, Sort):
        return module(sort.functions(kernel, declared), counts, sort.write_counts(counts, kernel))
    if isinstance(kernel, Map):
        return module(map.functions(kernel, declared), counts, map.write_counts(counts, kernel))
    if isinstance(kernel, Scan):
        scan.write_kernel(body, kernel)
        numbers = scan.write_counts(counts, kernel)
    elif isinstance(kernel, Search):
        search.write_kernel(body, kernel)
        numbers = search.write_counts(counts, kernel)
    elif isinstance(kernel, Attend):
        attend.write_kernel(body, kernel)
        numbers = attend.write_counts(counts, kernel)
    elif isinstance(kernel, Contract):
        contract.write_kernel(body, kernel)
        numbers = contract.write_counts(counts)
    else:
        assert isinstance(kernel, Gather | Scatter)
        index.write_kernel(body, kernel)
        numbers = index.write_counts(counts, kernel)
    return module([body.function(FUNCTION.format(name="kernel"))], counts, numbers)


def module(functions: list[str], counts: Writer, numbers: tuple[str, str]) -> str:
    """The whole text; `numbers` names the task and work counts that `counts` has computed."""
    tasks, work = numbers
    counts.line(f"store i64 {tasks}, ptr %numbers")
    counts.line(f"store i64 {work}, ptr {counts.value('getelementptr i64, ptr %numbers, i64 1')}")
    launch = "@launch" if any("@launch" in part for part in functions) else "null"
    table = f"@functions = constant [3 x ptr] [ptr @kernel, ptr @counts, ptr {launch}]"
    return "\n".join([table, *functions, counts.function(COUNTS), *sorted(counts.declared), ""])


def lowered(kernel: Kernel) -> Kernel:
    """The kernel with its elementary functions lowered."""
    if isinstance(kernel, Map):
        return replace(kernel, body=lower(kernel.body, fused=True))
    if isinstance(kernel, Rowwise):
        roots = lower((*(p.body for p in kernel.passes), *kernel.stores), fused=True)
        count = len(kernel.passes)
        passes = tuple(
            Reduce(p.kind, body) for p, body in zip(kernel.passes, roots[:count], strict=True)
        )
        return replace(kernel, passes=passes, stores=roots[count:])
    if isinstance(kernel, Scan):
        return replace(kernel, body=lower((kernel.body,), fused=True)[0])
    return kernel


def arguments(kernel: Kernel) -> str:
    """One letter per launch argument: "i" an integer, "u" an unsigned one, "f" a float."""
    if isinstance(kernel, Map):
        operands = len(kernel.outputs) + len(kernel.inputs)
        words = operands + max(kernel.rank, 1) + operands * kernel.rank
    elif isinstance(kernel, Rowwise):
        words = 4 * (len(kernel.outputs) + len(kernel.inputs)) + 3
    elif isinstance(kernel, Scan):
        return "i" * (4 * (1 + len(kernel.inputs)) + 3)
    elif isinstance(kernel, Contract):
        return "i" * (3 + 5 + 12) + "f" * len(kernel.params)
    elif isinstance(kernel, Attend):
        return attend.argument_kinds(kernel)
    elif isinstance(kernel, Search):
        return "i" * (3 + 3 + 6)
    elif isinstance(kernel, Sort):
        return "i" * (4 + 4 + 9 + 2)  # see Note [Sorting on the CPU]
    else:
        assert isinstance(kernel, Gather | Scatter)
        return "i" * (4 + 4 + 9)
    return "i" * words + "".join(d.kind if d.kind in "fu" else "i" for d in kernel.params)
