"""Files are parsed, not run: `load` of hostile, damaged and old files, with its memory and time."""

from __future__ import annotations

import ast
import collections
import contextlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rushlight as rl
from rushlight import interop, nn, sharing, storage
from rushlight.core.errors import RushlightError
from rushlight.io import limits, load_file
from rushlight.io.limits import DEPTH, TruncatedFile, UnsafeFile
from rushlight.io.reading import OPCODES
from rushlight.sparse import coo, csr

GOLDEN = Path(__file__).parents[1] / "golden"


# ---- hand-made pickles ----


def text(word: str) -> bytes:
    raw = word.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(raw)) + raw


def name(module: str, word: str) -> bytes:
    return text(module) + text(word) + pickle.STACK_GLOBAL


def plain(value: object) -> bytes:
    """A value of Python's own as opcodes."""
    return pickle.dumps(value, 4)[2:-1] if not isinstance(value, Raw) else value.code


class Raw:
    """Opcodes that put one thing on the stack."""

    def __init__(self, code: bytes) -> None:
        self.code = code


def call(module: str, word: str, *args: object) -> Raw:
    return Raw(
        name(module, word) + pickle.MARK + b"".join(map(plain, args)) + pickle.TUPLE + pickle.REDUCE
    )


def dtype(word: str = "float32") -> Raw:
    return call("rushlight.core.dtypes", "by_name", word)


def tensor(
    raw: object, shape: object, kind: str = "float32", device: str = "cpu", leaf: object = False
) -> Raw:
    return call("rushlight.interop", "from_pickle", raw, dtype(kind), shape, device, leaf)


def shared(
    memory: Raw, shape: object, strides: object, offset: object, kind: str = "float32"
) -> Raw:
    return call(
        "rushlight.interop", "from_shared", memory, dtype(kind), shape, strides, offset, False
    )


def file_of(code: Raw | bytes) -> io.BytesIO:
    raw = code.code if isinstance(code, Raw) else code
    return io.BytesIO(pickle.PROTO + b"\x04" + raw + pickle.STOP)


def load(code: Raw | bytes) -> object:
    return rl.load(file_of(code))


def saved(thing: object) -> io.BytesIO:
    file = io.BytesIO()
    rl.save(thing, file)
    file.seek(0)
    return file


def test_what_the_helpers_write_is_read():
    made = load(tensor(bytes(8), (2,)))
    assert made.tolist() == [0, 0]
    assert load(shared(tensor(bytes(8), (2,)), (1,), (1,), 4)).tolist() == [0]


# ---- tensors and their memory ----


@pytest.mark.parametrize(
    ("raw", "shape"),
    [
        (bytes(64), (2,)),
        (bytes(4), (2,)),
        (b"", (2,)),
        (bytes(4), (0,)),
        (bytes(8), (-2,)),
        (bytes(8), (-1, -2)),
    ],
)
def test_bytes_must_be_as_many_as_the_shape_needs(raw, shape):
    with pytest.raises(UnsafeFile, match="pickled tensor"):
        load(tensor(raw, shape))
    with pytest.raises(RushlightError):
        interop.from_pickle(raw, rl.float32, shape, "cpu", False)


@pytest.mark.parametrize(
    "shape",
    [
        (1,) * 65,
        (0, 1 << 62, 1 << 62),
        (1 << 63,),
        (0, 1 << 63),
        (0, 1 << 62),
        (2.0,),
        (True,),
        ("2",),
        (None,),
        [[]],
        (1 << 5000, 0),
    ],
)
def test_shapes_that_no_tensor_has(shape):
    with pytest.raises(UnsafeFile):
        load(tensor(b"", shape))
    with pytest.raises(RushlightError):
        interop.pickled_shape(shape, 4)


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((5,), (1,), 0),
        ((4,), (1,), 4),
        ((2,), (4,), 0),
        ((1,), (1,), -4),
        ((2,), (-1,), 4),
        ((1,), (1,), 2),  # not aligned
        ((1 << 40,), (1,), 0),
        ((2, 2), (1,), 0),
        ((1,), (1,), 1 << 70),
        ((-1,), (1,), 0),
        ((2,), (1 << 62,), 0),
        ((0,), (1,), 64),
    ],
)
def test_a_part_must_lie_inside_its_memory(shape, strides, offset):
    with pytest.raises(UnsafeFile):
        load(shared(tensor(bytes(16), (4,)), shape, strides, offset))
    with pytest.raises(RushlightError):
        interop.from_shared(rl.zeros(4), rl.float32, shape, strides, offset, False)


def test_numbers_that_python_does_not_print():
    huge = 1 << 20_000
    for shape, strides, offset in (((1,), (1,), huge), ((1,), (huge,), 0), ((huge,), (1,), 0)):
        with pytest.raises(UnsafeFile):
            load(shared(tensor(bytes(16), (4,)), shape, strides, offset))
    with pytest.raises(UnsafeFile):
        load(call("rushlight.naming", "device", "cpu", huge))
    vector = tensor(bytes(16), (2,), "int64")
    for size in ((1, 1, huge), (huge, 1)):
        with pytest.raises(UnsafeFile):
            load(call("rushlight.sparse.csr", "from_pickle", vector, vector, vector, size, False))


def test_a_part_of_a_part_is_refused():
    part = shared(tensor(bytes(16), (4,)), (2,), (1,), 8)
    with pytest.raises(UnsafeFile):
        load(shared(part, (2,), (1,), 8))


def test_other_kinds_of_arguments():
    for args in [
        ("text", dtype(), (2,), "cpu", False),
        (bytes(8), "float32", (2,), "cpu", False),
        (bytes(8), dtype(), 2, "cpu", False),
        (bytes(8), dtype(), (2,), 7, False),
        (bytes(8), dtype(), (2,), "cpu", 2),
        (bytes(8), dtype(), (2,), "../cpu", False),
        (bytes(8), dtype(), (2,), "nowhere", False),
        (bytes(8), dtype(), (2,), "cpu"),
        (bytes(8), dtype("int32"), (2,), "cpu", True),
        (),
    ]:
        with pytest.raises(UnsafeFile):
            load(call("rushlight.interop", "from_pickle", *args))
    for word in ("float33", "__class__", ""):
        with pytest.raises(UnsafeFile):
            load(dtype(word))


def test_truth_values_are_zeros_and_ones():
    assert load(tensor(bytes([0, 1, 2, 255]), (4,), "bool")).view(rl.uint8).tolist() == [0, 1, 1, 1]


# ---- attributes ----


def build(thing: Raw, state: object) -> Raw:
    return Raw(thing.code + plain(state) + pickle.BUILD)


A = tensor(bytes(8), (2,))
SLOTS = [
    "_offset",
    "_spec",
    "_memory",
    "_node",
    "_base",
    "_history",
    "grad",
    "data",
    "requires_grad",
    "__class__",
    "__dict__",
]


@pytest.mark.parametrize(
    "attribute", [*SLOTS, "shape", "__array_interface__", "__array_struct__", "__reduce__"]
)
def test_slots_properties_and_protocols_of_a_tensor_cannot_be_set(attribute):
    parameter = call("rushlight.nn.parameter", "Parameter", A, True)
    buffer = call("rushlight.nn.parameter", "_buffer", A, True)
    for thing in (A, parameter, buffer):
        for state in ({attribute: 8}, (None, {attribute: 8}), ({attribute: 8}, None)):
            with pytest.raises(UnsafeFile):
                load(build(thing, state))
    assert load(build(A, {"tag": [1], "t": 2.5})).tag == [1]  # `x.t = 2.5` is a user's to write


def test_nothing_that_can_be_called_takes_a_methods_place():
    for state in (
        {"data_ptr": Raw(name("builtins", "int"))},
        {"detach": Raw(name("rushlight.nn.parameter", "Parameter"))},
    ):
        ((word, value),) = state.items()
        with pytest.raises(UnsafeFile, match="which the class has"):
            load(A.code + b"}" + text(word) + value.code + b"sb")


def test_setitem_does_not_write_into_a_tensor():
    for code in (pickle.SETITEM, pickle.SETITEMS, pickle.APPEND, pickle.APPENDS, pickle.ADDITEMS):
        mark = pickle.MARK if code in (pickle.SETITEMS, pickle.APPENDS, pickle.ADDITEMS) else b""
        with pytest.raises(UnsafeFile):
            load(A.code + mark + plain(0) + plain(1.0) + code)


def test_classes_and_types_of_elements_cannot_be_changed():
    itemsize = rl.float32.itemsize
    told = nn.Parameter.__repr__
    for thing in (
        Raw(name("rushlight.nn.parameter", "Parameter")),
        dtype(),
        Raw(name("rushlight.interop", "from_pickle")),
        Raw(name("rushlight", "channels_last")),
        call("rushlight.core.shapes", "Size", (1, 2)),
        Raw(name("builtins", "set")),
        Raw(plain([])),
        Raw(plain({})),
    ):
        for state in (
            {"itemsize": 1, "__repr__": None, "name": "x"},
            (None, {"itemsize": 1, "__repr__": 5, "order": 3}),
        ):
            with pytest.raises(UnsafeFile):
                load(build(thing, state))
    assert rl.float32.itemsize == itemsize and nn.Parameter.__repr__ is told
    with (
        rl.serialization.safe_globals([rl.dtype, rl.Tensor, nn.Parameter]),
        pytest.raises(UnsafeFile),
    ):
        load(build(dtype(), (None, {"itemsize": 1})))
    order = rl.channels_last.order
    with rl.serialization.safe_globals([object, Named]):  # every class is derived from it
        for module, word in (
            ("rushlight.interop", "from_pickle"),
            ("rushlight.ops.creation", "channels_last"),
            (Named.__module__, "Named"),
        ):
            for state in ({"__doc__": "x", "order": 3}, (None, {"__doc__": "x", "order": 3})):
                with pytest.raises(UnsafeFile, match="sets attributes"):
                    load(build(Raw(name(module, word)), state))
    assert (
        rl.channels_last.order == order
        and interop.from_pickle.__doc__ != "x"
        and Named.__doc__ != "x"
    )


def test_an_ordered_dict_keeps_its_attributes_and_its_methods():
    ordered = call("collections", "OrderedDict")
    assert load(build(ordered, {"_metadata": 1}))._metadata == 1
    for kind in ("OrderedDict", "Counter"):
        made = load(build(call("collections", kind), {"values": 5}))
        assert made.values == 5 and made == {}
    for state in ({"__array_interface__": {}}, [("a", 1)], {1: 2}, None, 5):
        with pytest.raises(UnsafeFile):
            load(build(ordered, state))


def test_a_device_of_an_older_file_is_checked():
    empty = name("rushlight.naming", "device") + pickle.EMPTY_TUPLE + pickle.NEWOBJ
    assert load(build(Raw(empty), (None, {"type": "cpu", "index": 0}))) == rl.device("cpu:0")
    for state in (
        (None, {"type": "cpu"}),
        (None, {"type": "nowhere", "index": None}),
        {"type": "cpu"},
        3,
        ((), {}),
        None,
    ):
        with pytest.raises(UnsafeFile):
            load(build(Raw(empty), state))


# ---- callables ----


@pytest.mark.parametrize(
    ("module", "word"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("builtins", "type"),
        ("rushlight.interop", "pool_of"),
        ("rushlight.interop", "from_pickle.__globals__"),
        ("rushlight.devices.shared.allocator", "Storage"),
        ("rushlight.core.shapes", "Spec"),
        ("collections", "namedtuple"),
        ("torch._utils", "_rebuild_qtensor"),
        ("a\x1b[31m" * 200, "b" * 200),
    ],
)
def test_nothing_else_can_be_named(module, word):
    with pytest.raises(UnsafeFile, match="asks for") as told:
        load(name(module, word))
    assert "\x1b" not in str(told.value) and len(str(told.value)) < 2000
    assert not isinstance(told.value, EOFError)
    lines = pickle.GLOBAL + f"{module}\n{word}\n".encode()
    if len(module) < 500:
        with pytest.raises(UnsafeFile, match="asks for"):
            load(lines)


def test_plain_types_can_be_named_but_not_called():
    assert (
        load(call("collections", "defaultdict", Raw(name("builtins", "list")))).default_factory
        is list
    )
    for word in ("int", "list", "dict", "str"):
        with pytest.raises(UnsafeFile, match="no constructor"):
            load(call("builtins", word, 5))
    with pytest.raises(UnsafeFile, match="bytes is not made of"):
        load(call("builtins", "bytes", 5))
    for factory in (Raw(name("rushlight.interop", "from_pickle")), 3, "list"):
        with pytest.raises(UnsafeFile, match="defaultdict"):
            load(call("collections", "defaultdict", factory))


@pytest.mark.parametrize("code", [bytes([n]) for n in range(256) if bytes([n]) not in OPCODES])
def test_opcodes_that_are_not_on_the_list(code):
    with pytest.raises(UnsafeFile, match="not in the list"):
        rl.load(io.BytesIO(pickle.PROTO + b"\x04" + code + bytes(20)))


@pytest.mark.parametrize("code", list(OPCODES))
def test_opcodes_with_nothing_to_work_on(code):
    for start in (b"", pickle.MARK, plain(1), plain(1) * 3, pickle.MARK + plain(1) * 3):
        with contextlib.suppress(UnsafeFile):
            rl.load(io.BytesIO(pickle.PROTO + b"\x04" + start + code + bytes(20) + pickle.STOP))


# ---- costs ----


DRIVER = """
import io, os, pickle, resource, sys, time
import rushlight as rl
from rushlight.io.limits import UnsafeFile
cases = pickle.load(sys.stdin.buffer)
rl.load(io.BytesIO(pickle.dumps(rl.zeros(2))))
for name, raw in cases.items():
    if os.fork() == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start, told = time.process_time(), "read"
        try:
            made = rl.load(io.BytesIO(raw))
            del made
        except UnsafeFile as error:
            told = str(error)
        seconds = time.process_time() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        print(repr((name, seconds, grown, len(raw), told[:150])), flush=True)
        os._exit(0)
    status = os.wait()[1]
    if status:
        print(repr((name, 0.0, 0, 1, f"status {status}")), flush=True)
"""


@pytest.fixture(scope="module")
def costs():
    """The cost of each hostile file, in a process of its own."""
    cases = pickle.dumps({name: file_of(code).getvalue() for name, code in HOSTILE.items()})
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER], input=cases, capture_output=True, timeout=600, check=True
    )
    return {
        found[0]: found[1:] for found in map(ast.literal_eval, ran.stdout.decode().splitlines())
    }


def put(index: int) -> bytes:
    return pickle.BINPUT + bytes([index])


def get(index: int) -> bytes:
    return pickle.BINGET + bytes([index])


def prepared(*things: object) -> bytes:
    """Opcodes that put things into the memo, from 0 on."""
    return b"".join(plain(thing) + put(i) + pickle.POP for i, thing in enumerate(things))


MEGABYTE = bytes(1 << 20)
HOSTILE = {
    "one payload for many tensors": prepared(
        MEGABYTE, dtype("uint8"), (1 << 20,), "cpu", Raw(name("rushlight.interop", "from_pickle"))
    )
    + (
        get(4)
        + pickle.MARK
        + get(0)
        + get(1)
        + get(2)
        + get(3)
        + pickle.NEWFALSE
        + pickle.TUPLE
        + pickle.REDUCE
    )
    * 5000,
    "one payload for many bytearrays": prepared(MEGABYTE, Raw(name("builtins", "bytearray")))
    + (get(1) + get(0) + pickle.TUPLE1 + pickle.REDUCE) * 50000,
    "one list for many sets": prepared(list(range(100000)), Raw(name("builtins", "set")))
    + (get(1) + get(0) + pickle.TUPLE1 + pickle.REDUCE) * 20000,
    "one dict for many counters": prepared(
        dict.fromkeys(range(50000), 1), Raw(name("collections", "Counter"))
    )
    + (get(1) + get(0) + pickle.TUPLE1 + pickle.REDUCE) * 20000,
    "tuples of tuples as a key": plain(1)
    + (pickle.DUP + pickle.TUPLE2) * 100
    + put(0)
    + b"}"
    + get(0)
    + b"Ns",
    "a deep tuple as a key": plain(1) + pickle.TUPLE1 * 300_000 + put(0) + b"}" + get(0) + b"Ns",
    "a deep tuple": plain(1) + pickle.TUPLE1 * 300_000,
    "deep frozen sets": plain(1)
    + put(0)
    + (pickle.POP + pickle.MARK + get(0) + pickle.FROZENSET + put(0)) * 300_000,
    "lists open one inside the other": b"]" * 200_000 + b"a" * 199_999,
    "marks": b"(" * 300_000,
    "sets": b"\x8f" * 200_000,
    "deep defaultdicts": prepared(Raw(name("collections", "defaultdict")), 1)
    + b"N"
    + (
        put(2)
        + pickle.POP
        + get(0)
        + pickle.EMPTY_TUPLE
        + pickle.REDUCE
        + get(1)
        + get(2)
        + pickle.SETITEM
    )
    * 300_000,
    "defaultdicts filled from above": prepared(Raw(name("collections", "defaultdict")), 1)
    + get(0)
    + b")R"
    + (put(2) + get(1) + get(0) + b")R" + put(3) + b"s0" + get(3)) * 300_000,
    "a large number as a key again and again": prepared(1 << 4_000_000)
    + b"}("
    + (get(0) + b"N") * 100_000
    + b"u",
    "equal hashes": b"}("
    + b"".join(plain(k * (2**61 - 1)) + b"N" for k in range(1, 60_000))
    + b"u",
    "equal hashes of tuples in a set": b"\x8f("
    + b"".join(plain(k * (2**61 - 1)) + pickle.TUPLE1 for k in range(1, 60_000))
    + b"\x90",
    "equal hashes of long tuples": prepared(7, -1, -2)
    + b"}("
    + b"".join(
        b"(" + get(0) * 900 + b"".join(get(1 + (i >> k & 1)) for k in range(12)) + b"tN"
        for i in range(4000)
    )
    + b"u",
    "equal hashes of sets": b"".join(
        b"("
        + b"".join(plain(k * (2**61 - 1)) for k in range(1, 300) if k != skipped)
        + pickle.FROZENSET
        + put(skipped)
        + b"0"
        for skipped in range(1, 100)
    )
    + b"}("
    + b"".join(get(skipped) + b"N" for skipped in range(1, 100)) * 100
    + b"u",
    "equal hashes copied": prepared(
        MEGABYTE, {k * (2**61 - 1): 1 for k in range(1, 3001)}, Raw(name("collections", "Counter"))
    )
    + (get(2) + get(1) + b"\x85R0") * 100
    + b"N",
    "long text of two copies as a key": prepared("a" * 2_000_000, "a" * 2_000_000)
    + b"}("
    + get(0)
    + b"N"
    + (get(1) + b"N") * 200_000
    + b"u",
    "one state for a tensor again and again": prepared({f"a{k}": k for k in range(6000)})
    + A.code
    + (get(0) + b"b") * 6000,
    "one defaultdict in another again and again": prepared(Raw(name("collections", "defaultdict")))
    + get(0)
    + b")R("
    + b"".join(plain(k) + b"N" for k in range(30_000))
    + b"u"
    + put(1)
    + b"0"
    + get(0)
    + b")R("
    + b"".join(plain(k) + get(1) for k in range(30_000))
    + b"u",
    "an expanded tensor as the name of an attribute": A.code
    + b"}"
    + shared(A, (1 << 31,), (0,), 0).code
    + b"Nsb",
    "an expanded tensor as a part of a device": name("rushlight.naming", "device")
    + b")RN}"
    + shared(A, (1 << 31,), (0,), 0).code
    + b"Ns\x86b",
    "deep slices": plain(None)
    + (b"NN" + pickle.TUPLE3 + put(0) + b"0" + name("builtins", "slice") + get(0) + b"R") * 5,
    "long number that is not there": pickle.LONG4 + struct.pack("<i", -1),
    "text that is not there": pickle.BINUNICODE8 + struct.pack("<Q", 1 << 62) + b"x",
    "bytes that are not there": pickle.BINBYTES8 + struct.pack("<Q", (1 << 64) - 1) + b"x",
    "bytearray that is not there": pickle.BYTEARRAY8 + struct.pack("<Q", 1 << 40) + b"x",
    "many sparse matrices": prepared(
        tensor(bytes(16), (2,), "int64"), tensor(b"", (0,), "int64"), tensor(b"", (0,)), (1, 1)
    )
    + (name("rushlight.sparse.csr", "from_pickle") + put(9) + b"0")
    + (get(9) + b"(" + get(0) + get(1) + get(2) + get(3) + b"\x89tR0") * 100_000
    + b"N",
    "a name without end": pickle.GLOBAL + b"a" * 5_000_000,
    "huge index of the memo": plain(1) + pickle.LONG_BINPUT + b"\xff\xff\xff\xff",
    "many parts of one memory": prepared(
        tensor(MEGABYTE, (1 << 18,)),
        dtype(),
        (1 << 18,),
        (1,),
        Raw(name("rushlight.interop", "from_shared")),
    )
    + (get(4) + pickle.MARK + get(0) + get(1) + get(2) + get(3) + plain(0) + b"\x89tR0") * 50_000
    + b"N",
    "indices read again and again": prepared(
        tensor(bytes(8 << 17), (1, 1 << 17), "int64"),
        tensor(bytes(1 << 17), (1 << 17,), "uint8"),
        *[(n,) for n in range(2, 200)],
    )
    + b"".join(
        name("rushlight.sparse.coo", "from_pickle")
        + b"("
        + get(0)
        + get(1)
        + get(n)
        + b"\x89\x89tR0"
        for n in range(2, 200)
    )
    * 10
    + b"N",
    "expanded indices": call(
        "rushlight.sparse.coo",
        "from_pickle",
        shared(tensor(bytes(8), (1,), "int64"), (1, 1 << 40), (0, 0), 0, "int64"),
        shared(tensor(bytes(8), (2,)), (1 << 40,), (0,), 0),
        (1,),
        False,
        False,
    ).code,
    "expanded rows": call(
        "rushlight.sparse.csr",
        "from_pickle",
        tensor(struct.pack("<2q", 0, 1 << 40), (2,), "int64"),
        shared(tensor(bytes(8), (1,), "int64"), (1 << 40,), (0,), 0, "int64"),
        shared(tensor(bytes(8), (2,)), (1 << 40,), (0,), 0),
        (1, 1),
        False,
    ).code,
}


@pytest.mark.parametrize("which", list(HOSTILE))
def test_memory_and_time_are_bounded_by_the_file(which, costs):
    seconds, grown, length, told = costs[which]
    assert "status" not in told
    assert seconds < 2 + 10e-6 * length, told
    assert grown < (32 << 20) + 400 * length, told


@pytest.mark.parametrize(
    "which",
    [
        "equal hashes of long tuples",
        "equal hashes copied",
        "long text of two copies as a key",
        "one state for a tensor again and again",
    ],
)
def test_work_that_is_no_object_is_counted(which, costs):
    assert "uses its content again and again" in costs[which][-1]


def test_a_file_that_says_it_is_long_is_not_believed():
    class Endless(io.RawIOBase):
        """Gives one byte at a time, and notes the largest request."""

        asked = 0

        def __init__(self, raw):
            self.raw = raw
            self.place = 0

        def read(self, count=-1):
            Endless.asked = max(Endless.asked, count)
            piece = self.raw[self.place : self.place + 1]
            self.place += 1
            return piece

        def readline(self, limit=-1):
            return b""

    with pytest.raises(EOFError):
        rl.load(Endless(pickle.BINBYTES8 + struct.pack("<Q", 1 << 60) + b"abc"))
    assert Endless.asked < 1 << 20
    assert rl.load(Endless(pickle.dumps([rl.ones(2), "x"], 4)))[0].tolist() == [1, 1]


# ---- nesting ----


def test_depth():
    deep: list[object] = []
    for _ in range(DEPTH - 100):
        deep = [deep]
    sys.setrecursionlimit(8 * DEPTH)
    try:
        back = rl.load(saved(deep))
        for _ in range(DEPTH):
            deep = [deep]
        file = saved(deep)
    finally:
        sys.setrecursionlimit(1000)
    depth = 0
    while back:
        back, depth = back[0], depth + 1
    assert depth == DEPTH - 100
    with pytest.raises(UnsafeFile, match="deep"):
        rl.load(file)
    while deep:
        deep = deep[0]


def test_depth_through_shared_parts_dicts_and_attributes():
    chain = b"]" + put(0) + b"0"
    for _ in range(DEPTH + 5):
        chain += b"}" + plain(1) + get(0) + b"s" + put(0) + b"0"
    with pytest.raises(UnsafeFile, match="deep"):
        load(b"]" + get(0).join([chain, b"a"]))
    attributes = A.code + put(0) + b"0"
    for _ in range(DEPTH + 5):
        attributes += A.code + b"}" + text("t") + get(0) + b"sb" + put(0) + b"0"
    with pytest.raises(UnsafeFile, match="deep"):
        load(attributes + get(0))


def test_what_holds_itself_is_read():
    ring: list[object] = [1]
    ring.append({"again": ring})
    back = rl.load(saved(ring))
    assert back[1]["again"] is back
    x = rl.ones(2)
    x.me = [x]
    with pytest.raises(RushlightError, match="leads back to the tensor"):
        saved(x)
    back = rl.load(io.BytesIO(pickle.dumps(x)))
    assert back.me[0] is back


# ---- errors ----


def test_truncated_files_end_in_eof_errors():
    whole = saved(
        {"a": [rl.arange(3.0), "text", 1.5, 2**70], "b": nn.Parameter(rl.ones(2))}
    ).getvalue()
    for cut in range(len(whole)):
        with pytest.raises(TruncatedFile):
            rl.load(io.BytesIO(whole[:cut]))
    with pytest.raises(EOFError, match="Ran out of input"):
        rl.load(io.BytesIO(b""))
    with pytest.raises(pickle.UnpicklingError):
        rl.load(io.BytesIO(b""))


def test_files_one_behind_the_other(tmp_path):
    with open(tmp_path / "f", "wb+") as file:
        rl.save([1, rl.ones(2)], file)
        rl.save("second", file)
        file.seek(0)
        assert rl.load(file)[0] == 1
        assert rl.load(file) == "second"
        with pytest.raises(EOFError):
            rl.load(file)


class Stream:
    """Bytes that can be read once."""

    def __init__(self, raw):
        self.read = io.BytesIO(raw).read
        self.readline = None


def test_pytorchs_own_formats_need_a_file():
    with pytest.raises(UnsafeFile, match=r"zip file of PyTorch in a stream"):
        rl.load(Stream(b"PK\x03\x04" + bytes(60) + b"\n"))
    old = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
    with pytest.raises(UnsafeFile, match="older format of PyTorch in a stream"):
        rl.load(Stream(old))


def test_a_file_opened_for_text(tmp_path):
    (tmp_path / "f").write_bytes(saved("x" * 10).getvalue())
    with open(tmp_path / "f", encoding="latin1") as file, pytest.raises(TypeError, match="'rb'"):
        rl.load(file)


# ---- files that are read ----


def test_files_of_before_are_read():
    state = rl.load(GOLDEN / "saved_state.bin")
    same = rl.load(GOLDEN / "saved_state.bin", weights_only=False)
    assert state["plain"] == same["plain"] and len(state["plain"]) == 22
    x, part, turned, wide, bits = state["views"]
    x[2] = 9
    assert (
        part[0] == turned[2, 0] == wide[3, 2] == 9
        and bits.dtype is rl.int32
        and turned.stride() == (1, 3)
    )
    assert state["param"].tag == ("a", 1) and state["tied"][0] is state["tied"][1] is state["param"]
    assert state["leaf"].me is state["leaf"] and state["leaf"].requires_grad
    assert [t.dtype for t in state["dtypes"]] == [t.dtype for t in same["dtypes"]]
    assert all((t == 1).all() for t in state["dtypes"])
    assert (
        state["model"]._metadata == same["model"]._metadata
        and type(state["model"]) is collections.OrderedDict
    )
    assert (
        state["opt"]["state"][0]["exp_avg"].tolist() == same["opt"]["state"][0]["exp_avg"].tolist()
    )
    assert (
        state["sparse"].to_dense().tolist() == [[0, 0, 3], [4, 0, 0]]
        and state["sparse"].is_coalesced()
    )
    assert (
        state["storage"].tolist() == [1, 1]
        and state["untyped"].tolist() == same["untyped"].tolist()
    )
    assert (
        state["dev0"].index == 0
        and state["dtype"] is rl.bfloat16
        and type(state["size"]) is rl.Size
    )
    assert state["loops"][1] is state["loops"] and state["dd"].default_factory is None


def test_buffers_rows_and_parameters_without_a_shape_are_read():
    more = rl.load(GOLDEN / "saved_more.bin")
    assert type(more["buffer"]) is nn.Buffer and more["buffer"].persistent
    assert (
        type(more["csr"]) is csr.CsrTensor and more["csr"].to_dense().tolist() == rl.eye(3).tolist()
    )
    assert type(more["lazy"]) is nn.UninitializedParameter and more["lazy"].dtype is rl.float64
    assert more["dd"] == {"k": [2]} and more["dd"]["new"] == []
    assert more["layout"] is rl.channels_last
    again = rl.load(saved(more), map_location="reference")
    assert (
        again["buffer"].device.type
        == again["csr"].device.type
        == again["lazy"].device.type
        == "reference"
    )


def thing_of_every_kind() -> dict[str, object]:
    x = rl.arange(6.0)
    hybrid = rl.sparse_coo_tensor(rl.tensor([[0, 0, 1]]), rl.ones(3, 2), (2, 2), requires_grad=True)
    return {
        "numbers": [
            0,
            -1,
            255,
            256,
            1 << 31,
            -(1 << 31),
            1 << 100,
            -(1 << 2000),
            1.5,
            float("inf"),
            3j,
            True,
            None,
        ],
        "texts": ["", "é\udc80", "x" * 300, b"", b"y" * 300, bytearray(b"z")],
        "containers": [
            [],
            (),
            {},
            set(),
            frozenset(),
            {1: {2: (3, [4])}},
            {(1, "a"): {(2,)}, frozenset([1]): 2, 1.5: 3},
        ],
        "tensors": [
            rl.tensor(True),
            rl.zeros(0),
            rl.zeros(2, 0, 3),
            x[1:3],
            x[::2],
            rl.ones(2, requires_grad=True),
        ],
        "shared": [x, x[3:], x.view(2, 3).mT, x.expand(2, 6), x.view(rl.int32)],
        "sparse": [
            rl.eye(2).to_sparse(),
            hybrid,
            rl.eye(3).to_sparse_csr(),
            rl.sparse_coo_tensor((2, 3)),
        ],
        "names": [rl.float16, rl.device("cpu"), rl.Size([2, 3]), rl.strided, slice(1, None)],
        "collections": [
            collections.OrderedDict(a=1),
            collections.Counter("aab"),
            collections.defaultdict(int, a=1),
        ],
        "nn": nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).state_dict(keep_vars=True),
        "lazy": nn.LazyLinear(3).state_dict(),
    }


def test_all_that_save_writes_is_read_as_pickle_reads_it():
    file = saved(thing_of_every_kind())
    first = rl.load(file)
    file.seek(0)
    second = rl.load(file, weights_only=False)
    assert saved(first).getvalue() == saved(second).getvalue()
    assert repr(first) == repr(second)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_other_protocols(protocol):
    given = [
        1,
        2.5,
        "a",
        (1, 2, 3, 4),
        {"k": [None, True]},
        2**70,
        {1, 2},
        frozenset([3]),
        rl.arange(3),
    ]
    if protocol > 2:
        given.append(b"bytes")
    back = rl.load(io.BytesIO(pickle.dumps(given, protocol)))
    assert back[:8] == given[:8] and back[8].tolist() == [0, 1, 2]


class Named:
    __slots__ = ("part", "__dict__")

    def __init__(self) -> None:
        self.part = rl.ones(2)
        self.rest = {"a": 1}


class Stubborn:
    def __setstate__(self, state: object) -> None:
        raise KeyError("no")


class Rows(list):
    pass


class Table(dict):
    pass


class Weight(nn.Parameter):
    pass


def test_classes_that_the_program_names():
    table = Table(a=rl.ones(1))
    table.note = "n"
    things = [Named(), Rows([1, 2]), table, Weight(rl.ones(2))]
    things[3].tag = 5
    with pytest.raises(UnsafeFile, match=r"test_files_are_parsed\.\w+.*add_safe_globals"):
        rl.load(saved(things))
    with rl.serialization.safe_globals([Named, Rows, Table, Weight, Stubborn]):
        named, rows, table, weight = rl.load(saved(things))
        assert named.part.tolist() == [1, 1] and named.rest == {"a": 1}
        assert type(rows) is Rows and rows == [1, 2] and type(table) is Table and table.note == "n"
        assert type(weight) is Weight and weight.tag == 5
        for state in ((None, {"_offset": 1 << 40}), {"_offset": 1 << 40}, {"shape": 1}):
            with pytest.raises(UnsafeFile):
                load(build(call(Weight.__module__, "Weight", A, True), state))
        with rl.serialization.safe_globals([rl.UntypedStorage, rl.FloatStorage, rl.TypedStorage]):
            untyped = call("rushlight.storage", "_from_bytes", bytes(8), "cpu")
            typed = call("rushlight.storage", "_over", untyped, dtype())
            for thing, slot in (
                (untyped, "used"),
                (untyped, "_memory"),
                (typed, "_untyped_storage"),
            ):
                with pytest.raises(UnsafeFile, match="sets attributes"):
                    load(build(thing, (None, {slot: 1 << 40})))
        stubborn = name(Stubborn.__module__, "Stubborn") + b")\x81}b"
        with pytest.raises(UnsafeFile, match="refused"):
            load(stubborn)
        with pytest.raises(UnsafeFile):
            load(call(Named.__module__, "Named", 1, 2, 3))


def test_arrays_of_numpy_where_the_program_names_them():
    array = np.arange(4, dtype="f4")
    with pytest.raises(UnsafeFile, match="numpy"):
        rl.load(saved(array))
    with rl.serialization.safe_globals([np.ndarray, np.dtype, np._core.multiarray._reconstruct]):
        assert rl.load(saved([array]))[0].tolist() == [0, 1, 2, 3]


# ---- sparse tensors ----


@pytest.mark.parametrize(
    ("indices", "shape", "coalesced"),
    [
        ([[0, 5]], (5,), False),
        ([[-1, 0]], (5,), False),
        ([[1, 0]], (5,), True),
        ([[0, 0]], (5,), True),
        ([[0, 1]], (5, 2), False),
    ],
)
def test_indices_of_a_sparse_tensor_are_checked(indices, shape, coalesced):
    at, values = rl.tensor(indices), rl.ones(2)
    with pytest.raises(RushlightError):
        coo.from_pickle(at, values, shape, coalesced, False)
    raw = np.array(indices, "<i8").tobytes()
    made = call(
        "rushlight.sparse.coo",
        "from_pickle",
        tensor(raw, (1, 2), "int64"),
        A,
        shape,
        coalesced,
        False,
    )
    with pytest.raises(UnsafeFile):
        load(made)


@pytest.mark.parametrize(
    ("crow", "col", "size"),
    [
        ([0, 1, 3], [0, 1], (2, 2)),
        ([0, 3, 2], [0, 1], (2, 2)),
        ([1, 1, 2], [0, 1], (2, 2)),
        ([0, -1, 2], [0, 1], (2, 2)),
        ([0, 1, 2], [0, 2], (2, 2)),
        ([0, 1, 2], [-1, 0], (2, 2)),
        ([0, 2, 2], [1, 0], (2, 2)),
        ([0, 2, 2], [1, 1], (2, 2)),
        ([0, 1, 2], [0, 1], (3, 2)),
        ([0, 1, 2], [0, 1], (2, 2, 1)),
        ([0, 1, 2], [0, 1], (2, -2)),
    ],
)
def test_rows_of_a_sparse_matrix_are_checked(crow, col, size):
    with pytest.raises(RushlightError):
        csr.from_pickle(rl.tensor(crow), rl.tensor(col), rl.ones(2), size, False)
    assert (
        csr.from_pickle(rl.tensor([0, 1, 2]), rl.tensor([1, 0]), rl.ones(2), (2, 2), False)
        .to_dense()
        .sum()
        == 2
    )


# ---- between processes ----


class Descriptor:
    def __init__(self, size: int) -> None:
        self.number = os.memfd_create("test")
        os.ftruncate(self.number, size)

    def detach(self) -> int:
        return self.number


@pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")
def test_what_another_process_sends_lies_inside_its_memory():
    good = sharing.received(Descriptor(64), 64, rl.float32, (4,), (1,), 8, False)
    assert good.tolist() == [0, 0, 0, 0]
    held = rl.memory.allocated()
    for size, room, shape, strides, offset in [
        (64, 4096, (4,), (1,), 0),  # the file is shorter: reading its end would kill the process
        (64, 64, (17,), (1,), 0),
        (64, 64, (2,), (16,), 0),
        (64, 64, (1,), (1,), 64),
        (64, 64, (1,), (1,), -4),
        (64, 0, (0,), (1,), 0),
        (64, -4, (0,), (1,), 0),
    ]:
        sent = Descriptor(size)
        with pytest.raises(RushlightError):
            sharing.received(sent, room, rl.float32, shape, strides, offset, False)
    assert rl.memory.allocated() == held


def test_storages_are_made_of_bytes():
    assert (
        storage._from_bytes([1, 2], "cpu").tolist()
        == storage._from_bytes(b"\1\2", "cpu").tolist()
        == [1, 2]
    )
    for elements in ([256], [-1], ["a"], [1 << 70]):
        with pytest.raises(UnsafeFile):
            load(call("rushlight.storage", "_from_bytes", elements, "cpu"))
    for args in (
        (5, dtype()),
        (call("rushlight.storage", "_from_bytes", b"1234", "cpu"), "float32"),
    ):
        with pytest.raises(UnsafeFile):
            load(call("rushlight.storage", "_over", *args))


# ---- safetensors ----


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(
    kind: object = "F32", shape: object = (2,), begin: object = 0, end: object = 8
) -> dict[str, object]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


BAD_HEADERS = {
    "empty": b"",
    "short": b"\1\0\0",
    "huge header": struct.pack("<Q", 1 << 63) + b"{}",
    "header beyond the file": safetensors({}, length=100),
    "no table": safetensors([]),
    "no JSON": safetensors(b"{"),
    "no text": safetensors(b"\xff\xfe{}"),
    "deep": safetensors(b'{"a":' * 100_000),
    "twice": safetensors(b'{"a":1,"a":1}'),
    "overlap": safetensors({"a": entry(), "b": entry(begin=4, end=12)}, bytes(12)),
    "same": safetensors({"a": entry(), "b": entry()}, bytes(8)),
    "hole": safetensors({"a": entry(begin=4, end=12)}, bytes(12)),
    "behind the end": safetensors({"a": entry()}, bytes(4)),
    "left over": safetensors({"a": entry()}, bytes(12)),
    "backwards": safetensors({"a": entry(begin=8, end=0)}, bytes(8)),
    "negative": safetensors({"a": entry(shape=[-2], begin=0, end=8)}, bytes(8)),
    "negative offsets": safetensors({"a": entry(begin=-8, end=0)}, bytes(8)),
    "size": safetensors({"a": entry(shape=[3])}, bytes(8)),
    "overflow": safetensors({"a": entry(shape=[1 << 62, 4], end=0)}),
    "empty but too large": safetensors({"a": entry("I16", [1 << 62, 0], 0, 0)}),
    "rank": safetensors({"a": entry(shape=[1] * 65, end=4)}, bytes(4)),
    "float sizes": safetensors({"a": entry(shape=[2.0])}, bytes(8)),
    "large number": safetensors(
        b'{"a":{"dtype":"F32","shape":[' + b"9" * 6000 + b'],"data_offsets":[0,0]}}'
    ),
    "not a number": safetensors(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,0]}}'),
    "type": safetensors({"a": entry("F33")}, bytes(8)),
    "no type": safetensors({"a": entry(["F32"])}, bytes(8)),
    "key too many": safetensors({"a": {**entry(), "more": 1}}, bytes(8)),
    "metadata": safetensors({"__metadata__": {"a": 1}}),
    "offsets": safetensors({"a": {**entry(), "data_offsets": [0]}}, bytes(8)),
    "entry": safetensors({"a": 3}),
}


@pytest.mark.parametrize("which", list(BAD_HEADERS))
def test_headers_of_safetensors_files_are_checked(which, tmp_path):
    (tmp_path / "f").write_bytes(BAD_HEADERS[which])
    with pytest.raises(UnsafeFile, match="load_file"):
        load_file(tmp_path / "f")


def test_a_file_that_takes_longer_than_its_length_explains_is_refused(monkeypatch):
    """Keys with equal hashes: each is compared with all before it."""
    monkeypatch.setattr(limits, "SECONDS", 0.02)
    monkeypatch.setattr(limits, "SECONDS_PER_BYTE", 0.0)
    keys = [i << 40 for i in range(1, 1 << 16)]
    with pytest.raises(pickle.UnpicklingError, match="took"):
        rl.load(io.BytesIO(pickle.dumps(dict.fromkeys(keys), 4)))
