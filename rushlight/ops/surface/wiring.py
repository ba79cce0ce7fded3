"""Hands the tape the ops it calls itself, and imports every file that declares ops: all of the folders of `ops/`."""

from __future__ import annotations

import importlib
import pkgutil

from rushlight import ops
from rushlight.ops.batching import rules
from rushlight.ops.create import creation
from rushlight.ops.create.creation import fill_plan, full_spec
from rushlight.ops.optim import whole_steps
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.surface import inplace, out, shortcuts
from rushlight.ops.view import complex_parts, view_of_base, views
from rushlight.tape.record import call
from rushlight.tape.record.needed import provide

for _folder in pkgutil.iter_modules(ops.__path__, "rushlight.ops."):
    if _folder.ispkg:
        _paths = importlib.import_module(_folder.name).__path__
        for _file in pkgutil.iter_modules(_paths, f"{_folder.name}."):
            importlib.import_module(_file.name)

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

LOADED = rules  # which provide on import
shortcuts.install()
