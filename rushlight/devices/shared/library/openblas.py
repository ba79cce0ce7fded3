"""The OpenBLAS that came with NumPy: BLAS and LAPACK with 64-bit integers, called by name."""

from __future__ import annotations

import ctypes
import glob
import os
from functools import cache


@cache
def library() -> ctypes.CDLL | None:
    """The library, set to one thread, since this package's pool splits work.

    None where NumPy has another.
    """
    import numpy

    home = os.path.dirname(numpy.__file__)
    patterns = ("../numpy.libs/*openblas64_*", ".libs/*openblas64_*", ".dylibs/*openblas64_*")
    for pattern in patterns:
        for path in glob.glob(os.path.join(home, pattern)):
            try:
                found = ctypes.CDLL(os.path.realpath(path))
                found.scipy_openblas_set_num_threads64_(1)
            except (OSError, AttributeError):
                continue
            return found
    return None


@cache
def is_wide() -> bool:
    """Whether the library's kernels have registers of 512 bits; it knows processors by name."""
    found = library()
    try:
        named = None if found is None else found.scipy_openblas_get_corename64_
    except AttributeError:
        return True
    if named is None:
        return True
    named.restype = ctypes.c_char_p
    return named() in (b"SkylakeX", b"Cooperlake", b"SapphireRapids")
