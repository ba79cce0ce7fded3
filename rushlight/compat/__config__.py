"""PyTorch's `torch.__config__`: how the package was built."""

from __future__ import annotations

from rushlight.version import __version__


def show() -> str:
    """A line: kernels are compiled when they are first used."""
    return f"Rushlight {__version__}: kernels are compiled when they are first used"


def parallel_text() -> str:
    """A line about threads."""
    return "threads: get_num_threads() of the package"


globals()["parallel_info"] = parallel_text
