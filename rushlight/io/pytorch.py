"""Files that PyTorch wrote: zip archives, and the older format of pickles after one another.

# Note [PyTorch's files]
1. The objects are a pickle, read by `Reader` as any other (Note [Reading pickles]). It asks for
   memory by key ("Q"); tensors are layouts in it, checked against its size.
2. In an archive each memory is a member, stored without compression, so that a file cannot grow.
   In the older format memory follows the pickle, which is read twice: for its end, then for good.
3. Only memory in little-endian order is read.
"""

from __future__ import annotations

import zipfile
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.devices.shared.registry import names
from rushlight.io.constructors import Mover
from rushlight.io.limits import TruncatedFile, UnsafeFile
from rushlight.io.reading import MAGIC, ZIP, Reader

# The beginning of files before they were archives: a pickled number.
OLDER = b"\x80\x02\x8a\x0a" + MAGIC.to_bytes(10, "little")

_PROTOCOL = 1001  # of the older format
# What `zipfile` raises for a damaged archive.
_BROKEN: tuple[type[Exception], ...] = (zipfile.BadZipFile, KeyError, EOFError, OSError)
_BROKEN += (ValueError, OverflowError, NotImplementedError, RuntimeError)
_DAMAGED = "the file is damaged, or was not written by PyTorch's save"


class _WithMemory(Reader):
    """Reads a pickle whose memory is given by key."""

    memory: dict[str, bytes]  # by key, where it is known
    seen: dict[str, tuple[DType, int]]  # dtype and number of elements of the keys asked for

    def __init__(self, file: Any, move: Mover | None, encoding: str, errors: str) -> None:
        super().__init__(file, move, encoding, errors)
        self.memory, self.seen = {}, {}
        self.made: dict[tuple[str, DType], Any] = {}
        self.dry = False

    def stored(self, pid: Any) -> Any:
        if pid.__class__ is not tuple or len(pid) not in (5, 6) or pid[0] != "storage":
            raise UnsafeFile(f"load: the file asks for something that is no memory; {_DAMAGED}")
        dtype, key, where, count = pid[1:5]
        kinds = (dtype.__class__, key.__class__, where.__class__, count.__class__)
        if kinds != (DType, str, str, int) or count < 0 or (len(pid) == 6 and pid[5] is not None):
            raise UnsafeFile(f"load: memory is described by other types; {_DAMAGED}")
        self.seen[key] = (dtype, count)
        if self.dry:
            return self.maker.tensor(b"", dtype, (0,), "cpu", False)
        if (key, dtype) not in self.made:
            device = where.partition(":")[0]
            device = device if device in names() else "cpu"
            raw = self.bytes_of(key)
            if len(raw) != count * dtype.itemsize:
                raise UnsafeFile(f"load: memory {key!r} has another size than described")
            self.made[key, dtype] = self.maker.tensor(raw, dtype, (count,), device, False)
        return self.made[key, dtype]

    def bytes_of(self, key: str) -> bytes:
        found = self.memory.get(key)
        if found is None:
            raise UnsafeFile(f"load: memory {key[:100]!r} is not in the file; {_DAMAGED}")
        self.ledger.given += len(found)
        return found


class _OfArchive(_WithMemory):
    archive: zipfile.ZipFile
    folder: str

    def bytes_of(self, key: str) -> bytes:
        raw = _member(self.archive, f"{self.folder}/data/{key}")
        self.ledger.given += len(raw)
        return raw


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        info = archive.getinfo(name)
        is_plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
        raw = archive.read(info) if is_plain else None
    except _BROKEN as error:
        told = f"load: {name[:100]!r} cannot be read from the archive ({error})"
        raise UnsafeFile(told) from None
    if raw is None:
        raise UnsafeFile(f"load: {name[:100]!r} is compressed, which PyTorch's save does not do")
    return raw


def read(file: Any, move: Mover | None, encoding: str = "ASCII", errors: str = "strict") -> Any:
    """The object of an archive; of a file in the older format."""
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    if head == ZIP:
        return _read_archive(file, move, encoding, errors)
    return _read_older(file, move, encoding, errors)


def _read_archive(file: Any, move: Mover | None, encoding: str, errors: str) -> Any:
    try:
        archive = zipfile.ZipFile(file)
        entries = archive.namelist()
    except _BROKEN as error:
        raise UnsafeFile(f"load: the file is no whole archive ({error})") from None
    found = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(found) != 1:
        raise UnsafeFile("load: the archive has no data.pkl; TorchScript's are not read here")
    folder = found[0].partition("/")[0]
    if f"{folder}/constants.pkl" in entries:
        raise UnsafeFile("load: this is a TorchScript archive, which is not read here")
    order = f"{folder}/byteorder"
    if order in entries and _member(archive, order) != b"little":
        raise UnsafeFile("load: the archive was written on a big-endian machine")
    reader = _OfArchive(_Bytes(_member(archive, found[0])), move, encoding, errors)
    reader.archive, reader.folder = archive, folder
    return reader.load()


class _Bytes:
    """The bytes of one member as a file."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def read(self, count: int) -> bytes:
        found = self.raw[self.at : self.at + count]
        self.at += len(found)
        return found


def _read_older(file: Any, move: Mover | None, encoding: str, errors: str) -> Any:
    def plain() -> Any:
        return Reader(file, None, encoding, errors).load()

    file.read(len(OLDER) + 1)  # the number by which it was known, and the end of its pickle
    if plain() != _PROTOCOL:
        raise UnsafeFile(f"load: the file is of an unknown version; {_DAMAGED}")
    about = plain()
    if about.__class__ is not dict or about.get("little_endian") is not True:
        raise UnsafeFile("load: the file was written on a big-endian machine")
    begin = file.tell()
    first = _WithMemory(file, None, encoding, errors)
    first.dry = first.maker.dry = True
    first.load()
    keys = plain()
    if keys.__class__ is not list or any(key.__class__ is not str for key in keys):
        raise UnsafeFile(f"load: the keys of memory are no list; {_DAMAGED}")
    memory: dict[str, bytes] = {}
    for key in keys:
        if key not in first.seen or key in memory:
            raise UnsafeFile(f"load: memory that no tensor has; {_DAMAGED}")
        dtype, count = first.seen[key]
        if int.from_bytes(file.read(8), "little") != count:
            raise UnsafeFile(f"load: memory {key[:100]!r} has another size than described")
        memory[key] = _exactly(file, count * dtype.itemsize)
    file.seek(begin)
    reader = _WithMemory(file, move, encoding, errors)
    reader.memory = memory
    return reader.load()


def _exactly(file: Any, count: int) -> bytes:
    pieces, got = [], 0
    while got < count:
        piece = file.read(min(count - got, 1 << 24))
        if not piece:
            raise TruncatedFile("load: Ran out of input: the file ends before what it describes")
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)
