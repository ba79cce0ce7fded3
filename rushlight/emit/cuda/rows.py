"""Rowwise kernels as CUDA C.

# Note [Rows on CUDA]
1. `lanes` threads walk one row. With vector "axis" they are a part of a warp, a warp or a block and
   take chunks of neighbouring elements; otherwise a block is 32 columns (neighbouring threads,
   neighbouring columns) by `lanes`, or each thread has its own column when `lanes` is 1. A shuffle
   needs a whole warp, so a part of a warp without a row walks the last row again and stores
   nothing.
2. A long row is cut into segments of `length` elements. A segment is folded thread by thread in
   ascending order, then across threads by a fixed tree; segment s goes to lane s % lanes, in
   ascending order, and the lanes are folded again.
3. `lanes` and `length` are functions of the axis length alone (devices/cuda/grid.py), and so is the
   order of a fold.
4. A kernel of one pass that stores rows only may be `split`: a block per segment, partial results
   in `scratch`, folded by the block that draws the last ticket. Rule 2 gives the same bits with and
   without.
5. Rows are stored after elements, with a barrier between: a row output may share its address with
   an input.
"""

from __future__ import annotations

from rushlight.emit.cuda.anomaly import flags, get, put
from rushlight.emit.cuda.map import alignment, chunk_of, numbers, pack, pointers
from rushlight.emit.cuda.scalar import (
    COMPUTED,
    STORED,
    combine,
    computed,
    identity,
    indent,
    plain_leaf,
    statements,
    uses,
)
from rushlight.kernel.shapes import Reduce, Rowwise

MOST_THREADS = 1024


def is_splittable(kernel: Rowwise) -> bool:
    return len(kernel.passes) == 1 and all(kind == "row" for kind in kernel.kinds)


def rowwise(kernel: Rowwise) -> str:
    whole = _axis(kernel) if kernel.vector == "axis" else _columns(kernel)
    return _functions(kernel) + "\n" + whole


def _count(kernel: Rowwise) -> int:
    return len(kernel.outputs)


# ---- bodies ----


def _signature(kernel: Rowwise, read: list[int], rows: int) -> list[str]:
    taken = ["const i64 index", "const i64 extent"]
    taken += [f"const {computed(kernel.inputs[i])} a{i}" for i in read]
    taken += [f"const {COMPUTED[p.body.dtype]} r{k}" for k, p in enumerate(kernel.passes[:rows])]
    return taken + numbers(kernel.params)


def _given(kernel: Rowwise, index: str, inputs: list[str], rows: int) -> str:
    rest = [f"r{k}" for k in range(rows)] + [f"s{i}" for i in range(len(kernel.params))]
    return ", ".join([index, "axis", *inputs, *rest])


def _stored(kernel: Rowwise, kind: str) -> list[int]:
    """The outputs of one kind."""
    return [i for i, k in enumerate(kernel.kinds) if k == kind]


def _store_function(kernel: Rowwise, kind: str) -> str:
    outputs = _stored(kernel, kind)
    roots = [kernel.stores[i] for i in outputs]
    taken = _signature(kernel, uses(roots), len(kernel.passes))
    taken += [f"{computed(kernel.outputs[i])}& y{i}" for i in outputs]
    lines, names = statements(roots, plain_leaf)
    lines += [f"y{i} = {name};" for i, name in zip(outputs, names, strict=True)]
    return f"__device__ __forceinline__ void {kind}({', '.join(taken)}) {{\n{indent(lines, 1)}}}\n"


def _fold_function(kernel: Rowwise, number: int, step: Reduce) -> str:
    """Fold one value per thread across the lanes of a row; every lane gets the result."""
    kind, dtype = COMPUTED[step.body.dtype], step.body.dtype
    both = combine(step.kind, dtype, "v", "other")
    begin = (
        f"__device__ __forceinline__ {kind} fold{number}({kind} v, u64* room, const int lanes) {{\n"
    )
    if kernel.vector == "axis":
        within = f"""\
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {{
        if (mask >= lanes) continue;
        const {kind} other = SHUFFLE(v, mask);
        v = {both};
    }}
    if (lanes <= 32) return v;
    {kind}* const part = ({kind}*)room;
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < lanes / 32; ++w) {{
        const {kind} other = part[w];
        v = {both};
    }}
"""
    else:
        within = f"""\
    if (lanes == 1) return v;
    {kind}* const part = ({kind}*)room;
    part[threadIdx.x] = v;
    __syncthreads();
    v = part[threadIdx.x & 31];
    for (int w = 1; w < lanes; ++w) {{
        const {kind} other = part[w * 32 + (threadIdx.x & 31)];
        v = {both};
    }}
"""
    return f"{begin}{within}    __syncthreads();\n    return v;\n}}\n"


def _functions(kernel: Rowwise) -> str:
    text = ""
    for number, step in enumerate(kernel.passes):
        taken = _signature(kernel, uses([step.body]), number)
        lines, (result,) = statements([step.body], plain_leaf)
        head = (
            f"__device__ __forceinline__ {COMPUTED[step.body.dtype]} "
            f"pass{number}({', '.join(taken)})"
        )
        text += f"{head} {{\n{indent([*lines, f'return {result};'], 1)}}}\n"
        text += _fold_function(kernel, number, step)
    for kind in ("element", "row"):
        if _stored(kernel, kind):
            text += _store_function(kernel, kind)
    return text


# ---- shared by both layouts ----


def _declared(kernel: Rowwise) -> str:
    strides = [
        f"const i64 k{k}_{d}" for k in range(_count(kernel) + len(kernel.inputs)) for d in range(3)
    ]
    sizes = ["const i64 outer", "const i64 axis", "const i64 inner"]
    taken = [
        *pointers(kernel.outputs, kernel.inputs),
        *flags(kernel),
        *sizes,
        *strides,
        *numbers(kernel.params),
    ]
    taken += ["const i64 lanes_", "const i64 length"]
    if is_splittable(kernel):
        taken += ["const i64 split", "u64* scratch", "u32* tickets"]
    return ", ".join(taken)


def _bases(kernel: Rowwise, offset: str) -> list[str]:
    """Declarations of q0, q1, ...: each operand at the start of its row."""
    written = [
        f"{STORED[d]}* const q{k} = p{k} + {offset.format(k=k)};"
        for k, d in enumerate(kernel.outputs)
    ]
    read = enumerate(kernel.inputs, _count(kernel))
    return written + [
        f"const {STORED[d]}* const q{k} = p{k} + {offset.format(k=k)};" for k, d in read
    ]


def _element_loads(kernel: Rowwise, read: list[int], index: str) -> list[str]:
    count = _count(kernel)
    return [get(kernel, i, f"q{count + i}[({index}) * k{count + i}_1]") for i in read]


def _row_stores(kernel: Rowwise) -> list[str]:
    outputs = _stored(kernel, "row")
    if not outputs:
        return []
    count = _count(kernel)
    read = uses([kernel.stores[i] for i in outputs])
    inputs = [get(kernel, i, f"q{count + i}[0]") for i in read]
    lines = [f"{computed(kernel.outputs[i])} y{i};" for i in outputs]
    results = ", ".join(f"y{i}" for i in outputs)
    lines.append(f"row({_given(kernel, '0', inputs, len(kernel.passes))}, {results});")
    return lines + [f"q{i}[0] = {put(kernel, i, f'y{i}')};" for i in outputs]


def _pass(kernel: Rowwise, number: int, segment: list[str]) -> list[str]:
    """All segments of one pass in this block.

    `segment` folds [begin, end) into the thread's `v`.
    """
    step = kernel.passes[number]
    kind, dtype = COMPUTED[step.body.dtype], step.body.dtype
    zero = identity(step.kind, dtype)
    joined = combine(step.kind, dtype, "total", "v")
    return [
        f"{kind} r{number} = {zero};",
        "{",
        f"    {kind} v = {zero}, total = {zero};",
        "    for (i64 s = 0; s < segments; ++s) {",
        "        const i64 begin = s * length;",
        "        const i64 end = begin + length < axis ? begin + length : axis;",
        *("        " + line for line in segment),
        f"        v = fold{number}(v, room, lanes);",
        f"        if (lane == (s & (lanes - 1))) total = {joined};",
        "    }",
        # One segment is its own result: a fold with the identity could change the sign of a zero.
        f"    r{number} = segments == 1 ? v : fold{number}(total, room, lanes);",
        "}",
    ]


def _last_ticket(kernel: Rowwise, slot: str, owner: str, ticket: str, among: str) -> list[str]:
    """After a split block's `v`: publish it; the row's last block folds them all and stores."""
    step = kernel.passes[0]
    kind, dtype = COMPUTED[step.body.dtype], step.body.dtype
    return [
        f"volatile {kind}* const partial = (volatile {kind}*)scratch;",
        f"if ({owner}) partial[{slot.format(s='s')}] = v;",
        "__threadfence();",
        "__syncthreads();",
        f"if (threadIdx.x == 0) drawn = atomicAdd(tickets + {ticket}, 1u);",
        "__syncthreads();",
        "if (drawn != (u32)segments - 1u) return;",
        "__threadfence();",
        f"{kind} total = {identity(step.kind, dtype)};",
        f"{among}for (i64 t = lane; t < segments; t += lanes) {{",
        f"    const {kind} other = partial[{slot.format(s='t')}];",
        f"    total = {combine(step.kind, dtype, 'total', 'other')};",
        "}",
        f"const {kind} r0 = fold0(total, room, lanes);",
        f"if ({owner}) {{",
        *("    " + line for line in _row_stores(kernel)),
        "}",
        f"if (threadIdx.x == 0) tickets[{ticket}] = 0u;",
        "return;",
    ]


# ---- vector "axis": part of a warp, a warp or a block per row ----


def _wide_inputs(kernel: Rowwise, read: list[int], chunk: int) -> tuple[list[str], list[str]]:
    """Chunk loads of the inputs that move by one, and every input's value at i + j."""
    count = _count(kernel)
    lines, values = [], []
    for i in read:
        k, dtype = count + i, kernel.inputs[i]
        if kernel.steps[k] == "1":
            lines.append(
                f"const {pack(dtype, chunk)} w{k} = *(const {pack(dtype, chunk)}*)(q{k} + i);"
            )
            values.append(get(kernel, i, f"w{k}.v[j]"))
        else:
            values += _element_loads(kernel, [i], "i + j")
    return lines, values


def _axis_segment(kernel: Rowwise, number: int, chunk: int) -> list[str]:
    step = kernel.passes[number]
    kind, dtype = COMPUTED[step.body.dtype], step.body.dtype
    read = uses([step.body])
    packs, packed = _wide_inputs(kernel, read, chunk)
    each = f"for (int j = 0; j < {chunk}; ++j)"

    def grow(values: list[str]) -> list[str]:
        value = f"pass{number}({_given(kernel, 'i + j', values, number)})"
        return [
            f"const {kind} other = {value};",
            f"m[j] = {combine(step.kind, dtype, 'm[j]', 'other')};",
        ]

    scalar = " ".join(grow(_element_loads(kernel, read, "i + j")))
    return [
        f"{kind} m[{chunk}];",
        "#pragma unroll",
        f"{each} m[j] = {identity(step.kind, dtype)};",
        f"const i64 whole = end - (end - begin) % {chunk};",
        f"i64 i = begin + lane * {chunk};",
        "if (wide) {",
        "    #pragma unroll 4",
        f"    for (; i < whole; i += lanes * {chunk}) {{",
        *("        " + line for line in packs),
        "        #pragma unroll",
        f"        {each} {{ {' '.join(grow(packed))} }}",
        "    }",
        "} else {",
        f"    for (; i < whole; i += lanes * {chunk}) {{",
        "        #pragma unroll",
        f"        {each} {{ {scalar} }}",
        "    }",
        "}",
        "if (i < end) {",
        "    #pragma unroll",
        f"    {each} if (i + j < end) {{ {scalar} }}",
        "}",
        "#pragma unroll",
        f"for (int h = {chunk // 2}; h > 0; h >>= 1) {{",
        "    #pragma unroll",
        f"    for (int j = 0; j < h; ++j) m[j] = {combine(step.kind, dtype, 'm[j]', 'm[j + h]')};",
        "}",
        "v = m[0];",
    ]


def _axis_elements(kernel: Rowwise, chunk: int) -> list[str]:
    outputs = _stored(kernel, "element")
    if not outputs:
        return []
    read = uses([kernel.stores[i] for i in outputs])
    packs, packed = _wide_inputs(kernel, read, chunk)
    results = ", ".join(f"y{i}" for i in outputs)
    declared = " ".join(f"{computed(kernel.outputs[i])} y{i};" for i in outputs)
    each = f"for (int j = 0; j < {chunk}; ++j)"

    def compute(values: list[str]) -> str:
        return (
            f"{declared} element({_given(kernel, 'i + j', values, len(kernel.passes))}, {results});"
        )

    kept, written, direct = [], [], []
    for k in outputs:
        dtype = kernel.outputs[k]
        value = put(kernel, k, f"y{k}")
        direct.append(f"q{k}[(i + j) * k{k}_1] = {value};")
        kept.append(f"x{k}.v[j] = {value};")
        if kernel.steps[k] == "1":
            written.append(f"*({pack(dtype, chunk)}*)(q{k} + i) = x{k};")
        else:
            written += ["#pragma unroll", f"{each} q{k}[(i + j) * k{k}_1] = x{k}.v[j];"]
    scalar = f"{compute(_element_loads(kernel, read, 'i + j'))} {' '.join(direct)}"
    return [
        f"if (inside) for (i64 i = lane * {chunk}; i < axis; i += lanes * {chunk}) {{",
        f"    if (wide && i + {chunk} <= axis) {{",
        *("        " + line for line in packs),
        *(f"        {pack(kernel.outputs[k], chunk)} x{k};" for k in outputs),
        "        #pragma unroll",
        f"        {each} {{ {compute(packed)} {' '.join(kept)} }}",
        *("        " + line for line in written),
        "    } else {",
        "        #pragma unroll",
        f"        {each} if (i + j < axis) {{ {scalar} }}",
        "    }",
        "}",
    ]


def _axis_aligned(kernel: Rowwise, chunk: int) -> str:
    dtypes = kernel.outputs + kernel.inputs
    conditions = []
    for k, dtype in enumerate(dtypes):
        is_row = k < _count(kernel) and kernel.kinds[k] == "row"
        if kernel.steps[k] == "1" and not is_row:
            conditions.append(
                f"(u64)p{k} % {alignment(dtype, chunk)} == 0 && (outer == 1 || k{k}_0 % {chunk} == "
                "0)"
            )
    return " && ".join(conditions) or "true"


def _axis(kernel: Rowwise) -> str:
    # By the inputs' types alone, so that the order of a sum does not depend on layout or outputs.
    chunk = min(8, chunk_of(kernel.inputs))
    passes = [
        line
        for n in range(len(kernel.passes))
        for line in _pass(kernel, n, _axis_segment(kernel, n, chunk))
    ]
    rows = _row_stores(kernel)
    if rows:
        rows = [
            "if (lanes > 32) __syncthreads(); else SYNC_WARP();",
            "if (inside && lane == 0) {",
            *("    " + r for r in rows),
            "}",
        ]
    body = [*_bases(kernel, "o * k{k}_0"), *passes, *_axis_elements(kernel, chunk), *rows]
    return f"""\
extern "C" __global__ void __launch_bounds__({MOST_THREADS}) rowwise_axis({_declared(kernel)}) {{
    __shared__ u64 room[32];
    const int lanes = (int)lanes_;
    const int lane = (int)threadIdx.x & (lanes - 1);
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const int place = lanes < 32 ? ((int)threadIdx.x & 31) / lanes : 0;
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes - place;
    const i64 step = (i64)gridDim.x * blockDim.x / lanes;
    const bool wide = {_axis_aligned(kernel, chunk)};
{indent(_axis_split(kernel, chunk), 1)}    for (i64 near = first; near < outer; near += step) {{
        const bool inside = near + place < outer;
        const i64 o = inside ? near + place : outer - 1;
{indent(body, 2)}    }}
}}
"""


def _axis_split(kernel: Rowwise, chunk: int) -> list[str]:
    if not is_splittable(kernel):
        return []
    kind = COMPUTED[kernel.passes[0].body.dtype]
    lines = [
        "__shared__ u32 drawn;",
        "if (split) {",
        "    const i64 o = blockIdx.x / segments, s = blockIdx.x % segments;",
        "    const i64 begin = s * length;",
        "    const i64 end = begin + length < axis ? begin + length : axis;",
        *("    " + line for line in _bases(kernel, "o * k{k}_0")),
        f"    {kind} v;",
    ]
    lines += ["    " + line for line in _axis_segment(kernel, 0, chunk)]
    lines.append("    v = fold0(v, room, lanes);")
    lines += [
        "    " + line for line in _last_ticket(kernel, "o * segments + {s}", "lane == 0", "o", "")
    ]
    return [*lines, "}"]


# ---- vector "inner" or "any": 32 columns by `lanes`, or a column per thread ----


def _column_segment(kernel: Rowwise, number: int) -> list[str]:
    step = kernel.passes[number]
    kind, dtype = COMPUTED[step.body.dtype], step.body.dtype
    loads = _element_loads(kernel, uses([step.body]), "i")
    value = f"pass{number}({_given(kernel, 'i', loads, number)})"
    return [
        f"v = {identity(step.kind, dtype)};",
        "if (inside) {",
        "    #pragma unroll 8",
        "    for (i64 i = begin + lane; i < end; i += lanes) {",
        f"        const {kind} other = {value};",
        f"        v = {combine(step.kind, dtype, 'v', 'other')};",
        "    }",
        "}",
    ]


def _column_elements(kernel: Rowwise) -> list[str]:
    outputs = _stored(kernel, "element")
    if not outputs:
        return []
    read = uses([kernel.stores[i] for i in outputs])
    results = ", ".join(f"y{i}" for i in outputs)
    given = _given(kernel, "i", _element_loads(kernel, read, "i"), len(kernel.passes))
    return [
        "if (inside) for (i64 i = lane; i < axis; i += lanes) {",
        *(f"    {computed(kernel.outputs[k])} y{k};" for k in outputs),
        f"    element({given}, {results});",
        *(f"    q{k}[i * k{k}_1] = {put(kernel, k, f'y{k}')};" for k in outputs),
        "}",
    ]


_COLUMN = [
    "const i64 column = tile * columns + place;",
    "const bool inside = column < total_columns;",
    "const i64 o = inside ? column / inner : 0, c = inside ? column % inner : 0;",
]


def _columns(kernel: Rowwise) -> str:
    passes = [
        line
        for n in range(len(kernel.passes))
        for line in _pass(kernel, n, _column_segment(kernel, n))
    ]
    rows = _row_stores(kernel)
    if rows:
        rows = [
            "if (lanes > 1) __syncthreads();",
            "if (inside && lane == 0) {",
            *("    " + r for r in rows),
            "}",
        ]
    body = [
        *_COLUMN,
        *_bases(kernel, "o * k{k}_0 + c * k{k}_2"),
        *passes,
        *_column_elements(kernel),
        *rows,
    ]
    split = indent(_column_split(kernel), 1)
    return f"""\
extern "C" __global__ void __launch_bounds__({MOST_THREADS}) rowwise_columns({_declared(kernel)}) {{
    __shared__ u64 room[{MOST_THREADS}];
    const int lanes = (int)lanes_;
    const int columns = (int)blockDim.x / lanes;
    const int lane = (int)threadIdx.x / columns, place = (int)threadIdx.x % columns;
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const i64 total_columns = outer * inner;
    const i64 tiles = (total_columns + columns - 1) / columns;
{split}    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{
{indent(body, 2)}    }}
}}
"""


def _column_split(kernel: Rowwise) -> list[str]:
    if not is_splittable(kernel):
        return []
    kind = COMPUTED[kernel.passes[0].body.dtype]
    lines = [
        "__shared__ u32 drawn;",
        "if (split) {",
        "    const i64 tile = blockIdx.x / segments, s = blockIdx.x % segments;",
        "    const i64 begin = s * length;",
        "    const i64 end = begin + length < axis ? begin + length : axis;",
        *("    " + line for line in [*_COLUMN, *_bases(kernel, "o * k{k}_0 + c * k{k}_2")]),
        f"    {kind} v;",
    ]
    lines += ["    " + line for line in _column_segment(kernel, 0)]
    lines.append("    v = fold0(v, room, lanes);")
    owner = "inside && lane == 0"
    lines += [
        "    " + line
        for line in _last_ticket(
            kernel, "{s} * total_columns + column", owner, "tile", "if (inside) "
        )
    ]
    return [*lines, "}"]
