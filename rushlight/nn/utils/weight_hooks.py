"""PyTorch's older weight_norm and spectral_norm: a weight computed before each forward.

The parameters are `<name>_g` and `<name>_v`, or `<name>_orig` with the vectors `<name>_u` and
`<name>_v` as buffers, so that states saved by older models fit.
"""

from __future__ import annotations

from typing import Any, TypeVar

from rushlight.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.nn.utils.parametrizations import _SpectralNorm, _WeightNorm
from rushlight.tape.record.state import no_grad


class _Hooked:
    """A hook before forward that sets the module's weight; `parts` are the names of its tensors."""

    def __init__(self, name: str, rule: Any, parts: tuple[str, ...]) -> None:
        self.name, self.rule, self.parts = name, rule, parts

    def compute_weight(self, module: Module) -> Any:
        """The weight made from the module's tensors."""
        self.rule.train(module.training)
        return self.rule(*(getattr(module, part) for part in self.parts))

    def __call__(self, module: Module, args: Any) -> None:
        module.__dict__[self.name] = self.compute_weight(module)


class WeightNorm(_Hooked):
    """The hook of `weight_norm`."""

    @property
    def dim(self) -> int | None:
        found: int | None = self.rule.dim
        return found

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """`weight_norm`; the hook is returned."""
        return _hook_of(weight_norm(module, name, dim), WeightNorm, name)


class SpectralNorm(_Hooked):
    """The hook of `spectral_norm`."""

    def compute_weight(self, module: Module) -> Any:
        self.rule._u = getattr(module, f"{self.name}_u")
        self.rule._v = getattr(module, f"{self.name}_v")
        return super().compute_weight(module)

    @staticmethod
    def apply(
        module: Module, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """`spectral_norm`; the hook is returned."""
        return _hook_of(
            spectral_norm(module, name, n_power_iterations, eps, dim), SpectralNorm, name
        )


Kind = TypeVar("Kind", bound=_Hooked)


def _hooks(module: Module, kind: type[Kind], name: str) -> dict[int, Kind]:
    """The module's hooks of a kind, for one weight, by their keys."""
    return {
        key: hook
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, kind) and hook.name == name
    }


def _hook_of(module: Module, kind: type[Kind], name: str) -> Kind:
    return next(iter(_hooks(module, kind, name).values()))


def _attach(
    module: Module, kind: type[_Hooked], name: str, rule: Any, parts: dict[str, Any]
) -> Module:
    if _hooks(module, kind, name):
        raise RuntimeError(f"{kind.__name__}: {type(module).__name__}.{name} has it already")
    delattr(module, name)
    for part, value in parts.items():
        module.register_parameter(part, Parameter(value.detach()))
    hook = kind(name, rule, tuple(parts))
    module.register_forward_pre_hook(hook)
    return module


def _detach(module: Module, kind: type[_Hooked], name: str) -> Module:
    found = _hooks(module, kind, name)
    if not found:
        raise ValueError(f"{kind.__name__}: {type(module).__name__}.{name} does not have it")
    hook: Any = module._forward_pre_hooks.pop(next(iter(found)))
    training = module.training
    module.training = False  # no further step of power iteration
    with no_grad():
        value = hook.compute_weight(module)
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
        _attach(module, WeightNorm, name, rule, {f"{name}_g": g, f"{name}_v": v})
    module.__dict__[name] = rule(getattr(module, f"{name}_g"), getattr(module, f"{name}_v"))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight one parameter again.

    Args:
        module (Module): The module.
        name (str): The name of the weight.
    """
    return _detach(module, WeightNorm, name)


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
        _attach(module, SpectralNorm, name, rule, {f"{name}_orig": weight})
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
    _detach(module, SpectralNorm, name)
    for side in ("u", "v"):
        delattr(module, f"{name}_{side}")
    return module
