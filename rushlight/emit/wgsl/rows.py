"""Rowwise kernels in WGSL.

# Note [Rows in WGSL]
1. `walkers` invocations walk one row together, each folding every walkers-th element in order; then
   the walkers' results are folded as a tree in workgroup memory. A workgroup has GROUP / walkers
   rows ("columns"). Neighbouring invocations read neighbouring elements: they are walkers of one
   row along the axis, and columns otherwise.
2. A very long axis is cut into chunks of elements, each with a workgroup of its own. A launch
   is then several dispatches: for each pass `partial` (a result per chunk) and `combine` (fold
   those), then `elements`, then `rows`. Results pass through a scratch buffer of two words per
   value: every row's results, pass by pass, then the partials.
3. The form depends on the kernel and on the axis length, never on the number of rows, so neither
   does the order.
"""

from __future__ import annotations

from rushlight.core.dtypes import DType, compute_type
from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.emit.wgsl.types import NATIVE_INT64, is_long
from rushlight.kernel.shapes import Reduce, Rowwise

AXIS_CHUNK = 4096
COLUMN_CHUNK = 512


def chunk_of(kernel: Rowwise) -> int:
    """Elements of a chunk: rule 2 of Note [Rows in WGSL]."""
    return AXIS_CHUNK if kernel.vector == "axis" else COLUMN_CHUNK


class Rows:
    """Prints the forms of one kernel."""

    def __init__(self, module: Module, kernel: Rowwise, walkers: int, chunked: bool) -> None:
        self.module = module
        self.kernel = kernel
        self.walkers = walkers
        self.columns = GROUP // walkers
        self.chunked = chunked
        self.chunk = chunk_of(kernel)
        self.along = kernel.vector == "axis"

    # ---- the forms ----

    def whole(self) -> str:
        """All passes and stores in one dispatch."""
        passes = "".join(self._pass(k) for k in range(len(self.kernel.passes)))
        return self.module.text(GROUP, self._head() + passes + self._stores())

    def partial(self, k: int) -> str:
        keep = (
            f"    if (present && walker == 0u) {{ "
            f"{self._keep(self._partial_place('chunk'), f'row{k}')} }}\n"
        )
        return self.module.text(GROUP, self._head() + self._earlier(k) + self._pass(k) + keep)

    def combine(self, k: int) -> str:
        """One workgroup row of walkers folds the partials of a row."""
        step = self.kernel.passes[k]
        dtype = step.body.dtype
        value = self._kept(self._partial_place("a"), dtype)
        text = (
            f"    var sum{k} = {identity(self.module, step)};\n"
            f"    for (var a = walker; a < select(0u, chunks, present); a += {self.walkers}u) {{\n"
            f"        sum{k} = {fold(self.module, step, f'sum{k}', value)};\n    }}\n"
        )
        keep = (
            f"    if (present && walker == 0u) {{ {self._keep(self._row_place(k), f'row{k}')} }}\n"
        )
        return self.module.text(GROUP, self._head(per_chunk=False) + text + self._tree(k) + keep)

    def elements(self) -> str:
        return self.module.text(
            GROUP, self._head() + self._earlier(len(self.kernel.passes)) + self._element_stores()
        )

    def rows(self) -> str:
        head = self._head(per_chunk=False) + self._earlier(len(self.kernel.passes))
        values, puts = self._row_stores()
        return self.module.text(GROUP, head + values + puts)

    # ---- pieces ----

    def _head(self, per_chunk: bool = True) -> str:
        """The row of this invocation, and its begin and end on the axis."""
        text = ""
        tile = "group"
        if self.chunked:
            text = f"    let chunks = (launch.size1 + {self.chunk - 1}u) / {self.chunk}u;\n"
            text += "    let tasks = launch.size0 * launch.size2;\n"
        if self.chunked and per_chunk:
            text += "    let chunk = group % chunks;\n"
            tile = "(group / chunks)"
        if self.walkers > 1:
            by, walker, column = (
                (self.walkers, "%", "/") if self.along else (self.columns, "/", "%")
            )
            text += (
                f"    let walker = lane {walker} {by}u;\n    let column = lane {column} {by}u;\n"
            )
        text += (
            f"    let task = {tile} * {self.columns}u + "
            f"{'column' if self.walkers > 1 else 'lane'};\n"
            "    let present = task < launch.size0 * launch.size2;\n"
            "    let o = task / max(launch.size2, 1u);\n"
            "    let i = task % max(launch.size2, 1u);\n"
        )
        if self.chunked and per_chunk:
            text += f"    let begin = chunk * {self.chunk}u + walker;\n"
            return text + (
                f"    let limit = select(0u, min((chunk + 1u) * {self.chunk}u, launch.size1), "
                "present);\n"
            )
        return text + "    let limit = select(0u, launch.size1, present);\n"

    def _walk(self) -> str:
        begin = "begin" if self.chunked else "walker" if self.walkers > 1 else "0u"
        return f"    for (var a = {begin}; a < limit; a += {self.walkers}u) {{\n"

    def _inputs(self, axis: str) -> dict[int, str]:
        first = len(self.kernel.outputs)
        return {
            j: self.module.at(first + j, ["o", axis, "i"]) for j in range(len(self.kernel.inputs))
        }

    def _pass(self, k: int) -> str:
        module, step = self.module, self.kernel.passes[k]
        leaf = module.leaves(len(self.kernel.outputs), self._inputs("a"), "a", "launch.size1")
        lines, roots = module.printer.block([step.body], leaf, f"p{k}_", "        ")
        text = (
            f"    var sum{k} = {identity(module, step)};\n{self._walk()}{lines}"
            f"        sum{k} = {fold(module, step, f'sum{k}', roots[0])};\n    }}\n"
        )
        return text + (self._tree(k) if self.walkers > 1 else f"    let row{k} = sum{k};\n")

    def _tree(self, k: int) -> str:
        step = self.kernel.passes[k]
        shared = shared_array(self.module, step.body.dtype)
        other = "lane + half" if self.along else f"lane + half * {self.columns}u"
        first = f"column * {self.walkers}u" if self.along else "column"
        joined = fold(self.module, step, f"{shared}[lane]", f"{shared}[{other}]")
        return (
            f"    {shared}[lane] = sum{k};\n    workgroupBarrier();\n"
            f"    for (var half = {self.walkers // 2}u; half > 0u; half = half / 2u) {{\n"
            f"        if (walker < half) {{ {shared}[lane] = {joined}; }}\n        "
            f"workgroupBarrier();\n    }}\n"
            f"    let row{k} = {shared}[{first}];\n    workgroupBarrier();\n"
        )

    def _stores(self) -> str:
        """Evaluate row values first and store them last: an output may be an input's memory."""
        values, puts = self._row_stores()
        elements = self._element_stores()
        wait = "    workgroupBarrier();\n" if elements and puts and self.walkers > 1 else ""
        return values + elements + wait + puts

    def _element_stores(self) -> str:
        module, kernel = self.module, self.kernel
        chosen = [n for n, kind in enumerate(kernel.kinds) if kind == "element"]
        if not chosen:
            return ""
        leaf = module.leaves(len(kernel.outputs), self._inputs("a"), "a", "launch.size1")
        lines, roots = module.printer.block(
            [kernel.stores[n] for n in chosen], leaf, "e", "        "
        )
        puts = [
            module.store(n, module.at(n, ["o", "a", "i"]), root)
            for n, root in zip(chosen, roots, strict=True)
        ]
        return self._walk() + lines + "".join(f"        {put}\n" for put in puts) + "    }\n"

    def _row_stores(self) -> tuple[str, str]:
        """The statements that evaluate, and those that store."""
        module, kernel = self.module, self.kernel
        chosen = [n for n, kind in enumerate(kernel.kinds) if kind == "row"]
        if not chosen:
            return "", ""
        leaf = module.leaves(len(kernel.outputs), self._inputs("0u"), "0u", "launch.size1")
        lines, roots = module.printer.block([kernel.stores[n] for n in chosen], leaf, "r", "    ")
        puts = [
            module.store(n, module.at(n, ["o", "0u", "i"]), root)
            for n, root in zip(chosen, roots, strict=True)
        ]
        mine = "present && walker == 0u" if self.walkers > 1 else "present"
        return lines, f"    if ({mine}) {{\n" + "".join(
            f"        {put}\n" for put in puts
        ) + "    }\n"

    # ---- scratch ----

    def _row_place(self, k: int) -> str:
        return f"({k}u * tasks + task) * 2u"

    def _partial_place(self, chunk: str) -> str:
        return f"({len(self.kernel.passes)}u * tasks + task * chunks + {chunk}) * 2u"

    def _earlier(self, count: int) -> str:
        """The results of the passes before pass `count`."""
        return "".join(
            f"    let row{k} = "
            f"{self._kept(self._row_place(k), self.kernel.passes[k].body.dtype)};\n"
            for k in range(count)
        )

    def _scratch(self) -> str:
        return self.module.access[-1].array

    def _keep(self, at: str, value: str) -> str:
        k = int(value.removeprefix("row"))
        dtype = self.kernel.passes[k].body.dtype
        low, high = _words(self.module, value, dtype)
        array = self._scratch()
        return f"{array}[{at}] = {low};" + (f" {array}[{at} + 1u] = {high};" if high else "")

    def _kept(self, at: str, dtype: DType) -> str:
        low, high = f"{self._scratch()}[{at}]", f"{self._scratch()}[{at} + 1u]"
        kind = self.module.type(dtype)
        if dtype.itemsize == 8:
            if is_long(dtype) and NATIVE_INT64 not in self.module.features:
                return f"vec2<u32>({low}, {high})"
            return f"bitcast<{kind}>(u64({low}) | (u64({high}) << 32u))"
        return f"({low} != 0u)" if dtype.kind == "b" else f"bitcast<{kind}>({low})"


def _words(module: Module, value: str, dtype: DType) -> tuple[str, str]:
    if dtype.itemsize == 8:
        if is_long(dtype) and NATIVE_INT64 not in module.features:
            return f"{value}.x", f"{value}.y"
        return f"u32(bitcast<u64>({value}) & 0xfffffffflu)", f"u32(bitcast<u64>({value}) >> 32u)"
    return (f"select(0u, 1u, {value})" if dtype.kind == "b" else f"bitcast<u32>({value})"), ""


def shared_array(module: Module, dtype: DType) -> str:
    """A workgroup array for one value per invocation."""
    name = f"shared_{compute_type(dtype).name}"
    line = f"var<workgroup> {name}: array<{module.type(dtype)}, {GROUP}>;\n"
    if line not in module.globals:
        module.globals += line
    return name


def identity(module: Module, step: Reduce) -> str:
    dtype = step.body.dtype
    if step.kind in ("sum", "prod"):
        return module.printer.number(0 if step.kind == "sum" else 1, dtype)
    least = step.kind == "max"
    if dtype.kind == "f":
        return module.printer.number(float("-inf") if least else float("inf"), dtype)
    if dtype.kind == "b":
        return "false" if least else "true"
    bits = dtype.itemsize * 8
    low, high = (
        (0, (1 << bits) - 1) if dtype.kind == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    )
    return module.printer.number(low if least else high, dtype)


def fold(module: Module, step: Reduce, left: str, right: str) -> str:
    op = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}[step.kind]
    return module.printer.apply(op, step.body.dtype, [left, right])
