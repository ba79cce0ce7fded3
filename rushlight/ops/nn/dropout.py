"""Dropout of whole channels, and alpha dropout, which keeps mean and variance after SELU."""

from __future__ import annotations

import math

from rushlight.core.errors import ShapeError
from rushlight.core.shapes import Shape
from rushlight.ops.create import creation
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random.random import drawing, dropout, rand
from rushlight.ops.registry import composite
from rushlight.ops.view import inplace, views
from rushlight.tape.record.value import Value

_ALPHA = 1.7580993408473766  # the negative limit of SELU, its alpha times its scale


def _check_probability(op: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"{op}: the probability must lie in [0, 1], got {p}")


def _channels(op: str, x: Value) -> Shape:
    """A number for each instance and channel, to be broadcast over the rest."""
    shape = x._spec.shape
    if len(shape) < 2:
        raise ShapeError(
            f"{op}: input needs at least 2 dimensions (batch, channel, ...), got {x._spec!r}"
        )
    return (*shape[:2], *(1,) * (len(shape) - 2))


def _stored(x: Value, result: Value, inplace_: bool) -> Value:
    return inplace.copy_(x, result) if inplace_ and result is not x else result


@drawing
def _drop_channels(op: str, x: Value, p: float, training: bool, inplace_: bool) -> Value:
    _check_probability(op, p)
    if not training or p == 0:
        return x
    ones = creation.full(
        _channels(op, x), 1, dtype=x._spec.dtype, device=x._spec.device.device.name
    )
    return _stored(x, e.mul(x, dropout(ones, p)), inplace_)


@drawing
def _drop_batched(op: str, rank: int, x: Value, p: float, training: bool, inplace_: bool) -> Value:
    """Without a batch the channels come first."""
    if len(x._spec.shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{op}: input must have {rank + 1} or {rank + 2} dimensions, got {x._spec!r}"
        )
    if len(x._spec.shape) == rank + 2:
        return _drop_channels(op, x, p, training, inplace_)
    kept = _drop_channels(op, views.unsqueeze(x, 0), p, training, False)
    return _stored(x, views.squeeze(kept, 0), inplace_)


@composite("dropout1d", method=False, top=False)
def dropout1d(input: Value, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
    """Zero whole channels of (batch, channel, length) with probability p, scale by 1 / (1 - p)."""
    return _drop_batched("dropout1d", 1, input, p, training, inplace)


@composite("dropout2d", method=False, top=False)
def dropout2d(input: Value, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
    """Zero whole channels (dimension 1) with probability p and scale the others by 1 / (1 - p)."""
    return _drop_channels("dropout2d", input, p, training, inplace)


@composite("dropout3d", method=False, top=False)
def dropout3d(input: Value, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
    """Zero whole channels of volumes with probability p and scale the others by 1 / (1 - p)."""
    return _drop_batched("dropout3d", 3, input, p, training, inplace)


@composite("feature_dropout", method=False)
def feature_dropout(input: Value, p: float, train: bool) -> Value:
    """Zero whole channels (dimension 1) with probability p and scale the others by 1 / (1 - p)."""
    return _drop_channels("feature_dropout", input, p, train, False)


@drawing
def _alpha(op: str, x: Value, shape: Shape, p: float, training: bool, inplace_: bool) -> Value:
    _check_probability(op, p)
    if not training or p == 0 or not x._spec.numel:
        return x
    if p == 1:
        return _stored(x, e.mul(x, 0), inplace_)
    scale = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    chance = rand(shape, dtype=x._spec.dtype, device=x._spec.device.device.name)
    kept = e.cast(e.ge(chance, p), x._spec.dtype)
    shift = e.add(e.mul(e.sub(kept, 1), _ALPHA * scale), _ALPHA * scale * p)
    return _stored(x, e.add(e.mul(x, e.mul(kept, scale)), shift), inplace_)


@composite("alpha_dropout", method=False)
def alpha_dropout(
    input: Value, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Value:
    """Dropout that keeps mean 0 and variance 1.

    Dropped elements take SELU's negative limit, then all are scaled.
    """
    return _alpha("alpha_dropout", input, input._spec.shape, p, training, inplace)


@composite("feature_alpha_dropout", method=False)
def feature_alpha_dropout(
    input: Value, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Value:
    """alpha_dropout of whole channels (dimension 1)."""
    shape = _channels("feature_alpha_dropout", input) if training else input._spec.shape
    return _alpha("feature_alpha_dropout", input, shape, p, training, inplace)
