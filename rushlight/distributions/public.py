"""Helpers of distributions: public ops by name, and arguments as tensors of one shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.dtypes import get_default
from rushlight.ops.registry import REGISTRY
from rushlight.tape.program.memo import memo
from rushlight.tape.record.state import enable_grad
from rushlight.tape.record.value import Value
from rushlight.tensor import Size, tensor


class _Ops:
    """`ops.<name>` is `rushlight.<name>`."""

    def __getattr__(self, name: str) -> Any:
        return REGISTRY[name].function


ops = _Ops()


@enable_grad()
def _with_gradients(function: Callable[[Any], Any], given: Any) -> Any:
    return function(given)


class lazy_property:
    """A property that is computed at its first use, with gradients, and kept as an attribute."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        if instance is None:
            return property(self.wrapped, doc=self.__doc__)
        value = _with_gradients(self.wrapped, instance)
        setattr(instance, self.__name__, value)
        return value


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Tensors of one shape.

    Numbers take the dtype and device of the first tensor, or the defaults.
    """
    first: Any = next((v for v in values if isinstance(v, Value)), None)
    if first is None:
        made: list[Any] = [tensor(float(v), dtype=get_default()) for v in values]
    else:
        like = first.dtype if first.dtype.kind == "f" else get_default()
        made = [
            v if isinstance(v, Value) else tensor(v, dtype=like, device=first.device)
            for v in values
        ]
    return tuple(ops.broadcast_tensors(*made))


def all_numbers(*values: Any) -> bool:
    """Whether none is a tensor."""
    return not any(isinstance(v, Value) for v in values)


def size_of(sample_shape: Any) -> Size:
    """A shape from a number or a sequence."""
    return Size((sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape))


def sum_last(value: Any, dims: int) -> Any:
    """The sum over the last `dims` dimensions."""
    return value if dims == 0 else value.sum(tuple(range(-dims, 0)))


def tiny(x: Any) -> float:
    """The smallest normal number of a tensor's dtype."""
    return {2: 2.0**-14, 4: 2.0**-126, 8: 2.0**-1022}[x.dtype.itemsize]


def eps(x: Any) -> float:
    """The machine epsilon of a tensor's dtype."""
    return {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}[x.dtype.itemsize]


def clamp_probs(probs: Any) -> Any:
    """Probabilities clamped away from 0 and 1, so that their logarithms are finite."""
    return probs.clamp(min=eps(probs), max=1 - eps(probs))


@memo
def probs_to_logits(probs: Value, is_binary: bool = False) -> Any:
    """Log-odds of probabilities, or log probabilities of several classes."""
    kept = clamp_probs(probs)
    return kept.log() - (-kept).log1p() if is_binary else kept.log()


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities from log-odds, or by softmax along the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return ops.logaddexp(x, ops.zeros_like(x))


def xlogy(x: Any, y: Any) -> Any:
    """x log(y), 0 where x is 0."""
    return ops.xlogy(x, y)
