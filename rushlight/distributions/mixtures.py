"""Distributions made of others: independent ones as one value, and mixtures."""

from __future__ import annotations

from typing import Any, ClassVar

from rushlight.distributions import constraints
from rushlight.distributions.categorical import Categorical
from rushlight.distributions.distribution import Distribution
from rushlight.distributions.public import size_of, sum_last
from rushlight.tape.record.state import no_grad


class Independent(Distribution):
    """A distribution with its last batch dimensions made part of the value."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        base_distribution: Any,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch, event = tuple(base_distribution.batch_shape), tuple(base_distribution.event_shape)
        if reinterpreted_batch_ndims > len(batch):
            raise ValueError(
                f"Independent: {reinterpreted_batch_ndims} dimensions cannot be taken of a batch "
                f"of shape {batch}"
            )
        shape = batch + event
        dims = reinterpreted_batch_ndims + len(event)
        self.base_dist, self.reinterpreted_batch_ndims = (
            base_distribution,
            reinterpreted_batch_ndims,
        )
        super().__init__(
            shape[: len(shape) - dims], shape[len(shape) - dims :], validate_args=validate_args
        )

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return self.reinterpreted_batch_ndims == 0 and bool(self.base_dist.has_enumerate_support)

    @constraints.dependent_property
    def support(self) -> Any:
        inner = self.base_dist.support
        dims = self.reinterpreted_batch_ndims
        return constraints.independent(inner, dims) if dims else inner

    def _inner_tail(self, inner: Distribution) -> Any:
        batch = tuple(inner.batch_shape)
        return batch[len(batch) - self.reinterpreted_batch_ndims :]

    @property
    def mean(self) -> Any:
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return sum_last(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        return sum_last(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Independent: values of several dimensions are not listed")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """A mixture of the distributions along the last batch dimension, with categorical weights."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        mixture_distribution: Any,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("MixtureSameFamily: the mixture distribution must be a Categorical")
        batch = tuple(component_distribution.batch_shape)
        count = mixture_distribution.param_shape[-1]
        if not batch or batch[-1] != count:
            raise ValueError(
                f"MixtureSameFamily: {count} probabilities do not fit a batch of components {batch}"
            )
        self._mixture_distribution = mixture_distribution.expand(batch[:-1])
        self._component_distribution = component_distribution
        self._num_component = count
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(
            batch[:-1], component_distribution.event_shape, validate_args=validate_args
        )

    @constraints.dependent_property
    def support(self) -> Any:
        return self._component_distribution.support

    def _inner_tail(self, inner: Distribution) -> Any:
        return (self._num_component,) if inner is self._component_distribution else ()

    @property
    def mixture_distribution(self) -> Any:
        """The categorical distribution of components."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components, along the last dimension of the batch."""
        return self._component_distribution

    def _weights(self) -> Any:
        probs = self._mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * self._event_ndims)

    @property
    def mean(self) -> Any:
        return (self._weights() * self._component_distribution.mean).sum(-1 - self._event_ndims)

    @property
    def variance(self) -> Any:
        dim, weights = -1 - self._event_ndims, self._weights()
        inside = (weights * self._component_distribution.variance).sum(dim)
        away = self._component_distribution.mean - self.mean.unsqueeze(dim)
        return inside + (weights * away.square()).sum(dim)

    def _pad(self, x: Any) -> Any:
        return x.unsqueeze(-1 - self._event_ndims)

    def cdf(self, value: Any) -> Any:
        return (
            self._component_distribution.cdf(self._pad(value)) * self._mixture_distribution.probs
        ).sum(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        inside = self._component_distribution.log_prob(self._pad(value))
        return (inside + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            sample_shape = size_of(sample_shape)
            dim = len(sample_shape) + len(self._batch_shape)
            which = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            which = which.reshape(*which.shape, 1, *(1,) * self._event_ndims)
            which = which.expand(*which.shape[: dim + 1], *self._event_shape)
            return drawn.gather(dim, which).squeeze(dim)
