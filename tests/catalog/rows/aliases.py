"""Rows for second names of ops: the row of the first name, called by the other."""

from __future__ import annotations

from tests.catalog.row import alias
from tests.catalog.rows import elementwise

_FIRST = {row.name: row for row in elementwise.ROWS}

ROWS = [
    alias(_FIRST[name], second)
    for second, name in (
        ("absolute", "abs"),
        ("clip", "clamp"),
        ("fix", "trunc"),
        ("greater", "gt"),
        ("greater_equal", "ge"),
        ("less", "lt"),
        ("less_equal", "le"),
        ("negative", "neg"),
        ("not_equal", "ne"),
    )
]
