"""PyTorch's `torch.utils.module_tracker`: which modules run now, forward and backward."""

from __future__ import annotations

import weakref
from typing import Any

from rushlight.nn.modules import module as hooks
from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_leaves

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """In a block, `parents` is the set of paths of the modules that run; "Global" is always in it.

    A path begins with the class of the outermost module. Backward counts as running a module from
    the gradient of its outputs to that of its inputs.
    """

    parents: set[str]

    def __init__(self) -> None:
        self.parents = {"Global"}
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self._in_backward = False

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass runs."""
        return self._in_backward

    def _path(self, module: Any) -> str:
        found = self._paths.get(module)
        if found is not None:
            return found
        name = type(module).__name__
        for inner, child in module.named_modules():
            self._paths[child] = f"{name}.{inner}" if inner else name
        return self._paths[module]

    def _begin(self, name: str, backward: bool) -> Any:
        def begin(gradient: Any) -> None:
            self._in_backward = backward
            self.parents.add(name)

        return begin

    def _end(self, name: str) -> Any:
        def end(gradient: Any) -> None:
            self.parents.discard(name)
            self._in_backward = self.parents != {"Global"}

        return end

    def _before(self, module: Any, given: Any) -> None:
        name = self._path(module)
        self._in_backward = False
        self.parents.add(name)
        for tensor in tree_leaves(given):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                self._handles.append(tensor.register_hook(self._end(name)))

    def _after(self, module: Any, given: Any, made: Any) -> None:
        name = self._path(module)
        self.parents.discard(name)
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                self._handles.append(tensor.register_hook(self._begin(name, True)))

    def __enter__(self) -> ModuleTracker:
        self._handles = [
            hooks.register_module_forward_pre_hook(self._before),
            hooks.register_module_forward_hook(self._after),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.parents = {"Global"}
        self._in_backward = False
