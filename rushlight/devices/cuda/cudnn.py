"""cuDNN by its graph API: the library, handles, descriptors, plans.

# Note [cuDNN]
1. `load_cudnn` finds the library: in the folder of the package `nvidia-cudnn-cu13` (or -cu12), else
   by its bare name. Where it is absent `CudaDevice.cudnn` is None and own kernels run.
2. `Cudnn.handle()` is the calling thread's handle, on our stream. NVIDIA's Python frontend, which
   attention uses (`cudnn_attention.py`), takes only handles that it has made itself.
3. A graph is made of descriptors: `tensor`, `describe` for an operation, then `plan` for the graph
   of that one operation. `plan` takes the first engine of the library's heuristics (mode A, then
   the fallback) that is deterministic, has no refused numerical note and fits the workspace: the
   choice depends on the library's version, the GPU and the graph alone. An operand whose address
   is no multiple of `ALIGNMENT` is copied (`aligned.py`).
4. `Plan.run` takes the operands' addresses and that of a workspace of `Plan.workspace` bytes, which
   the caller takes from the pool (`Scratch`). Addresses are aligned to `ALIGNMENT` bytes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from rushlight.core.dtypes import DType, bfloat16, float16, float32
from rushlight.core.errors import DeviceError
from rushlight.devices.cuda.driver import DEFAULT_STREAM, address_of
from rushlight.devices.cuda.handles import Handles
from rushlight.devices.cuda.stub import Driver, make_caller
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Kernel

ALIGNMENT = 16
TYPES = {float32: 0, float16: 2, bfloat16: 9}  # cudnnDataType_t
FLOAT = 0

# cudnnBackendDescriptorType_t
CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTICS, EXECUTION_PLAN = 1, 2, 3, 4, 5
OPERATION_GRAPH, VARIANT_PACK, TENSOR = 15, 16, 17
# cudnnBackendAttributeType_t, and the C type of an element
HANDLE, DATA_TYPE, INT64, REAL, ADDRESS, MODE, HEURISTIC, NOTE, DESCRIPTOR = (
    0,
    1,
    3,
    4,
    6,
    7,
    8,
    11,
    15,
)
_ELEMENTS: dict[int, Any] = {
    HANDLE: ctypes.c_void_p,
    DATA_TYPE: ctypes.c_int,
    INT64: ctypes.c_int64,
    REAL: ctypes.c_float,
    ADDRESS: ctypes.c_void_p,
    MODE: ctypes.c_int,
    HEURISTIC: ctypes.c_int,
    NOTE: ctypes.c_int,
    DESCRIPTOR: ctypes.c_void_p,
}
# cudnnBackendAttributeName_t
_HEURISTICS_MODE, _HEURISTICS_GRAPH, _HEURISTICS_RESULTS = 200, 201, 202
_CONFIG_ENGINE, _ENGINE_NOTES = 300, 1303
_PLAN_HANDLE, _PLAN_CONFIG, _PLAN_WORKSPACE = 400, 401, 402
_GRAPH_HANDLE, _GRAPH_OPERATIONS = 800, 801
_TENSOR_ALIGNMENT, _TENSOR_TYPE, _TENSOR_SIZES, _TENSOR_STRIDES, _TENSOR_NUMBER = (
    900, 901, 902, 903, 906,
)  # fmt: skip
_PACK_NUMBERS, _PACK_ADDRESSES, _PACK_WORKSPACE = 1000, 1001, 1003
_MODE_FALLBACK, _MODE_A = 2, 3
# cudnnBackendNumericalNote_t
TENSOR_CORE, DOWN_CONVERTS, REDUCED_SUM, FOURIER, NONDETERMINISTIC, WINOGRAD_13X13 = (
    0,
    1,
    2,
    3,
    4,
    8,
)
_MOST_NOTES = 16

Attribute = tuple[int, int, Sequence[Any]]  # name, type, elements


def load_cudnn() -> ctypes.CDLL | None:
    """Version 9 of the library, or None."""
    windows = sys.platform == "win32"
    name, folder = ("cudnn64_9.dll", "bin") if windows else ("libcudnn.so.9", "lib")
    try:
        spec = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for path in [*(str(Path(place) / folder / name) for place in places), name]:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.cudnnBackendDestroyDescriptor.argtypes = (ctypes.c_void_p,)
        return library
    return None


class Failure(Exception):
    """A call of the library that was refused: its status."""


class Descriptor:
    """One of the library's descriptors; it is destroyed with this object."""

    __slots__ = ("address", "library", "parts")

    def __init__(self, library: ctypes.CDLL, kind: int) -> None:
        self.library = library
        self.address = 0
        made = ctypes.c_void_p()
        _check(library.cudnnBackendCreateDescriptor(kind, ctypes.byref(made)))
        assert made.value is not None
        self.address = made.value
        self.parts: tuple[Descriptor, ...] = ()  # descriptors that this one refers to

    def __del__(self) -> None:
        # No global names: they are gone when the interpreter ends.
        try:
            if self.address:
                self.library.cudnnBackendDestroyDescriptor(self.address)
        except AttributeError:  # Ctrl-C came before it had an address
            return

    def put(self, name: int, kind: int, elements: Sequence[Any]) -> None:
        if kind == DESCRIPTOR:
            self.parts += tuple(elements)
            elements = [e.address for e in elements]
        array = (_ELEMENTS[kind] * len(elements))(*elements)
        count = ctypes.c_int64(len(elements))
        _check(
            self.library.cudnnBackendSetAttribute(
                ctypes.c_void_p(self.address), name, kind, count, array
            )
        )

    def get(self, name: int, kind: int, array: Any, most: int) -> int:
        """Fill the array with at most `most` elements; the number that there are."""
        count = ctypes.c_int64(0)
        _check(
            self.library.cudnnBackendGetAttribute(
                ctypes.c_void_p(self.address),
                name,
                kind,
                ctypes.c_int64(most),
                ctypes.byref(count),
                array,
            )
        )
        return count.value

    def finish(self) -> None:
        _check(self.library.cudnnBackendFinalize(ctypes.c_void_p(self.address)))


def _check(status: int) -> None:
    if status:
        raise Failure(status)


def describe(library: ctypes.CDLL, kind: int, *attributes: Attribute) -> Descriptor:
    """A finished descriptor."""
    made = Descriptor(library, kind)
    for attribute in attributes:
        made.put(*attribute)
    made.finish()
    return made


def tensor(
    library: ctypes.CDLL, number: int, dtype: DType, sizes: Sequence[int], strides: Sequence[int]
) -> Descriptor:
    """An operand of a graph. `number` is its name there."""
    return describe(
        library,
        TENSOR,
        (_TENSOR_TYPE, DATA_TYPE, [TYPES[dtype]]),
        (_TENSOR_SIZES, INT64, sizes),
        (_TENSOR_STRIDES, INT64, strides),
        (_TENSOR_NUMBER, INT64, [number]),
        (_TENSOR_ALIGNMENT, INT64, [ALIGNMENT]),
    )


class Cudnn:
    """The library with a handle per thread. See Note [cuDNN].

    `bind` makes the context current on this thread, `build` builds an own kernel.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        bind: Callable[[], object],
        driver: Driver,
        build: Callable[[Kernel], Launch],
    ) -> None:
        self.library = library
        self.build = build
        self.handle = Handles(self._create, bind, driver.several).current
        self.plans: dict[Any, Any] = {}  # of convolutions: see `find_plan` there
        self.create = make_caller(address_of(library, "cudnnBackendCreateDescriptor"), "ip")
        self.put = make_caller(address_of(library, "cudnnBackendSetAttribute"), "piiqp")
        self.finish = make_caller(address_of(library, "cudnnBackendFinalize"), "p")
        self.execute = make_caller(address_of(library, "cudnnBackendExecute"), "ppp", driver)
        self.destroy = make_caller(address_of(library, "cudnnBackendDestroyDescriptor"), "p")

    def _create(self) -> int:
        made = ctypes.c_void_p()
        try:
            _check(self.library.cudnnCreate(ctypes.byref(made)))
            _check(self.library.cudnnSetStream(made, ctypes.c_void_p(DEFAULT_STREAM)))
        except Failure as error:
            raise DeviceError(f"cuDNN gives no handle: status {error}") from error
        assert made.value is not None
        return made.value

    def plan(
        self, operation: Descriptor, numbers: Sequence[int], refused: Sequence[int], most: int
    ) -> Plan | None:
        """A plan for one operation, or None where no engine fits.

        `numbers` are the tensors' in the order of `Plan.run`'s addresses, `refused` the numerical
        notes that an engine may not have, `most` the bytes that its workspace may take.
        """
        handle = self.handle()
        try:
            graph = describe(
                self.library,
                OPERATION_GRAPH,
                (_GRAPH_OPERATIONS, DESCRIPTOR, [operation]),
                (_GRAPH_HANDLE, HANDLE, [handle]),
            )
        except Failure:
            return None
        for config in self._configs(graph):
            try:
                notes = self._notes(config)
                if set(refused) & notes:
                    continue
                made = describe(
                    self.library,
                    EXECUTION_PLAN,
                    (_PLAN_HANDLE, HANDLE, [handle]),
                    (_PLAN_CONFIG, DESCRIPTOR, [config]),
                )
                size = ctypes.c_int64(0)
                made.get(_PLAN_WORKSPACE, INT64, ctypes.byref(size), 1)
            except Failure:  # the heuristics name engines that refuse the sizes
                continue
            if size.value <= most:
                return Plan(self, made, numbers, size.value, notes)
        return None

    def _configs(self, graph: Descriptor) -> Iterator[Descriptor]:
        for mode in (_MODE_A, _MODE_FALLBACK):
            try:
                found = describe(
                    self.library,
                    HEURISTICS,
                    (_HEURISTICS_GRAPH, DESCRIPTOR, [graph]),
                    (_HEURISTICS_MODE, HEURISTIC, [mode]),
                )
                count = found.get(_HEURISTICS_RESULTS, DESCRIPTOR, None, 0)
                configs = [Descriptor(self.library, ENGINE_CONFIG) for _ in range(count)]
                array = (ctypes.c_void_p * count)(*[c.address for c in configs])
                count = found.get(_HEURISTICS_RESULTS, DESCRIPTOR, array, count)
            except Failure:
                continue
            for config in configs[:count]:
                config.parts = (graph,)
                yield config

    def _notes(self, config: Descriptor) -> set[int]:
        engine = Descriptor(self.library, ENGINE)
        config.get(_CONFIG_ENGINE, DESCRIPTOR, ctypes.byref(ctypes.c_void_p(engine.address)), 1)
        notes = (ctypes.c_int * _MOST_NOTES)()
        count = engine.get(_ENGINE_NOTES, NOTE, notes, _MOST_NOTES)
        return set(notes[:count])


class Plan:
    """A compiled graph. `run` queues it on our stream."""

    __slots__ = ("cudnn", "descriptor", "notes", "numbers", "workspace")

    def __init__(
        self,
        cudnn: Cudnn,
        descriptor: Descriptor,
        numbers: Sequence[int],
        workspace: int,
        notes: Set[int] = frozenset(),
    ) -> None:
        self.cudnn = cudnn
        self.descriptor = descriptor
        self.numbers = (ctypes.c_int64 * len(numbers))(*numbers)
        self.workspace = workspace
        self.notes = notes  # numerical ones of its engine

    def run(self, addresses: Sequence[int], workspace: int) -> None:
        cudnn, count = self.cudnn, len(self.numbers)
        places = (ctypes.c_void_p * (count + 2))(*addresses, workspace, None)
        first = ctypes.addressof(places)
        slot = first + 8 * (count + 1)
        code = cudnn.create(VARIANT_PACK, slot)
        pack = places[count + 1] or 0
        try:
            code = (
                code
                or cudnn.put(pack, _PACK_NUMBERS, INT64, count, ctypes.addressof(self.numbers))
                or cudnn.put(pack, _PACK_ADDRESSES, ADDRESS, count, first)
                or cudnn.put(pack, _PACK_WORKSPACE, ADDRESS, 1, first + 8 * count)
                or cudnn.finish(pack)
                or cudnn.execute(cudnn.handle(), self.descriptor.address, pack)
            )
        finally:
            if pack:
                cudnn.destroy(pack)
        if code:
            raise DeviceError(f"cuDNN failed with status {code}")
