"""PyTorch's `torch.autograd.profiler`: names of `rushlight.profiler`."""

from __future__ import annotations

from rushlight.profiler.legacy import (
    EventList as EventList,
    FunctionEvent as FunctionEvent,
    FunctionEventAvg as FunctionEventAvg,
    emit_itt as emit_itt,
    emit_nvtx as emit_nvtx,
    is_enabled as is_enabled,
    profile as profile,
    record as record,
    record_function as record_function,
)
