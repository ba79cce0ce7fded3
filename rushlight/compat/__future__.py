"""PyTorch's `torch.__future__`: switches of how a module's conversion changes its parameters."""

from __future__ import annotations

from rushlight.core.errors import RushlightError


def _off() -> bool:
    """False: a conversion changes a parameter's data and keeps the parameter."""
    return False


get_overwrite_module_params_on_conversion = get_swap_module_params_on_conversion = _off


def _stay_off(value: bool) -> None:
    """Accepts False; True is refused.

    Args:
        value (bool): The switch.
    """
    if value:
        raise RushlightError(
            "torch.__future__: a module's conversion keeps its parameters and changes their data; "
            "it neither makes new ones nor swaps them"
        )


set_overwrite_module_params_on_conversion = set_swap_module_params_on_conversion = _stay_off
