"""Rowwise kernels along the axis in WGSL.

# Note [Tiles of a row in WGSL]
1. A chunk is 16 bytes of the narrowest input, or four elements. A tile is `walkers` invocations by
   `turns` chunks: chunk c of a tile belongs to walker c % walkers. An invocation loads its chunks
   of a tile before it folds them.
2. A row of one tile stays in registers for all passes and stores.
3. Chunks are read and written as vectors where the axis and every address are multiples of them
   ("v"), else element by element, in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rushlight.core.dtypes import DType
from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.emit.wgsl.rows import Rows
from rushlight.kernel.shapes import Rowwise

MOST_ELEMENTS = ((1, 32), (4, 16))  # inputs at most, elements that an invocation holds of each
SEGMENT = 8192
CUT = 16384  # a longer axis is cut into segments
MANY_ROWS = 512  # from here on a workgroup walks all segments of a row


class Shape(NamedTuple):
    """Walkers of a row, chunks of each in a tile, and the way: see `way_of`."""

    walkers: int
    turns: int
    way: str
    vectors: bool

    @property
    def form(self) -> str:
        return f"{self.walkers}.{self.turns}{self.way}{'v' if self.vectors else ''}"


def shape_of(form: str) -> Shape:
    found = re.fullmatch(r"(\d+)\.(\d+)([hws])(v?)", form.split("/")[0])
    assert found is not None
    walkers, turns, way, vectors = found.groups()
    return Shape(int(walkers), int(turns), way, bool(vectors))


def is_vector_type(dtype: DType) -> bool:
    return dtype.itemsize == 4 or (dtype.itemsize == 2 and dtype.kind == "f")


def chunk_of(kernel: Rowwise) -> int:
    """Elements of a chunk, by the inputs' types alone."""
    return 8 if any(d.itemsize == 2 and d.kind == "f" for d in kernel.inputs) else 4


def tile_of(kernel: Rowwise, axis: int) -> tuple[int, int, str]:
    """Walkers, turns and way: "h" held in registers, "w" walked in tiles, "s" in segments."""
    chunk = chunk_of(kernel)
    most = next((n for few, n in MOST_ELEMENTS if len(kernel.inputs) <= few), 8) // chunk
    for power in range(6):
        if axis <= chunk << power:
            return 1 << power, 1, "h"
    turns = 1
    while turns < most:
        turns *= 2
        if axis <= 32 * turns * chunk:
            return 32, turns, "h"
    for walkers in (64, 128, 256):
        if axis <= walkers * most * chunk:
            return walkers, most, "h"
    return GROUP, most, "s" if axis > CUT else "w"


def vectors_fit(
    kernel: Rowwise, sizes: Sequence[int], offsets: Sequence[int], strides: Sequence[int]
) -> bool:
    """Whether chunks of every operand that moves are aligned."""
    chunk = chunk_of(kernel)
    if kernel.anomaly is not None or not sizes[1] or sizes[1] % chunk or sizes[2] != 1:
        return False
    kinds = (*kernel.kinds, *["element"] * len(kernel.inputs))
    for k, dtype in enumerate(kernel.outputs + kernel.inputs):
        if kinds[k] == "row" or kernel.steps[k] != "1" or not is_vector_type(dtype):
            continue
        unit = min(16 // dtype.itemsize, chunk)
        if offsets[k] % unit or (sizes[0] > 1 and strides[3 * k] % unit):
            return False
    return True


def whole_words(kernel: Rowwise) -> frozenset[int]:
    """The outputs of which the vector form writes whole words."""
    return frozenset(
        n
        for n, dtype in enumerate(kernel.outputs)
        if kernel.kinds[n] == "element" and kernel.steps[n] == "1" and is_vector_type(dtype)
    )


class AxisRows(Rows):
    """Prints the forms of one kernel."""

    def __init__(self, module: Module, kernel: Rowwise, form: str) -> None:
        super().__init__(module, kernel, "/" in form)
        shape = shape_of(form)
        self.walkers, self.turns, self.way, self.vectors = shape
        self.columns = GROUP // self.walkers
        self.segment = SEGMENT
        self.other, self.first = "lane + half", f"column * {self.walkers}u"
        self.chunk = chunk_of(kernel)
        self.tile = self.walkers * self.turns * self.chunk
        self.functions()

    # ---- the forms ----

    def whole(self) -> str:
        """All passes and stores in one dispatch."""
        text = self._head() + self._still()
        every = [*range(len(self.kernel.inputs))]
        if self.way == "h":
            text += self._places("0u") + self._load(self._moving(every), "launch.size1", "    ")
        for some in self.stages:
            text += self._stage(some)
        text += self.row_values(self._still_names())
        elements = self._elements("0u", "launch.size1")
        wait = "    workgroupBarrier();\n" if elements and self.stored("row") else ""
        return self.module.text(GROUP, text + elements + wait + self.row_puts("base{k}"))

    def partial(self, stage: int) -> str:
        text = self._head() + self._still() + self.earlier(stage) + self._segment_bounds("segment")
        text += self._folded(self.stages[stage], "begin", "limit", "    ")
        for k in self.stages[stage]:
            text += self.tree(k, f"sum{k}", f"row{k}")
            keep = self.keep(k, self.partial_place(k, "segment"), f"row{k}")
            text += f"    if (present && walker == 0u) {{ {keep} }}\n"
        return self.module.text(GROUP, text)

    def combine(self, stage: int) -> str:
        text = self._head(per_segment=False)
        for k in self.stages[stage]:
            text += self.combined(k)
            keep = self.keep(k, self.row_place(k), f"row{k}")
            text += f"    if (present && walker == 0u) {{ {keep} }}\n"
        return self.module.text(GROUP, text)

    def finish(self, stage: int) -> str:
        text = self._head(per_segment=False) + self._still() + self.earlier(stage)
        text += "".join(self.combined(k) for k in self.stages[stage])
        text += self.row_values(self._still_names())
        return self.module.text(GROUP, text + self.row_puts("base{k}"))

    def elements(self) -> str:
        text = self._head() + self._still() + self.earlier(len(self.stages))
        text += self._segment_bounds("segment") + self._elements("begin", "limit")
        return self.module.text(GROUP, text)

    def rows(self) -> str:
        text = self._head(per_segment=False) + self._still() + self.earlier(len(self.stages))
        text += self.row_values(self._still_names())
        return self.module.text(GROUP, text + self.row_puts("base{k}"))

    # ---- pieces ----

    def _head(self, per_segment: bool = True) -> str:
        text, tile = "    let tasks = launch.size0 * launch.size2;\n", "group"
        if self.cut or self.way == "s":
            text += f"    let segments = (launch.size1 + {SEGMENT - 1}u) / {SEGMENT}u;\n"
        if self.cut and per_segment:
            text += "    let segment = group % segments;\n"
            tile = "(group / segments)"
        text += (
            f"    let walker = lane % {self.walkers}u;\n"
            f"    let column = lane / {self.walkers}u;\n"
            f"    let task = min({tile} * {self.columns}u + column, tasks - 1u);\n"
            f"    let present = {tile} * {self.columns}u + column < tasks;\n"
            "    let o = task / launch.size2;\n    let i = task % launch.size2;\n"
        )
        for k in range(self.outputs + len(self.kernel.inputs)):
            text += f"    let base{k} = o * launch.stride{k}_0 + i * launch.stride{k}_2;\n"
        return text

    def _segment_bounds(self, segment: str, indent: str = "    ") -> str:
        return (
            f"{indent}let begin = {segment} * {SEGMENT}u;\n"
            f"{indent}let limit = min(begin + {SEGMENT}u, launch.size1);\n"
        )

    def _step(self, k: int) -> str:
        return self.kernel.steps[k]

    def _moving(self, inputs: Sequence[int]) -> list[int]:
        return [i for i in inputs if self._step(self.outputs + i) != "0"]

    def _still(self) -> str:
        """The inputs that do not move along the axis."""
        text = ""
        roots = [*self.bodies(self.passes), *self.kernel.stores]
        for i in self.used(roots):
            k, dtype = self.outputs + i, self.kernel.inputs[i]
            if self._step(k) != "0" and i not in self.used(self.stores("row")):
                continue
            kind = self.module.type(dtype)
            text += f"    var still{i}: {kind};\n"
            text += (
                f"    if (launch.size1 > 0u) {{ still{i} = {self.module.load(k, f'base{k}')}; }}\n"
            )
        return text

    def _still_names(self) -> dict[int, str]:
        return {i: f"still{i}" for i in range(len(self.kernel.inputs))}

    def _places(self, first: str) -> str:
        return "".join(
            f"    let at{u} = {first} + ({u * self.walkers}u + walker) * {self.chunk}u;\n"
            for u in range(self.turns)
        )

    def _by_vector(self, k: int) -> bool:
        dtype = self.module.layout.operands[k].dtype
        whole = self.vectors and self._step(k) == "1" and is_vector_type(dtype)
        return whole and self.module.access[k].vectors

    def _load(self, inputs: Sequence[int], limit: str, indent: str) -> str:
        """Load this invocation's chunks of a tile into registers.

        Vectors are loaded without a branch, so that all are on their way at once: the last chunk
        in place of those beyond the end.
        """
        text, loads = "", ""
        for u in range(self.turns):
            lines = ""
            for i in inputs:
                k = self.outputs + i
                if self._by_vector(k):
                    text += self._load_vectors(i, u, limit, indent)
                    continue
                kind = self.module.type(self.kernel.inputs[i])
                for j in range(self.chunk):
                    text += f"{indent}var h{i}_{u}_{j}: {kind};\n"
                    at = f"base{k} + (at{u} + {j}u) * launch.stride{k}_1"
                    load = f"h{i}_{u}_{j} = {self.module.load(k, at)};"
                    if not self.vectors:
                        load = f"if (at{u} + {j}u < {limit}) {{ {load} }}"
                    lines += f"{indent}    {load}\n"
            loads += f"{indent}if (at{u} < {limit}) {{\n{lines}{indent}}}\n" if lines else ""
        return text + loads

    def _words(self, dtype: DType) -> int:
        return self.chunk * dtype.itemsize // 4

    def _load_vectors(self, i: int, u: int, limit: str, indent: str) -> str:
        k, dtype = self.outputs + i, self.kernel.inputs[i]
        array, bits = self.module.access[k].array, 2 if dtype.itemsize == 4 else 3
        at = f"min(at{u}, {limit} - {self.chunk}u)"
        place = f"(launch.offset{k} + base{k} + {at}) >> {bits}u"
        return "".join(
            f"{indent}let w{i}_{u}_{m} = {array}[({place}) + {m}u];\n"
            for m in range(self._words(dtype) // 4)
        )

    def _value(self, i: int, u: int, j: int) -> str:
        k, dtype = self.outputs + i, self.kernel.inputs[i]
        if self._step(k) == "0":
            return f"still{i}"
        if not self._by_vector(k):
            return f"h{i}_{u}_{j}"
        word, byte = divmod(j * dtype.itemsize, 4)
        return self.module.decoded(k, f"w{i}_{u}_{word // 4}.{'xyzw'[word % 4]}", f"{8 * byte}u")

    def _each(self, u: int, limit: str, indent: str, lines: Sequence[str]) -> str:
        """Statements for the elements of a chunk, guarded by the axis' end."""
        if self.vectors:
            body = "".join(f"{indent}    {line}\n" for line in lines)
            return f"{indent}if (at{u} < {limit}) {{\n{body}{indent}}}\n"
        return "".join(
            f"{indent}if (at{u} + {j}u < {limit}) {{ {line} }}\n" for j, line in enumerate(lines)
        )

    def _fold_tile(self, some: Sequence[int], limit: str, indent: str) -> str:
        text = ""
        for u in range(self.turns):
            lines = []
            for j in range(self.chunk):
                each = []
                for k in some:
                    body = [self.kernel.passes[k].body]
                    inputs = {i: self._value(i, u, j) for i in self.used(body)}
                    made = self.call(f"pass{k}", body, f"at{u} + {j}u", inputs)
                    each.append(f"sum{k} = {self.fold(k, f'sum{k}', made)};")
                lines.append(" ".join(each))
            text += self._each(u, limit, indent, lines)
        return text

    def _folded(self, some: Sequence[int], begin: str, limit: str, indent: str) -> str:
        """Fold [begin, limit) into sum0, sum1, ..."""
        text = "".join(f"{indent}var sum{k} = {self.zero(k)};\n" for k in some)
        if self.way == "h":
            return text + self._fold_tile(some, limit, indent)
        inner = indent + "    "
        text += f"{indent}for (var start = {begin}; start < {limit}; start += {self.tile}u) {{\n"
        text += self._places("start").replace("    let", f"{inner}let")
        text += self._load(self._moving(self.used(self.bodies(some))), limit, inner)
        return text + self._fold_tile(some, limit, inner) + f"{indent}}}\n"

    def _stage(self, some: Sequence[int]) -> str:
        if self.way != "s":
            text = self._folded(some, "0u", "launch.size1", "    ")
            return text + "".join(self.tree(k, f"sum{k}", f"row{k}") for k in some)
        text = "".join(f"    var total{k} = {self.zero(k)};\n" for k in some)
        text += "    for (var s = 0u; s < segments; s += 1u) {\n"
        text += self._segment_bounds("s", "        ")
        text += self._folded(some, "begin", "limit", "        ")
        for k in some:
            text += self.tree(k, f"sum{k}", f"part{k}", "        ")
            joined = self.fold(k, f"total{k}", f"part{k}")
            text += f"        if (s % {self.walkers}u == walker) {{ total{k} = {joined}; }}\n"
        text += "    }\n"
        return text + "".join(self.tree(k, f"total{k}", f"row{k}") for k in some)

    def _elements(self, begin: str, limit: str) -> str:
        if not self.stored("element"):
            return ""
        if self.way == "h":
            return self._store_tile(limit, "    ")
        text = f"    for (var start = {begin}; start < {limit}; start += {self.tile}u) {{\n"
        text += self._places("start").replace("    let", "        let")
        text += self._load(self._moving(self.used(self.stores("element"))), limit, "        ")
        return text + self._store_tile(limit, "        ") + "    }\n"

    def _store_tile(self, limit: str, indent: str) -> str:
        text, roots = "", self.stores("element")
        inner = indent + "    "
        for u in range(self.turns):
            made = []
            for j in range(self.chunk):
                inputs = {i: self._value(i, u, j) for i in self.used(roots)}
                made.append(self.call("element_of", roots, f"at{u} + {j}u", inputs))
            if not self.vectors:
                for j, value in enumerate(made):
                    puts = " ".join(self._put(n, u, j, "y") for n in self.stored("element"))
                    guard = f"present && at{u} + {j}u < {limit}"
                    text += f"{indent}if ({guard}) {{ let y = {value}; {puts} }}\n"
                continue
            text += f"{indent}if (present && at{u} < {limit}) {{\n"
            for j, value in enumerate(made):
                text += f"{inner}let y{j} = {value};\n"
            for n in self.stored("element"):
                if self._by_vector(n):
                    text += self._put_vectors(n, u, inner)
                else:
                    text += "".join(
                        f"{inner}{self._put(n, u, j, f'y{j}')}\n" for j in range(self.chunk)
                    )
            text += f"{indent}}}\n"
        return text

    def _put(self, n: int, u: int, j: int, value: str) -> str:
        at = f"base{n} + (at{u} + {j}u) * launch.stride{n}_1"
        return self.module.store(n, at, f"{value}.y{n}")

    def _put_vectors(self, n: int, u: int, indent: str) -> str:
        dtype, array = self.kernel.outputs[n], self.module.access[n].array
        values = [f"y{j}.y{n}" for j in range(self.chunk)]
        if dtype.itemsize == 4:
            words = [v if dtype.kind == "u" else f"bitcast<u32>({v})" for v in values]
        else:
            halves = [self.module.encoded(n, v) for v in values]
            pairs = zip(halves[::2], halves[1::2], strict=True)
            words = [f"{low} | ({high} << 16u)" for low, high in pairs]
        word = f"((launch.offset{n} + base{n} + at{u}) >> {0 if dtype.itemsize == 4 else 1}u)"
        if len(words) % 4:
            return "".join(
                f"{indent}{array}[{word} >> 2u][({word} + {m}u) & 3u] = {each};\n"
                for m, each in enumerate(words)
            )
        return "".join(
            f"{indent}{array}[({word} >> 2u) + {m}u] = "
            f"vec4<u32>({', '.join(words[4 * m : 4 * m + 4])});\n"
            for m in range(len(words) // 4)
        )
