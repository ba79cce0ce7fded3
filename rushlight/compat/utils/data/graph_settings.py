"""PyTorch's `torch.utils.data.graph_settings`: shards and seeds of all pipes of a pipeline."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from rushlight.compat.utils.data.datapipes.datapipe import IterDataPipe
from rushlight.compat.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES
from rushlight.compat.utils.data.graph import Graph, traverse_dps
from rushlight.utils.data.sampler import drawn_seed

__all__ = [
    "apply_random_seed",
    "apply_sharding",
    "apply_shuffle_seed",
    "apply_shuffle_settings",
    "get_all_graph_pipes",
]


def get_all_graph_pipes(graph: Graph) -> list[Any]:
    """The pipes of a graph, each once.

    Args:
        graph (dict): What `traverse_dps` gave.
    """
    found: dict[int, Any] = {}
    ahead = [graph]
    while ahead:
        for key, (pipe, inside) in ahead.pop().items():
            found.setdefault(key, pipe)
            ahead.append(inside)
    return list(found.values())


def _has_method(pipe: Any, *names: str) -> bool:
    # Not by getattr: a pipe's missing attributes are looked for among functional forms.
    return all(inspect.isfunction(getattr(type(pipe), name, None)) for name in names)


def apply_sharding(
    datapipe: Any,
    num_of_instances: int,
    instance_id: int,
    sharding_group: Any = SHARDING_PRIORITIES.DEFAULT,
) -> Any:
    """Tell the pipes with `apply_sharding` which shard they read; one on each way at most.

    Args:
        datapipe (IterDataPipe or MapDataPipe): The last pipe.
        num_of_instances (int): How many shards there are.
        instance_id (int): The shard.
        sharding_group (SHARDING_PRIORITIES): What the shards are.
    """

    def apply(graph: Graph, above: Any) -> None:
        for pipe, inside in graph.values():
            own = None
            if _has_method(pipe, "apply_sharding"):
                if above is not None:
                    raise RuntimeError(
                        "Sharding twice on a single pipeline is likely unintended and will cause "
                        f"data loss. Sharding already applied to {above} while trying to apply "
                        f"to {pipe}"
                    )
                count = len(inspect.signature(pipe.apply_sharding).parameters)
                own = (num_of_instances, instance_id, sharding_group)[: min(count, 3)]
                pipe.apply_sharding(*own)
            apply(inside, above if own is None else pipe)

    apply(traverse_dps(datapipe), None)
    return datapipe


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Switch the shufflers of a pipeline on or off; one is put last where there is none.

    Args:
        datapipe (IterDataPipe or MapDataPipe): The last pipe.
        shuffle (bool): On or off; nothing changes without it.
    """
    if shuffle is None:
        return datapipe
    every = get_all_graph_pipes(traverse_dps(datapipe))
    shufflers = [pipe for pipe in every if _has_method(pipe, "set_shuffle", "set_seed")]
    if not shufflers and shuffle:
        warnings.warn(
            "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at "
            "the end. Be aware that the default buffer size might not be sufficient for your task.",
            stacklevel=4,
        )
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for pipe in shufflers:
        pipe.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """Give each pipe with `set_seed` a seed of its own.

    Args:
        datapipe (IterDataPipe or MapDataPipe): The last pipe.
        rng (Generator): What draws the seeds.
    """
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if _has_method(pipe, "set_seed"):
            pipe.set_seed(drawn_seed(rng))
    return datapipe


apply_shuffle_seed = apply_random_seed
# What a DataLoader asks of an iterable dataset that it is to shuffle.
IterDataPipe.register_function("_shuffled", apply_shuffle_settings)
