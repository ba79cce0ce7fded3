"""Tensors in files.

Owns: `save` and `load` of nested Python containers of tensors, safetensors files.
Takes: tensors, dicts, lists, numbers, strings; paths or file objects. Gives: the same back.
Never: runs code from a file, except on request.
"""

from rushlight.io.limits import UnsafeFile
from rushlight.io.pickled import load
from rushlight.io.safe import load_file, save_file
from rushlight.io.writing import save
from rushlight.lazy import shown

__all__ = ["UnsafeFile", "load", "load_file", "save", "save_file"]


def __dir__() -> list[str]:
    return shown(__name__)
