"""PyTorch's type promotion as tables, read off torch.result_type of PyTorch 2.13.

A letter per type: b bool, u uint8, c int8, s int16, i int32, l int64, h float16, w bfloat16, f
float32, d float64. A row per type of the first operand, a column per type of the second.
"""

from __future__ import annotations

from rushlight.core.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)

LETTERS = {
    "b": bool_,
    "u": uint8,
    "c": int8,
    "s": int16,
    "i": int32,
    "l": int64,
    "h": float16,
    "w": bfloat16,
    "f": float32,
    "d": float64,
}

# Two tensors of one group: both have dimensions, or both are 0-dim.
EQUAL = """
    bucsilhwfd
    uussilhwfd
    cscsilhwfd
    ssssilhwfd
    iiiiilhwfd
    llllllhwfd
    hhhhhhhffd
    wwwwwwfwfd
    fffffffffd
    dddddddddd
"""
# A tensor with dimensions and a 0-dim tensor: the second counts only by its kind.
WITH_NUMBER = """
    bucsilhwfd
    uuuuuuhwfd
    cccccchwfd
    sssssshwfd
    iiiiiihwfd
    llllllhwfd
    hhhhhhhhhh
    wwwwwwwwww
    ffffffffff
    dddddddddd
"""
# A tensor, of any dimensions, and a Python True, 1 or 1.5.
WITH_PYTHON = """
    blf
    uuf
    ccf
    ssf
    iif
    llf
    hhh
    www
    fff
    ddd
"""
PYTHON_NUMBERS = (True, 1, 1.5)


def table(text: str) -> list[tuple[DType, int, DType]]:
    """(first type, column, result type) for each entry."""
    rows = zip(LETTERS.values(), text.split(), strict=True)
    return [
        (first, column, LETTERS[letter]) for first, row in rows for column, letter in enumerate(row)
    ]
