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


def __getattr__(name: str) -> Any:
    if name == "aten":  # PyTorch's native names, which are above this room
        return importlib.import_module("rushlight.compat.aten").aten
    if name == "load_library":
        return importlib.import_module("rushlight.compat.library").load_library
    library = sys.modules.get("rushlight.compat.library")  # users' ops
    found = None if library is None else library.namespace(name)
    if found is not None:
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
