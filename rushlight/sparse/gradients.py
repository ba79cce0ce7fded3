"""Sparse gradients of dense leaves.

# Note [Sparse gradients]
1. Rows read with `sparse=True` from a table that is a leaf give that leaf a sparse gradient: the index and the rows' gradients, as
   they are. Nothing of the table's size is made. Several such add up by standing side by side; `coalesce` adds equal indices.
2. Where a dense gradient meets a sparse one, in a pass or in `.grad`, the sum is dense: the sparse one is added into it.
3. Only plain passes do this, `SparseWalk`, which takes the place of the usual one when the first such call is recorded, and
   autograd.grad. Whoever else asks (func, vmap, workers, anomaly detection, a table that is no leaf) gets the dense gradient.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.ops.nn import sparse_embedding
from rushlight.sparse.coo import SparseTensor, brief, make
from rushlight.tape.program.derivative import Parts
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.state import no_grad
from rushlight.tape.record.value import Leaf, Node
from rushlight.tape.walk.backward import Walk
from rushlight.tape.walk.saves import saves_of


class SparseWalk(Walk):
    """The sequential walk, with sparse gradients of leaves."""

    shows = False  # whether the gradients that it collects may be sparse

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.rows: list[
            tuple[Any, SparseTensor]
        ] = []  # dense gradients, and what is to be added to some of their rows

    def _run_node(self, node: Node) -> Parts:
        leaf = node.edges[0]
        own = (
            isinstance(node.plan.op, sparse_embedding.SparseRows)
            and type(leaf) is Leaf
            and node.hooks is None
        )
        if own and self.wanted is not None:
            own = leaf in self.wanted and (self.shows or not self.collect)
        if not own or node not in self.sums:
            return super()._run_node(node)
        g: Any = self.sums.pop(node)
        index: Any = saves_of(node)[1][0]
        self._give_back(node)
        at, rows = index.reshape(-1), g.reshape((index.numel(), *g.shape[index.ndim :]))
        padding = node.plan.static[0]
        if padding >= 0:
            kept = (at != padding).nonzero().squeeze(1)
            at, rows = at.index_select(0, kept), rows.index_select(0, kept)
        self.owned.discard(leaf)  # the sum of a dense and a sparse gradient is made by `arrive`
        return (make(at.long().unsqueeze(0), rows, leaf.spec.shape, False),), (False,)

    def arrive(self, edge: Any, value: Any, owned: bool) -> None:
        present = self.sums.get(edge) if edge.__class__ is Leaf else None
        if present is None or not (
            isinstance(value, SparseTensor) or isinstance(present, SparseTensor)
        ):
            super().arrive(edge, value, owned and not isinstance(value, SparseTensor))
            return
        self.sums[edge] = together(present, value)
        self.owned.discard(edge)

    def _finish_leaf(self, leaf: Leaf) -> None:
        arrived: Any = self.sums.get(leaf)
        before: Any = leaf.grad
        if arrived is None or not (
            isinstance(arrived, SparseTensor) or isinstance(before, SparseTensor)
        ):
            super()._finish_leaf(leaf)
            return
        if self.wanted is not None and leaf not in self.wanted:
            del self.sums[leaf]
            return
        del self.sums[leaf]
        for hook in list(leaf.hooks.values()):
            given = hook(arrived)
            if given is not None:
                arrived = _checked(given, leaf)
        if self.collect:
            self.found[leaf] = _own(arrived)
            return
        if before is not None and self._is_added(before, arrived) and not leaf.post_hooks:
            self.rows.append((before, arrived))
            return
        self._take(leaf, before, arrived)
        handle = leaf.handle()
        for hook in list(leaf.post_hooks.values()) if handle is not None else ():
            hook(handle)

    def _is_added(self, before: Any, arrived: Any) -> bool:
        """Whether sparse rows are added into a dense gradient that is there, which stays the same tensor."""
        return (
            not self.create
            and isinstance(arrived, SparseTensor)
            and not isinstance(before, SparseTensor)
        )

    def _take(self, leaf: Any, before: Any, arrived: Any) -> None:
        """Give a leaf its gradient now, so that it can be taken back."""
        if before is not None and self._is_added(before, arrived):
            self.changed.append((leaf, before, before.clone()))
            with no_grad():
                sparse_embedding.put_rows(before, arrived._at[0], arrived._of, True)
            return
        made = _own(arrived) if before is None else _summed(before, arrived)
        self.changed.append((leaf, before, None))
        leaf.grad = made

    @property
    def has_more(self) -> bool:
        return bool(self.waits or self.rows)

    def commit(self, writes: Any = ()) -> None:
        with no_grad():
            rows = [(before, new) for before, new in self.rows if new._nnz()]
            more = [
                sparse_embedding.prepare_rows(before, new._at[0], new._of, True)
                for before, new in rows
            ]
        super().commit([*writes, *more])


class _ShowingWalk(SparseWalk):
    """The walk of `autograd.grad`."""

    shows = True


def showing_walk() -> type[Walk] | None:
    """What makes the walk of `autograd.grad`, where sparse gradients are looked for."""
    return _ShowingWalk if Walk.usual is SparseWalk else None


def _own(arrived: Any) -> Any:
    """The gradient in memory of its own: rows and index may be views of what others have."""
    return arrived.clone() if isinstance(arrived, SparseTensor) else arrived


def _checked(given: Any, leaf: Leaf) -> Any:
    if tuple(given.shape) != leaf.spec.shape:
        raise ShapeError(
            f"a hook of a leaf {leaf.spec!r} gave a gradient of shape {list(given.shape)}"
        )
    return given


def together(a: Any, b: Any) -> Any:
    """The sum of two gradients of which one at least is sparse."""
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        at, of = (Needed.cat([x, y], d) for x, y, d in ((a._at, b._at, 1), (a._of, b._of, 0)))
        return make(at, of, a._size, False)
    sparse, dense = (a, b) if isinstance(a, SparseTensor) else (b, a)
    return dense.index_add(0, sparse._at[0], sparse._of)


def _summed(before: Any, arrived: Any) -> Any:
    """A leaf's gradient with one more."""
    both = together(before, arrived)
    crowded = isinstance(both, SparseTensor) and both._nnz() > both._size[0]
    return (
        both.coalesce() if crowded else both
    )  # what is added to again and again must not grow without end


def look_for_sparse() -> None:
    """From now on backward passes make sparse gradients where they are wanted."""
    Walk.usual = SparseWalk


def check_gradient(value: SparseTensor, spec: Any) -> None:
    """Whether a sparse tensor may be assigned as the gradient of a dense one."""
    if (
        value._size != spec.shape
        or value.dtype is not spec.dtype
        or value._of._spec.device is not spec.device
    ):
        raise ShapeError(f"grad: what is assigned, {brief(value)}, does not fit {spec!r}")
    if value.sparse_dim() != 1:
        raise ShapeError(
            f"grad: a sparse gradient has one sparse dimension, the rows; got {brief(value)}"
        )
    look_for_sparse()


sparse_embedding.wanted.append(look_for_sparse)
