"""Jacobians, Hessians and their products: PyTorch's `torch.autograd.functional`.

Each function calls `func(*inputs)`, where inputs are a tensor or a tuple of tensors, and so are its
outputs; results are nested likewise. Without `create_graph` no result has a record. With `strict`,
an output that does not depend on an input is an error; otherwise the derivative is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import KindError, RushlightError, ShapeError
from rushlight.func.jacobians import columns, rows
from rushlight.func.transforms import Function, Pulled, Pushed
from rushlight.lazy import shown
from rushlight.ops.create import creation
from rushlight.ops.view import views
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def __dir__() -> list[str]:
    return shown(__name__)


Nest = Any  # a tensor, or a tuple of tensors


def _listed(name: str, what: str, given: Nest) -> tuple[tuple[Any, ...], bool]:
    """The tensors as a tuple, and whether they were given as one."""
    listed = given if isinstance(given, tuple) else (given,)
    for i, x in enumerate(listed):
        if not isinstance(x, Value):
            raise TypeError(
                f"{name}: {what} must be a tensor or a tuple of tensors, got {type(x).__name__}"
                + (f" at {i}" if isinstance(given, tuple) else "")
            )
    return listed, isinstance(given, tuple)


def _nested(parts: Sequence[Any], as_tuple: bool) -> Any:
    return tuple(parts) if as_tuple else parts[0]


def _vector(name: str, v: Nest, wanted: Sequence[Any], owner: str) -> list[Any]:
    """The vector: a tensor like each of `wanted`; for a single number, 1 by default."""
    if v is None:
        if len(wanted) != 1 or wanted[0]._spec.numel != 1:
            raise RushlightError(
                f"{name}: a vector v must be given unless the {owner} is one number, here "
                f"{', '.join(repr(x._spec) for x in wanted)}"
            )
        return [creation.ones_like(wanted[0].detach())]
    given, _ = _listed(name, "v", v)
    if len(given) != len(wanted):
        raise RushlightError(f"{name}: v has {len(given)} tensors for {len(wanted)} of the {owner}")
    for i, (part, x) in enumerate(zip(given, wanted, strict=True)):
        if part._spec.shape != x._spec.shape:
            raise ShapeError(
                f"{name}: v {i} is {part._spec!r}, but the {owner} is {x._spec!r}; the shapes must "
                "agree"
            )
    return list(given)


class _Run:
    """The function run once, with or without records of its results; shared by both directions."""

    def __init__(
        self, name: str, func: Function, inputs: Nest, strict: bool, forward: bool = False
    ) -> None:
        self.name = name
        self.strict = strict
        self.inputs, self.in_tuple = _listed(name, "inputs", inputs)
        self.out_tuple = False

        def listed(*values: Any) -> tuple[Any, ...]:
            made, self.out_tuple = _listed(name, "the function's outputs", func(*values))
            return made

        self.made: Any = (Pushed if forward else Pulled)(name, listed, self.inputs)
        self.outs = self.made.outs
        if strict:
            for i, y in enumerate(self.outs):
                if edge_of(y) is None:
                    self.independent(i)

    def independent(self, output: int, input: int | None = None) -> None:
        of = "of the inputs" if input is None else f"of input {input}"
        raise RushlightError(
            f"{self.name}: output {output} ({self.outs[output]._spec!r}) is independent {of}, "
            "which strict=True forbids"
        )

    def check_twice(self, parts: Sequence[Any]) -> None:
        """With `strict`, a value that is differentiated again must depend on the inputs."""
        if (
            self.strict
            and STATE.get().grad
            and self.made.level.tracked
            and any(edge_of(p) is None for p in parts)
        ):
            raise RushlightError(
                f"{self.name}: the derivative is independent of the inputs, which strict=True and "
                "create_graph=True forbid"
            )

    @property
    def output(self) -> Any:
        return _nested([self.made.level.leave(y) for y in self.outs], self.out_tuple)


def vjp(
    func: Function, inputs: Nest, v: Nest = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, v times the Jacobian); v is nested like the output."""
    with Changed(grad=create_graph):
        run = _Run("vjp", func, inputs, strict)
        vector = _vector("vjp", v, run.outs, "output")
        parts = run.made.pull(run.outs, vector, strict=strict)
        run.check_twice(parts)
        return run.output, _nested(parts, run.in_tuple)


def jvp(
    func: Function, inputs: Nest, v: Nest = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, the Jacobian times v); v is nested like the inputs."""
    with Changed(grad=create_graph):
        run = _Run("jvp", func, inputs, strict, forward=True)
        vector = _vector("jvp", v, run.inputs, "input")
        where = run.made.independent() if strict else None
        if where is not None:
            run.independent(where)
        parts = run.made.push(dict(enumerate(vector)))
        run.check_twice(parts)
        return run.output, _nested(parts, run.out_tuple)


def jacobian(
    func: Function,
    inputs: Nest,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: for each output and each input a block of shape output.shape + input.shape.

    `vectorize` computes all rows together (or all columns, with strategy "forward-mode"), which is
    faster and takes more memory.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(
            f"jacobian: strategy is 'reverse-mode' or 'forward-mode', got {strategy!r}"
        )
    return _jacobian(
        "jacobian",
        func,
        inputs,
        create_graph,
        strict,
        None if vectorize else 1,
        forward=strategy == "forward-mode",
    )


def _jacobian(
    name: str,
    func: Function,
    inputs: Nest,
    create_graph: bool,
    strict: bool,
    chunk: int | None,
    forward: bool,
) -> Any:
    with Changed(grad=create_graph):
        run = _Run(name, func, inputs, strict, forward)
        for y in run.outs:
            if y._spec.dtype.kind == "c":
                raise RushlightError(
                    f"{name}: the outputs must be real, got {y._spec!r}; use view_as_real, vjp or "
                    "jvp"
                )
        blocks = columns(run.made, chunk) if forward else rows(run.made, chunk, strict)
        run.check_twice([part for block in blocks for part in block])
        return _nested([_nested(block, run.in_tuple) for block in blocks], run.out_tuple)


def _one_number(name: str, func: Function) -> Function:
    def checked(*inputs: Any) -> Any:
        made = func(*inputs)
        if not isinstance(made, Value):
            raise KindError(
                f"{name}: the function must return one tensor, got {type(made).__name__}"
            )
        if made._spec.numel != 1:
            raise RushlightError(
                f"{name}: the function must return one number, got {made._spec!r}; reduce it with "
                ".sum()"
            )
        return made

    return checked


def hessian(
    func: Function,
    inputs: Nest,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function that returns one number.

    For inputs i and j a block has shape i.shape + j.shape.
    """
    if outer_jacobian_strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(
            "hessian: outer_jacobian_strategy is 'reverse-mode' or 'forward-mode', got "
            f"{outer_jacobian_strategy!r}"
        )
    _, as_tuple = _listed("hessian", "inputs", inputs)

    checked = _one_number("hessian", func)

    def number(*values: Any) -> Any:
        return views.reshape(checked(*values), ())

    def gradient(*values: Any) -> Any:
        given = values if as_tuple else values[0]
        return _jacobian("hessian", number, given, True, strict, None, forward=False)

    forward = outer_jacobian_strategy == "forward-mode"
    return _jacobian(
        "hessian", gradient, inputs, create_graph, strict, None if vectorize else 1, forward
    )


def _second(
    name: str,
    func: Function,
    inputs: Nest,
    v: Nest,
    create_graph: bool,
    strict: bool,
    forward: bool,
) -> tuple[Any, Any]:
    checked = _one_number(name, func)
    listed, as_tuple = _listed(name, "inputs", inputs)
    outputs: list[Any] = []

    def gradient(*values: Any) -> tuple[Any, ...]:
        made = Pulled(name, lambda *inner: (checked(*inner),), values)
        if strict and edge_of(made.outs[0]) is None:
            raise RushlightError(
                f"{name}: the output is independent of the inputs, which strict=True forbids"
            )
        outputs.append(made.level.leave(made.outs[0]))
        return tuple(
            made.pull(made.outs, [creation.ones_like(made.outs[0].detach())], strict=strict)
        )

    with Changed(grad=create_graph):
        run = _Run(name, gradient, listed, strict, forward)
        vector = _vector(name, v, run.inputs, "input")
        parts = (
            run.made.push(dict(enumerate(vector)))
            if forward
            else run.made.pull(run.outs, vector, strict=strict)
        )
        return run.made.level.leave(outputs[0]), _nested(parts, as_tuple)


def vhp(
    func: Function, inputs: Nest, v: Nest = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, v times the Hessian) of a function that returns one number.

    v is nested like the inputs.
    """
    return _second("vhp", func, inputs, v, create_graph, strict, forward=False)


def hvp(
    func: Function, inputs: Nest, v: Nest = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, the Hessian times v) of a function that returns one number. `vhp` does less work."""
    return _second("hvp", func, inputs, v, create_graph, strict, forward=True)
