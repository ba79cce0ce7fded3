"""Optimisers of whole matrices: Adafactor and Muon.

Adafactor keeps squares by row and column; Muon's steps are orthogonal. A step reads sums over the
parameter, so it is made of several ops, not one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.ops.create import creation
from rushlight.ops.create.dtype_limits import finfo
from rushlight.ops.optim.whole_steps import Moves
from rushlight.ops.view.inplace import prepare_copy
from rushlight.optim.optimizer import Group, Optimizer, ParameterState, check_options, count_of
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


class Adafactor(Optimizer):
    """Steps relative to the parameter's size: the gradient over its root mean squares.

    A matrix keeps the mean squares by row and column only. `eps` is (the least mean square, by
    default the dtype's epsilon; the least size of the parameter), `d` the largest root mean square
    of a step, before the rate.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_options(lr=lr, weight_decay=weight_decay, eps=eps[1])
        if beta2_decay > 0:
            raise ValueError(f"Adafactor: beta2_decay should be <= 0, got {beta2_decay}")
        if eps[0] is not None and eps[0] < 0:
            raise ValueError(f"Adafactor: epsilon1 should be >= 0, got {eps[0]}")
        if d < 1:
            raise ValueError(f"Adafactor: the clipping threshold d should be >= 1, got {d}")
        options = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
        }
        super().__init__(params, {**options, "foreach": foreach, "maximize": maximize})

    def prepare(self, group: Group, moves: Moves) -> None:
        with no_grad():
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    raise RushlightError("Adafactor does not support sparse gradients")
                if p.dtype.kind == "c":
                    raise RushlightError("Adafactor does not support complex parameters")
                state = self.state.get(p)
                if not state:
                    state = ParameterState(_start(p))
                    moves.begin(self.state, p, state)
                step, g = count_of(state) + 1, -p.grad if group["maximize"] else p.grad
                for target, new in _adapted(p.detach(), g, state, group, step):
                    moves.writes.append(prepare_copy(target, new))
                moves.put(state, "step", step)


def _start(p: Tensor) -> dict[str, Any]:
    if p.ndim <= 1:
        return {"step": 0, "variance": creation.zeros_like(p)}
    rows, columns = (*p.shape[:-1], 1), (*p.shape[:-2], 1, p.shape[-1])
    made = [creation.zeros(*shape, dtype=p.dtype, device=p.device) for shape in (rows, columns)]
    return {"step": 0, "row_var": made[0], "col_var": made[1]}


def _adapted(
    p: Any, g: Any, state: dict[str, Any], group: Group, step: int
) -> list[tuple[Any, Any]]:
    """The parameter and its state, each with its new value."""
    lr, (least, least_size) = float(group["lr"]), group["eps"]
    least = finfo(p.dtype).eps if least is None else least
    share = step ** group["beta2_decay"]
    size = max(least_size, p.norm(2).item() / math.sqrt(p.numel()))
    if p.ndim > 1:
        rows = state["row_var"].lerp(g.norm(2, dim=-1, keepdim=True).square() / g.shape[-1], share)
        columns = state["col_var"].lerp(
            g.norm(2, dim=-2, keepdim=True).square() / g.shape[-2], share
        )
        squares = rows @ columns / rows.mean(dim=-2, keepdim=True).clamp(min=least)
        kept = [(state["row_var"], rows), (state["col_var"], columns)]
    else:
        squares = state["variance"].lerp(g * g, share)
        kept = [(state["variance"], squares)]
    update = squares.clamp(min=least * least).rsqrt() * g
    above = max(1.0, update.norm(2).item() / (math.sqrt(update.numel()) * group["d"]))
    new = p * (1 - lr * group["weight_decay"]) if group["weight_decay"] else p
    new = new.add(update, alpha=-size * min(lr, 1 / math.sqrt(step)) / above)
    return [(p, new), *kept]


_ADJUSTMENTS = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


class Muon(Optimizer):
    """Orthogonalised momentum: each step of a matrix has singular values near 1.

    Newton and Schulz's iteration in bfloat16 computes it.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_options(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if adjust_lr_fn is not None and adjust_lr_fn not in _ADJUSTMENTS:
            raise ValueError(
                f"Muon: adjust_lr_fn {adjust_lr_fn!r} is not one of {', '.join(_ADJUSTMENTS)}"
            )
        if ns_steps >= 100 or len(ns_coefficients) != 3:
            raise ValueError(
                f"Muon: fewer than 100 steps of 3 coefficients are expected, got {ns_steps}, "
                f"{ns_coefficients}"
            )
        options = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "eps": eps,
        }
        more = {
            "ns_coefficients": ns_coefficients,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, {**options, **more})
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters, whereas a parameter has shape "
                        f"{list(p.shape)}"
                    )

    def prepare(self, group: Group, moves: Moves) -> None:
        lr, momentum = float(group["lr"]), group["momentum"]
        with no_grad():
            for parameter in group["params"]:
                g: Any = parameter.grad
                if g is None:
                    continue
                if g.is_sparse or g.dtype.kind == "c":
                    raise RushlightError(
                        "Muon does not support sparse gradients or complex parameters"
                    )
                state, p = self.state.get(parameter), parameter.detach()
                if not state:
                    state = {"momentum_buffer": creation.zeros_like(p)}
                    moves.begin(self.state, parameter, state)
                buffer = state["momentum_buffer"].lerp(g, 1 - momentum)
                update = _orthogonal(
                    g.lerp(buffer, momentum) if group["nesterov"] else buffer, group
                )
                scale = _ADJUSTMENTS[group["adjust_lr_fn"] or "original"](*p.shape)
                new = (p * (1 - lr * group["weight_decay"])).add(
                    update.to(p.dtype), alpha=-lr * scale
                )
                moves.writes.append(prepare_copy(state["momentum_buffer"], buffer))
                moves.writes.append(prepare_copy(p, new))


def _orthogonal(matrix: Any, group: Group) -> Any:
    """An approximation of the orthogonal matrix with the same singular vectors."""
    a, b, c = group["ns_coefficients"]
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.T
        x = x.addmm(gram.addmm(gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
