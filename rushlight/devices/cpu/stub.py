"""The CPython side of a kernel, in LLVM IR: a METH_FASTCALL builtin that reads numbers, runs tasks and returns None.

The stub reaches CPython and the thread pool through a table of addresses (`api`) that is filled after loading, so that
object code holds no address of this process and can be kept on disk.
"""

from __future__ import annotations

import ctypes
import itertools

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
  %numbers = alloca [2 x i64]
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
  call void @counts(ptr %args, ptr %numbers)
  %tasks = load i64, ptr %numbers
  %nothing = icmp sle i64 %tasks, 0
  br i1 %nothing, label %done, label %weigh
weigh:
  %second = getelementptr i64, ptr %numbers, i64 1
  %work = load i64, ptr %second
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
    reads, before, first = [], "read", 0
    for number, (letter, same) in enumerate(itertools.groupby(letters)):
        end = first + len(list(same))
        reads.append(_read_text(number, letter, first, end, before))
        before, first = f"after{number}", end
    reads.append(f"  %doubt = or i1 {f'%odd{len(reads) - 1}' if reads else 'false'}, false")
    return STUB.format(
        entries=len(API), count=len(letters), message=message, message_size=len(message) + 1,
        reads="\n".join(reads), large=LARGE,
    )  # fmt: skip


def _read_text(run: int, letter: str, first: int, end: int, before: str) -> str:
    """Arguments first..end, all of one letter, into their slots, in a loop that comes after the block `before`.

    -1 is what CPython gives for errors too, so it is looked at twice.
    """
    doubt = f"%odd{run - 1}" if run else "false"
    lines = [
        f"br label %run{run}",
        f"run{run}:",
        f"%at{run} = phi i64 [ {first}, %{before} ], [ %next{run}, %run{run} ]",
        f"%doubt{run} = phi i1 [ {doubt}, %{before} ], [ %odd{run}, %run{run} ]",
        f"%from{run} = getelementptr ptr, ptr %objects, i64 %at{run}",
        f"%object{run} = load ptr, ptr %from{run}",
        f"%to{run} = getelementptr i64, ptr %args, i64 %at{run}",
    ]
    if letter in "iu":
        reader = "%whole" if letter == "i" else "%bits"
        lines += [f"%word{run} = call i64 {reader}(ptr %object{run})", f"%minus{run} = icmp eq i64 %word{run}, -1"]
    else:
        lines += [
            f"%wide{run} = call double %real(ptr %object{run})",
            f"%word{run} = bitcast double %wide{run} to i64",
            f"%minus{run} = fcmp oeq double %wide{run}, -1.0",
        ]
    lines += [
        f"store i64 %word{run}, ptr %to{run}",
        f"%odd{run} = or i1 %doubt{run}, %minus{run}",
        f"%next{run} = add i64 %at{run}, 1",
        f"%more{run} = icmp ult i64 %next{run}, {end}",
        f"br i1 %more{run}, label %run{run}, label %after{run}",
        f"after{run}:",
    ]
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
