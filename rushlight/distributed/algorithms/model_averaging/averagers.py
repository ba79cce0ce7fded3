"""Averages of parameters over ranks, every so many steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from rushlight.distributed.collectives import all_reduce
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.distributed.reducing import ReduceOp
from rushlight.ops.view.views import cat
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


class ModelAverager(ABC):
    """Averages parameters after a step; `step` counts its calls.

    Args:
        process_group (ProcessGroup): The ranks; the default group without it.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = resolved(process_group)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None:
        """After a step of the optimiser.

        Args:
            params (iterable): Parameters, or an optimiser's groups of them.
        """


class PeriodicModelAverager(ModelAverager):
    """Averages parameters every `period` steps.

    Args:
        period (int): Steps from one average to the next.
        warmup_steps (int): Steps before the first one.
        process_group (ProcessGroup): The ranks; the default group without it.
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if period < 1 or warmup_steps < 0:
            raise ValueError(
                "PeriodicModelAverager: period is at least 1 and warmup_steps at least 0, got "
                f"{period} and {warmup_steps}"
            )
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Average, if it is time.

        Args:
            params (iterable): Parameters, or an optimiser's groups of them.
        """
        since = self.step - self.warmup_steps
        if since >= 0 and since % self.period == 0:
            average(list(_listed(params)), self.process_group)
        self.step += 1


def _listed(params: Iterable[Any]) -> Iterable[Tensor]:
    for one in params:
        if isinstance(one, Tensor):
            yield one
        else:
            yield from (p for p in one["params"] if p.grad is not None)


def average(parameters: Iterable[Tensor], group: ProcessGroup) -> None:
    """The mean of each parameter over ranks, in place; one message for each dtype."""
    kinds: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter.detach())
    with no_grad():
        for same in kinds.values():
            flat = cat([one.reshape(-1) for one in same])
            all_reduce(flat, ReduceOp.AVG, group)
            for one, part in zip(same, flat.split([p.numel() for p in same]), strict=True):
                one.copy_(part.view(one.shape))
