"""Which op has which batching rule: by its kernel family, by its name where a family's ops have arguments of their own."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops.attention import Attention, AttentionGrad
from rushlight.ops.batching import draws, lanes, libraries, loops, places, products, seen
from rushlight.ops.cumulative import Running
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.family.library import LibraryOp
from rushlight.ops.family.map import Elementwise, MapOp
from rushlight.ops.family.rowwise import RowOp
from rushlight.ops.family.view import View, Views
from rushlight.ops.losses import CrossEntropy
from rushlight.ops.random import Dropout
from rushlight.ops.sorting import SortOp
from rushlight.ops.underived import Recorded
from rushlight.tape.needed import provide
from rushlight.tape.op import Op

FAMILIES: dict[type[Op], Any] = {
    Elementwise: loops.elementwise_rule,
    MapOp: loops.map_rule,
    Dropout: draws.dropout_rule,
    CrossEntropy: loops.classes_rule,
    RowOp: loops.row_rule,
    Running: loops.scan_rule,
    SortOp: loops.sort_rule,
    Views: seen.view_rule,
    LibraryOp: libraries.library_rule,
    Attention: libraries.attention_rule,
    AttentionGrad: libraries.attention_rule,
    Recorded: places.stand_rule,
}
VIEWS: dict[str, Any] = {
    **dict.fromkeys(seen.SHIFTS, seen.view_rule),
    "expand": seen.expand_rule,
    "view_as_complex": seen.complex_rule,
    "as_strided": seen.strided_rule,
}
KERNELS: dict[str, Any] = {
    "matmul": products.matmul_rule,
    "linear": products.linear_rule,
    "convolution": products.convolution_rule,
    "convolution_back": products.convolution_rule,
    "convolution_weights": products.weights_rule,
    "gather": places.gather_rule,
    "scatter_add": places.scatter_rule,
    "scatter_zero": places.scatter_zero_rule,
    "scatter_reduce": places.scatter_rule,
    "scatter": places.scatter_rule,
    "max_unpool": places.scatter_rule,
    "embedding": places.rows_rule,
    "embedding_grad": places.rows_grad_rule,
    "searchsorted": places.search_rule,
    "stands_for": places.stand_rule,
    "_standard_gamma": places.stand_rule,
    "place_view": seen.place_rule,
    "write_view": seen.write_rule,
    "fold_windows": seen.fold_rule,
    "cat": seen.cat_rule,
    "arranged": seen.same_rule,
}


def rule_of(op: Op) -> Any:
    """The op's batching rule; an error that names the op where there is none."""
    found = None
    if isinstance(op, View):
        found = VIEWS.get(op.name)
        if found is None and op.seen_as is not None:
            found = seen.retyped_rule
    elif type(op) not in FAMILIES and isinstance(op, KernelOp) and op.name in KERNELS:
        found = KERNELS[op.name]
    else:
        found = next((FAMILIES[kind] for kind in type(op).__mro__ if kind in FAMILIES), None)
    if found is None:
        raise RushlightError(f"{op.name}: no batching rule; take the op out of vmap, or loop over the batch")
    return found


def register(kind: type[Op], rule: Any) -> None:
    """Give a family that is declared elsewhere its rule."""
    FAMILIES[kind] = rule


provide(batch_rule=rule_of, spread=lanes.spread)
