"""PyTorch's `torch.return_types`: the named tuples that functions give."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from rushlight.lazy import MissingName

_ALONG = "cummax cummin kthvalue max median min mode nanmedian sort topk"
_WHOLE = "aminmax frexp linalg_eigh linalg_qr linalg_slogdet linalg_svd qr slogdet svd"
__all__ = [*_ALONG.split(), *_WHOLE.split()]


@functools.cache
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise MissingName("torch.return_types", name)
    package = importlib.import_module("rushlight")
    holder = package.linalg if name.startswith("linalg_") else package
    function = getattr(holder, name.removeprefix("linalg_"))
    one = package.ones(1, 1, device="cpu")
    if name not in _ALONG.split():
        return type(function(one))
    return type(function(one, 1, 0) if name in ("kthvalue", "topk") else function(one, 0))


def __dir__() -> list[str]:
    return __all__
