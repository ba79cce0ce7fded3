"""safetensors files: names to tensors, nothing else in them, readable by every framework.

# Note [safetensors]
1. A file is the length of a header (8 bytes), the header (JSON: for each name a dtype, a shape and
   the range of its bytes) and the bytes.
2. All of the header is checked before memory is allocated: ranges have the size of dtype and shape,
   follow each other without gaps to the end of the file, and belong to one tensor each.
3. An index (JSON) tells for each name the file that has it; the files lie beside the index.
"""

from __future__ import annotations

import io
import json
import mmap as mapping
import os
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import KindError, RushlightError
from rushlight.core.shapes import Spec, numel
from rushlight.interop import from_numpy, from_pickle, make_truths, pickled_shape, to_bytes
from rushlight.io.limits import UnsafeFile
from rushlight.io.replacing import replacing
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.record import call
from rushlight.tensor import Tensor

LONGEST_HEADER = 100_000_000  # bytes, by the format
_WIDTHS = {
    "bool": "BOOL",
    "bfloat16": "BF16",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}
_LETTERS = {"u": "U", "i": "I", "f": "F"}
_WORDS = {
    d.name: _WIDTHS.get(d.name) or f"{_LETTERS[d.kind]}{8 * d.itemsize}" for d in dtypes.ALL
} | _WIDTHS
_TYPES = {word: dtypes.by_name(name) for name, word in _WORDS.items()}


class _Entry(NamedTuple):
    """One tensor of a file: the range of its bytes after the header."""

    begin: int
    end: int
    name: str
    dtype: DType
    shape: tuple[int, ...]


def save_file(
    tensors: Mapping[str, Tensor],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
) -> None:
    """Write named tensors; of a view, its own elements are written.

    Args:
        tensors (mapping): Tensors by name.
        filename (path): The file.
        metadata (dict): Text by name, stored beside the tensors.
    """
    _check_names(tensors, metadata)
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    # Wide dtypes first, so that each begins at a multiple of its width.
    order = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    offset = 0
    for name, tensor in order:
        word = _WORDS.get(tensor.dtype.name)
        if word is None:
            raise RushlightError(
                f"save_file: safetensors files have no {tensor.dtype!r}; convert {name!r} first"
            )
        header[name] = {
            "dtype": word,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor._spec.nbytes],
        }
        offset += tensor._spec.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    def write(file: Any) -> None:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in order:
            file.write(to_bytes(tensor.detach()))

    replacing(filename, write)


def _check_names(tensors: Any, metadata: Any) -> None:
    """Refuse values that a safetensors file cannot hold."""
    if metadata is not None:
        texts = [*metadata, *metadata.values()] if isinstance(metadata, dict) else [metadata]
        if any(not isinstance(text, str) for text in texts) or not isinstance(metadata, dict):
            raise KindError(
                "save_file: metadata is a dict of texts by texts; make texts of other things with "
                "str()"
            )
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise KindError(
                "save_file: the name of a tensor is a text, and not '__metadata__', got "
                f"{name!r:.60}; rename it"
            )
        if not isinstance(tensor, Tensor):
            raise KindError(
                f"save_file: {name!r:.60} must be a tensor, got {type(tensor).__name__}; make a "
                "tensor of it"
            )


def load_file(
    filename: str | os.PathLike[str], device: Any = None, *, mmap: bool = False
) -> dict[str, Any]:
    """Read named tensors to a device, one after the other.

    Args:
        filename (path): The file, or the index of several (`model.safetensors.index.json`).
        device (device): The device of the tensors; None for the default.
        mmap (bool): Leave the elements in the file until they are used; for the CPU. Writes to the
            tensors do not change the file, which must not be changed by others while they live.
    """
    where = resolve_pool(device).device.name
    if mmap and where != "cpu":
        raise RushlightError(
            f"load_file: a file is mapped to the CPU's memory, not to {where}; leave mmap out"
        )
    path = os.fspath(filename)
    if path.endswith(".json"):
        return _read_shards(path, where, mmap)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return _map_tensors(file, size) if mmap else _read_tensors(file, size, where)


def _read_shards(path: str, where: str, mapped: bool) -> dict[str, Any]:
    """The tensors of the files that an index names: see Note [safetensors] 3."""
    with open(path, "rb") as file:
        try:
            index = json.loads(file.read().decode(), object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise UnsafeFile(f"load_file: the index cannot be read: {error}") from error
    places = index.get("weight_map") if index.__class__ is dict else None
    if places.__class__ is not dict or any(shard.__class__ is not str for shard in places.values()):
        raise UnsafeFile("load_file: the weight_map of an index is a table of files by names")
    found: dict[str, dict[str, Any]] = {}
    for shard in dict.fromkeys(places.values()):
        if os.path.basename(shard) != shard or shard.endswith(".json"):
            raise UnsafeFile(f"load_file: the index names {shard[:100]!r}, which is no file beside")
        file_path = os.path.join(os.path.dirname(path), shard)
        found[shard] = load_file(file_path, where, mmap=mapped)
    missing = [name for name, shard in places.items() if name not in found[shard]]
    if missing:
        raise UnsafeFile(
            f"load_file: {missing[0]!r} is not in {places[missing[0]]!r}, as the index says"
        )
    return {name: found[shard][name] for name, shard in places.items()}


def _map_tensors(file: Any, size: int) -> dict[str, Any]:
    import numpy as np

    entries, start = read_header(file, size)
    # A write to the memory copies the page and leaves the file as it is.
    mapped = mapping.mmap(file.fileno(), size, access=mapping.ACCESS_COPY)
    found: dict[str, Any] = {}
    for entry in entries:
        at, count = start + entry.begin, entry.end - entry.begin
        if at % entry.dtype.itemsize or not count:
            raw = mapped[at : at + count]
            found[entry.name] = from_pickle(raw, entry.dtype, entry.shape, "cpu", False)
            continue
        whole = from_numpy(np.frombuffer(mapped, np.uint8, count, at))
        if entry.dtype is dtypes.bool_:
            make_truths(whole)
        spec = Spec.of(whole._spec.device, entry.dtype, entry.shape)
        found[entry.name] = call.lay(spec, whole._memory)
    return found


def load(data: bytes, device: Any = None) -> dict[str, Any]:
    """Read named tensors from the bytes of a file."""
    return _read_tensors(io.BytesIO(data), len(data), resolve_pool(device).device.name)


def _read_tensors(file: Any, size: int, where: str) -> dict[str, Any]:
    entries, start = read_header(file, size)
    found = {}
    for entry in sorted(entries):
        file.seek(start + entry.begin)
        raw = file.read(entry.end - entry.begin)
        found[entry.name] = from_pickle(raw, entry.dtype, entry.shape, where, False)
    return {entry.name: found[entry.name] for entry in entries}


def read_header(file: Any, size: int) -> tuple[list[_Entry], int]:
    """The tensors of a file of `size` bytes, and the offset of the first byte."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(size - 8, LONGEST_HEADER):
        raise UnsafeFile(
            f"load_file: no safetensors file: its header would have {length} bytes, the file has "
            f"{size}"
        )
    try:
        header = json.loads(
            file.read(length).decode(), object_pairs_hook=_once, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise UnsafeFile(
            f"load_file: the header of the safetensors file cannot be read: {error}"
        ) from error
    if header.__class__ is not dict:
        raise UnsafeFile("load_file: the header of a safetensors file is a table of names")
    metadata = header.pop("__metadata__", {})
    if metadata.__class__ is not dict or any(v.__class__ is not str for v in metadata.values()):
        raise UnsafeFile("load_file: the metadata of a safetensors file is a table of texts")
    entries = [_entry(name, given) for name, given in header.items()]
    offset = 0
    for entry in sorted(entries):
        if entry.begin != offset:
            raise UnsafeFile(
                f"load_file: the bytes of {entry.name!r} do not begin where those before them end"
            )
        offset = entry.end
    if offset != size - 8 - length:
        raise UnsafeFile(
            f"load_file: the header tells of {offset} bytes, behind it there are "
            f"{size - 8 - length}"
        )
    return entries, 8 + length


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name is there twice")
    return table


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _entry(name: str, given: Any) -> _Entry:
    """One entry of the header, checked by itself."""
    if given.__class__ is not dict or sorted(given) != ["data_offsets", "dtype", "shape"]:
        raise UnsafeFile(f"load_file: {name!r} is given by a type, a shape and offsets")
    word, shape, offsets = given["dtype"], given["shape"], given["data_offsets"]
    if word.__class__ is not str or word not in _TYPES:
        raise UnsafeFile(
            f"load_file: {name!r} is of type {str(word)[:40]!r}, which is not known here"
        )
    whole = (
        offsets.__class__ is list and len(offsets) == 2 and all(n.__class__ is int for n in offsets)
    )
    if not whole or not 0 <= offsets[0] <= offsets[1] or shape.__class__ is not list:
        raise UnsafeFile(f"load_file: {name!r} has a shape or offsets that are none")
    dtype = _TYPES[word]
    try:
        sizes = pickled_shape(shape, dtype.itemsize)
    except RushlightError as error:
        raise UnsafeFile(f"load_file: {name!r}: {error}") from error
    if dtype.itemsize * numel(sizes) != offsets[1] - offsets[0]:
        raise UnsafeFile(
            f"load_file: {name!r}, {dtype.name}{list(sizes)}, needs "
            f"{dtype.itemsize * numel(sizes)} bytes, its offsets give "
            f"{offsets[1] - offsets[0]}"
        )
    return _Entry(offsets[0], offsets[1], name, dtype, sizes)
