"""Derivatives of functions as functions: `grad`, `vjp`, `jvp`, `linearize`.

See Note [Gradient levels].
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.func.arguments import Argnums, Chosen, fitting, tensors_in, with_aux
from rushlight.func.grad_level import GradLevel, depends, leaves_under, or_zeros, pull
from rushlight.ops.create import creation
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of
from rushlight.utils._pytree import tree_flatten, tree_map

Function = Callable[..., Any]


def _outside(level: GradLevel, tree: Any) -> Any:
    return tree_map(level.leave, tree)


# ---- reverse ----


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function that computes the gradient of `func`, which returns one number.

    With `has_aux`, it returns (gradient, aux).

    Args:
        func (function): A function of tensors.
        argnums (int or ints): The arguments that are differentiated, by position.
        has_aux (bool): Whether `func` returns (output, aux); aux is passed on.
    """

    @functools.wraps(func)
    def gradient(*args: Any, **named: Any) -> Any:
        found, _, aux = _gradient("grad", func, argnums, has_aux, args, named)
        return (found, aux) if has_aux else found

    return gradient


def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """As `grad`, giving (gradient, value); with `has_aux`, (gradient, (value, aux)).

    Args:
        func (function): A function of tensors.
        argnums (int or ints): The arguments that are differentiated, by position.
        has_aux (bool): Whether `func` returns (output, aux); aux is passed on.
    """

    @functools.wraps(func)
    def both(*args: Any, **named: Any) -> Any:
        found, value, aux = _gradient("grad_and_value", func, argnums, has_aux, args, named)
        return found, (value, aux) if has_aux else value

    return both


def value_and_grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """As `grad`, giving (value, gradient); with `has_aux`, ((value, aux), gradient).

    Args:
        func (function): A function of tensors.
        argnums (int or ints): The arguments that are differentiated, by position.
        has_aux (bool): Whether `func` returns (output, aux); aux is passed on.
    """

    @functools.wraps(func)
    def both(*args: Any, **named: Any) -> Any:
        found, value, aux = _gradient("value_and_grad", func, argnums, has_aux, args, named)
        return (value, aux) if has_aux else value, found

    return both


def _gradient(
    name: str,
    func: Function,
    argnums: Argnums,
    has_aux: bool,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> tuple[Any, Any, Any]:
    chosen = Chosen(name, argnums, args)
    level = GradLevel(name, chosen.leaves)
    out, aux = with_aux(name, level.run(func, *chosen.rebuilt(level.values), **named), has_aux)
    _check_one_number(name, out)
    ones = creation.ones_like(_plain(out))
    # Gradients of a batch are large and often views: the plain pass, which gives leaves their own
    # memory, would copy them.
    if not out._spec.hidden and level.is_all(out):
        parts = level.pull_all(out, ones)
    else:
        live = level.depends([out])
        parts = level.pull([out], [ones], create=live, retain=live)
    gradients = [
        level.leave(or_zeros(part, x)) for part, x in zip(parts, chosen.leaves, strict=True)
    ]
    return chosen.spec.unflatten(gradients), level.leave(out), _outside(level, aux)


def _plain(value: Any) -> Any:
    return value.detach()


def _check_one_number(name: str, out: Any) -> None:
    if not isinstance(out, Value):
        raise RushlightError(
            f"{name}: the function must return one number as a tensor, got {type(out).__name__}; "
            f"return the rest as aux, with has_aux=True"
        )
    if out._spec.shape:
        raise RushlightError(
            f"{name}: the function must return one number, got {out._spec!r}; reduce it with "
            ".sum() or .mean(), or use vjp or jacrev"
        )
    if out._spec.dtype.kind == "c":
        raise RushlightError(
            f"{name}: the function must return a real number, got {out._spec!r}; go from a real "
            "one such as .abs()"
        )


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """(output, vjp_fn) or, with `has_aux`, (output, vjp_fn, aux).

    `vjp_fn(cotangents)` returns a tuple, a gradient per primal.

    Args:
        func (function): A function of tensors.
        primals: The arguments of `func`.
        has_aux (bool): Whether `func` returns (output, aux); aux is passed on.
    """
    pulled = Pulled("vjp", func, primals, has_aux)
    output = _outside(pulled.level, pulled.output)

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = fitting("vjp", "cotangent", cotangents, pulled.out_spec, pulled.outs, "output")
        parts = pulled.pull(pulled.outs, given, retain_graph, create_graph)
        return pulled.in_spec.unflatten(parts)

    return (output, vjp_fn, pulled.aux) if has_aux else (output, vjp_fn)


class Pulled:
    """A function run once on given primals, and its vector-Jacobian products."""

    def __init__(
        self, name: str, func: Function, primals: tuple[Any, ...], has_aux: bool = False
    ) -> None:
        self.name = name
        self.primals, self.in_spec = tree_flatten(primals)
        self.level = level = GradLevel(name, self.primals)
        made = level.run(func, *self.in_spec.unflatten(level.values))
        self.output, aux = with_aux(name, made, has_aux)
        self.outs, self.out_spec = tensors_in(name, self.output)
        self.live = level.depends(self.outs)
        self.aux = _outside(level, aux)
        for y in self.outs:
            if not y._spec.differentiable:
                raise RushlightError(
                    f"{name}: the function's outputs must be floating-point or complex, got "
                    f"{y._spec!r}; return it as aux, with has_aux=True"
                )

    def pull(
        self,
        outs: list[Any],
        cotangents: list[Any],
        retain: bool = True,
        create: bool | None = None,
        strict: bool = False,
    ) -> list[Any]:
        """The gradients of the primals from some of the outputs.

        Zeros where there is no dependence.
        """
        mode = STATE.get().grad
        if create is None:
            create = mode and (self.live or any(edge_of(g) is not None for g in cotangents))
        parts = self.level.pull(outs, cotangents, create, retain or self.live)
        where = next((i for i, part in enumerate(parts) if part is None), None)
        if strict and where is not None:
            raise RushlightError(
                f"{self.name}: the outputs are independent of input {where} "
                f"({self.primals[where]._spec!r}), which strict=True forbids"
            )
        return [
            _with_needed_record(or_zeros(part, x), mode, self.level)
            for part, x in zip(parts, self.primals, strict=True)
        ]


def _with_needed_record(value: Value, mode: bool, level: GradLevel) -> Any:
    """A derivative computed after its level: with its record where an outer level needs it."""
    return (
        value
        if edge_of(value) is None or (mode and depends([value], level.tracked))
        else _plain(value)
    )


# ---- forward ----


def jvp(
    func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False
) -> tuple[Any, ...]:
    """(output, its derivative along the tangents) or, with `has_aux`, (output, derivative, aux).

    With `strict`, an output that does not depend on the primals is an error; otherwise its
    derivative is zero.

    Args:
        func (function): A function of tensors.
        primals (tuple): The arguments of `func`.
        tangents (tuple): A direction per argument, of its structure and shapes.
        strict (bool): Raise for an output that does not depend on the arguments.
        has_aux (bool): Whether `func` returns (output, aux); aux is passed on.
    """
    if not isinstance(primals, tuple):
        raise RushlightError(
            f"jvp: primals must be a tuple of arguments, got {type(primals).__name__}"
        )
    if not primals:
        raise RushlightError("jvp: primals must not be empty")
    pushed = Pushed("jvp", func, primals, has_aux)
    given = fitting("jvp", "tangent", tangents, pushed.in_spec, pushed.primals, "primal")
    where = pushed.independent() if strict else None
    if where is not None:
        raise RushlightError(
            f"jvp: output {where} ({pushed.outs[where]._spec!r}) does not depend on the primals, "
            "which strict=True forbids"
        )
    parts = pushed.out_spec.unflatten(pushed.push(dict(enumerate(given)), retain=False))
    output = _outside(pushed.level, pushed.output)
    return (output, parts, pushed.aux) if has_aux else (output, parts)


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """(output, jvp_fn): `jvp_fn(*tangents)` is the derivative there; `func` runs once.

    Args:
        func (function): A function of tensors.
        primals: The arguments of `func`.
    """
    pushed = Pushed("linearize", func, primals)

    def jvp_fn(*tangents: Any) -> Any:
        given = fitting("linearize", "tangent", tangents, pushed.in_spec, pushed.primals, "primal")
        return pushed.out_spec.unflatten(pushed.push(dict(enumerate(given))))

    return _outside(pushed.level, pushed.output), jvp_fn


class Pushed:
    """A function run once on given primals, and its Jacobian-vector products.

    `pulled` are the recorded gradients of the primals, linear functions of the cotangents.
    """

    def __init__(
        self, name: str, func: Function, primals: tuple[Any, ...], has_aux: bool = False
    ) -> None:
        self.primals, self.in_spec = tree_flatten(primals)
        self.level = level = GradLevel(name, self.primals)
        made = level.run(func, *self.in_spec.unflatten(level.values))
        self.output, aux = with_aux(name, made, has_aux)
        self.outs, self.out_spec = tensors_in(name, self.output)
        self.live = level.depends(self.outs)
        self._pull(name)
        self.aux = _outside(level, aux)

    def _pull(self, name: str) -> None:
        recorded = [i for i, y in enumerate(self.outs) if edge_of(y) is not None]
        outs = [self.outs[i] for i in recorded]
        self.cotangents = GradLevel(name, [creation.zeros_like(_plain(y)) for y in outs])
        ends = self.level.tracked
        self.pulled = self.cotangents.run(
            pull, outs, self.level.marks, self.cotangents.values, True, True, ends
        )
        # Index of an output among those with a record.
        self.index_of = {i: n for n, i in enumerate(recorded)}

    def independent(self) -> int | None:
        """The first output that does not depend on the primals."""
        reached = leaves_under([g for g in self.pulled if g is not None], self.level.tracked)
        for i in range(len(self.outs)):
            if i not in self.index_of or self.cotangents.leaves[self.index_of[i]] not in reached:
                return i
        return None

    def push(self, tangents: dict[int, Any], retain: bool = True) -> list[Any]:
        """The derivative of every output along tangents, by index of the primal.

        Missing ones are zero.
        """
        mode = STATE.get().grad
        create = mode and (self.live or any(edge_of(t) is not None for t in tangents.values()))
        pairs = [(self.pulled[i], t) for i, t in tangents.items() if self.pulled[i] is not None]
        outs, seeds = [g for g, _ in pairs], [t for _, t in pairs]
        parts = pull(
            outs, self.cotangents.marks, seeds, create, retain or create, self.level.tracked
        )
        results = []
        for i, y in enumerate(self.outs):
            part = parts[self.index_of[i]] if i in self.index_of else None
            results.append(_with_needed_record(or_zeros(part, y), mode, self.level))
        return results


# ---- for compatibility ----


def functionalize(func: Function, *, remove: str = "mutations") -> Function:
    """The function itself: the tape records in-place writes, so there is nothing to remove.

    Args:
        func (function): A function of tensors.
        remove (str): 'mutations' or 'mutations_and_views'.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise ValueError(
            f"functionalize: remove is 'mutations' or 'mutations_and_views', got {remove!r}"
        )
    return func


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """The tensor behind a transform's handle, for debugging; under vmap the whole batch.

    Args:
        tensor (Tensor): A tensor inside a transform.
        recurse (bool): Has no effect: all levels are unwrapped.
    """
    return _plain(physical_of(tensor))
