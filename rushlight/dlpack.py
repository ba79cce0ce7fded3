"""DLPack: the same memory in another library, without a copy.

# Note [Capsules]
1. A capsule holds a pointer to a struct with the layout of elements and a deleter. It is called
   "dltensor" or, since version 1 of the protocol, "dltensor_versioned"; the consumer renames it to
   "used_...".
2. An exported struct is in `_GIVEN` with a window on the storage, until the consumer calls the
   deleter, or the capsule is freed under its first name. An imported one is a `Lent` storage whose
   owner calls the producer's deleter when it is freed.
3. Work on a GPU is in order on the legacy default stream, which is ours; for any other stream the
   producer synchronises.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any

from rushlight import interop
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.shapes import Shape, Spec, contiguous_strides, numel
from rushlight.devices.shared.allocator import Lent, Pool
from rushlight.devices.shared.registry import kind_of, names, numbered, parted, pool_of
from rushlight.ops.create.creation import device_name
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.pointwise import arithmetic as e
from rushlight.tape.memory.windows import Window
from rushlight.tape.record import call
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.value import Value

CPU = 1
READ_ONLY, COPIED = 1, 2  # bits of a versioned struct's flags
LEGACY_STREAM = 1
VERSION = (1, 0)

_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
# Types with codes of their own.
_CODES = {
    dtypes.bfloat16: 4,
    dtypes.float8_e4m3fn: 10,
    dtypes.float8_e4m3fnuz: 11,
    dtypes.float8_e5m2: 12,
    dtypes.float8_e5m2fnuz: 13,
    dtypes.float8_e8m0fnu: 14,
}


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Elements(ctypes.Structure):
    """The layout of elements: DLPack's DLTensor."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("skip", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor: elements and their deleter."""

    _fields_ = (("elements", _Elements), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("elements", _Elements),
    )


_NAMES: dict[Any, bytes] = {_Managed: b"dltensor", _Versioned: b"dltensor_versioned"}
_USED: dict[Any, bytes] = {_Managed: b"used_dltensor", _Versioned: b"used_dltensor_versioned"}

# A capsule is passed as an address: in its destructor its reference count is 0.
_Name, _Address = ctypes.c_char_p, ctypes.c_void_p
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, _Address, _Name, _Address)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_named = ctypes.PYFUNCTYPE(ctypes.c_int, _Address, _Name)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(_Address, _Address, _Name)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, _Address, _Name)(("PyCapsule_SetName", ctypes.pythonapi))

# By the struct's address: objects that must live until its deleter is called.
_GIVEN: dict[int, Any] = {}


@_Deleter
def _let_go(address: int) -> None:
    _GIVEN.pop(address, None)


@_Deleter
def _capsule_dies(capsule: int) -> None:
    for kind, name in _NAMES.items():
        if _is_named(capsule, name):  # it was not consumed
            kind.from_address(_pointer_of(capsule, name)).deleter(_pointer_of(capsule, name))


# Destroys a capsule. A consumer that refuses the elements has an exception set by then, with which
# Python code must not run: it is put aside.
_DESTRUCTOR = """\
@python = global [3 x ptr] zeroinitializer
define void @destroy(ptr %capsule) {
  %kind = alloca ptr
  %value = alloca ptr
  %trace = alloca ptr
  %fetch = load ptr, ptr @python
  call void %fetch(ptr %kind, ptr %value, ptr %trace)
  %dies = load ptr, ptr getelementptr (ptr, ptr @python, i64 1)
  call void %dies(ptr %capsule)
  %restore = load ptr, ptr getelementptr (ptr, ptr @python, i64 2)
  %error = load ptr, ptr %kind
  %text = load ptr, ptr %value
  %where = load ptr, ptr %trace
  call void %restore(ptr %error, ptr %text, ptr %where)
  ret void
}
"""


@functools.cache
def _destructor() -> int:
    """The address of a capsule's destructor."""
    native = importlib.import_module("rushlight.devices.cpu.native")  # the host's compiler
    source = native.Source("destroy a capsule", lambda: _DESTRUCTOR)
    destroy, table = native.load(source, "destroy", "python")
    api = ctypes.pythonapi
    called = (api.PyErr_Fetch, _capsule_dies, api.PyErr_Restore)
    native.fill(table, [ctypes.cast(each, _Address).value or 0 for each in called])
    return int(destroy)


# ---- export ----


def device_pair(value: Value) -> tuple[int, int]:
    """`__dlpack_device__`: the kind of device and its number."""
    pool: Any = value._spec.device
    if pool.device.limits.host_memory:
        return CPU, 0
    numbers = kind_of(pool.device.name).dlpack
    if numbers:
        return numbers[0], parted(pool.device.name)[1]
    raise BufferError(
        f"__dlpack_device__: {pool.device.name} memory has no address others can read; use .cpu() "
        "first"
    )


def give(
    value: Value,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[Any, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """`__dlpack__`: a capsule over the value's memory."""
    if edge_of(value) is not None:
        raise BufferError("__dlpack__: the tensor requires gradients; use .detach() first")
    kind, number = device_pair(value)
    copied = bool(copy)
    if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != (kind, number):
        if int(dl_device[0]) != CPU or copy is False:
            raise BufferError(
                f"__dlpack__: {value._spec!r} is on device {(kind, number)}, not on "
                f"{tuple(dl_device)}"
            )
        value = interop.move(value, pool_of("cpu"))
        kind, number, copied = CPU, 0, True
    elif copied:
        value = e.clone(value)
    _wait(value, kind, stream)
    struct: Any = (
        _Versioned() if max_version is not None and int(max_version[0]) >= 1 else _Managed()
    )
    if isinstance(struct, _Versioned):
        struct.major, struct.minor = VERSION
        struct.flags = COPIED if copied else 0
    struct.deleter = _let_go
    _describe(struct, value, kind, number)
    name = _NAMES[type(struct)]
    return _new_capsule(ctypes.addressof(struct), name, _destructor())


def _code_of(dtype: DType) -> int:
    return _CODES.get(dtype) or _KINDS[dtype.kind]


def _describe(struct: Any, value: Value, kind: int, number: int) -> None:
    spec = value._spec
    rank = len(spec.shape)
    shape, strides = ((ctypes.c_int64 * rank)(*sizes) for sizes in (spec.shape, spec.strides))
    elements = struct.elements
    window = Window(value._memory)
    elements.address = window.address + value._offset
    elements.device = _Device(kind, number)
    elements.rank = rank
    code = _code_of(spec.dtype)
    elements.type = _Type(code, 8 * spec.dtype.itemsize, 1)
    elements.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    elements.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    _GIVEN[ctypes.addressof(struct)] = (struct, shape, strides, window)


def _wait(value: Value, kind: int, stream: Any) -> None:
    if stream is not None and not isinstance(stream, int):
        raise TypeError(f"__dlpack__: a stream is an integer or None, got {type(stream).__name__}")
    if kind == CPU:
        if stream is not None:
            raise BufferError(
                "__dlpack__: memory of the host has no stream; leave stream at None, got "
                f"{stream!r}"
            )
    elif stream not in (None, -1, LEGACY_STREAM):
        pool: Any = value._spec.device
        pool.device.synchronize()


# ---- import ----


class _Owner:
    """Keeps another library's memory, and frees it with the last tensor over it."""

    def __init__(self, struct: Any) -> None:
        self.struct = struct

    def __del__(self) -> None:
        if self.struct.deleter:
            self.struct.deleter(ctypes.addressof(self.struct))


def _open(capsule: Any) -> Any:
    """The struct in a capsule, which is consumed."""
    place = id(capsule)
    for kind, name in _NAMES.items():
        if type(capsule).__name__ == "PyCapsule" and _is_named(place, name):
            struct: Any = kind.from_address(_pointer_of(place, name))
            if kind is _Versioned and struct.major > VERSION[0]:
                raise BufferError(
                    f"from_dlpack: the capsule is of version {struct.major}, 1 is understood"
                )
            _rename(place, _USED[kind])
            return struct
    raise BufferError(
        "from_dlpack: a DLPack capsule that nobody has taken yet is needed, or an array that makes "
        "one"
    )


def _dtype_of(found: _Type) -> DType:
    for dtype in dtypes.STORED:
        if (found.code, found.bits, found.lanes) == (_code_of(dtype), 8 * dtype.itemsize, 1):
            return dtype
    raise BufferError(
        f"from_dlpack: elements of type (code {found.code}, {found.bits} bits, {found.lanes} "
        "lanes) have no counterpart here; convert them first"
    )


def _pool_of(device: _Device) -> Pool:
    if device.kind == CPU:
        return pool_of("cpu")
    found = _name_of(device.kind)
    if found is not None and (device.number == 0 or kind_of(found).several):
        return pool_of(numbered(found, device.number))
    raise BufferError(
        f"from_dlpack: no device here for memory of device {(device.kind, device.number)}; copy it "
        "first"
    )


def _name_of(kind: int) -> str | None:
    """The device here whose memory has DLPack's number `kind`, if there is one."""
    return next((name for name in names() if kind in kind_of(name).dlpack), None)


def _ask(source: Any, device: Any, copy: bool | None) -> Any:
    """The capsule of an array, requested by the arguments its library accepts."""
    kind = int(source.__dlpack_device__()[0])
    named: dict[str, Any] = {"max_version": VERSION}
    if copy is not None:
        named["copy"] = copy
    if kind != CPU and _name_of(kind) is not None:
        named["stream"] = LEGACY_STREAM
        if device is not None and device_name(device) == "cpu":
            named |= {"dl_device": (CPU, 0)}
            named.pop("stream")
    try:
        return source.__dlpack__(**named)
    except TypeError:  # before version 1
        if copy is False:
            return source.__dlpack__()
        return source.__dlpack__(**{k: v for k, v in named.items() if k == "stream"})


def take(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Value:
    """A tensor over the memory of another library's array or of a DLPack capsule.

    It is copied where it cannot be shared.

    Args:
        ext_tensor: An object with `__dlpack__`, or a capsule.
        device (device): The device of the tensor; None for that of the memory.
        copy (bool): True copies always, False never; None where it must.
    """
    capsule = _ask(ext_tensor, device, copy) if hasattr(ext_tensor, "__dlpack__") else ext_tensor
    owner = _Owner(_open(capsule))
    elements = owner.struct.elements
    value = _imported(owner, elements, copy)
    if copy and not getattr(owner.struct, "flags", 0) & COPIED:
        value = e.clone(value)
    if device is None:
        return value
    pool = pool_of(device_name(device))
    if copy is False and pool is not value._spec.device:
        raise BufferError(
            f"from_dlpack: {value._spec!r} is not on {device_name(device)!r}, and copy=False "
            "forbids a move"
        )
    return interop.move(value, pool)


def _imported(owner: _Owner, elements: Any, copy: bool | None) -> Value:
    dtype, pool, rank = _dtype_of(elements.type), _pool_of(elements.device), elements.rank
    check_device_dtype("from_dlpack", pool, dtype)
    shape: Shape = tuple(elements.shape[:rank])
    strides = tuple(elements.strides[:rank]) if elements.strides else contiguous_strides(shape)
    address = (elements.address or 0) + elements.skip
    read_only = bool(getattr(owner.struct, "flags", 0) & READ_ONLY)
    fits = not address % dtype.itemsize and all(
        st >= 0 for st, n in zip(strides, shape, strict=True) if n > 1
    )
    if not numel(shape) or (fits and not read_only):
        strides = tuple(st if n > 1 else max(st, 0) for st, n in zip(strides, shape, strict=True))
        spec = Spec.of(pool, dtype, shape, strides)
        return call.rooted(call.lay(spec, Lent(pool, address, spec.high, owner)))
    if copy is False or not pool.device.limits.host_memory:
        why = "read only" if read_only else "unaligned or in reversed order"
        raise BufferError(f"from_dlpack: the memory is {why} and cannot be shared; allow a copy")
    return interop.from_array(_array(address, dtype, shape, strides), pool)


def _array(address: int, dtype: DType, shape: Shape, strides: Shape) -> Any:
    """Host memory as a NumPy array, for an immediate copy."""
    import numpy as np

    size = dtype.itemsize
    low = sum((n - 1) * st for n, st in zip(shape, strides, strict=True) if st < 0) * size
    high = sum((n - 1) * st for n, st in zip(shape, strides, strict=True) if st > 0) * size + size
    memory: Any = (ctypes.c_char * (high - low)).from_address(address + low)
    kind = interop.numpy_dtype(dtype)
    steps = tuple(st * size for st in strides)
    return np.ndarray(shape, kind, memory, -low, steps)
