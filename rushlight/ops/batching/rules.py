"""Which op has which batching rule: by its kernel family, by its name where a family's ops have arguments of their own."""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops.batching import contract, elementwise, index, lanes, library, random, view
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.family.library import LibraryOp
from rushlight.ops.family.map import Elementwise, MapOp
from rushlight.ops.family.no_derivative import Recorded
from rushlight.ops.family.rowwise import RowOp
from rushlight.ops.family.view import View, Views
from rushlight.ops.nn.attention import Attention, AttentionGrad
from rushlight.ops.nn.cross_entropy import CrossEntropy
from rushlight.ops.random.random import Dropout
from rushlight.ops.reduce.cumulative import Running
from rushlight.ops.sort.sort import SortOp
from rushlight.tape.record.needed import provide
from rushlight.tape.record.op import Op

FAMILIES: dict[type[Op], Any] = {
    Elementwise: elementwise.elementwise_rule,
    MapOp: elementwise.map_rule,
    Dropout: random.dropout_rule,
    CrossEntropy: elementwise.classes_rule,
    RowOp: elementwise.row_rule,
    Running: elementwise.scan_rule,
    SortOp: elementwise.sort_rule,
    Views: view.view_rule,
    LibraryOp: library.library_rule,
    Attention: library.attention_rule,
    AttentionGrad: library.attention_rule,
    Recorded: index.stand_rule,
}
VIEWS: dict[str, Any] = {
    **dict.fromkeys(view.SHIFTS, view.view_rule),
    "expand": view.expand_rule,
    "view_as_complex": view.complex_rule,
    "as_strided": view.strided_rule,
}
KERNELS: dict[str, Any] = {
    "matmul": contract.matmul_rule,
    "linear": contract.linear_rule,
    "convolution": contract.convolution_rule,
    "convolution_back": contract.convolution_rule,
    "convolution_weights": contract.weights_rule,
    "gather": index.gather_rule,
    "scatter_add": index.scatter_rule,
    "scatter_zero": index.scatter_zero_rule,
    "scatter_reduce": index.scatter_rule,
    "scatter": index.scatter_rule,
    "max_unpool": index.scatter_rule,
    "embedding": index.rows_rule,
    "embedding_grad": index.rows_grad_rule,
    "searchsorted": index.search_rule,
    "stands_for": index.stand_rule,
    "_standard_gamma": index.stand_rule,
    "place_view": view.place_rule,
    "place_part": view.part_rule,
    "write_view": view.write_rule,
    "fold_windows": view.fold_rule,
    "cat": view.cat_rule,
    "arranged": view.same_rule,
}


def rule_of(op: Op) -> Any:
    """The op's batching rule; an error that names the op where there is none."""
    found = None
    if isinstance(op, View):
        found = VIEWS.get(op.name)
        if found is None and op.seen_as is not None:
            found = view.retyped_rule
    elif type(op) not in FAMILIES and isinstance(op, KernelOp) and op.name in KERNELS:
        found = KERNELS[op.name]
    else:
        found = next((FAMILIES[kind] for kind in type(op).__mro__ if kind in FAMILIES), None)
    if found is None:
        raise RushlightError(
            f"{op.name}: no batching rule; take the op out of vmap, or loop over the batch"
        )
    return found


def register(kind: type[Op], rule: Any) -> None:
    """Give a family that is declared elsewhere its rule."""
    FAMILIES[kind] = rule


provide(batch_rule=rule_of, spread=lanes.spread)
