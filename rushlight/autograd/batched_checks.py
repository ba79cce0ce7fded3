"""`vmap` over derivatives compared with one derivative after the other: `check_batched_grad`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.autograd.differences import floats, like, outputs_of, real_count, real_numbers
from rushlight.autograd.lazy_numpy import Array, np
from rushlight.core.errors import GradcheckError, RushlightError
from rushlight.func.vmap import vmap
from rushlight.ops.view import views
from rushlight.tape.record.state import enable_grad
from rushlight.tape.walk import roots
from rushlight.tensor import Tensor

BATCH = 3


def _batch_like(model: Tensor, seed: int) -> list[Tensor]:
    random = np.random.default_rng(seed)
    return [like(random.uniform(-1, 1, real_count(model)), model) for _ in range(BATCH)]


def _compare(
    what: str, one: Callable[[Any], Any], given: list[Tensor], atol: float, rtol: float
) -> None:
    """One vmapped call compared with one call per example."""
    try:
        together = vmap(one)(views.stack(given))
    except RushlightError as error:
        raise GradcheckError(
            f"gradcheck: vmap over {what} raised {type(error).__name__}: {error}"
        ) from error
    for k, g in enumerate(given):
        for i, (batch, alone) in enumerate(zip(together, one(g), strict=True)):
            got, want = real_numbers(batch[k]), real_numbers(alone)
            if not np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"gradcheck: vmap over {what} gives another result {i} for example {k} than a "
                    f"call of its own: the largest difference is {_largest(got - want):.6g}"
                )


def _largest(away: Array) -> float:
    return float(np.abs(away).max(initial=0))


def check_batched_backward(
    function: Callable[..., Any], inputs: Sequence[Any], xs: list[Tensor], atol: float, rtol: float
) -> None:
    """The backward pass of every output, for a batch of gradients at once."""
    for j, out in enumerate(outputs_of(function, inputs)):
        if floats(out) and out.requires_grad:

            def pull(g: Any, out: Tensor = out) -> list[Any]:
                return list(roots.grad(out, xs, g, retain_graph=True, materialize_grads=True))

            _compare(f"the backward pass of output {j}", pull, _batch_like(out, 6 + j), atol, rtol)


def check_batched_forward(
    function: Callable[..., Any], inputs: Sequence[Any], xs: list[Tensor], atol: float, rtol: float
) -> None:
    """The derivative of every output along a batch of directions at once."""
    for j, out in enumerate(outputs_of(function, inputs)):
        if not (floats(out) and out.requires_grad):
            continue
        with enable_grad():
            seed = like(np.zeros(real_count(out)), out).requires_grad_()
            pulled = roots.grad(out, xs, seed, create_graph=True, allow_unused=True)
        for i, g in enumerate(pulled):
            if g is not None:

                def push(step: Any, g: Tensor = g, seed: Tensor = seed) -> list[Any]:
                    return list(
                        roots.grad(g, seed, step, retain_graph=True, materialize_grads=True)
                    )

                where = f"the derivative of output {j} along input {i}"
                _compare(where, push, _batch_like(xs[i], 60 + i), atol, rtol)
