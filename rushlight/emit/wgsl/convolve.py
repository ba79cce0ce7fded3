"""Convolve in WGSL: implicit matrix products, whose second factor is read from the image in place.

# Note [Convolutions in WGSL]
1. A result is a matrix of `rows` and `columns` per group, a sum over k of a[row, k] * z[k, column].
   "image": rows are channels out, columns the pixels of all images, k channels in and taps.
   "back": rows are channels in, columns the positions of all images with one remainder by the
   stride (a phase), k channels out and the taps that meet this phase.
   "weights": rows are channels out, columns channels in and taps, k the pixels of all images, in
   `parts` runs, whose sums go to a scratch block and are added by a second dispatch.
2. z is a pixel of the image: its coordinates and its offset are sums of a column's and a k's
   (`Place`: coordinates, then the offset). A coordinate outside of the image gives 0; FAR puts
   columns and k beyond the matrix outside.
3. The tiled form has one of TILES per workgroup, 4 x 4 results per invocation, or 4 x 8 in the
   largest: the first that has the matrix's rows, or 64, and of the two with 64 rows the one that
   has its columns, or the wider. 16 of the invocations find the places of the next 16 k while all read the matrices. The
   plain form has one result per invocation. All add in ascending k, so a sum's bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from rushlight.core.dtypes import compute_type
from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.kernel.shapes import Convolve

DEPTH = 16  # of k in workgroup memory at a time
_FEW_ROWS, _FEW_COLUMNS = 2, 8  # of a matrix for which most of a tile would be idle
_LONGEST = 32768  # steps of the plain form's loop
_AXES = "xyz"


class Tile(NamedTuple):
    """The results of a workgroup."""

    rows: int
    columns: int

    @property
    def form(self) -> str:
        return f"tiled{self.rows}x{self.columns}"

    @property
    def lanes(self) -> int:
        """The invocations of a workgroup."""
        return min(GROUP, self.rows * self.columns // 16)

    @property
    def across(self) -> int:
        """The invocations of one row."""
        return self.lanes // (self.rows // 4)

    @property
    def parts(self) -> int:
        """The vectors of four columns that an invocation has."""
        return self.columns // (4 * self.across)


TILES = Tile(16, 64), Tile(32, 64), Tile(64, 64), Tile(64, 128)


def tile_for(rows: int, columns: int) -> Tile:
    most = TILES[-1].rows
    for tile in TILES[:-1]:
        if min(rows, most) <= tile.rows and (tile.rows < most or columns <= tile.columns):
            return tile
    return TILES[-1]


class Sizes:
    """A launch's sizes as numbers or as texts, by name."""

    def __init__(self, rank: int, sizes: Sequence[int]) -> None:
        self.n, self.groups, self.m, self.c = sizes[:4]
        runs = [sizes[4 + rank * i : 4 + rank * (i + 1)] for i in range(6)]
        self.pixels, self.window, self.image, self.stride, self.dilation, self.before = runs
        self.parts = sizes[-1]

    def matrix(self, of: str) -> tuple[int, int, int, int]:
        """The matrices' count per group, rows, columns and the length of a sum, at most."""
        taps, pixels = prod(self.window), prod(self.pixels)
        if of == "image":
            return 1, self.m, self.n * pixels, self.c * taps
        if of == "weights":
            return self.parts, self.m, self.c * taps, -(-self.n * pixels // self.parts)
        reached = prod(-(-i // s) for i, s in zip(self.image, self.stride, strict=True))
        return prod(self.stride), self.c, self.n * reached, self.m * taps


def forms(kernel: Convolve, sizes: Sequence[int]) -> list[tuple[str, int, int]]:
    """The dispatches of a launch: form, workgroups, steps of each."""
    found = Sizes(kernel.rank, sizes)
    count, rows, columns, length = found.matrix(kernel.of)
    matrices = found.groups * count
    wide = compute_type(kernel.dtype).itemsize == 4 and columns > _FEW_COLUMNS
    tail = "/parts" if kernel.of == "weights" else ""
    if wide and (rows > _FEW_ROWS or length > _LONGEST):
        tile = tile_for(rows, columns)
        tiles = matrices * -(-rows // tile.rows) * -(-columns // tile.columns)
        first = (f"{tile.form}{tail}", tiles, tile.rows * tile.columns * length)
    else:
        first = (f"plain{tail}", -(-(matrices * rows * columns) // GROUP), GROUP * length)
    if kernel.of != "weights":
        return [first]
    total = found.groups * rows * columns
    return [first, ("sum/parts", -(-total // GROUP), GROUP * found.parts)]


def any_form(kernel: Convolve) -> str:
    """The form that fits any launch."""
    return "plain/parts" if kernel.of == "weights" else "plain"


def scratch_bytes(kernel: Convolve, sizes: Sequence[int]) -> int:
    found = Sizes(kernel.rank, sizes)
    weights = found.groups * found.m * found.c * prod(found.window)
    return compute_type(kernel.dtype).itemsize * found.parts * weights


def convolve_text(module: Module, kernel: Convolve, form: str) -> str:
    form = form.partition("/")[0]
    if form == "sum":
        return _sum_text(module, kernel)
    text = _Text(module, kernel)
    module.globals += text.constants() + text.functions()
    for tile in TILES:
        if form == tile.form:
            return module.text(tile.lanes, text.tiled(tile))
    return module.text(GROUP, text.plain())


def _sum_text(module: Module, kernel: Convolve) -> str:
    taps = " * ".join(f"launch.size{4 + kernel.rank + i}" for i in range(kernel.rank))
    kind, zero = (
        module.type(compute_type(kernel.dtype)),
        module.printer.number(0, compute_type(kernel.dtype)),
    )
    module.globals += _scratch_functions(module, kernel, kind)
    return module.text(
        GROUP,
        f"    let here = group * {GROUP}u + lane;\n"
        f"    let count = launch.size1 * launch.size2 * launch.size3 * {taps};\n"
        "    if (here >= count) { return; }\n"
        f"    var total = {zero};\n"
        f"    for (var s = 0u; s < launch.size{4 + 6 * kernel.rank}; s += 1u) {{\n"
        "        total = total + partial(s * count + here);\n    }\n"
        f"    {module.store(0, 'here', 'total')}\n",
    )


def _scratch_functions(module: Module, kernel: Convolve, kind: str) -> str:
    """Reads and writes of partial sums in the scratch block, an array of words."""
    if compute_type(kernel.dtype).itemsize == 4:
        kept = [module.store(3, "at", "bitcast<u32>(value)")]
        found = f"bitcast<{kind}>({module.load(3, 'at')})"
    else:
        kept = [
            "let bits = bitcast<u64>(value);",
            module.store(3, "2u * at", "u32(bits & 0xfffffffflu)"),
            module.store(3, "2u * at + 1u", "u32(bits >> 32u)"),
        ]
        low, high = module.load(3, "2u * at"), module.load(3, "2u * at + 1u")
        found = f"bitcast<{kind}>(u64({low}) | (u64({high}) << 32u))"
    return (
        f"fn partial(at: u32) -> {kind} {{ return {found}; }}\n"
        f"fn keep(at: u32, value: {kind}) {{ {' '.join(kept)} }}\n"
    )


class _Text:
    """The text of one kernel's forms. See Note [Convolutions in WGSL]."""

    def __init__(self, module: Module, kernel: Convolve) -> None:
        self.module, self.of, self.rank = module, kernel.of, kernel.rank
        self.kind = module.type(compute_type(kernel.dtype))
        self.zero = module.printer.number(0, compute_type(kernel.dtype))
        self.dims = range(kernel.rank)
        self.kernel = kernel
        runs = ("pixels", "window", "image", "stride", "dilation", "before")
        self.size = {
            **{name: f"launch.size{i}" for i, name in enumerate(("n", "groups", "m", "c"))},
            **{
                f"{name}{d}": f"launch.size{4 + kernel.rank * i + d}"
                for i, name in enumerate(runs)
                for d in self.dims
            },
            "parts": f"launch.size{4 + 6 * kernel.rank}",
        }

    def each(self, name: str) -> list[str]:
        return [self.size[f"{name}{d}"] for d in self.dims]

    def constants(self) -> str:
        scratch = (
            _scratch_functions(self.module, self.kernel, self.kind) if self.of == "weights" else ""
        )
        return (
            "const FAR = -0x40000000;\nconst NONE = 0xffffffffu;\n"
            "struct Place { at: vec4<i32>, weight: u32 }\n"
            "struct Phase { remainder: vec3<u32>, first: vec3<u32>, step: vec3<u32>, "
            "count: vec3<u32> }\n" + scratch
        )

    def counted(self, name: str) -> str:
        return " * ".join(self.each(name))

    def split(self, value: str, sizes: list[str], names: list[str]) -> str:
        """Statements that take a row-major position apart, the last dimension first."""
        lines = [f"    var left = {value};\n"]
        for d in reversed(range(1, len(sizes))):
            lines.append(f"    let {names[d]} = left % ({sizes[d]}); left = left / ({sizes[d]});\n")
        return "".join(lines) + f"    let {names[0]} = left;\n"

    def place(self, coordinates: list[str], offset: str) -> str:
        filled = [*coordinates, *["0"] * (3 - self.rank)]
        return f"vec4<i32>({', '.join(filled)}, bitcast<i32>({offset}))"

    def functions(self) -> str:
        return self.pixel() + getattr(self, self.of)()

    def pixel(self) -> str:
        """`z`, the pixel at the sum of two places, and `weight_at`, an element of the first factor."""
        source, sizes = (
            (1, self.each("pixels")) if self.of == "back" else (None, self.each("image"))
        )
        source = source or (1 if self.of == "image" else 2)
        inside = " && ".join(f"u32(at.{_AXES[d]}) < {sizes[d]}" for d in self.dims)
        linear = f"u32(at.{_AXES[0]})"
        for d in list(self.dims)[1:]:
            linear = f"({linear} * {sizes[d]} + u32(at.{_AXES[d]}))"
        z = self.module.load(source, f"bitcast<u32>(at.w) + {linear}")
        weight = self.module.load(3 - source, "row + weight")
        return (
            f"fn z(column: vec4<i32>, k: vec4<i32>) -> {self.kind} {{\n"
            f"    let at = column + k;\n    if ({inside}) {{ return {z}; }}\n"
            f"    return {self.zero};\n}}\n"
            f"fn weight_at(row: u32, weight: u32) -> {self.kind} {{\n"
            f"    if (row != NONE && weight != NONE) {{ return {weight}; }}\n"
            f"    return {self.zero};\n}}\n"
        )

    # Each kind has: phase_of(number), depth(phase), rows(), columns(), row_at(g, row),
    # column_at(g, column, phase), k_at(k, end, phase), out_at(g, column, phase), out_step().

    def taps_of(self, coordinates: list[str]) -> list[str]:
        return [f"i32({p} * {d})" for p, d in zip(coordinates, self.each("dilation"), strict=True)]

    def pixels_of(self, coordinates: list[str]) -> list[str]:
        steps = zip(coordinates, self.each("stride"), self.each("before"), strict=True)
        return [f"i32({i} * {s}) - i32({t})" for i, s, t in steps]

    def no_phase(self) -> str:
        ones = "vec3<u32>()"
        return f"fn phase_of(number: u32) -> Phase {{ return Phase({', '.join([ones] * 4)}); }}\n"

    def by_pixel(self, name: str, outside: str, offset: str) -> tuple[str, str]:
        """Statements for the image and the pixel of a position in (n, pixels), and its place."""
        names = [f"i{d}" for d in self.dims]
        split = self.split(name, [self.size["n"], *self.each("pixels")], ["image", *names])
        guard = f"    if ({outside}) {{ return FAR_PLACE; }}\n"
        return guard + split, self.place(self.pixels_of(names), offset)

    def by_tap(self, name: str, outside: str) -> tuple[str, str]:
        names = [f"p{d}" for d in self.dims]
        split = self.split(name, [self.size["c"], *self.each("window")], ["channel", *names])
        guard = f"    if ({outside}) {{ return FAR_PLACE; }}\n"
        offset = f"channel * {self.counted('image')}"
        return guard + split, self.place(self.taps_of(names), offset)

    def image(self) -> str:
        s, pixels = self.size, self.counted("pixels")
        columns = f"{s['n']} * {pixels}"
        whole = f"{s['c']} * {self.counted('image')}"
        by_pixel, pixel = self.by_pixel(
            "column", "column >= columns()", f"(image * {s['groups']} + g) * {whole}"
        )
        by_tap, tap = self.by_tap("k", "k >= end")
        depth = f"{s['c']} * {self.counted('window')}"
        return (
            f"const FAR_PLACE = vec4<i32>(FAR, 0, 0, 0);\n{self.no_phase()}"
            f"fn rows() -> u32 {{ return {s['m']}; }}\n"
            f"fn columns() -> u32 {{ return {columns}; }}\n"
            f"fn depth(phase: Phase) -> u32 {{ return {depth}; }}\n"
            f"fn row_at(g: u32, row: u32) -> u32 {{ return (g * {s['m']} + row) * {depth}; }}\n"
            "fn column_at(g: u32, column: u32, phase: Phase) -> vec4<i32> {\n"
            f"{by_pixel}    return {pixel};\n}}\n"
            "fn tap_at(k: u32, end: u32) -> vec4<i32> {\n"
            f"{by_tap}    return {tap};\n}}\n"
            "fn k_at(k: u32, end: u32, phase: Phase) -> Place {\n"
            "    return Place(tap_at(k, end), select(NONE, k, k < end));\n}\n"
            "fn out_at(g: u32, column: u32, phase: Phase) -> u32 {\n"
            f"    let image = column / ({pixels});\n"
            f"    return (image * {s['groups']} + g) * {s['m']} * {pixels} + column % ({pixels});\n}}\n"
            f"fn out_step() -> u32 {{ return {pixels}; }}\n"
        )

    def weights(self) -> str:
        s, pixels = self.size, self.counted("pixels")
        columns = f"{s['c']} * {self.counted('window')}"
        whole = f"{s['c']} * {self.counted('image')}"
        by_pixel, pixel = self.by_pixel("k", "k >= end", f"image * {s['groups']} * {whole}")
        by_tap, tap = self.by_tap("column", "column >= columns()")
        weight = f"k / ({pixels}) * {s['groups']} * {s['m']} * {pixels} + k % ({pixels})"
        return (
            f"const FAR_PLACE = vec4<i32>(FAR, 0, 0, 0);\n{self.no_phase()}"
            f"fn rows() -> u32 {{ return {s['m']}; }}\n"
            f"fn columns() -> u32 {{ return {columns}; }}\n"
            f"fn depth(phase: Phase) -> u32 {{ return {s['n']} * {pixels}; }}\n"
            f"fn row_at(g: u32, row: u32) -> u32 {{ return (g * {s['m']} + row) * {pixels}; }}\n"
            "fn tap_at(column: u32) -> vec4<i32> {\n"
            f"{by_tap}    return {tap};\n}}\n"
            "fn column_at(g: u32, column: u32, phase: Phase) -> vec4<i32> {\n"
            f"    return tap_at(column) + vec4<i32>(0, 0, 0, i32(g * {whole}));\n}}\n"
            "fn pixel_at(k: u32, end: u32) -> vec4<i32> {\n"
            f"{by_pixel}    return {pixel};\n}}\n"
            "fn k_at(k: u32, end: u32, phase: Phase) -> Place {\n"
            f"    return Place(pixel_at(k, end), select(NONE, {weight}, k < end));\n}}\n"
            "fn out_at(g: u32, column: u32, phase: Phase) -> u32 {\n"
            f"    return (g * {s['m']}) * ({columns}) + column;\n}}\n"
            f"fn out_step() -> u32 {{ return {columns}; }}\n"
        )

    def back(self) -> str:
        s, pixels, taps = self.size, self.counted("pixels"), self.counted("window")
        names = [f"q{d}" for d in self.dims]
        reached = [
            f"(({i} + {t} - 1u) / {t})"
            for i, t in zip(self.each("image"), self.each("stride"), strict=True)
        ]
        columns = " * ".join([s["n"], *reached])
        split = self.split("column", [s["n"], *reached], ["image", *names])
        at = [
            f"phase.remainder.{_AXES[d]} + {self.size[f'stride{d}']} * {names[d]}"
            for d in self.dims
        ]
        beyond = " || ".join(f"{a} >= {i}" for a, i in zip(at, self.each("image"), strict=True))
        where = at[0]
        for a, i in list(zip(at, self.each("image"), strict=True))[1:]:
            where = f"({where}) * {i} + {a}"
        position = self.place(
            [f"i32({q})" for q in names], f"(image * {s['groups']} + g) * {s['m']} * {pixels}"
        )
        whole = f"{s['c']} * {self.counted('image')}"
        return (
            f"const FAR_PLACE = vec4<i32>(FAR, 0, 0, 0);\n{self.phase()}"
            f"fn rows() -> u32 {{ return {s['c']}; }}\n"
            f"fn columns() -> u32 {{ return {columns}; }}\n"
            f"fn row_at(g: u32, row: u32) -> u32 {{\n"
            f"    return (g * {s['m']} * {s['c']} + row) * {taps};\n}}\n"
            "fn column_at(g: u32, column: u32, phase: Phase) -> vec4<i32> {\n"
            f"    if (column >= columns()) {{ return FAR_PLACE; }}\n{split}"
            f"    if ({beyond}) {{ return FAR_PLACE; }}\n    return {position};\n}}\n"
            f"{self.back_taps()}"
            "fn out_at(g: u32, column: u32, phase: Phase) -> u32 {\n"
            f"    if (column >= columns()) {{ return NONE; }}\n{split}"
            f"    if ({beyond}) {{ return NONE; }}\n"
            f"    return (image * {s['groups']} + g) * {whole} + {where};\n}}\n"
            f"fn out_step() -> u32 {{ return {self.counted('image')}; }}\n"
        )

    def back_taps(self) -> str:
        """`k_at`: the taps of a phase are first, first + step, ... in each dimension."""
        s, taps = self.size, self.counted("window")
        names = [f"j{d}" for d in self.dims]
        counts = [f"phase.count.{_AXES[d]}" for d in self.dims]
        split = self.split("k", [s["m"], *counts], ["channel", *names])
        lines, coordinates, linear = "", [], ""
        for d in self.dims:
            axis = _AXES[d]
            lines += f"    let p{d} = phase.first.{axis} + phase.step.{axis} * {names[d]};\n"
            coordinates.append(
                f"(i32(phase.remainder.{axis} + {s[f'before{d}']}) - i32(p{d} * "
                f"{s[f'dilation{d}']})) / i32({s[f'stride{d}']})"
            )
            linear = f"({linear}) * {s[f'window{d}']} + p{d}" if linear else f"p{d}"
        place = self.place(coordinates, f"channel * {self.counted('pixels')}")
        return (
            f"fn depth(phase: Phase) -> u32 {{ return {' * '.join([s['m'], *counts])}; }}\n"
            "fn k_at(k: u32, end: u32, phase: Phase) -> Place {\n"
            f"    if (k >= end) {{ return Place(FAR_PLACE, NONE); }}\n{split}{lines}"
            f"    return Place({place}, channel * {s['c']} * {taps} + {linear});\n}}\n"
        )

    def phase(self) -> str:
        """The taps p with (remainder + before - p * dilation) a multiple of the stride."""
        lines = ""
        for d in self.dims:
            axis, stride = _AXES[d], self.size[f"stride{d}"]
            lines += (
                f"    phase.remainder.{axis} = left % {stride}; left = left / {stride};\n"
                f"    let want{d} = (phase.remainder.{axis} + {self.size[f'before{d}']}) % {stride};\n"
                f"    let by{d} = {self.size[f'dilation{d}']} % {stride};\n"
                f"    var first{d} = 0u;\n"
                f"    while (first{d} < {stride} && first{d} * by{d} % {stride} != want{d}) "
                f"{{ first{d} += 1u; }}\n"
                f"    var step{d} = 1u;\n"
                f"    while (step{d} * by{d} % {stride} != 0u) {{ step{d} += 1u; }}\n"
                f"    phase.first.{axis} = first{d};\n    phase.step.{axis} = step{d};\n"
                f"    if (first{d} < min({stride}, {self.size[f'window{d}']})) {{\n"
                f"        phase.count.{axis} = ({self.size[f'window{d}']} - 1u - first{d}) / step{d} "
                "+ 1u;\n    }\n"
            )
        return (
            "fn phase_of(number: u32) -> Phase {\n    var phase: Phase;\n    var left = number;\n"
            f"{lines}    return phase;\n}}\n"
        )

    def count(self) -> str:
        """The matrices per group."""
        return {"image": "1u", "weights": self.size["parts"], "back": self.counted("stride")}[
            self.of
        ]

    def run(self) -> str:
        """`first` and `end` of k."""
        if self.of != "weights":
            return "    let first = 0u;\n    let end = depth(phase);\n"
        parts = self.size["parts"]
        return (
            f"    let length = ((depth(phase) + {parts} - 1u) / {parts} + {DEPTH - 1}u) / {DEPTH}u "
            f"* {DEPTH}u;\n    let first = number * length;\n"
            "    let end = min(first + length, depth(phase));\n"
        )

    def put(self, there: str, value: str) -> str:
        if self.of == "weights":
            whole = f"number * {self.size['groups']} * rows() * columns()"
            return f"keep({whole} + {there}, {value});"
        return self.module.store(0, there, value)

    def plain(self) -> str:
        return (
            f"    let here = group * {GROUP}u + lane;\n"
            "    let column = here % columns();\n    let row = here / columns() % rows();\n"
            f"    let matrix = here / (columns() * rows());\n    let g = matrix % {self.size['groups']};\n"
            f"    let number = matrix / {self.size['groups']};\n"
            f"    if (number >= {self.count()}) {{ return; }}\n"
            "    let phase = phase_of(number);\n"
            f"{self.run()}    let from_row = row_at(g, row);\n"
            f"    let from_column = column_at(g, column, phase);\n    var sum = {self.zero};\n"
            "    for (var k = first; k < end; k += 1u) {\n"
            "        let place = k_at(k, end, phase);\n"
            "        sum = fma(weight_at(from_row, place.weight), z(from_column, place.at), sum);\n"
            "    }\n    let there = out_at(g, column, phase);\n"
            f"    if (there != NONE) {{ {self.put('there + row * out_step()', 'sum')} }}\n"
        )

    def tiled(self, tile: Tile) -> str:
        kind, down, across = self.kind, tile.rows // 4, tile.across
        wide = tile.columns // 4
        self.module.globals += (
            f"const ROWS = {tile.rows}u;\nconst COLUMNS = {tile.columns}u;\n"
            f"const DOWN = {down}u;\nconst ACROSS = {across}u;\nconst LANES = {tile.lanes}u;\n"
            f"const WIDE = {wide}u;\n"
            f"var<workgroup> tile_a: array<vec4<{kind}>, {DEPTH * (down + 1)}>;\n"
            f"var<workgroup> tile_z: array<vec4<{kind}>, {DEPTH * (wide + 1)}>;\n"
            f"var<workgroup> places: array<vec4<i32>, {2 * DEPTH}>;\n"
            f"var<workgroup> weights: array<u32, {2 * DEPTH}>;\n"
        )
        sums = [(r, part) for r in range(4) for part in range(tile.parts)]
        body = _TILED_HEAD.replace("GROUPS", self.size["groups"]).replace("COUNT", self.count())
        body += self.run() + _TILED_START
        body += "".join(f"    var sum{r}_{p} = vec4<{kind}>({self.zero});\n" for r, p in sums)
        step = "            let a = tile_a[at_a];\n"
        for p in range(tile.parts):
            step += f"            let z{p} = tile_z[at_z + {p}u * ACROSS];\n"
        for r, p in sums:
            step += (
                f"            sum{r}_{p} = fma(vec4<{kind}>(a.{'xyzw'[r]}), z{p}, sum{r}_{p});\n"
            )
        step += "            at_a += DOWN + 1u; at_z += WIDE + 1u;\n"
        steps = "".join(f"            {{\n{step}            }}\n" for _ in range(4))
        body += _TILED_LOOP.replace("KIND", kind).replace("STEPS\n", steps)
        return body + "".join(self.put_column(p, c) for p in range(tile.parts) for c in range(4))

    def put_column(self, part: int, c: int) -> str:
        """The stores of one of an invocation's columns."""
        there, column = f"there{part}_{c}", f"(lane % ACROSS + {part}u * ACROSS) * 4u + {c}u"
        text = (
            f"    let {there} = out_at(g, first_column + {column}, phase);\n"
            f"    if (first_column + {column} < columns() && {there} != NONE) {{\n"
        )
        for r in range(4):
            put = self.put(f"{there} + (row + {r}u) * out_step()", f"sum{r}_{part}.{'xyzw'[c]}")
            text += f"        if (row + {r}u < rows()) {{ {put} }}\n"
        return text + "    }\n"


_TILED_HEAD = """    let down = (rows() + ROWS - 1u) / ROWS;
    let across = (columns() + COLUMNS - 1u) / COLUMNS;
    let matrix = group / (down * across);
    let g = matrix % GROUPS;
    let number = matrix / GROUPS;
    if (number >= COUNT) { return; }
    let first_row = group % down * ROWS;
    let first_column = group / down % across * COLUMNS;
    let phase = phase_of(number);
"""

# An invocation reads four rows of `a` that need not be its own: LANES is DOWN * DEPTH.
_TILED_START = f"""    let row = first_row + lane / ACROSS * 4u;
    let read_row = first_row + lane / {DEPTH}u * 4u;
    let row0 = select(NONE, row_at(g, read_row), read_row < rows());
    let row1 = select(NONE, row_at(g, read_row + 1u), read_row + 1u < rows());
    let row2 = select(NONE, row_at(g, read_row + 2u), read_row + 2u < rows());
    let row3 = select(NONE, row_at(g, read_row + 3u), read_row + 3u < rows());
    let column = first_column + lane % WIDE * 4u;
    let column0 = column_at(g, column, phase);
    let column1 = column_at(g, column + 1u, phase);
    let column2 = column_at(g, column + 2u, phase);
    let column3 = column_at(g, column + 3u, phase);
    if (lane < {DEPTH}u) {{
        let place = k_at(first + lane, end, phase);
        places[lane] = place.at;
        weights[lane] = place.weight;
    }}
    workgroupBarrier();
    var side = 0u;
"""

_TILED_LOOP = f"""    for (var start = first; start < end; start += {DEPTH}u) {{
        let weight = weights[side + lane % {DEPTH}u];
        tile_a[lane % {DEPTH}u * (DOWN + 1u) + lane / {DEPTH}u] = vec4<KIND>(
            weight_at(row0, weight), weight_at(row1, weight),
            weight_at(row2, weight), weight_at(row3, weight));
        for (var e = lane / WIDE; e < {DEPTH}u; e += LANES / WIDE) {{
            let k = places[side + e];
            tile_z[e * (WIDE + 1u) + lane % WIDE] = vec4<KIND>(
                z(column0, k), z(column1, k), z(column2, k), z(column3, k));
        }}
        side = {DEPTH}u - side;
        if (lane < {DEPTH}u) {{
            let place = k_at(start + {DEPTH}u + lane, end, phase);
            places[side + lane] = place.at;
            weights[side + lane] = place.weight;
        }}
        workgroupBarrier();
        var at_a = lane / ACROSS;
        var at_z = lane % ACROSS;
        for (var k = 0u; k < {DEPTH}u; k += 4u) {{
STEPS
        }}
        workgroupBarrier();
    }}
"""
