"""PyTorch's `torch.autograd.profiler_util`: names of `rushlight.profiler`."""

from __future__ import annotations

from rushlight.profiler.events import (
    EventList as EventList,
    FunctionEvent as FunctionEvent,
    FunctionEventAvg as FunctionEventAvg,
    Interval as Interval,
    Kernel as Kernel,
)
