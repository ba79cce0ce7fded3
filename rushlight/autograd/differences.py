"""Jacobians for `gradcheck`: by central differences and by backward passes, as NumPy arrays.

# Note [Real Jacobians]
1. A complex number counts as two real ones, real part first, in inputs and in outputs. So a
   function of complex numbers has a Jacobian of real numbers whether or not it is analytic, and
   conjugates need no rule.
2. The gradient of a real L by a complex z = a + bi is dL/da + i dL/db. So its real and imaginary
   parts are two entries of a column, and a complex output's real and imaginary parts are requested
   with the gradients 1 and i.
3. Differences change the inputs in place, because the function may read them otherwise than by its
   arguments: as the parameters of a module, for example. They are restored, also after an error.
4. A Jacobian is [inputs, outputs]: each row is the effect of one real number of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rushlight.autograd.lazy_numpy import Array, np
from rushlight.core.errors import RushlightError
from rushlight.sparse.coo import SparseTensor
from rushlight.tape.record.state import enable_grad, no_grad
from rushlight.tape.walk import roots
from rushlight.tensor import Tensor, tensor

Function = Callable[..., Any]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of nested lists and tuples, in order; of a sparse one its values."""
    if isinstance(value, SparseTensor):
        yield value._of
    elif isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)


def outputs_of(function: Function, inputs: Sequence[Any]) -> list[Tensor]:
    """The function's results as a list of dense tensors.

    Recording is on, as gradients may be taken inside.
    """
    with enable_grad():
        given = function(*inputs)
        return [v.to_dense() if isinstance(v, SparseTensor) else v for v in _flat(given)]


def _flat(given: Any) -> Iterator[Any]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for part in given:
            yield from _flat(part)
    elif given is not None:
        raise RushlightError(
            f"gradcheck: the function gives {type(given).__name__}, it must give tensors"
        )


def floats(value: Tensor) -> bool:
    return value.dtype.kind in "fc"


def real_count(value: Tensor) -> int:
    """The number of real numbers it holds."""
    return value.numel() * (2 if value.dtype.kind == "c" else 1)


def real_numbers(value: Tensor) -> Array:
    """Its elements as a flat float64 array, a complex one as two."""
    # A copy: the memory may be written to.
    array = np.array(value.detach().cpu().numpy(), _wide(value))
    return array.reshape(-1).view(np.float64)


def _wide(value: Tensor) -> Any:
    return np.complex128 if value.dtype.kind == "c" else np.float64


def like(numbers: Array, model: Tensor) -> Tensor:
    """The numbers of `real_numbers` as a tensor of the model's shape, dtype and device."""
    array = np.ascontiguousarray(numbers, np.float64).view(_wide(model)).reshape(model.shape)
    return tensor(array, dtype=model.dtype, device=model.device)


# ---- by differences ----


def slope(
    function: Function, inputs: Sequence[Any], x: Tensor, step: Array, eps: float
) -> list[Array]:
    """The derivative of each output along `step` of x, by a central difference."""
    start = real_numbers(x)
    seen = x.detach()
    ends: list[list[Array]] = []
    try:
        for side in (eps, -eps):
            with no_grad():
                seen.copy_(like(start + side * step, x))
            ends.append([real_numbers(out) for out in outputs_of(function, inputs) if floats(out)])
    finally:
        with no_grad():
            seen.copy_(like(start, x))
    above, below = ends
    if [len(a) for a in above] != [len(b) for b in below]:
        raise RushlightError(
            "gradcheck: the function gives results of other sizes when its input moves a little"
        )
    return [(a - b) / (2 * eps) for a, b in zip(above, below, strict=True)]


def numeric_jacobians(
    function: Function, inputs: Sequence[Any], x: Tensor, eps: float, sizes: list[int]
) -> list[Array]:
    """One [numbers of x, numbers of the output] array for each output."""
    count = real_count(x)
    columns = [np.zeros((count, size)) for size in sizes]
    for i in range(count):
        step = np.zeros(count)
        step[i] = 1
        for column, change in zip(columns, slope(function, inputs, x, step, eps), strict=True):
            column[i] = change
    return columns


# ---- by backward passes ----


def pulled_back(out: Tensor, xs: Sequence[Tensor], seed: Array) -> list[Array]:
    """The gradients of sum(seed * out) by each of xs; zeros where there is none."""
    found = roots.grad(out, xs, like(seed, out), retain_graph=True, allow_unused=True)
    return [
        np.zeros(real_count(x)) if g is None else real_numbers(g)
        for x, g in zip(xs, found, strict=True)
    ]


def analytic_jacobians(out: Tensor, xs: Sequence[Tensor]) -> list[Array]:
    """One [numbers of x, numbers of out] array for each of xs."""
    size = real_count(out)
    found = [np.zeros((real_count(x), size)) for x in xs]
    for j in range(size):
        seed = np.zeros(size)
        seed[j] = 1
        for jacobian, part in zip(found, pulled_back(out, xs, seed), strict=True):
            jacobian[:, j] = part
    return found


# ---- forward, as the derivative of the backward pass by its cotangent ----


def pushed_forward(out: Tensor, xs: Sequence[Tensor], steps: Sequence[Array]) -> Array:
    """The derivative of `out` along a step of each of xs.

    It needs a graph with second derivatives.
    """
    with enable_grad():
        seed = like(np.zeros(real_count(out)), out).requires_grad_()
        found = roots.grad(out, xs, seed, create_graph=True, allow_unused=True)
        kept = [(g, like(step, g)) for g, step in zip(found, steps, strict=True) if g is not None]
        if not kept:
            return np.zeros(real_count(out))
        (change,) = roots.grad(
            [g for g, _ in kept], seed, [step for _, step in kept], allow_unused=True
        )
    return np.zeros(real_count(out)) if change is None else real_numbers(change)
