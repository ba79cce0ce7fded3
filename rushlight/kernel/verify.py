"""The verifier: refuses ill-formed kernels before an emitter or a driver sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rushlight.core.dtypes import (
    ALL,
    FLOAT,
    INDEX,
    NUMBER,
    DType,
    bool_,
    compute_type,
    float32,
    float64,
    int32,
    int64,
    uint32,
    uint64,
)
from rushlight.kernel.attend import FORMS
from rushlight.kernel.shapes import (
    SCATTERS,
    Attend,
    Cell,
    Contract,
    Convolve,
    Kernel,
    Library,
    Map,
    Rowwise,
    Scan,
    Scatter,
    Search,
    Sort,
)
from rushlight.scalar.ir import (
    COMPARISON,
    ELEMENTARY,
    INSTRUCTIONS,
    LEAVES,
    ROUNDING,
    TYPES,
    Expr,
    topological,
)

REDUCTIONS = ("sum", "prod", "max", "min")
CONVOLUTIONS = ("image", "back", "weights", "runs", "depthwise", "depthwise weights", "turned")
PLANAR = ("runs", "depthwise", "depthwise weights", "turned")  # in two dimensions, float32

_UNARY = (
    "neg",
    "abs",
    "isnan",
    "not",
    "cast",
    "bitcast",
    *ROUNDING,
    *(e for e in ELEMENTARY if e != "pow"),
)
_TERNARY = ("fma", "select")
_SAME_BITS = {
    (float32, int32),
    (float32, uint32),
    (float64, int64),
    (int32, uint32),
    (int64, uint64),
}
_RANGES = {
    int32: (-(2**31), 2**31),
    int64: (-(2**63), 2**63),
    uint32: (0, 2**32),
    uint64: (0, 2**64),
}

# The kinds of operand an instruction takes; instructions not listed take any numbers.
_KINDS = {
    **dict.fromkeys(("fma", "isnan", *ROUNDING, *ELEMENTARY), "f"),
    **dict.fromkeys(("and", "or", "xor", "not"), "biu"),
    **dict.fromkeys(("eq", "ne", "select"), "biuf"),
    **dict.fromkeys(("shl", "shr"), "iu"),
    "mulhi": "u",
    "abs": "if",
}


def verify(kernel: Kernel) -> None:
    """Raise ValueError, saying what is wrong, unless the kernel is well formed."""
    if isinstance(kernel, Map):
        _map(kernel)
    elif isinstance(kernel, Rowwise):
        _rowwise(kernel)
    elif isinstance(kernel, Scan):
        _scan(kernel)
    elif isinstance(kernel, Contract):
        _contract(kernel)
    elif isinstance(kernel, Attend):
        _attend(kernel)
    elif isinstance(kernel, Convolve):
        _convolve(kernel)
    elif isinstance(kernel, Sort):
        _need(kernel.dtype in ALL, f"sort: elements cannot be {kernel.dtype.name}")
    elif isinstance(kernel, Library):
        count = len(kernel.outputs) + len(kernel.inputs)
        _need(len(kernel.outputs) > 0, f"{kernel.function}: there is no output")
        _need(
            len(kernel.ranks) == count,
            f"{kernel.function}: {count} operands but {len(kernel.ranks)} ranks",
        )
    elif isinstance(kernel, Cell):
        _cell(kernel)
    elif isinstance(kernel, Search):
        _need(kernel.dtype in NUMBER, f"search: elements cannot be {kernel.dtype.name}")
    else:
        name, moved = "gather", True
        if isinstance(kernel, Scatter):
            name, moved = f"scatter {kernel.kind}", kernel.kind == "set"
            _need(
                kernel.kind in SCATTERS,
                f"scatter: kind {kernel.kind!r}, not one of {', '.join(SCATTERS)}",
            )
        _need(
            kernel.index_dtype in INDEX,
            f"{name}: indices are int32 or int64, not {kernel.index_dtype.name}",
        )
        _need(
            kernel.dtype in (ALL if moved else NUMBER),
            f"{name}: elements cannot be {kernel.dtype.name}",
        )


def _need(holds: bool, reason: str) -> None:
    if not holds:
        raise ValueError(reason)


# ---- loops ----


def _operands(name: str, kernel: Map | Rowwise) -> None:
    _need(len(kernel.outputs) > 0, f"{name}: there is no output")
    for dtype in kernel.outputs + kernel.inputs:
        _need(dtype in ALL, f"{name}: memory cannot hold {dtype.name}")
    for dtype in kernel.params:
        _need(dtype in TYPES, f"{name}: a parameter cannot be {dtype.name}")
    count = len(kernel.outputs) + len(kernel.inputs)
    _need(len(kernel.steps) == count, f"{name}: {count} operands but {len(kernel.steps)} steps")
    for i, step in enumerate(kernel.steps):
        _need(
            step in ("0", "1", "n", "r", "e", "o"),
            f"{name}: step {i} is {step!r}, not one of 0, 1, n, r, e, o",
        )
    steps = "".join(kernel.steps).replace("eo", "")
    _need(
        "e" not in steps and "o" not in steps,
        f"{name}: steps e and o come in pairs, got {kernel.steps}",
    )
    for i in kernel.anomaly or ():
        _need(
            0 <= i < len(kernel.inputs),
            f"{name}: input {i} is checked for anomalies, there are {len(kernel.inputs)} inputs",
        )


def _stored(name: str, outputs: Sequence[DType], bodies: Sequence[Expr]) -> None:
    _need(len(bodies) == len(outputs), f"{name}: {len(outputs)} outputs but {len(bodies)} bodies")
    for i, (dtype, body) in enumerate(zip(outputs, bodies, strict=True)):
        want = compute_type(dtype)
        _need(
            body.dtype is want,
            f"{name}: output {i} is {dtype.name} and takes {want.name}, its body is "
            f"{body.dtype.name}",
        )


def _map(kernel: Map) -> None:
    _operands("map", kernel)
    _need(kernel.rank >= 0, f"map: rank {kernel.rank} is negative")
    for i, step in enumerate(kernel.steps):
        _need(
            kernel.rank > 0 or step in "01",
            f"map: step {i} is {step}, but a flat map passes no strides",
        )
        _need(
            step != "0" or i >= len(kernel.outputs),
            f"map: output {i} does not move and would be overwritten",
        )
    _stored("map", kernel.outputs, kernel.body)
    for i, body in enumerate(kernel.body):
        _expressions(f"map: body {i}", body, _leaves(kernel.inputs, kernel.params, ("index",), ()))


def _rowwise(kernel: Rowwise) -> None:
    _operands("rowwise", kernel)
    _need(not {"e", "o", "r"} & set(kernel.steps), "rowwise: steps are 0, 1 or n")
    _need(
        kernel.vector in ("axis", "inner", "any"),
        f"rowwise: vector is {kernel.vector!r}, not axis, inner or any",
    )
    if kernel.vector == "any":
        _need(set(kernel.steps) <= {"n"}, 'rowwise: vector is "any", so every step is n')
    _need(
        len(kernel.kinds) == len(kernel.outputs),
        f"rowwise: {len(kernel.outputs)} outputs, {len(kernel.kinds)} kinds",
    )
    rows: list[DType] = []
    for k, step in enumerate(kernel.passes):
        _need(
            step.kind in REDUCTIONS,
            f"rowwise: pass {k} is {step.kind!r}, not one of {', '.join(REDUCTIONS)}",
        )
        _need(step.body.dtype is not bool_, f"rowwise: pass {k} reduces bool; cast it to int32")
        _expressions(
            f"rowwise: pass {k}",
            step.body,
            _leaves(kernel.inputs, kernel.params, ("index", "extent"), rows),
        )
        rows.append(step.body.dtype)
    _stored("rowwise", kernel.outputs, kernel.stores)
    for i, (kind, store) in enumerate(zip(kernel.kinds, kernel.stores, strict=True)):
        _need(kind in ("element", "row"), f"rowwise: kind {i} is {kind!r}, not element or row")
        allowed = ("index", "extent") if kind == "element" else ("extent",)
        _expressions(
            f"rowwise: {kind} store {i}",
            store,
            _leaves(kernel.inputs, kernel.params, allowed, rows),
        )
        if kind == "row":
            _row_store(kernel, i, store)
        else:
            _need(
                kernel.steps[i] != "0",
                f"rowwise: element output {i} does not move and would be overwritten",
            )


def _row_store(kernel: Rowwise, number: int, store: Expr) -> None:
    if kernel.vector != "axis":
        return  # an operand's movement along the axis is known at launch only
    for expr in topological([store]):
        if expr.op == "arg":
            step = kernel.steps[len(kernel.outputs) + int(expr.value or 0)]
            _need(
                step != "1",
                f"rowwise: row store {number} uses {expr!r}, which moves along the axis",
            )


def _scan(kernel: Scan) -> None:
    for dtype in (kernel.output, *kernel.inputs):
        _need(dtype in ALL, f"scan: memory cannot hold {dtype.name}")
    _stored("scan", (kernel.output,), (kernel.body,))
    state = kernel.body.dtype
    _need(kernel.start.op == "const", f"scan: the start is {kernel.start!r}, not a constant")
    _need(
        kernel.start.dtype is state,
        f"scan: the start is {kernel.start.dtype.name}, the state {state.name}",
    )
    _expressions("scan: start", kernel.start, _leaves((), (), (), ()))
    _expressions("scan: body", kernel.body, _leaves(kernel.inputs, (), ("index",), (state,)))


def _convolve(kernel: Convolve) -> None:
    planar = kernel.of in PLANAR
    _need(
        kernel.dtype is float32 or (kernel.dtype.kind == "f" and not planar),
        f"convolve: elements cannot be {kernel.dtype.name}",
    )
    _need(
        kernel.step in (0, 1, 2),
        f"convolve: the step is {kernel.step}, not 1, 2 or 0 for any other",
    )
    _need(
        kernel.of in CONVOLUTIONS,
        f"convolve: of {kernel.of!r}, not one of {', '.join(CONVOLUTIONS)}",
    )
    _need(
        kernel.rank == 2 or (kernel.rank in (1, 3) and not planar),
        f"convolve: {kernel.of} in {kernel.rank} dimensions",
    )


def _contract(kernel: Contract) -> None:
    _need(kernel.dtype in NUMBER, f"contract: elements cannot be {kernel.dtype.name}")
    least = compute_type(kernel.dtype)
    fits = (
        kernel.compute in TYPES
        and kernel.compute.kind == least.kind
        and kernel.compute.itemsize >= least.itemsize
    )
    _need(fits, f"contract: {kernel.dtype.name} cannot be summed in {kernel.compute.name}")
    _need(not kernel.scaled or kernel.dtype.kind == "f", "contract: only floats are scaled")
    adds = kernel.dtype.kind == "f" and not kernel.scaled
    _need(not kernel.added or adds, "contract: something is added to plain sums of floats alone")


def _cell(kernel: Cell) -> None:
    dtype = kernel.dtype
    _need(dtype in FLOAT, f"cell: elements cannot be {dtype.name}")
    _need(kernel.products > 0, "cell: there is no product")
    _need(len(kernel.body) > 0, "cell: there is no output")
    _stored("cell", (dtype,) * len(kernel.body), kernel.body)
    given = (dtype,) * (kernel.products + kernel.inputs)
    for i, body in enumerate(kernel.body):
        _expressions(f"cell: body {i}", body, _leaves(given, (), (), ()))


def _attend(kernel: Attend) -> None:
    _need(kernel.of in FORMS, f"attend: of {kernel.of!r}, not one of {', '.join(FORMS)}")
    _need(kernel.dtype in FLOAT, f"attend: elements cannot be {kernel.dtype.name}")
    known = (None, bool_, float32, kernel.dtype)
    _need(kernel.mask in known, f"attend: a mask of {kernel.dtype.name} cannot be {kernel.mask}")
    _need(min(kernel.width, kernel.depth) >= 0, "attend: a width is negative")
    if kernel.of == "mask":
        _need(kernel.mask not in (None, bool_), "attend: only a mask that is added has a gradient")


# ---- expressions ----

LeafRule = Callable[[Expr], str]  # the problem of a leaf, or ""


def _leaves(
    inputs: Sequence[DType],
    params: Sequence[DType],
    positions: Sequence[str],
    rows: Sequence[DType],
) -> LeafRule:
    known = {"arg": [compute_type(d) for d in inputs], "param": params, "row": tuple(rows)}

    def wrong(expr: Expr) -> str:
        if expr.op == "const":
            return _constant(expr)
        if expr.op in ("index", "extent"):
            if expr.op not in positions:
                return f"{expr.op} has no meaning here"
            return "" if expr.dtype is int64 else f"{expr.op} is int64, not {expr.dtype.name}"
        types = known[expr.op]
        number = expr.value
        if not isinstance(number, int) or not 0 <= number < len(types):
            return f"there is no {expr!r}: {len(types)} known here"
        if expr.dtype is not types[number]:
            return f"{expr!r} is {types[number].name}, not {expr.dtype.name}"
        return ""

    return wrong


def _constant(expr: Expr) -> str:
    if expr.dtype in _RANGES:
        low, high = _RANGES[expr.dtype]
        good = isinstance(expr.value, int) and low <= expr.value < high
    else:
        good = isinstance(expr.value, bool if expr.dtype is bool_ else float)
    return "" if good else f"constant {expr.value!r} is not a {expr.dtype.name}"


def _expressions(where: str, root: Expr, leaf_rule: LeafRule) -> None:
    for expr in topological([root]):
        reason = leaf_rule(expr) if expr.op in LEAVES else _instruction(expr)
        if expr.dtype not in TYPES:
            reason = f"{expr.dtype.name} is not a scalar type"
        _need(not reason, f"{where}: {reason}")


def _instruction(expr: Expr) -> str:
    """The problem of one instruction by the rules of Note [Scalar instructions].

    "" if there is none.
    """
    op, args = expr.op, expr.args
    if op not in INSTRUCTIONS:
        return f"there is no instruction {op!r}"
    arity = 1 if op in _UNARY else 3 if op in _TERNARY else 2
    if len(args) != arity:
        return f"{op} takes {arity} operands, got {len(args)}"
    if op == "cast":
        return ""
    if op == "bitcast":
        pair = (args[0].dtype, expr.dtype)
        known = pair in _SAME_BITS or pair[::-1] in _SAME_BITS
        return "" if known else f"bitcast from {pair[0].name} to {pair[1].name} is not defined"
    if op == "select":
        if args[0].dtype is not bool_:
            return f"select chooses by bool, not {args[0].dtype.name}"
        args = args[1:]
    return _types(expr, args)


def _types(expr: Expr, args: Sequence[Expr]) -> str:
    own = args[0].dtype
    listed = ", ".join(a.dtype.name for a in args)
    if any(a.dtype is not own for a in args):
        return f"operands of {expr.op} differ in type: {listed}"
    if own.kind not in _KINDS.get(expr.op, "iuf"):
        return f"{expr.op} does not take {own.name}"
    if expr.op == "mulhi" and own is not uint32:
        return f"mulhi takes uint32, not {own.name}"
    result = bool_ if expr.op in COMPARISON else own
    if expr.dtype is not result:
        return f"{expr.op} of {listed} is {result.name}, not {expr.dtype.name}"
    return ""
