"""PostLocalSGDOptimizer: steps of one rank alone, and averages of parameters now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rushlight.distributed.algorithms.model_averaging.averagers import ModelAverager
from rushlight.optim.optimizer import Optimizer


class PostLocalSGDOptimizer(Optimizer):
    """An optimiser after whose steps an averager may average the parameters over ranks.

    Args:
        optim (Optimizer): The optimiser of this rank.
        averager (ModelAverager): When, and over which ranks.
    """

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim, self.averager = optim, averager
        self.param_groups, self.defaults = optim.param_groups, optim.defaults

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The optimiser's."""
        return self.optim.state

    def step(self, closure: Callable[[], Any] | None = None, **named: Any) -> Any:
        """Step, and average the parameters if it is time.

        Args:
            closure (callable): Computes the loss first; its result is returned.
            **named: Arguments of the optimiser's own step.
        """
        loss = self.optim.step(closure, **named)
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The optimiser's."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The optimiser's."""
        self.optim.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's state, and the averager's steps as "step"."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load both.

        Args:
            state_dict (dict): What `state_dict` gave.
        """
        rest = {name: value for name, value in state_dict.items() if name != "step"}
        self.optim.load_state_dict(rest)
        self.averager.step = state_dict.get("step", 0)

    def __repr__(self) -> str:
        return repr(self.optim)
