"""The CUDA device: CuPy's context, compiler and memory, a native launcher, one stream."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import numpy as np

from rushlight.core import locks
from rushlight.core.dtypes import ALL, FLOAT, DType, bfloat16, float16, float32
from rushlight.core.errors import BoundsError, DeviceError
from rushlight.core.interrupts import unheard
from rushlight.devices.cuda import arrays, convolve, cudnn, cudnn_attention, gemm
from rushlight.devices.cuda.driver import compile_kernel, load_cublas, open_session
from rushlight.devices.cuda.grid import SCRATCH_SLOTS, TICKETS, rule_of
from rushlight.devices.cuda.lists import LARGE_TABLE, TABLES, CudaList
from rushlight.devices.cuda.marks import CudaMarks
from rushlight.devices.cuda.memory import DriverMemory
from rushlight.devices.cuda.solvers import Solvers
from rushlight.devices.cuda.streams import Queues
from rushlight.devices.cuda.stub import Arguments, make_launcher, make_packed_launcher
from rushlight.devices.shared import composed, library
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.layout import Layout
from rushlight.devices.shared.protocol import Launch, Limits, Tell
from rushlight.devices.shared.registry import numbered, pool_of
from rushlight.emit.cuda import attend
from rushlight.emit.cuda.kernels import emit, entry_name
from rushlight.emit.cuda.lists import emit_list, list_name
from rushlight.kernel.attend import params_of
from rushlight.kernel.interpret import signature
from rushlight.kernel.shapes import (
    Attend,
    Contract,
    Convolve,
    Gather,
    Kernel,
    Library,
    Map,
    Rowwise,
    Scatter,
)
from rushlight.kernel.show import show
from rushlight.kernel.verify import verify

_STATUS_WORDS = 1024
_LARGE_ARGUMENTS = 12010  # the CUDA version from which arguments may have 32,764 bytes


_LABELLING = locks.lock()


class CudaDevice:
    """One GPU. See the Device protocol."""

    def __init__(self, number: int = 0) -> None:
        self.name = numbered("cuda", number)
        self.session = open_session(number)
        self.runtime = self.session.runtime
        self.memory = DriverMemory(self.runtime)
        self.layout = Layout(self.memory)
        self.limits = self._describe()
        self.modules: list[object] = []  # loaded code lives as long as its launchers
        # The launcher of an indexed kernel sets this word; only then are the status words read.
        self.indexed = ctypes.c_int32(0)
        self.labels: dict[str, int] = {}
        self.listed: dict[Map | Rowwise, CudaList] = {}
        self.words = self._zeros(4 * _STATUS_WORDS)
        self.scratch = (self._zeros(8 * SCRATCH_SLOTS), self._zeros(4 * TICKETS))
        convolve.Convolution.library_of = staticmethod(lambda: self.cudnn)

    def _describe(self) -> Limits:
        runtime = self.runtime
        found = runtime.getDeviceProperties(runtime.getDevice())
        name = found["name"].decode()
        versions = f"driver {runtime.driverGetVersion()}, runtime {runtime.runtimeGetVersion()}"
        description = (
            f"{name}, {found['multiProcessorCount']} multiprocessors, {versions}, CuPy "
            f"{self.session.cupy.__version__}"
        )
        return Limits(
            dtypes=ALL,
            host_memory=False,
            asynchronous=True,
            largest_block=int(found["totalGlobalMem"]),
            description=description,
            convolves=("image", "back", "weights"),
            attends=() if self.session.is_hip else _widest_heads(found),
            adds=(float16, bfloat16, float32),
            own=4 * _STATUS_WORDS + 8 * SCRATCH_SLOTS + 4 * TICKETS,
            steps=self.layout.begin_step,
            driver=self.memory,
            lists=self._build_list,
            marks=lambda: CudaMarks(runtime),
            queues=Queues(self.runtime, self.session.arrivals),
        )

    def _zeros(self, nbytes: int) -> int:
        address = self.alloc(nbytes)
        self.runtime.memset(address, 0, nbytes)
        return address

    # ---- kernels ----

    def emit(self, kernel: Kernel) -> str:
        if isinstance(kernel, Library):
            return show(kernel)
        return (
            "\n".join(map(emit, composed.kernels_of(kernel)))
            if composed.is_composed(kernel)
            else emit(kernel)
        )

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        verify(kernel)
        if isinstance(kernel, Library):
            own = arrays.build(kernel, self.solvers)
            return library.build(self, kernel) if own is None else own
        if isinstance(kernel, Convolve):
            return self._build_convolution(kernel)
        if isinstance(kernel, Attend):
            return self._build_attention(kernel)
        if composed.is_composed(kernel):
            return composed.build(kernel, self, self._pool)
        launch = self._build_own(kernel)
        if isinstance(kernel, Contract) and gemm.takes(kernel) and self.cublas is not None:
            copy = self._build_own(gemm.copy_kernel(kernel.dtype))
            return gemm.Gemm(kernel, self.cublas, launch, copy, self._pool)
        return launch

    def _build_attention(self, kernel: Attend) -> Launch:
        def own() -> Launch:
            if composed.is_composed(kernel):
                return composed.build(kernel, self, self._pool)
            return self._build_own(kernel)

        frontend = cudnn_attention.frontend() if cudnn_attention.takes(kernel) else None
        if frontend is not None:
            return cudnn_attention.Attention(frontend, kernel, self.session, own, self._pool)
        return own()

    def _build_convolution(self, kernel: Convolve) -> Launch:
        def own() -> Launch:
            launch = self._build_own(kernel)
            if kernel.of != "weights":
                return launch
            add = self._build_own(convolve.sum_kernel(kernel.dtype))
            return convolve.in_parts(kernel, launch, add, self._pool)

        if convolve.takes(kernel) and self.cudnn is not None:
            return convolve.Convolution(kernel, self.cudnn, self.session, own, self._pool)
        return own()

    def _build_own(self, kernel: Kernel) -> Launch:
        shared = attend.tile_of(kernel)[2] if isinstance(kernel, Attend) else 0
        module, handle = compile_kernel(self.session, emit(kernel), entry_name(kernel), shared)
        self.modules.append(module)
        shape = signature(kernel)
        whole = shape.addresses + shape.sizes + sum(shape.strides)
        params = kernel.params if isinstance(kernel, Map | Rowwise | Contract) else ()
        if isinstance(kernel, Attend):
            params = params_of(kernel)
        arguments = Arguments(whole, range(shape.addresses, shape.addresses + shape.sizes), params)
        key, rule = rule_of(kernel, self.scratch)
        flag = ctypes.addressof(self.indexed) if isinstance(kernel, Gather | Scatter) else 0
        return make_launcher(handle, arguments, key, rule, self.session.driver, flag)

    def _build_list(self, kernel: Map | Rowwise) -> CudaList:
        found = self.listed.get(kernel)
        if found is None:
            session = self.session
            versions = (self.runtime.driverGetVersion(), self.runtime.runtimeGetVersion())
            large = not session.is_hip and min(versions) >= _LARGE_ARGUMENTS
            tables = (*TABLES, LARGE_TABLE) if large else TABLES

            def build(words: int) -> Launch:
                text = emit_list(kernel, words)
                module, handle = compile_kernel(session, text, list_name(kernel))
                self.modules.append(module)
                return make_packed_launcher(handle, session.driver)

            found = self.listed[kernel] = CudaList(kernel, build, tables, self.scratch)
        return found

    @cached_property
    def cublas(self) -> gemm.Cublas | None:
        library = load_cublas(self.session)
        return None if library is None else gemm.Cublas(library, self._bind, self.session.driver)

    @cached_property
    def solvers(self) -> Solvers:
        return Solvers(self.session, self._build_own, self._pool)

    def _bind(self) -> None:
        self.session.bind(ctypes.c_void_p(self.session.driver.context))

    @cached_property
    def cudnn(self) -> cudnn.Cudnn | None:
        """See Note [cuDNN]."""
        library = None if self.session.is_hip else cudnn.load_cudnn()
        if library is None:
            return None
        return cudnn.Cudnn(library, self._bind, self.session.driver, self._build_own)

    def _pool(self) -> Pool:
        return pool_of(self.name)

    # ---- memory ----

    def alloc(self, nbytes: int) -> int:
        return self.layout.take(nbytes)

    def free_bytes(self) -> int:
        """The memory that the driver can still give."""
        return self.memory.free_bytes()

    @unheard
    def free(self, address: int, nbytes: int) -> None:
        self.layout.give(address, nbytes)

    def copy_in(self, address: int, source: memoryview) -> None:
        self._copy(address, _address_of(source), source.nbytes, self.runtime.memcpyHostToDevice)

    def copy_out(self, address: int, target: memoryview) -> None:
        self._settle()
        self._copy(_address_of(target), address, target.nbytes, self.runtime.memcpyDeviceToHost)
        self._raise_status()

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if not nbytes:
            return
        self.session.await_arrival()
        try:
            self.runtime.memcpy(target, source, nbytes, kind)
        except self.runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"copying {nbytes} bytes to or from cuda: {error}; an earlier kernel may be the "
                "cause"
            ) from error

    # ---- waiting ----

    def status_word(self, label: str) -> int:
        with _LABELLING:
            slot = self.labels.get(label, len(self.labels))
            if slot >= _STATUS_WORDS:
                raise DeviceError(f"more than {_STATUS_WORDS} ops with a status word")
            self.labels[label] = slot
        return self.words + 4 * slot

    def synchronize(self) -> None:
        self._settle()
        try:
            self.runtime.deviceSynchronize()
        except self.runtime.CUDARuntimeError as error:
            raise DeviceError(f"work on cuda failed: {error}") from error
        self._raise_status()

    def _settle(self) -> None:
        pool = self._pool()
        self.memory.settle(Pool.bound(pool), pool.trim)

    def _raise_status(self) -> None:
        if not self.indexed.value:
            return
        self.indexed.value = 0
        labels = list(self.labels)
        words = np.empty(len(labels), np.int32)
        self._copy(
            _address_of(words.data), self.words, words.nbytes, self.runtime.memcpyDeviceToHost
        )
        bad = [label for label, word in zip(labels, words, strict=True) if word]
        if bad:
            self.runtime.memset(self.words, 0, words.nbytes)
            raise BoundsError(f"{', '.join(bad)}: an index is out of range")


def _widest_heads(properties: dict[str, Any]) -> tuple[tuple[DType, int], ...]:
    """For Attend: by its shared memory; none where it has no tensor cores for bfloat16."""
    shared = int(properties["sharedMemPerBlockOptin"]) if properties["major"] >= 8 else 0
    return tuple((dtype, attend.widest(dtype, shared)) for dtype in FLOAT)


def _address_of(view: memoryview) -> int:
    if not view.nbytes:
        return 0
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
