"""Module calls with hooks.

Hooks of every module run before those of one module. `nn/modules/module.py` has the functions that
register them.

# Note [Backward hooks]
A module with backward hooks takes its inputs and gives its results through an identity function.
Its backward gets the gradients of this call, of all inputs or all results at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from rushlight.core.errors import RushlightError
from rushlight.tape.function import Function
from rushlight.tape.record.state import STATE
from rushlight.tape.walk.hooks import check_same
from rushlight.tensor import Tensor

# Hooks of every module with their event: "before", "after", "backward", "before backward" ...
ON_CALL: dict[int, tuple[str, Any]] = {}
# ... or the kind of member that is registered.
ON_MEMBER: dict[int, tuple[str, Any]] = {}


def _every(kind: str) -> dict[int, Any]:
    return (
        {key: hook for key, (waits_for, hook) in ON_CALL.items() if waits_for == kind}
        if ON_CALL
        else {}
    )


def admitted(module: Any, kind: str, name: str, value: Any) -> Any:
    """A member after the registration hooks of its kind."""
    for waits_for, hook in list(ON_MEMBER.values()):
        if waits_for == kind:
            given = hook(module, name, value)
            value = value if given is None else given
    return value


class BeforeLoading:
    """A hook of `load_state_dict`, which gets its module first with `with_module`."""

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        functools.update_wrapper(self, hook)
        self.hook = hook
        self.with_module = module is not None
        self.module = ref(module) if module is not None else None  # the module holds the hook

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module(), *args) if self.module is not None else self.hook(*args)

    def __getstate__(self) -> dict[str, Any]:  # PyTorch's, for files
        held = {"hook": self.hook, "with_module": self.with_module}
        return held if self.module is None else {**held, "module": self.module()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["hook"], state.get("module"))  # type: ignore[misc]


def _before(
    module: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    own = module._forward_pre_hooks
    named_to = module._forward_pre_hooks_with_kwargs
    hooks = [*_every("before").values(), *[(own[key], key in named_to) for key in own]]
    for hook, takes_named in hooks:
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
    named_to, always_to = module._forward_hooks_with_kwargs, module._forward_hooks_always_called
    own = module._forward_hooks.items()
    left = _every("after")
    left.update((key, (hook, key in named_to, key in always_to)) for key, hook in own)
    try:
        args, named = _before(module, args, named)
        has_hooks = (
            module._backward_hooks
            or module._backward_pre_hooks
            or _every("backward")
            or _every("before backward")
        )
        hooked = _HookedCall(module) if has_hooks and STATE.get().grad else None
        if hooked is not None:
            args = hooked.inputs(args)
        result = module.forward(*args, **named)
        for key, (hook, takes_named, _) in list(left.items()):
            del left[key]
            changed = (
                hook(module, args, named, result) if takes_named else hook(module, args, result)
            )
            result = result if changed is None else changed
        return result if hooked is None else hooked.results(result)
    except Exception:
        for hook, takes_named, always in left.values():
            if always:  # the pending error is the one to raise
                hook(module, args, named, result) if takes_named else hook(module, args, result)
        raise


class _Through(Function):
    """Identity on tensors whose gradients, all at once, go through a function."""

    @staticmethod
    def forward(
        ctx: Any, change: Callable[[tuple[Any, ...]], tuple[Any, ...]], *tensors: Any
    ) -> Any:
        ctx.change = change
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *ctx.change(grads)


def _replaced(module: Any, given: tuple[Any, ...], changed: Any) -> tuple[Any, ...]:
    """The gradients that a hook returned in place of others."""
    parts = changed if isinstance(changed, tuple) else (changed,)
    if len(parts) != len(given):
        raise RushlightError(
            f"a backward hook of {type(module).__name__} gave {len(parts)} gradients in place of "
            f"{len(given)}"
        )
    for part, old in zip(parts, given, strict=True):
        if part is not None and old is not None:
            check_same(lambda: f"a backward hook of {type(module).__name__}", old._spec, part)
    return parts


class _HookedCall:
    """One call of a module with backward hooks."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.out: tuple[Any, ...] | None = None  # gradients of the results, when known
        self.count = 0  # of positional arguments
        # Whether inputs have gradients, which are computed after those of the results.
        self.below = False

    def _led(
        self, values: Sequence[Any], change: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    ) -> tuple[list[Any], bool]:
        """Values with their tensors passed through `change`, which gets None for all others."""
        at = [
            i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad
        ]
        seen, count = list(values), len(values)
        if not at:
            return seen, False

        def spread(grads: tuple[Any, ...]) -> tuple[Any, ...]:  # the record keeps it: no tensors
            whole: list[Any] = [None] * count
            for i, gradient in zip(at, grads, strict=True):
                whole[i] = gradient
            changed = change(tuple(whole))
            return tuple(changed[i] for i in at)

        for i, value in zip(at, _Through.apply(spread, *(values[i] for i in at)), strict=True):
            seen[i] = value
        return seen, True

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.count = len(args)
        seen, self.below = self._led(args, self._met_inputs)
        return tuple(seen)

    def results(self, result: Any) -> Any:
        if isinstance(result, dict):
            values, _ = self._led(list(result.values()), self._met_results)
            result.update(zip(list(result), values, strict=True))
            return result
        many = isinstance(result, (tuple, list))
        values, _ = self._led(list(result) if many else [result], self._met_results)
        if not many:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)

    def _met_results(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in [
            *_every("before backward").values(),
            *self.module._backward_pre_hooks.values(),
        ]:
            changed = hook(self.module, given)
            given = given if changed is None else _replaced(self.module, given, changed)
        self.out = given
        if not self.below:
            self._met_inputs((None,) * self.count)
        return given

    def _met_inputs(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        above, self.out = self.out, None
        # In a second derivative they reach the inputs without passing the results.
        if above is None:
            return given
        for hook in [*_every("backward").values(), *self.module._backward_hooks.values()]:
            changed = hook(self.module, given, above)
            if self.below:
                given = given if changed is None else _replaced(self.module, given, changed)
            elif changed is not None and not (
                isinstance(changed, tuple) and all(part is None for part in changed)
            ):
                raise RushlightError(
                    f"a backward hook of {type(self.module).__name__} gave gradients of its "
                    "inputs, none of which requires any; give None or a tuple of None"
                )
        return given
