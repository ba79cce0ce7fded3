"""PyTorch's `torch.utils.data.datapipes`: datasets made of others, each a step of a pipeline.

Owns: iterable pipes and pipes by index, their functional forms. Takes: iterables, sequences,
functions. Gives: samples. Never: reads data frames, decodes files.
"""

from __future__ import annotations

from rushlight.compat.utils.data.datapipes import (
    _decorator as _decorator,
    datapipe as datapipe,
    iter as iter,
    map as map,
)
