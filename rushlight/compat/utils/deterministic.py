"""PyTorch's `torch.utils.deterministic`: what fills the memory of `empty`."""

from __future__ import annotations

import sys
from types import ModuleType

from rushlight.core.saying import say_once


class _Deterministic(ModuleType):
    """`fill_uninitialized_memory`, as PyTorch stores it."""

    _fills = True

    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether PyTorch fills new memory where algorithms are deterministic."""
        return self._fills

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise RuntimeError(f"fill_uninitialized_memory is True or False, got {mode!r}")
        if mode and not self._fills:
            say_once("utils.deterministic: memory of empty() is not filled; use zeros() or full()")
        self._fills = mode


sys.modules[__name__].__class__ = _Deterministic
