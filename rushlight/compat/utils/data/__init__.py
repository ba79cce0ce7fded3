"""What `torch.utils.data` has beside datasets and loaders."""

from __future__ import annotations

from rushlight.compat.utils.data import graph_settings as graph_settings
