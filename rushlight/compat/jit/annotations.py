"""PyTorch's `torch.jit.annotations`: types for annotations."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional as Optional

Future = Any
Dict, List, Tuple = dict, list, tuple
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list


class Attribute(NamedTuple):
    """A value and the type that TorchScript would give it."""

    value: Any
    type: Any
