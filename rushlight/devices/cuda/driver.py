"""CuPy, its driver library and its compiler. Nothing here is touched before `open_device()`."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight.core.errors import DeviceError, DeviceUnavailable
from rushlight.devices.cuda.memory import DEFAULT_STREAM as DEFAULT_STREAM
from rushlight.devices.cuda.streams import Arrivals
from rushlight.devices.cuda.stub import Driver
from rushlight.devices.shared.cache import read_object, write_object

_INSTALL = (
    "Install CuPy for your driver: `pip install rushlight[cuda]` (CUDA 13), `pip install "
    "cupy-cuda12x` (CUDA 12)."
)
_CACHE_VERSION = 1
_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# Rule 2 of Note [CUDA C], and every float32 operation rounded as in IEEE 754, subnormals included.
_OPTIONS = ("--std=c++14", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
_HIP_OPTIONS = ("-ffp-contract=off",)


class OnCard:
    """`cupy.cuda.runtime` for one of several cards: that card is current while a function runs.

    The collector may call one in the middle of anything, so the card from before is current again.
    """

    def __init__(self, runtime: Any, card: int) -> None:
        self._runtime = runtime
        self._card = card

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._runtime, name)
        if not callable(found) or isinstance(found, type):
            return found
        get, put, card = self._runtime.getDevice, self._runtime.setDevice, self._card

        def call(*args: Any) -> Any:
            before = get()
            if before == card:
                return found(*args)
            put(card)
            try:
                return found(*args)
            finally:
                put(before)

        setattr(self, name, call)
        return call


@dataclass(frozen=True)
class Session:
    """CuPy with a GPU and its context, which was current on the thread that opened it.

    # Note [Several cards]
    1. A process with one card binds its context to a thread once, and never asks again. With more,
       `Driver.several` says so: a launcher binds its card's context before every launch, `runtime`
       is `OnCard`, and libraries are called after `use`.
    2. Each card has its own session, modules, handles, status words, main queue and pools. Nothing
       orders work on two cards but the host: a copy between them goes through its memory, after the
       work of the card that it is read from.
    """

    cupy: Any
    runtime: Any  # cupy.cuda.runtime, or OnCard
    driver: Driver
    bind: Callable[[ctypes.c_void_p], int]
    is_hip: bool
    target: str  # the GPU's architecture and the compiler: part of a binary's key
    arrivals: Arrivals = field(default_factory=Arrivals)
    card: int = 0  # its number, here and in CuPy

    def use(self) -> None:
        """Make the card current on this thread, for a library; see Note [Several cards]."""
        if self.driver.several:
            self.bind(ctypes.c_void_p(self.driver.context))

    def await_arrival(self) -> None:
        """Have the kernels wait for the copy of Note [Streams] 3, as launchers do."""
        event = self.arrivals.word.value
        if event:
            self.arrivals.word.value = 0
            self.runtime.streamWaitEvent(DEFAULT_STREAM, event, 0)


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise DeviceUnavailable("cuda", f"CuPy cannot be imported ({error})", _INSTALL) from error
    return cupy


def _library(is_hip: bool) -> ctypes.CDLL:
    if is_hip:
        name = "amdhip64.dll" if sys.platform == "win32" else "libamdhip64.so"
    else:
        name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise DeviceUnavailable(
            "cuda", f"the driver library {name} is missing", "Install the GPU's driver."
        ) from error


def address_of(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


def count_cards() -> int:
    """How many GPUs there are. Raises DeviceUnavailable."""
    runtime = _import_cupy().cuda.runtime
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        raise _silent(error) from error


def _silent(error: Exception) -> DeviceUnavailable:
    return DeviceUnavailable(
        "cuda", f"no GPU answers ({error})", "Check `nvidia-smi` and the driver's version."
    )


def open_session(number: int = 0) -> Session:
    """Find a GPU by CuPy's number. Raises DeviceUnavailable with what is missing."""
    cupy = _import_cupy()
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
        if number < count:
            if runtime.getDevice() != number:
                runtime.setDevice(number)
            runtime.memGetInfo()  # makes the primary context and binds it to this thread
    except runtime.CUDARuntimeError as error:
        raise _silent(error) from error
    if not count:
        raise DeviceUnavailable(
            "cuda", "no GPU is visible", "Check `nvidia-smi` and CUDA_VISIBLE_DEVICES."
        )
    if number >= count:
        cards = "1 GPU is" if count == 1 else f"{count} GPUs are"
        raise DeviceUnavailable(f"cuda:{number}", f"{cards} visible", "The first one is number 0.")
    is_hip = bool(runtime.is_hip)
    library = _library(is_hip)
    context = ctypes.c_void_p()
    getter, setter, launch, wait = (
        ("hipCtxGetCurrent", "hipCtxSetCurrent", "hipModuleLaunchKernel", "hipStreamWaitEvent")
        if is_hip
        else ("cuCtxGetCurrent", "cuCtxSetCurrent", "cuLaunchKernel", "cuStreamWaitEvent")
    )
    code = getattr(library, getter)(ctypes.byref(context))
    if code or not context.value:
        raise DeviceUnavailable(
            "cuda", f"the driver gives no context (error {code})", "Check `nvidia-smi`."
        )
    arrivals = Arrivals()
    driver = Driver(
        address_of(library, launch),
        address_of(library, setter),
        context.value,
        DEFAULT_STREAM,
        address_of(library, wait),
        ctypes.addressof(arrivals.word),
        count > 1,
    )
    runtime = OnCard(runtime, number) if count > 1 else runtime
    target = (
        f"{cupy.cuda.Device().compute_capability}, compiler {cupy.cuda.nvrtc.getVersion()}, hip "
        f"{is_hip}"
    )
    bind = getattr(library, setter)
    return Session(cupy, runtime, driver, bind, is_hip, target, arrivals, number)


def compile_kernel(session: Session, source: str, name: str, shared: int = 0) -> tuple[object, int]:
    """The loaded module, which must be kept alive, and the function's handle.

    `shared`: the bytes of shared memory that a launch asks for.
    """
    # Loading a module needs a current context on this thread.
    session.bind(ctypes.c_void_p(session.driver.context))
    module = session.cupy.cuda.function.Module()
    module.load(_binary(session, source, name))
    function = module.get_function(name)
    if shared:
        session.cupy.cuda.driver.funcSetAttribute(function.ptr, _MOST_SHARED, shared)
    return (module, function), int(function.ptr)


def _binary(session: Session, source: str, name: str) -> bytes:
    """The compiled source, from the disk cache where it is there.

    Not by cupy.RawModule: that appends -ftz=true, which would flush subnormals.
    """
    options = _HIP_OPTIONS if session.is_hip else _OPTIONS
    identity = f"{_CACHE_VERSION} {session.target} {' '.join(options)}"
    key = hashlib.sha256(f"{identity}\n{source}".encode()).hexdigest()
    code = read_object("cuda", key)
    if code is None:
        compiler = session.cupy.cuda.compiler
        try:
            code, _ = compiler.compile_using_nvrtc(
                source, options, filename=f"{name}.cu", cache_in_memory=True
            )
        except compiler.CompileException as error:
            raise DeviceError(f"the GPU's compiler refused kernel {name}: {error}") from error
        # PTX, where the compiler is older than the GPU.
        if not session.is_hip and not code.startswith(b"\x7fELF"):
            linker = session.cupy.cuda.function.LinkState()
            linker.add_ptr_data(code, f"{name}.ptx")
            code = linker.complete()
        write_object("cuda", key, code)
    return bytes(code)


def load_cublas(session: Session) -> ctypes.CDLL | None:
    """The cuBLASLt that CuPy's cuBLAS uses."""
    if session.is_hip:
        return None
    importlib.import_module("cupy_backends.cuda.libs.cublas")  # loads it, where CuPy has not yet
    version = session.runtime.runtimeGetVersion() // 1000
    return find_library("cublasLt", (version, 13, 12, 11))


def find_library(name: str, majors: Sequence[int]) -> ctypes.CDLL | None:
    """A library that CuPy has loaded, so that its bare name finds it."""
    pattern = f"{name}64_{{}}.dll" if sys.platform == "win32" else f"lib{name}.so.{{}}"
    for major in majors:
        try:
            return ctypes.CDLL(pattern.format(major))
        except OSError:
            continue
    return None
