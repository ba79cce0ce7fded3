"""Every op, one declaration each.

Owns: names, accepted dtypes, shape rules, formulas, derivatives, docs; the families that turn them
into kernels.
Takes: values, Python numbers, static parameters. Gives: values, recorded on the tape.
Never: imports a particular device, accesses memory other than through the allocator.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_ABOVE = {  # PyTorch's namespaces of native ops, which are above this room
    "aten": "rushlight.compat.aten",
    "load_library": "rushlight.compat.library",
    "profiler": "rushlight.compat.labels",
}


def __getattr__(name: str) -> Any:
    if name in _ABOVE:
        return getattr(importlib.import_module(_ABOVE[name]), name)
    library = sys.modules.get("rushlight.compat.library")  # users' ops
    found = None if library is None else library.namespace(name)
    if found is not None:
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
