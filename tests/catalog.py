"""The catalog: one row per public op. `test_catalog.py` checks that its names are the registry's."""

from __future__ import annotations

from tests import catalog_elementwise, catalog_rows, catalog_shapes

ROWS = [*catalog_elementwise.ROWS, *catalog_rows.ROWS, *catalog_shapes.ROWS]
BY_NAME = {row.name: row for row in ROWS}
