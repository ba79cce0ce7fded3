"""The CPython side of a kernel, in LLVM IR: a METH_FASTCALL builtin that reads numbers, runs tasks and returns None.

The stub reaches CPython and the thread pool through a table of addresses (`api`) that is filled after loading, so that
object code holds no address of this process and can be kept on disk.
"""

from __future__ import annotations

import ctypes

from rushlight.devices.cpu.native import Source, fill, load
from rushlight.devices.protocol import Launch

FASTCALL = 0x0080  # METH_FASTCALL
LARGE = 1 << 16  # work from which on the GIL is released and threads are asked

API = (
    "PyLong_AsLongLong",
    "PyFloat_AsDouble",
    "PyErr_Occurred",
    "PyErr_SetString",
    "Py_IncRef",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyExc_TypeError",
    "_Py_NoneStruct",
    "run_tasks",
    "PyLong_AsUnsignedLongLongMask",
)

STUB = """
@api = global [{entries} x ptr] zeroinitializer
@message = private constant [{message_size} x i8] c"{message}\\00"

define ptr @entry(ptr %self, ptr readonly %objects, i64 %given) {{
entry:
  %args = alloca [{count} x i64]
  %right = icmp eq i64 %given, {count}
  br i1 %right, label %read, label %wrong
wrong:
  %setter = load ptr, ptr getelementptr (ptr, ptr @api, i64 3)
  %holder = load ptr, ptr getelementptr (ptr, ptr @api, i64 7)
  %error = load ptr, ptr %holder
  call void %setter(ptr %error, ptr @message)
  ret ptr null
read:
  %whole = load ptr, ptr @api
  %real = load ptr, ptr getelementptr (ptr, ptr @api, i64 1)
  %bits = load ptr, ptr getelementptr (ptr, ptr @api, i64 10)
{reads}
  br i1 %doubt, label %check, label %begin, !prof !0
check:
  %occurred = load ptr, ptr getelementptr (ptr, ptr @api, i64 2)
  %raised = call ptr %occurred()
  %clean = icmp eq ptr %raised, null
  br i1 %clean, label %begin, label %refuse
refuse:
  ret ptr null
begin:
  %tasks = call i64 @tasks(ptr %args)
  %nothing = icmp sle i64 %tasks, 0
  br i1 %nothing, label %done, label %weigh
weigh:
  %work = call i64 @work(ptr %args)
  %large = icmp sge i64 %work, {large}
  br i1 %large, label %shared, label %alone
alone:
  call void @kernel(ptr %args, i64 0, i64 %tasks)
  br label %done
shared:
  %save = load ptr, ptr getelementptr (ptr, ptr @api, i64 5)
  %restore = load ptr, ptr getelementptr (ptr, ptr @api, i64 6)
  %runner = load ptr, ptr getelementptr (ptr, ptr @api, i64 9)
  %state = call ptr %save()
  call void @launch(ptr %args, ptr %runner, i64 %tasks, i64 %work)
  call void %restore(ptr %state)
  br label %done
done:
  %take = load ptr, ptr getelementptr (ptr, ptr @api, i64 4)
  %none = load ptr, ptr getelementptr (ptr, ptr @api, i64 8)
  call void %take(ptr %none)
  ret ptr %none
}}
!0 = !{{!"branch_weights", i32 1, i32 1000}}
"""


class MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def stub_text(letters: str) -> str:
    """The stub for arguments of the given letters; see `emit.llvm.arguments`."""
    message = f"this kernel takes {len(letters)} numbers"
    reads = [_read_text(i, letter) for i, letter in enumerate(letters)]
    doubts = "  %doubt0 = icmp ne i1 false, false"
    for i in range(len(letters)):
        doubts += f"\n  %doubt{i + 1} = or i1 %doubt{i}, %odd{i}"
    doubts += f"\n  %doubt = or i1 %doubt{len(letters)}, false"
    return STUB.format(
        entries=len(API), count=len(letters), message=message, message_size=len(message) + 1,
        reads="\n".join([*reads, doubts]), large=LARGE,
    )  # fmt: skip


def _read_text(i: int, letter: str) -> str:
    """Argument i into its slot; -1 is what CPython gives for errors too, so it is looked at twice."""
    lines = [
        f"%from{i} = getelementptr ptr, ptr %objects, i64 {i}",
        f"%object{i} = load ptr, ptr %from{i}",
        f"%to{i} = getelementptr i64, ptr %args, i64 {i}",
    ]
    if letter in "iu":
        reader = "%whole" if letter == "i" else "%bits"
        lines += [f"%word{i} = call i64 {reader}(ptr %object{i})", f"%odd{i} = icmp eq i64 %word{i}, -1"]
    else:
        lines += [
            f"%wide{i} = call double %real(ptr %object{i})",
            f"%word{i} = bitcast double %wide{i} to i64",
            f"%odd{i} = fcmp oeq double %wide{i}, -1.0",
        ]
    lines.append(f"store i64 %word{i}, ptr %to{i}")
    return "\n".join("  " + line for line in lines)


_KEPT: list[MethodDef] = []  # CPython keeps pointers into these


def callable_of(
    source: Source, letters: str, name: str, runner: int, tables: dict[str, list[int]] | None = None
) -> Launch:
    """The builtin for a kernel module, the letters of its arguments following from its key.

    `runner` is the address of run_tasks(kernel, args, tasks, work); `tables` fills the module's own address tables.
    """
    tables = tables or {}
    whole = Source(source.key, lambda: source.text() + stub_text(letters))
    entry, api, *others = load(whole, "entry", "api", *tables)
    fill(api, [runner if symbol == "run_tasks" else symbol_address(symbol) for symbol in API])
    for place, pointers in zip(others, tables.values(), strict=True):
        fill(place, pointers)
    return builtin(entry, name)


_SYMBOLS: dict[str, int] = {}


def symbol_address(symbol: str) -> int:
    found = _SYMBOLS.get(symbol)
    if found is None:
        found = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, symbol))
        _SYMBOLS[symbol] = found
    return found


def builtin(address: int, name: str) -> Launch:
    """A Python callable for code that follows the METH_FASTCALL convention."""
    method = MethodDef(name.encode(), address, FASTCALL, None)
    _KEPT.append(method)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    made: Launch = make(ctypes.addressof(method), None, None)
    return made
