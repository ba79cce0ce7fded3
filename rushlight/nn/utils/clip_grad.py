"""What is done to all gradients of a model at once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rushlight.core.errors import RushlightError
from rushlight.ops import creation, elementwise as e, reductions, views
from rushlight.ops.composite import clamp
from rushlight.tape.state import no_grad
from rushlight.tensor import Tensor


def _norm(values: Tensor, norm_type: float) -> Tensor:
    if norm_type == math.inf:
        return reductions.amax(e.abs(values))
    if norm_type == 2:
        return e.sqrt(reductions.sum(e.square(values)))
    return e.pow(reductions.sum(e.pow(e.abs(values), norm_type)), 1 / norm_type)


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale the gradients so that their norm, taken together, is at most `max_norm`; the norm before that.

    Nothing is read back to the host, unless `error_if_nonfinite` asks for it.
    """
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = [p.grad for p in listed if p.grad is not None]
    if not grads:
        return creation.zeros(())
    home = grads[0].device
    norm_type = float(norm_type)
    total = _norm(views.stack([_norm(g, norm_type).to(home) for g in grads]), norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RushlightError(
            f"clip_grad_norm_: the norm of order {norm_type} is {total.item()}; a gradient is not finite"
        )
    share = clamp(e.div(float(max_norm), e.add(total, 1e-6)), max=1.0)
    for g in grads:
        g.mul_(share.to(g.device, g.dtype))
    return total
