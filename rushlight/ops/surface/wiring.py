"""Hands the tape the ops it calls itself, and imports every file that declares ops."""

from __future__ import annotations

from rushlight.ops.batching import rules
from rushlight.ops.create import creation, kaiser_window, like
from rushlight.ops.create.creation import fill_plan, full_spec
from rushlight.ops.fft import stft, transforms
from rushlight.ops.index import gather, select, subscript, unravel_index
from rushlight.ops.linalg import (
    decompositions,
    distances,
    eigenvalues,
    einsum,
    low_rank,
    matmul,
    matrix_functions,
    products,
    solve,
)
from rushlight.ops.nn import (
    activations,
    adaptive_pooling,
    attention,
    convolution,
    cross_entropy,
    ctc,
    dropout,
    embedding,
    fractional_pooling,
    grid_sample,
    group_norm,
    interpolate,
    losses as criteria,
    multi_head,
    padding,
    pixel_shuffle,
    pooling,
    recurrent,
    softmax,
    unpooling,
)
from rushlight.ops.optim import whole_steps
from rushlight.ops.pointwise import (
    arithmetic as e,
    bessel,
    complex_numbers,
    division,
    gamma,
    numbers,
    polynomials,
    scaled,
    special,
    transcendental,
)
from rushlight.ops.random import distributions, random, rejection
from rushlight.ops.reduce import (
    covariance,
    cumulative,
    gradient,
    reductions,
    segment_reduce,
    statistics,
)
from rushlight.ops.sort import ranking, searchsorted, sort, unique
from rushlight.ops.surface import aliases, inplace, out, saved_names, shortcuts
from rushlight.ops.view import complex_parts, joining, reshaping, view_of_base, views
from rushlight.tape.record import call
from rushlight.tape.record.needed import provide

DECLARED = (
    activations,
    adaptive_pooling,
    aliases,
    attention,
    embedding,
    bessel,
    complex_numbers,
    scaled,
    convolution,
    covariance,
    criteria,
    ctc,
    cumulative,
    decompositions,
    eigenvalues,
    distances,
    division,
    distributions,
    dropout,
    e,
    einsum,
    transforms,
    fractional_pooling,
    stft,
    gamma,
    grid_sample,
    gather,
    joining,
    kaiser_window,
    cross_entropy,
    low_rank,
    like,
    matmul,
    matrix_functions,
    multi_head,
    softmax,
    group_norm,
    padding,
    unravel_index,
    complex_parts,
    numbers,
    polynomials,
    pooling,
    products,
    random,
    ranking,
    recurrent,
    reductions,
    interpolate,
    reshaping,
    rejection,
    saved_names,
    searchsorted,
    segment_reduce,
    select,
    pixel_shuffle,
    gradient,
    solve,
    sort,
    special,
    statistics,
    subscript,
    transcendental,
    unique,
    unpooling,
    views,
)

provide(
    add=e.add,
    add_into=inplace.add_into,
    add_all=whole_steps.add_all,
    copy_into=inplace.copy_into,
    clone=e.clone,
    cast=e.cast,
    sum_to=reductions.sum_to,
    rooted=call.rooted,
    rebase=inplace.rebase,
    constant_in=inplace.constant_in,
    store_out=out.store,
    full=full_spec,
    number=lambda value: creation.full((), value),
    fill_plan=fill_plan,
    view_of=view_of_base.view_of,
    with_view=complex_parts.with_view,
    reshape=views.reshape,
    permute=views.permute,
    cat=views.cat,
    contiguous=views.broadcast_copy,
)

BATCHING = rules
shortcuts.install()
