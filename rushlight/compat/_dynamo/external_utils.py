"""PyTorch's `torch._dynamo.external_utils`: questions about its compiler."""

from __future__ import annotations

from rushlight.compat.compiler import is_compiling as is_compiling
