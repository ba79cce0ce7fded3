"""Files that PyTorch wrote, and `save`: archives, and the older format of pickles and memory.

# Note [PyTorch's files]
1. The objects are a pickle, read by `Reader` as any other (Note [Reading pickles]), or by Python's
   unpickler where the file is trusted. It asks for memory by key ("Q"); tensors are layouts in it,
   checked against its size.
2. In an archive each memory is a member, stored without compression, so that a file cannot grow.
   It is read when it is asked for, or mapped: then the system reads a page when it is used, and
   writes to it stay in this process.
3. In the older format memory follows the pickle, which is read twice: for its end, then for good.
   The first time one object stands for all tensors, and of a trusted pickle for all that its code
   makes, so that this code runs once.
4. Only memory in little-endian order is read.
5. What is on a device that is not here is an error that names `map_location`.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from rushlight import interop, storage
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import DeviceError, DeviceUnavailable, RushlightError
from rushlight.devices.shared.registry import is_named
from rushlight.io import names as naming
from rushlight.io.archive import BEGIN, ArchiveReader
from rushlight.io.constructors import KNOWN, PYTORCHS, Maker, Mover
from rushlight.io.limits import Ledger, TruncatedFile, UnsafeFile
from rushlight.io.reading import MAGIC, Reader, foreign
from rushlight.io.writing import DEVICES, OLDER_VERSION
from rushlight.nn import parameter
from rushlight.ops.create import creation
from rushlight.sparse.coo import SparseTensor
from rushlight.tensor import Tensor

HEAD = 32  # bytes by which a format is known
# Files before they were archives begin with a pickled number.
_NUMBER = b"\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."

_WIDEST = max(dtype.itemsize for dtype in dtypes.STORED)
_DAMAGED = "the file is damaged, or was not written by PyTorch's save"


class Source:
    """The memory of one file, by key; `read` gives the bytes of a key, and each is made once."""

    def __init__(self, maker: Maker, read: Callable[[str], bytes]) -> None:
        self.maker = maker
        self.read = read
        self.made: dict[str, storage.UntypedStorage] = {}
        self.elsewhere: dict[str, str] = {}  # devices that PyTorch does not know, by key
        self.seen: dict[str, tuple[DType | None, int]] = {}  # dtype and number of elements

    def find(self, pid: Any) -> Any:
        """What a pickle asks for: a storage of a type, or of bytes."""
        if pid.__class__ is not tuple or len(pid) not in (5, 6) or pid[0] != "storage":
            raise UnsafeFile(f"load: the file asks for something that is no memory; {_DAMAGED}")
        kind, key, where, count = pid[1:5]
        dtype = None if kind is storage.UntypedStorage else kind
        if (
            (dtype is not None and dtype.__class__ is not DType)
            or (key.__class__, where.__class__, count.__class__) != (str, str, int)
            or count < 0
        ):
            raise UnsafeFile(f"load: memory is described by other types; {_DAMAGED}")
        if len(pid) == 6 and pid[5] is not None:
            raise UnsafeFile("load: memory is a part of other memory, which is not read here")
        self.seen[key] = (dtype, count)
        if self.maker.dry is not None:
            return self.maker.dry
        size = _bytes_of(dtype, count)
        if key not in self.made:
            place = self.elsewhere.get(key) or where.partition(":")[0]
            self.made[key] = self.make(key, dtype or dtypes.uint8, size, place)
        if self.made[key].used != size:
            raise UnsafeFile(f"load: memory {key[:100]!r} has another size than described")
        return self.made[key] if dtype is None else storage._over(self.made[key], dtype)

    def make(self, key: str, dtype: DType, size: int, where: str) -> storage.UntypedStorage:
        raw = self.read(key)
        if len(raw) != size:
            raise UnsafeFile(f"load: memory {key[:100]!r} has another size than described")
        self.maker.ledger.given += size
        return self.placed(raw, dtype, where)

    def placed(self, raw: bytes, dtype: DType, where: str) -> storage.UntypedStorage:
        device = where if self.maker.move is not None else creation.device_name(where)
        try:
            if self.maker.move is None and not is_named(device):
                raise DeviceError(f"there is no device {where[:100]!r} here")
            value = self.maker.placed(raw, dtype, (len(raw) // dtype.itemsize,), device)
        except (DeviceUnavailable, DeviceError) as error:
            raise DeviceError(
                f"load: the file has tensors of {where[:100]!r}: {error}; pass map_location='cpu' "
                "to load them to the CPU"
            ) from error
        return storage.untyped_storage(value)


def _bytes_of(dtype: DType | None, count: int) -> int:
    return count if dtype is None else count * dtype.itemsize


class _Mapped(Source):
    """Memory that stays in the file until it is used."""

    def __init__(
        self, maker: Maker, read: Callable[[str], bytes], find: Callable[[str], tuple[int, int]]
    ) -> None:
        super().__init__(maker, read)
        self.place = find
        self.file: Any = None

    def make(self, key: str, dtype: DType, size: int, where: str) -> storage.UntypedStorage:
        import numpy as np

        start, length = self.place(key)
        if length != size:
            raise UnsafeFile(f"load: memory {key[:100]!r} has another size than described")
        if start % _WIDEST or not size:  # another writer's; tensors of any type may be in it
            return super().make(key, dtype, size, where)
        self.maker.ledger.given += size
        array = np.frombuffer(self.file, np.uint8, size, start)
        if self.maker.move is None and creation.device_name(where) != "cpu":
            return self.placed(bytes(array), dtype, where)
        value: Any = interop.from_numpy(array)
        if dtype is dtypes.bool_:
            interop.make_truths(value)
        return storage.untyped_storage(
            value if self.maker.move is None else self.maker.move(value, where)
        )


# ---- pickles that ask for memory ----


class _Careful(Reader):
    source: Source | None = None

    def stored(self, pid: Any) -> Any:
        return super().stored(pid) if self.source is None else self.source.find(pid)


class Trusted(Maker):
    """Makes the tensors of a file that is trusted, without limits, and of any class."""

    def __init__(self, move: Mover | None) -> None:
        ledger = Ledger()
        ledger.given = 1 << 62
        super().__init__(ledger, move, lambda container, key: None)

    def with_state(self, *args: Any) -> Any:
        function, kind, parts, state = args
        made = function(*parts)
        if kind is not type(made) and kind is not Tensor:
            made = Tensor._make_subclass(kind, made, made.requires_grad)  # type: ignore[attr-defined]
        return self._with_attributes(made, state)

    def _with_attributes(self, made: Any, state: Any) -> Any:
        if type(made) in (Tensor, parameter.Parameter, SparseTensor):
            return super()._with_attributes(made, state)
        if hasattr(type(made), "__setstate__"):
            made.__setstate__(state)
        else:
            made.__dict__.update(state[0] if isinstance(state, tuple) else state)
        return made


def trusting(base: Any, maker: Trusted, source: Source | None = None) -> Any:
    """A class of unpicklers that find PyTorch's names here, and run the file's own code."""

    class Trusting(base):
        def find_class(self, module: str, name: str) -> Any:
            dotted = f"{module}.{name}"
            if dotted == "rushlight.interop.from_pickle":
                return maker.tensor
            if dotted in PYTORCHS and not isinstance(PYTORCHS[dotted][0], type):
                return getattr(maker, PYTORCHS[dotted][1].__name__)
            if module.partition(".")[0] != "torch":
                return super().find_class(module, name)
            return KNOWN[dotted] if dotted in KNOWN else naming.find(module, name)

        def persistent_load(self, pid: Any) -> Any:
            """Memory; of a zip file as a pickle reader takes it, "P" asks for a name."""
            if source is None:
                raise UnsafeFile(foreign("a zip file"))
            if isinstance(pid, tuple) and pid and pid[0] == "module":
                return pid[1]  # the older format has a class with its source text
            return source.find(pid)

    return Trusting


class _Inert:
    """Stands for any class, function or object of a pickle that is read for its end alone."""

    def __new__(cls, *args: Any, **named: Any) -> _Inert:
        return object.__new__(cls)

    def _ignored(self, *args: Any, **named: Any) -> _Inert:
        return self

    __call__ = __setitem__ = __setstate__ = _ignored
    append = extend = add = update = _ignored


class _Skipping(pickle.Unpickler):
    """Reads a trusted pickle to its end without running its code; notes the memory it asks for."""

    source: Source

    def find_class(self, module: str, name: str) -> Any:
        found = KNOWN.get(f"{module}.{name}")
        return found if found is storage.UntypedStorage or isinstance(found, DType) else _Inert

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and pid and pid[0] == "module":
            return _Inert
        return self.source.find(pid)


class Way:
    """How a file is read: with care, or by an unpickler that runs its code."""

    def __init__(self, move: Mover | None, unpickler: Any, named: dict[str, Any]) -> None:
        self.move = move
        self.unpickler = unpickler  # None: with care
        self.named = named

    def reader(self, file: Any) -> _Careful:
        named = {"encoding": "ASCII", "errors": "strict"} | self.named
        return _Careful(file, self.move, named["encoding"], named["errors"])

    def read(self, file: Any, make_source: Callable[[Maker], Source]) -> Any:
        """The next object."""
        if self.unpickler is None:
            reader = self.reader(file)
            reader.source = make_source(reader.maker)
            return reader.load()
        maker = Trusted(self.move)
        return trusting(self.unpickler, maker, make_source(maker))(file, **self.named).load()

    def skip(self, file: Any) -> Source:
        """Read the next object to its end; the source tells what memory it asks for."""
        reader: Any
        if self.unpickler is None:
            reader = self.reader(file)
            maker = reader.maker
            maker.dry = creation.empty(0, device="cpu")
        else:
            text = {name: self.named[name] for name in ("encoding", "errors") if name in self.named}
            reader, maker = _Skipping(file, **text), Trusted(self.move)
            maker.dry = _Inert()
        reader.source = Source(maker, _no_bytes)
        reader.load()
        return reader.source


def _no_bytes(key: str) -> bytes:
    raise UnsafeFile(f"load: memory {key[:100]!r} is not in the file; {_DAMAGED}")


# ---- files ----


def is_pytorchs(head: bytes) -> bool:
    """Whether a file is PyTorch's, by its beginning."""
    return head.startswith(BEGIN) or (head[:1] == b"\x80" and _NUMBER in head)


def read(file: Any, way: Way, mapped: Any = None) -> Any:
    """The object of an archive; of a file in the older format."""
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    if head == BEGIN:
        return _read_archive(file, way, mapped)
    if mapped is not None:
        raise RushlightError(
            "load: mmap=True needs a file that save wrote as an archive, and this is none; load "
            "it without mmap, and save it again"
        )
    return _read_older(file, way)


def _read_archive(file: Any, way: Way, mapped: Any) -> Any:
    archive = ArchiveReader(file)
    found = [n for n in archive.members if n.endswith("/data.pkl") and n.count("/") == 1]
    if len(found) != 1:
        raise UnsafeFile("load: the archive has no data.pkl; TorchScript's are not read here")
    folder = found[0].partition("/")[0]
    if f"{folder}/constants.pkl" in archive.members:
        raise UnsafeFile("load: this is a TorchScript archive, which is not read here")
    order = f"{folder}/byteorder"
    if order in archive.members and archive.read(order) != b"little":
        raise UnsafeFile("load: the archive was written on a big-endian machine")

    def fetch(key: str) -> bytes:
        return archive.read(f"{folder}/data/{key}")

    def source(maker: Maker) -> Source:
        if mapped is None:
            made = Source(maker, fetch)
        else:
            made = _Mapped(maker, fetch, lambda key: archive.place(f"{folder}/data/{key}"))
            made.file = mapped
        made.elsewhere = _devices(archive, f"{folder}/{DEVICES}")
        return made

    result = way.read(io.BytesIO(archive.read(found[0])), source)
    archive.leave()
    return result


def _devices(archive: ArchiveReader, name: str) -> dict[str, str]:
    """The devices that PyTorch does not know: Note [Writing pickles] 3."""
    if name not in archive.members:
        return {}
    try:
        told = json.loads(archive.read(name))
    except (ValueError, RecursionError) as error:
        raise UnsafeFile(f"load: the names of devices cannot be read: {error}") from error
    if told.__class__ is not dict or not all(
        where.__class__ is str and is_named(where) for where in told.values()
    ):
        raise UnsafeFile("load: the file names a device that there is not")
    return told


def _begin_older(file: Any) -> None:
    """Read what comes before the pickle of a file in the older format."""
    start = file.tell()
    file.seek(start + file.read(HEAD).index(_NUMBER) + len(_NUMBER))
    if _plain(file) != OLDER_VERSION:
        raise UnsafeFile(f"load: the file is of an unknown version; {_DAMAGED}")
    about = _plain(file)
    if about.__class__ is not dict or about.get("little_endian") is not True:
        raise UnsafeFile("load: the file was written on a big-endian machine")


def _plain(file: Any) -> Any:
    return Reader(file, None, "ASCII", "strict").load()


def _memory_after(
    file: Any, seen: dict[str, tuple[DType | None, int]]
) -> Iterator[tuple[str, bytes]]:
    """The memory that follows a pickle in the older format."""
    keys = _plain(file)
    if keys.__class__ is not list or any(key.__class__ is not str for key in keys):
        raise UnsafeFile(f"load: the keys of memory are no list; {_DAMAGED}")
    if not seen.keys() >= set(keys) or len(set(keys)) < len(keys):
        raise UnsafeFile(f"load: memory that no tensor has; {_DAMAGED}")
    for key in keys:
        dtype, count = seen[key]
        if int.from_bytes(_exactly(file, 8), "little") != count:
            raise UnsafeFile(f"load: memory {key[:100]!r} has another size than described")
        yield key, _exactly(file, _bytes_of(dtype, count))


def _read_older(file: Any, way: Way) -> Any:
    _begin_older(file)
    begin = file.tell()
    memory = dict(_memory_after(file, way.skip(file).seen))
    end = file.tell()

    def fetch(key: str) -> bytes:
        return memory.pop(key) if key in memory else _no_bytes(key)

    file.seek(begin)
    result = way.read(file, lambda maker: Source(maker, fetch))
    file.seek(end)
    return result


def _exactly(file: Any, count: int) -> bytes:
    pieces, got = [], 0
    while got < count:
        piece = file.read(min(count - got, 1 << 24))
        if not piece:
            raise TruncatedFile("load: Ran out of input: the file ends before what it describes")
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)
