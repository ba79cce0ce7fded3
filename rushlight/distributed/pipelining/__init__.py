"""Models cut into stages, one after another on several ranks: `torch.distributed.pipelining`.

Owns: stages and their messages, schedules of microbatches, the cutting of a model by module paths.
Takes: modules, a group of processes. Gives: PyTorch's names.
Never: another order of sums than that of the microbatches in one process.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.defined(
    {
        "rushlight.distributed.pipelining.cutting": "Pipe SplitPoint pipeline",
        "rushlight.distributed.pipelining.schedules": (
            "Schedule1F1B ScheduleGPipe ScheduleInterleaved1F1B"
        ),
        "rushlight.distributed.pipelining.stages": "PipelineStage",
    }
)
__all__ = sorted(name for name in _NAMES.sources if name[0] != "_")


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
