"""Elements in and out: Python numbers, lists, NumPy arrays, other devices, pickles.

# Note [Transfers]
A copy between the host and a device whose memory the host cannot read is counted
(`rushlight.memory.transfers`). Besides this file, only ops computed by a host library
(`devices/shared/library`) move elements off a device; they count and warn.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import (
    BoundsError,
    DeviceUnavailable,
    DTypeError,
    NestingError,
    NoElements,
    RushlightError,
    ShapeError,
)
from rushlight.core.shapes import Spec, is_dense, numel
from rushlight.devices.shared.allocator import Lent, Pool, Storage, room_for
from rushlight.devices.shared.registry import pool_of
from rushlight.devices.shared.transfers import count_copy
from rushlight.ops.create import creation
from rushlight.ops.family import read_back
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view import inplace
from rushlight.ops.view.laid import laid
from rushlight.tape.anomaly import asynchronous
from rushlight.tape.memory import replay
from rushlight.tape.memory.windows import Window
from rushlight.tape.record import call
from rushlight.tape.record.needed import provide
from rushlight.tape.record.op import Grad, Op, Plan
from rushlight.tape.record.state import STATE, Changed, impure
from rushlight.tape.record.value import Value


def numpy_dtype(dtype: DType) -> Any:
    import numpy as np

    if dtype is dtypes.bfloat16 or dtype in dtypes.FLOAT8:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype.name))
    return np.dtype(dtype.name)


def from_numpy_dtype(dtype: Any) -> DType:
    name = str(dtype.newbyteorder("="))
    known = {d.name: d for d in dtypes.STORED}
    if name not in known:
        raise DTypeError(
            f"tensor: NumPy's {name} has no counterpart here; convert it with .astype(...) first"
        )
    return known[name]


def copy_in(value: Value, source: memoryview) -> None:
    device: Any = value._spec.device
    if source.nbytes != value._spec.nbytes or not value._spec.contiguous:
        raise ShapeError(
            f"{source.nbytes} bytes do not fill {value._spec!r}, which has {value._spec.nbytes}"
        )
    if not source.nbytes:
        return
    device.device.copy_in(replay.keep(value._memory) + value._offset, source)
    count_copy(device.device, source.nbytes, to_host=False)


def to_bytes(value: Value) -> bytearray:
    """The elements in row-major order."""
    impure()
    spec = value._spec
    if spec.hidden:
        raise RushlightError(
            f"vmap: elements of {spec!r} are read on the host (as .item() does, or an op whose "
            "result's size depends on elements, such as nonzero or unique), but they differ "
            "between the examples; do it outside of vmap"
        )
    if not spec.contiguous:
        value = e.clone(value)
    target = bytearray(spec.nbytes)
    if spec.nbytes:
        pool: Any = spec.device
        _check_elements(pool)
        if asynchronous.LOGS:
            asynchronous.read_all()
        address = value._memory.address
        if address is not None:
            pool.device.copy_out(address + value._offset, memoryview(target))
        else:  # it may be dropped
            with replay.LOCK, replay.Pins([value._memory]):
                pool.device.copy_out(*replay.pinned_addresses([value]), memoryview(target))
        count_copy(pool.device, spec.nbytes, to_host=True)
    return target


_PASSED_AS = {dtypes.bfloat16: "<i2"} | dict.fromkeys(dtypes.FLOAT8, "|u1")


class _Block:
    """Lends a storage's memory to NumPy; the array keeps it, and it keeps the storage."""

    def __init__(self, value: Value) -> None:
        spec = value._spec
        self.window = Window(value._memory)  # not the handle, whose memory may be replaced
        size = spec.dtype.itemsize
        # bfloat16 and float8 have no code in the array interface; they are passed as integers and
        # reinterpreted.
        code = _PASSED_AS.get(spec.dtype) or numpy_dtype(spec.dtype).str
        self.__array_interface__ = {
            "version": 3,
            "data": (self.window.address + value._offset, False),
            "shape": spec.shape,
            "strides": tuple(st * size for st in spec.strides),
            "typestr": code,
        }


def to_numpy(value: Value, copy: bool) -> Any:
    import numpy as np

    spec = value._spec
    pool: Any = spec.device
    if pool.device.limits.host_memory and not copy and spec.numel and not spec.hidden:
        return np.asarray(_Block(value)).view(numpy_dtype(spec.dtype))
    return np.frombuffer(to_bytes(value), dtype=numpy_dtype(spec.dtype)).reshape(spec.shape)


_CODES = {
    "bool": "?",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


def to_list(value: Value) -> list[Any]:
    """All elements as Python numbers; one number without NumPy."""
    import struct

    dtype = value._spec.dtype
    raw = to_bytes(value)
    if dtype is dtypes.bfloat16:
        words = struct.unpack(f"={value._spec.numel}H", raw)
        return [struct.unpack("=f", struct.pack("=I", w << 16))[0] for w in words]
    if dtype in dtypes.FLOAT8:
        import numpy as np

        numbers: list[Any] = np.frombuffer(raw, numpy_dtype(dtype)).astype("float64").tolist()
        return numbers
    if dtype.kind == "c":
        parts = struct.unpack(
            f"={2 * value._spec.numel}{_CODES[dtypes.real_type(dtype).name]}", raw
        )
        return [complex(re, im) for re, im in zip(parts[::2], parts[1::2], strict=True)]
    return list(struct.unpack(f"={value._spec.numel}{_CODES[dtype.name]}", raw))


read_back.provide_reader(to_list)


def from_array(array: Any, pool: Pool) -> Value:
    import numpy as np

    dense = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
    dtype = from_numpy_dtype(array.dtype)
    check_device_dtype("tensor", pool, dtype)
    value = creation.empty_spec(Spec.of(pool, dtype, tuple(array.shape)))
    copy_in(value, memoryview(dense.reshape(-1).view(np.uint8).data))
    with replay.LOCK:
        replay.settle_here(value._memory)  # nobody else has it: see Note [Offload]
    return value


def from_data(data: Any, dtype: DType | None, pool: Pool) -> Value:
    if dtype is not None and not isinstance(dtype, DType):
        raise TypeError(f"tensor: dtype must be a dtype such as rushlight.float32, got {dtype!r}")
    if isinstance(data, Value):
        moved = move(e.clone(_without_record(data)), pool)
        return moved if dtype is None else e.cast(moved, dtype)
    if isinstance(data, (bool, int, float, complex)) and not hasattr(data, "dtype"):
        dtype = dtype or dtypes.scalar_dtype(data)
        creation.check_holds("tensor", data, data, dtype)
        return creation.full_spec(Spec.of(pool, dtype, ()), data)
    if hasattr(data, "untyped"):  # a storage
        elements = data.untyped().elements(getattr(data, "dtype", dtypes.uint8))
        return from_data(elements, dtype, pool)
    import numpy as np

    if hasattr(data, "__array__"):
        array = np.asarray(data)
    else:
        kinds: set[DType] = set()
        numbers = _numbers(data, kinds)
        try:
            array = _array(numbers, dtype)
        except ValueError:
            raise NestingError(
                "tensor: nested lists must have equal lengths at each level"
            ) from None
        if dtype is None and array.dtype.kind in "uO" and _is_too_large(array):
            raise ShapeError(
                "tensor: an integer of the list does not fit into int64; give dtype=uint64 or a "
                "float type"
            )
        if (
            dtype is not None
            and array.dtype == object
            and dtype.kind in "fcb"
            and _all_numbers(array)
        ):
            array = array.astype(numpy_dtype(dtype))  # integers beyond 64 bits
        if dtype is None and array.dtype.kind in "biufc":
            dtype = (
                functools.reduce(dtypes.promote, kinds, dtypes.bool_)
                if kinds
                else dtypes.get_default()
            )
        elif dtype is not None and array.dtype.kind == "c" and dtype.kind not in "cb":
            raise DTypeError(
                f"tensor: complex numbers do not fit into {dtype.name}; take their real parts first"
            )
        if dtype is not None and array.size and array.dtype.kind in "iuf":
            creation.check_holds("tensor", array.min().item(), array.max().item(), dtype)
        if array.dtype == object:
            raise DTypeError(
                "tensor: nested lists must be numbers and have equal lengths at each level"
            )
    if dtype in dtypes.FLOAT8 and array.dtype != numpy_dtype(dtype):
        # NumPy's types round numbers beyond the largest in other ways than a cast here.
        return e.cast(from_array(array.astype("float32"), pool), dtype)
    if dtype is not None:
        with np.errstate(over="ignore", under="ignore"):  # too large a number is an infinity
            array = array.astype(numpy_dtype(dtype))
    return from_array(array, pool)


def _all_numbers(array: Any) -> bool:
    return all(isinstance(n, (int, float, complex)) for n in array.reshape(-1).tolist())


def _is_too_large(array: Any) -> bool:
    flat = array.reshape(-1).tolist()
    return all(isinstance(n, int) for n in flat) and any(n > 2**63 - 1 for n in flat)


def _array(numbers: Any, dtype: DType | None) -> Any:
    """Nested lists as an array; NumPy alone makes floats of integers on both sides of 2 ** 63."""
    import numpy as np

    if dtype is dtypes.uint64:
        try:
            return np.array(numbers, np.uint64)
        except (OverflowError, TypeError):
            pass
    return np.array(numbers)


_PLAIN = {bool, int, float, complex}
_MOST_DIMS = 64  # of nested lists, which may contain themselves, and of pickled tensors
_MOST_PLACES = 1 << 63


def _numbers(data: Any, kinds: set[DType], depth: int = 0) -> Any:
    """Nested sequences with tensors in them as plain numbers.

    The dtypes that count for the result are added to `kinds`.
    """
    if isinstance(data, Value):
        return _element(data, kinds)
    if hasattr(data, "dtype"):  # NumPy's, or a storage
        kinds.add(data.dtype if isinstance(data.dtype, DType) else from_numpy_dtype(data.dtype))
        return list(data) if isinstance(data.dtype, DType) else data
    elif isinstance(data, (bool, int, float, complex)):
        kinds.add(dtypes.scalar_dtype(data))
    elif (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not isinstance(data, (str, bytes, dict))
    ):
        if depth > _MOST_DIMS:
            raise NestingError(
                f"tensor: nested lists have too many dimensions, more than {_MOST_DIMS}"
            )
        items = list(data)
        found = set(map(type, items))
        if not found <= _PLAIN:
            return [_numbers(item, kinds, depth + 1) for item in items]
        kinds.update(dtypes.scalar_dtype(kind()) for kind in found)
        return items
    return data


def _element(value: Value, kinds: set[DType]) -> Any:
    """A tensor in a list as a number of its dtype."""
    if value._spec.numel != 1:
        raise TypeError(
            f"tensor: a list holds tensors of one element, got {value._spec!r}; use stack for "
            "larger ones"
        )
    kinds.add(value._spec.dtype)
    return to_list(_without_record(value))[0]


def _without_record(value: Value) -> Value:
    return call.detached(value)


def from_numpy(array: Any) -> Value:
    """The array's memory as a tensor on the CPU: writes to one are visible in the other.

    Memory that cannot be shared is copied: read-only or unaligned memory, reversed order, foreign
    byte order.

    Args:
        array (ndarray): An array of NumPy.
    """
    import numpy as np

    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"from_numpy: expected a NumPy array, got {type(array).__name__}; use tensor(...)"
        )
    pool = pool_of("cpu")
    dtype = from_numpy_dtype(array.dtype)
    size = dtype.itemsize
    fits = (
        array.flags.writeable
        and array.flags.aligned
        and all(st >= 0 and st % size == 0 for st in array.strides)
    )
    if not fits or not array.size or not array.dtype.isnative:
        return from_array(array, pool)
    spec = Spec.of(pool, dtype, array.shape, tuple(st // size for st in array.strides))
    return call.rooted(call.lay(spec, Lent(pool, array.ctypes.data, spec.high, array)))


provide(from_array=from_numpy)


def whole(value: Value) -> Value:
    """All of a value's storage, as a vector."""
    spec = value._spec
    if not spec.numel:
        return _without_record(value)
    return call.make_value(
        Spec.of(spec.device, spec.dtype, (value._memory.room // spec.dtype.itemsize,)),
        value._memory,
    )


def within(memory: Value, spec: Spec, offset: int) -> Value:
    """A value laid out as `spec` in another's memory."""
    return call.rooted(call.lay(spec, memory._memory, offset if spec.numel else 0))


def copied(value: Value, memo: dict[Any, Any]) -> Value:
    """A copy with the layout of the original.

    Copies with the same memo share memory as the originals do.
    """
    key = ("storage", id(value._memory))
    if key not in memo:
        memo[key] = (value._memory, e.clone(whole(value)))
    return within(memo[key][1], value._spec, value._offset)


def noted(value: Value) -> dict[str, Any] | None:
    """A user's attributes of a tensor (`x.name = ...`), for a pickle; None without any."""
    return value.__dict__ or None


def _whole_numbers(what: str, given: Any) -> tuple[int, ...]:
    numbers = tuple(given) if isinstance(given, (tuple, list)) else None
    if numbers is None or len(numbers) > _MOST_DIMS:
        raise ShapeError(f"a pickled tensor: its {what} is a tuple of at most {_MOST_DIMS} numbers")
    if any(n.__class__ is not int or not 0 <= n < _MOST_PLACES for n in numbers):
        raise ShapeError(f"a pickled tensor: its {what} holds a number that is no count")
    return numbers


def pickled_shape(shape: Any, itemsize: int = 1) -> tuple[int, ...]:
    """The shape in a pickle, if it is valid for elements of that many bytes."""
    sizes = _whole_numbers("shape", shape)
    places = itemsize
    for n in sizes:
        places *= max(n, 1)
    if places >= _MOST_PLACES:
        raise ShapeError("a pickled tensor: its shape has more bytes than int64 can number")
    return sizes


def pickled_spec(
    pool: Pool, dtype: DType, shape: Any, strides: Any, offset: Any, room: int
) -> Spec:
    """The layout in a pickle for `room` bytes, if it lies inside them."""
    if dtype.__class__ is not DType or offset.__class__ is not int:
        raise DTypeError(
            "a pickled tensor: a type, a shape, strides and an offset in bytes are needed"
        )
    sizes, steps = pickled_shape(shape, dtype.itemsize), _whole_numbers("strides", strides)
    _whole_numbers("offset", (offset,))
    spec = Spec.of(pool, dtype, sizes, steps)
    if offset % dtype.itemsize or offset + spec.high > room:
        raise BoundsError(
            f"a pickled tensor {dtype.name}{list(sizes)} with strides {list(steps)} at byte "
            f"{offset} reaches outside of its memory of {room} bytes"
        )
    return spec


def from_shared(
    memory: Value,
    dtype: DType,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
    requires_grad: bool,
) -> Value:
    """The pickled form of a tensor that shares its memory with others."""
    if not isinstance(memory, Value) or memory._offset or not memory._spec.contiguous:
        raise BoundsError(
            "a pickled tensor that shares memory needs all of that memory as one tensor"
        )
    spec = pickled_spec(memory._spec.device, dtype, shape, strides, offset, memory._spec.nbytes)
    return creation.requiring(within(memory, spec, offset), requires_grad)


_TRUTHS = bytes([0]) + bytes([1]) * 255


def make_truths(memory: Value) -> None:
    """Let bytes that are neither 0 nor 1 be 1, as a bool is."""
    raw = to_bytes(memory)
    if raw.translate(None, b"\0\1"):
        copy_in(memory, memoryview(raw.translate(_TRUTHS)))


def from_pickle(
    raw: bytes,
    dtype: DType,
    shape: tuple[int, ...],
    device: str,
    requires_grad: bool,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """A tensor of the bytes of its elements, whose number must match dtype and shape.

    The bytes are in row-major order; dense `strides` are those of the tensor.
    """
    if (
        not isinstance(raw, (bytes, bytearray))
        or dtype.__class__ is not DType
        or not isinstance(device, str)
    ):
        raise DTypeError(
            "a pickled tensor: bytes, a type, a shape and the name of a device are needed"
        )
    sizes = pickled_shape(shape, dtype.itemsize)
    needed = dtype.itemsize * numel(sizes)
    if len(raw) != needed:
        raise BoundsError(
            f"a pickled tensor {dtype.name}{list(sizes)} needs {needed} bytes, got {len(raw)}"
        )
    if dtype is dtypes.bool_ and raw.translate(None, b"\0\1"):
        raw = raw.translate(_TRUTHS)
    value = creation.empty_spec(Spec.of(pool_of(device), dtype, sizes))
    copy_in(value, memoryview(raw))
    if strides is not None:
        steps = _whole_numbers("strides", strides)
        if len(steps) != len(sizes) or not is_dense(sizes, steps):
            raise BoundsError(
                f"a pickled tensor {dtype.name}{list(sizes)}: its strides {list(steps)} are not "
                "those of one block"
            )
        value = laid(value, steps)
    return creation.requiring(value, requires_grad)


# ---- between devices ----


class Move(Op):
    """A copy to another device; `static` is the target's pool. The gradient is copied back."""

    __slots__ = ()

    batching = "library.move"

    def make_plan(self, ins: Any, static: Any) -> Plan:
        (pool,) = static
        spec = ins[0]
        check_device_dtype("to", pool, spec.dtype)
        out = Spec.of(pool, spec.dtype, spec.shape, spec.strides)
        source_pool: Any = spec.device

        def launch(target: int, source: int) -> None:
            if not spec.nbytes:
                return
            if asynchronous.LOGS:
                asynchronous.read_all()
            _copy_between(source_pool, pool, source, target, spec.nbytes)
            count_copy(source_pool.device, spec.nbytes, to_host=True)
            count_copy(pool.device, spec.nbytes, to_host=False)

        return Plan(self, ins, [out], launch, static)

    def make_grad(self, plan: Plan, needs: int) -> Grad:
        home: Any = plan.ins[0].device

        def rule(grads: list[Any], values: list[Any], params: tuple[Any, ...]) -> list[Any]:
            return [move(grads[0], home)]

        return Grad(needs, (), (), rule)


_move = Move("to_device", "The same elements on another device.")


def _check_elements(pool: Pool) -> None:
    """Refuse a device without memory, unless it stands in for another in an estimate."""
    if pool.device.name == "null":
        raise NoElements(
            f"a tensor on {creation.shown_name('null')!r} has a shape and no elements, so "
            "none can be read or copied to another device; Module.to_empty(device=...) and "
            "empty_like(..., device=...) make memory for it"
        )


def _copy_between(from_: Pool, to: Pool, source: int, target: int, nbytes: int) -> None:
    """Copy between devices, through host memory where neither has it."""
    _check_elements(from_)
    host = from_.device.limits.host_memory
    if not host and not to.device.limits.host_memory:
        view = memoryview((ctypes.c_char * nbytes)()).cast("B")
    else:
        at = source if host else target
        view = memoryview((ctypes.c_char * nbytes).from_address(at)).cast("B")
    if not host:
        from_.device.copy_out(source, view)
    if not to.device.limits.host_memory or host:
        to.device.copy_in(target, view)


def move(value: Value, pool: Pool, non_blocking: bool = False) -> Value:
    """The value on another device, or itself if it is there already.

    `non_blocking`: the host does not wait for a copy from pinned memory: Note [Streams].
    """
    if value._spec.device is pool:
        return value
    if not value._spec.dense:
        value = e.clone(value)
    if non_blocking and _is_beside(value, pool):
        return _move_beside(value, pool)
    return call.call(_move, (value,), (pool,))


def _is_beside(value: Value, pool: Pool) -> bool:
    """Whether a device can copy a value out of pinned memory, and no record of it is needed."""
    spec, queues = value._spec, pool.device.limits.queues
    return (
        queues is not None
        and value._memory.is_pinned
        and bool(spec.nbytes)
        and not spec.hidden
        and (value._node is None or not STATE.get().grad)
    )


def _move_beside(value: Value, pool: Pool) -> Value:
    spec, source = value._spec, value._memory
    check_device_dtype("to", pool, spec.dtype)
    out, queues = Spec.of(pool, spec.dtype, spec.shape, spec.strides), pool.device.limits.queues
    room = room_for(spec.nbytes)
    storage = queues.brought(pool, room, source, value._offset, spec.nbytes)
    count_copy(pool.device, spec.nbytes, to_host=False)
    with replay.LOCK:
        replay.settle_here(storage)  # nobody else has it: see Note [Offload]
    return call.make_value(out, storage)


def copy_out_beside(target: Value, source: Value) -> bool:
    """Fill a pinned tensor from a device without waiting for it; whether that is possible."""
    spec, pool = source._spec, source._spec.device
    queues = pool.device.limits.queues
    if (
        queues is None
        or not target._memory.is_pinned
        or spec.dtype is not target._spec.dtype
        or spec.shape != target._spec.shape
        or not (spec.contiguous and target._spec.contiguous and spec.nbytes)
        or source._memory.address is None
        or STATE.get().region is not None
        or not (source._node is None and target._node is None)
    ):
        return False
    inplace.check_writable(target, "copy_")
    at = source._memory.address + source._offset
    queues.sent(target._memory, target._offset, source._memory, at, spec.nbytes)
    target._memory.version += 1
    count_copy(pool.device, spec.nbytes, to_host=True)
    return True


def save(value: Value) -> Value:
    """The value on the host, in pinned memory that a copy beside the kernels fills.

    Only `restore` may read it. Where a device has no such copies it is an ordinary one.
    """
    pool, host = value._spec.device, pool_of("cpu")
    queues = pool.device.limits.queues
    if queues is None or not value._spec.nbytes:
        return move(value, host)
    if not value._spec.dense:
        value = e.clone(value)
    own, source = value._spec, value._memory
    spec = Spec.of(host, own.dtype, own.shape, own.strides)
    at = replay.keep(source) + value._offset
    block, mark = queues.save(host, room_for(spec.nbytes), at, spec.nbytes)
    queues.outward.hold(mark, source)
    count_copy(pool.device, spec.nbytes, to_host=True)
    return call.make_value(spec, block)


def restore(value: Value, device: Any) -> Value:
    """A value of `save` on its device again."""
    pool = creation.resolve_pool(device)
    queues, spec = pool.device.limits.queues, value._spec
    if not value._memory.is_pinned:
        return move(value, pool)
    out = Spec.of(pool, spec.dtype, spec.shape, spec.strides)
    storage = Storage(pool, room_for(spec.nbytes))
    queues.main.wait(queues.restore(storage.address, value._memory, spec.nbytes))
    count_copy(pool.device, spec.nbytes, to_host=False)
    return call.make_value(out, storage)


def pin(value: Value) -> Value:
    """A copy in pinned memory, recorded; the value itself where it is there, or no device copies
    from it.
    """
    from_pool: Any = value._spec.device
    if value._memory.is_pinned:
        return value
    if not from_pool.device.limits.host_memory:
        raise RushlightError(
            f"pin_memory: only tensors of the host can be pinned, got one on "
            f"{creation.shown_name(from_pool.device.name)}"
        )
    queues = _copier()
    if queues is None or value._spec.hidden:
        return value
    old = value._spec
    strides = old.strides if 0 not in old.strides else None  # what is repeated has no order
    spec = Spec.of(from_pool, old.dtype, old.shape, strides)
    made = call.rooted(call.lay(spec, queues.pin(from_pool, room_for(max(spec.high, 1)))))
    with Changed(region=None):
        inplace.copy_(made, value)
    return made


def is_pinned(value: Value) -> bool:
    return value._memory.is_pinned


def _copier() -> Any:
    """The queues of the first accelerator that copies beside its kernels, or None."""
    name = creation.device_name("cuda")
    if name not in _COPIERS:
        try:
            _COPIERS[name] = pool_of(name).device.limits.queues
        except DeviceUnavailable:
            _COPIERS[name] = None
    return _COPIERS[name]


_COPIERS: dict[str, Any] = {}  # by the device that "cuda" stands for
