"""Rows for second names of ops: the row of the first name, called by the other."""

from __future__ import annotations

from tests import catalog_elementwise
from tests.catalog_row import alias

_FIRST = {row.name: row for row in catalog_elementwise.ROWS}

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
