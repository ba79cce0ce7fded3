"""PyTorch's choice among ways to compute attention. Here there is one, tiled, for every device: any choice gives it."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence


class SDPBackend(enum.IntEnum):
    """The ways PyTorch knows."""

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
    """A block in which scaled_dot_product_attention is computed in one of some ways; its results are the same in all."""
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, (list, tuple)) or not all(
        isinstance(one, SDPBackend) for one in given
    ):
        raise AssertionError(
            f"sdpa_kernel: a SDPBackend or a list of them is expected, got {backends!r}"
        )
    yield
