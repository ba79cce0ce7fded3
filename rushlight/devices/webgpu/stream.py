"""The stream: dispatches are encoded as they come and submitted in batches.

# Note [Stream order]
1. All dispatches between two submits are in one compute pass; WebGPU orders them by itself.
2. Launch blocks lie in one uniform buffer, each dispatch at its own offset. They are written just
   before the submit, which is after all earlier submits in the queue's order, so the buffer is
   reused at once.
3. Whatever else touches the queue (copies) flushes first. A freed buffer is destroyed after the
   flush.
4. A device that the host has waited for is idle until the next submit. So the first submits after
   a wait are small (`FIRST` dispatches), each twice the one before, up to `BATCH`.
5. Ctrl-C may come between any two steps. In `record` it loses at most the dispatch being queued,
   whose place in the buffer is taken before it is used; queued dispatches are submitted as a whole.
   A pass is begun and ended with signals deferred: an encoder and its pass belong together.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import DeviceError
from rushlight.core.interrupts import Uninterrupted
from rushlight.devices.webgpu.adapter import Opened
from rushlight.devices.webgpu.dispatch import dispatcher

BATCH = 512  # dispatches in one submit: those of a step of a small GPT
FIRST = 64  # in the first after a wait; a submit costs as much as some thirty
BLOCKS = 1 << 17  # bytes of launch blocks
MOST_GROUPS = 65535  # workgroups per dimension
MOST_WORK = 1 << 35  # steps in one submit: driver watchdogs end long ones


class Stream:
    """The queued work of one device."""

    def __init__(self, opened: Opened) -> None:
        self.gpu = opened.gpu
        self.hint = opened.hint
        self.errors = (opened.wgpu.GPUError, RuntimeError)
        usage = opened.wgpu.BufferUsage
        self.blocks = self.gpu.create_buffer(size=BLOCKS, usage=usage.UNIFORM | usage.COPY_DST)
        self.align = max(16, opened.limits["min-uniform-buffer-offset-alignment"])
        self._bytes = bytearray(BLOCKS)
        self._used = 0
        self._count = 0
        self._most = BATCH  # dispatches in the submit to come
        self._work = 0
        self._encoder: Any = None
        self._pass: Any = None
        self._pipeline: Any = None
        self._dispatch = dispatcher()
        self.doomed: list[Any] = []

    @property
    def idle(self) -> bool:
        return self._encoder is None

    def record(
        self, pipeline: Any, group: Any, block: bytes, groups: tuple[int, int], work: int
    ) -> None:
        """Queue one dispatch."""
        end = self._used + len(block)
        if self._count >= self._most or end > BLOCKS or self._work + work > MOST_WORK:
            self.flush()
            end = len(block)
        if self._pass is None:
            with Uninterrupted():
                self._begin()
        at = self._used
        self._used = -(-end // self.align) * self.align
        self._count += 1
        self._work += work
        self._bytes[at:end] = block
        if pipeline is self._pipeline:
            self._dispatch(self._pass, None, group, at, groups)
        else:
            self._pipeline = None
            self._dispatch(self._pass, pipeline, group, at, groups)
            self._pipeline = pipeline

    def wake(self) -> None:
        """The host has waited for the device."""
        self._most = FIRST

    def _begin(self) -> None:
        """Begin a pass."""
        encoder = self.gpu.create_command_encoder()
        self._pass = encoder.begin_compute_pass()
        self._encoder = encoder

    def _end(self) -> None:
        """End what is encoded, before it is submitted."""
        self._pass.end()

    def flush(self) -> None:
        """Submit the queued dispatches."""
        with Uninterrupted():
            self._flush()

    def _flush(self) -> None:
        if self._encoder is not None:
            encoder, used = self._encoder, self._used
            self._most = min(BATCH, 2 * self._most)
            self._end()
            self._forget()
            try:
                commands = encoder.finish()
                self.gpu.queue.write_buffer(self.blocks, 0, self._bytes, 0, -(-used // 4) * 4)
                self.gpu.queue.submit([commands])
            except self.errors as error:
                raise DeviceError(f"webgpu: queued work failed: {error}; {self.hint}") from error
        for buffer in self.doomed:
            buffer.destroy()
        self.doomed.clear()

    def _forget(self) -> None:
        self._encoder = self._pass = self._pipeline = None
        self._used = self._count = self._work = 0


def split(groups: int, work: int) -> list[tuple[int, tuple[int, int]]]:
    """Dispatches (first workgroup, grid) that cover `groups` workgroups of `work` steps each.

    Only the last one may have workgroups to spare, which kernels ignore; running a workgroup twice
    would be wrong.
    """
    most = max(1, MOST_WORK // max(1, work))
    if groups <= most and groups <= MOST_GROUPS:
        return [(0, (groups, 1))]
    if most > MOST_GROUPS:
        most = most // MOST_GROUPS * MOST_GROUPS
    parts = []
    for first in range(0, groups, most):
        count = min(most, groups - first)
        tall = -(-count // MOST_GROUPS)
        parts.append(
            (first, (-(-count // tall) if count < most or tall == 1 else MOST_GROUPS, tall))
        )
    return parts
