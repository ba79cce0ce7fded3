"""Sparse gradients of dense leaves.

# Note [Sparse gradients]
1. Rows read with `sparse=True` from a table that is a leaf give that leaf a sparse gradient: the
   index and the rows' gradients. Nothing of the table's size is made. Several are summed by
   concatenation; `coalesce` adds equal indices.
2. The sum of a dense and a sparse gradient, in a pass or in `.grad`, is dense: the sparse one is
   added into it.
3. Only plain passes do this: `SparseWalk`, which replaces the usual walk when the first such call
   is recorded, and autograd.grad. All others (func, vmap, workers, anomaly detection, a table that
   is no leaf) get the dense gradient.
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
        # Dense gradients, and rows to add to them.
        self.rows: list[tuple[Any, SparseTensor]] = []

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
        if not self.retain:
            node.saved, node.outs = None, ()
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
                arrived = _of_leaf_shape(given, leaf)
        if self.collect:
            self.found[leaf] = _in_own_memory(arrived)
            return
        if before is not None and self._is_added(before, arrived) and not leaf.post_hooks:
            self.rows.append((before, arrived))
            return
        self._take(leaf, before, arrived)
        handle = leaf.handle()
        for hook in list(leaf.post_hooks.values()) if handle is not None else ():
            hook(handle)

    def _is_added(self, before: Any, arrived: Any) -> bool:
        """Whether sparse rows are added into an existing dense gradient, in place."""
        return (
            not self.create
            and isinstance(arrived, SparseTensor)
            and not isinstance(before, SparseTensor)
        )

    def _take(self, leaf: Any, before: Any, arrived: Any) -> None:
        """Store a leaf's gradient, so that it can be undone."""
        if before is not None and self._is_added(before, arrived):
            self.changed.append((leaf, before, before.clone()))
            with no_grad():
                sparse_embedding.put_rows(before, arrived._at[0], arrived._of, True)
            return
        made = _in_own_memory(arrived) if before is None else _summed(before, arrived)
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
    """The constructor of the walk of `autograd.grad` where gradients may be sparse."""
    return _ShowingWalk if Walk.usual is SparseWalk else None


def _in_own_memory(arrived: Any) -> Any:
    """The gradient in its own memory: rows and index may be views."""
    return arrived.clone() if isinstance(arrived, SparseTensor) else arrived


def _of_leaf_shape(given: Any, leaf: Leaf) -> Any:
    if tuple(given.shape) != leaf.spec.shape:
        raise ShapeError(
            f"a hook of a leaf {leaf.spec!r} gave a gradient of shape {list(given.shape)}"
        )
    return given


def together(a: Any, b: Any) -> Any:
    """The sum of two gradients, at least one of them sparse."""
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        at, of = (Needed.cat([x, y], d) for x, y, d in ((a._at, b._at, 1), (a._of, b._of, 0)))
        return make(at, of, a._size, False)
    sparse, dense = (a, b) if isinstance(a, SparseTensor) else (b, a)
    return dense.index_add(0, sparse._at[0], sparse._of)


def _summed(before: Any, arrived: Any) -> Any:
    """A leaf's gradient plus another."""
    both = together(before, arrived)
    crowded = isinstance(both, SparseTensor) and both._nnz() > both._size[0]
    # Repeated sums must not grow without bound.
    return both.coalesce() if crowded else both


def look_for_sparse() -> None:
    """Make backward passes compute sparse gradients where they are requested."""
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
