"""PyTorch's optimisers whose steps are taken while backward runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter


def _apply_optimizer_in_backward(
    optimizer_class: Any,
    params: Iterable[Parameter],
    optimizer_kwargs: dict[str, Any],
    register_hook: bool = True,
) -> None:
    """Give each parameter an optimiser of its own, which steps when its gradient is there.

    The gradient is dropped after the step.

    Args:
        optimizer_class (type): The optimiser.
        params (iterable): The parameters.
        optimizer_kwargs (dict): Its named arguments.
        register_hook (bool): Whether backward takes the steps.
    """
    for parameter in params:
        one: Any = parameter
        made = optimizer_class([parameter], **optimizer_kwargs)
        one._in_backward_optimizers = [*getattr(one, "_in_backward_optimizers", []), made]
        one._optimizer_classes = [*getattr(one, "_optimizer_classes", []), optimizer_class]
        one._optimizer_kwargs = optimizer_kwargs
        if not register_hook or hasattr(one, "_step_in_backward"):
            continue

        def step(reached: Any) -> None:
            for optimiser in reached._in_backward_optimizers:
                optimiser.step()
            reached.grad = None

        one._step_in_backward = one.register_post_accumulate_grad_hook(step)


def _get_in_backward_optimizers(module: Module) -> list[Any]:
    """The optimisers of a module's parameters.

    Args:
        module (Module): The module.
    """
    return [
        made
        for parameter in module.parameters()
        for made in getattr(parameter, "_in_backward_optimizers", [])
    ]
