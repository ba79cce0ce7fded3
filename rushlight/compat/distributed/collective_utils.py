"""PyTorch's `torch.distributed.collective_utils`: results, and errors, of one rank for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rushlight.distributed.joining import get_rank, get_world_size
from rushlight.distributed.objects import all_gather_object, broadcast_object_list
from rushlight.distributed.process_groups import is_initialized


@dataclass
class SyncPayload:
    """What a rank made, or why it could not."""

    stage_name: str | None
    success: bool
    payload: Any
    exception: Exception | None = None


def _made(data_or_fn: Any, stage_name: str | None, success: bool = True) -> SyncPayload:
    if not callable(data_or_fn):
        return SyncPayload(stage_name, success, data_or_fn)
    try:
        return SyncPayload(stage_name, success, data_or_fn())
    except Exception as error:
        return SyncPayload(stage_name, False, None, error)


def _failed(rank: Any, found: SyncPayload) -> RuntimeError:
    where = f" in stage {found.stage_name}" if found.stage_name else ""
    return RuntimeError(f"rank {rank} failed{where}: {found.exception!r}")


def broadcast(
    data_or_fn: Any | Callable[[], Any],
    *,
    success: bool = True,
    stage_name: str | None = None,
    rank: int = 0,
    pg: Any = None,
) -> Any:
    """One rank's value on all; where it fails, an error on all.

    Args:
        data_or_fn: The value, or a function that makes it; looked at on that rank alone.
        success (bool): Whether that rank is well.
        stage_name (str): What the error calls the work.
        rank (int): The rank.
        pg (ProcessGroup): The ranks; without it, and without a default group, this process alone.
    """
    if not success and data_or_fn is not None:
        raise AssertionError("Data or Function is expected to be None if not successful")
    alone = pg is None and not is_initialized()
    found = None
    if alone or get_rank(pg) == rank:
        found = _made(data_or_fn, stage_name, success)
    if not alone:
        objects: list[Any] = [found]
        broadcast_object_list(objects, group=pg, **{"src" if pg is None else "group_src": rank})
        found = objects[0]
    assert found is not None
    if not found.success:
        raise _failed(rank, found) from found.exception
    return found.payload


def all_gather(
    data_or_fn: Any | Callable[[], Any], stage_name: str | None = None, pg: Any = None
) -> list[Any]:
    """Every rank's value on all; where one fails, an error on all.

    Args:
        data_or_fn: The value, or a function that makes it.
        stage_name (str): What the error calls the work.
        pg (ProcessGroup): The ranks; without it, and without a default group, this process alone.
    """
    found = [_made(data_or_fn, stage_name)]
    if pg is not None or is_initialized():
        every: list[Any] = [None] * get_world_size(pg)
        all_gather_object(every, found[0], group=pg)
        found = every
    for number, one in enumerate(found):
        if not one.success:
            raise _failed(number, one) from one.exception
    return [one.payload for one in found]


def all_gather_object_enforce_type(
    pg: Any,
    object_list: list[Any],
    obj: Any,
    type_checker: Callable[[Any, Any], bool] = lambda x, y: type(x) is type(y),
) -> None:
    """Gather objects, and raise TypeError where they are of several types.

    Args:
        pg (ProcessGroup): The ranks.
        object_list (list): Takes the objects.
        obj: This rank's.
        type_checker (callable): Whether two objects are of one type.
    """
    all_gather_object(object_list, obj, group=pg)
    for n, one in enumerate(object_list):
        if not type_checker(object_list[0], one):
            raise TypeError(f"Object type at rank {n} is {type(one)}, vs {type(object_list[0])}")
