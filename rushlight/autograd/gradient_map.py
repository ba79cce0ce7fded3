"""Gradients as a mapping, without `.grad`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rushlight.core.errors import NotDifferentiable
from rushlight.sparse.coo import SparseTensor, as_gradient
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.value import Leaf, Value
from rushlight.tape.walk.backward import EVERYTHING, run_backward
from rushlight.tape.walk.edges import end_of, ends, key_of
from rushlight.tape.walk.parallel import walk_by
from rushlight.tape.walk.roots import roots_of
from rushlight.tensor import Tensor


class Gradients(Mapping[Any, Tensor]):
    """The result of `gradients`: `found[t]` is the gradient of a value the roots depend on.

    The value may be a leaf or not. A value is identified by its node in the graph, so any handle of
    it works. Iteration goes over the leaves that are still alive, or over the values given as `of`.
    Two values may have the same gradient tensor: clone it before writing to it.
    """

    def __init__(
        self, found: dict[Any, Value], asked: Sequence[Any] | None, recorded: bool
    ) -> None:
        self._found = found
        self._asked = asked
        self._recorded = recorded

    def _lookup(self, tensor: Any) -> Any:
        """The gradient, or why there is none."""
        edge, spec = end_of(tensor._of if isinstance(tensor, SparseTensor) else tensor)
        if edge is None:
            return f"a tensor {spec!r} that does not require gradients has none"
        found = self._found.get(key_of(edge))
        if found is not None:
            return found
        if self._asked is not None and not any(tensor is a for a in self._asked):
            return f"the gradient of {spec!r} was not asked for; name it in of="
        return f"the roots do not depend on this tensor {spec!r}"

    def __getitem__(self, tensor: Any) -> Any:
        part = self._lookup(tensor)
        if isinstance(part, str):
            raise KeyError(part)
        if self._recorded and isinstance(tensor, Value) and edge_of(part) is None:
            part = Needed.constant_in(part, tensor)  # its derivative is zero, not absent
        return as_gradient(tensor, part) if isinstance(tensor, SparseTensor) else part

    def __contains__(self, tensor: object) -> bool:
        return not isinstance(self._lookup(tensor), str)

    def __iter__(self) -> Iterator[Any]:
        if self._asked is not None:
            return (tensor for tensor in self._asked if tensor in self)
        handles = [key.variable for key in self._found if type(key) is Leaf]
        return (handle for handle in handles if handle is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    # Tensors are compared element by element, so mappings of them are not compared.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<gradients of {len(self._found)} values>"


def gradients(
    roots: Any,
    gradient: Any = None,
    *,
    of: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    workers: int = 1,
) -> Gradients:
    """The gradients of the roots' sum with respect to every value they depend on.

    No `.grad` changes. The result holds all of them, about as much memory as the values take, until
    it is freed. With `of` (a tensor or several) it holds those alone, and only the nodes that lead
    to them run.

    Args:
        roots (Tensor or tensors): The roots.
        gradient (Tensor or tensors): The gradients of the roots; None for one of a single element.
        of (Tensor or tensors): The values whose gradients are kept; None for all.
        retain_graph (bool): Keep what was saved, for another pass; by default `create_graph`.
        create_graph (bool): Record the pass itself, for higher derivatives.
        workers (int): How many threads run branches of the graph.
    """
    edges, seeds = roots_of("gradients", roots, gradient)
    make = walk_by(workers, "gradients")
    retain = create_graph if retain_graph is None else retain_graph
    if of is None:
        return Gradients(
            run_backward(edges, seeds, retain, create_graph, EVERYTHING, make=make),
            None,
            create_graph,
        )
    asked = ends(of)
    wanted = set()
    for i, tensor in enumerate(asked):
        edge, spec = end_of(tensor._of if isinstance(tensor, SparseTensor) else tensor)
        if edge is None:
            raise NotDifferentiable(
                f"gradients: tensor {i} of `of`, {spec!r}, does not require gradients"
            )
        wanted.add(key_of(edge))
    return Gradients(
        run_backward(edges, seeds, retain, create_graph, wanted, make=make), asked, create_graph
    )
