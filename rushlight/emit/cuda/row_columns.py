"""Rowwise kernels across columns: a block is some columns by `lanes`.

# Note [Columns on CUDA]
1. Neighbouring threads have neighbouring columns. Thread t of a block has lane t / across; `across`
   is the block's threads over `lanes`.
2. In a splittable kernel a thread has a chunk of columns, 16 bytes of the narrowest input, and a
   tile is `across` chunks. Where columns cannot be read in chunks the block walks the tile chunk
   times, a column per thread each time. A column's order is the same either way.
3. In other kernels a thread has one column.
"""

from __future__ import annotations

from rushlight.emit.cuda.anomaly import get, put
from rushlight.emit.cuda.map import alignment
from rushlight.emit.cuda.rows import (
    bases,
    chunk_of_rows,
    count_of,
    declared,
    draw_ticket,
    functions,
    given,
    indented,
    is_splittable,
    joined,
    kind_of,
    partials,
    row_stores,
    segment_bounds,
    stages,
    stored,
    walk_segments,
    zero_of,
)
from rushlight.emit.cuda.scalar import STORED, computed, indent, uses
from rushlight.kernel.shapes import Reduce, Rowwise

THREADS = 256
MOST_THREADS = 1024
UNROLLED = 8  # loads in flight where a thread has one column; half of it otherwise


def columns_of(kernel: Rowwise) -> int:
    """Columns of a thread."""
    if not is_splittable(kernel) or kernel.vector != "inner":
        return 1
    wide = max(p.body.dtype.itemsize for p in kernel.passes)
    return min(chunk_of_rows(kernel), 32 // wide)


def _results(passes: list[tuple[int, Reduce]], j: str) -> list[str]:
    """The rows of one column of a thread."""
    return [f"const {kind_of(p)} r{k} = v{k}[{j}];" for k, p in passes]


class _Columns:
    """Writes one kernel."""

    def __init__(self, kernel: Rowwise) -> None:
        self.kernel = kernel
        self.width = columns_of(kernel)
        self.stages = stages(kernel)
        self.threads = THREADS if is_splittable(kernel) else MOST_THREADS
        self.each = "for (int j = 0; j < W; ++j)"

    def loads(self, read: list[int], index: str) -> tuple[list[str], list[str]]:
        """Declarations of what the inputs have at row `index`, and each input's value there."""
        kernel, lines, values = self.kernel, [], []
        for i in read:
            k, dtype = count_of(kernel) + i, kernel.inputs[i]
            if kernel.steps[k] == "0" or self.width == 1:
                lines.append(
                    f"const {computed(dtype)} a{i} = {get(kernel, i, f'q{k}[({index}) * k{k}_1]')};"
                )
                values.append(f"a{i}")
            else:
                kind = f"Pack<{STORED[dtype]}, W>"
                lines.append(f"const {kind} w{i} = *(const {kind}*)(q{k} + ({index}) * k{k}_1);")
                values.append(get(kernel, i, f"w{i}.v[j]"))
        return lines, values

    def fold_function(self, number: int, room: str) -> str:
        """Fold one pass across the lanes of each column; every lane gets the results."""
        step = self.kernel.passes[number]
        kind = kind_of(step)
        lines = [
            "if (lanes == 1) return;",
            f"{kind}* const part = ({kind}*){room};",
            "#pragma unroll",
            f"{self.each} part[j * blockDim.x + threadIdx.x] = v[j];",
            "__syncthreads();",
            "#pragma unroll",
            f"{self.each} {{",
            f"    const {kind}* const mine = part + j * blockDim.x + threadIdx.x % across;",
            "    v[j] = mine[0];",
            "    for (int w = 1; w < lanes; ++w) {",
            f"        const {kind} other = mine[w * across];",
            f"        v[j] = {joined(step, 'v[j]', 'other')};",
            "    }",
            "}",
            "__syncthreads();",
        ]
        taken = f"{kind}* const v, u64* const room, const int lanes, const int across"
        head = f"template <int W> __device__ __forceinline__ void fold{number}({taken})"
        return f"{head} {{\n{indent(lines, 1)}}}\n"

    def segment(self, number: int) -> list[str]:
        """Fold [begin, end) into the thread's v of each pass of a stage."""
        kernel, passes = self.kernel, self.stages[number]
        lines = []
        for k in passes:
            lines += ["#pragma unroll", f"{self.each} v{k}[j] = {zero_of(kernel.passes[k])};"]
        read = uses([kernel.passes[k].body for k in passes])
        loads, values = self.loads(read, "i")
        named = dict(zip(read, values, strict=True))
        grow = []
        for k in passes:
            step = kernel.passes[k]
            mine = [named[i] for i in uses([step.body])]
            value = f"pass{k}({given(kernel, 'i', mine, [step.body])})"
            grow += [
                f"const {kind_of(step)} other{k} = {value};",
                f"v{k}[j] = {joined(step, f'v{k}[j]', f'other{k}')};",
            ]
        return [
            *lines,
            "if (inside) {",
            f"    #pragma unroll (W == 1 ? {UNROLLED} : {UNROLLED // 2})",
            "    for (i64 i = begin + lane; i < end; i += lanes) {",
            *indented(loads, 2),
            "        #pragma unroll",
            f"        {self.each} {{",
            *indented(grow, 3),
            "        }",
            "    }",
            "}",
        ]

    def stage(self, number: int) -> list[str]:
        """All segments of one stage in this block, or one where the kernel is split."""
        passes = [(k, self.kernel.passes[k]) for k in self.stages[number]]
        splittable = is_splittable(self.kernel)
        lines = [f"{kind_of(p)} v{k}[W], total{k}[W];" for k, p in passes]
        lines += self.empty(passes)
        lines += [f"{walk_segments(splittable)} {{", *indented(segment_bounds())]
        lines += indented(self.segment(number))
        lines += [f"    fold{k}<W>(v{k}, room, lanes, across);" for k, _ in passes]
        lines += ["    #pragma unroll", f"    {self.each} if (lane == (s & (lanes - 1))) {{"]
        for k, p in passes:
            lines.append(f"        total{k}[j] = {joined(p, f'total{k}[j]', f'v{k}[j]')};")
        lines += ["    }", "}"]
        if splittable:
            lines += ["if (split) {", *indented(self.shared_fold()), "}"]
        # One segment is its own result: a fold with the identity could change the sign of a zero.
        lines.append("if (segments > 1) {")
        lines += [f"    fold{k}<W>(total{k}, room, lanes, across);" for k, _ in passes]
        lines += ["    #pragma unroll", f"    {self.each} {{"]
        lines += [f"        v{k}[j] = total{k}[j];" for k, _ in passes]
        lines += ["    }", "}"]
        return lines if splittable else [*lines, *_results(passes, "0")]

    def empty(self, passes: list[tuple[int, Reduce]]) -> list[str]:
        totals = [f"    total{k}[j] = {zero_of(p)};" for k, p in passes]
        return ["#pragma unroll", f"{self.each} {{", *totals, "}"]

    def shared_fold(self) -> list[str]:
        """The block's results to scratch; the tile's last block goes on with all of them."""
        passes = list(enumerate(self.kernel.passes))
        slot = "partial{k}[({k} * segments + {s}) * total_columns + column + j]"
        lines = partials(self.kernel)
        lines += ["if (inside && lane == 0) {", "    #pragma unroll", f"    {self.each} {{"]
        lines += [f"        {slot.format(k=k, s='mine')} = v{k}[j];" for k, _ in passes]
        lines += ["    }", "}", *draw_ticket("tile"), *self.empty(passes)]
        lines += ["if (inside) for (i64 t = lane; t < segments; t += lanes) {"]
        lines += ["    #pragma unroll", f"    {self.each} {{"]
        for k, p in passes:
            lines.append(f"        const {kind_of(p)} other{k} = {slot.format(k=k, s='t')};")
            lines.append(f"        total{k}[j] = {joined(p, f'total{k}[j]', f'other{k}')};")
        return [*lines, "    }", "}"]

    def elements(self) -> list[str]:
        """Of kernels with one column per thread."""
        kernel = self.kernel
        outputs = stored(kernel, "element")
        if not outputs:
            return []
        roots = [kernel.stores[i] for i in outputs]
        read = uses(roots)
        results = ", ".join(f"y{i}" for i in outputs)
        loads, values = self.loads(read, "i")
        return [
            "if (inside) for (i64 i = lane; i < axis; i += lanes) {",
            *indented(loads),
            *(f"    {computed(kernel.outputs[k])} y{k};" for k in outputs),
            f"    element({given(kernel, 'i', values, roots)}, {results});",
            *(f"    q{k}[i * k{k}_1] = {put(kernel, k, f'y{k}')};" for k in outputs),
            "}",
        ]

    def rows(self) -> list[str]:
        lines = row_stores(self.kernel, "j * k{k}_2")
        if not lines:
            return []
        splittable = is_splittable(self.kernel)
        if splittable:
            lines = [*_results(list(enumerate(self.kernel.passes)), "j"), *lines]
        return [
            "if (lanes > 1) __syncthreads();",
            "if (inside && lane == 0) {",
            "    #pragma unroll",
            f"    {self.each} {{",
            *indented(lines, 2),
            "    }",
            "}",
            *(["if (split && threadIdx.x == 0) tickets[tile] = 0u;"] if splittable else []),
        ]

    def column(self) -> list[str]:
        """This thread's first column, and its operands there."""
        return [
            "const i64 column = (tile * across + place) * W;",
            "const bool inside = column < total_columns;",
            "const i64 o = inside ? column / inner : 0, c = inside ? column % inner : 0;",
            *bases(self.kernel, "o * k{k}_0 + c * k{k}_2"),
        ]

    def walk_function(self) -> str:
        """One tile of W columns per thread."""
        body = self.column()
        for number in range(len(self.stages)):
            body += self.stage(number)
        body += [*self.elements(), *self.rows()]
        sizes = "const i64 tile, const i64 segments, const i64 total_columns"
        more = f"{sizes}, const int lanes, const int lane, const int across, const int place"
        taken = f"{declared(self.kernel)}, {more}, u64* const room"
        head = f"template <int W> __device__ __forceinline__ void walk({taken})"
        drawn = []
        if is_splittable(self.kernel):
            drawn = ["__shared__ u32 drawn;", "const i64 mine = blockIdx.x % segments;"]
        return f"{head} {{\n{indent([*drawn, *body], 1)}}}\n"

    def names(self) -> str:
        """The arguments of `walk` that are the kernel's own."""
        return ", ".join(part.split()[-1].lstrip("*") for part in declared(self.kernel).split(","))

    def is_wide(self) -> str:
        """Whether the chunks of every operand that moves along columns are aligned."""
        kernel, width = self.kernel, self.width
        conditions = [f"inner % {width} == 0"]
        for i, dtype in enumerate(kernel.inputs):
            k = count_of(kernel) + i
            if kernel.steps[k] == "1":
                conditions.append(f"(u64)p{k} % {alignment(dtype, width)} == 0")
                conditions += [f"k{k}_{d} % {width} == 0" for d in (0, 1)]
        return " && ".join(conditions)

    def text(self) -> str:
        kernel, width = self.kernel, self.width
        size = max((p.body.dtype.itemsize for p in kernel.passes), default=1)
        words = self.threads * max(size, 1) * width // 8
        call = (
            f"{self.names()}, {{tile}}, segments, total_columns, lanes, lane, across, place, room"
        )
        narrow = f"walk<1>({call.format(tile='near' if width == 1 else f'near * {width} + part')});"
        once = [narrow]
        if width > 1:
            once = [
                f"if (wide) walk<{width}>({call.format(tile='near')});",
                f"else for (int part = 0; part < {width}; ++part) {narrow}",
            ]
        start = (
            "split ? blockIdx.x / segments : blockIdx.x" if is_splittable(kernel) else "blockIdx.x"
        )
        wide = [f"const bool wide = {self.is_wide()};"] if width > 1 else []
        folds = "".join(self.fold_function(n, "room") for n in range(len(kernel.passes)))
        return f"""\
{functions(kernel)}{folds}{self.walk_function()}
extern "C" __global__ void __launch_bounds__({self.threads}) rowwise_columns({declared(kernel)}) {{
    __shared__ u64 room[{words}];
    const int lanes = (int)lanes_;
    const int across = (int)blockDim.x / lanes;
    const int lane = (int)threadIdx.x / across, place = (int)threadIdx.x % across;
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const i64 total_columns = outer * inner;
    const i64 tiles = (total_columns + across * {width} - 1) / (across * {width});
{indent(wide, 1)}    for (i64 near = {start}; near < tiles; near += gridDim.x) {{
{indent(once, 2)}    }}
}}
"""


def rowwise_columns(kernel: Rowwise) -> str:
    return _Columns(kernel).text()
