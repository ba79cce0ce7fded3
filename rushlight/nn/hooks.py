"""Calling a module with the functions that watch it.

# Note [Backward hooks]
A module whose backward pass is watched sees its inputs, and gives its results, through views of their own: the gradient
of such a view is what came through this call and nothing else. The hooks of the results' gradients run when all of them
are known, the hooks of the inputs' gradients when all of those are. Where several inputs have gradients, the first of
them have gone on by then: to put others in their place is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.tape.state import STATE
from rushlight.tensor import Handle, Tensor

_numbers = itertools.count()


def add_hook(hooks: dict[int, Any], hook: Any, first: bool = False) -> Handle:
    key = next(_numbers)
    if first:
        rest = dict(hooks)
        hooks.clear()
        hooks[key] = hook
        hooks.update(rest)
    else:
        hooks[key] = hook
    return Handle(hooks, key)


def _before(module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for hook, takes_named in list(module._forward_pre_hooks.values()):
        if takes_named:
            changed = hook(module, args, named)
            args, named = (args, named) if changed is None else changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    return args, named


def call_with_hooks(module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    result: Any = None
    left = dict(module._forward_hooks)
    try:
        args, named = _before(module, args, named)
        watched = module._backward_hooks or module._backward_pre_hooks
        watch = _Watch(module) if watched and STATE.get().grad else None
        if watch is not None:
            args = watch.inputs(args)
        result = module.forward(*args, **named)
        for key, (hook, takes_named, _) in list(left.items()):
            del left[key]
            changed = hook(module, args, named, result) if takes_named else hook(module, args, result)
            result = result if changed is None else changed
        return result if watch is None else watch.results(result)
    except Exception:
        for hook, takes_named, always in left.values():
            if always:  # the error that is under way is the one to be seen
                hook(module, args, named, result) if takes_named else hook(module, args, result)
        raise


class _Watch:
    """One call of a module whose backward pass is watched."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.into: list[Any] = []  # gradients of the inputs
        self.out: list[Any] = []  # gradients of the results
        self.missing_in = self.missing_out = 0

    def _view(self, value: Any, met: Callable[[int, Any], Any], at: int) -> tuple[Any, bool]:
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value, False
        seen = value.view_as(value)
        seen.register_hook(lambda g: met(at, g))
        return seen, True

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.into = [None] * len(args)
        parts = [self._view(value, self._met_input, i) for i, value in enumerate(args)]
        self.missing_in = sum(watched for _, watched in parts)
        return tuple(value for value, _ in parts)

    def results(self, result: Any) -> Any:
        many = isinstance(result, (tuple, list))
        listed = list(result) if many else [result]
        self.out = [None] * len(listed)
        parts = [self._view(value, self._met_result, i) for i, value in enumerate(listed)]
        self.missing_out = sum(watched for _, watched in parts)
        values = [value for value, _ in parts]
        if not many:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)

    def _met_result(self, at: int, gradient: Any) -> Any:
        self.out[at] = gradient
        self.missing_out -= 1
        if self.missing_out > 0:
            return None
        given = tuple(self.out)
        for hook in list(self.module._backward_pre_hooks.values()):
            changed = hook(self.module, given)
            if changed is not None:
                given = self._replaced(changed, len(self.out), "results")
        self.out = list(given)
        if not self.missing_in:
            self._call_hooks()
        return given[at]

    def _met_input(self, at: int, gradient: Any) -> Any:
        self.into[at] = gradient
        self.missing_in -= 1
        return self._call_hooks()[at] if self.missing_in == 0 else None

    def _call_hooks(self) -> tuple[Any, ...]:
        given = tuple(self.into)
        for hook in list(self.module._backward_hooks.values()):
            changed = hook(self.module, given, tuple(self.out))
            if changed is not None:
                given = self._replaced(changed, sum(g is not None for g in self.into), "inputs")
        return given

    def _replaced(self, changed: Any, count: int, what: str) -> tuple[Any, ...]:
        if count > 1:
            raise RushlightError(
                f"a backward hook of {type(self.module).__name__} gave other gradients for its {count} {what}; only of one "
                f"can they be replaced; use Tensor.register_hook on each"
            )
        return changed if isinstance(changed, tuple) else (changed,)
