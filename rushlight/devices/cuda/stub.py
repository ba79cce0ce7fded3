"""The launcher: a METH_FASTCALL builtin, made of LLVM IR, that turns Python numbers into a launch.

# Note [CUDA launcher]
1. It parses every argument before anything runs; a wrong count or type raises TypeError and
   launches nothing.
2. It computes the grid (grid.py), packs kernelParams on the stack and calls the driver through its
   address.
3. On a thread with no context, or another one, the driver refuses: then ours is bound and the
   launch tried again. In a process with several cards it is bound before every launch.
4. The kernel's handle is the builtin's `self`, so that kernels with the same arguments and the same
   rule for the grid share one piece of machine code.
5. For indexed kernels it sets a word in host memory, by which the device knows that status words
   may have changed.
6. Before a launch it reads the word of Note [Streams] 3, and has the stream wait for the event
   there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import binding as llvm, ir

from rushlight.core.dtypes import DType, compute_type
from rushlight.core.errors import DeviceError
from rushlight.core.interrupts import Uninterrupted
from rushlight.devices.cuda.grid import I64, Geometry, Rule, const

I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER = I8.as_pointer()
_METH_FASTCALL = 0x80


@dataclass(frozen=True, slots=True)
class Driver:
    """Addresses in the driver library, and the stream and context of launches."""

    launch: int  # cuLaunchKernel or hipModuleLaunchKernel
    bind: int  # cuCtxSetCurrent or hipCtxSetCurrent
    context: int
    stream: int
    wait: int = 0  # cuStreamWaitEvent or hipStreamWaitEvent
    arrivals: int = 0  # the address of the word of Note [Streams] 3
    several: bool = False  # whether another card's context may be current: Note [Several cards]


@dataclass(frozen=True, slots=True)
class Arguments:
    """A kernel's arguments: how many integers, where its sizes are among them, and the params."""

    whole: int
    sizes: range
    params: tuple[DType, ...]


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_definitions: dict[tuple[object, ...], _MethodDef] = {}
_engine: Any = None
_building = threading.Lock()


def _python(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address


def _called(
    b: ir.IRBuilder, address: int, result: ir.Type, values: Sequence[Any], variadic: bool = False
) -> Any:
    """Call a C function by its address."""
    fixed = [v.type for v in values[:2]] if variadic else [v.type for v in values]
    kind = ir.FunctionType(result, fixed, var_arg=variadic)
    return b.call(b.inttoptr(const(address), kind.as_pointer()), values)


def _pointer(b: ir.IRBuilder, address: int) -> Any:
    return b.inttoptr(const(address), POINTER)


class _Writer:
    """The IR of one launcher."""

    def __init__(self, name: str) -> None:
        self.module = ir.Module()
        self.texts = 0
        kind = ir.FunctionType(POINTER, [POINTER, POINTER.as_pointer(), I64])
        self.function = ir.Function(self.module, kind, name)
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))

    def text(self, value: str) -> Any:
        """The address of a constant string."""
        raw = bytearray(value.encode() + b"\0")
        kind = ir.ArrayType(I8, len(raw))
        found = ir.GlobalVariable(self.module, kind, f"text{self.texts}")
        found.initializer, found.global_constant, found.linkage = (
            ir.Constant(kind, raw),
            True,
            "internal",
        )
        self.texts += 1
        return self.builder.bitcast(found, POINTER)

    def fail(self) -> None:
        self.builder.ret(ir.Constant(POINTER, None))

    def check_count(self, total: int) -> None:
        b = self.builder
        with b.if_then(b.icmp_signed("!=", self.function.args[2], const(total)), likely=False):
            error = _pointer(b, id(TypeError))
            message = self.text("kernel takes %lld numbers, got %lld")
            _called(
                b,
                _python("PyErr_Format"),
                POINTER,
                [error, message, const(total), self.function.args[2]],
                True,
            )
            self.fail()

    def parse(self, position: int, reader: str, result: ir.Type, mark: Any) -> Any:
        """Argument `position` through one of Python's converters.

        `mark` is what the converter returns on error.
        """
        b = self.builder
        item = b.load(b.gep(self.function.args[1], [const(position)]))
        value = _called(b, _python(reader), result, [item])
        test = b.fcmp_ordered if isinstance(result, ir.DoubleType) else b.icmp_signed
        with b.if_then(test("==", value, mark), likely=False):
            raised = _called(b, _python("PyErr_Occurred"), POINTER, [])
            with b.if_then(b.icmp_unsigned("!=", b.ptrtoint(raised, I64), const(0))):
                self.fail()
        return value

    def whole(self, position: int) -> Any:
        return self.parse(position, "PyLong_AsLongLong", I64, const(-1))

    def param(self, position: int, dtype: DType) -> Any:
        b = self.builder
        if dtype.kind == "f":
            value = self.parse(
                position, "PyFloat_AsDouble", ir.DoubleType(), ir.Constant(ir.DoubleType(), -1.0)
            )
            return b.fptrunc(value, ir.FloatType()) if compute_type(dtype).itemsize == 4 else value
        if dtype.kind == "u":  # all 64 bits; numbers beyond, or below 0, wrap
            value = self.parse(position, "PyLong_AsUnsignedLongLongMask", I64, const(-1))
            return b.trunc(value, I32) if dtype.itemsize == 4 else value
        value = self.whole(position)
        if dtype.kind == "b":
            return b.zext(b.icmp_signed("!=", value, const(0)), I8)
        return b.trunc(value, I32) if dtype.itemsize == 4 else value

    def pack(self, values: Sequence[Any]) -> Any:
        """kernelParams: the address of each value."""
        b = self.builder
        slots = b.alloca(I64, len(values))
        packed = b.alloca(POINTER, len(values))
        for i, value in enumerate(values):
            slot = b.gep(slots, [const(i)])
            b.store(value, b.bitcast(slot, value.type.as_pointer()))
            b.store(b.bitcast(slot, POINTER), b.gep(packed, [const(i)]))
        return packed

    def launch(self, driver: Driver, geometry: Geometry, packed: Any) -> None:
        """Launch; on failure bind the context and launch again; raise when that fails too."""
        b = self.builder
        handle = _called(b, _python("PyLong_AsVoidPtr"), POINTER, [self.function.args[0]])
        counts = [
            geometry.blocks,
            geometry.slices,
            const(1),
            geometry.threads,
            const(1),
            const(1),
            const(geometry.shared),
        ]
        given = [handle, *(b.trunc(c, I32) for c in counts), _pointer(b, driver.stream), packed]
        given.append(ir.Constant(POINTER.as_pointer(), None))
        zero = ir.Constant(I32, 0)
        self.begin(driver)
        code = _called(b, driver.launch, I32, given)
        with b.if_then(b.icmp_signed("!=", code, zero), likely=False):
            _called(b, driver.bind, I32, [_pointer(b, driver.context)])
            again = _called(b, driver.launch, I32, given)
            with b.if_then(b.icmp_signed("!=", again, zero)):
                message = self.text(
                    "the driver refused to launch a kernel: error %d of cuLaunchKernel"
                )
                error = _pointer(b, id(DeviceError))
                _called(b, _python("PyErr_Format"), POINTER, [error, message, again], True)
                self.fail()

    def begin(self, driver: Driver) -> None:
        """Bind the context where another may be current, and wait for an arrival."""
        if driver.several:
            b = self.builder
            _called(b, driver.bind, I32, [_pointer(b, driver.context)])
        if driver.arrivals:
            self.await_arrival(driver)

    def await_arrival(self, driver: Driver) -> None:
        """Have the stream wait for the event in the word of Note [Streams] 3, if there is one."""
        b = self.builder
        word = b.inttoptr(const(driver.arrivals), I64.as_pointer())
        event = b.load(word)
        with b.if_then(b.icmp_signed("!=", event, const(0)), likely=False):
            b.store(const(0), word)
            waited = [_pointer(b, driver.stream), b.inttoptr(event, POINTER), ir.Constant(I32, 0)]
            _called(b, driver.wait, I32, waited)

    def give_none(self) -> None:
        b = self.builder
        none = _pointer(b, id(None))
        _called(b, _python("Py_IncRef"), ir.VoidType(), [none])
        b.ret(none)


def write_launcher(name: str, arguments: Arguments, rule: Rule, driver: Driver, flag: int) -> str:
    """The launcher's IR. `flag` is the address of the word of rule 5, or 0."""
    writer = _Writer(name)
    b = writer.builder
    writer.check_count(arguments.whole + len(arguments.params))
    values = [writer.whole(i) for i in range(arguments.whole)]
    params = [writer.param(i, dtype) for i, dtype in enumerate(arguments.params, arguments.whole)]
    geometry = rule(b, [values[i] for i in arguments.sizes])
    with b.if_then(b.icmp_signed(">", geometry.work, const(0))):
        packed = writer.pack([*values, *params, *geometry.extra])
        if flag:
            b.store(ir.Constant(I32, 1), b.inttoptr(const(flag), I32.as_pointer()))
        writer.launch(driver, geometry, packed)
    writer.give_none()
    return str(writer.module)


def _compiled(text: str, name: str) -> int:
    """The address of function `name` in a module of its own; the code is never freed."""
    global _engine
    if _engine is None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
        _engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine, use_lmm=True)
    module = llvm.parse_assembly(text)
    module.verify()
    _engine.add_module(module)
    _engine.finalize_object()
    return int(_engine.get_function_address(name))


def _definition(key: tuple[object, ...], write: Callable[[str], str]) -> _MethodDef:
    """The compiled function for `key`.

    `write` gives its IR under a name that is new to the engine.
    """
    with Uninterrupted(), _building:
        found = _definitions.get(key)
        if found is None:
            name = f"native{len(_definitions)}"
            found = _MethodDef(b"launch", _compiled(write(name), name), _METH_FASTCALL, None)
            # CPython has a pointer into it, which the collector reads after modules were cleared.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
            _definitions[key] = found
        return found


def _builtin(definition: _MethodDef, bound: object) -> Callable[..., Any]:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = make(ctypes.addressof(definition), bound, None)
    return made


def make_launcher(
    handle: int,
    arguments: Arguments,
    key: tuple[object, ...],
    rule: Rule,
    driver: Driver,
    flag: int = 0,
) -> Callable[..., None]:
    """A builtin that launches the kernel `handle`.

    `key` stands for `rule`: equal keys, equal rules.
    """
    whole_key = (arguments, key, driver, flag)
    definition = _definition(
        whole_key, lambda name: write_launcher(name, arguments, rule, driver, flag)
    )
    return _builtin(definition, handle)


def make_packed_launcher(handle: int, driver: Driver) -> Callable[..., None]:
    """A builtin (blocks, threads, kernelParams, owner) that launches with packed arguments.

    `owner` is ignored: it keeps the memory of kernelParams, an address, until the launch.
    """

    def write(name: str) -> str:
        writer = _Writer(name)
        b = writer.builder
        writer.check_count(4)
        blocks, threads, packed = (writer.whole(i) for i in range(3))
        geometry = Geometry(blocks, blocks, const(1), threads)
        writer.launch(driver, geometry, b.inttoptr(packed, POINTER.as_pointer()))
        writer.give_none()
        return str(writer.module)

    return _builtin(_definition(("packed", driver), write), handle)


def make_caller(address: int, kinds: str, driver: Driver | None = None) -> Callable[..., int]:
    """A builtin that calls the C function at `address` and returns its int.

    `kinds` has a letter per argument: p for a pointer, q for a long long, i for an int. `driver`
    is given where the function launches kernels: they wait as a launcher's do.
    """

    def write(name: str) -> str:
        writer = _Writer(name)
        b = writer.builder
        writer.check_count(len(kinds))
        whole = [writer.whole(i) for i in range(len(kinds))]
        convert = {
            "p": lambda v: b.inttoptr(v, POINTER),
            "q": lambda v: v,
            "i": lambda v: b.trunc(v, I32),
        }
        if driver is not None:
            writer.begin(driver)
        code = _called(
            b, address, I32, [convert[kind](v) for kind, v in zip(kinds, whole, strict=True)]
        )
        b.ret(_called(b, _python("PyLong_FromLong"), POINTER, [b.sext(code, I64)]))
        return str(writer.module)

    return _builtin(_definition(("call", address, kinds, driver), write), None)
