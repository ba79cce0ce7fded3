"""Hands the tape the ops it calls itself, and imports every file that declares ops."""

from __future__ import annotations

from rushlight.ops import (
    composite,
    convolution,
    elementwise as e,
    indexing,
    inplace,
    losses,
    matmul,
    normalise,
    random,
    reductions,
    views,
)
from rushlight.ops.creation import full_spec
from rushlight.tape.needed import provide

DECLARED = (composite, convolution, e, indexing, losses, matmul, normalise, random, reductions, views)

provide(
    add=e.add,
    add_into=inplace.add_into,
    clone=e.clone,
    cast=e.cast,
    sum_to=reductions.sum_to,
    full=full_spec,
    view_of=views.view_of,
    reshape=views.reshape,
    contiguous=views.broadcast_copy,
)
