"""Memory: bytes in use, budgets, rebuilt values, transfers between host and devices, reports.

Owns: what a user says and asks about memory. Takes: functions, modules, numbers of bytes. Gives:
budgets, counts, errors, recordings. Never: a block of its own; `devices/shared/allocator.py`
allocates, and `tape/memory/` drops and rebuilds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight.core.errors import ExactnessError
from rushlight.lazy import Names
from rushlight.memory.budget import budget, get_budget, parse_bytes, set_budget
from rushlight.memory.counters import (
    allocated,
    empty_cache,
    given,
    offloaded,
    peak,
    recomputed,
    reserved,
    reset_peak,
    transfers,
)
from rushlight.tape.memory.policy import Candidate, LeastWork, Policy

if TYPE_CHECKING:
    from rushlight.memory.estimation import Choice, Estimate, estimate, fits, suggest
    from rushlight.memory.exactness import check_exact
    from rushlight.memory.recording import (
        Recording,
        _dump_snapshot as _dump_snapshot,
        _record_memory_history as _record_memory_history,
        _snapshot as _snapshot,
        record,
        report,
        summary,
    )

__all__ = [
    "Candidate",
    "Choice",
    "Estimate",
    "ExactnessError",
    "LeastWork",
    "Policy",
    "Recording",
    "allocated",
    "budget",
    "check_exact",
    "empty_cache",
    "estimate",
    "fits",
    "get_budget",
    "given",
    "offloaded",
    "parse_bytes",
    "peak",
    "recomputed",
    "record",
    "report",
    "reserved",
    "reset_peak",
    "set_budget",
    "suggest",
    "summary",
    "transfers",
]

_NAMES = Names(__name__)
_NAMES.defined(
    {
        "rushlight.memory.estimation": "Choice Estimate estimate fits suggest",
        "rushlight.memory.exactness": "check_exact",
        "rushlight.memory.recording": """
            Recording record report summary _dump_snapshot _record_memory_history _snapshot
        """,
    }
)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
