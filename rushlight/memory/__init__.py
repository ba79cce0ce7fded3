"""Memory: bytes in use, budgets, rebuilt values, transfers between host and devices.

Owns: what a user says and asks about memory. Takes: functions, modules, numbers of bytes. Gives:
budgets, counts, errors. Never: a block of its own; `devices/shared/allocator.py` allocates, and
`tape/memory/` drops and rebuilds.
"""

from __future__ import annotations

from rushlight.lazy import shown
from rushlight.memory.budget import budget, get_budget, parse_bytes, set_budget
from rushlight.memory.counters import (
    allocated,
    empty_cache,
    peak,
    recomputed,
    reserved,
    reset_peak,
    transfers,
)
from rushlight.tape.memory.policy import Candidate, LeastWork, Policy

__all__ = [
    "Candidate",
    "LeastWork",
    "Policy",
    "allocated",
    "budget",
    "empty_cache",
    "get_budget",
    "parse_bytes",
    "peak",
    "recomputed",
    "reserved",
    "reset_peak",
    "set_budget",
    "transfers",
]


def __dir__() -> list[str]:
    return shown(__name__)
