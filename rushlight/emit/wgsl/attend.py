"""Attend kernels in WGSL.

# Note [Attention in WGSL]
1. A workgroup of 64 invocations has a tile of own rows (query rows, or keys where the result is by
   keys) in workgroup memory and walks the other side in tiles of 16 rows, in ascending order. An
   invocation (group, lane) of 8 x 8 has every eighth row and column of a tile's scores, and of the
   results every eighth vector of four features.
2. Forward, one invocation has the maximum and the sum of a row. Backward computes probabilities
   from the row's level. Each result has one workgroup, so sums have one order.
3. Sums are in float32. Rows and features outside of the operands are zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from rushlight.core.dtypes import bool_, compute_type, float32, int64
from rushlight.emit.wgsl.module import Module
from rushlight.emit.wgsl.types import param_text
from rushlight.kernel.attend import inner_sizes, kept, operands_of
from rushlight.kernel.shapes import Attend
from rushlight.scalar import build as s
from rushlight.scalar.elementary import lower
from rushlight.scalar.ir import Expr, arg, param

LANES = 8  # columns of the square of invocations, and rows
INVOCATIONS = LANES * LANES
OTHERS = 2 * LANES  # rows of a tile of the other side
PITCH = OTHERS + 1  # of rows of scores: no bank is met twice
# By features: own rows forward and backward.
_OWN = {32: (64, 32), 64: (64, 32), 128: (32, 16)}


class Sizes(NamedTuple):
    own: int
    vectors: int  # of four features, with padding

    @property
    def rows(self) -> int:
        """Rows of an invocation."""
        return self.own // LANES

    @property
    def spans(self) -> int:
        """Vectors of features of an invocation."""
        return self.vectors // LANES

    @property
    def pitch(self) -> int:
        return self.vectors + 1


def sizes_of(kernel: Attend) -> Sizes:
    features = next(n for n in _OWN if n >= max(kernel.width, kernel.depth))
    return Sizes(_OWN[features][kernel.of != "output"], features // 4)


def _memory(kernel: Attend) -> int:
    """Bytes of workgroup memory."""
    z = sizes_of(kernel)
    tiles = z.own + 2 * OTHERS if kernel.of == "output" else 2 * (z.own + OTHERS)
    scores = z.own * PITCH * (1 if kernel.of == "output" else 2)
    return 16 * tiles * z.pitch + 4 * scores + 8 * max(z.own, OTHERS)


def widest(memory: int, bindings: int) -> int:
    """The widest head for so many bytes of workgroup memory and storage buffers; 0 for none."""
    kernels = {
        width: [Attend(float32, of, width, width, float32) for of in ("output", "keys")]
        for width in _OWN
    }
    fitting = [w for w, both in kernels.items() if max(map(_memory, both)) <= memory]
    return max(fitting, default=0) if bindings >= len(operands_of(kernels[32][1])) else 0


def groups_of(kernel: Attend, sizes: tuple[int, ...]) -> tuple[int, int]:
    """The workgroups of a launch, and roughly the steps of each."""
    x, y, z, rows, keys = sizes
    if kernel.of == "along":
        return -(-(x * y * z * rows) // INVOCATIONS), INVOCATIONS * kernel.depth
    own = sizes_of(kernel).own
    mine, others = (keys, rows) if kernel.of == "keys" else (rows, keys)
    tiles, steps = -(-mine // own), own * others * (kernel.width + kernel.depth)
    if kernel.of == "mask":
        tiles *= -(-keys // OTHERS)
        steps = own * OTHERS * (kernel.width + kernel.depth) * x * y * z
    return x * y * z * tiles, steps


class _Text:
    """The text of one kernel."""

    def __init__(self, module: Module, kernel: Attend) -> None:
        self.module, self.kernel = module, kernel
        self.z = sizes_of(kernel)
        self.numbers = {name: i for i, name in enumerate(operands_of(kernel))}
        self.real = module.type(compute_type(kernel.dtype))
        self.zero = module.printer.number(0.0, compute_type(kernel.dtype))
        self.none = module.printer.number(-math.inf, compute_type(kernel.dtype))
        self.scale = param_text(0, compute_type(kernel.dtype), module.features)
        self.cells = [(i, j) for i in range(self.z.rows) for j in range(2)]
        self.parts = [(i, o) for i in range(self.z.rows) for o in range(self.z.spans)]

    # ---- functions ----

    def function(self, head: str, root: Expr, leaves: dict[Expr, str]) -> None:
        """A function that computes an expression."""
        lines, (result,) = self.module.printer.block(
            lower((root,)), lambda expr: leaves[expr], "t", "    "
        )
        self.module.globals += f"fn {head} {{\n{lines}    return {result};\n}}\n"

    def elementary(self) -> None:
        compute = compute_type(self.kernel.dtype)
        x = arg(0, compute)
        self.function(f"power(x: {self.real}) -> {self.real}", s.exp(x), {x: "x"})
        if self.kernel.of == "output":
            self.function(f"logarithm(x: {self.real}) -> {self.real}", s.log(x), {x: "x"})

    def dropout(self) -> None:
        """`is_kept(line, key)`, `line` being the row's number in the batch."""
        module = self.module
        line, keys, key = (arg(i, int64) for i in range(3))
        seed, position, chance = param(1, int64), param(2, int64), param(3, float32)
        names = ("line", "launch.size4", "key")
        leaves = {a: module.position(n) for a, n in zip((line, keys, key), names, strict=True)}
        for p in (seed, position, chance):
            leaves[p] = param_text(int(p.value or 0), p.dtype, module.features)
        test = kept(seed, position + (line * keys + key), chance)
        self.function("is_kept(line: u32, key: u32) -> bool", test, leaves)

    def fetch(self, name: str) -> str:
        """`fetch_name(row, v)`: the v-th vector of features of a row, zeros outside."""
        width = inner_sizes(self.kernel, name, 0, 0)[1]
        limit = "launch.size4" if name in ("k", "v") else "launch.size3"
        number = self.numbers[name]
        lines = ""
        for u in range(4):
            at = f"base_{name} + row * launch.stride{number}_3 + (d + {u}u) * launch.stride{number}_4"
            test = f"row < {limit} && d + {u}u < {width}u"
            lines += f"    if ({test}) {{ found[{u}] = {self.module.load(number, at)}; }}\n"
        self.module.globals += (
            f"fn fetch_{name}(base_{name}: u32, row: u32, v: u32) -> vec4<{self.real}> {{\n"
            f"    let d = v * 4u;\n    var found = vec4<{self.real}>({self.zero});\n{lines}"
            "    return found;\n}\n"
        )
        return f"fetch_{name}"

    def score(self) -> None:
        """`scored(product, row, key, base)`: with scale and mask."""
        kernel, none = self.kernel, self.none
        hidden = "row >= launch.size3 || key >= launch.size4"
        hidden += " || key > row" if kernel.causal else ""
        lines = f"    if ({hidden}) {{ return {none}; }}\n    let x = product * {self.scale};\n"
        if kernel.mask is not None:
            number = self.numbers["mask"]
            at = f"base + row * launch.stride{number}_3 + key * launch.stride{number}_4"
            value = self.module.load(number, at)
            if kernel.mask is bool_:
                lines += f"    if (!{value}) {{ return {none}; }}\n"
            else:
                compute = compute_type(kernel.dtype)
                value = self.module.printer.cast(value, compute_type(kernel.mask), compute)
                lines += f"    return x + {value};\n"
        self.module.globals += (
            f"fn scored(product: {self.real}, row: u32, key: u32, base: u32) -> {self.real} {{\n"
            f"{lines}    return x;\n}}\n"
        )

    # ---- statements ----

    def place(self, tiles: str) -> str:
        """Coordinates of the batch and the number of the tile."""
        return (
            f"    let tiles = {tiles};\n"
            "    let tile = group % tiles;\n"
            "    let batch = group / tiles;\n"
            "    let z = batch % launch.size2;\n"
            "    let y = batch / launch.size2 % launch.size1;\n"
            "    let x = batch / (launch.size2 * launch.size1);\n"
            "    if (x >= launch.size0) { return; }\n"
            f"    let column = lane % {LANES}u;\n    let line = lane / {LANES}u;\n"
        )

    def bases(self, indent: str = "    ", ends: str = "") -> str:
        found = ""
        for name, i in self.numbers.items():
            terms = " + ".join(f"{c}{ends} * launch.stride{i}_{d}" for d, c in enumerate("xyz"))
            found += f"{indent}let at_{name} = {terms};\n"
        return found

    def load_tile(self, tile: str, name: str, first: str, rows: int, indent: str) -> str:
        z = self.z
        return (
            f"{indent}for (var e = lane; e < {rows * z.vectors}u; e += {INVOCATIONS}u) {{\n"
            f"{indent}    {tile}[e / {z.vectors}u * {z.pitch}u + e % {z.vectors}u] = "
            f"fetch_{name}(at_{name}, {first} + e / {z.vectors}u, e % {z.vectors}u);\n{indent}}}\n"
        )

    def multiply(self, names: str, own: str, other: str, width: int, indent: str) -> str:
        """Products of own rows and other rows into `names`i_j."""
        z = self.z
        lines = "".join(f"{indent}var {names}{i}_{j} = {self.zero};\n" for i, j in self.cells)
        lines += f"{indent}for (var v = 0u; v < {-(-width // 4)}u; v += 1u) {{\n"
        for j in range(2):
            lines += f"{indent}    let b{j} = {other}[(column + {LANES * j}u) * {z.pitch}u + v];\n"
        for i in range(z.rows):
            lines += f"{indent}    let a{i} = {own}[(line + {LANES * i}u) * {z.pitch}u + v];\n"
            for j in range(2):
                lines += f"{indent}    {names}{i}_{j} += dot(a{i}, b{j});\n"
        return lines + f"{indent}}}\n"

    def gather(self, names: str, weights: str, other: str, indent: str) -> str:
        """`names`i_o += weights times other rows."""
        z = self.z
        lines = f"{indent}for (var c = 0u; c < {OTHERS}u; c += 1u) {{\n"
        for o in range(z.spans):
            lines += f"{indent}    let b{o} = {other}[c * {z.pitch}u + column + {LANES * o}u];\n"
        for i in range(z.rows):
            lines += (
                f"{indent}    let w{i} = vec4<{self.real}>"
                f"({weights}[(line + {LANES * i}u) * {PITCH}u + c]);\n"
            )
            for o in range(z.spans):
                lines += f"{indent}    {names}{i}_{o} = fma(w{i}, b{o}, {names}{i}_{o});\n"
        return lines + f"{indent}}}\n"

    def sums(self, names: str) -> str:
        zero = f"vec4<{self.real}>({self.zero})"
        return "".join(f"    var {names}{i}_{o} = {zero};\n" for i, o in self.parts)

    def store(self, name: str, names: str, limit: str, factors: Iterator[str]) -> str:
        """Rows of sums times a factor, by name of the operand."""
        width, number = inner_sizes(self.kernel, name, 0, 0)[1], self.numbers[name]
        lines = ""
        for i, factor in zip(range(self.z.rows), factors, strict=False):
            lines += f"    {{\n        let row = first + line + {LANES * i}u;\n"
            lines += f"        let factor = {factor};\n        if (row < {limit}) {{\n"
            for o in range(self.z.spans):
                lines += f"            let d{o} = (column + {LANES * o}u) * 4u;\n"
                for u in range(4):
                    at = (
                        f"at_{name} + row * launch.stride{number}_3 + (d{o} + {u}u) * "
                        f"launch.stride{number}_4"
                    )
                    put = self.module.store(number, at, f"{names}{i}_{o}[{u}] * factor")
                    lines += f"            if (d{o} + {u}u < {width}u) {{ {put} }}\n"
            lines += "        }\n    }\n"
        return lines

    def shared(self, **counts: int) -> None:
        """Arrays in workgroup memory: vectors where the name is that of a tile."""
        for name, count in counts.items():
            kind = f"vec4<{self.real}>" if name.startswith(("own", "other")) else self.real
            self.module.globals += f"var<workgroup> {name}: array<{kind}, {count}>;\n"


def along_text(module: Module, kernel: Attend) -> str:
    compute = module.type(compute_type(kernel.dtype))
    ends = ["x", "y", "z", "t"]
    a, b = (module.load(i, module.at(i, [*ends, "d"])) for i in (1, 2))
    put = module.store(0, module.at(0, ends), "sum")
    return module.text(
        INVOCATIONS,
        f"    let here = group * {INVOCATIONS}u + lane;\n"
        "    let t = here % launch.size3;\n    let batch = here / launch.size3;\n"
        "    let z = batch % launch.size2;\n    let y = batch / launch.size2 % launch.size1;\n"
        "    let x = batch / (launch.size2 * launch.size1);\n"
        "    if (x >= launch.size0) { return; }\n"
        f"    var sum = {compute}(0);\n"
        f"    for (var d = 0u; d < {kernel.depth}u; d += 1u) {{ sum = fma({a}, {b}, sum); }}\n"
        f"    {put}\n",
    )


def attend_text(module: Module, kernel: Attend) -> str:
    if kernel.of == "along":
        return along_text(module, kernel)
    text = _Text(module, kernel)
    text.elementary()
    text.score()
    if kernel.dropout:
        text.dropout()
    for name in ("q", "k", "v") if kernel.of == "output" else ("q", "k", "v", "g"):
        text.fetch(name)
    body = {"output": _forward, "mask": _mask}.get(kernel.of, _backward)(text)
    return module.text(INVOCATIONS, body)


def _forward(text: _Text) -> str:
    z, kernel, zero, none = text.z, text.kernel, text.zero, text.none
    tile, rows = z.pitch * OTHERS, z.own
    text.shared(
        own_a=z.own * z.pitch, other_a=tile, other_b=tile, weights=rows * PITCH, shrinks=rows
    )
    lines = text.place(f"(launch.size3 + {rows - 1}u) / {rows}u") + text.bases()
    lines += f"    let first = tile * {rows}u;\n" + text.load_tile(
        "own_a", "q", "first", rows, "    "
    )
    lines += text.sums("sum") + f"    var top = {none};\n    var total = {zero};\n"
    end = f"min(launch.size4, first + {rows}u)" if kernel.causal else "launch.size4"
    lines += f"    for (var start = 0u; start < {end}; start += {OTHERS}u) {{\n"
    lines += text.load_tile("other_a", "k", "start", OTHERS, "        ")
    lines += text.load_tile("other_b", "v", "start", OTHERS, "        ")
    lines += "        workgroupBarrier();\n"
    lines += text.multiply("s", "own_a", "other_a", kernel.width, "        ")
    for i, j in text.cells:
        spot = f"(line + {LANES * i}u) * {PITCH}u + column + {LANES * j}u"
        lines += f"        weights[{spot}] = s{i}_{j};\n"
    base = "at_mask" if kernel.mask is not None else "0u"
    drop = ""
    if kernel.dropout:
        factor = param_text(4, float32, text.module.features)
        drop = (
            f"                p = select({zero}, p * {text.real}({factor}), "
            "is_kept(batch * launch.size3 + first + lane, start + c));\n"
        )
    lines += f"""        workgroupBarrier();
        if (lane < {rows}u) {{
            var most = top;
            for (var c = 0u; c < {OTHERS}u; c += 1u) {{
                let x = scored(weights[lane * {PITCH}u + c], first + lane, start + c, {base});
                weights[lane * {PITCH}u + c] = x;
                most = max(most, x);
            }}
            let base = select(most, {zero}, most == {none});
            let shrink = power(top - base);
            top = most;
            var part = {zero};
            for (var c = 0u; c < {OTHERS}u; c += 1u) {{
                var p = power(weights[lane * {PITCH}u + c] - base);
                part += p;
{drop}                weights[lane * {PITCH}u + c] = p;
            }}
            total = total * shrink + part;
            shrinks[lane] = shrink;
        }}
        workgroupBarrier();
"""
    for i, o in text.parts:
        lines += f"        sum{i}_{o} *= shrinks[line + {LANES * i}u];\n"
    lines += text.gather("sum", "weights", "other_b", "        ")
    lines += "        workgroupBarrier();\n    }\n"
    level = text.module.store(1, "at_level + (first + lane) * launch.stride1_3", "level")
    lines += f"""    if (lane < {rows}u) {{
        shrinks[lane] = select({text.real}(1) / total, {zero}, total == {zero});
        let level = select(top + logarithm(total), {zero}, total == {zero});
        if (first + lane < launch.size3) {{ {level} }}
    }}
    workgroupBarrier();
"""
    factors = (f"shrinks[line + {LANES * i}u]" for i in range(z.rows))
    return lines + text.store("out", "sum", "launch.size3", factors)


def _slopes(text: _Text, by_keys: bool, indent: str) -> str:
    """Products s and t to probabilities after dropout, and gradients of the scores."""
    kernel, lines = text.kernel, ""
    base = "at_mask" if kernel.mask is not None else "0u"
    for i, j in text.cells:
        own, other = f"line + {LANES * i}u", f"column + {LANES * j}u"
        row, key = (
            (f"start + {other}", f"first + {own}")
            if by_keys
            else (f"first + {own}", f"start + {other}")
        )
        level = other if by_keys else own
        lines += f"{indent}let p{i}_{j} = power(scored(s{i}_{j}, {row}, {key}, {base}) - levels[{level}]);\n"
        used, slope = f"p{i}_{j}", f"t{i}_{j}"
        if kernel.dropout:
            factor = f"{text.real}({param_text(4, float32, text.module.features)})"
            lines += (
                f"{indent}let k{i}_{j} = select({text.zero}, {factor}, "
                f"is_kept(batch * launch.size3 + {row}, {key}));\n"
            )
            used, slope = f"{used} * k{i}_{j}", f"{slope} * k{i}_{j}"
        lines += f"{indent}let u{i}_{j} = {used};\n"
        lines += f"{indent}let d{i}_{j} = p{i}_{j} * ({slope} - alongs[{level}]);\n"
    return lines


def _load_levels(text: _Text, first: str, rows: int, indent: str) -> str:
    found = f"{indent}for (var e = lane; e < {rows}u; e += {INVOCATIONS}u) {{\n"
    for name, target in (("level", "levels"), ("along", "alongs")):
        number = text.numbers[name]
        value = text.module.load(number, f"at_{name} + ({first} + e) * launch.stride{number}_3")
        found += f"{indent}    {target}[e] = {text.zero};\n"
        found += f"{indent}    if ({first} + e < launch.size3) {{ {target}[e] = {value}; }}\n"
    return found + f"{indent}}}\n"


def _backward(text: _Text) -> str:
    z, kernel = text.z, text.kernel
    by_keys = kernel.of == "keys"
    names = ("k", "v", "q", "g") if by_keys else ("q", "g", "k", "v")
    own, tile, rows = z.own * z.pitch, OTHERS * z.pitch, z.own
    most = max(rows, OTHERS)
    text.shared(
        own_a=own, own_b=own, other_a=tile, other_b=tile, weights=rows * PITCH,
        slopes=rows * PITCH, levels=most, alongs=most,
    )  # fmt: skip
    mine, others = ("launch.size4", "launch.size3") if by_keys else ("launch.size3", "launch.size4")
    lines = text.place(f"({mine} + {rows - 1}u) / {rows}u") + text.bases()
    lines += f"    let first = tile * {rows}u;\n"
    lines += text.load_tile("own_a", names[0], "first", rows, "    ")
    lines += text.load_tile("own_b", names[1], "first", rows, "    ")
    lines += text.sums("sum") + (text.sums("more") if by_keys else "")
    lines += "" if by_keys else _load_levels(text, "first", rows, "    ")
    begin, end = "0u", others
    if kernel.causal:
        begin = f"first / {OTHERS}u * {OTHERS}u" if by_keys else "0u"
        end = others if by_keys else f"min({others}, first + {rows}u)"
    lines += f"    for (var start = {begin}; start < {end}; start += {OTHERS}u) {{\n"
    lines += text.load_tile("other_a", names[2], "start", OTHERS, "        ")
    lines += text.load_tile("other_b", names[3], "start", OTHERS, "        ")
    lines += _load_levels(text, "start", OTHERS, "        ") if by_keys else ""
    lines += "        workgroupBarrier();\n"
    lines += text.multiply("s", "own_a", "other_a", kernel.width, "        ")
    lines += text.multiply("t", "own_b", "other_b", kernel.depth, "        ")
    lines += _slopes(text, by_keys, "        ")
    for i, j in text.cells:
        spot = f"(line + {LANES * i}u) * {PITCH}u + column + {LANES * j}u"
        lines += f"        weights[{spot}] = u{i}_{j};\n        slopes[{spot}] = d{i}_{j};\n"
    lines += "        workgroupBarrier();\n"
    lines += text.gather("sum", "slopes", "other_a", "        ")
    lines += text.gather("more", "weights", "other_b", "        ") if by_keys else ""
    lines += "        workgroupBarrier();\n    }\n"
    ones = (f"{text.real}(1)" for _ in range(z.rows))
    lines += text.store("dk" if by_keys else "dq", "sum", mine, iter([text.scale] * z.rows))
    return lines + (text.store("dv", "more", mine, ones) if by_keys else "")


def _mask(text: _Text) -> str:
    """A workgroup has one tile of the mask and adds over the batch entries that share it."""
    z, kernel = text.z, text.kernel
    own, tile, rows = z.own * z.pitch, OTHERS * z.pitch, z.own
    text.shared(own_a=own, own_b=own, other_a=tile, other_b=tile, levels=rows, alongs=rows)
    down, across = (
        f"((launch.size3 + {rows - 1}u) / {rows}u)",
        f"((launch.size4 + {OTHERS - 1}u) / {OTHERS}u)",
    )
    lines = (
        text.place(f"{down} * {across}")
        .replace("let batch =", "let entry =")
        .replace("= batch ", "= entry ")
    )
    lines += f"    let across = {across};\n    let first = tile / across * {rows}u;\n"
    lines += f"    let start = tile % across * {OTHERS}u;\n"
    for d, c in enumerate("xyz"):
        lines += f"    let many_{c} = launch.stride0_{d} == 0u;\n"
        lines += f"    if (many_{c} && {c} > 0u) {{ return; }}\n"
    lines += "".join(f"    var sum{i}_{j} = {text.zero};\n" for i, j in text.cells)
    for d, c in enumerate("xyz"):
        lines += (
            f"    for (var {c}_here = {c}; {c}_here < select({c} + 1u, launch.size{d}, many_{c}); "
            f"{c}_here += 1u) {{\n"
        )
    lines += "        let batch = (x_here * launch.size1 + y_here) * launch.size2 + z_here;\n"
    lines += text.bases("        ", "_here")
    for tile_name, name, start, count in (
        ("own_a", "q", "first", rows), ("own_b", "g", "first", rows),
        ("other_a", "k", "start", OTHERS), ("other_b", "v", "start", OTHERS),
    ):  # fmt: skip
        lines += text.load_tile(tile_name, name, start, count, "        ")
    lines += _load_levels(text, "first", rows, "        ") + "        workgroupBarrier();\n"
    lines += text.multiply("s", "own_a", "other_a", kernel.width, "        ")
    lines += text.multiply("t", "own_b", "other_b", kernel.depth, "        ")
    lines += _slopes(text, False, "        ")
    lines += "".join(f"        sum{i}_{j} += d{i}_{j};\n" for i, j in text.cells)
    lines += "        workgroupBarrier();\n    }}}\n"
    mask = kernel.mask or bool_
    for i, j in text.cells:
        row, key = f"first + line + {LANES * i}u", f"start + column + {LANES * j}u"
        coordinates = ["x", "y", "z", f"({row})", f"({key})"]
        value = text.module.printer.cast(
            f"sum{i}_{j}", compute_type(kernel.dtype), compute_type(mask)
        )
        put = text.module.store(0, text.module.at(0, coordinates), value)
        lines += f"    if ({row} < launch.size3 && {key} < launch.size4) {{ {put} }}\n"
    return lines
