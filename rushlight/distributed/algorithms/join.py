"""Ranks with unequally many inputs: those that have no more take part in the others' collectives.

# Note [Joining]
1. In the block each iteration begins with a count of the ranks that still have inputs: the first
   joinable makes it by `Join.notify_join_context`, and a rank without inputs at the block's end.
2. While the count is not 0, such a rank runs the joinables' main hooks, which make the collectives
   of an iteration. Then all ranks run the post hooks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import int64
from rushlight.distributed.collectives import all_reduce
from rushlight.ops.create.creation import zeros
from rushlight.tape.record.state import no_grad


class JoinHook:
    """What a joinable does on a rank that has no more inputs."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """After all ranks have come.

        Args:
            is_last_joiner (bool): Whether this rank is one of the last.
        """


class _Config(NamedTuple):
    """What a joinable knows of its block."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False


class Joinable(ABC):
    """What makes collectives in each iteration: a class of this kind gives a hook for them."""

    _join_config = _Config()

    def __init__(self) -> None:
        super().__init__()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook.

        Args:
            **kwargs: What the block was given, the same for all joinables.
        """

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of the block's own collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of the block's own collectives."""


class Join:
    """A block in which ranks may have unequally many inputs. See Note [Joining].

    Args:
        joinables (list): What makes collectives, in the order of its hooks.
        enable (bool): False leaves all as it is.
        throw_on_early_termination (bool): Whether all ranks raise when one has no more inputs.
        **kwargs: For the joinables' `join_hook`.
    """

    def __init__(
        self,
        joinables: Sequence[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("Join: at least one joinable is needed")
        self._joinables = list(joinables)
        self._enable, self._throw = enable, throw_on_early_termination
        group = joinables[0].join_process_group
        if any(one.join_process_group is not group for one in joinables):
            raise ValueError("Join: the joinables have different process groups")
        self._hooks = [one.join_hook(**kwargs) for one in joinables]
        for n, one in enumerate(joinables):
            one._join_config = _Config(enable, throw_on_early_termination, n == 0)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._enable and kind is None:
                self._join()
        finally:
            for one in self._joinables:
                one._join_config = _Config()

    def _join(self) -> None:
        is_last = True
        while left := _count(self._joinables[0], 0):
            if self._throw:
                raise RuntimeError(f"Join: this rank has no more inputs, {left} others have")
            for hook in self._hooks:
                hook.main_hook()
            is_last = False
        for hook in self._hooks:
            hook.post_hook(is_last)

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        """Tell that this rank has inputs; a joinable calls it before its collectives.

        Args:
            joinable (Joinable): It; only the first one of a block tells.
        """
        config = joinable._join_config
        if not config.enable or not config.is_first_joinable:
            return
        group = joinable.join_process_group
        there = _count(joinable, 1)
        if config.throw_on_early_termination and there < group.size():
            raise RuntimeError(f"Join: {group.size() - there} ranks have no more inputs")


def _count(joinable: Any, mine: int) -> int:
    """How many ranks still have inputs."""
    with no_grad():
        total = zeros(1, dtype=int64, device=joinable.join_device).fill_(mine)
        all_reduce(total, group=joinable.join_process_group)
    return int(total)
