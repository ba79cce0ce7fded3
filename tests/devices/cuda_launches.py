"""Launches of every kind of kernel, for checking the CUDA device against the reference device.

For tests/devices/test_cuda.py (a GPU), tests/emit/test_cuda.py (emulated) and
tests/devices/cuda_selfcheck.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rushlight.core.dtypes import (
    ALL as EVERY,
    FLOAT,
    INTEGER as WHOLE,
    DType,
    bfloat16,
    bool_,
    compute_type,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint32,
)
from rushlight.core.shapes import contiguous_strides
from rushlight.devices.reference import narrow, widen
from rushlight.kernel.shapes import (
    SCATTERS,
    Contract,
    Gather,
    Kernel,
    Map,
    Reduce,
    Rowwise,
    Scan,
    Scatter,
)
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg, binary, const, extent, index, param, row
from rushlight.scalar.philox import normal, uniform

# Each case is a compilation: small integers differ in loads and stores alone, so few cases have
# them.
INTEGER = (int32, int64)
ALL = (bool_, *INTEGER, *FLOAT)
SMALL = tuple(d for d in EVERY if d not in ALL)

GUARD = 16  # guard elements before and after every operand
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.5,
    1e-40,
    1e-7,
    88.0,
    -104.0,
    710.0,
    65504.0,
    65520.0,
    1e30,
    -3e38,
]
SPECIAL += [
    math.inf,
    -math.inf,
    math.nan,
    6e-8,
    2.98e-8,
    6.1e-5,
    2049.0,
    2051.0,
    1.00390625,
    1.01171875,
]


@dataclass
class Operand:
    """A view: a buffer, its first element, and its strides."""

    buffer: int
    offset: int
    strides: tuple[int, ...]


@dataclass
class Case:
    name: str
    kernel: Kernel
    sizes: tuple[int, ...]
    params: tuple[float, ...] = ()
    tolerance: float = 0.0  # in units of the output type's rounding
    status: bool = False  # whether the launch takes a status word
    bad_index: bool = False
    buffers: list[np.ndarray] = field(default_factory=list)
    dtypes: list[DType] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)

    def add(
        self,
        dtype: DType,
        values: np.ndarray,
        strides: Sequence[int] | None = None,
        offset: int = GUARD,
    ) -> int:
        """A new buffer holding `values` in storage form, seen with `strides` over it."""
        flat = np.ascontiguousarray(values).reshape(-1)
        whole = np.full(flat.size + GUARD + offset, 1, flat.dtype)
        whole[offset : offset + flat.size] = flat
        self.buffers.append(whole)
        self.dtypes.append(dtype)
        if strides is None:
            strides = contiguous_strides(values.shape)
        self.operands.append(Operand(len(self.buffers) - 1, offset, tuple(strides)))
        return len(self.buffers) - 1

    def share(self, buffer: int, operand: Operand) -> None:
        self.operands.append(Operand(buffer, operand.offset, operand.strides))


def stored(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Values as they lie in memory."""
    with np.errstate(all="ignore"):
        if dtype is bfloat16:
            return narrow(values.astype(np.float32))
        return values.astype(np.dtype(dtype.name))


def draw(rng: np.random.Generator, shape: Sequence[int], dtype: DType) -> np.ndarray:
    if dtype is bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        return rng.integers(-9, 10, shape).astype(dtype.name)
    return stored(rng.standard_normal(shape), dtype)


def as_numbers(raw: np.ndarray, dtype: DType) -> np.ndarray:
    return widen(raw).astype(np.float64) if dtype is bfloat16 else raw.astype(np.float64)


UNIT = {float16: 2.0**-11, bfloat16: 2.0**-8, float32: 2.0**-24, float64: 2.0**-53}


def differs(
    case: Case, number: int, got: np.ndarray, want: np.ndarray, scaled: bool = False
) -> str | None:
    """How a buffer differs from the reference device's, or None.

    Where results come near 0 by cancellation (`scaled`, and some kinds always) errors are relative
    to the largest of them.
    """
    dtype = case.dtypes[number]
    if got.tobytes() == want.tobytes():
        return None
    if dtype.kind != "f":
        wrong = np.nonzero(got != want)[0]
        at = wrong[0]
        return (
            f"buffer {number}: {wrong.size} of {got.size} differ, first at {at}: {got[at]} for "
            f"{want[at]}"
        )
    g, w = as_numbers(got, dtype), as_numbers(want, dtype)
    finite = w[np.isfinite(w)]
    scaled = scaled or case.name.startswith(("row", "contract", "scan log", "scan strided log"))
    scale = np.abs(finite).max(initial=0.0) if scaled else 0.0
    unit = UNIT[dtype] * (2 + case.tolerance)
    tiny = {float16: 6e-8, bfloat16: 1e-38, float32: 2e-44, float64: 1e-320}[dtype]
    with np.errstate(all="ignore"):
        close = (
            (np.abs(g - w) <= unit * np.maximum(np.abs(w), scale) + tiny)
            | (g == w)
            | (np.isnan(g) & np.isnan(w))
        )
    wrong = np.nonzero(~close)[0]
    if wrong.size:
        at = wrong[0]
        return (
            f"buffer {number} ({dtype.name}): {wrong.size} of {g.size} differ, first at {at}: "
            f"{g[at]!r} for {w[at]!r}"
        )
    return None


def numbers_of(case: Case, addresses: Sequence[int], status: int) -> list[float]:
    """The flat arguments of Note [Kernel arguments]."""
    views = [addresses[o.buffer] + o.offset * case.dtypes[o.buffer].itemsize for o in case.operands]
    strides = (
        []
        if isinstance(case.kernel, Map) and not case.kernel.rank
        else [k for o in case.operands for k in o.strides]
    )
    return [*views, *([status] if case.status else []), *case.sizes, *strides, *case.params]


# ---- maps ----

F = [arg(i, float32) for i in range(3)]


def _flat(
    name: str,
    kernel: Map,
    arrays: Sequence[np.ndarray],
    n: int,
    offset: int = GUARD,
    **more: object,
) -> Case:
    case = Case(name, kernel, (n,), **more)
    for dtype in kernel.outputs:
        case.add(dtype, stored(np.zeros(n), dtype), (), offset)
    for dtype, values in zip(kernel.inputs, arrays, strict=True):
        case.add(dtype, values, (), offset)
    return case


def unary_cases(rng: np.random.Generator) -> Iterator[Case]:
    names = [
        "neg",
        "abs",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sqrt",
        "exp",
        "log",
        "sin",
        "cos",
        "tanh",
        "erf",
    ]
    verbs = {"neg": lambda x: -x, "abs": s.absolute, "round": s.round_even}
    for dtype in FLOAT:
        wide = compute_type(dtype)
        x = arg(0, wide)
        values = np.concatenate([SPECIAL, rng.standard_normal(37) * 5])
        for verb in names:
            body = verbs.get(verb) or getattr(s, verb)
            kernel = Map((dtype,), (dtype,), (), (body(x),), 0, ("1", "1"))
            # CUDA's own functions are within a few units in the last place.
            yield _flat(
                f"{verb} {dtype.name}", kernel, [stored(values, dtype)], values.size, tolerance=6
            )
        for target in ALL if dtype is not float32 else EVERY:
            # Out of range a cast is unspecified; small types are cut from int32, which holds these.
            least = 0 if target.kind == "u" and target.itemsize >= 4 else -1e4
            within = (
                np.clip(values[np.isfinite(values)], least, 1e4) if target.kind != "f" else values
            )
            body_c = s.cast(x, compute_type(target))
            kernel = Map((target,), (dtype,), (), (body_c,), 0, ("1", "1"))
            yield _flat(
                f"cast {dtype.name} to {target.name}", kernel, [stored(within, dtype)], within.size
            )
    for dtype in (bool_, *WHOLE):
        for target in ALL if dtype not in SMALL else (bool_, float32):
            values = np.array([0, 1, 5, -7, 2**31 - 1, -(2**31), 16777217, 3]).astype(
                np.bool_ if dtype is bool_ else dtype.name
            )
            kernel = Map(
                (target,),
                (dtype,),
                (),
                (s.cast(arg(0, compute_type(dtype)), compute_type(target)),),
                0,
                ("1", "1"),
            )
            yield _flat(f"cast {dtype.name} to {target.name}", kernel, [values], values.size)


def binary_cases(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in FLOAT:
        wide = compute_type(dtype)
        x, y = arg(0, wide), arg(1, wide)
        left, right = (stored(v.reshape(-1), dtype) for v in np.meshgrid(SPECIAL, SPECIAL))
        bodies = {
            op: binary(op, x, y) for op in ("add", "sub", "mul", "div", "rem", "min", "max", "pow")
        }
        bodies["fma"] = s.fma(x, y, x)
        for op, body in bodies.items():
            kernel = Map((dtype,), (dtype, dtype), (), (body,), 0, ("1", "1", "1"))
            yield _flat(
                f"{op} {dtype.name}",
                kernel,
                [left, right],
                left.size,
                tolerance=14 if op == "pow" else 0,
            )
        for op in ("eq", "ne", "lt", "le"):
            kernel = Map((bool_,), (dtype, dtype), (), (binary(op, x, y),), 0, ("1", "1", "1"))
            yield _flat(f"{op} {dtype.name}", kernel, [left, right], left.size)
        chosen = s.where(s.isnan(x) | (x < y), y, const(math.inf, wide))
        yield _flat(
            f"where {dtype.name}",
            Map((dtype,), (dtype, dtype), (), (chosen,), 0, ("1",) * 3),
            [left, right],
            left.size,
        )
    for dtype in WHOLE:
        top = 2 ** (dtype.itemsize * 8 - 1)
        edge = np.array([0, 1, -1, 2, -7, 7, 100, -100, 33, top - 1, -top]).astype(dtype.name)
        left, right = (v.reshape(-1) for v in np.meshgrid(edge, edge))
        x, y = arg(0, compute_type(dtype)), arg(1, compute_type(dtype))
        ops = ("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr")
        bodies = {op: binary(op, x, y) for op in ops} | {"neg": -x, "abs": s.absolute(x), "not": ~x}
        if dtype in SMALL:
            bodies = {op: bodies[op] for op in ("mul", "div", "shr")}
        for op, body in bodies.items():
            kernel = Map((dtype,), (dtype, dtype), (), (body,), 0, ("1", "1", "1"))
            yield _flat(f"{op} {dtype.name}", kernel, [left, right], left.size)
        same = {int32: float32, int64: float64}.get(dtype)
        if same is None:
            continue
        kernel = Map((dtype,), (same,), (), (s.bits_to(arg(0, same), dtype),), 0, ("1", "1"))
        yield _flat(f"bits {dtype.name}", kernel, [stored(np.array(SPECIAL[:16]), same)], 16)


def flat_cases(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in EVERY:
        x, y = arg(0, compute_type(dtype)), arg(1, compute_type(dtype))
        body = x + y if dtype is not bool_ else x ^ y
        for n in (0, 1, 3, 17, 256, 1027, 70001):
            for offset in (GUARD, 1):
                arrays = [draw(rng, n, dtype), draw(rng, n, dtype)]
                kernel = Map((dtype,), (dtype, dtype), (), (body,), 0, ("1", "1", "1"))
                yield _flat(
                    f"flat add {dtype.name} n={n} offset={offset}", kernel, arrays, n, offset
                )
    kernel = Map(
        (float32,),
        (float32, float32),
        (float32, int64),
        (F[0] * F[1] + param(0, float32),),
        0,
        ("1", "1", "0"),
    )
    yield _flat(
        "flat scalar operand",
        kernel,
        [draw(rng, 1000, float32), draw(rng, 1, float32)],
        1000,
        params=(0.1, 7),
    )
    kernel = Map((float32,), (float32,), (), (F[0] * 2.0,), 0, ("1", "1"))
    case = Case("flat in place", kernel, (1001,))
    case.add(float32, draw(rng, 1001, float32), ())
    case.share(0, case.operands[0])
    yield case
    mixed = (s.cast(F[0] < F[1], float64), F[0] * F[1], s.cast(index(), int32))
    kernel = Map((float64, bfloat16, int32), (float16, float32), (), mixed, 0, ("1",) * 5)
    yield _flat("flat mixed", kernel, [draw(rng, 515, float16), draw(rng, 515, float32)], 515)
    seed = param(0, int64)
    for name, number in (
        ("uniform", uniform(seed, index())),
        ("normal", normal(seed, index() + param(1, int64))),
    ):
        kernel = Map((float32,), (), (int64, int64), (number,), 0, ("1",))
        yield _flat(
            f"flat {name}", kernel, [], 4099, params=(2**40 + 12345, 2**33 + 5), tolerance=30
        )
    chosen = s.where(param(0, bool_), F[0], -F[0])
    kernel = Map((float32,), (float32,), (bool_, uint32), (chosen,), 0, ("1", "1"))
    yield _flat("flat bool param", kernel, [draw(rng, 9, float32)], 9, params=(True, 3))


def strided_cases(rng: np.random.Generator) -> Iterator[Case]:
    def make(
        name: str,
        sizes: tuple[int, ...],
        steps: tuple[str, ...],
        strides: Sequence[tuple[int, ...]],
        dtype: DType,
    ) -> Case:
        x, y = arg(0, compute_type(dtype)), arg(1, compute_type(dtype))
        body = s.maximum(x, y) + s.cast(index(), compute_type(dtype))
        case = Case(
            f"strided {name} {dtype.name}",
            Map((dtype,), (dtype, dtype), (), (body,), len(sizes), steps),
            sizes,
        )
        for step in strides:
            span = (
                1 + sum((z - 1) * k for z, k in zip(sizes, step, strict=True))
                if math.prod(sizes)
                else 1
            )
            case.add(dtype, draw(rng, span, dtype), step)
        return case

    for dtype in (float32, float16, int64, bfloat16, float64, int32):
        yield make("bias", (37, 64), ("1", "1", "1"), [(64, 1), (64, 1), (0, 1)], dtype)
        yield make("bias tail", (37, 61), ("1", "1", "1"), [(61, 1), (61, 1), (0, 1)], dtype)
        yield make("column", (9, 40), ("1", "1", "0"), [(40, 1), (40, 1), (1, 0)], dtype)
        yield make("transposed", (24, 32), ("1", "n", "1"), [(32, 1), (1, 24), (32, 1)], dtype)
    yield make("rank 1", (100,), ("n", "n", "n"), [(2,), (3,), (1,)], float32)
    yield make(
        "rank 5",
        (3, 2, 5, 4, 8),
        ("1",) * 3,
        [(320, 160, 32, 8, 1), (0, 160, 0, 8, 1), (8, 0, 24, 0, 1)],
        float32,
    )
    yield make("empty", (3, 0, 4), ("1",) * 3, [(0, 4, 1), (0, 4, 1), (0, 4, 1)], float32)


def pair_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Products of complex numbers: even and odd elements of shared memory, also in place."""
    a, b, c, d = (arg(i, float32) for i in range(4))
    kernel = Map(
        (float32,) * 2, (float32,) * 4, (), (a * c - b * d, a * d + b * c), 1, tuple("eoeoeo")
    )
    for name, n, in_place in (("", 37, False), (" whole", 64, False), (" in place", 40, True)):
        case = Case(f"strided float32 pairs{name}", kernel, (n,))
        for buffer in [0, 0, 1] if in_place else [0, 1, 2]:
            if buffer == len(case.buffers):
                case.add(float32, draw(rng, 2 * n, float32), (2,))
            else:
                case.operands.append(Operand(buffer, GUARD, (2,)))
            case.operands.append(Operand(buffer, GUARD + 1, (2,)))
        yield case


def map_cases(rng: np.random.Generator) -> Iterator[Case]:
    yield from unary_cases(rng)
    yield from binary_cases(rng)
    yield from flat_cases(rng)
    yield from strided_cases(rng)
    yield from pair_cases(rng)


# ---- rows ----


def softmax(dtype: DType, vector: str, steps: tuple[str, str]) -> Rowwise:
    wide = compute_type(dtype)
    x, top, total = arg(0, wide), row(0, wide), row(1, wide)
    passes = (Reduce("max", x), Reduce("sum", s.exp(x - top)))
    return Rowwise(
        (dtype,), ("element",), (dtype,), (), passes, (s.exp(x - top) / total,), vector, steps
    )


def layer_norm(vector: str) -> Rowwise:
    """Three inputs (values, weight, bias), the values and the row's mean and scale as outputs."""
    n = s.cast(extent(), float32)
    mean, spread = row(0, float32) / n, row(1, float32) / n
    scale = 1.0 / s.sqrt(spread + param(0, float32))
    passes = (Reduce("sum", F[0]), Reduce("sum", (F[0] - mean) * (F[0] - mean)))
    stores = ((F[0] - mean) * scale * F[1] + F[2], mean, scale)
    kinds = ("element", "row", "row")
    steps = ("1", "0", "0", "1", "1", "1") if vector == "axis" else ("1", "1", "1", "1", "0", "0")
    return Rowwise((float32,) * 3, kinds, (float32,) * 3, (float32,), passes, stores, vector, steps)


def argmax(vector: str) -> Rowwise:
    far = const(2**62, int64)
    place = s.where(F[0].eq(row(0, float32)) | s.isnan(F[0]), index(), far)
    passes = (Reduce("max", F[0]), Reduce("min", place))
    return Rowwise((int64,), ("row",), (float32,), (), passes, (row(1, int64),), vector, ("n", "n"))


def fold(kind: str, dtype: DType, vector: str) -> Rowwise:
    wide = compute_type(dtype)
    steps = ("0", "1") if vector == "axis" else ("1", "1")
    return Rowwise(
        (dtype,),
        ("row",),
        (dtype,),
        (),
        (Reduce(kind, arg(0, wide)),),
        (row(0, wide),),
        vector,
        steps,
    )


def any_true(vector: str) -> Rowwise:
    steps = ("0", "1") if vector == "axis" else ("1", "1")
    passes = (Reduce("max", s.cast(arg(0, bool_), int32)),)
    return Rowwise(
        (bool_,), ("row",), (bool_,), (), passes, (s.cast(row(0, int32), bool_),), vector, steps
    )


def block_strides(shape: tuple[int, int, int], vector: str) -> tuple[int, int, int]:
    _, axis, inner = shape
    return (axis, 1, 0) if vector == "axis" else (axis * inner, inner, 1)


def row_case(
    name: str,
    kernel: Rowwise,
    shape: tuple[int, int, int],
    inputs: Sequence[tuple[np.ndarray, tuple[int, ...]]],
    offset: int = GUARD,
    **more: object,
) -> Case:
    outer, _, inner = shape
    case = Case(f"row {name} {shape}", kernel, shape, **more)
    for dtype, kind in zip(kernel.outputs, kernel.kinds, strict=True):
        if kind == "element":
            case.add(
                dtype, stored(np.zeros(shape), dtype), block_strides(shape, kernel.vector), offset
            )
        else:
            case.add(dtype, stored(np.zeros((outer, inner)), dtype), (inner, 0, 1), offset)
    for dtype, (values, strides) in zip(kernel.inputs, inputs, strict=True):
        case.add(dtype, values, strides, offset)
    return case


AXIS_SHAPES = [
    (3, 1, 1),
    (5, 7, 1),
    (9, 33, 1),
    (4, 1000, 1),
    (3, 1024, 1),
    (3, 1025, 1),
    (2, 4099, 1),
    (2, 20011, 1),
]
AXIS_SHAPES += [(1, 50000, 1), (0, 5, 1), (3, 0, 1), (300, 64, 1), (1, 16384, 1)]
COLUMN_SHAPES = [
    (3, 1, 5),
    (2, 7, 33),
    (2, 16, 40),
    (3, 100, 7),
    (2, 300, 65),
    (1, 3000, 40),
    (2, 0, 3),
    (0, 3, 3),
    (1, 5, 700),
]
COLUMN_SHAPES += [(1, 1024, 32), (2, 2500, 3)]


def one_row_case(
    rng: np.random.Generator,
    name: str,
    kernel: Rowwise,
    shape: tuple[int, int, int],
    **more: object,
) -> Case:
    values = draw(rng, shape, kernel.inputs[0])
    return row_case(name, kernel, shape, [(values, block_strides(shape, kernel.vector))], **more)


def layer_norm_case(rng: np.random.Generator, vector: str, shape: tuple[int, int, int]) -> Case:
    parts = [draw(rng, shape[1], float32) for _ in range(2)]
    inputs = [
        (draw(rng, shape, float32), block_strides(shape, vector)),
        *((p, (0, 1, 0)) for p in parts),
    ]
    return row_case(
        f"layer norm {vector}", layer_norm(vector), shape, inputs, params=(1e-5,), tolerance=60
    )


def row_cases(rng: np.random.Generator) -> Iterator[Case]:
    for vector, shapes in (("axis", AXIS_SHAPES), ("inner", COLUMN_SHAPES)):
        for shape in shapes:
            for dtype in FLOAT:
                kernel = softmax(dtype, vector, ("1", "1"))
                yield one_row_case(
                    rng, f"softmax {vector} {dtype.name}", kernel, shape, tolerance=40
                )
            yield one_row_case(
                rng,
                f"softmax {vector} unaligned",
                softmax(float32, vector, ("1", "1")),
                shape,
                offset=1,
                tolerance=40,
            )
            yield layer_norm_case(rng, vector, shape)
            yield one_row_case(rng, f"argmax {vector}", argmax(vector), shape)
            for dtype in (*INTEGER, *FLOAT):
                yield one_row_case(
                    rng,
                    f"sum {vector} {dtype.name}",
                    fold("sum", dtype, vector),
                    shape,
                    tolerance=200,
                )
            yield one_row_case(rng, f"any {vector}", any_true(vector), shape)
            for kind in ("prod", "max", "min"):
                yield one_row_case(
                    rng, f"{kind} {vector}", fold(kind, float32, vector), shape, tolerance=200
                )
                yield one_row_case(rng, f"{kind} {vector} int32", fold(kind, int32, vector), shape)
    yield from special_row_cases(rng)


def special_row_cases(rng: np.random.Generator) -> Iterator[Case]:
    for n in (5, 1500, 20000):
        values = draw(rng, (1, n, 1), float32)
        values[0, n // 2, 0] = math.nan
        for kind in ("sum", "max", "min"):
            yield row_case(
                f"{kind} with NaN", fold(kind, float32, "axis"), (1, n, 1), [(values, (n, 1, 0))]
            )
    kernel = softmax(float32, "axis", ("1", "1"))
    case = Case("row softmax in place", kernel, (7, 1500, 1), tolerance=40)
    case.add(float32, draw(rng, (7, 1500), float32), (1500, 1, 0))
    case.share(0, case.operands[0])
    yield case
    kernel = softmax(float32, "any", ("n", "n"))
    strides = (3, 30 * 3, 2 * 3 * 5 * 30)
    case = row_case(
        "softmax any",
        kernel,
        (4, 70, 3),
        [(draw(rng, 3 * 900 * 3 + 70 * 90, float32), strides)],
        tolerance=40,
    )
    yield case


# ---- products and indices ----


def contract_case(
    rng: np.random.Generator,
    name: str,
    dtype: DType,
    sizes: tuple[int, ...],
    transposed: str = "",
    broadcast: str = "",
    spread: str = "",
) -> Case:
    """`transposed` and `broadcast` name operands among o, a and b.

    `spread` those with every second element.
    """
    x, y, m, n, k = sizes
    case = Case(
        f"contract {name} {dtype.name} {sizes}",
        Contract(dtype, compute_type(dtype)),
        sizes,
        tolerance=64,
    )
    for letter, (r, c) in (("o", (m, n)), ("a", (m, k)), ("b", (k, n))):
        step = 2 if letter in spread else 1
        by_row, by_column = (1, r) if letter in transposed else (c, 1)
        strides = (y * r * c * step, r * c * step, by_row * step, by_column * step)
        if letter in broadcast:
            strides = (0, 0, *strides[2:])
        shape = (x, y, r, c, step)
        case.add(
            dtype,
            draw(rng, shape, dtype) if letter != "o" else stored(np.zeros(shape), dtype),
            strides,
        )
    return case


def contract_cases(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in (*WHOLE, *FLOAT):
        for sizes in (
            (1, 1, 1, 1, 1),
            (1, 1, 65, 70, 33),
            (2, 3, 17, 5, 9),
            (1, 1, 4, 0, 3),
            (1, 1, 3, 4, 0),
            (1, 1, 128, 128, 64),
        ):
            yield contract_case(rng, "plain", dtype, sizes)
        for letters in ("a", "b", "ab", "o", "oa", "ob", "oab"):
            yield contract_case(rng, f"transposed {letters}", dtype, (2, 2, 20, 12, 16), letters)
        yield contract_case(rng, "broadcast b", dtype, (3, 2, 7, 8, 9), "", "b")
        yield contract_case(rng, "broadcast a", dtype, (3, 2, 7, 8, 9), "b", "a")
        for letters in ("oab", "a", "b", "ab"):
            yield contract_case(rng, f"spread {letters}", dtype, (2, 3, 7, 8, 9), "b", "", letters)
        yield contract_case(rng, "spread broadcast", dtype, (2, 3, 7, 8, 9), "", "a", "a")
        yield heads_case(rng, dtype)
        yield contract_case(rng, "vector", dtype, (1, 1, 1, 50, 20))
        yield contract_case(rng, "vector", dtype, (1, 1, 50, 1, 20), "b")


def added_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Something is added to the product: a bias, a matrix, or what a library does not take."""
    for dtype in FLOAT:
        for name, sizes, strides in (
            ("bias", (1, 1, 65, 24, 33), (0, 0, 0, 1)),
            ("one for all", (2, 1, 7, 8, 9), (0, 0, 0, 1)),
            ("bias", (1, 1, 5, 8, 0), (0, 0, 0, 1)),
            ("spread bias", (1, 1, 9, 8, 7), (0, 0, 0, 2)),
            ("matrix", (1, 1, 9, 8, 7), (0, 0, 10, 1)),
            ("rows", (1, 1, 9, 8, 7), (0, 0, 1, 0)),
            ("matrices", (2, 3, 9, 8, 7), (216, 72, 8, 1)),
        ):
            case = contract_case(rng, f"added {name}", dtype, sizes)
            case.kernel = Contract(dtype, compute_type(dtype), added=True)
            reach = sum((n - 1) * s for n, s in zip(sizes[:4], strides, strict=True)) + 1
            case.add(dtype, draw(rng, (reach,), dtype), strides)
            yield case


def heads_case(rng: np.random.Generator, dtype: DType) -> Case:
    """Heads lie between rows and columns, as in attention, so the batch dimensions do not merge."""
    case = contract_case(rng, "heads", dtype, (2, 3, 8, 8, 4))
    for operand, (r, c) in zip(case.operands, ((8, 8), (8, 4), (4, 8)), strict=True):
        operand.strides = (3 * r * c, c, 3 * c, 1)
    return case


def index_cases(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in EVERY:
        for kind in (int32, int64) if dtype in ALL else (int64,):
            picks = rng.integers(0, 11, (2, 9, 5)).astype(kind.name)
            gather = Case(
                f"gather {dtype.name} {kind.name}", Gather(dtype, kind), (2, 9, 5, 11), status=True
            )
            gather.add(dtype, stored(np.ones((2, 9, 5)), dtype))
            gather.add(dtype, draw(rng, (2, 11, 5), dtype))
            gather.add(kind, picks)
            yield gather
            wide = kind is int64 and dtype in (float32, bfloat16, int64)
            for how in ("set",) if dtype is bool_ else SCATTERS if wide else ("add",):
                name = f"scatter {how} {dtype.name} {kind.name}"
                scatter = Case(name, Scatter(dtype, kind, how), (2, 9, 5, 11), status=True)
                scatter.add(dtype, draw(rng, (2, 11, 5), dtype))
                scatter.add(dtype, draw(rng, (2, 9, 5), dtype))
                scatter.add(kind, picks)
                yield scatter
    rows = Case("gather rows", Gather(float32, int64), (1, 300, 64, 50), status=True)
    rows.add(float32, np.zeros((1, 300, 64), np.float32))
    rows.add(float32, draw(rng, (1, 50, 64), float32))
    rows.add(int64, rng.integers(0, 50, 300), (0, 1, 0))
    yield rows
    for how in SCATTERS:
        back = Case(
            f"scatter {how} rows", Scatter(float32, int64, how), (1, 300, 64, 50), status=True
        )
        back.add(float32, draw(rng, (1, 50, 64), float32))
        back.add(float32, draw(rng, (1, 300, 64), float32))
        back.add(int64, rng.integers(0, 50, 300), (0, 1, 0))
        yield back
    yield from scatter_row_cases(rng)
    for kernel in (Gather(float32, int64), Scatter(float32, int64)):
        bad = Case(
            f"bad index {type(kernel).__name__}", kernel, (1, 3, 2, 4), status=True, bad_index=True
        )
        shapes = ((1, 3, 2), (1, 4, 2)) if isinstance(kernel, Gather) else ((1, 4, 2), (1, 3, 2))
        for shape in shapes:
            bad.add(float32, draw(rng, shape, float32))
        bad.add(int64, np.array([1, 4, -1]), (0, 1, 0))
        yield bad


def scatter_row_cases(rng: np.random.Generator) -> Iterator[Case]:
    """One index per row: aligned and not, many for one target, more than a queue holds, narrow and
    wide.
    """
    shapes = [
        (1, 1000, 64, 7),
        (1, 700, 300, 500),
        (2, 40, 8, 5),
        (3, 600, 1, 4),
        (1, 900, 1, 400),
        (1, 5, 3000, 4),
    ]
    for dtype in (float32, float16, bfloat16, int64):
        for outer, count, inner, limit in shapes:
            for offset in (GUARD, 1):
                name = f"scatter row {dtype.name} {(outer, count, inner, limit)} offset={offset}"
                case = Case(name, Scatter(dtype, int64), (outer, count, inner, limit), status=True)
                case.add(dtype, draw(rng, (outer, limit, inner), dtype), offset=offset)
                case.add(dtype, draw(rng, (outer, count, inner), dtype), offset=offset)
                picks = rng.integers(0, limit, (outer, count))
                picks[:, count // 3 : count // 2] = limit - 1
                case.add(int64, picks, (count, 1, 0))
                yield case
                gather = Case(
                    name.replace("scatter", "gather"), Gather(dtype, int64), case.sizes, status=True
                )
                gather.add(dtype, stored(np.ones((outer, count, inner)), dtype), offset=offset)
                gather.add(dtype, draw(rng, (outer, limit, inner), dtype), offset=offset)
                gather.add(int64, picks, (count, 1, 0))
                yield gather


# ---- scans ----


def scan_kernel(kind: str, dtype: DType, output: DType | None = None) -> Scan:
    """A running fold.

    "linear" is state * second input + first, "log" the log of a sum of exponentials.
    """
    output = output or dtype
    wide = compute_type(output)
    state, x = row(0, wide), s.cast(arg(0, compute_type(dtype)), wide)
    top = 1 << (wide.itemsize * 8 - 1)
    low, high = (-math.inf, math.inf) if wide.kind == "f" else (-top, top - 1)
    if kind == "linear":
        return Scan(
            output,
            (dtype, dtype),
            const(0, wide),
            state * s.cast(arg(1, compute_type(dtype)), wide) + x,
        )
    if kind == "log":
        larger, gap = s.maximum(state, x), s.absolute(state - x)
        return Scan(
            output,
            (dtype,),
            const(low, wide),
            larger + s.log(1 + s.exp(-s.where(s.isnan(gap), 0.0, gap))),
        )
    body = {
        "sum": state + x,
        "prod": state * x,
        "max": s.maximum(state, x),
        "min": s.minimum(state, x),
    }[kind]
    return Scan(
        output, (dtype,), const({"sum": 0, "prod": 1, "max": low, "min": high}[kind], wide), body
    )


def scan_case(
    rng: np.random.Generator,
    name: str,
    kernel: Scan,
    shape: tuple[int, ...],
    offset: int = GUARD,
    **more: object,
) -> Case:
    case = Case(f"scan {name}", kernel, shape, **more)
    case.add(kernel.output, stored(np.ones(shape), kernel.output), offset=offset)
    for dtype in kernel.inputs:
        case.add(dtype, draw(rng, shape, dtype), offset=offset)
    return case


def scan_cases(rng: np.random.Generator) -> Iterator[Case]:
    shapes = [
        (3, 37, 1),
        (2, 9, 70),
        (1, 5, 1000),
        (200, 3, 1),
        (2, 4, 5),
        (0, 3, 2),
        (2, 0, 3),
        (2, 3, 0),
    ]
    for dtype in (*FLOAT, *INTEGER):
        for kind in ("sum", "prod", "max", "min", "linear"):
            for shape in shapes:
                yield scan_case(
                    rng, f"{kind} {dtype.name} {shape}", scan_kernel(kind, dtype), shape, offset=1
                )
    for given, output in (
        (bool_, int64),
        (int32, int64),
        (float16, float32),
        (float32, bfloat16),
        (bool_, float32),
    ):
        yield scan_case(
            rng, f"{given.name} to {output.name}", scan_kernel("sum", given, output), (2, 30, 7)
        )
    for dtype in FLOAT:
        for shape in ((2, 30, 7), (21, 30, 1), (1, 9, 1), (3, 5, 40)):
            yield scan_case(
                rng, f"log {dtype.name} {shape}", scan_kernel("log", dtype), shape, tolerance=60
            )
    for dtype in (float32, float16, int64):
        x, best = arg(0, compute_type(dtype)), arg(1, compute_type(dtype))
        body = s.where(x < best, index(), row(0, int64))
        kernel = Scan(int64, (dtype, dtype), const(0, int64), body)
        for shape in ((3, 37, 1), (2, 9, 70)):
            yield scan_case(rng, f"place {dtype.name} {shape}", kernel, shape)
    yield from odd_scan_cases(rng)


def odd_scan_cases(rng: np.random.Generator) -> Iterator[Case]:
    """NaN and infinities, other layouts, from the end, in place."""
    for kind in ("sum", "prod", "max", "min", "log"):
        for dtype in (float32, float16):
            case = Case(
                f"scan special {kind} {dtype.name}",
                scan_kernel(kind, dtype),
                (1, 6, len(SPECIAL)),
                tolerance=60,
            )
            case.add(dtype, stored(np.ones((6, len(SPECIAL))), dtype), (0, len(SPECIAL), 1))
            case.add(
                dtype,
                stored(np.stack([rng.permutation(SPECIAL) for _ in range(6)]), dtype),
                (0, len(SPECIAL), 1),
            )
            yield case
    for dtype in (float32, bfloat16, int64):
        kernel = scan_kernel("linear", dtype)
        strided = scan_case(rng, f"strided {dtype.name}", kernel, (3, 8, 20))
        strided.operands[0].strides, strided.operands[1].strides = (1, 3, 24), (8, 1, 24)
        yield strided
        if dtype.kind == "f":
            # Near a zero of the result the error is that of the operands: many units of the result.
            large = scan_case(
                rng,
                f"strided log {dtype.name}",
                scan_kernel("log", dtype),
                (3, 8, 20),
                tolerance=1000,
            )
            large.operands[0].strides, large.operands[1].strides = (1, 3, 24), (8, 1, 24)
            yield large
        spread = scan_case(rng, f"one coefficient {dtype.name}", kernel, (3, 8, 20))
        spread.operands[2].strides = (0, 0, 0)
        yield spread
        back = scan_case(rng, f"from the end {dtype.name}", kernel, (3, 8, 20))
        for operand in back.operands:
            operand.offset += 7 * 20
            operand.strides = (160, -20, 1)
        yield back
        for shape in ((3, 8, 20), (5, 40, 1)):
            within = Case(f"scan in place {dtype.name} {shape}", scan_kernel("sum", dtype), shape)
            buffer = within.add(dtype, draw(rng, shape, dtype))
            within.share(buffer, within.operands[0])
            yield within


def every_case(seed: int = 7) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    yield from map_cases(rng)
    yield from row_cases(rng)
    yield from contract_cases(rng)
    yield from added_cases(rng)
    yield from index_cases(rng)
    yield from scan_cases(rng)


def emulated_cases(seed: int = 7) -> Iterator[Case]:
    """A few dozen kernels that cover every path: each costs a run of the C++ compiler."""
    rng = np.random.default_rng(seed)
    kinds = (
        "flat add float32",
        "flat add float16",
        "flat scalar",
        "flat in place",
        "flat mixed",
        "flat normal",
        "div int32",
        "rem int64",
        "flat add uint8 n=17",
        "div uint64",
        "shr int8",
    )
    for case in map_cases(rng):
        if case.name.startswith(kinds) or (
            case.name.startswith("strided") and "float32" in case.name
        ):
            yield case
    kinds = (
        "row softmax axis float32",
        "row softmax inner float16",
        "row layer norm",
        "row argmax",
        "row softmax any",
        "row softmax in place",
    )
    kinds += (
        "row sum axis float32",
        "row sum inner float32",
        "row max axis",
        "row any",
        "row sum with",
        "row prod inner",
    )
    for case in row_cases(rng):
        if case.name.startswith(kinds):
            yield case
    for case in (*contract_cases(rng), *added_cases(rng)):
        if case.kernel.dtype in (float32, int64):
            yield case
    for case in index_cases(rng):
        if "bfloat16" not in case.name and "bool" not in case.name:
            yield case
    for case in scan_cases(rng):
        if case.name.startswith(("scan special", "scan log", "scan in place", "scan bool")) or (
            "prod" not in case.name and ("float32" in case.name or "int64" in case.name)
        ):
            yield case
