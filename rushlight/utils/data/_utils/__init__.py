"""PyTorch's inner place for how samples become batches, which programs import from."""

from __future__ import annotations

from rushlight.utils.data._utils import collate as collate
