"""wgpu's device and queue: pipelines, bind groups and the stream of dispatches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import DeviceError
from rushlight.devices.webgpu.adapter import Opened
from rushlight.devices.webgpu.groups import group_maker
from rushlight.devices.webgpu.shader import shader_maker
from rushlight.devices.webgpu.stream import Stream


class Driver:
    """What an opened adapter does with text and buffers."""

    def __init__(self, opened: Opened) -> None:
        self.gpu = opened.gpu
        self.wgpu = opened.wgpu
        self.errors = (opened.wgpu.GPUError, RuntimeError)
        self.features = opened.features
        self.lock = threading.RLock()
        self.stream = Stream(opened)
        self.shader = shader_maker(opened.gpu)
        self.group = group_maker(opened.gpu)

    def compile(self, text: str, written: tuple[bool, ...], block_size: int) -> tuple[Any, Any]:
        """A pipeline for WGSL text with one launch block and these storage bindings.

        Its bind group layout.
        """
        visible = self.wgpu.ShaderStage.COMPUTE
        block = {"type": "uniform", "has_dynamic_offset": True, "min_binding_size": block_size}
        entries = [{"binding": 0, "visibility": visible, "buffer": block}]
        for number, write in enumerate(written):
            kind = "storage" if write else "read-only-storage"
            entries.append({"binding": number + 1, "visibility": visible, "buffer": {"type": kind}})
        try:
            group_layout = self.gpu.create_bind_group_layout(entries=entries)
            layout = self.gpu.create_pipeline_layout(bind_group_layouts=[group_layout])
            module = self.shader(text)
            stage = {"module": module, "entry_point": "main"}
            return self.gpu.create_compute_pipeline(layout=layout, compute=stage), group_layout
        except self.errors as error:
            raise DeviceError(
                f"webgpu: a kernel does not compile: {error}; {self.stream.hint}\n{text}"
            ) from error

    def bind_group(self, layout: Any, size: int, buffers: Sequence[Any]) -> Any:
        """A bind group of a launch block of `size` bytes and these buffers. The lock is held."""
        try:
            return self.group(layout, self.stream.blocks, size, buffers)
        except self.errors as error:
            raise DeviceError(
                f"webgpu: buffers cannot be bound: {error}; {self.stream.hint}"
            ) from error
