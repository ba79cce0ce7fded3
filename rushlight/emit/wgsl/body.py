"""Expressions as WGSL statements.

Owns: the text of every scalar instruction for every type. Takes: expressions and the text of their
leaves. Gives: `let` statements and the text of each root, and the helpers they need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.core.dtypes import DType, compute_type
from rushlight.core.errors import DeviceError
from rushlight.emit.wgsl.types import (
    FUSED,
    NATIVE_FLOAT64,
    NATIVE_INT64,
    Features,
    is_long,
    literal,
    prefix_of,
    type_name,
)
from rushlight.scalar.ir import Expr, topological

Leaf = Callable[[Expr], str]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "lt": "<", "le": "<="}
_CALLS = ("abs", "floor", "ceil", "round", "trunc", "sqrt")


class Printer:
    """Prints instructions and remembers the helpers they call."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.helpers: set[str] = set()
        self.wide = NATIVE_INT64 in features

    def block(
        self, roots: Sequence[Expr], leaf: Leaf, prefix: str, indent: str
    ) -> tuple[str, list[str]]:
        """Statements that compute the roots, and the roots' names."""
        names: dict[Expr, str] = {}
        lines: list[str] = []
        for expr in topological(list(roots)):
            if expr.op == "const":
                names[expr] = self.constant(expr)
                continue
            if expr.args and all(a.op == "const" for a in expr.args):
                self._hide(expr, names, lines, prefix, indent)
            text = self.instruction(expr, names, leaf)
            if expr.op in ("param", "row", "extent"):
                names[expr] = text
                continue
            names[expr] = f"{prefix}{len(lines)}"
            lines.append(f"{indent}let {names[expr]} = {text};\n")
        return "".join(lines), [names[r] for r in roots]

    def _hide(
        self, expr: Expr, names: dict[Expr, str], lines: list[str], prefix: str, indent: str
    ) -> None:
        """Name a constant operand, so that the compiler does not fold the instruction."""
        operand = expr.args[0]
        name = f"{prefix}{len(lines)}"
        lines.append(f"{indent}let {name} = {names[operand]};\n")
        names[operand] = name

    def constant(self, expr: Expr) -> str:
        assert expr.value is not None
        return self.number(expr.value, expr.dtype)

    def number(self, value: bool | int | float, dtype: DType) -> str:
        text, helpers = literal(value, dtype, self.features)
        self.helpers.update(helpers)
        return f"({text})" if text.startswith("-") else text

    def need(self, name: str) -> str:
        self.helpers.add(name)
        return name

    def call(self, name: str, *args: str) -> str:
        return f"{self.need(name)}({', '.join(args)})"

    def instruction(self, expr: Expr, names: dict[Expr, str], leaf: Leaf) -> str:
        if not expr.args:
            return leaf(expr)
        args = [names[a] for a in expr.args]
        if expr.op == "cast":
            return self.cast(args[0], expr.args[0].dtype, expr.dtype)
        if expr.op == "bitcast":
            name = type_name(expr.dtype, self.features)
            return args[0] if name == "vec2<u32>" else f"bitcast<{name}>({args[0]})"
        if expr.op == "select":
            return f"select({args[2]}, {args[1]}, {args[0]})"
        if expr.op in ("shl", "shr") and expr.args[1].op == "const" and expr.dtype.kind in "iu":
            return self._shift_by(expr, args[0])
        if expr.op in ("add", "sub") and expr.dtype.kind == "f":
            args = self._hide_sums(expr, args)
        return self.apply(expr.op, expr.args[0].dtype, args)

    def _hide_sums(self, expr: Expr, args: list[str]) -> list[str]:
        """See Note [WGSL and rounding]."""
        result = list(args)
        for i in (0, 1):
            inner, other = _positive(expr.args[i]), _positive(expr.args[1 - i])
            if inner.op in ("add", "sub") and other in map(_positive, inner.args):
                result[i] = self.call(f"{prefix_of(expr.dtype)}_hide", args[i])
        return result

    def _shift_by(self, expr: Expr, x: str) -> str:
        """A shift by a constant, whose count is printed as a u32, as WGSL requires."""
        width = expr.dtype.itemsize * 8
        count = int(expr.args[1].value or 0) % width
        if is_long(expr.dtype) and not self.wide:
            return self._emulated(expr.op, expr.dtype, [x, f"vec2<u32>({count}u, 0u)"])
        return f"{x} {'<<' if expr.op == 'shl' else '>>'} {count}u"

    def apply(self, op: str, dtype: DType, args: list[str]) -> str:
        """An instruction whose operands all have the type `dtype`."""
        if op == "ne":
            return f"!({self.apply('eq', dtype, args)})"
        if dtype.kind == "b":
            return _bool(op, args)
        if dtype.kind == "f":
            return self._float(op, dtype, args)
        if is_long(dtype) and not self.wide:
            return self._emulated(op, dtype, args)
        return self._integer(op, dtype, args)

    def _float(self, op: str, dtype: DType, args: list[str]) -> str:
        if op in ("eq", "lt", "le", "isnan", "min", "max", "rem"):
            return self.call(f"{prefix_of(dtype)}_{op}", *args)
        if op in ("add", "sub", "mul", "div"):
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op == "neg":
            return f"-{args[0]}"
        if op == "fma":
            return self._fma(dtype, args)
        if op not in _CALLS:
            raise DeviceError(f"webgpu: instruction {op} on {dtype.name} has no WGSL form")
        return f"{op}({args[0]})"

    def _fma(self, dtype: DType, args: list[str]) -> str:
        if FUSED in self.features:
            return f"fma({', '.join(args)})"
        wide = prefix_of(dtype) == "f32" and NATIVE_FLOAT64 in self.features
        return self.call(f"{prefix_of(dtype)}_fma_{'wide' if wide else 'split'}", *args)

    def _integer(self, op: str, dtype: DType, args: list[str]) -> str:
        zero = self.number(0, dtype)
        if op == "div":
            return f"select({args[0]} / {args[1]}, {zero}, {args[1]} == {zero})"
        if op == "rem":
            # Not `%`: Vulkan leaves the remainder of negative numbers to the driver, and NVIDIA's
            # differs.
            return (
                f"select({args[0]} - ({args[0]} / {args[1]}) * {args[1]}, {zero}, {args[1]} == "
                f"{zero})"
            )
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op in _COMPARE:
            return f"{args[0]} {_COMPARE[op]} {args[1]}"
        if op in ("min", "max"):
            return f"{op}({args[0]}, {args[1]})"
        if op in ("shl", "shr"):
            by = f"(u32({args[1]}) & {dtype.itemsize * 8 - 1}u)"
            return f"{args[0]} {'<<' if op == 'shl' else '>>'} {by}"
        if op == "neg":
            return f"{zero} - {args[0]}"
        if op == "not":
            return f"~{args[0]}"
        if op == "abs":
            return args[0] if dtype.kind == "u" else f"abs({args[0]})"
        if op == "fma":
            return f"{args[0]} * {args[1]} + {args[2]}"
        if op == "mulhi":
            return self.call("u32_mulhi", *args)
        return _whole(op, dtype, args[0])

    def _emulated(self, op: str, dtype: DType, args: list[str]) -> str:
        if op in ("and", "or", "xor"):
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op == "not":
            return f"~{args[0]}"
        if op == "fma":
            return self.call("i64_add", self.call("i64_mul", *args[:2]), args[2])
        if op in ("floor", "ceil", "round", "trunc", "isnan"):
            return "false" if op == "isnan" else args[0]
        # Where the sign does not matter, one function serves both.
        unsigned = dtype.kind == "u" and op in ("div", "rem", "lt", "le", "min", "max", "shr")
        return self.call(f"{'u64' if unsigned else 'i64'}_{op}", *args)

    def cast(self, x: str, old: DType, new: DType) -> str:
        """The value `x` of type `old` as `new`, both in their compute types."""
        old, new = compute_type(old), compute_type(new)
        if prefix_of(old) == prefix_of(new):
            return x
        if new.kind == "b":
            return self._truth(x, old)
        if old.kind == "b":
            return f"select({self.number(0, new)}, {self.number(1, new)}, {x})"
        if is_long(old) or is_long(new):
            return self._cast_long(x, old, new) if self.wide else self._cast_emulated(x, old, new)
        return f"{prefix_of(new)}({x})"

    def _cast_long(self, x: str, old: DType, new: DType) -> str:
        if is_long(old) and is_long(new):
            return f"bitcast<{prefix_of(new)}>({x})"
        if is_long(old) and new.kind in "iu":
            bits = x if old.kind == "u" else f"bitcast<u64>({x})"
            return f"{prefix_of(new)}(u32({bits} & 0xfffffffflu))"
        if old.name == "uint32":  # naga extends the sign in i64(u32)
            return f"u64({x})" if new.kind == "u" else f"bitcast<i64>(u64({x}))"
        if old.name == "int32" and new.kind == "u":
            return f"bitcast<u64>(i64({x}))"
        if old.kind == "f" and new.kind == "u":
            return self.call(f"u64_from_{prefix_of(old)}", x)
        return f"{prefix_of(new)}({x})"

    def _truth(self, x: str, old: DType) -> str:
        if is_long(old) and not self.wide:
            return self.call("i64_truth", x)
        if old.kind == "f":
            return self.call(f"{prefix_of(old)}_truth", x)
        return f"{x} != {self.number(0, old)}"

    def _cast_emulated(self, x: str, old: DType, new: DType) -> str:
        if is_long(old) and is_long(new):
            return x
        if is_long(new):
            if old.kind == "u":
                return f"vec2<u32>({x}, 0u)"
            return self.call(
                f"{'u64' if old.kind == 'f' and new.kind == 'u' else 'i64'}_of_{prefix_of(old)}", x
            )
        if new.kind == "f":
            return self.call(f"f32_of_{prefix_of(old)}", x)
        return f"{x}.x" if new.kind == "u" else f"bitcast<i32>({x}.x)"


def _positive(expr: Expr) -> Expr:
    return expr.args[0] if expr.op == "neg" else expr


def _whole(op: str, dtype: DType, x: str) -> str:
    """Rounding leaves an integer unchanged."""
    if op in ("floor", "ceil", "round", "trunc"):
        return x
    if op == "isnan":
        return "false"
    raise DeviceError(f"webgpu: instruction {op} on {dtype.name} has no WGSL form")


def _bool(op: str, args: list[str]) -> str:
    forms = {
        "and": "{0} && {1}",
        "or": "{0} || {1}",
        "xor": "{0} != {1}",
        "not": "!{0}",
        "eq": "{0} == {1}",
        "lt": "!{0} && {1}",
        "le": "!{0} || {1}",
        "min": "{0} && {1}",
        "max": "{0} || {1}",
        "mul": "{0} && {1}",
        "add": "{0} || {1}",
    }
    if op not in forms:
        raise DeviceError(f"webgpu: instruction {op} on bool has no WGSL form")
    return forms[op].format(*args)
