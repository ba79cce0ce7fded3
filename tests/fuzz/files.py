"""Mutated and hand-made files: pickles, archives, safetensors, kernel cache, process messages.

A file is read or refused by the package's errors; tensors read lie inside their memory; the
package's state does not change; memory stays within what the file's length allows.
"""

from __future__ import annotations

import atexit
import collections
import functools
import io
import itertools
import json
import os
import pickle
import pickletools
import random
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rushlight as rl
from rushlight import interop, nn, sharing, storage
from rushlight.core import dtypes
from rushlight.core.errors import DeviceError, ForeignAccess, OutOfMemoryError, RushlightError
from rushlight.devices.shared import cache
from rushlight.io import limits, safe
from rushlight.io.archive import BEGIN, ArchiveWriter
from rushlight.io.constructors import KNOWN
from rushlight.io.reading import OPCODES
from rushlight.sparse import coo, csr
from rushlight.sparse.coo import SparseTensor
from tests.fuzz import Find

GOLDEN = Path(__file__).parents[1] / "golden"
EXTREME = [
    0,
    1,
    -1,
    2,
    3,
    4,
    7,
    8,
    16,
    63,
    64,
    65,
    255,
    256,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    1 << 40,
    1 << 62,
]
EXTREME += [1 << 20_000, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 31), -(1 << 63), 1 << 200]
_UNCHANGED = [(d, d.name, d.itemsize, d.kind, d.rank) for d in dtypes.ANY]
_CLASSES = [
    rl.Tensor,
    nn.Parameter,
    nn.Buffer,
    SparseTensor,
    rl.Size,
    rl.device,
    collections.OrderedDict,
]
for _name in dir(rl.Tensor):  # methods load when first asked for
    getattr(rl.Tensor, _name, None)
_CONTENT = {c: {n: v for n, v in vars(c).items() if n != "__slotnames__"} for c in _CLASSES}
_POOL = rl.zeros(1)._spec.device


# ---- whole files to start from ----


def things() -> list[Any]:
    x = rl.arange(6.0)
    tagged = nn.Parameter(rl.ones(2, 2))
    tagged.tag = ("a", [1])
    me = rl.ones(2)
    me.me = rl.zeros(1)
    ring: list[Any] = [1]
    ring.append(ring)
    hybrid = rl.sparse_coo_tensor(rl.tensor([[0, 0, 1]]), rl.ones(3, 2), (2, 2), requires_grad=True)
    ordered = collections.OrderedDict(a=1, b=rl.ones(1))
    ordered._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    return [
        rl.ones(3),
        [x, x[3:], x.view(2, 3).mT, x.expand(2, 6), x.view(rl.int32)],
        {"w": tagged, "b": nn.Buffer(rl.zeros(2)), "l": nn.UninitializedParameter()},
        [me, ring],
        [
            1,
            -5,
            1 << 70,
            2.5,
            "text",
            b"bytes",
            bytearray(b"b"),
            None,
            True,
            (1, 2, 3, 4),
            {1, 2},
            frozenset([3]),
            1j,
        ],
        [ordered, collections.Counter("aab"), collections.defaultdict(list, a=[1]), slice(1, None)],
        [rl.eye(2).to_sparse().coalesce(), hybrid, rl.eye(3).to_sparse_csr()],
        [
            rl.float16,
            rl.device("cpu"),
            rl.Size([2, 3]),
            rl.channels_last,
            x.storage(),
            x.untyped_storage(),
        ],
        [
            rl.tensor([True, False]),
            rl.ones(2, dtype=rl.complex64),
            rl.zeros(0, 3),
            rl.ones(2, requires_grad=True),
        ],
        {(1, "a"): 1, 1.5: 2, "x" * 300: [b"y" * 300], 300: 70000},
    ]


def _saved(thing: Any, archive: bool = True) -> bytes:
    file = io.BytesIO()
    rl.save(thing, file, _use_new_zipfile_serialization=archive)
    return file.getvalue()


@functools.cache
def whole_files() -> list[bytes]:
    """Pickles, archives and files of PyTorch's older format."""
    made = [pickle.dumps(thing, 4) for thing in things()]
    made += [(GOLDEN / f"saved_{name}.bin").read_bytes() for name in ("state", "more")]
    return made + [_saved(thing, archive) for archive in (True, False) for thing in things()]


Members = dict[str, bytes]


@functools.cache
def whole_pickles() -> list[tuple[bytes, Members | None]]:
    """Pickles; of an archive, with its other members."""
    found: list[tuple[bytes, Members | None]] = [(pickle.dumps(t, 4), None) for t in things()]
    for thing in things():
        with zipfile.ZipFile(io.BytesIO(_saved(thing))) as archive:
            members = {n.partition("/")[2]: archive.read(n) for n in archive.namelist()}
        found.append((members.pop("data.pkl"), members))
    return found


def archived(pickled: bytes, members: Members | None) -> bytes:
    if members is None:
        return pickled
    file = io.BytesIO()
    writer = ArchiveWriter(file, "archive")
    for name, content in ({"data.pkl": pickled} | members).items():
        writer.add(name, content)
    writer.finish()
    return file.getvalue()


@functools.cache
def whole_safetensors() -> list[bytes]:
    tables: list[dict[str, Any]] = [
        {"a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}},
        {"__metadata__": {"k": "v"}, "a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}},
        {
            "x.y": {"dtype": "BF16", "shape": [3], "data_offsets": [8, 14]},
            "b": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
            "c": {"dtype": "BOOL", "shape": [2], "data_offsets": [14, 16]},
            "d": {"dtype": "U8", "shape": [0, 5], "data_offsets": [16, 16]},
        },
    ]
    return [
        _safetensors(json.dumps(table).encode(), bytes(16 if len(table) > 2 else 8))
        for table in tables
    ]


def _safetensors(header: bytes, content: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + content


# ---- changes to bytes ----


def _flip(r: random.Random, raw: bytearray, _: list[bytes]) -> None:
    for _again in range(r.choice([1, 1, 1, 2, 5])):
        raw[r.randrange(len(raw))] ^= 1 << r.randrange(8)


def _set(r: random.Random, raw: bytearray, _: list[bytes]) -> None:
    raw[r.randrange(len(raw))] = r.choice([0, 1, 255, r.randrange(256)])


def _cut(r: random.Random, raw: bytearray, _: list[bytes]) -> None:
    del raw[r.randrange(len(raw)) :]


def _remove(r: random.Random, raw: bytearray, _: list[bytes]) -> None:
    at = r.randrange(len(raw))
    del raw[at : at + r.choice([1, 1, 2, 4, 8, 30])]


def _repeat(r: random.Random, raw: bytearray, _: list[bytes]) -> None:
    at = r.randrange(len(raw))
    raw[at:at] = raw[at : at + r.choice([1, 2, 8, 60])] * r.choice([1, 1, 2, 50])


def _splice(r: random.Random, raw: bytearray, others: list[bytes]) -> None:
    other = r.choice(others)
    at, start = r.randrange(len(raw)), r.randrange(len(other))
    raw[at : at + r.choice([0, 0, 1, 9, 40])] = other[
        start : start + r.choice([1, 4, 20, 100, 1000])
    ]


def _number(r: random.Random, raw: bytearray, _: list[bytes]) -> None:
    width = r.choice([1, 2, 4, 8])
    at = r.randrange(len(raw))
    raw[at : at + width] = (r.choice(EXTREME) & ((1 << (8 * width)) - 1)).to_bytes(width, "little")


CHANGES = [_flip, _flip, _set, _cut, _remove, _repeat, _splice, _splice, _number]


def changed(r: random.Random, whole: list[bytes]) -> bytes:
    raw = bytearray(r.choice(whole))
    for _ in range(r.choice([1, 1, 1, 2, 3, 8])):
        if raw:
            r.choice(CHANGES)(r, raw, whole)
    return bytes(raw)


# ---- changes to opcodes ----


@functools.cache
def operations() -> list[tuple[list[bytes], Members | None]]:
    """The opcodes of each whole pickle, with their arguments."""
    found = []
    for raw, members in whole_pickles():
        places = [at for _, _, at in pickletools.genops(raw)] + [len(raw)]
        found.append(([raw[a:b] for a, b in itertools.pairwise(places)], members))
    return found


def rearranged(r: random.Random) -> bytes:
    """A pickle with opcodes inserted, removed, exchanged or repeated."""
    whole, members = r.choice(operations())
    code = list(whole)
    for _ in range(r.choice([1, 1, 2, 3, 6])):
        at = r.randrange(len(code))
        way = r.randrange(6)
        if way == 0:
            del code[at : at + r.choice([1, 1, 2, 5])]
        elif way == 1:
            other, _ = r.choice(operations())
            start = r.randrange(len(other))
            code[at:at] = other[start : start + r.choice([1, 3, 10, 40])]
        elif way == 2:
            code[at:at] = code[at : at + r.choice([1, 3, 10])] * r.choice([1, 2, 20])
        elif way == 3:
            other_at = r.randrange(len(code))
            code[at], code[other_at] = code[other_at], code[at]
        elif way == 4:
            code[at] = _value(r, 2)
        else:
            code.insert(at, _operation(r))
        if not code:
            break
    return archived(b"".join(code), members)


def _operation(r: random.Random) -> bytes:
    key = r.choice(list(OPCODES))
    return key + r.choice([b"", bytes([r.randrange(40)]), bytes(4), bytes(8), r.randbytes(8)])


# ---- pickles made by hand ----


def _text(word: str) -> bytes:
    raw = word.encode("utf-8", "surrogatepass")
    return pickle.BINUNICODE + struct.pack("<I", len(raw)) + raw


def _name(r: random.Random) -> bytes:
    if r.random() < 0.03:
        return (
            _text(r.choice(["os", "builtins", "rushlight", ""]))
            + _text(r.choice(["system", "eval", "Tensor"]))
            + b"\x93"
        )
    module, _, word = r.choice(list(KNOWN)).rpartition(".")
    return _text(module) + _text(word) + pickle.STACK_GLOBAL


def _int(r: random.Random) -> bytes:
    return pickle.dumps(r.choice(EXTREME) if r.random() < 0.4 else r.randrange(-2, 9), 4)[
        2:-1
    ].removeprefix(b"\x95")


def _plain(value: Any) -> bytes:
    """Opcodes of a plain value, without a frame."""
    raw = pickle.dumps(value, 3)
    return raw[2:-1]


def _small(r: random.Random) -> Any:
    return r.choice(
        [0, 1, 2, 3, 4, 5, 8, -1, True, None, 1.5, "x", b"", b"ab", (), (1,), [], {}, *EXTREME]
    )


def _counts(r: random.Random) -> tuple[Any, ...]:
    many = r.choice([0, 1, 1, 1, 2, 2, 3, 64, 65]) if r.random() < 0.9 else 300
    pick = [1, 1, 2, 2, 3, 4] if r.random() < 0.7 else EXTREME
    return tuple(r.choice(pick) for _ in range(many))


def _dtype(r: random.Random) -> bytes:
    name = r.choice(list(dtypes._BY_NAME)) if r.random() < 0.95 else "float31"
    return _text("rushlight.core.dtypes") + _text("by_name") + b"\x93" + _text(name) + b"\x85R"


def _device(r: random.Random) -> bytes:
    return _text(
        r.choice(["cpu"] * 20 + ["reference", "null", "cuda", "nowhere", "CPU", "../cpu", ""])
    )


def _bool(r: random.Random) -> bytes:
    return r.choice([pickle.NEWFALSE] * 6 + [pickle.NEWTRUE] * 2 + [pickle.NONE])


def _call(module: str, word: str, *args: bytes) -> bytes:
    return _text(module) + _text(word) + b"\x93(" + b"".join(args) + b"tR"


def _tensor(
    r: random.Random, kind: str | None = None, shape: tuple[int, ...] | None = None
) -> bytes:
    """A tensor, most often one with the right number of bytes."""
    chosen = kind or r.choice(list(dtypes._BY_NAME))
    sizes = _counts(r) if shape is None else shape
    places = 1
    for n in sizes:
        places *= n
    fits = 0 <= places <= 4096
    count = places * dtypes.by_name(chosen).itemsize if fits else r.choice([0, 8, 64])
    if r.random() < 0.1:
        count = max(0, count + r.choice([-1, 1, 4, 64, 4096]))
    raw = r.randbytes(count) if r.random() < 0.5 else bytes(count)
    dtype = _call("rushlight.core.dtypes", "by_name", _text(chosen))
    return _call(
        "rushlight.interop",
        "from_pickle",
        _plain_bytes(raw),
        dtype,
        _plain(sizes),
        _device(r),
        _bool(r),
    )


def _plain_bytes(raw: bytes) -> bytes:
    return pickle.BINBYTES + struct.pack("<I", len(raw)) + raw


def _part(r: random.Random) -> bytes:
    sizes = _counts(r)
    strides = tuple(r.choice([0, 1, 1, 2, 3, 8, *EXTREME[:8]]) for _ in sizes)
    offset = r.choice([0, 0, 0, 4, 8, 16, 60, 64, *EXTREME])
    memory = _tensor(r, shape=(r.choice([1, 4, 16, 64]),)) if r.random() < 0.9 else _value(r, 1)
    kind = _dtype(r)
    return _call(
        "rushlight.interop",
        "from_shared",
        memory,
        kind,
        _plain(sizes),
        _plain(strides),
        _plain(offset),
        _bool(r),
    )


def _sparse(r: random.Random) -> bytes:
    dims, count = r.choice([1, 2, 3]), r.choice([0, 1, 2, 5])
    sizes = tuple(r.choice([1, 2, 3, 9]) for _ in range(dims))
    at = np.array(
        [
            [
                r.randrange(-1 if r.random() < 0.02 else 0, n + (r.random() < 0.02))
                for _ in range(count)
            ]
            for n in sizes
        ]
    )
    if r.random() < 0.7 and count:
        at = at[:, np.lexsort(at[::-1])]
    dtype = _call("rushlight.core.dtypes", "by_name", _text("int64"))
    shape = _plain((dims, count))
    indices = _call(
        "rushlight.interop",
        "from_pickle",
        _plain_bytes(at.astype("<i8").tobytes()),
        dtype,
        shape,
        _text("cpu"),
        b"\x89",
    )
    values = _tensor(r, "float32", (count,))
    parts = [indices, values, _plain(sizes), r.choice([b"\x88", b"\x89"]), _bool(r)]
    return _call("rushlight.sparse.coo", "from_pickle", *_spoiled(r, parts))


def _rows(r: random.Random) -> bytes:
    rows, columns = r.choice([0, 1, 3]), r.choice([1, 4])
    steps = [r.randrange(columns + 1) for _ in range(rows)]
    crow = np.cumsum([0, *steps])
    col = np.concatenate([np.sort(r.sample(range(columns), n)) for n in steps] or [np.zeros(0)])
    if r.random() < 0.4 and crow.size:
        crow[r.randrange(crow.size)] = r.choice([-1, 0, 1, 5, 1 << 40])
    if r.random() < 0.3 and col.size:
        col[r.randrange(col.size)] = r.choice([-1, 0, 1, 5, 1 << 40])
    kind = r.choice(["int32", "int64"])
    dtype = _call("rushlight.core.dtypes", "by_name", _text(kind))

    def vector(numbers: Any) -> bytes:
        raw = _plain_bytes(numbers.astype(kind).tobytes())
        return _call(
            "rushlight.interop",
            "from_pickle",
            raw,
            dtype,
            _plain((numbers.size,)),
            _text("cpu"),
            b"\x89",
        )

    parts = [
        vector(crow),
        vector(col),
        _tensor(r, "float32", (col.size,)),
        _plain((rows, columns)),
        _bool(r),
    ]
    return _call("rushlight.sparse.csr", "from_pickle", *_spoiled(r, parts))


def _spoiled(r: random.Random, parts: list[bytes]) -> list[bytes]:
    if r.random() < 0.15:
        parts[r.randrange(len(parts))] = _value(r, 1)
    return parts


def _known_call(r: random.Random, depth: int) -> bytes:
    """A name that a file may use, called with anything."""
    args = b"".join(_value(r, depth - 1) for _ in range(r.choice([0, 1, 1, 2, 3, 5])))
    return _name(r) + b"(" + args + b"t" + r.choice([pickle.REDUCE, pickle.REDUCE, pickle.NEWOBJ])


def _built(r: random.Random, depth: int) -> bytes:
    """Something with attributes."""
    names = [
        "tag",
        "_offset",
        "_spec",
        "_memory",
        "t",
        "_metadata",
        "__class__",
        "__array_interface__",
        "itemsize",
        "type",
        "index",
    ]
    state = {r.choice(names): _small(r) for _ in range(r.choice([1, 2]))}
    given: Any = r.choice([state, (None, state), (state, None), _small(r)])
    return _value(r, depth - 1) + _plain(given) + pickle.BUILD


def _filled(r: random.Random, depth: int) -> bytes:
    """Something that is filled as if it were a container."""
    items = b"".join(_value(r, depth - 1) for _ in range(r.choice([0, 2, 2, 4])))
    target = r.choice(
        [
            b"]",
            b"}",
            b"\x8f",
            _value(r, depth - 1),
            _call("collections", "defaultdict"),
            _call("collections", "OrderedDict"),
        ]
    )
    return (
        target
        + b"("
        + items
        + r.choice([pickle.APPENDS, pickle.SETITEMS, pickle.SETITEMS, pickle.ADDITEMS])
    )


def _value(r: random.Random, depth: int) -> bytes:
    """Opcodes that put, as a rule, one thing on the stack."""
    if depth <= 0:
        return r.choice([_plain(_small(r)), _int(r), _plain(_counts(r)), _text("ab")])
    way = r.randrange(14)
    if way < 3:
        made = _tensor(r)
    elif way < 5:
        made = _part(r)
    elif way == 5:
        made = _sparse(r)
    elif way == 6:
        made = _rows(r)
    elif way < 9:
        made = _known_call(r, depth)
    elif way == 9:
        made = _built(r, depth)
    elif way < 12:
        made = _filled(r, depth)
    elif way == 12:
        made = (
            _value(r, depth - 1)
            + r.choice([b"\x94", b"q\x00", b"q\x01"])
            + r.choice([b"", b"0h\x00", b"0h\x01"])
        )
    else:
        made = _plain(_small(r))
    return made


def by_hand(r: random.Random) -> bytes:
    return b"\x80\x04" + _value(r, r.choice([1, 2, 3, 4])) + b"."


def _repeated_call(r: random.Random, size: int) -> bytes:
    """One constructor and its arguments in the memo, called again and again."""
    dtype = _call("rushlight.core.dtypes", "by_name", _text("uint8"))
    ways: list[tuple[str, str, list[bytes]]] = [
        ("builtins", "set", [_plain(list(range(size)))]),
        ("builtins", "frozenset", [_plain(list(range(size)))]),
        ("builtins", "bytearray", [_plain_bytes(bytes(size))]),
        ("collections", "Counter", [_plain(dict.fromkeys(range(size), 1))]),
        ("rushlight.core.shapes", "Size", [_plain(tuple(range(size)))]),
        ("rushlight.storage", "_from_bytes", [_plain_bytes(bytes(size)), _text("cpu")]),
        (
            "rushlight.interop",
            "from_pickle",
            [_plain_bytes(bytes(size)), dtype, _plain((size,)), _text("cpu"), b"\x89"],
        ),
    ]
    module, word, args = r.choice(ways)
    parts = [_text(module) + _text(word) + b"\x93", *args]
    code = b"".join(part + b"q" + bytes([i]) + b"0" for i, part in enumerate(parts))
    unit = (
        b"h\x00("
        + b"".join(b"h" + bytes([i]) for i in range(1, len(parts)))
        + b"tR"
        + r.choice([b"", b"0"])
    )
    return b"\x80\x04" + code + unit * r.choice([10, 300, 3000]) + b"N."


def amplified(r: random.Random) -> bytes:
    """A few things in the memo, and a few opcodes that use them again and again."""
    size = r.choice([10, 1000, 20_000])
    if r.random() < 0.5:
        return _repeated_call(r, size)
    things = [
        _plain_bytes(bytes(size)),
        _plain(list(range(size))),
        _plain(dict.fromkeys(range(size), 1)),
        _plain(tuple(range(min(size, 1000)))),
        _tensor(r, "int64", (1, min(size, 500))),
        _tensor(r, "uint8", (min(size, 500),)),
        _plain(1 << (8 * size)),
        _plain((1,)),
        _dtype(r),
        _text("cpu"),
    ]
    chosen = r.sample(things, r.choice([1, 2, 3])) + [_name(r) for _ in range(r.choice([1, 2]))]
    code = b"".join(thing + b"q" + bytes([i]) + b"0" for i, thing in enumerate(chosen))
    gets = [b"h" + bytes([i]) for i in range(len(chosen))]
    steps = [
        *gets,
        *gets,
        b"(",
        b"t",
        b"\x85",
        b"\x86",
        b"\x87",
        b"R",
        b"R",
        b"0",
        b"a",
        b"e",
        b"s",
        b"u",
        b"]",
        b"}",
        b"2",
        b"\x89",
    ]
    unit = r.choice(
        [
            gets[-1] + gets[0] + b"\x85R",
            gets[-1]
            + b"("
            + b"".join(r.choice(gets) for _ in range(r.choice([1, 2, 3, 5])))
            + b"tR"
            + r.choice([b"", b"0"]),
            b"}" + gets[0] + b"Ns",
            gets[0] + b"q\x00\x85",
            b"".join(r.choice(steps) for _ in range(r.choice([2, 4, 8]))),
        ]
    )
    return (
        b"\x80\x04"
        + code
        + r.choice([b"", b"]", b"}", gets[0]])
        + unit * r.choice([10, 1000, 5000])
        + b"."
    )


# ---- invariants ----


def _tensors(thing: Any, found: list[Any], seen: set[int], left: list[int]) -> None:
    """Every tensor in a result, up to a number of steps."""
    path = [thing]
    while path and left[0] > 0:
        left[0] -= 1
        part = path.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, SparseTensor):
            path += [part._at, part._of]
        elif isinstance(part, rl.Tensor):
            found.append(part)
        elif isinstance(part, (storage.UntypedStorage, storage.TypedStorage)):
            found.append(part.untyped().elements())
        elif isinstance(part, dict):
            path += list(part.values())[:200]
        elif isinstance(part, (list, tuple)):
            path += part[:200]


def check_tensor(x: Any, r: random.Random) -> None:
    """A tensor lies in its memory, by its own numbers and by reading and writing it."""
    if nn.parameter.is_lazy(x):
        return
    spec = x._spec
    low, high = 0, 0
    if spec.numel:
        low = (
            sum((n - 1) * st for n, st in zip(spec.shape, spec.strides, strict=True) if st < 0)
            * spec.dtype.itemsize
        )
        high = (
            sum((n - 1) * st for n, st in zip(spec.shape, spec.strides, strict=True) if st > 0)
            * spec.dtype.itemsize
        )
        high += spec.dtype.itemsize
    if any(n < 0 for n in spec.shape) or x._offset + low < 0 or x._offset + high > x._memory.room:
        raise Find(
            f"{spec!r} with strides {spec.strides} at {x._offset} lies outside of {x._memory.room} "
            "bytes"
        )
    if spec.numel > 10_000 or spec.device is not _POOL:
        return
    interop.to_numpy(x.detach(), copy=False).tobytes()
    if r.random() < 0.02:
        x.detach().clone()
        if not any(st == 0 for st in spec.strides):
            x.detach().zero_()


_COUNTS = collections.Counter[str]()


def counts() -> dict[str, int]:
    """The numbers of files read and refused since the last request."""
    told = dict(_COUNTS)
    _COUNTS.clear()
    return told


def check_unchanged() -> None:
    for dtype, *content in _UNCHANGED:
        if [dtype.name, dtype.itemsize, dtype.kind, dtype.rank] != content:
            raise Find(f"a file changed {dtype!r}")
    for kind, content in _CONTENT.items():
        # Which copyreg notes there.
        now = {name: value for name, value in vars(kind).items() if name != "__slotnames__"}
        if len(now) != len(content) or any(
            now[name] is not value for name, value in content.items()
        ):
            raise Find(f"a file changed {kind.__name__}")


def read(
    raw: bytes, load: Callable[[], Any], r: random.Random, refusals: tuple[type[Exception], ...]
) -> None:
    """Load, and check the result."""
    before = _POOL.peak = _POOL.live
    try:
        made = load()
    except OutOfMemoryError as error:
        raise Find(f"{len(raw)} bytes asked for more memory than there is: {error}") from error
    except refusals:
        made = None
        _COUNTS["refused"] += 1
    else:
        _COUNTS["read"] += 1
    grown = _POOL.peak - before
    if grown > limits.FACTOR * len(raw) + limits.SLACK + 128 * len(raw):
        raise Find(f"{len(raw)} bytes of file became {grown} of tensors")
    found: list[Any] = []
    _tensors(made, found, set(), [5000])
    for x in found:
        check_tensor(x, r)
    if made is not None or r.random() < 0.01:
        check_unchanged()


def pickle_case(raw: bytes, r: random.Random) -> None:
    place = None if r.random() < 0.95 else "cpu"
    refusals = (limits.UnsafeFile, DeviceError)
    read(
        raw,
        lambda: rl.load(io.BytesIO(raw), map_location=place),
        r,
        refusals,
    )
    if raw.startswith(BEGIN) and r.random() < 0.5:
        path = f"{cache_home()}/mapped"
        Path(path).write_bytes(raw)
        read(raw, lambda: rl.load(path, map_location=place, mmap=True), r, refusals)


def safetensors_case(raw: bytes, r: random.Random) -> None:
    read(raw, lambda: safe.load(raw), r, (limits.UnsafeFile,))


def safetensors_by_hand(r: random.Random) -> bytes:
    table: dict[str, Any] = {}
    place = 0
    for name in r.sample(["a", "b", "c", "__metadata__", "\udc80", ""], r.choice([0, 1, 2, 3])):
        # JSON's writer prints no very large ones.
        shape: Any = [min(n, 1 << 300) for n in _counts(r)]
        word = r.choice([*safe._TYPES, "F8_E4M3", "x"])
        size = safe._TYPES[word].itemsize if word in safe._TYPES else 1
        count = int(np.prod([n for n in shape if abs(n) < 1 << 20] or [1], dtype=object)) * size
        end = place + (count if r.random() < 0.9 else min(r.choice(EXTREME), 1 << 300))
        table[name] = {"dtype": word, "shape": shape, "data_offsets": [place, end]}
        if r.random() < 0.1:
            table[name][r.choice(["dtype", "shape", "data_offsets", "more"])] = r.choice(
                [0, "F32", [], None, [1.5], {}]
            )
        place = end if 0 <= end < 1 << 20 else place
    return _safetensors(
        json.dumps(table).encode("utf-8", "surrogatepass"), bytes(min(max(place, 0), 1 << 16))
    )


# ---- the kernel cache ----


@functools.cache
def cache_home() -> str:
    home = tempfile.mkdtemp(prefix="rushlight-fuzz-")
    atexit.register(shutil.rmtree, home, True)
    return home


def cache_case(r: random.Random) -> None:
    """A damaged entry is never returned."""
    before = os.environ.get("RUSHLIGHT_CACHE")
    os.environ["RUSHLIGHT_CACHE"] = f"{cache_home()}/kernels"
    try:
        entries = []
        for key, code in (("a" * 64, b"code of a" * 9), ("b" * 64, b"code of b" * 9)):
            cache.write_object("fuzz", key, code)
            with open(f"{cache_home()}/kernels/fuzz/{key}.kernel", "rb") as file:
                entries.append(file.read())
        raw = changed(r, entries) if r.random() < 0.9 else entries[1]
        with open(f"{cache_home()}/kernels/fuzz/{'a' * 64}.kernel", "wb") as file:
            file.write(raw)
        found = cache.read_object("fuzz", "a" * 64)
        if found != (b"code of a" * 9 if raw == entries[0] else None):
            raise Find(f"the cache gave {found!r} for a damaged entry")
    finally:
        if before is None:
            del os.environ["RUSHLIGHT_CACHE"]
        else:
            os.environ["RUSHLIGHT_CACHE"] = before


# ---- messages between processes ----


class _Sent:
    """A descriptor as multiprocessing gives it."""

    def __init__(self, size: int) -> None:
        self.number = os.memfd_create("fuzz")
        os.ftruncate(self.number, size)

    def detach(self) -> int:
        return self.number


def message_case(r: random.Random) -> None:
    """The functions that plain pickles name, called with anything."""
    sizes = _counts(r)
    strides = tuple(r.choice([0, 1, 1, 2, 3, -1, *EXTREME[:8]]) for _ in sizes)
    offset = r.choice([0, 0, 4, 8, 64, *EXTREME])
    dtype = r.choice(dtypes.ANY)
    memory = rl.zeros(r.choice([0, 1, 16, 100]), dtype=r.choice(dtypes.ANY))
    room = r.choice([0, 1, 64, 4096, 10_000])
    vectors = [
        rl.tensor(
            [r.choice([0, 1, 2, -1, 5]) for _ in range(r.choice([0, 1, 2, 3]))], dtype=rl.int64
        )
        for _ in range(3)
    ]
    calls: list[Callable[[], Any]] = [
        lambda: interop.from_shared(memory, dtype, sizes, strides, offset, False),
        lambda: interop.from_pickle(bytes(r.choice([0, 1, 4, 8, 64])), dtype, sizes, "cpu", False),
        lambda: coo.from_pickle(
            vectors[0].reshape(1, -1), vectors[1], sizes, r.random() < 0.5, False
        ),
        lambda: csr.from_pickle(*vectors, (r.choice([0, 1, 2]), 2), False),
    ]
    if hasattr(os, "memfd_create"):
        sent = _Sent(r.choice([room, 4096, 1]))
        calls.append(lambda: sharing.received(sent, room, dtype, sizes, strides, offset, False))
    chosen = r.choice(calls)
    try:
        made = chosen()
    except RushlightError as error:
        if isinstance(error, (ForeignAccess, OutOfMemoryError)):
            raise
        return
    finally:
        if hasattr(os, "memfd_create") and chosen is not calls[-1]:
            os.close(sent.number)
    found: list[Any] = []
    _tensors(made, found, set(), [100])
    for x in found:
        check_tensor(x, r)


# ---- one case ----


def made_by(seed: int) -> tuple[str, bytes, random.Random]:
    r = random.Random(seed)
    way = r.random()
    if way < 0.25:
        return "pickle", changed(r, whole_files()), r
    if way < 0.5:
        return "pickle", rearranged(r), r
    if way < 0.79:
        return "pickle", by_hand(r), r
    if way < 0.8:
        return "pickle", amplified(r), r
    if way < 0.86:
        return "safetensors", changed(r, whole_safetensors()), r
    if way < 0.92:
        return "safetensors", safetensors_by_hand(r), r
    return "cache" if way < 0.96 else "message", b"", r


def case(seed: int) -> None:
    kind, raw, r = made_by(seed)
    if kind == "pickle":
        pickle_case(raw, r)
    elif kind == "safetensors":
        safetensors_case(raw, r)
    elif kind == "cache":
        cache_case(r)
    else:
        message_case(r)


def describe(seed: int) -> str:
    kind, raw, _ = made_by(seed)
    if kind == "pickle":
        return f"rushlight.load(io.BytesIO(bytes.fromhex('{raw[:4000].hex()}')))"
    if kind == "safetensors":
        return f"rushlight.io.safe.load(bytes.fromhex('{raw[:4000].hex()}'))"
    return f"tests.fuzz.files.case({seed})  # {kind}"
