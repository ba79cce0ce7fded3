"""Gives the tape the ops it calls itself, and the registry the functions that users call."""

from __future__ import annotations

from rushlight.ops.create import creation
from rushlight.ops.create.creation import fill_plan, full_spec
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import REGISTRY
from rushlight.ops.surface import memoised
from rushlight.ops.view import complex_parts, inplace, views
from rushlight.ops.view.laid import laid
from rushlight.tape.record import call
from rushlight.tape.record.needed import provide, provide_later

provide(
    add=e.add,
    add_into=inplace.add_into,
    copy_into=inplace.copy_into,
    clone=e.clone,
    cast=e.cast,
    sum_to=reductions.sum_to,
    rooted=call.rooted,
    rebase=inplace.rebase,
    constant_in=inplace.constant_in,
    full=full_spec,
    number=lambda value: creation.full((), value),
    fill_plan=fill_plan,
    with_view=complex_parts.with_view,
    reshape=views.reshape,
    permute=views.permute,
    cat=views.cat,
    contiguous=views.broadcast_copy,
    laid=laid,
)
provide_later(
    add_all="rushlight.ops.optim.whole_steps:add_all",
    batch_rule="rushlight.ops.batching.rules:rule_of",
    replace_data="rushlight.ops.surface.inplace_views:replace_data",
    spread="rushlight.ops.view.lanes:spread",
    store_out="rushlight.ops.surface.store:store",
    view_of="rushlight.ops.index.view_of_base:view_of",
)
REGISTRY.finish = memoised.finished
