"""PyTorch's `torch.utils.data.datapipes`: the base classes; pipes are not supported."""

from __future__ import annotations

from rushlight.compat.utils.data.datapipes import datapipe as datapipe
