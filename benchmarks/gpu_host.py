"""The host's time of steps on `cuda`, without a card: on a driver whose calls do nothing.

python benchmarks/gpu_host.py [--profile] [NAME ...]

Ops, plans, the launchers' machine code and the calls of cuBLASLt and cuDNN are the package's; what
they call returns at once. So a row is the least time of a step in which the card waits for the
host: milliseconds, calls of the driver and its libraries, microseconds a call. What these calls
take on a real driver comes on top. The names are those of `STEPS`; --profile prints where the time
goes instead.
"""

from __future__ import annotations

import cProfile
import ctypes
import pstats
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gpu_models
from llvmlite import binding as llvm

import rushlight as rl
from rushlight.devices.cuda import convolve, cudnn, device, driver
from rushlight.devices.cuda.driver import Session
from rushlight.devices.cuda.memory import DEFAULT_STREAM
from rushlight.devices.cuda.streams import Arrivals
from rushlight.devices.cuda.stub import Driver

Work = Callable[[], object]
SPAN = 4.0  # seconds of a timing

_NOTHING = """
@calls = global i64 0
define i32 @nothing() {
    %before = load i64, ptr @calls
    %after = add i64 %before, 1
    store i64 %after, ptr @calls
    ret i32 0
}
"""


class Nothing:
    """A C function of any arguments that counts its calls and returns 0."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_NOTHING), machine)
        self.engine.finalize_object()
        self.address = self.engine.get_function_address("nothing")
        self.counter = ctypes.c_int64.from_address(self.engine.get_global_value_address("calls"))


class Runtime:
    """`cupy.cuda.runtime` of a card of 141 GB; addresses are never read."""

    CUDARuntimeError = RuntimeError
    is_hip = False
    memcpyHostToDevice, memcpyDeviceToHost = 1, 2

    def __init__(self) -> None:
        self.next = 1 << 40

    def mallocAsync(self, nbytes: int, stream: int) -> int:
        self.next += -(-nbytes // 512) * 512
        return self.next

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        return {
            "name": b"a driver that does nothing",
            "multiProcessorCount": 132,
            "totalGlobalMem": 141 << 30,
            "sharedMemPerBlockOptin": 227 << 10,
            "major": 9,
        }

    def memGetInfo(self) -> tuple[int, int]:
        return 141 << 30, 141 << 30

    def driverGetVersion(self) -> int:
        return 13000

    runtimeGetVersion = driverGetVersion

    def deviceGetDefaultMemPool(self, device: int) -> int:
        return 1

    def memcpy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if kind == self.memcpyDeviceToHost:
            ctypes.memset(target, 0, nbytes)

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Whatever else there is does nothing."""
        return lambda *_: 0


class Library:
    """cuBLASLt or cuDNN: every function is `Nothing`, but what gives a handle gives one."""

    def __init__(self, nothing: Nothing) -> None:
        self.function = ctypes.CFUNCTYPE(ctypes.c_int)(nothing.address)

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        arguments[-1]._obj.value = 1
        return 0

    def __getattr__(self, name: str) -> Any:
        return self._give if name.endswith("Create") else self.function

    def _give(self, target: Any, *_: Any) -> int:
        target._obj.value = 1 << 20
        return 0


def open_nothing(nothing: Nothing) -> Session:
    function = SimpleNamespace(ptr=1 << 30)
    module = SimpleNamespace(load=lambda code: None, get_function=lambda name: function)
    cuda = SimpleNamespace(
        function=SimpleNamespace(Module=lambda: module),
        driver=SimpleNamespace(funcSetAttribute=lambda *_: None),
    )
    arrivals = Arrivals()
    word = ctypes.addressof(arrivals.word)
    native = Driver(nothing.address, nothing.address, 1, DEFAULT_STREAM, nothing.address, word)
    cupy = SimpleNamespace(cuda=cuda, __version__="0")
    return Session(cupy, Runtime(), native, lambda context: 0, False, "nothing", arrivals)


def install() -> Nothing:
    """Make `cuda` a device without a card."""
    nothing = Nothing()
    library = Library(nothing)
    device.open_session = lambda number=0: open_nothing(nothing)
    device.load_cublas = lambda session: library
    driver._binary = lambda session, source, name: b""
    cudnn.load_cudnn = lambda: library
    convolve.plan_convolution = lambda found, kernel, numbers: cudnn.Plan(
        found, SimpleNamespace(address=1 << 20), (1, 2, 3), 1 << 20
    )
    cudnn.Cudnn._create = lambda self: 1 << 20
    return nothing


# ---- steps ----

STEPS: dict[str, Callable[[], Work]] = {
    "resnet-bf16": lambda: gpu_models.resnet_step(rl, "cuda", "bfloat16"),
    "resnet-float32": lambda: gpu_models.resnet_step(rl, "cuda", "float32"),
    "gpt2-bf16": lambda: gpu_models.gpt_step(rl, "cuda"),
    "gpt6-float32": lambda: gpu_models.gpt_step(
        rl, "cuda", gpu_models.Sizes(64, 256, 6, 384, 6, 65, lower=False)
    ),
    "mlp": lambda: gpu_models.mlp_step(rl, "cuda"),
}


def least_seconds(work: Work) -> float:
    """The least time of a step."""
    for _ in range(5):
        work()
    best, end = float("inf"), time.perf_counter() + SPAN
    while time.perf_counter() < end:
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


def show_profile(work: Work) -> None:
    for _ in range(5):
        work()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(20):
        work()
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)


def main() -> None:
    nothing = install()
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    for name in names or STEPS:
        work = STEPS[name]()
        if "--profile" in sys.argv:
            show_profile(work)
            continue
        took = least_seconds(work)
        before = nothing.counter.value
        work()
        calls = nothing.counter.value - before
        print(
            f"| {name} | {1e3 * took:.2f} ms | {calls} | {1e6 * took / calls:.2f} us |", flush=True
        )
        del work


if __name__ == "__main__":
    main()
