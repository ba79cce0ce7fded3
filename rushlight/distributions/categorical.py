"""Distributions over classes: categorical, one-hot, multinomial."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rushlight.core.dtypes import int64
from rushlight.distributions import constraints
from rushlight.distributions.discrete import one_of
from rushlight.distributions.distribution import Distribution
from rushlight.distributions.public import (
    eps,
    lazy_property,
    logits_to_probs,
    ops,
    probs_to_logits,
    size_of,
)
from rushlight.ops.random.distributions import places_in
from rushlight.tape.program.memo import memo
from rushlight.tape.record.value import Value
from rushlight.tensor import Size


@memo
def _normalised(probs: Value) -> Any:
    given: Any = probs
    return given / given.sum(-1, keepdim=True)


@memo
def _at(logits: Value, value: Value) -> Any:
    """The logits of classes."""
    chosen: Any = value
    places, table = ops.broadcast_tensors(chosen.long().unsqueeze(-1), logits)
    return table.gather(-1, places[..., :1]).squeeze(-1)


class Categorical(Distribution):
    """A class index, drawn by probabilities or by unnormalised log probabilities."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    has_enumerate_support = True
    _parameter_dims: ClassVar[dict[str, int]] = {"probs": 1, "logits": 1}
    _is_checked = False

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        kind, given = one_of("Categorical", probs, logits), logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError(f"Categorical: `{kind}` must have at least one dimension")
        if kind == "probs":
            self.__dict__["probs"] = _normalised(given)
            self._is_checked = True  # what was given is a distribution, or an error is raised
        else:
            self.__dict__["logits"] = given - given.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(tuple(given.shape)[:-1], validate_args=validate_args)

    @lazy_property
    def logits(self) -> Any:
        """Logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits)

    @property
    def _given(self) -> Any:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._given.shape

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Any:
        return ops.full(
            tuple(self._batch_shape), math.nan, dtype=self._given.dtype, device=self._given.device
        )

    @property
    def mode(self) -> Any:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Any:
        return self.mean

    def sample(self, sample_shape: Any = ()) -> Any:
        shape, probs = self._extended_shape(sample_shape), self.probs.detach()
        count = math.prod(shape[: len(shape) - len(self._batch_shape)])
        if count == 0:
            return ops.empty(tuple(shape), dtype=int64, device=probs.device)
        if probs.dim() > 2:
            probs = probs.reshape(-1, self._num_events)
        if self._validate_args and self._is_checked and probs.dtype.itemsize > 2:
            drawn: Any = places_in(probs, count)
        else:
            drawn = ops.multinomial(probs, count, True)
        return (drawn if count == 1 else drawn.t()).reshape(tuple(shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return _at(self.logits, value)

    def entropy(self) -> Any:
        logits = self.logits.clamp(min=-3.4e38 if self.logits.dtype.itemsize == 4 else -1.7e308)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        values = ops.arange(self._num_events, device=self._given.device)
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class _OverClasses(Distribution):
    """A distribution on top of a categorical one."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    _categorical: Categorical

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """Logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape


class OneHotCategorical(_OverClasses):
    """A class as a vector: 1 at its index, 0 elsewhere."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        shape = tuple(self._categorical.param_shape)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return ops.one_hot(self._categorical.mode, self._event_shape[-1]).to(self.probs.dtype)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        places = self._categorical.sample(sample_shape)
        return ops.one_hot(places, self._event_shape[-1]).to(self._categorical._given.dtype)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        n = self._event_shape[0]
        values = ops.eye(
            n, dtype=self._categorical._given.dtype, device=self._categorical._given.device
        )
        values = values.reshape(n, *(1,) * len(self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors whose gradient is that of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = OneHotCategorical.sample(self, sample_shape)
        return drawn + (self.probs - self.probs.detach())


class Multinomial(_OverClasses):
    """The number of draws of each class in `total_count` draws."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("Multinomial: `total_count` must be one number")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        shape = tuple(self._categorical.param_shape)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        sample_shape = Size(size_of(sample_shape))
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        chosen = ops.one_hot(drawn, self._event_shape[-1]).sum(0)
        return chosen.to(self._categorical._given.dtype)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        kept = ops.where((value == 0) & (logits < -math.log(1 / eps(logits)) * 1e30), 0.0, logits)
        return ways + (kept * value).sum(-1)

    def entropy(self) -> Any:
        n = self.total_count
        counts = ops.arange(1, n + 1, dtype=self.probs.dtype, device=self.probs.device)
        counts = counts.reshape(-1, *(1,) * self.probs.dim())
        p = self.probs
        chance = math.lgamma(n + 1) - (counts + 1).lgamma() - (n - counts + 1).lgamma()
        chance = chance + counts * p.log() + ops.xlog1py(n - counts, -p)
        spread = (chance.exp() * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + spread
