"""PyTorch's older weight_norm and spectral_norm: a weight computed before each forward.

The parameters are `<name>_g` and `<name>_v`, or `<name>_orig` with the vectors `<name>_u` and
`<name>_v` as buffers, so that states saved by older models fit.
"""

from __future__ import annotations

from typing import Any

from rushlight.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.nn.utils.parametrizations import _SpectralNorm, _WeightNorm
from rushlight.tape.record.state import no_grad


class _Hooked:
    """A hook before forward that sets the module's weight; `parts` are the names of its tensors."""

    def __init__(self, kind: str, name: str, rule: Any, parts: tuple[str, ...]) -> None:
        self.kind, self.name, self.rule, self.parts = kind, name, rule, parts

    def compute(self, module: Module) -> Any:
        self.rule.train(module.training)
        if isinstance(self.rule, _SpectralNorm):
            self.rule._u, self.rule._v = (
                getattr(module, f"{self.name}_u"),
                getattr(module, f"{self.name}_v"),
            )
        return self.rule(*(getattr(module, part) for part in self.parts))

    def __call__(self, module: Module, args: Any) -> None:
        module.__dict__[self.name] = self.compute(module)


def _hooks(module: Module, kind: str, name: str) -> list[int]:
    return [
        key
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, _Hooked) and (hook.kind, hook.name) == (kind, name)
    ]


def _attach(module: Module, kind: str, name: str, rule: Any, parts: dict[str, Any]) -> Module:
    if _hooks(module, kind, name):
        raise RuntimeError(f"{kind}: {type(module).__name__}.{name} has it already")
    delattr(module, name)
    for part, value in parts.items():
        module.register_parameter(part, Parameter(value.detach()))
    hook = _Hooked(kind, name, rule, tuple(parts))
    module.register_forward_pre_hook(hook)
    return module


def _detach(module: Module, kind: str, name: str) -> Module:
    found = _hooks(module, kind, name)
    if not found:
        raise ValueError(f"{kind}: {type(module).__name__}.{name} does not have it")
    hook: Any = module._forward_pre_hooks.pop(found[0])
    training = module.training
    module.training = False  # no further step of power iteration
    with no_grad():
        value = hook.compute(module)
    module.training = training
    for part in hook.parts:
        delattr(module, part)
    module.__dict__.pop(name, None)
    module.register_parameter(name, Parameter(value.detach()))
    return module


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """A weight learned as norm `<name>_g` and direction `<name>_v`.

    Args:
        module (Module): The module.
        name (str): The name of the weight.
        dim (int): The dimension whose slices have norms of their own; None for one norm.
    """
    rule = _WeightNorm(dim)
    with no_grad():
        g, v = rule.right_inverse(getattr(module, name))
        _attach(module, "weight_norm", name, rule, {f"{name}_g": g, f"{name}_v": v})
    module.__dict__[name] = rule(getattr(module, f"{name}_g"), getattr(module, f"{name}_v"))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight one parameter again.

    Args:
        module (Module): The module.
        name (str): The name of the weight.
    """
    return _detach(module, "weight_norm", name)


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """A weight divided by its largest singular value: `<name>_orig` is learned.

    Args:
        module (Module): The module.
        name (str): The name of the weight.
        n_power_iterations (int): Steps of the power iteration per call.
        eps (number): The least norm that is divided by.
        dim (int): The dimension of the outputs; None for that of the module's class.
    """
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    weight = getattr(module, name)
    rule = _SpectralNorm(weight, n_power_iterations, dim, eps)
    with no_grad():
        _attach(module, "spectral_norm", name, rule, {f"{name}_orig": weight})
    module.__dict__[name] = weight.detach()
    for side in ("u", "v"):
        module.register_buffer(f"{name}_{side}", getattr(rule, f"_{side}"))
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the divided weight one parameter again.

    Args:
        module (Module): The module.
        name (str): The name of the weight.
    """
    _detach(module, "spectral_norm", name)
    for side in ("u", "v"):
        delattr(module, f"{name}_{side}")
    return module
