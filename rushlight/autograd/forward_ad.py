"""Forward mode by dual tensors: PyTorch's `torch.autograd.forward_ad`. See Note [Dual values].

In `with dual_level():`, results of `make_dual(primal, tangent)` have tangents too, which
`unpack_dual` returns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight.core.errors import DeviceError, DTypeError, LayoutError, RushlightError, ShapeError
from rushlight.core.interrupts import unheard
from rushlight.lazy import shown
from rushlight.tape.dual.values import DualLevel
from rushlight.tape.record import call
from rushlight.tape.record.needed import Needed, edge_of
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Leaf, Value
from rushlight.tape.vmap.batched import joint_levels, levels_of, physical_of, wrap

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


def __dir__() -> list[str]:
    return shown(__name__)


class UnpackedDualTensor(NamedTuple):
    """The result of `unpack_dual`: the primal, and its tangent or None."""

    primal: Any
    tangent: Any


def _current() -> DualLevel | None:
    level: DualLevel | None = STATE.get().dual
    return level if level is not None and level.alive else None


def enter_dual_level() -> int:
    """Begin a level, in which tensors may have tangents.

    Returns 0, because there is one at a time.
    """
    if _current() is not None:
        raise RushlightError(
            "enter_dual_level: there is a level already, and they do not nest; use func.jvp for "
            "more"
        )
    STATE.set(STATE.get().with_changes(dual=DualLevel()))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level and delete its tangents."""
    current = _current()
    if current is None or level not in (None, 0):
        raise RushlightError(
            f"exit_dual_level: there is no level {'' if level is None else level} to end"
        )
    current.end()
    STATE.set(STATE.get().with_changes(dual=None))


class dual_level:
    """`with dual_level():` a block in which tensors may have tangents."""

    def __init__(self) -> None:
        self._level: DualLevel | None = None
        self._state: Changed | None = None

    def __enter__(self) -> int:
        if _current() is not None:
            raise RushlightError(
                "dual_level: there is a level already, and they do not nest; use func.jvp for more"
            )
        self._level = DualLevel()
        self._state = Changed(dual=self._level)
        self._state.__enter__()
        return 0

    @unheard
    def __exit__(self, *error: Any) -> None:
        assert self._level is not None and self._state is not None
        try:
            self._level.end()
        finally:
            self._state.__exit__(*error)


def _level_of(name: str, level: int | None) -> DualLevel:
    current = _current()
    if current is None:
        raise RushlightError(
            f"{name}: trying to create a dual tensor for forward AD but no level exists; use `with "
            "dual_level():` around it"
        )
    if level not in (None, 0):
        raise RushlightError(
            f"{name}: there is no level {level}; the one that there is has number 0"
        )
    return current


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """The tensor, in the same memory, with a tangent."""
    current = _level_of("make_dual", level)
    for what, x in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(x, Value):
            raise TypeError(f"make_dual: the {what} is a tensor, got {type(x).__name__}")
        if not hasattr(x, "_memory"):
            raise LayoutError(f"make_dual: the {what} is sparse; use .to_dense()")
        if not x._spec.differentiable:
            raise ValueError(
                f"make_dual: expected the {what} to be floating point or complex, got {x._spec!r}"
            )
    primal, along = tensor._spec, tangent._spec
    if primal.shape != along.shape:
        raise ShapeError(f"make_dual: a tangent {along!r} does not fit the primal {primal!r}")
    if primal.dtype.kind != along.dtype.kind:
        raise DTypeError(
            f"make_dual: a tangent {along!r} of a primal {primal!r}: both are complex or both are "
            "real"
        )
    if primal.device is not along.device:
        raise DeviceError(
            f"make_dual: a tangent {along!r} and a primal {primal!r} are on different devices"
        )
    if current.tangent_of(tensor) is not None:
        raise RushlightError(
            "make_dual: the tensor has a tangent already; use unpack_dual(tensor).primal"
        )
    if current.tangent_of(tangent) is not None:
        raise RushlightError(
            "make_dual: the tangent has a tangent itself; levels do not nest, use func.jvp"
        )
    made = _another_handle(tensor, joint_levels([tensor, tangent]))
    current.attach(made, Needed.cast(tangent, primal.dtype))
    return made


def _another_handle(x: Value, levels: Any) -> Value:
    """The value without a tangent, where it is batched at these levels at least."""
    own = levels_of(x)
    if levels != own:
        return wrap(Needed.clone(Needed.spread(x, levels)), levels)
    whole = physical_of(x)
    edge = edge_of(whole)
    if edge is not None and type(edge) is not Leaf:
        with Changed(dual=None):  # a write to it must be in the record of the primal
            return wrap(Needed.clone(whole), own)
    return wrap(call.rooted(call.make_value(whole._spec, whole._memory, whole._offset, edge)), own)


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """(primal, tangent) of a tensor.

    The tangent is None where there is none, and outside of any level.
    """
    if not isinstance(tensor, Value):
        raise TypeError(f"unpack_dual: takes a tensor, got {type(tensor).__name__}")
    current = _current()
    if current is None or not hasattr(tensor, "_memory"):
        return UnpackedDualTensor(tensor, None)
    tangent = current.tangent_of(tensor)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(_another_handle(tensor, levels_of(tensor)), tangent)
