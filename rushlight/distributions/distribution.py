"""The base of distributions: shapes, samples, densities, and checks of arguments."""

from __future__ import annotations

from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.public import ops, size_of
from rushlight.tape.record.state import enable_grad, no_grad
from rushlight.tape.record.value import Value
from rushlight.tensor import Size


class Distribution:
    """A distribution over values of shape `event_shape`, one for each index of `batch_shape`."""

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: ClassVar[dict[str, Any]] = {}
    support: Any = constraints.dependent

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether new distributions check their parameters and values by default."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self) -> None:
        for name, constraint in self.arg_constraints.items():
            if constraints.is_dependent(constraint) or (
                name in self._derived and name not in self.__dict__
            ):
                continue  # unknown, or computed from the given parameter
            value = getattr(self, name)
            if not constraint.holds(value):
                raise ValueError(
                    f"{type(self).__name__}: {name} of shape {tuple(value.shape)} must satisfy "
                    f"{constraint!r}, but not all of it does:\n{value}"
                )

    @property
    def batch_shape(self) -> Any:
        """The shape of the parameters: one distribution per index."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of one value."""
        return self._event_shape

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of its mean")

    @property
    def mode(self) -> Any:
        """The most likely value."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of its mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of its variance")

    @property
    def stddev(self) -> Any:
        """The square root of the variance."""
        return self.variance.sqrt()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with parameters expanded to a shape; nothing is copied."""
        shape = Size(batch_shape)
        new = self.__new__(type(self)) if _instance is None else _instance
        given = dict(new.__dict__)  # what the `expand` of a class has set
        new.__dict__.update(self.__dict__)
        self._expand_into(new, shape)
        new._batch_shape = shape
        new.__dict__.update(given)
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An empty distribution for `expand` of a class that defines it."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"{type(self).__name__} defines __init__ and no expand; it needs an expand of its "
                "own"
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def _expand_into(self, new: Any, shape: Any) -> None:
        """Set the attributes of `new` that have the batch's shape, expanded."""
        for name, value in self.__dict__.items():
            if isinstance(value, Value) and name not in self._not_expanded:
                constraint = self.arg_constraints.get(name)
                dims = self._parameter_dims.get(name, getattr(constraint, "event_dim", 0))
                whole: Any = value
                tail = whole.shape[whole.dim() - dims :]
                new.__dict__[name] = whole.expand(*shape, *tail)
            elif isinstance(value, Distribution):
                new.__dict__[name] = value.expand((*shape, *self._inner_tail(value)))

    # Parameters of which one is given and the others are computed on demand.
    _derived: ClassVar[frozenset[str]] = frozenset(
        ["covariance_matrix", "logits", "precision_matrix", "probs", "scale_tril"]
    )
    _not_expanded: ClassVar[frozenset[str]] = frozenset()
    _parameter_dims: ClassVar[dict[str, int]] = {}

    def _inner_tail(self, inner: Distribution) -> Any:
        """The dimensions of an inner distribution's batch that this one's batch lacks."""
        return inner.batch_shape[len(self._batch_shape) :]

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draw values without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Draw values as functions of the parameters, with gradients."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample; use sample and log_prob")

    def sample_n(self, n: int) -> Any:
        """Draw n values."""
        return self.sample((n,))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density or probability of a value."""
        raise NotImplementedError(type(self).__name__)

    def cdf(self, value: Any) -> Any:
        """The probability of a value less or equal."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of its cdf")

    def icdf(self, value: Any) -> Any:
        """The inverse of `cdf`."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of its icdf")

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of the support, along a new first dimension."""
        raise NotImplementedError(f"{type(self).__name__} has not finitely many values")

    def entropy(self) -> Any:
        """The mean of minus the logarithm of the density."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of its entropy")

    def perplexity(self) -> Any:
        """exp(entropy)."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Any:
        return Size((*size_of(sample_shape), *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """Raise for a value of another shape or outside of the support, where enabled."""
        if not self._validate_args:
            return
        name = type(self).__name__
        if not isinstance(value, Value):
            raise ValueError(f"{name}: the value must be a tensor, got {type(value).__name__}")
        given: Any = value
        dims = len(self._event_shape)
        if tuple(given.shape[given.dim() - dims :]) != tuple(self._event_shape):
            raise ValueError(
                f"{name}: a value has shape {tuple(self._event_shape)}, got {tuple(given.shape)}"
            )
        for i, j in zip(
            reversed(tuple(given.shape)),
            reversed((*self._batch_shape, *self._event_shape)),
            strict=False,
        ):
            if i not in (1, j) and j != 1:
                raise ValueError(
                    f"{name}: value of shape {tuple(given.shape)} does not broadcast with "
                    f"{(*self._batch_shape, *self._event_shape)}"
                )
        support = self.support
        if constraints.is_dependent(support):
            return
        if not support.holds(given):
            raise ValueError(
                f"{name}: the value must be within the support {support!r}, got\n{given}"
            )

    def __repr__(self) -> str:
        shown = [k for k in self.arg_constraints if k in self.__dict__]
        parts = ", ".join(
            f"{k}: {self.__dict__[k]}"
            if self.__dict__[k].numel() == 1
            else f"{k}: {self.__dict__[k].shape}"
            for k in shown
        )
        return f"{type(self).__name__}({parts})"


class ExponentialFamily(Distribution):
    """A distribution p(x) = exp(t(x) . theta - F(theta) + k(x)).

    Derivatives of F give its entropy.
    """

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no closed form of its entropy")

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError(type(self).__name__)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError(type(self).__name__)

    def entropy(self) -> Any:
        """F(theta) - theta . dF(theta) - E k(x)."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with enable_grad():
            normalizer = self._log_normalizer(*natural)
            normalizer.sum().backward()
        result = normalizer.detach() - self._mean_carrier_measure
        for p in natural:
            result = result - (p.detach() * p.grad).reshape(*self._batch_shape, -1).sum(-1)
        return result


def draw_like(parameter: Any, shape: Any, kind: str = "rand") -> Any:
    """Uniform or normal numbers of the dtype and on the device of a parameter."""
    return getattr(ops, kind)(tuple(shape), dtype=parameter.dtype, device=parameter.device)
