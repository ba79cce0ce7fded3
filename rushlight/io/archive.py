"""PyTorch's archives: zip files whose members are stored as they are, each at a multiple of 64.

# Note [Archives]
1. A member's bytes begin at a multiple of `ALIGNED` in the archive, so that a file can be mapped
   into memory and its numbers read where they are. A field of the header, "FB", fills the gap.
2. A member is written in one pass: its checksum follows it and is repeated in the directory at the
   end. So a checksum fits the bytes that were written even where another thread changes them.
3. Nothing is compressed, there is no time in it: equal objects give equal files, and a file cannot
   grow when it is read.
4. Archives may stand one behind the other in a file. The end of one is where its directory says it
   is.
5. No two members that are read share bytes: many names of the same bytes would make much memory of
   a small file.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
import zlib
from itertools import pairwise
from typing import Any

from rushlight.io.limits import TruncatedFile, UnsafeFile

ALIGNED = 64
BEGIN = b"PK\x03\x04"
_CHUNK = 1 << 20
_END = b"PK\x05\x06"
_LIMIT = 0xFFFFFFFF  # of a number in 32 bits; it stands for one in a field of 64
_FLAGS = 0x0808  # the checksum follows the bytes; names are UTF-8
_DATE = 0x0021  # the first day that a zip file knows
_ENTRIES = 0xFFFF
# What `zipfile` raises for a damaged archive.
_BROKEN: tuple[type[Exception], ...] = (zipfile.BadZipFile, KeyError, EOFError, OSError)
_BROKEN += (ValueError, OverflowError, NotImplementedError, RuntimeError, struct.error)


# ---- writing ----


class ArchiveWriter:
    """Writes an archive from its beginning to its end; the file need not seek."""

    def __init__(self, file: Any, folder: str) -> None:
        self.file = file
        self.folder = folder
        self.at = 0
        self.directory: list[bytes] = []
        self.known = hashlib.sha256()  # of names and checksums

    def add(self, name: str, content: Any) -> None:
        """Write a member: bytes, or a memoryview of them."""
        path, start = f"{self.folder}/{name}".encode(), self.at
        gap = -(self.at + 30 + len(path) + 4) % ALIGNED
        filling = struct.pack("<2sH", b"FB", gap) + b"Z" * gap
        fields = (BEGIN, 45, _FLAGS, 0, 0, _DATE, 0, 0, 0, len(path), len(filling))
        self._write(struct.pack("<4s5H3I2H", *fields) + path + filling)
        check, view = 0, memoryview(content)
        for begin in range(0, len(view), _CHUNK):
            piece = bytes(view[begin : begin + _CHUNK])
            check = zlib.crc32(piece, check)
            self._write(piece)
        size = len(view)
        wide = size >= _LIMIT
        self._write(struct.pack("<4sI2Q" if wide else "<4s3I", b"PK\x07\x08", check, size, size))
        self._list(path, check, size, start)

    def _list(self, path: bytes, check: int, size: int, start: int) -> None:
        """Note a member for the directory."""
        self.known.update(struct.pack("<I", check) + path)
        large = [n for n in (size, size, start) if n >= _LIMIT]
        more = struct.pack(f"<2H{len(large)}Q", 1, 8 * len(large), *large) if large else b""
        sizes = (min(size, _LIMIT), min(size, _LIMIT), len(path), len(more))
        fields = (b"PK\x01\x02", 45, 45, _FLAGS, 0, 0, _DATE, check, *sizes)
        rest = struct.pack("<3H2I", 0, 0, 0, 0, min(start, _LIMIT))
        self.directory.append(struct.pack("<4s6H3I2H", *fields) + rest + path + more)

    def finish(self) -> None:
        """Write the directory."""
        start, count = self.at, len(self.directory)
        for entry in self.directory:
            self._write(entry)
        size = self.at - start
        if max(start, size) >= _LIMIT or count >= _ENTRIES:
            wide = (b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
            end = struct.pack("<4sIQI", b"PK\x06\x07", 0, self.at, 1)
            self._write(struct.pack("<4sQ2H2I4Q", *wide) + end)
        shown = (min(count, _ENTRIES), min(count, _ENTRIES), min(size, _LIMIT), min(start, _LIMIT))
        self._write(struct.pack("<4s4H2IH", _END, 0, 0, *shown, 0))

    def number(self) -> str:
        """40 digits by which the members so far are known."""
        return str(int.from_bytes(self.known.digest(), "little") % 10**40).zfill(40)

    def _write(self, raw: bytes) -> None:
        write_all(self.file, raw)
        self.at += len(raw)


def write_all(file: Any, raw: bytes) -> None:
    """Write all of the bytes: a file without a buffer may take a part of them."""
    view = memoryview(raw)
    while view:
        taken = file.write(view if len(view) < len(raw) else raw)
        if not isinstance(taken, int) or taken >= len(view):
            return
        view = view[taken:]


# ---- reading ----


class ArchiveReader:
    """The members of an archive that begins where the file stands; leaves the file behind it."""

    def __init__(self, file: Any) -> None:
        begin = file.tell()
        end = _end_of(file, begin)
        self.part = _Part(file, begin, end)
        try:
            with zipfile.ZipFile(self.part) as archive:
                found = archive.infolist()
                starts = sorted(each.header_offset for each in found)
                # Where each must end, by its beginning; of two that begin at one place, there.
                between = pairwise([*starts, archive.start_dir])
                self.ends = dict(reversed(list(between)))
                self.members = {each.filename: each for each in found}
        except _BROKEN as error:
            raise UnsafeFile(f"load: the file is no whole archive ({error})") from None

    def leave(self) -> None:
        """Put the file behind the archive."""
        self.part.file.seek(self.part.end)

    def read(self, name: str) -> bytes:
        """The bytes of a member; their checksum must be right."""
        start, size = self.place(name)
        self.part.file.seek(start)
        raw: bytes = self.part.file.read(size)
        if len(raw) != size or zlib.crc32(raw) != self.members[name].CRC:
            raise UnsafeFile(
                f"load: {name[:100]!r} cannot be read from the archive: its checksum is another"
            )
        return raw

    def place(self, name: str) -> tuple[int, int]:
        """Where the bytes of a member begin in the file, and their number."""
        found = self._plain(name)
        self.part.seek(max(found.header_offset, 0))
        head = self.part.read(30)
        if found.header_offset < 0 or len(head) < 30 or not head.startswith(BEGIN):
            raise UnsafeFile(f"load: {name[:100]!r} does not begin where the directory says")
        start = found.header_offset + 30 + sum(struct.unpack("<2H", head[26:30]))
        if start + found.file_size > self.ends[found.header_offset]:
            raise UnsafeFile(
                f"load: {name[:100]!r} reaches beyond the archive's end or into another member"
            )
        return self.part.begin + start, found.file_size

    def _plain(self, name: str) -> zipfile.ZipInfo:
        found = self.members.get(name)
        if found is None:
            raise UnsafeFile(
                f"load: {name[:100]!r} cannot be read from the archive: it is not there"
            )
        if found.compress_type != zipfile.ZIP_STORED or found.compress_size != found.file_size:
            raise UnsafeFile(
                f"load: {name[:100]!r} is compressed, which PyTorch's save does not do"
            )
        if found.flag_bits & 1:
            raise UnsafeFile(f"load: {name[:100]!r} is encrypted")
        return found


class _Part:
    """A part of a file as a file."""

    def __init__(self, file: Any, begin: int, end: int) -> None:
        self.file = file
        self.begin = begin
        self.end = end
        self.at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.end - self.begin}[whence]
        if base + offset < 0:
            raise ValueError("a place before the beginning")
        self.at = base + offset
        return self.at

    def tell(self) -> int:
        return self.at

    def seekable(self) -> bool:
        return True

    def read(self, count: int = -1) -> bytes:
        left = max(0, self.end - self.begin - self.at)
        self.file.seek(self.begin + self.at)
        raw: bytes = self.file.read(left if count < 0 else min(count, left))
        self.at += len(raw)
        return raw


def _end_of(file: Any, begin: int) -> int:
    """Where the archive that begins at `begin` ends: mostly the end of the file."""
    last = file.seek(0, os.SEEK_END)
    if _closes(file, begin, last - 22):
        return last
    at, before = begin, b""
    file.seek(begin)
    while piece := file.read(_CHUNK):
        text = before + piece
        found = text.find(_END)
        while found >= 0:
            place = at - len(before) + found
            if _closes(file, begin, place):
                return place + 22
            found = text.find(_END, found + 1)
        at += len(piece)
        before = text[-3:]
        file.seek(at)
    raise TruncatedFile("load: Ran out of input: the archive ends before its directory")


def _closes(file: Any, begin: int, place: int) -> bool:
    """Whether the last record of the archive that begins at `begin` is at `place`."""
    if place < begin:
        return False
    file.seek(place)
    raw = file.read(22)
    if len(raw) < 22 or not raw.startswith(_END):
        return False
    size, start = struct.unpack("<2I", raw[12:20])
    told = begin + start + size
    if _LIMIT in (size, start):
        file.seek(max(place - 76, 0))
        wide = file.read(56)
        if len(wide) < 56 or not wide.startswith(b"PK\x06\x06"):
            return False
        size, start = struct.unpack("<2Q", wide[40:56])
        return bool(begin + start + size == place - 76)
    return told in (place, place - 76)
