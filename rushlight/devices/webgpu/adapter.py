"""Finding the adapter and opening the driver's device."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from rushlight.core import config
from rushlight.core.errors import DeviceUnavailable
from rushlight.devices.shared.registry import numbered
from rushlight.devices.webgpu.type_names import shorten_lookups
from rushlight.emit.wgsl.types import NATIVE_FLOAT64, NATIVE_INT64, SUBGROUPS

_USEFUL = (NATIVE_INT64, NATIVE_FLOAT64, SUBGROUPS)
TIMING = "timestamp-query"
_SOFTWARE = "CPU"  # the type of an adapter that computes on the host
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

    name: str
    gpu: Any
    wgpu: Any
    features: frozenset[str]
    limits: dict[str, int]
    description: str
    software: bool  # an adapter that computes on the host

    @property
    def hint(self) -> str:
        """What to do after an error that may be the loss of the GPU."""
        return (
            f"if the GPU was lost, rushlight.devices.shared.registry.reopen({self.name!r}) opens "
            "it anew, without what lay on it"
        )


def _library() -> Any:
    try:
        wgpu = importlib.import_module("wgpu")
    except ImportError as error:
        raise DeviceUnavailable(
            "webgpu", f"the package wgpu does not import ({error})", "pip install wgpu"
        ) from error
    config.give_runtime_folder()
    shorten_lookups()
    return wgpu


def _first(wgpu: Any) -> Any:
    """The adapter of high performance."""
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except (RuntimeError, OSError) as error:
        raise DeviceUnavailable("webgpu", f"no adapter: {error}", _FIX) from error
    if adapter is None:
        raise DeviceUnavailable("webgpu", "no adapter was found", _FIX)
    return adapter


def find_adapters() -> list[Any]:
    """The adapters, the one of high performance first; software ones only beside software.

    The system lists a GPU once for each of its APIs: it is taken once, by the first adapter's.
    """
    wgpu = _library()
    first = _first(wgpu)
    listed = [(_facts(adapter), adapter) for adapter in wgpu.gpu.enumerate_adapters_sync()]
    own = _facts(first)
    same = [number for number, (facts, _) in enumerate(listed) if facts == own]
    if same:
        del listed[same[0]]
    found, apis = [first], {own[2:]: own[1]}
    for (kind, api, *gpu), adapter in listed:
        if (kind == _SOFTWARE) == (own[0] == _SOFTWARE) and apis.setdefault(tuple(gpu), api) == api:
            found.append(adapter)
    return found


def _facts(adapter: Any) -> tuple[Any, ...]:
    """Kind and API of an adapter, and what tells its GPU from others of another make."""
    names = ("adapter_type", "backend_type", "vendor_id", "device_id", "device")
    return tuple(adapter.info[name] for name in names)


def open_adapter(without: frozenset[str], number: int = 0) -> Opened:
    name = numbered("webgpu", number)
    wgpu = _library()
    adapters = find_adapters() if number else [_first(wgpu)]
    if number >= len(adapters):
        raise DeviceUnavailable(
            name,
            f"the system has {len(adapters)} adapters",
            "`rushlight devices` lists them",
        )
    adapter = adapters[number]
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
    software, had = facts["adapter_type"] == _SOFTWARE, dict(gpu.limits)
    return Opened(name, gpu, wgpu, features, had, _describe(facts, features, had), software)


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
