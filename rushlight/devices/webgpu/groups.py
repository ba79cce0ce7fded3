"""One bind group: through wgpu's method, or by the native library, in a fifth of the time.

Inside a budget blocks come and go in every step, and bind groups with them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

# Layout, buffer and bytes of the launch block, the storage buffers.
Make = Callable[[Any, Any, int, Sequence[Any]], Any]


def group_maker(gpu: Any) -> Make:
    """The fastest way that this version of wgpu has. One thread may call it at a time."""
    try:
        api = importlib.import_module("wgpu.backends.wgpu_native._api")
        ffi, whole = api.ffi, api.lib.WGPU_WHOLE_SIZE
        create, wrap, handle = api.libf.wgpuDeviceCreateBindGroup, api.GPUBindGroup, gpu._internal
        descriptor = ffi.new("WGPUBindGroupDescriptor *")
    except (ImportError, AttributeError):
        return _by_method(gpu)

    def entries_for(count: int) -> tuple[Any, list[Any]]:
        """An array of entries, and its elements."""
        array = ffi.new("WGPUBindGroupEntry[]", count)
        entries = [array[number] for number in range(count)]
        for number, entry in enumerate(entries):
            entry.binding, entry.size = number, whole
        return array, entries

    array, entries = entries_for(16)

    def make(layout: Any, blocks: Any, size: int, buffers: Sequence[Any]) -> Any:
        nonlocal array, entries
        count = 1 + len(buffers)
        if count > len(entries):
            array, entries = entries_for(count)
        entries[0].buffer, entries[0].size = blocks._internal, size
        for number, buffer in enumerate(buffers, 1):
            entries[number].buffer = buffer._internal
        descriptor.layout, descriptor.entries = layout._internal, array
        descriptor.entryCount = count
        return wrap("", create(handle, descriptor), gpu)

    return make


def _by_method(gpu: Any) -> Make:
    def make(layout: Any, blocks: Any, size: int, buffers: Sequence[Any]) -> Any:
        resources = [{"buffer": blocks, "offset": 0, "size": size}]
        resources += [{"buffer": buffer} for buffer in buffers]
        entries = [{"binding": n, "resource": found} for n, found in enumerate(resources)]
        return gpu.create_bind_group(layout=layout, entries=entries)

    return make
