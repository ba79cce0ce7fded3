"""How samples become batches, under PyTorch's inner name."""

from __future__ import annotations

from rushlight.utils.data.collate import (
    collate as collate,
    default_collate as default_collate,
    default_convert as default_convert,
)
