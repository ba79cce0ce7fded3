"""The constructors that declare ops: one call, one op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from rushlight.core.dtypes import FLOAT, NUMBER, DType, scalar_dtype
from rushlight.core.errors import DTypeError, OperandError, SparseOperandError
from rushlight.core.shapes import wrap_dim
from rushlight.ops.arguments import described
from rushlight.ops.family.map import Elementwise, Layout
from rushlight.ops.family.rowwise import DeclaredRow, call_rows
from rushlight.ops.family.saved_names import name_operands
from rushlight.ops.registry import Facts, casts_of, register
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value


def as_operand(operand: Any) -> Any:
    """A NumPy number as a Python number, an array as a tensor with its elements."""
    if isinstance(operand, Value) or not hasattr(operand, "dtype"):
        return operand
    if operand.shape == ():
        return operand.item()
    return Needed.from_array(operand) if hasattr(operand, "__array_interface__") else operand


def type_of_number(op: str, operand: Any) -> DType:
    """The dtype of a Python number among tensors; other objects are refused."""
    if not isinstance(operand, (bool, int, float, complex)):
        raise OperandError(
            f"{op}: operands are tensors and Python numbers, got {type(operand).__name__}; "
            f"make a tensor of it with rushlight.tensor(...)"
        )
    return scalar_dtype(operand)


def refusal(op: str, names: Sequence[str], operands: Sequence[Any]) -> OperandError:
    """The error for the first operand that is neither a tensor nor a number."""
    numbers = (bool, int, float, complex, Value)
    given = zip(names, operands, strict=True)
    name, operand = next((n, v) for n, v in given if not isinstance(as_operand(v), numbers))
    return OperandError(
        f"{op}(): argument {name!r} must be a tensor or a number, got {described(operand)}; "
        f"make a tensor of it with rushlight.tensor(...)"
    )


def brought(value: Value, home: Any) -> Value:
    """A value of the host on the device of a pool; any other value itself."""
    spec = value._spec
    if spec.device is home or spec.hidden:
        return value
    own: Any = spec.device
    is_host = own.device.limits.host_memory and not home.device.limits.host_memory
    return Needed.moved(value, home) if is_host else value


def together(values: Sequence[Value]) -> list[Value]:
    """The operands, 0-dim ones of the host beside a device's tensors brought there: as PyTorch."""
    pools: list[Any] = [v._spec.device for v in values]
    several = [pool for v, pool in zip(values, pools, strict=True) if v._spec.shape]
    home = next((p for p in several or pools if not p.device.limits.host_memory), None)
    if home is None or (several and several[0] is not home):
        return list(values)
    return [v if v._spec.shape else brought(v, home) for v in values]


def apply(op: Elementwise, *operands: Any) -> Any:
    """Call an elementwise op on tensors and Python numbers in any mixture."""
    tensors: list[Value] = []
    pattern: list[DType | None] = []
    numbers: list[Any] = []
    for operand in operands:
        operand = as_operand(operand)
        if isinstance(operand, Value):
            tensors.append(operand)
            pattern.append(None)
        else:
            pattern.append(type_of_number(op.name, operand))
            numbers.append(operand)
    if not tensors:
        if op.of_numbers:
            return apply(op, *[Needed.number(v) for v in operands])
        raise DTypeError(f"{op.name}: at least one operand must be a tensor, got {operands!r}")
    if op.refuse is not None:
        op.refuse(tensors, operands)
    if op.casts is not None:
        autocast = STATE.get().autocast
        if autocast is not None:
            tensors = autocast.operands(op.casts, tensors)
    if any(t._spec.device is not tensors[0]._spec.device for t in tensors):
        tensors = together(tensors)
    plan = call.plan_for(op, tensors, tuple(pattern))
    specs = [t._spec for t in tensors]
    if not numbers:
        op.plans.keep(specs[0] if len(specs) == 1 else tuple(specs), plan)
    elif (op.refuse is None or specs[0].differentiable) and (
        len(operands) == 2 and operands[1].__class__ in op.number_plans
    ):
        op.number_plans[operands[1].__class__].keep(specs[0], plan)
    return call.run(plan, tensors, tuple(numbers))


def promoted(op: Any, inputs: Sequence[Value], static: Any) -> Sequence[Value]:
    """Operands of equal promotion when batched: a 0-dim operand does not widen the result."""
    first = inputs[0]._spec.dtype
    if all(v._spec.dtype is first for v in inputs) or all(v._spec.shape for v in inputs):
        return inputs
    common = op.common_type([v._spec for v in inputs], static)
    places = [i for i, kind in enumerate(static) if kind is None]
    return [
        Needed.cast(v, common) if place not in op.conditions and not v._spec.shape else v
        for place, v in zip(places, inputs, strict=True)
    ]


def elementwise(
    name: str,
    body: Callable[..., Any],
    doc: str,
    accepts: tuple[DType, ...] = NUMBER,
    vjp: Callable[..., Any] | None = None,
    result: DType | None = None,
    conditions: tuple[int, ...] = (),
    listed: bool = True,
    rounds: bool | None = None,
    of_numbers: bool = False,
    layout: Layout = "followed",
    second: str = "other",
    operand_names: tuple[str, ...] = (),
    **facts: Unpack[Facts],
) -> Callable[..., Any]:
    """Declare an elementwise op; the number of operands is that of the body.

    `accepts` are the types it is computed in: integers go to the default float where only floats
    are accepted. `conditions` are operands that take no part in type promotion. `result` is the
    output's type, if not the common one. One that is not `listed` is a kernel of composites, no
    public name. `second` is the keyword of the second operand. A public op `rounds` a number to
    what a half type holds of it, unless stated otherwise. `of_numbers`: two Python numbers are
    operands too. `layout` is that of the result. `operand_names` are what its record shows. See
    Note [Facts of an op] for the others.
    """
    op = Elementwise(name, body, vjp, accepts, result, conditions, doc)
    op.rounds = listed if rounds is None else rounds
    op.of_numbers = of_numbers
    op.layout = layout
    op.casts = casts_of(facts)
    if operand_names:
        name_operands(name, *operand_names)
    arity = body.__code__.co_argcount

    names = ("input", second)[:arity] if arity < 3 else body.__code__.co_varnames[:arity]

    def fallback(*operands: Any) -> Any:
        if len(operands) != arity:
            taken = f"takes {arity} operand{'s' * (arity > 1)} ({', '.join(names)})"
            raise TypeError(f"{name}() {taken}, got {len(operands)}")
        try:
            return apply(op, *operands)
        except OperandError:
            raise refusal(name, names, operands) from None
        except SparseOperandError as error:  # See Note [Sparse operands]
            sparse = error.obj
        return sparse.instead(name, operands, {})

    fallback.__name__ = name

    function = call.make_call(op, fallback, arity, second)
    function.op = op  # type: ignore[attr-defined]
    if arity < 3:
        function.takes_out = True  # type: ignore[attr-defined]
    if not listed:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc
        return function
    usual: Facts = {"out": "cast"}
    if facts.get("method", True) and facts.get("top", True):
        usual["inplace"] = "result"
        usual["inplace_top"] = arity == 1 and facts.get("inplace", "result") != ""
    return register(name, function, doc, **(usual | facts))


def rowwise(
    name: str,
    body: Callable[..., Any],
    doc: str,
    accepts: tuple[DType, ...] = FLOAT,
    vjp: Callable[..., Any] | None = None,
    rows: tuple[int, ...] = (),
    kinds: tuple[str, ...] = ("element",),
    results: Sequence[DType | None] = (None,),
    rule: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Declare a rowwise op, called as `op(*inputs, dim=, keepdim=)`.

    Public functions are written on it.
    """
    op = DeclaredRow(name, body, vjp, accepts, rows, kinds, results, rule, doc)

    def function(*inputs: Value, dim: int = -1, keepdim: bool = False) -> Any:
        rank = max(len(v._spec.shape) for v in inputs)
        return call_rows(op, inputs, wrap_dim(dim, rank, name), keepdim)

    function.op = op  # type: ignore[attr-defined]
    function.__name__ = name
    return function
