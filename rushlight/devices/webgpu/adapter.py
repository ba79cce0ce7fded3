"""Finding the adapter and opening the driver's device."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from rushlight.core import config
from rushlight.core.errors import DeviceUnavailable
from rushlight.emit.wgsl.types import NATIVE_FLOAT64, NATIVE_INT64, SUBGROUPS

_USEFUL = (NATIVE_INT64, NATIVE_FLOAT64, SUBGROUPS)
TIMING = "timestamp-query"
_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "min-uniform-buffer-offset-alignment",
)
_FIX = (
    "Install a Vulkan driver: your GPU vendor's, or Mesa's (apt-get install libvulkan1 "
    "mesa-vulkan-drivers), "
    "which also has a software adapter"
)


@dataclass(frozen=True)
class Opened:
    """The driver's device and its properties. `gpu` is a wgpu.GPUDevice."""

    gpu: Any
    wgpu: Any
    features: frozenset[str]
    limits: dict[str, int]
    description: str
    software: bool  # an adapter that computes on the host


def open_adapter(without: frozenset[str]) -> Opened:
    try:
        wgpu = importlib.import_module("wgpu")
    except ImportError as error:
        raise DeviceUnavailable(
            "webgpu", f"the package wgpu does not import ({error})", "pip install wgpu"
        ) from error
    config.give_runtime_folder()
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except (RuntimeError, OSError) as error:
        raise DeviceUnavailable("webgpu", f"no adapter: {error}", _FIX) from error
    if adapter is None:
        raise DeviceUnavailable("webgpu", "no adapter was found", _FIX)
    features = frozenset(f for f in _USEFUL if f in adapter.features) - without
    if NATIVE_INT64 not in features:
        features -= {NATIVE_FLOAT64}  # a float64 is made of two words as a u64
    timing = {TIMING} & set(adapter.features)
    limits = {name: adapter.limits[name] for name in _LIMITS if name in adapter.limits}
    try:
        gpu = adapter.request_device_sync(
            required_features=sorted(features | timing), required_limits=limits
        )
    except (RuntimeError, wgpu.GPUError) as error:
        raise DeviceUnavailable("webgpu", f"the adapter gives no device: {error}", _FIX) from error
    facts = adapter.info
    software, had = facts["adapter_type"] == "CPU", dict(gpu.limits)
    return Opened(gpu, wgpu, features, had, _describe(facts, features, had), software)


def _describe(facts: Any, features: frozenset[str], limits: dict[str, int]) -> str:
    listed = ", ".join(sorted(features)) or "none"
    name = facts["device"] or facts["vendor"]
    largest = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
    return (
        f"{name} ({facts['adapter_type']}), {facts['backend_type']}, {facts['description']}; "
        f"features: {listed}; limits: blocks of {largest >> 20} MiB, "
        f"{limits['max-compute-workgroup-storage-size'] >> 10} KiB of workgroup memory, "
        f"{limits['max-storage-buffers-per-shader-stage']} buffers per kernel"
    )
