"""Planners, under PyTorch's names: what of a state may be missing."""

from __future__ import annotations

from typing import Any


class DefaultSavePlanner:
    """Writes all of a state.

    Args:
        *options: Have no effect.
        **named: Have no effect.
    """

    def __init__(self, *options: Any, **named: Any) -> None:
        pass


class DefaultLoadPlanner:
    """Fills a state.

    Args:
        flatten_state_dict (bool): Has no effect: tensors are named by their paths.
        flatten_sharded_tensors (bool): Has no effect.
        allow_partial_load (bool): Whether what a folder lacks stays as it is.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.allow_partial_load = allow_partial_load
