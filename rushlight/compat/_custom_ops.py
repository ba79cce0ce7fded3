"""PyTorch's `torch._custom_ops`: the older home of `library.custom_op`."""

from __future__ import annotations

from rushlight.compat.library import (
    custom_op as custom_op,
    impl as impl,
)
