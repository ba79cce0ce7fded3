"""PyTorch's choice among attention implementations.

Every choice gives the one tiled implementation.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence


class SDPBackend(enum.IntEnum):
    """PyTorch's attention implementations."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(
    backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False
) -> Iterator[None]:
    """A block with a choice of attention implementations; it has no effect on the results."""
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, (list, tuple)) or not all(
        isinstance(one, SDPBackend) for one in given
    ):
        raise AssertionError(
            f"sdpa_kernel: a SDPBackend or a list of them is expected, got {backends!r}"
        )
    yield
