"""One encoded dispatch: through wgpu's methods, or by the native library, in a third of the time.

A pass keeps its errors until it ends, so wgpu's checks after each call can be left out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

# Pass, pipeline (None: that of the last dispatch), bind group, offset of the launch block, grid.
Dispatch = Callable[[Any, Any, Any, int, tuple[int, int]], None]


def dispatcher() -> Dispatch:
    """The fastest way that this version of wgpu has."""
    try:
        native = importlib.import_module("wgpu.backends.wgpu_native._ffi")
        library, offset = native.lib, native.ffi.new("uint32_t[1]")
        choose = library.wgpuComputePassEncoderSetPipeline
        bind = library.wgpuComputePassEncoderSetBindGroup
        launch = library.wgpuComputePassEncoderDispatchWorkgroups
    except (ImportError, AttributeError):
        return _by_methods

    def dispatch(encoder: Any, pipeline: Any, group: Any, at: int, grid: tuple[int, int]) -> None:
        handle = encoder._internal
        if pipeline is not None:
            choose(handle, pipeline._internal)
        offset[0] = at
        bind(handle, 0, group._internal, 1, offset)
        launch(handle, grid[0], grid[1], 1)

    return dispatch


def _by_methods(encoder: Any, pipeline: Any, group: Any, at: int, grid: tuple[int, int]) -> None:
    if pipeline is not None:
        encoder.set_pipeline(pipeline)
    encoder.set_bind_group(0, group, (at,))
    encoder.dispatch_workgroups(grid[0], grid[1])
