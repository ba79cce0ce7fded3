"""A WGSL module: bindings, launch block, element access, helpers, entry point."""

from __future__ import annotations

from collections.abc import Callable

from rushlight.core.dtypes import DType
from rushlight.emit.wgsl.body import Leaf, Printer
from rushlight.emit.wgsl.layout import Aliases, Layout, written_bindings
from rushlight.emit.wgsl.library import library_text
from rushlight.emit.wgsl.types import Access, Features, param_text, type_name
from rushlight.scalar.ir import Expr

GROUP = 256  # invocations of a workgroup: the maximum that every WebGPU adapter has


class Module:
    """Collects what an entry point uses and prints the module."""

    def __init__(
        self,
        layout: Layout,
        aliases: Aliases,
        features: Features,
        whole_words: frozenset[int] = frozenset(),
        flag: int | None = None,
        vectors: bool = False,
    ) -> None:
        self.layout = layout
        self.aliases = aliases
        self.features = features
        self.printer = Printer(features)
        self.globals = ""
        self._functions: dict[str, str] = {}
        self.flag = flag
        self.word = "vec4<u32>" if vectors else "u32"  # the elements of the buffers
        # Operand: the bit of a NaN in it; Note [Anomaly kernels].
        self.anomaly: dict[int, int] = {}
        written = written_bindings(layout, aliases)
        atomic = {
            binding
            for k, (operand, binding) in enumerate(zip(layout.operands, aliases, strict=True))
            if operand.written and operand.dtype.itemsize < 4 and k not in whole_words
        }
        if flag is not None:
            atomic.add(aliases[flag])
        self.bindings = [(w, b in atomic) for b, w in enumerate(written)]
        self.access = [
            Access(
                i,
                operand.dtype,
                binding,
                binding in atomic,
                features,
                vectors and binding not in atomic,
            )
            for i, (operand, binding) in enumerate(zip(layout.operands, aliases, strict=True))
        ]

    def load(self, operand: int, at: str) -> str:
        name = f"load{operand}"
        if name not in self._functions:
            access = self.access[operand]
            self._functions[name], helpers = access.load(self.noted(operand, access.seen_loaded))
            self.printer.helpers.update(helpers)
        return f"{name}({at})"

    def store(self, operand: int, at: str, value: str) -> str:
        name = f"store{operand}"
        if name not in self._functions:
            access = self.access[operand]
            self._functions[name], helpers = access.store(
                self.noted(operand, lambda: access.seen_stored("value"))
            )
            self.printer.helpers.update(helpers)
        return f"{name}({at}, {value});"

    def noted(self, operand: int, seen: Callable[[], tuple[str, str]]) -> str:
        """A statement that reports a NaN or an infinity; empty where the operand is not checked."""
        if operand not in self.anomaly or self.layout.operands[operand].dtype.kind != "f":
            return ""
        assert self.flag is not None
        magnitude, infinity = seen()
        self._functions["note_met"] = (
            "fn note_met(magnitude: u32, infinity: u32, bit: u32) {\n    if (magnitude >= "
            "infinity) {\n"
            f"        atomicOr(&{self.access[self.flag].array}[launch.offset{self.flag}], "
            "select(bit, bit * 2u, magnitude == infinity));\n    }\n}\n"
        )
        return f"note_met({magnitude}, {infinity}, {self.anomaly[operand]}u);"

    def decoded(self, operand: int, word: str, shift: str) -> str:
        """An element of a 4-byte or half type from its word; `shift` is its first bit there."""
        text, helpers = self.access[operand].decoded(word, shift)
        self.printer.helpers.update(helpers)
        return text

    def named(self, inputs: dict[int, str], index: str) -> Leaf:
        """Text of leaves whose inputs have names."""

        def leaf(expr: Expr) -> str:
            if expr.op == "index":
                return self.position(index)
            assert isinstance(expr.value, int)
            if expr.op == "param":
                return param_text(expr.value, expr.dtype, self.features)
            return inputs[expr.value]

        return leaf

    def encoded(self, operand: int, value: str) -> str:
        text, helpers = self.access[operand].encoded(value)
        self.printer.helpers.update(helpers)
        return text

    def type(self, dtype: DType) -> str:
        return type_name(dtype, self.features)

    def position(self, text: str) -> str:
        """A u32 as the int64 that `index` and `extent` are."""
        return f"bitcast<i64>(u64({text}))" if self.printer.wide else f"vec2<u32>({text}, 0u)"

    def at(self, operand: int, coordinates: list[str]) -> str:
        """The element at these coordinates of an operand."""
        terms = [
            f"{c} * launch.stride{operand}_{d}" for d, c in enumerate(coordinates) if c != "0u"
        ]
        return " + ".join(terms) or "0u"

    def leaves(self, first: int, inputs: dict[int, str], index: str = "", extent: str = "") -> Leaf:
        """Text of leaves: operand `first` is input 0.

        `inputs` has each input's position in its array.
        """

        def leaf(expr: Expr) -> str:
            if expr.op == "index":
                return self.position(index)
            if expr.op == "extent":
                return self.position(extent)
            assert isinstance(expr.value, int)
            if expr.op == "row":
                return f"row{expr.value}"
            if expr.op == "param":
                return param_text(expr.value, expr.dtype, self.features)
            return self.load(first + expr.value, inputs[expr.value])

        return leaf

    def text(self, group: int, body: str) -> str:
        """The whole module around the statements of its entry point."""
        words = "".join(f"    {name}: u32,\n" for name in self.layout.fields())
        parts = [
            f"struct Launch {{\n{words}}}\n@group(0) @binding(0) var<uniform> launch: Launch;\n"
        ]
        for number, (written, atomic) in enumerate(self.bindings):
            mode = "read_write" if written else "read"
            word = "atomic<u32>" if atomic else self.word
            parts.append(
                f"@group(0) @binding({number + 1}) var<storage, {mode}> buffer{number}: "
                f"array<{word}>;\n"
            )
        parts += [self.globals, library_text(self.printer.helpers), *self._functions.values()]
        parts.append(f"@compute @workgroup_size({group})\n{_SIGNATURE}{body}}}\n")
        return "".join(parts)


_SIGNATURE = """fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = launch.base + group_id.y * groups.x + group_id.x;
"""
