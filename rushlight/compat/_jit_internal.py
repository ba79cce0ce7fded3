"""PyTorch's `torch._jit_internal`: decorators of TorchScript, which change nothing here."""

from collections.abc import Callable
from typing import Any, Final as Final, TypeVar

from rushlight.compat.jit import (
    _overload as _overload,
    _overload_method as _overload_method,
    export as export,
    ignore as ignore,
    is_scripting as is_scripting,
    unused as unused,
)
from rushlight.compat.jit.annotations import (
    BroadcastingList1 as BroadcastingList1,
    BroadcastingList2 as BroadcastingList2,
    BroadcastingList3 as BroadcastingList3,
)

F = TypeVar("F")


def _copy_to_script_wrapper(fn: F) -> F:
    return fn


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, *args: Any
) -> Callable[..., Any]:
    """A function that calls one of two, by a boolean argument."""

    def chosen(*given: Any, **named: Any) -> Any:
        value = named.get(arg_name, given[arg_index] if len(given) > arg_index else default)
        return (if_true if value else if_false)(*given, **named)

    return chosen
