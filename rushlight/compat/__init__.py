"""The rest of PyTorch's module tree, its older and native names, and the import hook.

Owns: `torch.jit`, `torch.backends` and others by their path below `torch`, names that PyTorch keeps
for old programs, functions beneath its public ones, `import torch` under `rushlight run`.
Takes: public ops. Gives: names of the package.
Never: holds behaviour that users of `rushlight` itself need.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.modules(
    """
    _C _dynamo _higher_order_ops _jit_internal _subclasses __config__ ao backends compiler
    distributed export futures fx hub jit library mps multiprocessing onnx overrides package
    return_types torch_version types xpu
    """
)
__all__ = sorted(name for name in _NAMES.sources if name[0] != "_")


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
