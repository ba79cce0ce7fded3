"""Derivatives compared with finite differences: PyTorch's `gradcheck` and `gradgradcheck`.

# Note [Checking derivatives]
1. In slow mode the whole Jacobian is computed both ways, see Note [Real Jacobians]. In fast mode
   both are projected on one random direction per input and one per output: two calls of the
   function and one backward pass, for any size. Where a projection differs, the slow mode runs to
   find the element.
2. An entry is right when |analytic - numeric| <= atol + rtol * |numeric|; the tolerance of a
   projection is that of its entries, summed with the absolute values of the directions.
3. Directions come from a generator with a fixed seed: equal in each run, and the user's random
   stream does not change.
4. The gradient by a sparse input is that by its stored values, so these are changed and compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rushlight.autograd.batched_checks import check_batched_backward, check_batched_forward
from rushlight.autograd.differences import (
    analytic_jacobians,
    floats,
    like,
    numeric_jacobians,
    outputs_of,
    pulled_back,
    pushed_forward,
    real_count,
    real_numbers,
    slope,
    tensors_in,
)
from rushlight.autograd.lazy_numpy import Array, np
from rushlight.core.errors import GradcheckError as GradcheckError, ShapeError
from rushlight.tape.walk import roots
from rushlight.tensor import Tensor

Function = Callable[..., Any]
SHOWN = 200  # a Jacobian with at most so many entries is printed in the error


@dataclass(frozen=True)
class Asked:
    """The function and inputs to check, and the tolerances."""

    function: Function
    inputs: tuple[Any, ...]
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    undefined: bool
    dtypes: bool
    fast: bool
    backward: bool = True
    forward: bool = False
    batched: bool = False
    batched_forward: bool = False


def gradcheck(
    func: Function,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients of `func` at `inputs` equal finite differences.

    Raises GradcheckError if not. Inputs that require gradients are checked, best in float64 or
    complex128: `eps` is made for them.

    Args:
        func (function): A function of tensors.
        inputs (Tensor or tensors): Where it is checked.
        eps (number): The step of the differences.
        atol (number): The absolute tolerance.
        rtol (number): The relative tolerance.
        raise_exception (bool): Raise instead of returning False.
        nondet_tol (number): How far two backward passes may differ.
        check_undefined_grad (bool): Check that missing gradients of outputs count as zeros.
        check_grad_dtypes (bool): Check that gradients have the inputs' dtypes.
        check_batched_grad (bool): Check the gradients of a batch by `vmap`.
        check_batched_forward_grad (bool): Check tangents of a batch by `vmap`.
        check_forward_ad (bool): Check forward mode.
        check_backward_ad (bool): Check reverse mode.
        fast_mode (bool): Compare along random directions only.
        masked (bool): Has no effect: see Note [Checking derivatives].
    """
    if not (check_backward_ad or check_forward_ad):
        raise ValueError("gradcheck: one of check_backward_ad and check_forward_ad must be True")
    if check_batched_grad and not check_backward_ad:
        raise ValueError("gradcheck: check_batched_grad=True needs check_backward_ad=True")
    if check_batched_forward_grad and not check_forward_ad:
        raise ValueError("gradcheck: check_batched_forward_grad=True needs check_forward_ad=True")
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    asked = Asked(
        func,
        given,
        eps,
        atol,
        rtol,
        nondet_tol,
        check_undefined_grad,
        check_grad_dtypes,
        fast_mode,
        check_backward_ad,
        check_forward_ad,
        check_batched_grad,
        check_batched_forward_grad,
    )
    xs = _checked_inputs(given, eps)
    try:
        _check_gradients(asked, xs)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradients of `func`, as functions of `inputs` and `grad_outputs`.

    Args:
        grad_outputs (tensors): The gradients of the outputs; None for random ones.
        gen_non_contig_grad_outputs (bool): Make those views with gaps. Others: see `gradcheck`.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise ValueError(
            "gradgradcheck: one of check_fwd_over_rev and check_rev_over_rev must be True"
        )
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    xs = _checked_inputs(given, eps)
    if grad_outputs is None:
        outs = [out for out in outputs_of(func, given) if floats(out) and out.requires_grad]
        gs = _random_gradients(outs, gen_non_contig_grad_outputs)
    else:
        gs = (
            [grad_outputs]
            if isinstance(grad_outputs, Tensor)
            else [g for g in grad_outputs if g is not None]
        )

    def first_order(*args: Any) -> tuple[Any, ...]:
        outs = [
            out for out in outputs_of(func, args[: len(given)]) if floats(out) and out.requires_grad
        ]
        if len(outs) != len(gs):
            raise ShapeError(
                f"gradgradcheck: {len(gs)} grad_outputs for {len(outs)} outputs that require "
                "gradients"
            )
        found = roots.grad(outs, xs, args[len(given) :], create_graph=True, allow_unused=True)
        return tuple([g for g in found if g is not None])

    return gradcheck(
        first_order,
        (*given, *gs),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad and check_rev_over_rev,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


# ---- inputs ----


def _checked_inputs(inputs: tuple[Any, ...], eps: float) -> list[Tensor]:
    """The tensors that require gradients."""
    xs = []
    for number, given in enumerate(inputs):
        for x in tensors_in(given):
            if not (floats(x) and x.requires_grad):
                continue
            if x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1) < 8 and eps < 1e-4:
                warnings.warn(
                    f"gradcheck: input {number} is {x.dtype.name}, and a step of {eps:g} is made "
                    "for float64; pass .double() inputs, or a larger eps",
                    stacklevel=3,
                )
            if any(n > 1 and step == 0 for n, step in zip(x.shape, x.stride(), strict=True)):
                raise GradcheckError(
                    f"gradcheck: input {number} has elements that share memory (shape "
                    f"{list(x.shape)}, strides {list(x.stride())}): one cannot be moved alone; "
                    "pass .contiguous() of it"
                )
            xs.append(x)
    if not xs:
        raise ValueError("gradcheck: no input requires gradients; make one with requires_grad=True")
    return xs


def _random_gradients(outs: Sequence[Tensor], with_gaps: bool) -> list[Tensor]:
    random = np.random.default_rng(1)
    gs = []
    for out in outs:
        if with_gaps and out.ndim:
            numbers = random.uniform(-1, 1, 2 * real_count(out))
            wide = like(numbers[: real_count(out)], out).repeat_interleave(2, -1)
            g = wide[..., ::2].detach()
        else:
            g = like(random.uniform(-1, 1, real_count(out)), out)
        gs.append(g.requires_grad_())
    return gs


# ---- the checks ----


def _check_gradients(asked: Asked, xs: list[Tensor]) -> None:
    every = [out for out in outputs_of(asked.function, asked.inputs) if floats(out)]
    places = [j for j, out in enumerate(every) if out.requires_grad]
    if not places:
        _check_constant(asked, xs, every)
        return
    if asked.backward:
        if asked.fast:
            _check_projections(asked, xs, places)
        else:
            _check_jacobians(asked, xs, places)
        _check_seeds(asked, xs, places)
    if asked.forward:
        _check_forward(asked, xs, places)
    how = asked.function, asked.inputs, xs, asked.atol, asked.rtol
    if asked.batched:
        check_batched_backward(*how)
    if asked.batched_forward:
        check_batched_forward(*how)


def _outputs(asked: Asked, places: list[int]) -> list[Tensor]:
    """The outputs that require gradients, recomputed: the inputs were changed since."""
    every = [out for out in outputs_of(asked.function, asked.inputs) if floats(out)]
    return [every[j] for j in places]


def _check_constant(asked: Asked, xs: list[Tensor], every: list[Tensor]) -> None:
    """No output requires gradients: then no difference may be nonzero."""
    for i, x in enumerate(xs):
        for j, numeric in enumerate(_numeric(asked, x, every)):
            if not (np.abs(numeric) <= asked.atol).all():
                raise GradcheckError(
                    f"gradcheck: output {j} does not require gradients, but it changes with input "
                    f"{i}: the largest entry of the numerical Jacobian is "
                    f"{np.abs(numeric).max():.6g}"
                )


def _numeric(asked: Asked, x: Tensor, outs: Sequence[Tensor]) -> list[Array]:
    sizes = [real_count(out) for out in outs]
    return numeric_jacobians(asked.function, asked.inputs, x, asked.eps, sizes)


def _check_jacobians(asked: Asked, xs: list[Tensor], places: list[int]) -> None:
    every = [out for out in outputs_of(asked.function, asked.inputs) if floats(out)]
    numeric = [_numeric(asked, x, every) for x in xs]
    for j, out in zip(places, _outputs(asked, places), strict=True):
        analytic = _reentrant(asked, xs, out, j)
        for i in range(len(xs)):
            _compare(asked, analytic[i], numeric[i][j], i, j, "backward")


def _reentrant(asked: Asked, xs: list[Tensor], out: Tensor, j: int) -> list[Array]:
    """The analytic Jacobians, computed twice: a backward that is not deterministic is an error."""
    first, second = analytic_jacobians(out, xs), analytic_jacobians(out, xs)
    for i, (one, other) in enumerate(zip(first, second, strict=True)):
        away = np.abs(one - other).max(initial=0)
        if away > asked.nondet_tol:
            raise GradcheckError(
                "gradcheck: Backward is not reentrant: run twice with the same gradient, output "
                f"{j} with respect to input {i} differs by {away:.6g} "
                f"(nondet_tol={asked.nondet_tol:g})"
            )
    return first


def _compare(asked: Asked, analytic: Array, numeric: Array, i: int, j: int, way: str) -> None:
    away = np.abs(analytic - numeric)
    wrong = ~(away <= asked.atol + asked.rtol * np.abs(numeric))
    if not wrong.any():
        return
    worst = np.unravel_index(np.argmax(np.where(np.isnan(away), np.inf, away)), away.shape)
    text = (
        f"gradcheck: Jacobian mismatch for output {j} with respect to input {i}, in {way} mode: "
        f"{int(wrong.sum())} of {wrong.size} entries; the largest difference is {away[worst]:.6g}, "
        f"of number {int(worst[1])} of the output by number {int(worst[0])} of the input: "
        f"numerical {numeric[worst]:.9g}, analytical {analytic[worst]:.9g} (atol={asked.atol:g}, "
        f"rtol={asked.rtol:g})"
    )
    if wrong.size <= SHOWN:
        text += f"\nnumerical:\n{numeric}\nanalytical:\n{analytic}"
    raise GradcheckError(text)


def _directions(sizes: Sequence[int], seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.uniform(0.5, 1, size) * random.choice([-1.0, 1.0], size) for size in sizes]


def _check_projections(asked: Asked, xs: list[Tensor], places: list[int]) -> None:
    steps = _directions([real_count(x) for x in xs], 2)
    slopes = [
        slope(asked.function, asked.inputs, x, step, asked.eps)
        for x, step in zip(xs, steps, strict=True)
    ]
    outs = _outputs(asked, places)
    seeds = _directions([real_count(out) for out in outs], 3)
    for j, out, seed in zip(places, outs, seeds, strict=True):
        first, second = pulled_back(out, xs, seed), pulled_back(out, xs, seed)
        for i, step in enumerate(steps):
            if np.abs(first[i] - second[i]).max(initial=0) > asked.nondet_tol:
                _reentrant(asked, xs, out, j)
            numeric, analytic = float(seed @ slopes[i][j]), float(first[i] @ step)
            allowed = asked.atol * float(
                np.abs(seed).sum() * np.abs(step).sum()
            ) + asked.rtol * abs(numeric)
            if not abs(analytic - numeric) <= allowed:
                _check_jacobians(asked, xs, places)
                raise GradcheckError(
                    f"gradcheck: Jacobian mismatch for output {j} with respect to input {i}, along "
                    f"a random direction only: numerical {numeric:.9g}, analytical {analytic:.9g}, "
                    f"allowed {allowed:.3g}"
                )


def _check_seeds(asked: Asked, xs: list[Tensor], places: list[int]) -> None:
    """Check backward with zero and undefined gradients, and the kinds of its results."""
    outs = _outputs(asked, places)
    zeros = [like(np.zeros(real_count(out)), out) for out in outs]
    for i, (x, g) in enumerate(
        zip(xs, roots.grad(outs, xs, zeros, retain_graph=True, allow_unused=True), strict=True)
    ):
        if g is None:
            continue
        if (real_numbers(g) != 0).any():
            raise GradcheckError(
                "gradcheck: backward not multiplied by grad_output: gradients of zero give input "
                f"{i} one of {np.abs(real_numbers(g)).max():.6g}"
            )
        if g.shape != x.shape or (asked.dtypes and g.dtype is not x.dtype):
            raise GradcheckError(
                f"gradcheck: the gradient of input {i} is {g._spec!r}, the input {x._spec!r}"
            )
    if asked.undefined and len(outs) > 1:
        for j, seed in enumerate(_directions([real_count(out) for out in outs], 4)):
            alone = pulled_back(outs[j], xs, seed)
            gs = [like(seed, out) if k == j else zeros[k] for k, out in enumerate(outs)]
            beside = roots.grad(outs, xs, gs, retain_graph=True, allow_unused=True)
            for i, g in enumerate(beside):
                want = np.zeros(real_count(xs[i])) if g is None else real_numbers(g)
                if not np.allclose(alone[i], want, rtol=1e-9, atol=1e-12, equal_nan=True):
                    raise GradcheckError(
                        f"gradcheck: backward of output {places[j]} alone gives input {i} another "
                        "gradient than with zeros for the other outputs: they differ by "
                        f"{np.abs(alone[i] - want).max():.6g}"
                    )


def _check_forward(asked: Asked, xs: list[Tensor], places: list[int]) -> None:
    """Check the forward-mode derivative.

    Fast mode takes one random direction, slow mode every unit direction.
    """
    still = [np.zeros(real_count(x)) for x in xs]
    for i, x in enumerate(xs):
        count = real_count(x)
        steps = np.stack(_directions([count], 5)) if asked.fast else np.eye(count)
        slopes = [slope(asked.function, asked.inputs, x, step, asked.eps) for step in steps]
        for j, out in zip(places, _outputs(asked, places), strict=True):
            analytic = [
                pushed_forward(out, xs, [*still[:i], step, *still[i + 1 :]]) for step in steps
            ]
            if count:
                _compare(
                    asked,
                    np.stack(analytic),
                    np.stack([part[j] for part in slopes]),
                    i,
                    j,
                    "forward",
                )
