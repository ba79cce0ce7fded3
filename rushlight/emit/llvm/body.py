"""Scalar instructions in LLVM over one value or a vector of `width` values, and loads and stores.

A vector body, its masked tail and a scalar loop use the same instructions, so an element has the
same bits in all. See Note [Scalar instructions].
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rushlight.core.dtypes import DType, bfloat16, bool_, compute_type, float16
from rushlight.emit.llvm.text import COMPUTE, STORED, Writer, constant, suffix, vector
from rushlight.scalar.ir import Expr, topological

FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
INTEGER_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole"}
SIGNED_COMPARE = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle"}
UNSIGNED_COMPARE = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule"}
INTRINSIC = {
    "floor": "floor",
    "ceil": "ceil",
    "round": "roundeven",
    "trunc": "trunc",
    "sqrt": "sqrt",
    "fma": "fma",
}


def invariants(roots: tuple[Expr, ...], moving: Callable[[Expr], bool]) -> tuple[Expr, ...]:
    """The largest subexpressions without a leaf that moves with the loop: hoisted out of it."""
    still: dict[Expr, bool] = {}
    found: dict[Expr, None] = {}
    every = topological(roots)
    for expr in every:
        still[expr] = all(still[a] for a in expr.args) and (bool(expr.args) or not moving(expr))
    for expr in every:
        if not still[expr]:
            found.update((a, None) for a in expr.args if still[a] and a.op != "const")
    found.update((r, None) for r in roots if still[r] and r.op != "const")
    return tuple(found)


def instruction(writer: Writer, expr: Expr, names: list[str], width: int) -> str:
    op, kind = expr.op, expr.args[-1].dtype
    type_ = vector(COMPUTE[kind], width)
    if op in ("min", "max"):
        return extreme(writer, op, kind, names[0], names[1], width)
    if op in FLOAT_COMPARE:
        return _compare(writer, op, kind, names, type_)
    if op == "isnan":
        return writer.value(f"fcmp uno {type_} {names[0]}, {names[0]}")
    if op == "select":
        return writer.value(
            f"select {vector('i1', width)} {names[0]}, {type_} {names[1]}, {type_} {names[2]}"
        )
    if op == "cast":
        return cast(writer, names[0], kind, expr.dtype, width)
    if op == "bitcast":
        return writer.value(f"bitcast {type_} {names[0]} to {vector(COMPUTE[expr.dtype], width)}")
    if kind.kind == "f":
        return _float_instruction(writer, op, kind, names, width)
    return _integer_instruction(writer, expr, kind, names, width)


def _compare(writer: Writer, op: str, kind: DType, names: list[str], type_: str) -> str:
    if kind.kind == "f":
        return writer.value(f"fcmp {FLOAT_COMPARE[op]} {type_} {names[0]}, {names[1]}")
    table = SIGNED_COMPARE if kind.kind == "i" else UNSIGNED_COMPARE
    return writer.value(f"icmp {table[op]} {type_} {names[0]}, {names[1]}")


def _float_instruction(writer: Writer, op: str, kind: DType, names: list[str], width: int) -> str:
    scalar = COMPUTE[kind]
    type_ = vector(scalar, width)
    if op in FLOAT_BINARY:
        return writer.value(f"{FLOAT_BINARY[op]} {type_} {names[0]}, {names[1]}")
    if op == "neg":
        return writer.value(f"fneg {type_} {names[0]}")
    name = "fabs" if op == "abs" else INTRINSIC[op]
    return writer.call(type_, f"llvm.{name}.{suffix(scalar, width)}", [(type_, n) for n in names])


def _integer_instruction(
    writer: Writer, expr: Expr, kind: DType, names: list[str], width: int
) -> str:
    op, scalar = expr.op, COMPUTE[kind]
    type_ = vector(scalar, width)
    if op in INTEGER_BINARY:
        return writer.value(f"{INTEGER_BINARY[op]} {type_} {names[0]}, {names[1]}")
    if op in ("div", "rem"):
        return _divide(writer, op, expr.args[1], kind, names, width)
    if op == "neg":
        return writer.value(f"sub {type_} {constant(0, kind, width)}, {names[0]}")
    if op == "not":
        ones = constant(kind is bool_ or -1, kind, width)
        return writer.value(f"xor {type_} {names[0]}, {ones}")
    if op in ("shl", "shr"):
        places = writer.value(
            f"and {type_} {names[1]}, {constant(kind.itemsize * 8 - 1, kind, width)}"
        )
        name = "shl" if op == "shl" else "ashr" if kind.kind == "i" else "lshr"
        return writer.value(f"{name} {type_} {names[0]}, {places}")
    if op == "mulhi":
        return _high_word(writer, names, width)
    if op == "abs" and kind.kind == "i":
        return writer.call(
            type_, f"llvm.abs.{suffix(scalar, width)}", [(type_, names[0]), ("i1", "false")]
        )
    if op == "fma":
        product = writer.value(f"mul {type_} {names[0]}, {names[1]}")
        return writer.value(f"add {type_} {product}, {names[2]}")
    assert op in ("abs", "floor", "ceil", "round", "trunc"), f"{op} of {kind}"
    return names[0]


def _divide(
    writer: Writer, op: str, divisor: Expr, kind: DType, names: list[str], width: int
) -> str:
    """Division by zero gives 0, and the one overflow wraps; the machine would trap on both."""
    type_, flags = vector(COMPUTE[kind], width), vector("i1", width)
    a, b = names
    name = ("s" if kind.kind == "i" else "u") + op
    if divisor.op == "const" and divisor.value not in (0, -1):
        return writer.value(f"{name} {type_} {a}, {b}")
    zero, one, minus = (constant(n, kind, width) for n in (0, 1, -1))
    is_zero = writer.value(f"icmp eq {type_} {b}, {zero}")
    bad = is_minus = is_zero
    if kind.kind == "i":
        is_minus = writer.value(f"icmp eq {type_} {b}, {minus}")
        bad = writer.value(f"or {flags} {is_zero}, {is_minus}")
    safe = writer.value(f"select {flags} {bad}, {type_} {one}, {type_} {b}")
    result = writer.value(f"{name} {type_} {a}, {safe}")
    if kind.kind == "i" and op == "div":
        negated = writer.value(f"sub {type_} {zero}, {a}")
        result = writer.value(f"select {flags} {is_minus}, {type_} {negated}, {type_} {result}")
    return writer.value(f"select {flags} {is_zero}, {type_} {zero}, {type_} {result}")


def _high_word(writer: Writer, names: list[str], width: int) -> str:
    narrow, wide = vector("i32", width), vector("i64", width)
    a, b = (writer.value(f"zext {narrow} {n} to {wide}") for n in names)
    shift = "32" if width == 1 else "splat (i64 32)"
    high = writer.value(f"lshr {wide} {writer.value(f'mul {wide} {a}, {b}')}, {shift}")
    return writer.value(f"trunc {wide} {high} to {narrow}")


def extreme(writer: Writer, op: str, kind: DType, a: str, b: str, width: int) -> str:
    """min or max. Floats use the machine's instruction, which gives b if one is NaN.

    NaN where a is NaN.
    """
    scalar = COMPUTE[kind]
    type_, flags = vector(scalar, width), vector("i1", width)
    if kind.kind != "f":
        name = ("s" if kind.kind == "i" else "u") + op
        return writer.call(type_, f"llvm.{name}.{suffix(scalar, width)}", [(type_, a), (type_, b)])
    first = writer.value(f"fcmp {'olt' if op == 'min' else 'ogt'} {type_} {a}, {b}")
    found = writer.value(f"select {flags} {first}, {type_} {a}, {type_} {b}")
    is_nan = writer.value(f"fcmp uno {type_} {a}, {a}")
    # Not `a`: LLVM would merge the two selects and lose the instruction.
    nan = constant(math.nan, kind, width)
    return writer.value(f"select {flags} {is_nan}, {type_} {nan}, {type_} {found}")


def cast(writer: Writer, x: str, source: DType, target: DType, width: int) -> str:
    old, new = vector(COMPUTE[source], width), vector(COMPUTE[target], width)
    if source is target:
        return x
    if target is bool_:
        compare = "fcmp une" if source.kind == "f" else "icmp ne"
        return writer.value(f"{compare} {old} {x}, {constant(0, source, width)}")
    if source.kind == "f" and target.kind == "f":
        return writer.value(
            f"{'fpext' if target.itemsize > source.itemsize else 'fptrunc'} {old} {x} to {new}"
        )
    if source.kind == "f":
        # Out of range is unspecified, but must not be poison.
        whole = writer.value(f"{'fptosi' if target.kind == 'i' else 'fptoui'} {old} {x} to {new}")
        return writer.value(f"freeze {new} {whole}")
    if target.kind == "f":
        return writer.value(f"{'sitofp' if source.kind == 'i' else 'uitofp'} {old} {x} to {new}")
    if source is not bool_ and target.itemsize == source.itemsize:
        return x
    if source is not bool_ and target.itemsize < source.itemsize:
        return writer.value(f"trunc {old} {x} to {new}")
    return writer.value(f"{'sext' if source.kind == 'i' else 'zext'} {old} {x} to {new}")


# ---- memory ----


def from_stored(writer: Writer, x: str, dtype: DType, width: int) -> str:
    """A stored value, converted to its compute type."""
    type_ = vector(STORED[dtype], width)
    if dtype is bool_:
        zero = "0" if width == 1 else "zeroinitializer"
        return writer.value(f"icmp ne {type_} {x}, {zero}")
    if dtype is float16:
        return writer.value(f"fpext {type_} {x} to {vector('float', width)}")
    if dtype is bfloat16:
        words = vector("i32", width)
        wide = writer.value(f"zext {type_} {x} to {words}")
        high = writer.value(f"shl {words} {wide}, {_word(16, width)}")
        return writer.value(f"bitcast {words} {high} to {vector('float', width)}")
    if dtype.itemsize < 4:
        return writer.value(
            f"{'sext' if dtype.kind == 'i' else 'zext'} {type_} {x} to {vector('i32', width)}"
        )
    return x


def to_stored(writer: Writer, x: str, dtype: DType, width: int) -> str:
    """A computed value, converted to its storage type.

    Halves round to nearest even, small integers wrap.
    """
    type_ = vector(STORED[dtype], width)
    if dtype is bool_:
        return writer.value(f"zext {vector('i1', width)} {x} to {type_}")
    if dtype is float16:
        return writer.value(f"fptrunc {vector('float', width)} {x} to {type_}")
    if dtype is bfloat16:
        return _to_bfloat16(writer, x, width)
    if dtype.itemsize < 4:
        return writer.value(f"trunc {vector('i32', width)} {x} to {type_}")
    return x


def _word(value: int, width: int) -> str:
    return str(value) if width == 1 else f"splat (i32 {value})"


def _to_bfloat16(writer: Writer, x: str, width: int) -> str:
    floats, words, flags = vector("float", width), vector("i32", width), vector("i1", width)
    bits = writer.value(f"bitcast {floats} {x} to {words}")
    high = writer.value(f"lshr {words} {bits}, {_word(16, width)}")
    odd = writer.value(f"and {words} {high}, {_word(1, width)}")
    bias = writer.value(f"add {words} {odd}, {_word(0x7FFF, width)}")
    rounded = writer.value(
        f"lshr {words} {writer.value(f'add {words} {bits}, {bias}')}, {_word(16, width)}"
    )
    quiet = writer.value(f"or {words} {high}, {_word(0x40, width)}")
    is_nan = writer.value(f"fcmp uno {floats} {x}, {x}")
    chosen = writer.value(f"select {flags} {is_nan}, {words} {quiet}, {words} {rounded}")
    return writer.value(f"trunc {words} {chosen} to {vector('i16', width)}")


def splat(writer: Writer, x: str, dtype: DType, width: int) -> str:
    """One value in every lane."""
    if width == 1:
        return x
    scalar = COMPUTE[compute_type(dtype)]
    type_ = vector(scalar, width)
    first = writer.value(f"insertelement {type_} poison, {scalar} {x}, i64 0")
    lanes = f"<{width} x i32> zeroinitializer"
    return writer.value(f"shufflevector {type_} {first}, {type_} poison, {lanes}")


def fenced(writer: Writer, x: str, scalar: str, width: int) -> str:
    """The same vector, through a fence that hides from LLVM how it was made.

    LLVM's searches for better instructions (among shuffles, among bit operations) go several steps
    back from each one and dominate a build with many of them. The fence costs no instruction.
    """
    if scalar in ("float", "double"):
        type_ = vector(scalar, width)
        return writer.call(type_, f"llvm.arithmetic.fence.{suffix(scalar, width)}", [(type_, x)])
    bits = width * (16 if scalar == "half" else int(scalar[1:]))
    type_, floats = vector(scalar, width), vector("float", bits // 32)
    x = writer.value(f"bitcast {type_} {x} to {floats}")
    x = writer.call(floats, f"llvm.arithmetic.fence.{suffix('float', bits // 32)}", [(floats, x)])
    return writer.value(f"bitcast {floats} {x} to {type_}")


def lane_splat(writer: Writer, x: str, width: int) -> str:
    """One i64 in every lane."""
    longs = vector("i64", width)
    first = writer.value(f"insertelement {longs} poison, i64 {x}, i64 0")
    return writer.value(
        f"shufflevector {longs} {first}, {longs} poison, <{width} x i32> zeroinitializer"
    )


def lane_numbers(width: int, scalar: str = "i64") -> str:
    return "<" + ", ".join(f"{scalar} {i}" for i in range(width)) + ">"


def pointer(writer: Writer, base: str, dtype: DType, offset: str) -> str:
    """The address `offset` elements after `base`."""
    return writer.value(f"getelementptr {STORED[dtype]}, ptr {base}, i64 {offset}")


def _pointers(writer: Writer, place: str, dtype: DType, stride: str, width: int) -> str:
    """The addresses of `width` elements, `stride` apart."""
    longs = vector("i64", width)
    offsets = writer.value(
        f"mul {longs} {lane_splat(writer, stride, width)}, {lane_numbers(width)}"
    )
    return writer.value(f"getelementptr {STORED[dtype]}, ptr {place}, {longs} {offsets}")


def _turned(writer: Writer, x: str, type_: str, width: int) -> str:
    """A vector's elements in reverse."""
    lanes = f"<{', '.join(f'i32 {width - 1 - k}' for k in range(width))}>"
    return writer.value(
        f"shufflevector {type_} {x}, {type_} poison, {vector('i32', width)} {lanes}"
    )


def load(
    writer: Writer, place: str, dtype: DType, step: str, stride: str, width: int, mask: str | None
) -> str:
    """`width` elements from `place` on, as compute values.

    Lanes outside of `mask` are 0 and not read.
    """
    scalar = STORED[dtype]
    type_, align = vector(scalar, width), dtype.itemsize
    if step == "0" or width == 1:
        one = writer.value(f"load {scalar}, ptr {place}, align {align}")
        return splat(writer, from_stored(writer, one, dtype, 1), dtype, width)
    if step == "1" and mask is None:
        raw = writer.value(f"load {type_}, ptr {place}, align {align}")
    elif step == "r" and mask is None:
        first = pointer(writer, place, dtype, str(1 - width))
        raw = _turned(
            writer, writer.value(f"load {type_}, ptr {first}, align {align}"), type_, width
        )
    else:
        flags = vector("i1", width)
        mask = mask or "splat (i1 true)"
        if step == "1":
            name, where, kind = f"llvm.masked.load.{suffix(scalar, width)}.p0", place, "ptr"
        else:
            where, kind = _pointers(writer, place, dtype, stride, width), vector("ptr", width)
            name = f"llvm.masked.gather.{suffix(scalar, width)}.{suffix('ptr', width)}"
        operands = [(kind, where), ("i32", str(align)), (flags, mask), (type_, "zeroinitializer")]
        raw = writer.call(type_, name, operands)
    return from_stored(writer, raw, dtype, width)


def checked_load(
    writer: Writer, k: int, expr: Expr, value: str, width: int, mask: str | None = None
) -> str:
    """The value of input k, just loaded; a kernel with anomaly checks tests it here."""
    if writer.anomaly is not None:
        writer.anomaly.load(k, value, expr.dtype, width, mask)
    return value


def store(
    writer: Writer,
    x: str,
    place: str,
    dtype: DType,
    step: str,
    stride: str,
    width: int,
    mask: str | None,
    last: bool = True,
) -> None:
    """The inverse of `load`. A step of "0" is an output of one element.

    `last`: the value stays there when the kernel ends.
    """
    scalar, align = STORED[dtype], dtype.itemsize
    type_ = vector(scalar, width)
    raw = to_stored(writer, x, dtype, width)
    if step == "r" and mask is None and width > 1:
        place, raw, step = (
            pointer(writer, place, dtype, str(1 - width)),
            _turned(writer, raw, type_, width),
            "1",
        )
    if writer.anomaly is not None and last:
        writer.anomaly.store(raw, dtype, width, mask)
    if width == 1 or (step == "1" and mask is None):
        writer.line(f"store {type_} {raw}, ptr {place}, align {align}")
        return
    mask = mask or "splat (i1 true)"
    if step == "1":
        name, where, kind = f"llvm.masked.store.{suffix(scalar, width)}.p0", place, "ptr"
    else:
        where, kind = _pointers(writer, place, dtype, stride, width), vector("ptr", width)
        name = f"llvm.masked.scatter.{suffix(scalar, width)}.{suffix('ptr', width)}"
    writer.call(
        "void",
        name,
        [(type_, raw), (kind, where), ("i32", str(align)), (vector("i1", width), mask)],
    )


def load_parts(
    writer: Writer, place: str, dtype: DType, odd: bool, width: int, both: str | None
) -> str:
    """The even or the odd ones of 2 `width` elements from `place` on, as compute values.

    Lanes outside of `both`, a mask for all elements, are 0 and not read.
    """
    type_ = vector(STORED[dtype], 2 * width)
    raw = _elements(writer, place, dtype, 2 * width, both)
    chosen = ", ".join(f"i32 {2 * k + odd}" for k in range(width))
    mask = f"{vector('i32', width)} <{chosen}>"
    return from_stored(
        writer, writer.value(f"shufflevector {type_} {raw}, {type_} poison, {mask}"), dtype, width
    )


def store_parts(
    writer: Writer,
    parts: tuple[str, str],
    place: str,
    dtype: DType,
    width: int,
    masks: tuple[str | None, str | None],
) -> None:
    """The inverse of `load_parts`, for both; the masks are for a part and for all elements."""
    type_ = vector(STORED[dtype], width)
    first, second = (to_stored(writer, x, dtype, width) for x in parts)
    chosen = ", ".join(f"i32 {k}, i32 {k + width}" for k in range(width))
    lanes = f"{vector('i32', 2 * width)} <{chosen}>"
    if writer.anomaly is not None:
        writer.anomaly.store(first, dtype, width, masks[0])
        writer.anomaly.store(second, dtype, width, masks[0])
    raw = writer.value(f"shufflevector {type_} {first}, {type_} {second}, {lanes}")
    _put_elements(writer, raw, place, dtype, 2 * width, masks[1])


def _elements(writer: Writer, place: str, dtype: DType, width: int, mask: str | None) -> str:
    """Neighbours from `place` on, as they are stored."""
    scalar = STORED[dtype]
    type_, align = vector(scalar, width), dtype.itemsize
    if mask is None:
        return writer.value(f"load {type_}, ptr {place}, align {align}")
    flags = vector("i1", width)
    operands = [("ptr", place), ("i32", str(align)), (flags, mask), (type_, "zeroinitializer")]
    return writer.call(type_, f"llvm.masked.load.{suffix(scalar, width)}.p0", operands)


def _put_elements(
    writer: Writer, raw: str, place: str, dtype: DType, width: int, mask: str | None
) -> None:
    scalar = STORED[dtype]
    type_, align = vector(scalar, width), dtype.itemsize
    if mask is None:
        writer.line(f"store {type_} {raw}, ptr {place}, align {align}")
        return
    operands = [
        *((type_, raw), ("ptr", place), ("i32", str(align))),
        (vector("i1", width), mask),
    ]
    writer.call("void", f"llvm.masked.store.{suffix(scalar, width)}.p0", operands)


def first_lanes(writer: Writer, count: str, width: int) -> str:
    """A mask of the first `count` lanes (count may exceed the width)."""
    counts = lane_splat(writer, count, width)
    return writer.value(f"icmp sgt {vector('i64', width)} {counts}, {lane_numbers(width)}")
