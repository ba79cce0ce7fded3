"""Element types in WGSL: their names, constants, and their layout in u32 words.

# Note [WGSL and NaN]
WGSL compilers may assume that there is no NaN, and naga prints `!=` as an ordered comparison, so
`x != x` is false and `max(nan, 1)` is 1. Every test that a NaN can reach therefore looks at bits,
which no compiler may assume away.

# Note [WGSL and rounding]
Drivers may also use rules of real numbers: Mesa turns (a + b) - a into b, which undoes compensated
sums. Where an operand of + or - is itself a sum that contains the other operand, it is passed
through `hide`, an exclusive or with a launch word that is always zero and that no compiler knows.
`fma` may be unfused (llvmpipe's is); the device tests it when it opens, and uses a helper function
instead: through float64, or by splitting.

# Note [Sub-word memory]
Halves, small integers and bools lie packed in u32 words. An element of a word that other
invocations may write too is stored by `atomicXor` with (old ^ new) in the element's own bits: no
other invocation changes those, so the load before it is no race.
"""

from __future__ import annotations

import math
import struct

from rushlight.core.dtypes import DType, compute_type

Features = frozenset[str]

NATIVE_INT64 = "shader-int64"
NATIVE_FLOAT64 = "shader-f64"
FUSED = "fused-fma"  # not WebGPU's name: the device tests for it
SUBGROUPS = "subgroup"
# Not WebGPU's name either: invocation i of a workgroup is number i % SUBGROUP of a subgroup.
LANES = "subgroups-in-order"
SUBGROUP = 32

_NAMES = {"bool": "bool", "int32": "i32", "uint32": "u32", "float32": "f32", "float64": "f64"}


def type_name(dtype: DType, features: Features) -> str:
    """The WGSL type of arithmetic on `dtype`."""
    if is_long(dtype):
        return prefix_of(dtype) if NATIVE_INT64 in features else "vec2<u32>"
    return _NAMES[compute_type(dtype).name]


def prefix_of(dtype: DType) -> str:
    """The prefix of a type's helper functions."""
    return f"{dtype.kind}64" if is_long(dtype) else _NAMES[compute_type(dtype).name]


def is_long(dtype: DType) -> bool:
    """A 64-bit integer, which some adapters lack."""
    return dtype.kind in "iu" and dtype.itemsize == 8


def literal(
    value: bool | int | float, dtype: DType, features: Features
) -> tuple[str, tuple[str, ...]]:
    """A constant and the helpers it needs."""
    if dtype.kind == "f":
        return _float_literal(float(value), compute_type(dtype))
    if dtype.kind == "b":
        return ("true" if value else "false"), ()
    number, dtype = int(value), compute_type(dtype)
    if dtype.name == "uint32":
        return f"{number & 0xFFFFFFFF}u", ()
    if dtype.name == "int32":
        number = (number + (1 << 31)) % (1 << 32) - (1 << 31)
        return (f"{number}i" if number > -(1 << 31) else "i32(-2147483648)"), ()
    if NATIVE_INT64 in features and dtype.kind == "u":
        return f"{number % (1 << 64)}lu", ()
    if NATIVE_INT64 in features:
        least = -(1 << 63)
        return (f"{number}li" if number > least else "(-9223372036854775807li - 1li)"), ()
    bits = number % (1 << 64)
    return f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)", ()


def _float_literal(value: float, dtype: DType) -> tuple[str, tuple[str, ...]]:
    wide = dtype.itemsize == 8
    if not wide:
        value = round_to_float32(value)
    if math.isfinite(value):
        text = repr(value) if wide else f"{value:.9g}"
        if not any(c in text for c in ".e"):
            text += ".0"
        return text + ("lf" if wide else "f"), ()
    # A constant expression may not be NaN or Inf; the result of a function call may.
    if wide:
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        return f"f64_of_bits({bits}lu)", ("f64_of_bits",)
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return f"f32_of_bits({bits:#x}u)", ("f32_of_bits",)


def round_to_float32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def param_text(i: int, dtype: DType, features: Features) -> str:
    """The text of a launch-time number."""
    name = f"launch.param{i}"
    if is_long(dtype):
        if NATIVE_INT64 in features:
            bits = f"(u64({name}_low) | (u64({name}_high) << 32u))"
            return bits if dtype.kind == "u" else f"bitcast<i64>{bits}"
        return f"vec2<u32>({name}_low, {name}_high)"
    if dtype.name == "float64":
        return f"bitcast<f64>(u64({name}_low) | (u64({name}_high) << 32u))"
    if dtype.kind == "b":
        return f"({name} != 0u)"
    return name if dtype.name == "uint32" else f"bitcast<{type_name(dtype, features)}>({name})"


_HALF_INFINITY = {"float16": "0x7c00u", "bfloat16": "0x7f80u"}


class Access:
    """The functions `load<i>(at)` and `store<i>(at, value)` of one operand, `at` counting
    elements.
    """

    def __init__(
        self,
        number: int,
        dtype: DType,
        binding: int,
        atomic: bool,
        features: Features,
        vectors: bool = False,
    ) -> None:
        self.number = number
        self.dtype = dtype
        self.array = f"buffer{binding}"
        self.atomic = atomic
        self.features = features
        self.vectors = vectors  # the array's elements are vectors of four words

    def word(self, at: str) -> str:
        if self.vectors:
            return f"{self.array}[({at}) >> 2u][({at}) & 3u]"
        return f"atomicLoad(&{self.array}[{at}])" if self.atomic else f"{self.array}[{at}]"

    def put(self, at: str, value: str) -> str:
        return (
            f"atomicStore(&{self.array}[{at}], {value});"
            if self.atomic
            else f"{self.word(at)} = {value};"
        )

    def seen_loaded(self) -> tuple[str, str]:
        """The float's bits at `here` without their sign, and those of infinity."""
        size = self.dtype.itemsize
        if size == 8:
            low, high = self.word("here * 2u"), self.word("here * 2u + 1u")
            return f"({high} & 0x7fffffffu) | select(0u, 1u, {low} != 0u)", "0x7ff00000u"
        if size == 4:
            return f"{self.word('here')} & 0x7fffffffu", "0x7f800000u"
        return f"({self.word('here >> 1u')} >> ((here & 1u) * 16u)) & 0x7fffu", _HALF_INFINITY[
            self.dtype.name
        ]

    def seen_stored(self, value: str) -> tuple[str, str]:
        """The same for a value that is about to be stored."""
        size = self.dtype.itemsize
        if size == 8:
            low, high = (
                f"u32(bitcast<u64>({value}) & 0xfffffffflu)",
                f"u32(bitcast<u64>({value}) >> 32u)",
            )
            return f"({high} & 0x7fffffffu) | select(0u, 1u, {low} != 0u)", "0x7ff00000u"
        if size == 4:
            return f"bitcast<u32>({value}) & 0x7fffffffu", "0x7f800000u"
        return f"{self.encoded(value)[0]} & 0x7fffu", _HALF_INFINITY[self.dtype.name]

    def load(self, noted: str = "") -> tuple[str, tuple[str, ...]]:
        """The load function's text and its helpers.

        `noted` is a statement about the element at `here`.
        """
        value, helpers = self._decoded()
        kind = type_name(self.dtype, self.features)
        text = (
            f"fn load{self.number}(at: u32) -> {kind} {{\n"
            f"    let here = launch.offset{self.number} + at;\n"
            + (f"    {noted}\n" if noted else "")
            + f"    return {value};\n}}\n"
        )
        return text, helpers

    def _decoded(self) -> tuple[str, tuple[str, ...]]:
        size = self.dtype.itemsize
        if size == 8:
            low, high = self.word("here * 2u"), self.word("here * 2u + 1u")
            if is_long(self.dtype) and NATIVE_INT64 not in self.features:
                return f"vec2<u32>({low}, {high})", ()
            bits = f"(u64({low}) | (u64({high}) << 32u))"
            return (
                bits
                if self.dtype.kind == "u"
                else f"bitcast<{type_name(self.dtype, self.features)}>{bits}"
            ), ()
        if size == 4:
            word = self.word("here")
            return (
                word
                if self.dtype.kind == "u"
                else f"bitcast<{type_name(self.dtype, self.features)}>({word})"
            ), ()
        if self.dtype.kind in "iu":
            per = 4 // size
            shifted = (
                f"({self.word(f'here >> {per // 2}u')} >> ((here & {per - 1}u) * {8 * size}u))"
            )
            room = 32 - 8 * size
            signed = f"bitcast<i32>({shifted} << {room}u) >> {room}u"
            return (
                signed
                if self.dtype.kind == "i"
                else f"bitcast<i32>({shifted} & {(1 << 8 * size) - 1:#x}u)"
            ), ()
        if size == 2:
            bits = f"({self.word('here >> 1u')} >> ((here & 1u) * 16u)) & 0xffffu"
            helper = f"f32_of_{self.dtype.name}"
            return f"{helper}({bits})", (helper,)
        return f"(({self.word('here >> 2u')} >> ((here & 3u) * 8u)) & 0xffu) != 0u", ()

    def decoded(self, word: str, shift: str) -> tuple[str, tuple[str, ...]]:
        """A 4-byte or half element from its word, and its helpers."""
        if self.dtype.itemsize == 4:
            kind = type_name(self.dtype, self.features)
            return (word if self.dtype.kind == "u" else f"bitcast<{kind}>({word})"), ()
        helper = f"f32_of_{self.dtype.name}"
        return f"{helper}(({word} >> {shift}) & 0xffffu)", (helper,)

    def encoded(self, value: str) -> tuple[str, tuple[str, ...]]:
        """A sub-word value in the low bits of a u32; the other bits are 0."""
        if self.dtype.kind in "iu":
            return f"(bitcast<u32>({value}) & {(1 << 8 * self.dtype.itemsize) - 1:#x}u)", ()
        if self.dtype.itemsize == 2:
            helper = f"{self.dtype.name}_of_f32"
            return f"{helper}({value})", (helper,)
        return f"select(0u, 1u, {value})", ()

    def store(self, noted: str = "") -> tuple[str, tuple[str, ...]]:
        """The store function's text and its helpers; `noted` is a statement about `value`."""
        kind = type_name(self.dtype, self.features)
        lines, helpers = self._store_lines()
        lines = [noted, *lines] if noted else lines
        body = "".join(f"    {line}\n" for line in lines)
        head = (
            f"fn store{self.number}(at: u32, value: {kind}) {{\n    let here = "
            f"launch.offset{self.number} + at;\n"
        )
        return f"{head}{body}}}\n", helpers

    def _store_lines(self) -> tuple[list[str], tuple[str, ...]]:
        size = self.dtype.itemsize
        if size == 8:
            if is_long(self.dtype) and NATIVE_INT64 not in self.features:
                return [self.put("here * 2u", "value.x"), self.put("here * 2u + 1u", "value.y")], ()
            return [
                "let bits = value;"
                if self.dtype.kind == "u"
                else "let bits = bitcast<u64>(value);",
                self.put("here * 2u", "u32(bits & 0xfffffffflu)"),
                self.put("here * 2u + 1u", "u32(bits >> 32u)"),
            ], ()
        if size == 4:
            return [
                self.put("here", "value" if self.dtype.kind == "u" else "bitcast<u32>(value)")
            ], ()
        bits, helpers = self.encoded("value")
        per, mask = (1, "0xffffu") if size == 2 else (2, "0xffu")
        return [  # Note [Sub-word memory]
            f"let word = here >> {per}u;",
            f"let shift = (here & {(1 << per) - 1}u) * {size * 8}u;",
            f"let old = atomicLoad(&{self.array}[word]) >> shift;",
            f"atomicXor(&{self.array}[word], ((old ^ {bits}) & {mask}) << shift);",
        ], helpers
