"""The CPython side of kernels, in LLVM IR: a METH_FASTCALL builtin.

It reads numbers, runs tasks and returns None.

# Note [Entry of a kernel]
1. All kernels share one entry, made once in a process. The builtin's `self`, a bytes object, has
   what differs: the addresses of the module's functions, the number of arguments, how many of them
   are "i" before any other letter, and the letters of the rest, one byte each (see
   `emit.llvm.arguments`).
2. A kernel with anomaly checks (Note [Anomaly kernels]) has an entry with a few more lines: `self`
   is a tuple of those bytes and of the function to call, and the slot after the last argument has
   the address of the int32 of flags.
3. The entry reaches CPython and the thread pool through a table of addresses (`api`) that is filled
   after loading, so that object code holds no address of this process and can be cached on disk.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache

from rushlight.devices.cpu.native import Source, fill, load
from rushlight.devices.shared.protocol import Launch, Tell

FASTCALL = 0x0080  # METH_FASTCALL
LARGE = 1 << 16  # work above which the GIL is released and threads are used
CONTENT = bytes.__basicsize__ - 1  # the offset of a bytes object's content

API = (
    "PyLong_AsLongLong",
    "PyFloat_AsDouble",
    "PyErr_Occurred",
    "PyErr_Format",
    "Py_IncRef",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyExc_TypeError",
    "_Py_NoneStruct",
    "run_tasks",
    "PyLong_AsUnsignedLongLongMask",
    "PyLong_FromLongLong",
    "PyObject_Vectorcall",
    "Py_DecRef",
)

MESSAGE = "this kernel takes %zd numbers"

# CPython returns -1 for errors too, so -1 is checked twice.
ENTRY = f"""
@api = global [{len(API)} x ptr] zeroinitializer
@message = private constant [{len(MESSAGE) + 1} x i8] c"{MESSAGE}\\00"

define ptr @entry(ptr %self, ptr readonly %objects, i64 %given) {{
entry:
  %record = getelementptr i8, ptr %self, i64 {CONTENT}
  %kernel = load ptr, ptr %record
  %counts.at = getelementptr i64, ptr %record, i64 1
  %counts = load ptr, ptr %counts.at
  %launch.at = getelementptr i64, ptr %record, i64 2
  %launch = load ptr, ptr %launch.at
  %count.at = getelementptr i64, ptr %record, i64 3
  %count = load i64, ptr %count.at
  %plain.at = getelementptr i64, ptr %record, i64 4
  %plain = load i64, ptr %plain.at
  %letters = getelementptr i64, ptr %record, i64 5
  %args = alloca i64, i64 %count
  %numbers = alloca [2 x i64]
  %right = icmp eq i64 %given, %count
  br i1 %right, label %read, label %wrong, !prof !1
wrong:
  %format = load ptr, ptr getelementptr (ptr, ptr @api, i64 3)
  %holder = load ptr, ptr getelementptr (ptr, ptr @api, i64 7)
  %error = load ptr, ptr %holder
  %unused = call ptr (ptr, ptr, ...) %format(ptr %error, ptr @message, i64 %count)
  ret ptr null
read:
  %whole = load ptr, ptr @api
  br label %words
words:
  %at = phi i64 [ 0, %read ], [ %next, %word ]
  %odd = phi i1 [ false, %read ], [ %odd.next, %word ]
  %more = icmp slt i64 %at, %plain
  br i1 %more, label %word, label %others
word:
  %from = getelementptr ptr, ptr %objects, i64 %at
  %object = load ptr, ptr %from
  %value = call i64 %whole(ptr %object)
  %to = getelementptr i64, ptr %args, i64 %at
  store i64 %value, ptr %to
  %minus = icmp eq i64 %value, -1
  %odd.next = or i1 %odd, %minus
  %next = add i64 %at, 1
  br label %words
others:
  %i = phi i64 [ %at, %words ], [ %i.next, %put ]
  %doubt = phi i1 [ %odd, %words ], [ %doubt.next, %put ]
  %left = icmp slt i64 %i, %count
  br i1 %left, label %other, label %checked
other:
  %i.from = getelementptr ptr, ptr %objects, i64 %i
  %i.object = load ptr, ptr %i.from
  %place = sub i64 %i, %plain
  %letter.at = getelementptr i8, ptr %letters, i64 %place
  %letter = load i8, ptr %letter.at
  switch i8 %letter, label %signed [ i8 {ord("f")}, label %float i8 {ord("u")}, label %unsigned ]
signed:
  %i.signed = call i64 %whole(ptr %i.object)
  br label %put
unsigned:
  %mask = load ptr, ptr getelementptr (ptr, ptr @api, i64 10)
  %i.unsigned = call i64 %mask(ptr %i.object)
  br label %put
float:
  %real = load ptr, ptr getelementptr (ptr, ptr @api, i64 1)
  %i.real = call double %real(ptr %i.object)
  %i.bits = bitcast double %i.real to i64
  %i.minus = fcmp oeq double %i.real, -1.0
  br label %put
put:
  %i.value = phi i64 [ %i.signed, %signed ], [ %i.unsigned, %unsigned ], [ %i.bits, %float ]
  %i.odd = phi i1 [ false, %signed ], [ false, %unsigned ], [ %i.minus, %float ]
  %i.to = getelementptr i64, ptr %args, i64 %i
  store i64 %i.value, ptr %i.to
  %i.all = icmp eq i64 %i.value, -1
  %i.either = or i1 %i.odd, %i.all
  %doubt.next = or i1 %doubt, %i.either
  %i.next = add i64 %i, 1
  br label %others
checked:
  br i1 %doubt, label %check, label %begin, !prof !0
check:
  %occurred = load ptr, ptr getelementptr (ptr, ptr @api, i64 2)
  %raised = call ptr %occurred()
  %clean = icmp eq ptr %raised, null
  br i1 %clean, label %begin, label %refuse
refuse:
  ret ptr null
begin:
  call void %counts(ptr %args, ptr %numbers)
  %tasks = load i64, ptr %numbers
  %nothing = icmp sle i64 %tasks, 0
  br i1 %nothing, label %idle, label %weigh
idle:
  %broken = icmp slt i64 %tasks, 0
  br i1 %broken, label %refuse, label %done
weigh:
  %second = getelementptr i64, ptr %numbers, i64 1
  %work = load i64, ptr %second
  %large = icmp sge i64 %work, {LARGE}
  br i1 %large, label %shared, label %alone
alone:
  call void %kernel(ptr %args, i64 0, i64 %tasks)
  br label %done
shared:
  %save = load ptr, ptr getelementptr (ptr, ptr @api, i64 5)
  %restore = load ptr, ptr getelementptr (ptr, ptr @api, i64 6)
  %runner = load ptr, ptr getelementptr (ptr, ptr @api, i64 9)
  %state = call ptr %save()
  %simple = icmp eq ptr %launch, null
  br i1 %simple, label %tasked, label %own
tasked:
  call void %runner(ptr %kernel, ptr %args, i64 %tasks, i64 %work)
  br label %back
own:
  call void %launch(ptr %args, ptr %runner, i64 %tasks, i64 %work)
  br label %back
back:
  call void %restore(ptr %state)
  br label %done
done:
  %take = load ptr, ptr getelementptr (ptr, ptr @api, i64 4)
  %none = load ptr, ptr getelementptr (ptr, ptr @api, i64 8)
  call void %take(ptr %none)
  ret ptr %none
}}
!0 = !{{!"branch_weights", i32 1, i32 1000}}
!1 = !{{!"branch_weights", i32 1000, i32 1}}
"""


ITEMS = tuple.__basicsize__  # the offset of a tuple's items

# Lines of the entry with anomaly checks, by the lines they replace.
ANOMALY_LINES = {
    f"  %record = getelementptr i8, ptr %self, i64 {CONTENT}\n": f"""\
  %pair = getelementptr i8, ptr %self, i64 {ITEMS}
  %bytes = load ptr, ptr %pair
  %tell.at = getelementptr ptr, ptr %pair, i64 1
  %tell = load ptr, ptr %tell.at
  %record = getelementptr i8, ptr %bytes, i64 {CONTENT}
""",
    "  %args = alloca i64, i64 %count\n": """\
  %slots = add i64 %count, 1
  %args = alloca i64, i64 %slots
  %flag = alloca i32
  store i32 0, ptr %flag
  %flag.at = getelementptr i64, ptr %args, i64 %count
  store ptr %flag, ptr %flag.at
""",
    "done:\n": """\
done:
  %met = load i32, ptr %flag
  %good = icmp eq i32 %met, 0
  br i1 %good, label %give, label %say, !prof !1
say:
  %number = load ptr, ptr getelementptr (ptr, ptr @api, i64 11)
  %called = load ptr, ptr getelementptr (ptr, ptr @api, i64 12)
  %drop = load ptr, ptr getelementptr (ptr, ptr @api, i64 13)
  %met.wide = zext i32 %met to i64
  %what = call ptr %number(i64 %met.wide)
  %said = alloca ptr, i64 %slots
  store ptr %what, ptr %said
  %said.rest = getelementptr ptr, ptr %said, i64 1
  %size = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %said.rest, ptr %objects, i64 %size, i1 false)
  %answer = call ptr %called(ptr %tell, ptr %said, i64 %slots, ptr null)
  call void %drop(ptr %what)
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %refuse, label %heard
heard:
  call void %drop(ptr %answer)
  br label %give
give:
""",
}


def entry_text(anomaly: bool) -> str:
    text = ENTRY
    for old, new in ANOMALY_LINES.items() if anomaly else ():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text + "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n" if anomaly else text


class MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def entry(runner: int, anomaly: bool = False) -> int:
    """The address of the entry.

    It gives large work to `runner`: run_tasks(kernel, args, tasks, work).
    """
    key = f"anomaly entry {CONTENT} {ITEMS}" if anomaly else f"entry {CONTENT}"
    address, api = load(Source(key, lambda: entry_text(anomaly)), "entry", "api")
    fill(api, [runner if symbol == "run_tasks" else symbol_address(symbol) for symbol in API])
    return address


def callable_of(
    source: Source,
    letters: str,
    name: str,
    runner: int,
    tables: dict[str, list[int]] | None = None,
    tell: Tell | None = None,
) -> Launch:
    """The builtin for a kernel module; its key determines the letters of its arguments.

    `runner` is the address of run_tasks(kernel, args, tasks, work); `tables` fills the module's own
    address tables; `tell` is for kernels with anomaly checks.
    """
    tables = tables or {}
    functions, *others = (
        load(source, "functions", *tables) if tell is None else _loaded_once(source)
    )
    for place, pointers in zip(others, tables.values(), strict=True):
        fill(place, pointers)
    rest = letters.lstrip("i")
    own = ctypes.string_at(functions, 3 * ctypes.sizeof(ctypes.c_void_p))
    record = own + struct.pack("qq", len(letters), len(letters) - len(rest)) + rest.encode()
    return builtin(
        entry(runner, tell is not None), name, record if tell is None else (record, tell)
    )


# Modules with anomaly checks, by key: many launches share one, each with its own `tell`.
_LOADED: dict[str, list[int]] = {}


def _loaded_once(source: Source) -> list[int]:
    found = _LOADED.get(source.key)
    if found is None:
        found = _LOADED[source.key] = load(source, "functions")
    return found


_SYMBOLS: dict[str, int] = {}


def symbol_address(symbol: str) -> int:
    found = _SYMBOLS.get(symbol)
    if found is None:
        found = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, symbol))
        _SYMBOLS[symbol] = found
    return found


@cache
def _method(address: int, name: str) -> MethodDef:
    """Never freed: CPython's collector reads it after caches were cleared."""
    made = MethodDef(name.encode(), address, FASTCALL, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


def builtin(address: int, name: str, bound: bytes | tuple[bytes, Tell]) -> Launch:
    """A Python callable for code of the METH_FASTCALL convention; `bound` is its first argument."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Launch = make(ctypes.addressof(_method(address, name)), bound, None)
    return made
