"""Autocast: operands of listed ops in another dtype, chosen when a call is recorded.

# Note [Autocast]
1. `State.autocast` is None, or holds the dtypes by kinds of devices. A change makes another object.
2. A declaration states what becomes of the op's operands (`Entry.autocast`), on the CPU and on
   other devices. An op that states nothing has no test for autocast in its call.
3. Operands are floats on a device of that kind; doubles stay. Casts are ordinary records. Inside of
   a listed op autocast is off, so the casts do not depend on how the op is composed.
4. In-place forms and calls with `out` run without casts, as in PyTorch, and so do derivatives.
5. The lower copy of a float32 leaf that requires gradients is kept until the outermost region ends,
   for one version of its memory: a weight is cast again after an optimiser's step. The gradients of
   its uses are added up in the lower dtype, so it is kept in checkpoints and budgets as well, where
   its memory may be dropped. Nothing is kept where calls are traced, batched or have tangents.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rushlight.core.dtypes import DType, float32
from rushlight.core.errors import RushlightError, SparseOperandError
from rushlight.core.shapes import Spec
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.state import STATE, State, without_autocast
from rushlight.tape.record.value import Leaf, Value

PLAIN = frozenset([int, float, bool, str, type(None)])  # arguments that are not cast

# By the leaf, the grad mode and the dtype: the memory that was cast, its version, the copy.
Casts = dict[tuple[Leaf, bool, DType], tuple["weakref.ref[Storage]", int, Value]]


@dataclass(frozen=True, eq=False)
class Autocast:
    """The settings of autocast. See Note [Autocast]."""

    chosen: Mapping[str, DType] = field(default_factory=dict)  # by kinds where it is on
    dtypes: Mapping[str, DType] = field(default_factory=dict)  # by kinds, also where it is off
    caching: bool = True
    nesting: int = 0
    casts: Casts = field(default_factory=dict, repr=False)

    def with_changes(self, **changes: Any) -> Autocast:
        """Changed settings, with the same kept casts."""
        return replace(self, **changes)

    def call(
        self,
        rules: Mapping[str, str],
        function: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Any:
        """Call a listed op, its operands cast where it states so for their device."""
        state = STATE.get()
        kind = None if named.get("out") is not None else self._kind_of((*args, *named.values()))
        rule = None if kind is None else rules.get("cpu" if kind == "cpu" else "gpu")
        if rule is not None and kind is not None:
            args, named = self._cast(rule, kind, function, args, named, state)
        elif not hasattr(function, "kinds"):  # one without a memo may call listed ops
            return function(*args, **named)
        return without_autocast(function, args, named)

    def operands(self, rules: Mapping[str, str], values: Sequence[Value]) -> Sequence[Value]:
        """The operands of a listed elementwise op, cast."""
        kind = self._kind_of(values)
        rule = None if kind is None else rules.get("cpu" if kind == "cpu" else "gpu")
        if rule is None or kind is None:
            return values
        dtype = self._target(rule, kind, values)
        return [self._to(v, dtype, kind, STATE.get()) for v in values]

    def is_on(self, value: Value) -> bool:
        """Whether it is on for the device of a value."""
        return _device(value) in self.chosen

    def _kind_of(self, values: Sequence[Any]) -> str | None:
        """The first kind of device among operands for which autocast is on."""
        for value in values:
            found = None
            if isinstance(value, Value):
                found = _device(value)
            elif value.__class__ is list or value.__class__ is tuple:
                found = self._kind_of(value)
            if found in self.chosen:
                return found
        return None

    def _cast(
        self,
        rule: str,
        kind: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
        state: State,
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        if rule == "refused":
            name = function.__name__
            raise RushlightError(
                f"{name}: its gradient overflows in {self.chosen[kind].name}, so autocast refuses "
                f"it; use {name}_with_logits, or turn autocast off around it"
            )
        if rule == "dtype":
            if not _is_cast(args[0] if args else named.get("input"), kind):
                return args, named
            place = _place_of_dtype(function)
            if len(args) > place:
                return [*args[:place], args[place] or float32, *args[place + 1 :]], named
            return args, {**named, "dtype": named.get("dtype") or float32}
        dtype = self._target(rule, kind, (*args, *named.values()))
        cast = [v if v.__class__ in PLAIN else self._each(v, dtype, kind, state) for v in args]
        return cast, {name: self._each(v, dtype, kind, state) for name, v in named.items()}

    def _each(self, value: Any, dtype: DType, kind: str, state: State) -> Any:
        """An argument, its tensors cast; no closure, whose cycle would keep memory."""
        if isinstance(value, Value):
            return self._to(value, dtype, kind, state)
        if value.__class__ is list or value.__class__ is tuple:
            for v in value:
                if v.__class__ not in PLAIN:
                    return value.__class__([self._each(v, dtype, kind, state) for v in value])
        return value

    def _target(self, rule: str, kind: str, values: Sequence[Any]) -> DType:
        lower = self.chosen[kind]
        if rule == "widest":
            widens = any(_is_cast(v, kind) and v._spec.dtype is float32 for v in _flat(values))
            return float32 if widens else lower
        return lower if rule == "lower" else float32

    def _to(self, value: Value, dtype: DType, kind: str, state: State) -> Value:
        if not _is_cast(value, kind) or value._spec.dtype is dtype:
            return value
        leaf = value._node
        if (
            leaf.__class__ is not Leaf
            or value._base is not None
            or not self.caching
            or (state.special and not state.regional)
            or value._spec.dtype is not float32
        ):
            return Needed.cast(value, dtype)
        key, memory = (leaf, state.grad, dtype), value._memory
        found = self.casts.get(key)
        if found is not None and found[0]() is memory and found[1] == memory.version:
            return found[2]
        made = Needed.cast(value, dtype)
        self.casts[key] = weakref.ref(memory), memory.version, made
        return made


@functools.cache
def _place_of_dtype(function: Callable[..., Any]) -> int:
    """The position of the parameter `dtype`; beyond all where it is given by name only."""
    parameters = inspect.signature(function).parameters.values()
    by_place = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return by_place.index("dtype") if "dtype" in by_place else len(parameters)


def _device(value: Value) -> str | None:
    try:
        spec: Spec = value._spec
    except SparseOperandError:
        return None
    kind: str = spec.device.device.name.partition(":")[0]
    return kind


def _is_cast(value: Any, kind: str) -> bool:
    """Whether it is a float tensor on a kind of device, and no double."""
    if not isinstance(value, Value) or _device(value) != kind:
        return False
    dtype = value._spec.dtype
    return dtype.kind == "f" and dtype.itemsize in (2, 4)


def _flat(values: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        flat += _flat(value) if value.__class__ in (list, tuple) else [value]
    return flat
