"""Constructors that an untrusted file may call, by the names that pickles use.

# Note [Constructors]
1. A file names a constructor and gives its arguments. It is called only if it is in `_MAKERS`, and
   it checks the type and size of every argument before memory is allocated. Memory or time in
   proportion to an argument is reported to the ledger.
2. A file can change no object that it made, with two exceptions: containers are filled
   (`reading.py`), and attributes that a user set on a tensor or an OrderedDict (`x.name = ...`) go
   into its own dict. No such name may be a slot or a property of the class, or one that Python or
   NumPy look up (`__array_interface__`), and no callable replaces a method.
3. `SAFE` are the classes and functions that the program named (`add_safe_globals`). They are called
   with the file's arguments, but tensors, storages and dtypes cannot be changed through them
   either.
"""

from __future__ import annotations

import codecs
import collections
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from typing import Any

from rushlight import interop, storage
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import DeviceError, OutOfMemoryError, RushlightError
from rushlight.core.shapes import Size
from rushlight.devices.shared.registry import is_named, pool_of
from rushlight.io.limits import Ledger, UnsafeFile
from rushlight.naming import device
from rushlight.nn import parameter
from rushlight.ops.create import creation
from rushlight.sparse import coo, csr
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tensor import Tensor

Mover = Callable[[Value, str], Value]

SAFE: dict[str, Any] = {}  # named by the program in addition, by "module.name"


def is_safe(thing: Any) -> bool:
    """Whether the program named it."""
    return any(thing is named for named in SAFE.values())


def is_of_safe_class(thing: Any) -> bool:
    """Whether the program named its class or a base class: NumPy has a class per dtype."""
    return bool(SAFE) and any(is_safe(kind) for kind in type(thing).__mro__)


def _fit(name: str, args: tuple[Any, ...], *kinds: type | tuple[type, ...]) -> None:
    """Refuse arguments of other types, or another number of them; a subclass is another type."""
    wanted = [kind if isinstance(kind, tuple) else (kind,) for kind in kinds]
    if len(args) != len(wanted) or any(
        a.__class__ not in kind for a, kind in zip(args, wanted, strict=True)
    ):
        given = ", ".join(type(a).__name__ for a in args[:8])
        raise UnsafeFile(
            f"load: {name} is not made of ({given}); the file is damaged, or was not written by "
            "save"
        )


_NONE = type(None)
# In the ledger, for the time that making an empty one takes.
_SPARSE_COST, _ROWS_COST = (
    256,
    1000,
)
_DENSE = (Tensor, parameter.Parameter, parameter.Buffer)
_STORED = (storage.UntypedStorage, *storage.KINDS.values())
_SIZES = (tuple, Size, list)
_FACTORIES = (
    *(bool, bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple),
    *(collections.Counter, collections.OrderedDict),
)


class Maker:
    """Makes the objects of one file: tensors by `move`, at the ledger's cost."""

    def __init__(
        self, ledger: Ledger, move: Mover | None, enter: Callable[[Any, Any], None]
    ) -> None:
        self.ledger = ledger
        self.move = move
        # Whether one tensor stands for all: see Note [PyTorch's files].
        self.dry: Any = None
        self.enter = enter  # checks a key before it goes into a container
        self.checked: dict[tuple[int, Any, bool], Any] = {}  # indices that were read already

    def make(self, function: Any, args: tuple[Any, ...]) -> Any:
        """The result of a constructor; its errors are raised as errors of the file."""
        made = _BY_FUNCTION.get(id(function))
        if made is None:
            raise UnsafeFile(
                f"load: the file calls {_printable(function)}, which is no constructor of tensors "
                "or containers"
            )
        if self.dry is not None and made in _OF_TENSORS:
            return self.dry
        try:
            return made(self, *_arguments(function, args))
        except (UnsafeFile, DeviceError, OutOfMemoryError):
            raise
        except RushlightError as error:
            raise UnsafeFile(f"load: {error}") from error

    # ---- Python's ----

    def set_of(self, *args: Any) -> Any:
        return self._elements("set", args)

    def frozenset_of(self, *args: Any) -> Any:
        return frozenset(self._elements("frozenset", args))

    def _elements(self, name: str, args: tuple[Any, ...]) -> set[Any]:
        made: set[Any] = set()
        if args:
            _fit(name, args, (list, tuple))
            self.ledger.spend(8 * len(args[0]))
            for element in args[0]:
                self.enter(made, element)
                made.add(element)
        return made

    def complex_of(self, *args: Any) -> complex:
        _fit("complex", args, float, float)
        return complex(*args)

    def slice_of(self, *args: Any) -> slice:
        _fit("slice", args, *[(int, _NONE, float, str, bool)] * 3)
        return slice(*args)

    def bytearray_of(self, *args: Any) -> bytearray:
        if not args:
            return bytearray()
        _fit("bytearray", args, bytes)
        self.ledger.spend(len(args[0]))
        return bytearray(args[0])

    def no_bytes(self, *args: Any) -> bytes:
        _fit("bytes", args)
        return b""

    def encoded(self, *args: Any) -> bytes:
        """Bytes in pickle protocols that have no opcode for them."""
        _fit("bytes", args, str, str)
        self.ledger.spend(len(args[0]))
        try:
            return args[0].encode("latin1" if args[1] == "latin1" else "ascii")
        except UnicodeError as error:
            raise UnsafeFile("load: the file has bytes that are none") from error

    def ordered_dict(self, *args: Any) -> Any:
        _fit("OrderedDict", args)
        return collections.OrderedDict()

    def counter(self, *args: Any) -> Any:
        made: Any = collections.Counter()
        if args:
            _fit("Counter", args, dict)
            self.ledger.spend(8 * len(args[0]))
            for element, count in args[0].items():
                self.enter(made, element)
                made[element] = count
        return made

    def default_dict(self, *args: Any) -> Any:
        if len(args) > 1 or (
            args and args[0] is not None and not any(args[0] is f for f in _FACTORIES)
        ):
            raise UnsafeFile(
                "load: the values of a defaultdict begin as one of Python's own plain types, or "
                "nothing"
            )
        return collections.defaultdict(*args)

    # ---- names ----

    def dtype(self, *args: Any) -> DType:
        _fit("dtype", args, str)
        found = _DTYPES.get(args[0])
        if found is None:
            raise UnsafeFile(f"load: there is no type called {_printable(args[0])}")
        return found

    def size(self, *args: Any) -> Size:
        _fit("Size", args, tuple)
        self.ledger.spend(8 * len(args[0]))
        if any(n.__class__ is not int for n in args[0]):
            raise UnsafeFile("load: Size is made of whole numbers")
        return Size(args[0])

    def device(self, *args: Any) -> device:
        if not args:  # as in older files: its name follows, see `attach`
            return device("cpu")
        _fit("device", args, str, (int, _NONE))
        return _device(*args)

    # ---- tensors ----

    def tensor(self, *args: Any) -> Any:
        _fit("a tensor", args[:5], (bytes, bytearray), DType, (tuple, Size, list), str, bool)
        _fit("the strides of a tensor", args[5:], *[(tuple, list)] * len(args[5:6]))
        raw, dtype, shape, where, requires_grad = args[:5]
        self._known(where)
        made = self.placed(raw, dtype, shape, where, *args[5:])
        return creation.requiring(made, requires_grad)

    def placed(self, raw: bytes, dtype: DType, shape: Any, where: str, strides: Any = None) -> Any:
        """A tensor on the device from which it was saved, or where `move` puts it."""
        self.ledger.spend(len(raw) * (1 if strides is None else 2))
        if self.move is None:
            return interop.from_pickle(raw, dtype, shape, where, False, strides)
        return self.move(interop.from_pickle(raw, dtype, shape, "cpu", False, strides), where)

    def _known(self, where: str) -> None:
        if not is_named(where):
            raise UnsafeFile(f"load: there is no device called {_printable(where)}")

    def part(self, *args: Any) -> Any:
        _fit("a part of memory", args, _DENSE, DType, (tuple, Size, list), (tuple, list), int, bool)
        return interop.from_shared(*args)

    # ---- PyTorch's: see Note [PyTorch's files] ----

    def layout(self, *args: Any) -> Any:
        """A tensor: memory of numbers, the first element, sizes and strides."""
        _fit("a tensor", args[:6], _STORED, int, _SIZES, _SIZES, bool, collections.OrderedDict)
        return self._laid(args[:5], getattr(args[0], "dtype", dtypes.uint8), *args[6:7])

    def typed_layout(self, *args: Any) -> Any:
        """The same of memory of any type, with a dtype."""
        wanted = (_STORED, int, _SIZES, _SIZES, bool, collections.OrderedDict, DType)
        _fit("a tensor", args[:7], *wanted)
        return self._laid(args[:5], args[6], *args[7:8])

    def older_layout(self, *args: Any) -> Any:
        """The same in files of PyTorch before 0.4, which do not tell of gradients."""
        _fit("a tensor", args, _STORED, int, _SIZES, _SIZES)
        return self._laid((*args, False), getattr(args[0], "dtype", dtypes.uint8))

    def _laid(self, given: tuple[Any, ...], dtype: DType, lazy: Any = None) -> Any:
        """A layout in memory; `lazy` tells what PyTorch's tensor was to do when it is read."""
        memory, first, shape, strides, requires_grad = given
        _check_stored(dtype)
        untyped, offset = memory.untyped(), first * dtype.itemsize
        pool = untyped._memory.pool
        spec = interop.pickled_spec(pool, dtype, shape, strides, offset, untyped.used)
        at = offset if spec.numel else 0
        made: Any = call.rooted(call.lay(spec, untyped._memory, at))
        if lazy:
            if lazy.__class__ is not dict or not set(lazy) <= {"conj", "neg"}:
                raise UnsafeFile("load: a tensor of PyTorch has attributes that are not read here")
            self.ledger.spend(2 * spec.nbytes)
            made = made.conj() if lazy.get("conj") is True else made
            made = -made if lazy.get("neg") is True else made
        return creation.requiring(made, requires_grad)

    def without_memory(self, *args: Any) -> Any:
        """A tensor of the device "meta"."""
        _fit("a tensor", args, DType, _SIZES, _SIZES, bool)
        dtype, shape, strides, requires_grad = args
        _check_stored(dtype)
        spec = interop.pickled_spec(pool_of("null"), dtype, shape, strides, 0, 1 << 62)
        return creation.requiring(creation.empty_spec(spec), requires_grad)

    def pytorch_sparse(self, *args: Any) -> Any:
        _fit("a sparse tensor", args, creation.MemoryFormat, tuple)
        layout, parts = args
        if layout is creation.sparse_coo and len(parts) in (3, 4):
            indices, values, shape, coalesced = (*parts, None)[:4]
            return self.sparse(indices, values, shape, coalesced is True, False)
        if layout is creation.sparse_csr:
            return self.sparse_rows(*parts, False)
        raise UnsafeFile(f"load: a sparse tensor of layout {layout.name} is not read here")

    def with_state(self, *args: Any) -> Any:
        """A tensor with attributes, or of a class that the program named."""
        _fit("a tensor", args[2:3], tuple)
        if len(args) != 4 or _BY_FUNCTION.get(id(args[0])) not in _OF_TENSORS:
            raise UnsafeFile("load: a tensor with attributes is made by what makes no tensor")
        function, kind, parts, state = args
        made = self.make(function, parts)
        if kind not in (Tensor, parameter.Parameter) and not is_safe(kind):
            raise UnsafeFile(
                f"load: a tensor is made {_printable(kind)}, which is no class of them"
            )
        if is_safe(kind) and issubclass(kind, Tensor):
            made = Tensor._make_subclass(kind, made, made.requires_grad)  # type: ignore[attr-defined]
        return self._with_attributes(made, state)

    def _with_attributes(self, made: Any, state: Any) -> Any:
        if state.__class__ is tuple and len(state) == 2 and not state[1]:
            state = state[0]  # what objects with slots give
        if is_of_safe_class(made) and hasattr(made, "__setstate__"):
            made.__setstate__(state)
            return made
        if state.__class__ is not dict:
            raise UnsafeFile("load: attributes of a tensor are given by what is no dict")
        left = dict(state)
        if left.get("_is_buffer") is True and made.__class__ is Tensor:
            made = parameter.Buffer(made, persistent=left.pop("persistent", True) is True)
            del left["_is_buffer"]
        if left.pop("requires_grad", False) is True:
            made = made.requires_grad_(True)
        attach(made, left)
        return made

    def pytorch_parameter(self, *args: Any) -> Any:
        _fit("Parameter", args, _DENSE, bool, collections.OrderedDict)
        return parameter.Parameter(*args[:2])

    def parameter_with_state(self, *args: Any) -> Any:
        return self._with_attributes(self.pytorch_parameter(*args[:-1]), args[-1])

    def pytorch_device(self, *args: Any) -> Any:
        return self.device(*args, *[None] * (len(args) == 1))

    def named_layout(self, *args: Any) -> Any:
        _fit("a layout", args, str)
        found = _LAYOUTS.get(args[0])
        if found is None:
            raise UnsafeFile(f"load: there is no layout called {_printable(args[0])}")
        return found

    # ---- parameters and buffers ----

    def parameter(self, *args: Any) -> Any:
        _fit("Parameter", args, _DENSE, bool)
        return parameter.Parameter(*args)

    def buffer(self, *args: Any) -> Any:
        _fit("Buffer", args, _DENSE, bool)
        return parameter.Buffer(args[0], persistent=args[1])

    def lazy_parameter(self, *args: Any) -> Any:
        return parameter.UninitializedParameter(*self._lazy(args))

    def lazy_buffer(self, *args: Any) -> Any:
        return parameter.UninitializedBuffer(*self._lazy(args))

    def _lazy(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(args) == 1:  # PyTorch's, which are of the default device and dtype
            args = (*args, "cpu", dtypes.float32)
        _fit("a parameter without a shape", args, bool, str, DType)
        requires_grad, where, dtype = args
        kind = where.removesuffix(":0")
        self._known(kind)
        if self.move is not None:
            kind = self.move(creation.empty(0, device="cpu"), kind).device  # type: ignore[attr-defined]
        return requires_grad, kind, dtype

    def sparse(self, *args: Any) -> Any:
        _fit("a sparse tensor", args, _DENSE, _DENSE, (tuple, Size), bool, bool)
        indices, values, shape, coalesced, requires_grad = args
        size = coo.check_pickled(indices, values, shape)
        key = (id(indices), size[: indices.shape[0]], coalesced)
        self.ledger.spend(_SPARSE_COST)
        if key not in self.checked:
            self.ledger.spend(indices._spec.nbytes)
            coo.check_pickled_indices(indices, size, coalesced)
            self.checked[key] = indices
        made = coo.make(indices.detach(), values.detach(), size, coalesced)
        return made.requires_grad_(requires_grad)

    def sparse_rows(self, *args: Any) -> Any:
        _fit("a sparse matrix by rows", args, _DENSE, _DENSE, _DENSE, (tuple, Size), bool)
        self.ledger.spend(_ROWS_COST + 2 * args[0]._spec.nbytes + 4 * args[1]._spec.nbytes)
        return csr.from_pickle(*args)

    def untyped_storage(self, *args: Any) -> Any:
        _fit("a storage", args, (bytes, list), str)
        elements, where = args
        if elements.__class__ is list and any(
            n.__class__ is not int or not 0 <= n < 256 for n in elements
        ):
            raise UnsafeFile("load: a storage is made of bytes")
        raw = bytes(elements)
        return storage.untyped_storage(self.tensor(raw, dtypes.uint8, (len(raw),), where, False))

    def typed_storage(self, *args: Any) -> Any:
        _fit("a storage of numbers", args, storage.UntypedStorage, DType)
        return storage._over(*args)


_DTYPES = {dtype.name: dtype for dtype in dtypes.STORED}


def _check_stored(dtype: DType) -> None:
    if dtype not in dtypes.STORED:
        raise UnsafeFile(
            f"load: a tensor of {dtype.name}, which is only a name here; convert it to another "
            "dtype with PyTorch first"
        )


def _named(name: str) -> Callable[[], None]:
    """Stands for a function of PyTorch in the table of constructors."""

    def stand_in() -> None:
        """Never called: its maker is."""

    stand_in.__qualname__ = name
    return stand_in


# By PyTorch's names: functions that make tensors.
_TENSORS = {
    "_utils._rebuild_tensor": Maker.older_layout,
    "_utils._rebuild_tensor_v2": Maker.layout,
    "_utils._rebuild_tensor_v3": Maker.typed_layout,
    "_utils._rebuild_meta_tensor_no_storage": Maker.without_memory,
    "_utils._rebuild_sparse_tensor": Maker.pytorch_sparse,
    "_utils._rebuild_parameter": Maker.pytorch_parameter,
    "_utils._rebuild_parameter_with_state": Maker.parameter_with_state,
    "_tensor._rebuild_from_type_v2": Maker.with_state,
}
_OF_TENSORS = frozenset(_TENSORS.values())
PYTORCHS: dict[str, tuple[Any, Callable[..., Any]]] = {
    f"torch.{name}": (_named(name), made) for name, made in _TENSORS.items()
}
PYTORCHS |= {
    "torch.Size": (Size, Maker.size),
    "torch.device": (_named("device"), Maker.pytorch_device),
    "torch.serialization._get_layout": (_named("_get_layout"), Maker.named_layout),
    "torch.nn.parameter.UninitializedParameter": (
        parameter.UninitializedParameter,
        Maker.lazy_parameter,
    ),
    "torch.nn.parameter.UninitializedBuffer": (parameter.UninitializedBuffer, Maker.lazy_buffer),
    "torch.nn.parameter.Parameter": (parameter.Parameter, Maker.parameter),
}

_MAKERS: list[tuple[str, Any, Callable[..., Any]]] = [
    ("builtins.set", set, Maker.set_of),
    ("builtins.frozenset", frozenset, Maker.frozenset_of),
    ("builtins.complex", complex, Maker.complex_of),
    ("builtins.slice", slice, Maker.slice_of),
    ("builtins.bytearray", bytearray, Maker.bytearray_of),
    ("builtins.bytes", bytes, Maker.no_bytes),
    ("_codecs.encode", codecs.encode, Maker.encoded),
    ("collections.OrderedDict", collections.OrderedDict, Maker.ordered_dict),
    ("collections.Counter", collections.Counter, Maker.counter),
    ("collections.defaultdict", collections.defaultdict, Maker.default_dict),
    ("rushlight.core.dtypes.by_name", dtypes.by_name, Maker.dtype),
    ("rushlight.core.shapes.Size", Size, Maker.size),
    ("rushlight.naming.device", device, Maker.device),
    ("rushlight.interop.from_pickle", interop.from_pickle, Maker.tensor),
    ("rushlight.interop.from_shared", interop.from_shared, Maker.part),
    ("rushlight.nn.parameter.Parameter", parameter.Parameter, Maker.parameter),
    ("rushlight.nn.parameter._buffer", parameter._buffer, Maker.buffer),
    (
        "rushlight.nn.parameter.UninitializedParameter",
        parameter.UninitializedParameter,
        Maker.lazy_parameter,
    ),
    (
        "rushlight.nn.parameter.UninitializedBuffer",
        parameter.UninitializedBuffer,
        Maker.lazy_buffer,
    ),
    ("rushlight.sparse.coo.from_pickle", coo.from_pickle, Maker.sparse),
    ("rushlight.sparse.csr.from_pickle", csr.from_pickle, Maker.sparse_rows),
    ("rushlight.storage._from_bytes", storage._from_bytes, Maker.untyped_storage),
    ("rushlight.storage._over", storage._over, Maker.typed_storage),
    *[(name, function, maker) for name, (function, maker) in PYTORCHS.items()],
]

# Objects that a file may name without calling them: memory formats, and factories of defaultdicts.
_FORMATS = [f for f in vars(creation).values() if isinstance(f, creation.MemoryFormat)]
_NAMES: dict[str, Any] = {f"rushlight.{f.name}": f for f in _FORMATS}
# Names in files of version 0.1.
_NAMES |= {f"rushlight.ops.creation.{f.name}": f for f in _FORMATS}
_NAMES |= {
    f"builtins.{kind.__name__}": kind for kind in _FACTORIES if kind.__module__ == "builtins"
}

# PyTorch's dtypes and formats, and its classes of memory, which stand for their dtypes.
_NAMES |= {f"torch.{dtype.name}": dtype for dtype in (*dtypes.STORED, *dtypes.NAMED_ONLY.values())}
_NAMES |= {f"torch.{name}": kind.dtype for name, kind in storage.KINDS.items()}
_NAMES |= {f"torch.{f.name}": f for f in _FORMATS}
_NAMES |= {"torch.storage.UntypedStorage": storage.UntypedStorage, "torch.Tensor": Tensor}

_LAYOUTS = {
    f"torch.{f.name}": f for f in _FORMATS if f.name in ("strided", "sparse_coo", "sparse_csr")
}

KNOWN: dict[str, Any] = _NAMES | {name: function for name, function, _ in _MAKERS}
_BY_FUNCTION = {id(function): maker for _, function, maker in _MAKERS}


def _arguments(function: Any, args: Any) -> tuple[Any, ...]:
    if args.__class__ is not tuple:
        raise UnsafeFile(f"load: {_printable(function)} is called with arguments that are no tuple")
    return args


def _printable(thing: Any) -> str:
    """A name for messages: short, and without control characters."""
    name = thing if isinstance(thing, str) else getattr(thing, "__qualname__", type(thing).__name__)
    return ascii(name if len(name) <= 100 else f"{name[:100]}...")


def find(module: Any, name: Any) -> Any:
    """The object that a file names."""
    if module.__class__ is not str or name.__class__ is not str:
        raise UnsafeFile("load: the file names something by what is no text")
    dotted = f"{module}.{name}"
    if dotted in SAFE:
        return SAFE[dotted]
    # Protocol 2 has the names of Python 2.
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    dotted = f"{module}.{name}"
    if dotted in SAFE:
        return SAFE[dotted]
    if dotted in KNOWN:
        return KNOWN[dotted]
    whose = " of PyTorch's own format" if module.split(".")[0] == "torch" else ""
    told = ascii(dotted)[1:-1] if len(dotted) <= 200 else ascii(dotted[:200])[1:-1] + "..."
    raise UnsafeFile(
        f"load: the file{whose} asks for {told}, which is not a tensor or a plain container; name "
        "it with serialization.add_safe_globals, or pass weights_only=False if you trust where the "
        "file is from"
    )


_WITH_ATTRIBUTES = (
    *_DENSE,
    coo.SparseTensor,
    csr.CsrTensor,
    collections.OrderedDict,
    collections.Counter,
)
_SHARED = frozenset(map(id, KNOWN.values()))  # an object that a file names belongs to the program
_GUARDED = (Value, DType, type, storage.UntypedStorage, storage.TypedStorage)


def attach(thing: Any, state: Any) -> None:
    """Set the attributes that a file gives for a finished object. See Note [Constructors] 2."""
    kind = thing.__class__
    if kind is device:
        _rename(thing, state)
    elif id(thing) in _SHARED or is_safe(thing):
        raise UnsafeFile(
            f"load: the file sets attributes of {_printable(thing)}, which others use too"
        )
    elif isinstance(thing, _GUARDED) or kind in _WITH_ATTRIBUTES:
        if kind not in _WITH_ATTRIBUTES and not (
            isinstance(thing, Value) and is_of_safe_class(thing)
        ):
            raise UnsafeFile(f"load: the file sets attributes of {_printable(thing)}")
        thing.__dict__.update(_attributes(kind, state))
    elif is_of_safe_class(thing):
        _restore(thing, state)
    else:
        raise UnsafeFile(
            f"load: the file sets attributes of {_printable(kind)}, which has none of its own"
        )


def _attributes(kind: type, state: Any) -> dict[str, Any]:
    if state.__class__ is not dict:
        raise UnsafeFile(f"load: attributes of {_printable(kind)} are given by what is no dict")
    for name, value in state.items():
        if name.__class__ is not str or (name.startswith("__") and name.endswith("__")):
            raise UnsafeFile(
                f"load: the file sets {_printable(name)} of {_printable(kind)}, which is not a "
                "user's to set"
            )
        known = getattr(kind, name, None)
        if known is not None and (hasattr(type(known), "__set__") or callable(value)):
            raise UnsafeFile(
                f"load: the file sets {_printable(name)} of {_printable(kind)}, which the class has"
            )
    return state


def _device(kind: str, index: int | None) -> device:
    if len(kind) > 100 or not (index is None or 0 <= index < 1000):
        raise UnsafeFile("load: the file names a device that there is not")
    try:
        return device(kind, index)
    except RushlightError as error:
        raise UnsafeFile(f"load: {error}") from error


def _rename(thing: device, state: Any) -> None:
    """A device of an older file: (None, {"type": ..., "index": ...})."""
    parts = state[1] if state.__class__ is tuple and len(state) == 2 and state[0] is None else None
    if (
        parts.__class__ is not dict
        or len(parts) != 2
        or "type" not in parts
        or "index" not in parts
    ):
        raise UnsafeFile("load: a device is given by its type and its index")
    _fit("device", (parts.get("type"), parts.get("index")), str, (int, _NONE))
    named = _device(parts["type"], parts["index"])
    thing.type, thing.index = named.type, named.index


def _restore(thing: Any, state: Any) -> None:
    """An object of a class that the program named, restored as pickle does."""
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
        return
    slots = None
    if state.__class__ is tuple and len(state) == 2:
        state, slots = state
    if state:
        thing.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(thing, name, value)
