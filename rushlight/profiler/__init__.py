"""PyTorch's `torch.profiler`: time by op, module and line, on every device.

Owns: recordings of launches (Note [Profiling]), tables, traces in Chrome's format, labelled blocks.
Takes: the launches of plans, the marks of devices, hooks of modules and optimisers.
Gives: `profile`, `record_function`, `schedule`, `tensorboard_trace_handler`, `ProfilerActivity`.
Never: changes what is launched, or costs anything while no profile runs.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names, shown

_NAMES = Names(__name__)
_NAMES.defined(
    {
        "rushlight.profiler.actions": (
            "ProfilerAction ProfilerActivity schedule tensorboard_trace_handler"
        ),
        "rushlight.profiler.labels": "record_function",
        "rushlight.profiler.profiling": (
            "profile Profile=_KinetoProfile kineto_available supported_activities"
        ),
    }
)
__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return shown(__name__)
