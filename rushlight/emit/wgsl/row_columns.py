"""Rowwise kernels across columns in WGSL: neighbouring invocations have neighbouring rows.

A row is a column of memory here. An invocation walks `wide` neighbouring ones: four where they can
be read as vectors, else one. Walker w folds elements w, w + walkers, ... of a row or segment.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.emit.wgsl.rows import Rows, shared_array
from rushlight.kernel.shapes import Rowwise

LONG = 64  # a longer axis has several walkers
WALKERS = 8
SEGMENT = 256
CUT = 1024  # a longer axis is cut into segments
WIDE = 4  # columns of a vector
UNROLLED = 4  # elements of a row that are on their way at once
PLAIN = 4  # bytes of an element that vectors hold


def walkers_of(axis: int) -> int:
    return WALKERS if axis > LONG else 1


def vectors_fit(
    kernel: Rowwise, sizes: Sequence[int], offsets: Sequence[int], strides: Sequence[int]
) -> bool:
    """Whether four neighbouring columns of every operand are one aligned vector, or one element."""
    if kernel.vector != "inner" or kernel.anomaly is not None or sizes[2] % WIDE:
        return False
    for k, dtype in enumerate(kernel.outputs + kernel.inputs):
        if kernel.steps[k] == "0" and k >= len(kernel.outputs):
            continue
        if kernel.steps[k] != "1" or dtype.itemsize != PLAIN:
            return False
        if offsets[k] % WIDE or strides[3 * k] % WIDE or strides[3 * k + 1] % WIDE:
            return False
    return True


class ColumnRows(Rows):
    """Prints the forms of one kernel; a form is "walkers x wide", and a stage."""

    def __init__(self, module: Module, kernel: Rowwise, form: str) -> None:
        super().__init__(module, kernel, "/" in form)
        walkers, wide = form.split("/")[0].split("x")
        self.walkers, self.wide = int(walkers), int(wide)
        self.columns = GROUP // self.walkers
        self.segment = SEGMENT
        self.other, self.first = f"lane + half * {self.columns}u", "column"
        self.functions()

    # ---- the forms ----

    def whole(self) -> str:
        """All passes and stores in one dispatch."""
        text = self._head()
        for some in self.stages:
            text += self._folded(some, "launch.size1") + self._trees(some)
        values = "".join(self._row_values(q) for q in range(self.wide))
        elements = self._elements("launch.size1")
        wait = "    workgroupBarrier();\n" if elements and self.stored("row") else ""
        return self.module.text(GROUP, text + values + elements + wait + self._row_puts())

    def partial(self, stage: int) -> str:
        text = self._head() + self._earlier(stage) + self._folded(self.stages[stage], "limit")
        text += self._trees(self.stages[stage])
        return self.module.text(GROUP, text + self._keeps(stage, partial=True))

    def combine(self, stage: int) -> str:
        text = self._head(per_segment=False) + self._combined(stage)
        return self.module.text(GROUP, text + self._keeps(stage, partial=False))

    def finish(self, stage: int) -> str:
        text = self._head(per_segment=False) + self._earlier(stage) + self._combined(stage)
        text += "".join(self._row_values(q) for q in range(self.wide))
        return self.module.text(GROUP, text + self._row_puts())

    def elements(self) -> str:
        text = self._head() + self._earlier(len(self.stages)) + self._elements("limit")
        return self.module.text(GROUP, text)

    def rows(self) -> str:
        text = self._head(per_segment=False) + self._earlier(len(self.stages))
        text += "".join(self._row_values(q) for q in range(self.wide))
        return self.module.text(GROUP, text + self._row_puts())

    # ---- pieces ----

    def _combined(self, stage: int) -> str:
        """Fold the partials of this invocation's rows."""
        text = ""
        for k in self.stages[stage]:
            columns = range(self.wide)
            text += self.partials(k, [(f"sum{k}_{q}", f"(task + {q}u)") for q in columns])
        return text + self._trees(self.stages[stage])

    def _head(self, per_segment: bool = True) -> str:
        """The first row of this invocation, and its begin and end on the axis."""
        text = "    let tasks = launch.size0 * launch.size2;\n"
        tile = "group"
        if self.cut:
            text += f"    let segments = (launch.size1 + {SEGMENT - 1}u) / {SEGMENT}u;\n"
        if self.cut and per_segment:
            text += "    let segment = group % segments;\n"
            tile = "(group / segments)"
        text += (
            f"    let walker = lane / {self.columns}u;\n    let column = lane % {self.columns}u;\n"
            f"    let own = ({tile} * {self.columns}u + column) * {self.wide}u;\n"
            f"    let task = min(own, tasks - {self.wide}u);\n    let present = own < tasks;\n"
            "    let o = task / launch.size2;\n    let i = task % launch.size2;\n"
        )
        for k in range(self.outputs + len(self.kernel.inputs)):
            text += f"    let base{k} = o * launch.stride{k}_0 + i * launch.stride{k}_2;\n"
        if self.cut and per_segment:
            text += (
                f"    let begin = segment * {SEGMENT}u + walker;\n"
                f"    let limit = min((segment + 1u) * {SEGMENT}u, launch.size1);\n"
            )
        return text

    def _load(self, i: int, u: int, at: str, indent: str) -> str:
        k, names = self.outputs + i, [f"x{i}_{u}_{q}" for q in range(self.wide)]
        if self.wide == 1 or self.kernel.steps[k] == "0":
            value = self.module.load(k, f"base{k} + {at} * launch.stride{k}_1")
            return f"{indent}let {names[0]} = {value};\n"
        access = self.module.access[k]
        if not access.vectors:
            return "".join(
                f"{indent}let {name} = "
                f"{self.module.load(k, f'base{k} + {at} * launch.stride{k}_1 + {q}u')};\n"
                for q, name in enumerate(names)
            )
        place = f"(launch.offset{k} + base{k} + {at} * launch.stride{k}_1) >> 2u"
        text = f"{indent}let v{i}_{u} = {access.array}[{place}];\n"
        for q, name in enumerate(names):
            word = f"v{i}_{u}.{'xyzw'[q]}"
            text += f"{indent}let {name} = {self.module.decoded(k, word, '0u')};\n"
        return text

    def _walk(self, limit: str, body: str, inputs: Sequence[int], unrolled: int) -> str:
        """The loop over a row: whole groups of `unrolled` elements, then one by one.

        `body` is a format of the element's number `u`, its place `at` and its inputs.
        """
        begin = "begin" if self.cut else "walker"
        step = self.walkers
        text = f"    var a = {begin};\n"
        if unrolled > 1:
            text += (
                f"    for (; a + {(unrolled - 1) * step}u < {limit}; a += {unrolled * step}u) {{\n"
            )
            for u in range(unrolled):
                for i in inputs:
                    text += self._load(i, u, f"(a + {u * step}u)", "        ")
            for u in range(unrolled):
                text += body.replace("@u", str(u)).replace("@at", f"(a + {u * step}u)")
            text += "    }\n"
        text += f"    for (; a < {limit}; a += {step}u) {{\n"
        text += "".join(self._load(i, 0, "a", "        ") for i in inputs)
        return text + body.replace("@u", "0").replace("@at", "a") + "    }\n"

    def _folded(self, some: Sequence[int], limit: str) -> str:
        """Fold the elements up to `limit` into sum0_0, ..."""
        text, body = "", ""
        for k in some:
            formula = [self.kernel.passes[k].body]
            for q in range(self.wide):
                text += f"    var sum{k}_{q} = {self.zero(k)};\n"
                inputs = self._marked(self.used(formula), q)
                made = self._call(f"pass{k}", formula, inputs, q)
                body += f"        sum{k}_{q} = {self.fold(k, f'sum{k}_{q}', made)};\n"
        read = self.used(self.bodies(some))
        return text + "    {\n" + self._walk(limit, body, read, UNROLLED) + "    }\n"

    def _marked(self, inputs: Sequence[int], q: int) -> dict[int, str]:
        still = self.kernel.steps[self.outputs :]
        return {i: f"x{i}_@u_{0 if still[i] == '0' else q}" for i in inputs}

    def _call(self, name: str, roots: Sequence[object], inputs: dict[int, str], q: int) -> str:
        """A call with the rows of column q."""
        text = self.call(name, roots, "@at", inputs)  # type: ignore[arg-type]
        for k in self.passes:
            text = text.replace(f"row{k},", f"row{k}_{q},").replace(f"row{k})", f"row{k}_{q})")
        return text

    def _trees(self, some: Sequence[int]) -> str:
        """Fold the walkers' sums into row0_0, ..."""
        text = ""
        for k in some:
            if self.walkers == 1:
                text += "".join(f"    let row{k}_{q} = sum{k}_{q};\n" for q in range(self.wide))
                continue
            shared = shared_array(self.module, self.kernel.passes[k].body.dtype)
            joined = self.fold(k, f"{shared}[lane]", f"{shared}[{self.other}]")
            for q in range(self.wide):
                text += (
                    f"    {shared}[lane] = sum{k}_{q};\n    workgroupBarrier();\n"
                    f"    for (var half = {self.walkers // 2}u; half > 0u; half = half / 2u) {{\n"
                    f"        if (walker < half) {{ {shared}[lane] = {joined}; }}\n"
                    "        workgroupBarrier();\n    }\n"
                    f"    let row{k}_{q} = {shared}[column];\n    workgroupBarrier();\n"
                )
        return text

    def _earlier(self, stage: int) -> str:
        return "".join(self.earlier(stage, f"(task + {q}u)", f"_{q}") for q in range(self.wide))

    def _keeps(self, stage: int, partial: bool) -> str:
        text = (
            "    if (present && walker == 0u) {\n" if self.walkers > 1 else "    if (present) {\n"
        )
        for k in self.stages[stage]:
            for q in range(self.wide):
                task = f"(task + {q}u)"
                at = self.partial_place(k, "segment", task) if partial else self.row_place(k, task)
                text += f"        {self.keep(k, at, f'row{k}_{q}')}\n"
        return text + "    }\n"

    def _elements(self, limit: str) -> str:
        chosen, roots = self.stored("element"), self.stores("element")
        if not chosen:
            return ""
        body = ""
        for q in range(self.wide):
            made = self._call("element_of", roots, self._marked(self.used(roots), q), q)
            body += f"        let y@u_{q} = {made};\n"
        puts = "".join(self._put(n, "y@u", "@at") for n in chosen)
        body += f"        if (present) {{\n{puts}        }}\n"
        return "    {\n" + self._walk(limit, body, self.used(roots), 1) + "    }\n"

    def _put(self, n: int, value: str, at: str) -> str:
        """Store output n of this invocation's columns."""
        there = f"base{n} + {at} * launch.stride{n}_1" if at else f"base{n}"
        dtype, access = self.kernel.outputs[n], self.module.access[n]
        if self.wide > 1 and access.vectors:
            words = [
                f"{value}_{q}.y{n}" if dtype.kind == "u" else f"bitcast<u32>({value}_{q}.y{n})"
                for q in range(self.wide)
            ]
            place = f"(launch.offset{n} + {there}) >> 2u"
            return f"            {access.array}[{place}] = vec4<u32>({', '.join(words)});\n"
        return "".join(
            f"            {self.module.store(n, f'{there} + {q}u', f'{value}_{q}.y{n}')}\n"
            for q in range(self.wide)
        )

    def _row_values(self, q: int) -> str:
        """Evaluate what is one per row, for column q."""
        roots = self.stores("row")
        if not roots:
            return ""
        text, names = "", {}
        for i in self.used(roots):
            k = self.outputs + i
            step = f" + {q}u" if q and self.kernel.steps[k] != "0" else ""
            names[i] = f"still{i}_{q}"
            text += f"    var {names[i]}: {self.module.type(self.kernel.inputs[i])};\n"
            load = self.module.load(k, f"base{k}{step}")
            text += f"    if (launch.size1 > 0u) {{ {names[i]} = {load}; }}\n"
        made = self._call("row_of", roots, names, q).replace("@at", "0u")
        return f"{text}    let mine_{q} = {made};\n"

    def _row_puts(self) -> str:
        chosen = self.stored("row")
        if not chosen:
            return ""
        mine = "present && walker == 0u" if self.walkers > 1 else "present"
        puts = "".join(self._put(n, "mine", "") for n in chosen)
        return f"    if ({mine}) {{\n{puts}    }}\n"
