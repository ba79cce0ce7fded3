"""Contract kernels in WGSL: a tiled form in workgroup memory, and a plain one per element.

# Note [Products in WGSL]
1. Both forms add in ascending k, so neither the form nor its tile changes a sum's bits. With `more`
   the sum is added to the output, which has what else is added already.
2. A tile of the output is 128 x 128 or 64 x 64, of which each of 16 x 16 invocations has rows and
   columns in groups of four. Workgroup memory holds DEPTH of k; the next DEPTH are on their way
   from memory meanwhile.
3. An operand is read as vectors of four words along k ("k") or along its rows or columns ("g"),
   where its layout and address allow, or element by element ("s").
4. A vector of tile_a or tile_b is at its place xor k / 4: writes along k then meet other banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rushlight.core.dtypes import DType
from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.emit.wgsl.types import param_text
from rushlight.kernel.shapes import Contract

DEPTH = 16  # of k in workgroup memory at a time
LARGE, SMALL = 128, 64  # sides of a tile
ENOUGH = 96  # large tiles of a product that occupy a GPU of which nothing else is known

Occupied = Callable[[int], bool]  # whether so many large tiles occupy the GPU


class Tiling(NamedTuple):
    """The tiled form: the side of a tile, and how each operand is read and the output written."""

    side: int
    a: str
    b: str
    out: str

    @property
    def form(self) -> str:
        return f"tiled:{self.a}{self.b}{self.out}:{self.side}"


def tiling_of(form: str) -> Tiling:
    _, ways, side = form.removesuffix("+").split(":")
    return Tiling(int(side), *ways)


def is_vector_type(dtype: DType) -> bool:
    """Whether elements can be taken from vectors of words."""
    return dtype.itemsize == 4 or (dtype.itemsize == 2 and dtype.kind == "f")


def occupied_by_default(tiles: int) -> bool:
    return tiles >= ENOUGH


def tiling(
    dtype: DType,
    sizes: Sequence[int],
    offsets: Sequence[int],
    strides: Sequence[int],
    occupied: Occupied,
) -> Tiling:
    """The tiled form of a launch."""
    x, y, m, n, k = sizes
    out, a, b = strides[:4], strides[4:8], strides[8:12]
    tiles = x * y * -(-m // LARGE) * -(-n // LARGE)
    side = LARGE if m > SMALL and n > SMALL and occupied(tiles) else SMALL
    per = 16 // dtype.itemsize if is_vector_type(dtype) else 0

    def way(offset: int, across: int, at: tuple[int, int, int, int]) -> str:
        """`at` are the strides of the batch, of the operand's own dimension and of k."""
        batch, inner, own, along = at[0], at[1], at[2], at[3]
        if not per or offset % per or batch % per or inner % per:
            return "s"
        if along == 1 and own % per == 0 and k % per == 0:
            return "k"
        return "g" if own == 1 and along % per == 0 and across % per == 0 else "s"

    whole = per and out[3] == 1 and n % 4 == 0 and not any(s % per for s in (offsets[0], *out[:3]))
    return Tiling(
        side,
        way(offsets[1], m, (a[0], a[1], a[2], a[3])),
        way(offsets[2], n, (b[0], b[1], b[3], b[2])),
        "v" if whole else "s",
    )


def plain_contract_text(module: Module, kernel: Contract, more: bool = False) -> str:
    printer = module.printer
    dtype, compute = kernel.dtype, kernel.compute
    a = printer.cast(module.load(1, module.at(1, ["x", "y", "m", "k"])), dtype, compute)
    b = printer.cast(module.load(2, module.at(2, ["x", "y", "k", "n"])), dtype, compute)
    # The hardware's fma, as in the tiled form, fused or not.
    added = (
        "fma(a, b, sum)"
        if compute.kind == "f"
        else printer.apply("fma", compute, ["a", "b", "sum"])
    )
    there = module.at(0, ["x", "y", "m", "n"])
    beside = module.at(3, ["x", "y", "m", "n"]) if kernel.added else ""
    total = _total(module, kernel, "sum", there, beside, more)
    put = module.store(0, there, printer.cast(total, compute, dtype))
    return module.text(
        GROUP,
        f"    let here = group * {GROUP}u + lane;\n"
        "    let n = here % launch.size3;\n"
        "    let m = (here / launch.size3) % launch.size2;\n"
        "    let batch = here / (launch.size3 * launch.size2);\n"
        "    let y = batch % launch.size1;\n"
        "    let x = batch / launch.size1;\n"
        "    if (x >= launch.size0) { return; }\n"
        f"    var sum = {printer.number(0, compute)};\n"
        "    for (var k = 0u; k < launch.size4; k += 1u) {\n"
        f"        let a = {a};\n        let b = {b};\n        sum = {added};\n    }}\n"
        f"    {put}\n",
    )


def _total(module: Module, kernel: Contract, made: str, there: str, beside: str, more: bool) -> str:
    """What is stored for a sum: scaled, and with what is there, or `beside` it in operand 3."""
    printer, compute = module.printer, kernel.compute
    if not (kernel.scaled or kernel.added or more):
        return made
    operand, place = (3, beside) if kernel.added and not more else (0, there)
    before = printer.cast(module.load(operand, place), kernel.dtype, compute)
    if kernel.scaled:
        alpha, beta = (param_text(i, compute, module.features) for i in range(2))
        made = printer.apply("mul", compute, [alpha, made])
        before = before if more else printer.apply("mul", compute, [beta, before])
    return printer.apply("add", compute, [before, made])


class Side:
    """One factor's way from memory through registers to workgroup memory."""

    def __init__(self, module: Module, kernel: Contract, operand: int, side: int, way: str) -> None:
        self.module, self.operand, self.way = module, operand, way
        self.name, self.own = ("a", "m") if operand == 1 else ("b", "n")
        self.size = "launch.size2" if operand == 1 else "launch.size3"
        self.quads = side // 4
        strides = ("2", "3") if operand == 1 else ("3", "2")
        self.own_stride, self.k_stride = (f"launch.stride{operand}_{d}" for d in strides)
        self.kind = module.type(kernel.compute)
        self.zero = module.printer.number(0, kernel.compute)
        self.per = 1 if way == "s" else 16 // kernel.dtype.itemsize
        self.rows = DEPTH // self.per if way == "k" else side // self.per
        self.count = DEPTH * side // self.per  # vectors of a tile
        self.turns = -(-self.count // GROUP)
        self.side = side

    def declare(self) -> str:
        """Where in a tile this invocation reads, and its registers."""
        name, text = self.name, ""
        if self.way == "s":
            # Neighbouring invocations read along the dimension of stride 1.
            text += f"    let by_k_{name} = {self.k_stride} == 1u;\n"
        for turn in range(self.turns):
            at = f"(lane + {turn * GROUP}u)"
            if self.way == "s":
                k = f"select({at} / {self.side}u, {at} % {DEPTH}u, by_k_{name})"
                own = f"select({at} % {self.side}u, {at} / {DEPTH}u, by_k_{name})"
            elif self.way == "k":
                k, own = f"{at} % {self.rows}u * {self.per}u", f"{at} / {self.rows}u"
            else:
                k, own = f"{at} / {self.rows}u", f"{at} % {self.rows}u * {self.per}u"
            kind = self.kind if self.way == "s" else "vec4<u32>"
            text += (
                f"    let k_{name}{turn} = {k};\n    let {self.own}_{name}{turn} = {own};\n"
                f"    let from_{name}{turn} = batch_{name} + (first_{self.own} + "
                f"{self.own}_{name}{turn}) * {self.own_stride} + k_{name}{turn} * {self.k_stride};\n"
                f"    let in_{name}{turn} = first_{self.own} + {self.own}_{name}{turn} < "
                f"{self.size};\n"
                f"    var held_{name}{turn} = {kind}({self.zero if self.way == 's' else '0u'});\n"
            )
        return text

    def fetch(self, start: str, indent: str) -> str:
        """Read a tile's part into registers."""
        name, text = self.name, ""
        for turn in range(self.turns):
            at = f"from_{name}{turn} + {start} * {self.k_stride}"
            if self.way == "s":
                value, empty = self.module.load(self.operand, at), self.zero
            else:
                shift = 2 if self.per == 4 else 3
                array = self.module.access[self.operand].array
                value = f"{array}[(launch.offset{self.operand} + {at}) >> {shift}u]"
                empty = "vec4<u32>(0u)"
            text += (
                f"{indent}if (in_{name}{turn} && k_{name}{turn} + {start} < launch.size4) "
                f"{{ held_{name}{turn} = {value}; }} else {{ held_{name}{turn} = {empty}; }}\n"
            )
        return text

    def put(self, indent: str) -> str:
        """Write the registers to workgroup memory: rules 3 and 4 of Note [Products in WGSL]."""
        if self.count >= GROUP:
            return self._put(indent)
        return f"{indent}if (lane < {self.count}u) {{\n{self._put(indent + '    ')}{indent}}}\n"

    def _put(self, indent: str) -> str:
        name, text = self.name, ""
        for turn in range(self.turns):
            held, k, own = f"held_{name}{turn}", f"k_{name}{turn}", f"{self.own}_{name}{turn}"
            if self.way == "s":
                text += f"{indent}{self.place(k, f'{own} / 4u')}[{own} % 4u] = {held};\n"
                continue
            values = [self.element(held, j) for j in range(self.per)]
            if self.way == "k":
                for j, value in enumerate(values):
                    there = self.place(f"({k} + {j}u)", f"{own} / 4u")
                    text += f"{indent}{there}[{own} % 4u] = {value};\n"
                continue
            for four in range(self.per // 4):
                some = ", ".join(values[4 * four : 4 * four + 4])
                there = self.place(k, f"({own} / 4u + {four}u)")
                text += f"{indent}{there} = vec4<{self.kind}>({some});\n"
        return text

    def place(self, k: str, quad: str) -> str:
        return f"tile_{self.name}[{k} * {self.quads}u + (({quad}) ^ ({k} / 4u))]"

    def element(self, held: str, j: int) -> str:
        dtype = self.module.layout.operands[self.operand].dtype
        word, byte = divmod(j * dtype.itemsize, 4)
        return self.module.decoded(self.operand, f"{held}.{'xyzw'[word]}", f"{8 * byte}u")


def tiled_contract_text(module: Module, kernel: Contract, form: str) -> str:
    """For compute types of 32 bits."""
    tiling, more = tiling_of(form), form.endswith("+")
    kind, zero = module.type(kernel.compute), module.printer.number(0, kernel.compute)
    side, groups = tiling.side, tiling.side // 64
    factors = [
        Side(module, kernel, operand, side, way) for operand, way in ((1, tiling.a), (2, tiling.b))
    ]
    for factor in factors:
        size = DEPTH * side // 4
        module.globals += f"var<workgroup> tile_{factor.name}: array<vec4<{kind}>, {size}>;\n"
    body = _TILED_HEAD.replace("SIDE", str(side))
    if kernel.added and not more:
        body += "    let batch_c = x * launch.stride3_0 + y * launch.stride3_1;\n"
    body += "".join(factor.declare() for factor in factors)
    body += "".join(factor.fetch("0u", "    ") for factor in factors)
    sums = [(r, h) for r in range(4 * groups) for h in range(groups)]
    body += "".join(f"    var sum{r}_{h} = vec4<{kind}>({zero});\n" for r, h in sums)
    body += f"    for (var start = 0u; start < launch.size4; start += {DEPTH}u) {{\n"
    body += "".join(factor.put("        ") for factor in factors)
    body += f"        workgroupBarrier();\n        let next = start + {DEPTH}u;\n"
    body += "".join(factor.fetch("next", "        ") for factor in factors)
    body += _steps(kernel, kind, side, groups) + "        workgroupBarrier();\n    }\n"
    return module.text(GROUP, body + _stores(module, kernel, tiling, more))


def _steps(kernel: Contract, kind: str, side: int, groups: int) -> str:
    """The products of one tile in workgroup memory, without a loop: a quarter faster on an H200."""
    step = (
        "fma(vec4<{0}>({1}), {2}, {3})"
        if kernel.compute.kind == "f"
        else "vec4<{0}>({1}) * {2} + {3}"
    )
    text = ""
    for j in range(DEPTH):
        if j % 4 == 0:
            text += f"        let at_a{j} = (lane / 16u) ^ {j // 4}u;\n"
            text += f"        let at_b{j} = (lane % 16u) ^ {j // 4}u;\n"
        for h in range(groups):
            row = j * side // 4 + 16 * h
            text += f"        let a{j}_{h} = tile_a[{row}u + at_a{j - j % 4}];\n"
            text += f"        let b{j}_{h} = tile_b[{row}u + at_b{j - j % 4}];\n"
        for r in range(4 * groups):
            for h in range(groups):
                a, b, total = f"a{j}_{r // 4}.{'xyzw'[r % 4]}", f"b{j}_{h}", f"sum{r}_{h}"
                text += f"        {total} = {step.format(kind, a, b, total)};\n"
    return text


def _stores(module: Module, kernel: Contract, tiling: Tiling, more: bool) -> str:
    text, along = "", "" if tiling.out == "v" else " * launch.stride0_3"
    for r in range(4 * (tiling.side // 64)):
        for h in range(tiling.side // 64):
            m = f"(first_m + {64 * (r // 4) + r % 4}u + lane / 16u * 4u)"
            n = f"(first_n + {64 * h}u + lane % 16u * 4u)"
            text += f"    if ({m} < launch.size2 && {n} < launch.size3) {{\n"
            name, beside = f"at{r}_{h}", f"beside{r}_{h}"
            text += f"        let {name} = {_place(0, 'batch_o', m, n)};\n"
            if kernel.added and not more:
                text += f"        let {beside} = {_place(3, 'batch_c', m, n)};\n"
            totals = [
                _total(
                    module,
                    kernel,
                    f"sum{r}_{h}.{'xyzw'[c]}",
                    f"{name} + {c}u{along}",
                    f"{beside} + {c}u * launch.stride3_3",
                    more,
                )
                for c in range(4)
            ]
            if tiling.out == "v":
                text += _vector_store(module, kernel, name, totals)
            else:
                text += _element_stores(module, name, n, totals)
            text += "    }\n"
    return text


def _place(operand: int, batch: str, m: str, n: str) -> str:
    """Where an element of the result, or of what is added to it, lies."""
    return f"{batch} + {m} * launch.stride{operand}_2 + {n} * launch.stride{operand}_3"


def _element_stores(module: Module, at: str, n: str, totals: list[str]) -> str:
    text = ""
    for c, total in enumerate(totals):
        put = module.store(0, f"{at} + {c}u * launch.stride0_3", total)
        text += f"        if ({n} + {c}u < launch.size3) {{ {put} }}\n"
    return text


def _vector_store(module: Module, kernel: Contract, at: str, totals: list[str]) -> str:
    """Four neighbours as a vector, or as two words of a vector where they are halves."""
    dtype = kernel.dtype
    array, here = module.access[0].array, f"(launch.offset0 + {at})"
    if dtype.itemsize == 4:
        words = [v if dtype.kind == "u" else f"bitcast<u32>({v})" for v in totals]
        return f"        {array}[{here} >> 2u] = vec4<u32>({', '.join(words)});\n"
    halves = [module.encoded(0, v) for v in totals]
    text = f"        let word{at} = {here} >> 1u;\n"
    for w in range(2):
        word = f"{halves[2 * w]} | ({halves[2 * w + 1]} << 16u)"
        text += f"        {array}[word{at} >> 2u][(word{at} + {w}u) & 3u] = {word};\n"
    return text


_TILED_HEAD = """    let across = (launch.size3 + SIDEu - 1u) / SIDEu;
    let down = (launch.size2 + SIDEu - 1u) / SIDEu;
    let batch = group / (across * down);
    let x = batch / launch.size1;
    let y = batch % launch.size1;
    if (x >= launch.size0) { return; }
    let batch_o = x * launch.stride0_0 + y * launch.stride0_1;
    let batch_a = x * launch.stride1_0 + y * launch.stride1_1;
    let batch_b = x * launch.stride2_0 + y * launch.stride2_1;
    let first_m = ((group / across) % down) * SIDEu;
    let first_n = (group % across) * SIDEu;
"""
