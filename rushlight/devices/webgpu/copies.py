"""Copies between host and device: whole words by the queue, odd bytes by a small kernel."""

from __future__ import annotations

import struct
from typing import Any

from rushlight.core.errors import DeviceError
from rushlight.devices.webgpu.driver import Driver

WINDOW = 1 << 24  # bytes of the staging buffer at most

_PATCH = """struct Launch {
    word: u32,
    mask: u32,
    value: u32,
}
@group(0) @binding(0) var<uniform> launch: Launch;
@group(0) @binding(1) var<storage, read_write> buffer0: array<u32>;
@compute @workgroup_size(1)
fn main() {
    buffer0[launch.word] = (buffer0[launch.word] & ~launch.mask) | (launch.value & launch.mask);
}
"""


class Copies:
    """Writes and reads of one device's buffers, in order with its stream."""

    def __init__(self, device: Driver) -> None:
        self.device = device
        self._staging: Any = None
        self._patch: tuple[Any, Any] | None = None

    def write(self, buffer: Any, offset: int, source: memoryview) -> None:
        """Host bytes to `buffer` at `offset`, after all queued work."""
        end = offset + len(source)
        first, last = -(-offset // 4) * 4, end // 4 * 4
        if first > last:  # inside one word
            self._patch_word(buffer, offset, source)
            return
        if first > offset:
            self._patch_word(buffer, offset, source[: first - offset])
        if last > first:
            self.device.stream.flush()
            middle = source[first - offset : last - offset]
            try:
                self.device.gpu.queue.write_buffer(buffer, first, middle)
            except self.device.errors as error:
                raise DeviceError(
                    f"webgpu: copy to the device failed: {error}; {self.device.stream.hint}"
                ) from error
        if end > last:
            self._patch_word(buffer, last, source[last - offset :])

    def _patch_word(self, buffer: Any, offset: int, source: memoryview) -> None:
        """A few bytes inside one word."""
        device = self.device
        if self._patch is None:
            self._patch = device.compile(_PATCH, (True,), 16)
        pipeline, group_layout = self._patch
        group = device.bind_group(group_layout, 16, (buffer,))
        shift = offset % 4 * 8
        mask = ((1 << (8 * len(source))) - 1) << shift
        value = int.from_bytes(source, "little") << shift
        device.stream.record(
            pipeline, group, struct.pack("<4I", offset // 4, mask, value, 0), (1, 1), 1
        )

    def read(self, buffer: Any, offset: int, target: memoryview) -> None:
        """Bytes of `buffer` into `target`, after all queued work."""
        self.device.stream.flush()
        try:
            self._read(buffer, offset, target)
        except BaseException:
            self._staging = None  # it may still be mapped
            raise

    def _read(self, buffer: Any, offset: int, target: memoryview) -> None:
        done = 0
        while done < len(target):
            start = (offset + done) // 4 * 4
            skip = offset + done - start
            count = min(len(target) - done, WINDOW - skip)
            words = self._fetch(buffer, start, -(-(skip + count) // 4) * 4)
            target[done : done + count] = words[skip : skip + count]
            self._staging.unmap()
            done += count

    def _fetch(self, buffer: Any, start: int, size: int) -> memoryview:
        """A view of `size` bytes, valid until the staging buffer is unmapped."""
        gpu = self.device.gpu
        try:
            if self._staging is None or self._staging.size < size:
                usage = self.device.wgpu.BufferUsage
                room = min(WINDOW, max(4096, 1 << (size - 1).bit_length()))
                self._staging = gpu.create_buffer(size=room, usage=usage.MAP_READ | usage.COPY_DST)
            encoder = gpu.create_command_encoder()
            encoder.copy_buffer_to_buffer(buffer, start, self._staging, 0, size)
            gpu.queue.submit([encoder.finish()])
            self._staging.map_sync("READ", 0, size)
            self.device.stream.wake()
            return self._staging.read_mapped(0, size, copy=False)
        except self.device.errors as error:
            raise DeviceError(
                f"webgpu: copy from the device failed: {error}; {self.device.stream.hint}"
            ) from error
