"""WGSL text to a shader module: through wgpu's method, or by the native library, with fewer checks.

wgpu adds a counter to every loop, so that none is endless, and a test to every index of an array.
Loops of our texts end, and their indices are inside, so the native library is asked to leave
those out, except in the checking build. Tests that a driver makes by itself remain.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rushlight.core import config

Make = Callable[[str], Any]
BOUNDS, LOOPS = 1, 2  # WGPUShaderRuntimeChecks


def shader_maker(gpu: Any) -> Make:
    """The way that this version of wgpu has."""
    try:
        api = importlib.import_module("wgpu.backends.wgpu_native._api")
        ffi, library = api.ffi, api.lib
        make, wrap = api.libf.wgpuDeviceCreateShaderModuleTrusted, api.GPUShaderModule
        kind, handle = library.WGPUSType_ShaderSourceWGSL, gpu._internal
    except (ImportError, AttributeError):
        return lambda text: gpu.create_shader_module(code=text)

    checks = BOUNDS | LOOPS if config.is_checking() else 0

    def shader(text: str) -> Any:
        data = text.encode()
        kept = ffi.new("char[]", data)  # alive until the call returns
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = kind
        source.code.data, source.code.length = kept, len(data)
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        return wrap("", make(handle, descriptor, checks), gpu)

    return shader
