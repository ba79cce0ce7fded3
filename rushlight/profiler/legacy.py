"""PyTorch's `torch.autograd.profiler`."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.profiler.actions import ProfilerActivity
from rushlight.profiler.events import EventList, FunctionEvent, FunctionEventAvg
from rushlight.profiler.labels import record, record_function
from rushlight.profiler.profiling import Profile
from rushlight.profiler.recorder import Recorder
from rushlight.tape.anomaly import arming
from rushlight.tape.record.op import Plan

__all__ = [
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "emit_itt",
    "emit_nvtx",
    "profile",
    "record",
    "record_function",
]


class profile(Profile):
    """A recording of a block: see `profiler.profile`, whose arguments it has in part.

    Args:
        enabled (bool): False records nothing.
        use_device (str): The device whose own times are recorded; None for the host's alone.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = True,
        use_cpu: bool = True,
        **named: Any,
    ) -> None:
        kinds = [ProfilerActivity.CPU]
        if use_cuda or use_device is not None:
            kinds.append(ProfilerActivity.CUDA)
        super().__init__(
            activities=kinds,
            record_shapes=record_shapes,
            with_flops=with_flops,
            profile_memory=profile_memory,
            with_stack=with_stack,
        )
        self.enabled = enabled

    def start(self) -> None:
        if self.enabled:
            super().start()

    @property
    def function_events(self) -> EventList:
        """All events."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time in all events, in microseconds."""
        return self.events().self_cpu_time_total

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        return self.events().total_average()

    def __str__(self) -> str:
        return str(self.events()) if self.enabled and self.recorder is not None else "<no profile>"


def _nvtx() -> Any:
    """Functions that begin and end a range in NVIDIA's tools."""
    try:
        found = importlib.import_module("cupy.cuda.nvtx")
        return found.RangePush, found.RangePop
    except ImportError:
        pass
    name = ctypes.util.find_library("nvToolsExt")
    if name is None:
        raise RushlightError(
            "emit_nvtx: neither CuPy nor NVIDIA's libnvToolsExt is there; install CuPy, or use "
            "profiler.profile, which needs neither"
        )
    library = ctypes.CDLL(name)
    return lambda text: library.nvtxRangePushA(text.encode()), library.nvtxRangePop


class _Ranged:
    """A launch inside of a range."""

    __slots__ = ("launch", "name", "owner")

    def __init__(self, owner: emit_nvtx, name: str, launch: Any) -> None:
        self.owner, self.name, self.launch = owner, name, launch

    def __call__(self, *numbers: Any) -> None:
        self.owner.push(self.name)
        try:
            self.launch(*numbers)
        finally:
            self.owner.pop()


class emit_nvtx:
    """A block in which every launch is a range for NVIDIA's tools, named after its op.

    Args:
        enabled (bool): False changes nothing.
        record_shapes (bool): Add the operands' shapes to the names.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.shapes = enabled, record_shapes
        self.push: Any = None
        self.pop: Any = None
        if enabled:
            self.push, self.pop = _nvtx()

    def __enter__(self) -> emit_nvtx:
        if self.enabled:
            if arming.Armed.wrap is not None:
                raise RuntimeError("emit_nvtx: a profile is running; stop it first")
            arming.wrap_launches(self._wrap, _inner)
        return self

    def __exit__(self, *_: object) -> None:
        if self.enabled:
            arming.wrap_launches(None, _inner)

    def _wrap(self, plan: Plan, launch: Any) -> Any:
        shapes = ", ".join(map(repr, plan.ins))
        name = f"{plan.op.name}({shapes})" if self.shapes else plan.op.name
        return _Ranged(self, name, _inner(launch))


def _inner(launch: Any) -> Any:
    return launch.launch if isinstance(launch, _Ranged) else launch


class emit_itt:
    """Refused where it is enabled: Intel's tools get no ranges."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        if enabled:
            raise RushlightError("emit_itt is not supported; use profiler.profile")

    def __enter__(self) -> emit_itt:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def is_enabled() -> bool:
    """Whether a profile is running."""
    return Recorder.running is not None
