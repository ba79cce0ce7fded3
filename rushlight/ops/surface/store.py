"""Stores a result in the tensors given as `out`. See Note [Out arguments]."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight.core.dtypes import castable, uint8
from rushlight.core.errors import DeviceError, DTypeError, RushlightError
from rushlight.core.shapes import contiguous_strides
from rushlight.ops.registry import REGISTRY, Out
from rushlight.ops.surface.inplace_views import resized
from rushlight.ops.surface.out import check_exact
from rushlight.ops.view import inplace
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value


def store(name: str, out: Any, result: Any, kind: Out | None = None) -> Any:
    """Store a result, or one for each of several outs; returns `out`."""
    if kind is None:
        kind = REGISTRY[name].out
    if isinstance(result, Value):
        _check_one(name, out, result, kind)
        return _store_one(name, out, result)
    if (
        not isinstance(result, (tuple, list))
        or not isinstance(out, (tuple, list))
        or len(out) != len(result)
    ):
        wanted = (
            f"a tuple of {len(result)} tensors"
            if isinstance(result, (tuple, list))
            else "no tensor"
        )
        raise TypeError(f"{name}(): out must be {wanted}, got {type(out).__name__}")
    for place, part in zip(out, result, strict=True):  # all of them, before anything is written
        _check_one(name, place, part, kind)
    stored = [_store_one(name, place, part) for place, part in zip(out, result, strict=True)]
    several: Any = type(result)
    return several(*stored) if hasattr(result, "_fields") else tuple(stored)


def _check_one(name: str, out: Any, result: Value, kind: Out) -> None:
    if not isinstance(out, Value):
        raise TypeError(f"{name}(): out must be a tensor, got {type(out).__name__}")
    if STATE.get().grad and (edge_of(out) is not None or edge_of(result) is not None):
        raise RushlightError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad; use no_grad(), or the result without out"
        )
    if out._spec.device is not result._spec.device:
        raise DeviceError(
            f"{name}(): out {out._spec!r} is on another device than the result {result._spec!r}"
        )
    if kind == "exact" or (kind == "flags" and out._spec.dtype is not uint8):
        check_exact(name, out, result)
    if not castable(result._spec.dtype, out._spec.dtype):
        raise DTypeError(
            f"{name}(): result type {result._spec.dtype.name} can't be cast to the desired output "
            f"type {out._spec.dtype.name}; give an out of type {result._spec.dtype.name}"
        )
    if out._spec.shape == result._spec.shape:  # another shape is resized first
        inplace.check_writable(out, name)


def _store_one(name: str, out: Value, result: Value) -> Value:
    with Changed(grad=False):
        if out._spec.shape != result._spec.shape:
            _resize(name, out, result)
        return inplace.copy_(out, result)


def _resize(name: str, out: Value, result: Value) -> None:
    if out._spec.numel:
        warnings.warn(
            f"{name}(): An output with one or more elements was resized since it had shape "
            f"{list(out._spec.shape)}, which does not match the required output shape "
            f"{list(result._spec.shape)}. Resize it with out.resize_(0) first to reuse it for "
            "another shape.",
            stacklevel=5,
        )
    spec = result._spec
    strides = spec.strides if spec.dense else contiguous_strides(spec.shape)
    resized(out, spec.shape, strides)
