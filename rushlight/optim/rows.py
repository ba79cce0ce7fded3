"""Steps by sparse gradients: only the rows of a gradient are read and written.

See Note [Sparse gradients]. The rows are gathered, the optimiser's kernel runs on them, and they
are scattered back.
"""

from __future__ import annotations

from typing import Any

from rushlight.ops.nn.sparse_embedding import prepare_rows
from rushlight.ops.optim.whole_steps import Moves
from rushlight.ops.view.inplace import Update
from rushlight.tape.record.state import no_grad


def move_rows(
    moves: Moves, update: Update, values: tuple[Any, ...], params: tuple[float, ...]
) -> None:
    """`update(values, params)` on the rows of the gradient, the last of the values.

    Other rows stay.
    """
    *targets, grad = values
    with no_grad():
        whole = grad.detach().coalesce()
        at = whole.indices()[0]
        if not at.numel():
            return
        rows = [target.detach().index_select(0, at) for target in targets]
        update((*rows, whole.values()), params)
        moves.writes += [
            prepare_rows(target, at, row, False) for target, row in zip(targets, rows, strict=True)
        ]
