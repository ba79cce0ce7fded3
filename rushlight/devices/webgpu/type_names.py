"""Names of C types, which wgpu looks up with cffi's parser: without the typedefs they do not hold.

cffi puts every typedef of wgpu's header, some 440, before each name that it parses for the first
time. A process needs some 45 names until the first result, which took most of the time to open the
device.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

_TYPEDEF = "typedef "


def shorten_lookups() -> None:
    """Have cffi parse a name with the typedefs in it alone, where its version allows that."""
    try:
        parser = importlib.import_module("wgpu.backends.wgpu_native._ffi").ffi._parser
        whole, declared = parser._parse, parser._declarations
    except (ImportError, AttributeError):
        return
    if "_parse" in vars(parser):  # it is done
        return

    def parse(source: str) -> Any:
        """`Parser._parse`, called under cffi's lock; it reads the typedefs' names."""
        names = (_TYPEDEF + word for word in re.findall(r"\w+", source))
        parser._declarations = {name: declared[name] for name in names if name in declared}
        try:
            return whole(source)
        finally:
            parser._declarations = declared

    parser._parse = parse
