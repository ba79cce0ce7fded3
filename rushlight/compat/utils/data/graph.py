"""PyTorch's `torch.utils.data.graph`: the pipes that a pipe reads."""

from __future__ import annotations

from typing import Any

from rushlight.compat.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from rushlight.core.errors import RushlightError

__all__ = ["traverse", "traverse_dps"]

Graph = dict[int, tuple[Any, "Graph"]]


def _sources(thing: Any, seen: set[int]) -> list[Any]:
    """The pipes that an object holds in attributes and containers, not those that these hold."""
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float)):
        return []
    seen.add(id(thing))
    if isinstance(thing, (IterDataPipe, MapDataPipe)):
        return [thing]
    if isinstance(thing, dict):
        inner: Any = thing.values()
    elif isinstance(thing, (list, tuple, set)):
        inner = thing
    elif type(thing).__module__.startswith("rushlight.compat.utils.data"):
        inner = vars(thing).values()  # what the children of a fork read together
    else:
        return []
    return [pipe for one in inner for pipe in _sources(one, seen)]


def _traversed(pipe: Any, above: set[int]) -> Graph:
    if id(pipe) in above:
        return {}
    seen: set[int] = set()
    found = [one for held in vars(pipe).values() for one in _sources(held, seen)]
    inside: Graph = {}
    for one in found:
        inside.update(_traversed(one, above | {id(pipe)}))
    return {id(pipe): (pipe, inside)}


def traverse_dps(datapipe: Any) -> Graph:
    """A pipe and those it reads: by id, the pipe and the same of its sources.

    Args:
        datapipe (IterDataPipe or MapDataPipe): The last pipe.
    """
    return _traversed(datapipe, set())


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> Graph:
    """`traverse_dps`, by its older name.

    Args:
        datapipe (IterDataPipe or MapDataPipe): The last pipe.
        only_datapipe (bool): True; pipes inside of other objects are not looked for.
    """
    if only_datapipe is False:
        raise RushlightError("traverse: only_datapipe=False is not supported; use traverse_dps")
    return traverse_dps(datapipe)
