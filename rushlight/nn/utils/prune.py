"""Pruning: a mask beside the weight, applied before each call.

# Note [Pruned weights]
1. A pruned parameter `name` is kept as `name_orig`, with a buffer `name_mask` of zeros and ones;
   `name` is their product, computed before each forward. `remove` makes the product the parameter.
2. A method's `compute_mask` selects the elements that stay. A weight pruned again has a container
   of methods: the next one works only on what is left, by its kind (single elements, or whole
   slices along its `dim`).
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rushlight.core.shapes import wrap_dim
from rushlight.lazy import shown
from rushlight.nn.module import Module
from rushlight.nn.utils.convert_parameters import parameters_to_vector
from rushlight.ops.create import creation
from rushlight.ops.random import random
from rushlight.ops.reduce.statistics import vector_norm
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


def __dir__() -> list[str]:
    return shown(__name__)


def _methods_of(module: Module) -> Iterator[tuple[int, BasePruningMethod]]:
    """The methods that prune a module's own weights, with their keys among its hooks."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, BasePruningMethod):
            yield key, hook


class BasePruningMethod(ABC):
    """A pruning method: a subclass defines `compute_mask` and the kind of its masks."""

    PRUNING_TYPE: str = (
        "unstructured"  # or "structured" (whole slices along `dim`), "global" (of anything)
    )
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """A mask for a weight, or for the importance of its elements.

        `default_mask` is the present mask.
        """

    def apply_mask(self, module: Module) -> Tensor:
        """The original times the mask."""
        name = self._tensor_name
        original = getattr(module, f"{name}_orig")
        mask: Tensor = getattr(module, f"{name}_mask").to(original.dtype)
        return mask * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prune a weight of a module; returns the method, or the container that it joined."""
        earlier = [
            (key, method) for key, method in _methods_of(module) if method._tensor_name == name
        ]
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        weight = getattr(module, name)
        scores = _scores("apply", weight, importance_scores)
        for key, known in earlier:
            del module._forward_pre_hooks[key]
            if not isinstance(known, PruningContainer):
                known = PruningContainer(known)
            known.add_pruning_method(method)
            method = known
        if earlier:
            before = getattr(module, f"{name}_mask").detach().clone()
        else:
            before = creation.ones_like(weight.detach())
            delattr(module, name)
            module.register_parameter(f"{name}_orig", weight)
        try:
            with no_grad():
                mask = method.compute_mask(scores.detach(), before)
            module.register_buffer(f"{name}_mask", mask)
            setattr(module, name, method.apply_mask(module))
        except Exception:
            if not earlier:
                delattr(module, f"{name}_orig")
                module.register_parameter(name, weight)
            raise
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """A tensor with the pruned elements set to zero."""
        scores = _scores("prune", t, importance_scores)
        before = creation.ones_like(t.detach()) if default_mask is None else default_mask
        return t * self.compute_mask(scores, before).to(t.dtype)

    def remove(self, module: Module) -> None:
        """Make the pruned weight the parameter; the caller removes the hook."""
        name = self._tensor_name
        with no_grad():
            weight = self.apply_mask(module)
        original: Any = getattr(module, f"{name}_orig")
        if hasattr(module, name):
            delattr(module, name)
        original.data = weight.data
        delattr(module, f"{name}_orig")
        delattr(module, f"{name}_mask")
        setattr(module, name, original)


def _scores(op: str, weight: Any, given: Any) -> Any:
    if given is None:
        return weight
    if given.shape != weight.shape:
        raise ValueError(
            f"{op}: importance_scores of shape {list(given.shape)} must have the shape "
            f"{list(weight.shape)} of the weight"
        )
    return given


class PruningContainer(BasePruningMethod):
    """Several methods that prune one weight in turn."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: list[BasePruningMethod] = []
        if args and isinstance(args[0], BasePruningMethod):
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        if not isinstance(method, BasePruningMethod):
            raise TypeError(
                f"PruningContainer: a pruning method is needed, got {type(method).__name__}"
            )
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                f"PruningContainer: its methods prune {self._tensor_name!r}, this one prunes "
                f"{method._tensor_name!r}"
            )
        self._pruning_methods.append(method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, at: Any) -> Any:
        return self._pruning_methods[at]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The present mask without the elements that the last method prunes."""
        method = self._pruning_methods[-1]
        mask: Any = default_mask.clone()
        if method.PRUNING_TYPE == "global":
            left: Any = tuple(slice(None) for _ in range(t.ndim))
        elif method.PRUNING_TYPE == "unstructured":
            left = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = wrap_dim(method.dim, t.ndim, "prune")  # type: ignore[attr-defined]
            others = tuple(d for d in range(t.ndim) if d != dim)
            left = (*(slice(None),) * dim, mask.sum(others) != 0)
        else:
            raise ValueError(
                "prune: PRUNING_TYPE is unstructured, structured or global, got "
                f"{method.PRUNING_TYPE!r}"
            )
        whole: Any = t
        mask[left] = method.compute_mask(whole[left], mask[left]).to(mask.dtype)
        return mask


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(
            f"prune: amount is a number of elements or a share of them, got {type(amount).__name__}"
        )
    size = float(amount)
    if size < 0 or (not isinstance(amount, numbers.Integral) and size > 1):
        raise ValueError(f"prune: amount is a count, or a share between 0 and 1, got {amount}")


def _count(amount: Any, size: int) -> int:
    """An amount, a number or a share of `size`, as a number."""
    if not isinstance(amount, numbers.Integral):
        return round(float(amount) * size)
    if int(amount) > size:
        raise ValueError(f"prune: {amount} were to be taken out, but there are {size}")
    return int(amount)


def _check_slices(t: Tensor, dim: int) -> int:
    if t.ndim <= 1:
        raise ValueError(
            f"prune: slices are taken out of weights of 2 dimensions or more, got {t._spec!r}"
        )
    return wrap_dim(dim, t.ndim, "prune")


class Identity(BasePruningMethod):
    """Prunes nothing."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Elements(BasePruningMethod):
    """Prunes the elements of the lowest rank."""

    def __init__(self, amount: Any) -> None:
        _check_amount(amount)
        self.amount = amount

    def rank(self, t: Any) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        mask: Any = default_mask.clone()
        count = _count(self.amount, t.numel())
        if count:
            lowest = self.rank(t).reshape(-1).topk(count, largest=False).indices
            mask = mask.reshape(-1).index_fill(0, lowest, 0).reshape(mask.shape)
        return mask


class RandomUnstructured(_Elements):
    """Prunes elements at random: a number of them, or a share."""

    def rank(self, t: Any) -> Any:
        return random.rand(t.shape, device=t.device)


class L1Unstructured(_Elements):
    """Prunes the smallest elements: a number of them, or a share."""

    def rank(self, t: Any) -> Any:
        return t.abs()


class _Slices(BasePruningMethod):
    """Prunes the slices of the lowest rank along a dimension."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.dim = dim

    def rank(self, t: Any, dim: int) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        dim = _check_slices(t, self.dim)
        count = _count(self.amount, t.shape[dim])
        mask: Any = default_mask
        if not count:
            return mask
        lowest = self.rank(t, dim).topk(count, largest=False).indices
        return mask.index_fill(dim, lowest, 0)


class RandomStructured(_Slices):
    """Prunes slices along a dimension at random."""

    def rank(self, t: Any, dim: int) -> Any:
        return random.rand((t.shape[dim],), device=t.device)


class LnStructured(_Slices):
    """Prunes the slices of the smallest norm along a dimension."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def rank(self, t: Any, dim: int) -> Any:
        others = [d for d in range(t.ndim) if d != dim]
        return t.norm(self.n, others) if isinstance(self.n, str) else vector_norm(t, self.n, others)


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(default_mask.dtype)


# ---- functions ----


def identity(module: Module, name: str) -> Module:
    """Give a weight a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prune elements of a weight at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: Any, importance_scores: Tensor | None = None
) -> Module:
    """Prune the smallest elements of a weight, or those of the smallest scores."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Any, dim: int) -> Module:
    """Prune slices of a weight along a dimension at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module,
    name: str,
    amount: Any,
    n: Any,
    dim: int,
    importance_scores: Tensor | None = None,
) -> Module:
    """Prune the slices of a weight with the smallest norm of order n."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune a weight by a mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any,
    pruning_method: Any,
    importance_scores: Mapping[Any, Any] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several weights, (module, name) each, by a method applied to all of them together."""
    if not isinstance(parameters, Iterable):
        raise TypeError(
            "global_unstructured: pairs of module and name are needed, got "
            f"{type(parameters).__name__}"
        )
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, Mapping):
        raise TypeError("global_unstructured: importance_scores is a dict by module and name")
    pairs = list(parameters)
    weights = [getattr(module, name) for module, name in pairs]
    known: list[Any] = [
        scores.get(pair, w).detach() for pair, w in zip(pairs, weights, strict=True)
    ]
    masks: list[Any] = [
        getattr(module, f"{name}_mask", creation.ones_like(w.detach()))
        for (module, name), w in zip(pairs, weights, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured: takes single elements out, {type(method).__name__} takes others"
        )
    method._tensor_name = "all"
    with no_grad():
        whole: Any = PruningContainer(method).compute_mask(
            parameters_to_vector(known), parameters_to_vector(masks)
        )
    start = 0
    for (module, name), w in zip(pairs, weights, strict=True):
        custom_from_mask(module, name, whole[start : start + w.numel()].reshape(w.shape))
        start += w.numel()


def remove(module: Module, name: str) -> Module:
    """Make pruning permanent: pruned elements are zero in the parameter, without a mask."""
    for key, method in _methods_of(module):
        if method._tensor_name == name:
            method.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"remove: {type(module).__name__}.{name} is not pruned")


def is_pruned(module: Module) -> bool:
    """Whether a weight of a module, or of one below it, is pruned."""
    return any(True for part in module.modules() for _ in _methods_of(part))
