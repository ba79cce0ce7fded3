"""Modules as functions of their parameters: `functional_call`, and many models as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.nn.module import Module
from rushlight.nn.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from rushlight.nn.utils import stateless
from rushlight.ops.view import views
from rushlight.tensor import Tensor

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with the given tensors in place of its parameters and buffers.

    Tensors are given as a dict or several. Members that are not given stay the module's own.
    Members that are one tensor are replaced together unless `tie_weights` is False; with `strict`,
    every member must be given, and nothing else. See Note [Stateless calls].

    Args:
        module (Module): The module.
        parameter_and_buffer_dicts (dict or dicts): Tensors by name.
        args: The positional arguments: a tuple, or one value.
        kwargs (mapping): The keyword arguments.
        tie_weights (bool): A tensor given for one name of a shared parameter is used for all.
        strict (bool): Raise for missing and unknown names.
    """
    given = parameter_and_buffer_dicts
    return stateless.functional_call(
        module, given, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of models of one class, each stacked: an ensemble for `vmap`.

    Call it with `functional_call`.

    Args:
        models (sequence): Modules of one class.
    """
    if not models:
        raise RushlightError("stack_module_state: at least one model is needed, got none")
    first = models[0]
    for model in models:
        if type(model) is not type(first):
            raise RushlightError(
                f"stack_module_state: the models must be of one class, got {type(first).__name__} "
                f"and {type(model).__name__}"
            )
        if model.training != first.training:
            raise RushlightError(
                "stack_module_state: the models must all be training, or all not: use .train() or "
                ".eval()"
            )
    return _stacked([dict(m.named_parameters()) for m in models]), _stacked(
        [dict(m.named_buffers()) for m in models]
    )


def _stacked(states: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: _stack(name, [state[name] for state in states]) for name in states[0]}


def _stack(name: str, tensors: list[Tensor]) -> Tensor:
    wants = {t.requires_grad for t in tensors}
    if len(wants) > 1:
        raise RushlightError(
            f"stack_module_state: {name} requires gradients in some of the models and not in others"
        )
    made: Any = views.stack(tensors).detach()
    return made.requires_grad_(wants.pop())


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Make every batch norm in `root` use its batch's statistics, and keep none; in place.

    Returns `root`.

    Args:
        root (Module): The module.
    """
    for part in root.modules():
        if isinstance(part, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            part.running_mean = part.running_var = part.num_batches_tracked = None
            part.track_running_stats = False
    return root
