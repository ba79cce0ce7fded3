"""The catalog: one row per public op.

`test_catalog.py` checks that its names are the registry's.
"""

from __future__ import annotations

from tests.catalog.rows import (
    aliases,
    attention,
    complex,
    contractions,
    convolution,
    creation,
    cumulative,
    decompositions,
    elementwise,
    embedding,
    fft,
    images,
    indexing,
    linalg,
    normalise,
    pointwise,
    products,
    ranking,
    recurrent,
    reductions,
    samplers,
    selection,
    shapes,
    special,
    statistics,
    unravel_index,
)

ROWS = [
    *recurrent.ROWS,
    *aliases.ROWS,
    *attention.ROWS,
    *embedding.ROWS,
    *complex.ROWS,
    *cumulative.ROWS,
    *elementwise.ROWS,
    *fft.ROWS,
    *unravel_index.ROWS,
    *pointwise.ROWS,
    *reductions.ROWS,
    *normalise.ROWS,
    *contractions.ROWS,
    *indexing.ROWS,
    *samplers.ROWS,
    *selection.ROWS,
    *shapes.ROWS,
    *ranking.ROWS,
    *products.ROWS,
    *convolution.ROWS,
    *images.ROWS,
    *special.ROWS,
    *statistics.ROWS,
    *creation.ROWS,
    *linalg.ROWS,
    *decompositions.ROWS,
]
BY_NAME = {row.name: row for row in ROWS}
