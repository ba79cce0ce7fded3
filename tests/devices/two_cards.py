"""Two cards whose driver does nothing, but knows which of them is current: what goes to which?

`python two_cards.py` makes steps on both. Every call of the runtime must find that card current to
which its address, stream or event belongs, and every launch the context of its kernel's module.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import gpu_host
import gpu_models
from llvmlite import binding as llvm

import rushlight as rl
from rushlight.devices.cuda import convolve, cudnn, device, driver
from rushlight.devices.shared.registry import count_of, pool_of

CARDS = 2
_SPAN = 40  # addresses and handles of card n begin at (n + 1) << _SPAN
_TEXT = """
@current = global i64 0
@launched = global [8 x i64] zeroinitializer
define i32 @bind(i64 %context) {
    store i64 %context, ptr @current
    ret i32 0
}
define i32 @launch() {
    %context = load i64, ptr @current
    %place = getelementptr [8 x i64], ptr @launched, i64 0, i64 %context
    %before = load i64, ptr %place
    %after = add i64 %before, 1
    store i64 %after, ptr %place
    ret i32 0
}
"""


class Context:
    """The driver's functions, and the context that is current: card n has context n + 1."""

    def __init__(self) -> None:
        gpu_host.Nothing()  # starts LLVM
        machine = llvm.Target.from_default_triple().create_target_machine()
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_TEXT), machine)
        self.engine.finalize_object()
        own = self.engine.get_global_value_address
        self.current = ctypes.c_int64.from_address(own("current"))
        self.launched = (ctypes.c_int64 * 8).from_address(own("launched"))
        function = ctypes.CFUNCTYPE(ctypes.c_int)
        self.cuCtxSetCurrent = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._at("bind"))
        self.cuLaunchKernel = function(self._at("launch"))
        self.cuStreamWaitEvent = function(self._at("launch"))

    def _at(self, name: str) -> int:
        return int(self.engine.get_function_address(name))

    def cuCtxGetCurrent(self, target: Any) -> int:
        target._obj.value = self.current.value
        return 0


class Runtime(gpu_host.Runtime):
    """`cupy.cuda.runtime` of both cards."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context
        self.calls = [0] * CARDS
        self.made = [(n + 1) << _SPAN for n in range(CARDS)]

    def getDeviceCount(self) -> int:
        return CARDS

    def getDevice(self) -> int:
        return max(self.context.current.value - 1, 0)

    def setDevice(self, card: int) -> None:
        self.context.current.value = card + 1

    def memGetInfo(self) -> tuple[int, int]:
        self.setDevice(self.getDevice())  # binds the primary context
        return super().memGetInfo()

    def _new(self, *_: Any) -> int:
        card = self.getDevice()
        self.made[card] += 512
        return self.made[card]

    def mallocAsync(self, nbytes: int, stream: int) -> int:
        found = self._new()
        self.made[self.getDevice()] += -(-nbytes // 512) * 512
        return found

    def hostAlloc(self, nbytes: int, flags: int) -> int:
        self.host = ctypes.create_string_buffer(nbytes + 64)
        return -(-ctypes.addressof(self.host) // 64) * 64

    eventCreateWithFlags = streamCreateWithFlags = _new

    def memcpy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self._check(target if kind == self.memcpyHostToDevice else source)
        super().memcpy(target, source, nbytes, kind)

    def _check(self, *handles: Any) -> int:
        self.calls[self.getDevice()] += 1
        for handle in handles:
            if isinstance(handle, int) and 1 <= handle >> _SPAN <= CARDS:
                assert (handle >> _SPAN) - 1 == self.getDevice(), f"card {self.getDevice()}"
        return 0

    def __getattr__(self, name: str) -> Any:
        return self._check


def install() -> Context:
    gpu_host.install()
    context = Context()
    runtime = Runtime(context)
    function = SimpleNamespace(ptr=1 << 30)

    class Module:
        def load(self, code: bytes) -> None:
            assert context.current.value

        def get_function(self, name: str) -> Any:
            return function

    cuda = SimpleNamespace(
        runtime=runtime,
        function=SimpleNamespace(Module=Module),
        driver=SimpleNamespace(funcSetAttribute=lambda *_: None),
        nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
        Device=lambda: SimpleNamespace(compute_capability="90"),
    )
    driver._import_cupy = lambda: SimpleNamespace(cuda=cuda, __version__="0")
    driver._library = lambda is_hip: context
    device.open_session = driver.open_session
    library = gpu_host.Library(SimpleNamespace(address=context._at("launch")))
    device.load_cublas = lambda session: library
    cudnn.load_cudnn = lambda: library
    convolve.Convolution.library_of = staticmethod(lambda: None)
    return context


def launches(context: Context, work: Any) -> list[int]:
    before = list(context.launched)
    work()
    return [now - old for now, old in zip(context.launched, before, strict=True)][: CARDS + 1]


def main() -> None:
    context = install()
    rl.ones(1, device="cuda:1")  # the first to be opened, and current then
    assert count_of("cuda") == rl.cuda.device_count() == CARDS
    steps = [gpu_models.mlp_step(rl, name) for name in ("cuda", "cuda:1")]
    for step in steps * 2:
        step()
    for card, step in enumerate(steps):
        # As if another library, or the other card, had been used last.
        context.current.value = 2 - card
        found = launches(context, step)
        assert found[card + 1] > 10 and sum(found) == found[card + 1], found
    x = rl.ones(1000, device="cuda:1")
    y = x.to("cuda")
    assert (x.device.index, str(y.device), y.to(1).device.index) == (1, "cuda", 1)
    assert pool_of("cuda").live and pool_of("cuda:1").live
    stream = rl.cuda.Stream("cuda:1")
    with rl.cuda.stream(stream):
        moved = rl.ones(64).pin_memory().to("cuda:1", non_blocking=True)
        moved + 1
    stream.synchronize()
    rl.cuda.Event().record(stream)
    assert stream.device.index == moved.device.index == 1
    del moved, stream
    conv = rl.nn.Conv2d(3, 4, 3).to("cuda:1")
    conv(rl.ones(2, 3, 8, 8, device="cuda:1")).sum().backward()
    for name in ("cuda", "cuda:1"):
        pool_of(name).device.synchronize()
    rl.cuda.empty_cache()
    try:
        rl.ones(1, device="cuda:2")
    except rl.DeviceUnavailable as error:
        print(error)


if __name__ == "__main__":
    main()
