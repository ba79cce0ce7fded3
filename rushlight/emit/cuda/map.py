"""Map kernels as CUDA C: a thread computes a chunk, 16 bytes of the narrowest operand.

Chunks are read and written whole where addresses and strides allow it, otherwise element by
element, with the same bits. A uniform branch decides at launch.

# Note [Transposed tiles]
An input that has its unit stride in another dimension d than the last is read in square tiles along
d, and passes through shared memory to the threads that store along the last dimension. This is done
where all inputs that move by "n" share d; a launch finds d from the strides.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.dtypes import DType
from rushlight.emit.cuda.anomaly import flags, get, put
from rushlight.emit.cuda.scalar import STORED, computed, indent, plain_leaf, statements
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import topological

THREADS = 256

PACK = """\
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T v[N]; };
"""


def chunk_of(dtypes: Sequence[DType]) -> int:
    """Elements in 16 bytes of the narrowest type, or in 32 of the widest."""
    sizes = [d.itemsize for d in dtypes] or [4]
    return min(16 // min(sizes), 32 // max(sizes))


def pack(dtype: DType, chunk: int) -> str:
    return f"Pack<{STORED[dtype]}, {chunk}>"


def alignment(dtype: DType, chunk: int) -> int:
    return min(16, dtype.itemsize * chunk)


def pointers(outputs: Sequence[DType], inputs: Sequence[DType]) -> list[str]:
    """Declarations of p0, p1, ...: outputs first."""
    written = [f"{STORED[d]}* p{i}" for i, d in enumerate(outputs)]
    return written + [f"const {STORED[d]}* p{i}" for i, d in enumerate(inputs, len(outputs))]


def numbers(params: Sequence[DType]) -> list[str]:
    return [f"const {computed(d)} s{i}" for i, d in enumerate(params)]


def flat(kernel: Map) -> str:
    chunk = chunk_of(kernel.outputs + kernel.inputs)
    declared = [
        *pointers(kernel.outputs, kernel.inputs),
        *flags(kernel),
        "const i64 n",
        *numbers(kernel.params),
    ]
    return f"""\
{body(kernel)}
extern "C" __global__ void __launch_bounds__({THREADS}) map_flat({", ".join(declared)}) {{
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 stride = (i64)gridDim.x * blockDim.x;
    i64 done = 0;
{indent(kept(kernel), 1)}    if ({aligned(kernel, chunk)}) {{
        const i64 chunks = n / {chunk};
        for (i64 c = first; c < chunks; c += stride) {{
{indent(whole_chunk(kernel, chunk), 3)}        }}
        done = chunks * {chunk};
    }}
    for (i64 index = done + first; index < n; index += stride) {{
{indent(one_element(kernel), 2)}    }}
}}
"""


def strided(kernel: Map) -> str:
    chunk = chunk_of(kernel.outputs + kernel.inputs)
    count = len(kernel.outputs) + len(kernel.inputs)
    sizes = [f"const i64 z{d}" for d in range(kernel.rank)]
    strides = [f"const i64 k{k}_{d}" for k in range(count) for d in range(kernel.rank)]
    declared = [
        *pointers(kernel.outputs, kernel.inputs),
        *flags(kernel),
        *sizes,
        *strides,
        *numbers(kernel.params),
    ]
    total = " * ".join(f"z{d}" for d in range(kernel.rank))
    tiles = indent(_transposed(kernel), 1)
    return f"""\
{body(kernel)}
extern "C" __global__ void __launch_bounds__({THREADS}) map_strided({", ".join(declared)}) {{
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 stride = (i64)gridDim.x * blockDim.x;
    const i64 total = {total};
{tiles}    // 64-bit division is several times slower than 32-bit.
    if (total < 0x7fffffffLL && {_rows_aligned(kernel, chunk)}) {{
        for (i64 c = first; c < total / {chunk}; c += stride) {{
            const u32 position = (u32)c * {chunk}u;
{indent(_strided_chunk(kernel, chunk), 3)}        }}
    }} else if (total < 0x7fffffffLL) {{
        for (i64 index = first; index < total; index += stride) {{
            const u32 position = (u32)index;
{indent(_strided_element(kernel, "u32"), 3)}        }}
    }} else {{
        for (i64 index = first; index < total; index += stride) {{
            const i64 position = index;
{indent(_strided_element(kernel, "i64"), 3)}        }}
    }}
}}
"""


def kept(kernel: Map) -> list[str]:
    """Inputs of one element for all: read once."""
    return [
        f"const {computed(d)} a{i} = {get(kernel, i, f'p{k}[0]')};"
        for k, i, d in _inputs(kernel)
        if kernel.steps[k] == "0"
    ]


def _inputs(kernel: Map) -> list[tuple[int, int, DType]]:
    """Operand number, input number and type."""
    return [(len(kernel.outputs) + i, i, d) for i, d in enumerate(kernel.inputs)]


def body(kernel: Map) -> str:
    taken = ["const i64 index"]
    taken += [f"const {computed(d)} a{i}" for i, d in enumerate(kernel.inputs)]
    taken += numbers(kernel.params)
    taken += [f"{computed(d)}& y{i}" for i, d in enumerate(kernel.outputs)]
    lines, results = statements(kernel.body, plain_leaf)
    lines += [f"y{i} = {name};" for i, name in enumerate(results)]
    return f"__device__ __forceinline__ void body({', '.join(taken)}) {{\n{indent(lines, 1)}}}\n"


def _call(kernel: Map, index: str, inputs: Sequence[str]) -> list[str]:
    """Declare results y0, y1, ... and compute them."""
    results = [f"{computed(d)} y{i};" for i, d in enumerate(kernel.outputs)]
    given = [index, *inputs, *(f"s{i}" for i in range(len(kernel.params)))]
    given += [f"y{i}" for i in range(len(kernel.outputs))]
    return [*results, f"body({', '.join(given)});"]


def aligned(kernel: Map, chunk: int) -> str:
    dtypes = kernel.outputs + kernel.inputs
    moving = [k for k in range(len(dtypes)) if kernel.steps[k] == "1"]
    return " && ".join(f"(u64)p{k} % {alignment(dtypes[k], chunk)} == 0" for k in moving) or "true"


def whole_chunk(kernel: Map, chunk: int) -> list[str]:
    lines, given = [], []
    for k, i, dtype in _inputs(kernel):
        if kernel.steps[k] == "0":
            given.append(f"a{i}")
        else:
            lines.append(
                f"const {pack(dtype, chunk)} w{k} = ((const {pack(dtype, chunk)}*)p{k})[c];"
            )
            given.append(get(kernel, i, f"w{k}.v[j]"))
    lines += [f"{pack(d, chunk)} w{k};" for k, d in enumerate(kernel.outputs)]
    lines += ["#pragma unroll", f"for (int j = 0; j < {chunk}; ++j) {{"]
    lines += ["    " + line for line in _call(kernel, f"c * {chunk} + j", given)]
    lines += [f"    w{k}.v[j] = {put(kernel, k, f'y{k}')};" for k, d in enumerate(kernel.outputs)]
    return [
        *lines,
        "}",
        *(f"(({pack(d, chunk)}*)p{k})[c] = w{k};" for k, d in enumerate(kernel.outputs)),
    ]


def one_element(kernel: Map) -> list[str]:
    given = [
        f"a{i}" if kernel.steps[k] == "0" else get(kernel, i, f"p{k}[index]")
        for k, i, _ in _inputs(kernel)
    ]
    stores = [f"p{k}[index] = {put(kernel, k, f'y{k}')};" for k, d in enumerate(kernel.outputs)]
    return _call(kernel, "index", given) + stores


def _rows_aligned(kernel: Map, chunk: int) -> str:
    """A chunk stays in one row, and operands that move by one element are aligned in every row."""
    dtypes = kernel.outputs + kernel.inputs
    last = kernel.rank - 1
    conditions = [f"z{last} % {chunk} == 0"]
    for k, dtype in enumerate(dtypes):
        if kernel.steps[k] == "1":
            conditions.append(f"(u64)p{k} % {alignment(dtype, chunk)} == 0")
            conditions += [f"k{k}_{d} % {chunk} == 0" for d in range(last)]
    return " && ".join(conditions)


def _offsets(kernel: Map, kind: str) -> list[str]:
    """Coordinates of `position`, and the offset e0, e1, ... of each operand there."""
    lines = [f"{kind} rest = position;"] if kernel.rank > 1 else []
    for d in range(kernel.rank - 1, 0, -1):
        lines.append(f"const {kind} c{d} = rest % ({kind})z{d};")
        lines.append(f"rest /= ({kind})z{d};")
    lines.append(f"const {kind} c0 = {'rest' if kernel.rank > 1 else 'position'};")
    for k in range(len(kernel.outputs) + len(kernel.inputs)):
        terms = [f"(i64)c{d} * k{k}_{d}" for d in range(kernel.rank)]
        lines.append(f"const i64 e{k} = {' + '.join(terms)};")
    return lines


def _strided_element(kernel: Map, kind: str) -> list[str]:
    given = [get(kernel, i, f"p{k}[e{k}]") for k, i, _ in _inputs(kernel)]
    stores = [f"p{k}[e{k}] = {put(kernel, k, f'y{k}')};" for k, d in enumerate(kernel.outputs)]
    return _offsets(kernel, kind) + _call(kernel, "index", given) + stores


def _strided_chunk(kernel: Map, chunk: int) -> list[str]:
    last = kernel.rank - 1
    lines, given = _offsets(kernel, "u32"), []
    each = f"for (int j = 0; j < {chunk}; ++j)"
    for k, i, dtype in _inputs(kernel):
        kind = pack(dtype, chunk)
        if kernel.steps[k] == "1":
            lines.append(f"const {kind} w{k} = *(const {kind}*)(p{k} + e{k});")
        elif kernel.steps[k] != "0":
            lines += [
                f"{kind} w{k};",
                "#pragma unroll",
                f"{each} w{k}.v[j] = p{k}[e{k} + j * k{k}_{last}];",
            ]
        else:
            lines.append(f"const {computed(dtype)} a{k} = {get(kernel, i, f'p{k}[e{k}]')};")
        given.append(f"a{k}" if kernel.steps[k] == "0" else get(kernel, i, f"w{k}.v[j]"))
    lines += [f"{pack(d, chunk)} w{k};" for k, d in enumerate(kernel.outputs)]
    lines += ["#pragma unroll", f"{each} {{"]
    lines += ["    " + line for line in _call(kernel, "(i64)position + j", given)]
    lines += [f"    w{k}.v[j] = {put(kernel, k, f'y{k}')};" for k, d in enumerate(kernel.outputs)]
    lines.append("}")
    for k, dtype in enumerate(kernel.outputs):
        if kernel.steps[k] == "1":
            lines.append(f"*({pack(dtype, chunk)}*)(p{k} + e{k}) = w{k};")
        else:
            lines += ["#pragma unroll", f"{each} p{k}[e{k} + j * k{k}_{last}] = w{k}.v[j];"]
    return lines


# ---- Note [Transposed tiles] ----

MOST_STAGED = 2
SHORTEST = 16  # a dimension below this is not worth tiles


def _staged(kernel: Map) -> list[int]:
    """The inputs that pass through shared memory; none where tiles do not apply."""
    count = len(kernel.outputs)
    found = [i for i in range(len(kernel.inputs)) if kernel.steps[count + i] == "n"]
    stored_along = all(step == "1" for step in kernel.steps[:count])
    plain = not any(e.op == "index" for e in topological(list(kernel.body)))
    moves = all(step in "10n" for step in kernel.steps)
    fits = kernel.rank > 1 and len(found) <= MOST_STAGED
    return found if stored_along and plain and moves and fits else []


def _transposed(kernel: Map) -> list[str]:
    staged = _staged(kernel)
    if not staged:
        return []
    count, last = len(kernel.outputs), kernel.rank - 1
    side = 64 if max(kernel.inputs[i].itemsize for i in staged) <= 2 else 32
    lines = [f"__shared__ {STORED[kernel.inputs[i]]} tile{i}[{side}][{side + 1}];" for i in staged]
    lines.append("int d = -1;")
    for d in range(last):
        units = [f"k{count + i}_{d} == 1" for i in staged]
        lines.append(f"if (d < 0 && z{d} >= {SHORTEST} && {' && '.join(units)}) d = {d};")
    parts = [
        f"const i64 n{d} = d == {d} ? (z{d} + {side - 1}) / {side} : z{d};" for d in range(last)
    ]
    parts.append(f"const i64 n{last} = (z{last} + {side - 1}) / {side};")
    parts.append(f"const i64 tiles = {' * '.join(f'n{d}' for d in range(kernel.rank))};")
    return [
        *lines,
        f"if (d >= 0 && z{last} >= {SHORTEST}) {{",
        *("    " + part for part in parts),
        "    for (i64 position = blockIdx.x; position < tiles; position += gridDim.x) {",
        *("        " + line for line in _one_tile(kernel, staged, side)),
        "    }",
        "    return;",
        "}",
    ]


def _one_tile(kernel: Map, staged: list[int], side: int) -> list[str]:
    count, last, rank = len(kernel.outputs), kernel.rank - 1, kernel.rank
    operands = count + len(kernel.inputs)
    lines = ["i64 rest = position;"]
    for d in range(last, -1, -1):
        at = f"rest % n{d}" if d else "rest"
        scale = f"(d == {d} ? {side} : 1)" if d < last else f"{side}"
        lines.append(f"const i64 c{d} = ({at}) * {scale};")
        if d:
            lines.append(f"rest /= n{d};")
    chosen = " : ".join(f"d == {d} ? {{0}}{d}" for d in range(last - 1))
    pick = f"({chosen} : {{0}}{last - 1})" if last > 1 else "{0}0"
    lines.append(
        f"const i64 tall = {pick.format('z')} - {pick.format('c')}, wide = z{last} - c{last};"
    )
    for k in range(operands):
        terms = " + ".join(f"c{d} * k{k}_{d}" for d in range(rank))
        down = "" if k - count in staged else f", h{k} = {pick.format(f'k{k}_')}"
        lines.append(f"const i64 e{k} = {terms}{down};")
    along, step = f"(int)threadIdx.x % {side}", THREADS // side
    lines += [
        "#pragma unroll 4",
        f"for (int y = (int)threadIdx.x / {side}; y < {side}; y += {step}) {{",
    ]
    for i in staged:
        k = count + i
        lines.append(
            f"    if (y < wide && {along} < tall) "
            f"tile{i}[y][{along}] = p{k}[e{k} + y * k{k}_{last} + {along}];"
        )
    lines += ["}", "__syncthreads();"]
    given = [
        get(
            kernel,
            i,
            f"tile{i}[x][y]" if i in staged else f"p{k}[e{k} + y * h{k} + x * k{k}_{last}]",
        )
        for k, i, _ in _inputs(kernel)
    ]
    stores = [f"p{k}[e{k} + y * h{k} + x] = {put(kernel, k, f'y{k}')};" for k in range(count)]
    return [
        *lines,
        f"const int x = {along};",
        "#pragma unroll 4",
        f"for (int y = (int)threadIdx.x / {side}; y < {side}; y += {step}) {{",
        "    if (x >= wide || y >= tall) continue;",
        *("    " + line for line in _call(kernel, "0", given)),
        *("    " + line for line in stores),
        "}",
        "__syncthreads();",
    ]
