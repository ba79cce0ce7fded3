"""New tensors: constants, ranges, copies of host data."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from rushlight.core import config
from rushlight.core.dtypes import (
    SHOWN_PACKAGE,
    DType,
    bool_,
    compute_type,
    get_default,
    int64,
    integer_range,
    scalar_dtype,
)
from rushlight.core.errors import (
    DeviceError,
    DeviceUnavailable,
    DTypeError,
    KindError,
    OutOfMemoryError,
    RushlightError,
    ShapeError,
    UnsupportedDType,
)
from rushlight.core.shapes import (
    Shape,
    Spec,
    contiguous_strides,
    kept_strides,
    numel,
    strides_in_order,
)
from rushlight.devices.shared.allocator import Pool, room_for
from rushlight.devices.shared.protocol import Kind
from rushlight.devices.shared.registry import is_number, kind_of, names, numbered, pool_of
from rushlight.ops.arguments import ArgumentKindError, IntRangeError, described, dtype_of
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.family.map import Formula, map_plan
from rushlight.ops.registry import composite
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, index, param
from rushlight.tape.record import call
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.op import Op, Plan, Static
from rushlight.tape.record.state import STATE, is_inference
from rushlight.tape.record.value import Leaf, Value
from rushlight.tape.vmap.batched import batched_like

STAND_IN = "stand-in"
# Set by `set_default_device`; STAND_IN is before it while an estimate runs: memoised calls, which
# depend on this list, are then other ones.
chosen_device: list[str] = []


def default_pool() -> Pool:
    return pool_of(chosen_device[-1] if chosen_device else config.default_device())


def set_default_device(device: Any) -> None:
    """Set the device of new tensors; None: that of RUSHLIGHT_DEVICE.

    Args:
        device (device): A device or its name; None for that of RUSHLIGHT_DEVICE.
    """
    around = [name for name in chosen_device if name == STAND_IN]
    chosen_device[:] = around if device is None else [*around, device_name(device)]


def device_name(device: Any) -> str:
    """The name in a device argument: "cuda", "cuda:0", a device object or a card's number."""
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    kind, _, number = name.partition(":")
    other = STANDS_FOR.get(kind)
    own = kind if other is None else other()
    if not number:
        return own
    if number != "0":
        own = own.partition(":")[0]
        if not is_number(number) or not _has_several(own):
            raise DeviceError(
                f"device {name!r}: only number 0 of each kind is used; write {kind!r}"
            )
        return numbered(own, int(number))
    return own.partition(":")[0]


def _has_several(kind: str) -> bool:
    return kind in names() and kind_of(kind).several


# PyTorch's names of devices and the devices that they stand for, which may have a number: the
# current one's. `compat.hook` adds "cuda".
STANDS_FOR: dict[str, Callable[[], str]] = {"meta": lambda: "null"}
HIDDEN = "cuda (hidden by --device cpu)"  # what "cuda" stands for where the CPU was chosen
# The numbers of the current devices, by kind, where they are not 0: what "cuda" stands for.
CURRENT: dict[str, int] = {}


def make_current(kind: str, number: int) -> None:
    """Have "cuda" stand for another device of a kind: Note [Numbered devices] 3."""
    if number == CURRENT.get(kind, 0):
        return
    if kind == "cuda":
        raise DeviceError(
            f"'cuda' is the card of number 0 and cannot become number {number}: write "
            f"'cuda:{number}', or start the program with CUDA_VISIBLE_DEVICES={number}"
        )
    pool_of(numbered(kind, number))
    CURRENT[kind] = number


# The names that programs of PyTorch see, by the device's kind.
SHOWN_AS: dict[str, str] = {}


def shown_name(own: str) -> str:
    """The name of a device that a program sees, without a number."""
    kind = own.partition(":")[0]
    return SHOWN_AS.get(kind, kind)


# Kinds of devices that PyTorch names and this package has no code for: objects of them can be made,
# tensors cannot.
_OTHER_KINDS = frozenset(
    [
        HIDDEN,
        "hip",
        "hpu",
        "ipu",
        "lazy",
        "maia",
        "mkldnn",
        "mps",
        "mtia",
        "opencl",
        "opengl",
        "vulkan",
        "xla",
        "xpu",
    ]
)
_checked: set[str] = set()


def check_device(kind: str) -> None:
    """Refuse an unknown kind of device."""
    if kind in _checked:
        return
    if kind not in _OTHER_KINDS and kind not in names():
        raise DeviceError(f"device {kind!r} is none of {', '.join(names())}")
    _checked.add(kind)


def device_kind(name: str) -> Kind | None:
    """The class of a device, without the hardware; None where the package has no such device."""
    try:
        return kind_of(device_name(name))
    except DeviceUnavailable:
        return None


def resolve_pool(device: Any) -> Pool:
    return default_pool() if device is None else pool_of(device_name(device))


class Constant(Op):
    """An op without inputs: `static` is the output's spec.

    `body(params)` is the element at `index`.
    """

    __slots__ = ("body", "kinds")

    def __init__(self, name: str, body: Any, kinds: Sequence[DType | None], doc: str) -> None:
        super().__init__(name, doc)
        self.body = body
        self.kinds = tuple(kinds)  # dtypes of the params; None: the output's compute type

    def make_plan(self, ins: Sequence[Spec], static: Static) -> Plan:
        (out,) = static
        check_device_dtype(self.name, out.device, out.dtype)
        compute = compute_type(out.dtype)
        types = tuple(kind or compute for kind in self.kinds)
        body = self.body(compute, *(param(i, t) for i, t in enumerate(types)))
        formula = Formula((), types, (out.dtype,), (s.cast(body, compute),))
        return map_plan(self, formula, (), (out,), static)


_full = Constant("full", lambda compute, value: value, (None,), "One value everywhere.")


def _range_body(compute: DType, start: Expr, step: Expr) -> Expr:
    return start + step * s.cast(index(), compute)


_arange = Constant("arange", _range_body, (None, None), "start + step * i.")


def check_holds(op: str, least: Any, most: Any, dtype: DType) -> None:
    """Refuse Python numbers outside of an integer dtype.

    Negative ones wrap in an unsigned dtype.
    """
    if dtype.kind not in "iu" or not all(isinstance(n, (int, float)) for n in (least, most)):
        return
    low, high = integer_range(dtype)
    whole = all(isinstance(n, int) for n in (least, most))
    for number in (least, most):
        if not (-high if dtype.kind == "u" and whole else low) <= number <= high:  # nor is NaN
            raise RushlightError(
                f"{op}: {number} does not fit into {dtype.name}, which holds {low} to {high}"
            )


def full_spec(spec: Spec, value: complex) -> Value:
    """One value everywhere; contiguous where the strides of `spec` are not dense."""
    if not spec.dense:
        spec = Spec.of(spec.device, spec.dtype, spec.shape)
    if spec.dtype is bool_:
        value = bool(value)
    if isinstance(value, complex) and spec.dtype.kind not in "cb":
        if value.imag:
            raise DTypeError(f"full: the complex number {value} does not fit into {spec!r}")
        value = value.real
    if isinstance(value, float) and spec.dtype.kind in "iu":
        check_holds("full", value, value, spec.dtype)
        value = int(value)
    return call.call(_full, (), (spec,), (value,))


def fill_plan(spec: Spec) -> Plan:
    """The plan of `full_spec`, for a number of the dtype's own kind."""
    return call.plan_for(_full, (), (spec,))


def requiring(value: Value, requires_grad: bool) -> Value:
    if requires_grad:
        if not value._spec.differentiable:
            raise DTypeError(
                "only floating-point and complex tensors can require gradients, got "
                f"{value._spec.dtype!r}"
            )
        if is_inference(value._memory) and not STATE.get().inference:
            raise RushlightError(
                f"requires_grad: {value._spec!r} was made in inference_mode() and cannot require "
                "gradients outside it; .clone() it first"
            )
        value._node = Leaf(value)
    return value


class MemoryFormat:
    """A memory format; `order` are its dimensions, outermost first, unless it is contiguous."""

    def __init__(self, name: str, order: Shape | None = None) -> None:
        self.name = name
        self.order = order

    __module__, __qualname__ = "rushlight", "memory_format"  # where a pickle finds the class

    def __reduce__(self) -> Any:
        return _format, (self.name,)

    def __repr__(self) -> str:
        return f"{SHOWN_PACKAGE[-1]}.{self.name}"


def _format(name: str) -> MemoryFormat:
    found: MemoryFormat = globals()[name]
    return found


contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last", (0, 2, 3, 1))
channels_last_3d = MemoryFormat("channels_last_3d", (0, 2, 3, 4, 1))
strided = MemoryFormat("strided")
sparse_coo = MemoryFormat("sparse_coo")
sparse_csr = MemoryFormat("sparse_csr")

# Arguments about memory that do not change values.
_TAKEN = ("layout", "pin_memory", "memory_format", "non_blocking", "names")


def strides_in(op: str, shape: Shape, memory_format: Any) -> Shape:
    """The strides of a shape in a memory format."""
    order = getattr(memory_format, "order", None)
    if order is None:
        return contiguous_strides(shape)
    if len(order) != len(shape):
        raise ShapeError(
            f"{op}: {memory_format!r} is for {len(order)} dimensions, got {list(shape)}"
        )
    return strides_in_order(shape, order)


def strides_like(op: str, spec: Spec, memory_format: Any) -> Shape:
    """The strides of a value like another, in a memory format; None preserves the other's."""
    if memory_format in (None, preserve_format) and not spec.hidden:
        return kept_strides(spec)
    return strides_in(op, spec.shape, memory_format)


def take(op: str, named: dict[str, Any]) -> None:
    """Accept the keyword arguments that change no value, refuse all others."""
    if not named:
        return
    for name in named:
        if name not in _TAKEN:
            raise TypeError(f"{op}() got an unexpected keyword argument {name!r}")
    pinned = named.get("pin_memory")
    if pinned.__class__ is not bool and pinned is not None:
        raise ArgumentKindError(
            f"{op}(): argument 'pin_memory' must be a bool, got {described(pinned)}"
        )
    if named.get("layout") not in (None, strided):
        raise RushlightError(f"{op}: only the strided layout is supported, got {named['layout']!r}")


def sizes_of(op: str, size: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """The sizes given as arguments or as `size=`.

    Other keyword arguments are accepted or refused.
    """
    if "size" in named and not size:
        size = (tuple(named.pop("size")),)
    take(op, named)
    return size


def options_of(op: str, self: Value, named: dict[str, Any]) -> dict[str, Any]:
    """The options of a new tensor: dtype and device are this tensor's where none are given."""
    found = {"dtype": self._spec.dtype, "device": self._spec.device.device.name}
    found |= {n: given for n, given in named.items() if n not in found or given is not None}
    found["dtype"] = dtype_of(op, "dtype", found["dtype"])
    return found


def number_of(value: Any, op: str) -> Any:
    """A Python number; a tensor of one element is read."""
    if not isinstance(value, Value):
        if (
            not hasattr(value, "__float__")
            and not hasattr(value, "__index__")
            and not isinstance(value, complex)
        ):
            raise KindError(
                f"{op}: a number is needed, got {value!r:.60} of type {type(value).__name__}"
            )
        return value
    if edge_of(value) is not None:
        raise DTypeError(
            f"{op}: a number is needed, got a tensor that requires gradients ({value._spec!r}), "
            "and none would come back to it; pass .item() or .detach()"
        )
    return value.item()  # type: ignore[attr-defined]


def shape_of(size: tuple[Any, ...]) -> Shape:
    sizes = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    for n in sizes:
        if n.__class__ is not int or n < 0:
            return _checked_shape(sizes)
    return tuple(sizes)


def _checked_shape(sizes: Sequence[Any]) -> Shape:
    """Sizes of other kinds as ints; an error for what is no size."""
    for n in sizes:
        if n.__class__ is not int and (isinstance(n, bool) or not hasattr(n, "__index__")):
            raise KindError(f"sizes must be integers, got {n!r} of type {type(n).__name__}")
    shape = tuple(n.__index__() for n in sizes)
    if any(n < 0 for n in shape):
        raise ShapeError(f"sizes must not be negative, got {list(shape)}")
    return shape


def check_room(op: str, pool: Any, dtype: DType, shape: Shape) -> None:
    """Refuse a result too large for its device before intermediate results are computed."""
    nbytes, most = numel(shape) * dtype.itemsize, pool.device.limits.largest_block
    if nbytes > most:
        raise OutOfMemoryError(
            f"{op}: a result of shape {list(shape)} takes {nbytes} bytes, and {pool.device.name} "
            f"has {most} at most"
        )


def _filled(
    value: complex, size: tuple[Any, ...], dtype: DType | None, device: Any, requires_grad: bool
) -> Value:
    spec = Spec.of(resolve_pool(device), dtype or get_default(), shape_of(size))
    check_holds("full", value, value, spec.dtype)
    return requiring(full_spec(spec, value), requires_grad)


@composite("zeros", method=False, out="made", pure=True)
def zeros(
    *size: int | Sequence[int],
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Zeros of a shape.

    Example:
        >>> torch.zeros(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    return _filled(0, sizes_of("zeros", size, named), dtype, device, requires_grad)


@composite("ones", method=False, out="made", pure=True)
def ones(
    *size: int | Sequence[int],
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Ones of a shape.

    Example:
        >>> torch.ones(2, 2, dtype=torch.int64)
        tensor([[1, 1],
                [1, 1]])
    """
    return _filled(1, sizes_of("ones", size, named), dtype, device, requires_grad)


@composite("full", method=False, out="made", pure=True)
def full(
    size: Sequence[int],
    fill_value: complex,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """One value everywhere; its dtype is that of the value.

    Example:
        >>> torch.full((2, 2), 7)
        tensor([[7, 7],
                [7, 7]])
    """
    take("full", named)
    value: Any = number_of(fill_value, "full")
    if not hasattr(value, "__float__") and not isinstance(value, complex):
        raise DTypeError(f"full: the value must be a number, got {type(value).__name__}")
    if value.__class__ is not bool and isinstance(value, Integral):
        value = operator.index(value)  # of a NumPy integer too
    dtype = dtype or scalar_dtype(value)
    return _filled(value, (tuple(size),), dtype, device, requires_grad)


@composite("empty", method=False, out="made")
def empty(
    *size: int | Sequence[int],
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Uninitialised memory."""
    shape = shape_of(sizes_of("empty", size, named) if named else size)
    strides = strides_in("empty", shape, named.get("memory_format")) if named else None
    spec = Spec.of(resolve_pool(device), dtype or get_default(), shape, strides)
    check_device_dtype("empty", spec.device, spec.dtype)
    made = call.rooted(empty_spec(spec))
    return requiring(made, True) if requires_grad else made


def empty_spec(spec: Spec) -> Value:
    pool: Any = spec.device
    return call.make_value(
        spec, call.make_storage(pool, room_for(max(spec.nbytes, spec.high)), STATE.get().birth)
    )


def like(
    x: Value,
    value: complex,
    dtype: DType | None,
    device: Any,
    requires_grad: bool,
    memory_format: Any = None,
) -> Value:
    own = x._spec
    strides = strides_like("like", own, memory_format)
    pool = own.device if device is None else resolve_pool(device)
    spec = Spec.of(pool, dtype or own.dtype, own.shape, strides)
    check_holds("full", value, value, spec.dtype)
    made = full_spec(spec, value)
    return requiring(batched_like(x, made) if own.hidden else made, requires_grad)


@composite("zeros_like", method=False, pure=True)
def zeros_like(
    input: Value,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Zeros with another tensor's shape, dtype and device.

    Example:
        >>> torch.zeros_like(torch.tensor([1.0, 2.0]))
        tensor([0., 0.])
    """
    take("zeros_like", named)
    return like(input, 0, dtype, device, requires_grad, named.get("memory_format"))


@composite("ones_like", method=False, pure=True)
def ones_like(
    input: Value,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Ones with another tensor's shape, dtype and device.

    Example:
        >>> torch.ones_like(torch.tensor([1.0, 2.0]))
        tensor([1., 1.])
    """
    take("ones_like", named)
    return like(input, 1, dtype, device, requires_grad, named.get("memory_format"))


def _end_of(given: Any) -> Any:
    """A start, end or step of a range, as a number."""
    number = number_of(given, "arange")
    if not isinstance(number, (int, float, complex)):
        number = operator.index(number) if hasattr(number, "__index__") else float(number)
    if isinstance(number, complex):
        raise DTypeError(f"arange: there are no complex ranges, got {number}")
    if isinstance(number, int) and not -(1 << 63) <= number < 1 << 63:
        raise IntRangeError(f"arange: {number:#x} is beyond int64")
    if not math.isfinite(number):
        raise ShapeError(f"arange: start, end and step must be finite, got {number}")
    return number


@composite("arange", method=False, out="line", pure=True)
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """start, start + step, ... up to but without end.

    Example:
        >>> torch.arange(1, 7, 2)
        tensor([1, 3, 5])
    """
    take("arange", named)
    if end is None:
        start, end = None, start
    if end is None:
        raise TypeError("arange() missing 1 required argument: 'end'")
    start = 0 if start is None else start
    start, end, step = (_end_of(n) for n in (start, end, step))
    if dtype is int64:
        start, end, step = int(start), int(end), int(step)
    if step == 0 or (end - start) * step < 0:
        raise ShapeError(f"arange: from {start} to {end} there is no way by steps of {step}")
    if all(isinstance(n, int) for n in (start, end, step)):
        count = -((start - end) // step)
    else:
        steps = (end - start) / step
        if not steps < 1 << 63:
            raise ShapeError(
                f"arange: from {start} to {end} by {step} are more elements than can be addressed"
            )
        count = math.ceil(steps)
    if dtype is bool_:
        raise UnsupportedDType("arange: there are no ranges of truth values; cast with .bool()")
    if dtype is not None and dtype.kind == "c":
        raise DTypeError(
            "arange: there are no complex ranges; use linspace, or cast with .to(dtype)"
        )
    if dtype is None:
        whole = all(isinstance(n, int) for n in (start, end, step))
        dtype = int64 if whole else get_default()
    if dtype.kind in "iu":
        start, step = int(start), int(step)
    spec = Spec.of(resolve_pool(device), dtype, (count,))
    return requiring(call.call(_arange, (), (spec,), (start, step)), requires_grad)


@composite("eye", method=False, out="made", pure=True)
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """Ones on the diagonal, zeros elsewhere.

    Example:
        >>> torch.eye(2, 3)
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    take("eye", named)
    columns = n if m is None else m
    spec = Spec.of(resolve_pool(device), dtype or get_default(), shape_of((n, columns)))
    return requiring(call.call(_eye, (), (spec,), (columns,)), requires_grad)


def _eye_body(compute: DType, columns: Expr) -> Expr:
    row = index() / columns
    return s.cast((index() - row * columns).eq(row), compute)


_eye = Constant("eye", _eye_body, (int64,), "The identity matrix.")
