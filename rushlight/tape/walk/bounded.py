"""A backward pass that stops at given nodes.

A pass counts everything below its roots before it runs. Where all wanted gradients lie above known
nodes, as between the results and the inputs of one function, the nodes below need not be visited: a
derivative at every step of a long computation then costs the same at each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rushlight.tape.program.derivative import Parts
from rushlight.tape.record.value import Node, Output
from rushlight.tape.walk.backward import Everything, Walk


class BoundedWalk(Walk):
    """`ends` are nodes that get their gradient and pass nothing on."""

    def __init__(
        self,
        retain: bool,
        create: bool,
        wanted: set[Any] | Everything | None,
        collect: bool,
        ends: Collection[Any] = (),
    ) -> None:
        super().__init__(retain, create, wanted, collect)
        self.ends = ends

    def count(self, edges: Sequence[Any]) -> None:
        # Known already: their edges are not followed.
        self.waiting.update(dict.fromkeys(self.ends, 0))
        super().count(edges)
        roots = dict.fromkeys(edge.node if edge.__class__ is Output else edge for edge in edges)
        self.roots += [node for node in roots if node in self.ends]

    def _run_node(self, node: Node) -> Parts:
        if node not in self.ends:
            return super()._run_node(node)
        self._prepare(node, self._collect_outputs(node))
        return (), ()

    def _quick(self) -> set[Any] | None:
        few = super()._quick()
        return (set(self.waiting) if few is None else few) - set(self.ends)
