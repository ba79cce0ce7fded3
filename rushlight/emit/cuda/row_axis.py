"""Rowwise kernels along the axis: part of a warp, a warp or a block per row.

# Note [Tiles of a row]
1. A tile is `lanes` threads by some chunks of neighbouring elements: chunk c of a row belongs to
   lane c % lanes. A thread loads its chunks of a tile before it folds them.
2. A row of one tile stays in registers for all passes and stores.
3. A chunk whose address is no multiple of 16 bytes is made of two aligned loads and shifts. The
   elements of a chunk do not depend on addresses, so neither does the order of a fold.
4. Elements have no order: there the chunks begin where the first output is aligned, `back`
   elements before the row.
5. A tile's positions [low, high) are in the row. Whole chunks are loaded first, without a branch
   between loads; then the rest, element by element.
6. WHOLE: rows are one tile of whole chunks, and aligned in all dense operands, which is known for
   all rows at once. This walk has no loop over tiles and no parts of chunks, and holds a formula
   that the last stage and the elements' stores share in registers between them: `kept`.
7. All rows of a block walk together, since barriers and shuffles need whole blocks and warps. A
   place without a row walks the last row again and stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rushlight.emit.cuda.anomaly import get, put
from rushlight.emit.cuda.map import alignment, pack
from rushlight.emit.cuda.rows import (
    WIDEST,
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
    made_function,
    moves,
    partials,
    row_stores,
    segment_bounds,
    settle,
    stages,
    stored,
    walk_segments,
    zero_of,
)
from rushlight.emit.cuda.scalar import (
    COMPUTED,
    STORED,
    computed,
    indent,
    plain_leaf,
    statements,
    uses,
)
from rushlight.kernel.shapes import Rowwise
from rushlight.scalar.elementary import BOUNDS
from rushlight.scalar.ir import Expr, arg, rebuild, topological

MOST_THREADS = 256
FEW_INPUTS = 4
BLOCKS = 2  # of a multiprocessor, at least: 128 registers a thread

TAKE = """\
template <typename T, int N> __device__ __forceinline__ Pack<T, N> shifted(const T* const p) {
    const u32 past = (u32)(u64)p & 15u;
    const Pack<u32, 4>* const from = (const Pack<u32, 4>*)((u64)p - past);
    const Pack<u32, 4> low = from[0], high = from[past ? 1 : 0];
    u32 a[8] = {low.v[0], low.v[1], low.v[2], low.v[3], high.v[0], high.v[1], high.v[2], high.v[3]};
    #pragma unroll
    for (int k = 0; k < 6; ++k) a[k] = past & 8u ? a[k + 2] : a[k];
    #pragma unroll
    for (int k = 0; k < 5; ++k) a[k] = past & 4u ? a[k + 1] : a[k];
    union { u32 words[4]; Pack<T, N> whole; } made;
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        made.words[k] = (u32)(((u64)a[k + 1] << 32 | a[k]) >> ((past & 3u) * 8u));
    }
    return made.whole;
}
"""


def tile_of(kernel: Rowwise) -> int:
    """Chunks that a thread holds of each input."""
    chunk, count = chunk_of_rows(kernel), len(kernel.inputs)
    if count == 1:
        return min(8, 32 // chunk)
    if count > FEW_INPUTS:
        return 2
    # Wide chunks that are read again for the elements' stores would not fit into the registers.
    return 2 if chunk == WIDEST and kernel.passes and "element" in kernel.kinds else 4


def kept(shared: Sequence[Expr], stores: Sequence[Expr]) -> Expr | None:
    """The longest formula with an elementary function that is part of some of both."""
    within = set(topological(list(shared)))
    best, most = None, 0
    for e in topological(list(stores)):
        parts = topological([e]) if e in within and moves(e) else []
        if len(parts) > most and any(part.op in BOUNDS for part in parts):
            best, most = e, len(parts)
    return best


class AxisWriter:
    """Writes one kernel."""

    def __init__(self, kernel: Rowwise) -> None:
        self.splittable, self.declared = is_splittable(kernel), declared(kernel)
        self.stages = stages(kernel)
        self.settled: list[dict[int, Expr]] = []  # by stage; the last are the elements'
        self.bases = bases(kernel, "o * k{k}_0")
        self.kept: Expr | None = None  # input number `many` of the kernel that is written
        self.many = len(kernel.inputs)
        self.kernel = self.keep(self.settle(kernel))
        self.chunk = chunk_of_rows(kernel)
        self.tile = tile_of(kernel)
        self.each = f"for (int j = 0; j < {self.chunk}; ++j)"
        self.turns = f"for (int u = 0; u < {self.tile}; ++u)"

    def settle(self, kernel: Rowwise) -> Rowwise:
        """The kernel with what is one per row taken out of passes and elements' stores."""
        passes, stores = list(kernel.passes), list(kernel.stores)
        first = len(passes)
        for some in self.stages:
            bodies, found = settle([passes[k].body for k in some], first)
            for k, body in zip(some, bodies, strict=True):
                passes[k] = replace(passes[k], body=body)
            self.settled.append(found)
            first += len(found)
        each = stored(kernel, "element")
        made, found = settle([stores[i] for i in each], first)
        self.settled.append(found)
        for i, store in zip(each, made, strict=True):
            stores[i] = store
        return replace(kernel, passes=tuple(passes), stores=tuple(stores))

    def keep(self, kernel: Rowwise) -> Rowwise:
        """The kernel with the formula that is kept as one more input."""
        passes, stores = list(kernel.passes), list(kernel.stores)
        last, each = self.stages[-1] if self.stages else [], stored(kernel, "element")
        found = kept([passes[k].body for k in last], [stores[i] for i in each])
        if found is None or kernel.anomaly is not None:
            return kernel
        self.kept = found
        names = {found: arg(self.many, found.dtype)}
        for k in last:
            passes[k] = replace(passes[k], body=rebuild([passes[k].body], names)[0])
        for i in each:
            stores[i] = rebuild([stores[i]], names)[0]
        inputs = (*kernel.inputs, found.dtype)
        return replace(kernel, inputs=inputs, passes=tuple(passes), stores=tuple(stores))

    # ---- inputs ----

    def step(self, i: int) -> str:
        return self.kernel.steps[count_of(self.kernel) + i]

    def used(self, passes: list[int], elements: bool) -> list[int]:
        kernel = self.kernel
        roots = [kernel.passes[k].body for k in passes]
        roots += [kernel.stores[i] for i in stored(kernel, "element")] if elements else []
        return self.loaded(roots)

    def loaded(self, roots: Sequence[Expr]) -> list[int]:
        """The inputs that some formulas read from memory."""
        read = uses(roots)
        if self.kept is None or self.many not in read:
            return read
        return sorted({*read, *uses([self.kept])} - {self.many})

    def moving(self, read: list[int]) -> list[int]:
        return [i for i in read if self.step(i) != "0"]

    def held(self) -> list[str]:
        """Room for a tile of every input, and the inputs that do not move."""
        kernel, lines = self.kernel, []
        read = self.used([*range(len(kernel.passes))], True)
        for i in read:
            k, dtype = count_of(kernel) + i, kernel.inputs[i]
            if self.step(i) == "0":
                lines += [
                    f"{computed(dtype)} a{i} = 0;",
                    f"if (axis > 0) a{i} = {get(kernel, i, f'q{k}[0]')};",
                ]
            else:
                lines.append(f"{pack(dtype, self.chunk)} w{i}[{self.tile}];")
        if self.kept is not None:
            lines.append(f"{COMPUTED[self.kept.dtype]} held[{self.tile}][{self.chunk}];")
        return lines

    def is_aligned(self, k: int, back: str = "") -> str:
        dtype = (self.kernel.outputs + self.kernel.inputs)[k]
        return f"(u64)(q{k}{back}) % {alignment(dtype, self.chunk)} == 0"

    def spot(self) -> str:
        """The place of chunk u in its tile."""
        return f"const int at = (u * lanes + lane) * {self.chunk};"

    def tile_bounds(self, back: str = "") -> list[str]:
        """`here`, the element at which the tile begins, and rule 5 of Note [Tiles of a row]."""
        end = "axis" if back else "end"
        return [
            f"const i64 here = first{back};",
            f"const int high = {end} - here < tile ? (int)({end} - here) : (int)tile;",
            f"const int low = {'here < 0 ? (int)-here : 0' if back else '0'};",
        ]

    def loads(self, read: list[int], back: str = "") -> list[str]:
        """Load the thread's chunks of the tile at `here`."""
        kernel, lines = self.kernel, []
        moving = self.moving(read)
        wide = [i for i in moving if self.step(i) == "1"]
        for i in wide:
            k, dtype = count_of(kernel) + i, kernel.inputs[i]
            lines.append(f"const {STORED[dtype]}* const f{i} = q{k} + here;")
        if wide:
            even = " && ".join(self.is_aligned(count_of(kernel) + i, back) for i in wide)
            lines += [f"if (WHOLE || ({even})) {{", *indented(self.whole_chunks(wide, True))]
            lines += ["} else {", *indented(self.whole_chunks(wide, False)), "}"]
            torn = f"!WHOLE && (low | (high % {self.chunk}))"
            lines += [f"if ({torn}) {{", *indented(self.torn(wide)), "}"]
        for i in moving:
            if i not in wide:
                lines += self.scattered(i)
        return lines

    def whole_chunks(self, wide: list[int], even: bool) -> list[str]:
        lines = ["#pragma unroll", f"{self.turns} {{", f"    {self.spot()}"]
        lines.append(f"    const bool whole = at >= low && at + {self.chunk} <= high;")
        for i in wide:
            dtype = self.kernel.inputs[i]
            kind = pack(dtype, self.chunk)
            lines.append(f"    w{i}[u] = {kind}{{}};")
            if even:
                lines.append(f"    if (whole) w{i}[u] = ((const {kind}*)f{i})[u * lanes + lane];")
            elif dtype.itemsize * self.chunk == 16:
                shift = f"shifted<{STORED[dtype]}, {self.chunk}>(f{i} + at)"
                lines.append(f"    if (whole) w{i}[u] = {shift};")
            else:
                lines += [
                    "    #pragma unroll",
                    f"    {self.each} if (whole) w{i}[u].v[j] = f{i}[at + j];",
                ]
        return [*lines, "}"]

    def torn(self, wide: list[int]) -> list[str]:
        """Chunks of which only a part is in the row."""
        each = [f"w{i}[u].v[j] = f{i}[at + j];" for i in wide]
        return [
            "#pragma unroll",
            f"{self.turns} {{",
            f"    {self.spot()}",
            f"    if (at >= low && at + {self.chunk} <= high) continue;",
            "    #pragma unroll",
            f"    {self.each} if (at + j >= low && at + j < high) {{ {' '.join(each)} }}",
            "}",
        ]

    def scattered(self, i: int) -> list[str]:
        """An input of any stride."""
        k, dtype = count_of(self.kernel) + i, self.kernel.inputs[i]
        one = f"q{k}[(here + at + j) * k{k}_1]"
        inside = "at + j >= low && at + j < high"
        return [
            "#pragma unroll",
            f"{self.turns} {{",
            f"    {self.spot()}",
            "    #pragma unroll",
            f"    {self.each} w{i}[u].v[j] = {inside} ? {one} : ({STORED[dtype]})0;",
            "}",
        ]

    def values(self, read: list[int]) -> list[str]:
        """Each input at element j of chunk u."""
        return ["held[u][j]" if i == self.many else self.value(i) for i in read]

    def value(self, i: int) -> str:
        return f"a{i}" if self.step(i) == "0" else get(self.kernel, i, f"w{i}[u].v[j]")

    def hold(self) -> list[str]:
        """Compute what is kept at element j of chunk u."""
        if self.kept is None:
            return []
        inputs = self.values(uses([self.kept]))
        return [f"held[u][j] = keep({given(self.kernel, 'here + at + j', inputs, [self.kept])});"]

    # ---- folds ----

    def fold_function(self, number: int) -> str:
        """Fold the values of a stage across the lanes of a row; every lane gets the results."""
        steps = [(k, self.kernel.passes[k]) for k in self.stages[number]]
        warps = MOST_THREADS // 32
        taken = [f"{kind_of(p)}& v{k}" for k, p in steps]
        lines = ["#pragma unroll", "for (int mask = 16; mask > 0; mask >>= 1) {"]
        lines.append("    if (mask >= lanes) continue;")
        for k, p in steps:
            lines.append(f"    const {kind_of(p)} other{k} = SHUFFLE(v{k}, mask);")
        lines += [f"    v{k} = {joined(p, f'v{k}', f'other{k}')};" for k, p in steps]
        lines += ["}", "if (lanes <= 32) return;"]
        rooms = [f"(({kind_of(p)}*)(room + {warps * n}))" for n, (_, p) in enumerate(steps)]
        lines.append("if ((threadIdx.x & 31) == 0) {")
        lines += [
            f"    {r}[threadIdx.x >> 5] = v{k};" for r, (k, _) in zip(rooms, steps, strict=True)
        ]
        lines += ["}", "__syncthreads();"]
        lines.append("const int begin = ((int)threadIdx.x & -lanes) >> 5;")
        lines += [f"v{k} = {r}[begin];" for r, (k, _) in zip(rooms, steps, strict=True)]
        lines.append("for (int w = 1; w < lanes / 32; ++w) {")
        for r, (k, p) in zip(rooms, steps, strict=True):
            lines.append(f"    const {kind_of(p)} other{k} = {r}[begin + w];")
            lines.append(f"    v{k} = {joined(p, f'v{k}', f'other{k}')};")
        lines += ["}", "__syncthreads();"]
        head = ", ".join([*taken, "u64* const room", "const int lanes"])
        return f"__device__ __forceinline__ void fold{number}({head}) {{\n{indent(lines, 1)}}}\n"

    def segment(self, number: int) -> list[str]:
        """Fold [begin, end) into the thread's v of each pass of a stage."""
        passes, kernel = self.stages[number], self.kernel
        lines = []
        for k in passes:
            step = kernel.passes[k]
            lines += [
                f"{kind_of(step)} m{k}[{self.chunk}];",
                "#pragma unroll",
                f"{self.each} m{k}[j] = {zero_of(step)};",
            ]
        grow = self.hold() if number == len(self.stages) - 1 else []
        for k in passes:
            step = kernel.passes[k]
            value = f"pass{k}({given(kernel, 'here + at + j', self.values(uses([step.body])), [step.body])})"
            grow.append(f"const {kind_of(step)} other{k} = {value};")
            grow.append(f"if (at + j < high) m{k}[j] = {joined(step, f'm{k}[j]', f'other{k}')};")
        loads = self.loads(self.used(passes, False))
        if loads:
            loads = ["if (!resident) {", *indented(["const int low = 0;", *loads]), "}"]
        lines += [
            "for (i64 first = begin; WHOLE || first < end; first += tile) {",
            *indented(self.tile_bounds()[:2]),
            *indented(loads),
            "    #pragma unroll",
            f"    {self.turns} {{",
            f"        {self.spot()}",
            "        #pragma unroll",
            f"        {self.each} {{",
            *indented(grow, 3),
            "        }",
            "    }",
            "    if (WHOLE) break;",
            "}",
        ]
        for k in passes:
            half = joined(kernel.passes[k], f"m{k}[j]", f"m{k}[j + h]")
            lines += [
                "#pragma unroll",
                f"for (int h = {self.chunk // 2}; h > 0; h >>= 1) {{",
                "    #pragma unroll",
                f"    for (int j = 0; j < h; ++j) m{k}[j] = {half};",
                "}",
                f"v{k} = m{k}[0];",
            ]
        return lines

    def stage(self, number: int) -> list[str]:
        """All segments of one stage in this block, or one where the kernel is split."""
        kernel = self.kernel
        passes = [(k, kernel.passes[k]) for k in self.stages[number]]
        splittable = self.splittable
        lines = self.settled_rows(number)
        lines += [f"{kind_of(p)} r{k} = {zero_of(p)};" for k, p in passes]
        lines.append("{")
        for k, p in passes:
            lines.append(f"    {kind_of(p)} v{k} = {zero_of(p)}, total{k} = {zero_of(p)};")
        lines += [f"    {walk_segments(splittable)} {{", *indented(segment_bounds(), 2)]
        lines += indented(self.segment(number), 2)
        lines.append(f"        fold{number}({', '.join(f'v{k}' for k, _ in passes)}, room, lanes);")
        lines.append("        if (lane == (s & (lanes - 1))) {")
        lines += [f"            total{k} = {joined(p, f'total{k}', f'v{k}')};" for k, p in passes]
        lines += ["        }", "    }"]
        if splittable:
            lines += ["    if (split) {", *indented(self.shared_fold(), 2), "    }"]
        # One segment is its own result: a fold with the identity could change the sign of a zero.
        totals = ", ".join(f"total{k}" for k, _ in passes)
        lines += [
            f"    if (segments > 1) fold{number}({totals}, room, lanes);",
            *(f"    r{k} = segments > 1 ? total{k} : v{k};" for k, _ in passes),
            "}",
        ]
        return lines

    def slot(self, number: int, segment: str) -> str:
        """Where a segment's result of a pass lies in scratch."""
        return f"partial{number}[({number} * outer + o) * segments + {segment}]"

    def shared_fold(self) -> list[str]:
        """The block's results to scratch; the row's last block goes on with all of them."""
        passes = list(enumerate(self.kernel.passes))
        lines = partials(self.kernel)
        puts = [f"{self.slot(k, 'mine')} = v{k};" for k, _ in passes]
        lines += [f"if (lane == 0) {{ {' '.join(puts)} }}", *draw_ticket("o")]
        lines += [f"total{k} = {zero_of(p)};" for k, p in passes]
        lines.append("for (i64 t = lane; t < segments; t += lanes) {")
        for k, p in passes:
            lines.append(f"    const {kind_of(p)} other{k} = {self.slot(k, 't')};")
            lines.append(f"    total{k} = {joined(p, f'total{k}', f'other{k}')};")
        return [*lines, "}"]

    # ---- stores ----

    def elements(self) -> list[str]:
        kernel = self.kernel
        outputs = stored(kernel, "element")
        if not outputs:
            return []
        roots = [kernel.stores[i] for i in outputs]
        read, loaded = uses(roots), self.loaded(roots)
        results = ", ".join(f"y{i}" for i in outputs)
        body = [f"{computed(kernel.outputs[k])} y{k};" for k in outputs]
        body.append(
            f"element({given(kernel, 'here + at + j', self.values(read), roots)}, {results});"
        )
        body += [f"x{k}.v[j] = {put(kernel, k, f'y{k}')};" for k in outputs]
        if kernel.anomaly is not None:  # a position outside of the row is no anomaly
            body = ["if (at + j < low || at + j >= high) continue;", *body]
        if self.kept is not None and self.many in read:
            body[1:1] = [f"if (!WHOLE) {self.hold()[0]}"]
        loads = self.loads(loaded, " - back")
        if loads:
            loads = ["if (!resident || back) {", *indented(loads), "}"]
        return [
            *self.settled_rows(len(self.stages)),
            self.back(),
            "for (i64 first = 0; WHOLE || first < axis + back; first += tile) {",
            *indented(self.tile_bounds(" - back")),
            *indented(loads),
            "    #pragma unroll",
            f"    {self.turns} {{",
            f"        {self.spot()}",
            "        if (!inside || at >= high) continue;",
            *(f"        {pack(kernel.outputs[k], self.chunk)} x{k};" for k in outputs),
            "        #pragma unroll",
            f"        {self.each} {{",
            *indented(body, 3),
            "        }",
            *indented(self.element_stores(outputs), 2),
            "    }",
            "    if (WHOLE) break;",
            "}",
        ]

    def settled_rows(self, number: int) -> list[str]:
        """What `settle` took out of a stage or, after the last stage, of the elements' stores."""
        lines: list[str] = []
        for k, e in self.settled[number].items():
            text, (name,) = statements([e], plain_leaf)
            if any(part.op == "extent" for part in topological([e])):
                text = ["const i64 extent = axis;", *text]
            lines += [f"{COMPUTED[e.dtype]} r{k};", "{", *indented([*text, f"r{k} = {name};"]), "}"]
        return lines

    def element_stores(self, outputs: list[int]) -> list[str]:
        lines = []
        for k in outputs:
            one = f"q{k}[(here + at + j) * k{k}_1] = x{k}.v[j];"
            single = ["#pragma unroll", f"{self.each} if (at + j >= low && at + j < high) {one}"]
            if self.kernel.steps[k] == "1":
                kind = pack(self.kernel.outputs[k], self.chunk)
                even = self.is_aligned(k, " - back")
                whole = f"at >= low && at + {self.chunk} <= high && ({even})"
                single = [
                    f"if (WHOLE || ({whole})) (({kind}*)(q{k} + here))[u * lanes + lane] = x{k};",
                    "else {",
                    *indented(single),
                    "}",
                ]
            lines += single
        return lines

    def first_output(self) -> tuple[int, int, int] | None:
        """Of the first output of elements that is dense: its number, size and aligned elements."""
        for k in stored(self.kernel, "element"):
            if self.kernel.steps[k] == "1":
                size = self.kernel.outputs[k].itemsize
                return k, size, min(16 // size, self.chunk)
        return None

    def back(self) -> str:
        """Rule 4 of Note [Tiles of a row]."""
        found = self.first_output()
        if found is None:
            return "const int back = 0;"
        k, size, aligned = found
        return f"const int back = WHOLE ? 0 : (int)((u64)q{k} / {size} % {aligned});"

    def is_whole(self) -> str:
        """Rule 6 of Note [Tiles of a row]."""
        kernel, chunk = self.kernel, self.chunk
        conditions = [f"axis <= lanes_ * {chunk * self.tile}", f"axis % {chunk} == 0"]
        dense = stored(kernel, "element") + [count_of(kernel) + i for i in range(self.many)]
        types = kernel.outputs + kernel.inputs
        for k in dense:
            if kernel.steps[k] == "1":
                conditions.append(f"(u64)p{k} % {alignment(types[k], chunk)} == 0")
                conditions.append(f"k{k}_0 % {chunk} == 0")
        return " && ".join(conditions)

    def rows(self) -> list[str]:
        lines = row_stores(self.kernel)
        if not lines:
            return []
        reset = ["    if (split) tickets[o] = 0u;"] if self.splittable else []
        return [
            "if (lanes > 32) __syncthreads(); else SYNC_WARP();",
            "if (inside && lane == 0) {",
            *indented(lines),
            *reset,
            "}",
        ]

    def text(self) -> str:
        kernel = self.kernel
        most = max((len(s) for s in self.stages), default=1)
        first = self.loads(self.used([*range(len(kernel.passes))], True))
        body = [*self.bases, *self.held()]
        if first:
            first = ["const i64 here = 0;", "const int low = 0, high = (int)axis;", *first]
            body += ["if (resident) {", *indented(first), "}"]
        for number in range(len(self.stages)):
            body += self.stage(number)
        body += [*self.elements(), *self.rows()]
        split = []
        if self.splittable:
            split = [
                "__shared__ u32 drawn;",
                "const i64 mine = blockIdx.x % segments;",
                "if (split) near = blockIdx.x / segments;",
            ]
        names = ", ".join(part.split()[-1].lstrip("*") for part in self.declared.split(","))
        folds = "".join(self.fold_function(n) for n in range(len(self.stages)))
        kept_text = "" if self.kept is None else made_function(kernel, "keep", self.kept)
        return f"""\
{TAKE}{functions(kernel)}{kept_text}{folds}
template <bool WHOLE> __device__ __forceinline__ void walk({self.declared}, u64* const room) {{
    const int lanes = (int)lanes_;
    const int lane = (int)threadIdx.x & (lanes - 1);
    const i64 segments = axis <= length ? 1 : (axis + length - 1) / length;
    const i64 tile = (i64)lanes * {self.chunk * self.tile};
    const bool resident = WHOLE || axis <= tile;
    const int bits = __popc(lanes - 1);  // lanes is a power of two
    i64 near = ((i64)blockIdx.x * blockDim.x + threadIdx.x) >> bits;
{indent(split, 1)}    const bool inside = near < outer;
    const i64 o = inside ? near : outer - 1;
{indent(body, 1)}}}

extern "C" __global__ void __launch_bounds__({MOST_THREADS}, {BLOCKS}) rowwise_axis({self.declared}) {{
    __shared__ u64 room[{MOST_THREADS // 32 * most}];
    if ({self.is_whole()}) walk<true>({names}, room);
    else walk<false>({names}, room);
}}
"""


def rowwise_axis(kernel: Rowwise) -> str:
    return AxisWriter(kernel).text()
