"""The catalog: one row per public op. `test_catalog.py` checks that its names are the registry's."""

from __future__ import annotations

from tests import (
    catalog_aliases,
    catalog_attention,
    catalog_bags,
    catalog_complex,
    catalog_cumulative,
    catalog_decompositions,
    catalog_elementwise,
    catalog_fourier,
    catalog_images,
    catalog_linalg,
    catalog_making,
    catalog_places,
    catalog_pointwise,
    catalog_products,
    catalog_ranking,
    catalog_recurrent,
    catalog_rows,
    catalog_selection,
    catalog_shapes,
    catalog_special,
    catalog_statistics,
    catalog_windows,
)

ROWS = [
    *catalog_recurrent.ROWS,
    *catalog_aliases.ROWS,
    *catalog_attention.ROWS,
    *catalog_bags.ROWS,
    *catalog_complex.ROWS,
    *catalog_cumulative.ROWS,
    *catalog_elementwise.ROWS,
    *catalog_fourier.ROWS,
    *catalog_places.ROWS,
    *catalog_pointwise.ROWS,
    *catalog_rows.ROWS,
    *catalog_selection.ROWS,
    *catalog_shapes.ROWS,
    *catalog_ranking.ROWS,
    *catalog_products.ROWS,
    *catalog_windows.ROWS,
    *catalog_images.ROWS,
    *catalog_special.ROWS,
    *catalog_statistics.ROWS,
    *catalog_making.ROWS,
    *catalog_linalg.ROWS,
    *catalog_decompositions.ROWS,
]
BY_NAME = {row.name: row for row in ROWS}
