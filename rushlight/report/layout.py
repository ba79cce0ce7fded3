"""A layered layout of a directed acyclic graph.

Every node lies on a layer below the nodes it reads; an edge over several layers passes through a
point on each of them. Sweeps order each layer by the mean place of its neighbours, as long as that
lowers the number of crossings, then move nodes towards their neighbours.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_SWEEPS = 12
_GAP = 18.0  # between two nodes of a layer
_POINT = 6.0  # the width of a point that an edge passes through
_LEAF = 0.05  # the weight of a node without sources, where others weigh 1


class Box(NamedTuple):
    """The centre and the layer of a node."""

    x: float
    layer: int


class Laid(NamedTuple):
    """The places of nodes, and the points of each edge from source to target."""

    boxes: list[Box]
    lines: list[list[Box]]
    width: float
    layers: int


def lay_out(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Laid:
    """Place nodes with these widths; an edge is (source, target), and sources come first."""
    layer = _layers(len(widths), edges)
    sizes = list(widths)
    paths: list[list[int]] = []
    above: list[list[int]] = [[] for _ in sizes]
    below: list[list[int]] = [[] for _ in sizes]
    for source, target in edges:
        path = [source]
        for level in range(layer[source] + 1, layer[target]):
            path.append(len(sizes))
            sizes.append(_POINT)
            layer.append(level)
            above.append([])
            below.append([])
        path.append(target)
        paths.append(path)
        for a, b in pairwise(path):
            below[a].append(b)
            above[b].append(a)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, level in enumerate(layer):
        rows[level].append(node)
    rows = _ordered(rows, above, below)
    x = _placed(rows, above, below, sizes)
    left = min([x[n] - sizes[n] / 2 for n in range(len(sizes))], default=0.0)
    boxes = [Box(x[n] - left, layer[n]) for n in range(len(sizes))]
    width = max([box.x + sizes[n] / 2 for n, box in enumerate(boxes)], default=0.0)
    lines = [[boxes[n] for n in path] for path in paths]
    return Laid(boxes[: len(widths)], lines, width, len(rows))


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest way to each node; a node without sources lies just above its first reader."""
    readers: list[list[int]] = [[] for _ in range(count)]
    has_source = [False] * count
    for source, target in edges:
        readers[source].append(target)
        has_source[target] = True
    layer = [0] * count
    for node in range(count):
        for reader in readers[node]:
            layer[reader] = max(layer[reader], layer[node] + 1)
    for node in range(count):
        if not has_source[node] and readers[node]:
            layer[node] = min(layer[reader] for reader in readers[node]) - 1
    return layer


def _crossings(rows: list[list[int]], below: list[list[int]]) -> int:
    total = 0
    for upper, lower in pairwise(rows):
        place = {node: i for i, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(place[b] for b in below[node])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _ordered(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]]
) -> list[list[int]]:
    """The order of each layer with the fewest crossings that the sweeps found."""
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        order = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
        for level in order:
            other = rows[level - 1 if down else level + 1]
            place = {node: i for i, node in enumerate(other)}
            spot = {
                node: sum(place[n] for n in near[node]) / len(near[node]) if near[node] else i
                for i, node in enumerate(rows[level])
            }
            rows[level].sort(key=spot.__getitem__)
        count = _crossings(rows, below)
        if count < fewest:
            best, fewest = [list(row) for row in rows], count
    return best


def _placed(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], sizes: Sequence[float]
) -> list[float]:
    """The centre of each node: near the mean of its neighbours, in the layer's order.

    A node without sources weighs little, so that a chain of results stays straight.
    """
    x = [0.0] * len(sizes)
    weight = [1.0 if sources else _LEAF for sources in above]
    for row in rows:
        at = 0.0
        for node in row:
            x[node] = at + sizes[node] / 2
            at += sizes[node] + _GAP
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows if down else reversed(rows):
            wanted = []
            for v in row:
                total = sum([weight[n] for n in near[v]])
                wanted.append(sum([weight[n] * x[n] for n in near[v]]) / total if total else x[v])
            for node, place in zip(row, _apart(row, wanted, sizes, weight), strict=True):
                x[node] = place
    return x


def _apart(
    row: list[int], wanted: list[float], sizes: Sequence[float], weight: Sequence[float]
) -> list[float]:
    """Places in order, not overlapping, with the least squares of the ways from the wanted ones.

    Nodes that would overlap become one block at the weighted mean of what its members want.
    """
    blocks: list[tuple[float, float, float, int]] = []  # wanted begins, weights, width, nodes
    for node, place in zip(row, wanted, strict=True):
        size, mass = sizes[node] + _GAP, weight[node]
        block = mass * (place - size / 2), mass, size, 1
        while blocks and blocks[-1][0] / blocks[-1][1] + blocks[-1][2] > block[0] / block[1]:
            total, heavy, width, count = blocks.pop()
            moved = total + block[0] - block[1] * width
            block = moved, heavy + block[1], width + block[2], count + block[3]
        blocks.append(block)
    found: list[float] = []
    nodes = iter(row)
    for total, heavy, _, count in blocks:
        at = total / heavy
        for _ in range(count):
            size = sizes[next(nodes)] + _GAP
            found.append(at + size / 2)
            at += size
    return found
