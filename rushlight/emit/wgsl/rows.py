"""Rowwise kernels in WGSL: what the walks along the axis and across columns share.

# Note [Rows in WGSL]
1. Passes that do not use each other's rows are one stage: they read their inputs once and are
   folded together.
2. `walkers` invocations walk one row. Each folds its elements in ascending order; then the walkers'
   results are folded as a tree: walker w takes that of w + half, for half = walkers / 2, ..., 1.
   The halves of a subgroup are exchanged by shuffles where the device found that it can
   (LANES), the others through workgroup memory, in the same order.
3. A very long axis is cut into segments, whose results are folded by walker s % walkers, in
   ascending order, and then by the tree. Either one workgroup walks all segments, or each segment
   has a workgroup of its own. A launch is then several dispatches: for each stage `partial` (a
   result per segment) and `combine`, then `elements`, then `rows`; or, where there are no elements,
   `finish` in place of the last `combine` and of `rows`. Results pass through a scratch buffer of
   two words per value: every row's results, pass by pass, then the partials.
4. Walkers and segments depend on the kernel's input types and on the axis length, never on the
   number of rows, on layouts or addresses, so neither does the order.
5. An invocation without a row walks the last row and stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.dtypes import DType, compute_type
from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.emit.wgsl.types import LANES, NATIVE_INT64, SUBGROUP, is_long, param_text
from rushlight.kernel.shapes import Reduce, Rowwise
from rushlight.scalar.ir import Expr, topological

BATCH = 8


def stages(kernel: Rowwise) -> list[list[int]]:
    """The numbers of the passes of each stage."""
    found: list[int] = []
    for step in kernel.passes:
        needed = [found[int(e.value or 0)] for e in topological([step.body]) if e.op == "row"]
        found.append(max(needed, default=-1) + 1)
    return [[k for k, s in enumerate(found) if s == n] for n in range(max(found, default=-1) + 1)]


class Rows:
    """The parts of a text that both walks use. Subclasses set these before they print."""

    walkers: int
    columns: int  # rows of a workgroup
    segment: int
    other: str  # the invocation that is `half` walkers further
    first: str  # the first walker's invocation

    def __init__(self, module: Module, kernel: Rowwise, cut: bool) -> None:
        self.module, self.kernel, self.cut = module, kernel, cut
        self.stages = stages(kernel)
        self.outputs = len(kernel.outputs)
        self.passes = range(len(kernel.passes))

    # ---- the forms ----

    def whole(self) -> str:
        raise NotImplementedError

    def elements(self) -> str:
        raise NotImplementedError

    def rows(self) -> str:
        raise NotImplementedError

    def partial(self, stage: int) -> str:
        raise NotImplementedError

    def combine(self, stage: int) -> str:
        raise NotImplementedError

    def finish(self, stage: int) -> str:
        raise NotImplementedError

    # ---- formulas as functions ----

    def used(self, roots: Sequence[Expr]) -> list[int]:
        """The inputs of some formulas, ascending."""
        return sorted({int(e.value or 0) for e in topological(list(roots)) if e.op == "arg"})

    def _rows_used(self, roots: Sequence[Expr]) -> dict[int, DType]:
        found = {int(e.value or 0): e.dtype for e in topological(list(roots)) if e.op == "row"}
        return dict(sorted(found.items()))

    def _leaf(self, expr: Expr) -> str:
        if expr.op == "index":
            return self.module.position("at")
        if expr.op == "extent":
            return self.module.position("launch.size1")
        assert isinstance(expr.value, int)
        if expr.op == "row":
            return f"row{expr.value}"
        if expr.op == "param":
            return param_text(expr.value, expr.dtype, self.module.features)
        return f"x{expr.value}"

    def _signature(self, roots: Sequence[Expr]) -> str:
        module = self.module
        taken = ["at: u32"]
        taken += [f"x{i}: {module.type(self.kernel.inputs[i])}" for i in self.used(roots)]
        taken += [f"row{k}: {module.type(d)}" for k, d in self._rows_used(roots).items()]
        return ", ".join(taken)

    def call(self, name: str, roots: Sequence[Expr], at: str, inputs: dict[int, str]) -> str:
        taken = [at, *(inputs[i] for i in self.used(roots))]
        taken += [f"row{k}" for k in self._rows_used(roots)]
        return f"{name}({', '.join(taken)})"

    def functions(self) -> None:
        """Every pass and store as a function of one position."""
        module, kernel = self.module, self.kernel
        for k in self.passes:
            body = kernel.passes[k].body
            lines, roots = module.printer.block([body], self._leaf, "t", "    ")
            head = f"fn pass{k}({self._signature([body])}) -> {module.type(body.dtype)}"
            module.globals += f"{head} {{\n{lines}    return {roots[0]};\n}}\n"
        for kind in ("element", "row"):
            chosen = self.stored(kind)
            if not chosen:
                continue
            stores = [kernel.stores[n] for n in chosen]
            fields = "".join(f"    y{n}: {module.type(kernel.outputs[n])},\n" for n in chosen)
            lines, roots = module.printer.block(stores, self._leaf, "t", "    ")
            name = kind.capitalize()
            module.globals += (
                f"struct {name} {{\n{fields}}}\n"
                f"fn {kind}_of({self._signature(stores)}) -> {name} {{\n{lines}"
                f"    return {name}({', '.join(roots)});\n}}\n"
            )

    def stored(self, kind: str) -> list[int]:
        return [n for n, each in enumerate(self.kernel.kinds) if each == kind]

    def bodies(self, some: Sequence[int]) -> list[Expr]:
        return [self.kernel.passes[k].body for k in some]

    def stores(self, kind: str) -> list[Expr]:
        return [self.kernel.stores[n] for n in self.stored(kind)]

    # ---- folds ----

    def zero(self, k: int) -> str:
        return identity(self.module, self.kernel.passes[k])

    def fold(self, k: int, left: str, right: str) -> str:
        return fold(self.module, self.kernel.passes[k], left, right)

    def tree(self, k: int, total: str, result: str, indent: str = "    ") -> str:
        """Fold the walkers' `total`s: rule 2 of Note [Rows in WGSL]."""
        if self.walkers == 1:
            return f"{indent}let {result} = {total};\n"
        dtype = self.kernel.passes[k].body.dtype
        shuffled = self._shuffled(dtype)
        text = f"{indent}var {result} = {total};\n"
        above = self.walkers // (shuffled or 1)
        if above > 1:
            text += self._tree_in_memory(k, result, shuffled or 1, indent)
        half = min(shuffled, self.walkers) // 2
        while half:
            other = f"subgroupShuffleXor({result}, {half}u)"
            text += f"{indent}{result} = {self.fold(k, result, other)};\n"
            half //= 2
        return text

    def _shuffled(self, dtype: DType) -> int:
        """Walkers whose results are exchanged by shuffles."""
        fits = LANES in self.module.features and self.kernel.vector == "axis"
        if not fits or compute_type(dtype).itemsize != 4 or dtype.kind not in "iuf":
            return 0
        return SUBGROUP

    def _tree_in_memory(self, k: int, result: str, until: int, indent: str) -> str:
        """Fold down to `until` walkers, and give their results to all."""
        shared = shared_array(self.module, self.kernel.passes[k].body.dtype)
        joined = self.fold(k, f"{shared}[lane]", f"{shared}[{self.other}]")
        place = self.first if until == 1 else f"{self.first} + walker % {until}u"
        return (
            f"{indent}{shared}[lane] = {result};\n{indent}workgroupBarrier();\n"
            f"{indent}for (var half = {self.walkers // 2}u; half >= {until}u; half = half / 2u) {{\n"
            f"{indent}    if (walker < half) {{ {shared}[lane] = {joined}; }}\n"
            f"{indent}    workgroupBarrier();\n{indent}}}\n"
            f"{indent}{result} = {shared}[{place}];\n{indent}workgroupBarrier();\n"
        )

    # ---- rows' values ----

    def row_values(self, inputs: dict[int, str]) -> str:
        """Evaluate what is one per row."""
        roots = self.stores("row")
        return f"    let mine = {self.call('row_of', roots, '0u', inputs)};\n" if roots else ""

    def row_puts(self, at: str) -> str:
        """Store what is one per row; `at` is an operand's place, a format of its number."""
        chosen = self.stored("row")
        if not chosen:
            return ""
        puts = [self.module.store(n, at.format(k=n), f"mine.y{n}") for n in chosen]
        mine = "present && walker == 0u" if self.walkers > 1 else "present"
        return f"    if ({mine}) {{\n" + "".join(f"        {p}\n" for p in puts) + "    }\n"

    # ---- scratch ----

    def row_place(self, k: int, task: str = "task") -> str:
        return f"({k}u * tasks + {task}) * 2u"

    def partial_place(self, k: int, segment: str, task: str = "task") -> str:
        return (
            f"({len(self.passes)}u * tasks + ({k}u * tasks + {task}) * segments + {segment}) * 2u"
        )

    def earlier(self, stage: int, task: str = "task", suffix: str = "") -> str:
        """The results of the passes before a stage."""
        return "".join(
            f"    let row{k}{suffix} = "
            f"{self.kept(self.row_place(k, task), self.kernel.passes[k].body.dtype)};\n"
            for some in self.stages[:stage]
            for k in some
        )

    def _scratch(self, at: str) -> str:
        return self.module.access[-1].word(at)

    def keep(self, k: int, at: str, value: str) -> str:
        low, high = _words(self.module, value, self.kernel.passes[k].body.dtype)
        text = f"{self._scratch(at)} = {low};"
        return text + (f" {self._scratch(f'{at} + 1u')} = {high};" if high else "")

    def kept(self, at: str, dtype: DType) -> str:
        low, high = self._scratch(at), self._scratch(f"{at} + 1u")
        kind = self.module.type(dtype)
        if dtype.itemsize == 8:
            if is_long(dtype) and NATIVE_INT64 not in self.module.features:
                return f"vec2<u32>({low}, {high})"
            return f"bitcast<{kind}>(u64({low}) | (u64({high}) << 32u))"
        return f"({low} != 0u)" if dtype.kind == "b" else f"bitcast<{kind}>({low})"

    def partials(self, k: int, totals: Sequence[tuple[str, str]]) -> str:
        """Fold the partials of each row into its total, BATCH of them on their way at once.

        `totals` are a variable and the row's number each.
        """
        dtype, step = self.kernel.passes[k].body.dtype, self.walkers
        text = "".join(f"    var {name} = {self.zero(k)};\n" for name, _ in totals)
        text += "    {\n    var s = walker;\n"
        for batch in (BATCH, 1):
            text += f"    for (; s + {(batch - 1) * step}u < segments; s += {batch * step}u) {{\n"
            for n in range(batch):
                for name, task in totals:
                    at = self.partial_place(k, f"s + {n * step}u", task)
                    text += f"        let {name}_{n} = {self.kept(at, dtype)};\n"
            for n in range(batch):
                for name, _ in totals:
                    text += f"        {name} = {self.fold(k, name, f'{name}_{n}')};\n"
            text += "    }\n"
        return text + "    }\n"

    def combined(self, k: int) -> str:
        """Fold the partials of a row."""
        folded = self.partials(k, [(f"total{k}", "task")])
        return folded + self.tree(k, f"total{k}", f"row{k}")


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
