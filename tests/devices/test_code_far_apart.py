"""Kernels load where the free address space lies in pieces that are far apart."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.time_limit import WAIT

PROGRAM = """
import ctypes, mmap, sys
import rushlight

x = rushlight.arange(8.0)
x.exp()  # everything but the kernel of `sin` is loaded
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
NORESERVE, PAGE, FAR = 0x4000, mmap.PAGESIZE, 4 << 30


def reserve(size):
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    return libc.mmap(None, size, 0, flags, -1, 0)


hole = reserve(3 * PAGE)
far = reserve(FAR)
while reserve(PAGE) > far:  # fill the free pages above
    pass
reserve(FAR)
libc.munmap(hole + PAGE, PAGE)  # room for one section of the code and no other
print(float(x.sin().sum()))
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="mmap places memory by Linux's rule"
)
def test_sections_of_a_kernel_stay_together(tmp_path):
    """Relative addresses reach 2 GiB: LLVM ends the process where a section lies beyond."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "RUSHLIGHT_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.returncode == 0, done.stderr
    assert abs(float(done.stdout) - 0.55373) < 1e-4
