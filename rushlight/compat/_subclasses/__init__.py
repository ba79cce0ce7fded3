"""PyTorch's `torch._subclasses`: tensors without data, which are of the device meta here."""

from __future__ import annotations

from rushlight.compat._subclasses import fake_tensor as fake_tensor
from rushlight.compat._subclasses.fake_tensor import (
    FakeTensor as FakeTensor,
    FakeTensorMode as FakeTensorMode,
)
