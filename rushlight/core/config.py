"""Every environment variable the package reads, in one place."""

from __future__ import annotations

import functools
import os
from pathlib import Path


def cache_folder() -> Path | None:
    """The folder of built kernels; None where RUSHLIGHT_CACHE=off or the user has no home."""
    chosen = os.environ.get("RUSHLIGHT_CACHE")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "rushlight"
    except RuntimeError:
        return None


def thread_count() -> int:
    """Threads for CPU kernels: RUSHLIGHT_THREADS, else the cores this process may use."""
    chosen = os.environ.get("RUSHLIGHT_THREADS")
    if chosen:
        return max(1, int(chosen))
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@functools.cache
def default_device() -> str:
    """The device new tensors are made on: RUSHLIGHT_DEVICE at the first one, else cpu."""
    return os.environ.get("RUSHLIGHT_DEVICE", "cpu").removesuffix(":0")


def program_budget() -> str:
    """RUSHLIGHT_BUDGET: the bytes that the program may hold: "2GiB" on each device.

    By device, and with a place for dropped values: "cuda=6GiB,cpu=2GiB,offload=auto".
    """
    return os.environ.get("RUSHLIGHT_BUDGET", "")


def torch_device() -> str:
    """RUSHLIGHT_TORCH: the device that `rushlight run --device` chose; auto where it is unset."""
    return os.environ.get("RUSHLIGHT_TORCH") or "auto"


def take_report_path() -> str:
    """RUSHLIGHT_REPORT, the file of `rushlight run --report`, which children do not inherit."""
    return os.environ.pop("RUSHLIGHT_REPORT", "")


def take_profile_path() -> str:
    """RUSHLIGHT_PROFILE, the file of `rushlight run --profile`, which children do not inherit."""
    return os.environ.pop("RUSHLIGHT_PROFILE", "")


def required_devices() -> tuple[str, ...]:
    """Devices whose tests may not skip: RUSHLIGHT_REQUIRE=webgpu,cuda."""
    return tuple(n for n in os.environ.get("RUSHLIGHT_REQUIRE", "").split(",") if n)


def debug_level() -> int:
    """RUSHLIGHT_DEBUG=1 prints each kernel as it is built, 2 its source too."""
    return int(os.environ.get("RUSHLIGHT_DEBUG", "0"))


def is_checking() -> bool:
    """RUSHLIGHT_CHECK=1: verify every launch, guard every block.

    See `devices/shared/checking.py`.
    """
    return os.environ.get("RUSHLIGHT_CHECK", "0") not in ("", "0")


def shadow_fraction() -> float:
    """RUSHLIGHT_SHADOW=0.01: the share of launches that another device computes again."""
    return float(os.environ.get("RUSHLIGHT_SHADOW") or 0)


def poison() -> int:
    """The byte that fills new blocks while checking: RUSHLIGHT_CHECK_POISON, else 0xA5."""
    return int(os.environ.get("RUSHLIGHT_CHECK_POISON", "0xA5"), 0) & 0xFF


def give_runtime_folder() -> None:
    """Set XDG_RUNTIME_DIR where it is unset: without it Mesa's drivers print a warning."""
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
