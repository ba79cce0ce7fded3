"""One kernel over a list of operands in one launch.

# Note [Lists on CUDA]
1. A flat Map, or a splittable Rowwise along the axis, runs for every item of a list: the addresses
   of its operands and its length. Items are independent of each other.
2. The items are a table in the kernel's arguments: for each the number of its first block, its
   length, its addresses. A block finds its item by bisection. What does not fit in a table is
   another launch.
3. A map's block computes MAP_SPAN chunks per thread. A fold's block is a segment of FOLD_SPAN
   elements; the item's last block folds the segments, as in rule 5 of Note [Rows on CUDA].
"""

from __future__ import annotations

from rushlight.emit.cuda.map import (
    PACK,
    THREADS,
    aligned,
    body,
    chunk_of,
    kept,
    numbers,
    one_element,
    whole_chunk,
)
from rushlight.emit.cuda.row_axis import MOST_THREADS, TAKE, AxisWriter
from rushlight.emit.cuda.rows import functions
from rushlight.emit.cuda.scalar import PRELUDE, STORED, indent
from rushlight.kernel.shapes import Map, Rowwise

MAP_SPAN = 4
FOLD_SPAN = 1 << 16
HEAD = 2  # words of an item before its addresses

TABLE = """\
#if defined(__HIP__) || defined(__HIPCC_RTC__)
#define FIXED
#else
#define FIXED __grid_constant__
#endif
struct Table {{ u64 words[{words}]; }};
"""

FIND = """\
    int item = 0;
    for (int high = (int)items; high - item > 1;) {{
        const int middle = (item + high) / 2;
        if (table.words[middle * {stride}] <= blockIdx.x) item = middle;
        else high = middle;
    }}
    const u64 first = table.words[item * {stride}];
"""


def addresses_of(kernel: Map | Rowwise) -> int:
    return len(kernel.outputs) + len(kernel.inputs)


def stride_of(kernel: Map | Rowwise) -> int:
    """Words of an item."""
    return HEAD + addresses_of(kernel)


def span_of(kernel: Map | Rowwise) -> int:
    """Elements of a block."""
    if isinstance(kernel, Rowwise):
        return FOLD_SPAN
    return THREADS * MAP_SPAN * chunk_of(kernel.outputs + kernel.inputs)


def threads_of(kernel: Map | Rowwise) -> int:
    return THREADS if isinstance(kernel, Map) else MOST_THREADS


def list_name(kernel: Map | Rowwise) -> str:
    """The name of the __global__ function."""
    return "map_list" if isinstance(kernel, Map) else "fold_list"


def emit_list(kernel: Map | Rowwise, words: int) -> str:
    """The whole source; a table has `words` words."""
    table = TABLE.format(words=words)
    text = _map(kernel) if isinstance(kernel, Map) else _fold(kernel)
    return f"{PRELUDE}{PACK}{table}\n{text}"


def _operands(kernel: Map | Rowwise, letter: str) -> list[str]:
    """Declarations of the item's operands."""
    place = f"table.words[item * {stride_of(kernel)} + {{at}}]"
    count, lines = len(kernel.outputs), []
    for k, dtype in enumerate(kernel.outputs + kernel.inputs):
        kind = f"{'' if k < count else 'const '}{STORED[dtype]}*"
        lines.append(f"{kind} const {letter}{k} = ({kind}){place.format(at=HEAD + k)};")
    return lines


def _map(kernel: Map) -> str:
    chunk, stride = chunk_of(kernel.outputs + kernel.inputs), stride_of(kernel)
    taken = ["const FIXED Table table", "const i64 items", *numbers(kernel.params)]
    return f"""\
{body(kernel)}
extern "C" __global__ void __launch_bounds__({THREADS}) map_list({", ".join(taken)}) {{
{FIND.format(stride=stride)}    const i64 n = (i64)table.words[item * {stride} + 1];
{indent(_operands(kernel, "p"), 1)}    const i64 begin = (i64)(blockIdx.x - first) * {span_of(kernel)};
    const i64 end = begin + {span_of(kernel)} < n ? begin + {span_of(kernel)} : n;
    i64 done = begin;
{indent(kept(kernel), 1)}    if ({aligned(kernel, chunk)}) {{
        const i64 chunks = end / {chunk};
        for (i64 c = begin / {chunk} + threadIdx.x; c < chunks; c += {THREADS}) {{
{indent(whole_chunk(kernel, chunk), 3)}        }}
        done = chunks * {chunk};
    }}
    for (i64 index = done + threadIdx.x; index < end; index += {THREADS}) {{
{indent(one_element(kernel), 2)}    }}
}}
"""


class _FoldWriter(AxisWriter):
    """The fold of one item; its partial results are numbered by blocks."""

    def slot(self, number: int, segment: str) -> str:
        return f"partial{number}[{number} * gridDim.x + first + {segment}]"


def _fold(kernel: Rowwise) -> str:
    writer, stride = _FoldWriter(kernel), stride_of(kernel)
    taken = ["const FIXED Table table", "const i64 items", *numbers(kernel.params)]
    taken += ["u64* scratch", "u32* tickets"]
    body = [*writer.held(), *writer.stage(0), *writer.rows()]
    return f"""\
{TAKE}{functions(kernel)}{writer.fold_function(0)}
extern "C" __global__ void __launch_bounds__({MOST_THREADS}) fold_list({", ".join(taken)}) {{
    __shared__ u64 room[{MOST_THREADS // 32 * len(kernel.passes)}];
    __shared__ u32 drawn;
{FIND.format(stride=stride)}    const i64 axis = (i64)table.words[item * {stride} + 1];
{indent(_operands(kernel, "q"), 1)}    const int lanes = {MOST_THREADS}, lane = (int)threadIdx.x, o = item;
    const i64 length = {FOLD_SPAN}, segments = axis <= length ? 1 : (axis + length - 1) / length;
    const i64 mine = (i64)(blockIdx.x - first);
    const i64 tile = (i64)lanes * {writer.chunk * writer.tile};
    const bool WHOLE = false, resident = false, inside = true, split = true;
{indent(body, 1)}}}
"""
