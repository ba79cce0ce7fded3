"""Probability distributions with PyTorch's names.

Owns: distributions, constraints of their parameters and values, transforms, divergences. Takes:
numbers and tensors.
Gives: samples, log-probabilities, moments, entropies. Never: a kernel, or randomness that is not an
op's.
"""

from __future__ import annotations

from rushlight.distributions import (
    constraint_registry as constraint_registry,
    constraints as constraints,
    kl as kl,
    kl_mixed as kl_mixed,
    transforms as transforms,
    utils as utils,
)
from rushlight.distributions.assembled import (
    CatTransform as CatTransform,
    CorrCholeskyTransform as CorrCholeskyTransform,
    CumulativeDistributionTransform as CumulativeDistributionTransform,
    PositiveDefiniteTransform as PositiveDefiniteTransform,
    StackTransform as StackTransform,
)
from rushlight.distributions.categorical import (
    Categorical as Categorical,
    Multinomial as Multinomial,
    OneHotCategorical as OneHotCategorical,
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from rushlight.distributions.constraint_registry import (
    biject_to as biject_to,
    transform_to as transform_to,
)
from rushlight.distributions.continuous import (
    Cauchy as Cauchy,
    Exponential as Exponential,
    Laplace as Laplace,
    Normal as Normal,
    Uniform as Uniform,
)
from rushlight.distributions.correlations import (
    GeneralizedPareto as GeneralizedPareto,
    LKJCholesky as LKJCholesky,
)
from rushlight.distributions.directional import VonMises as VonMises
from rushlight.distributions.discrete import (
    Bernoulli as Bernoulli,
    Binomial as Binomial,
    Geometric as Geometric,
    NegativeBinomial as NegativeBinomial,
    Poisson as Poisson,
)
from rushlight.distributions.distribution import (
    Distribution as Distribution,
    ExponentialFamily as ExponentialFamily,
)
from rushlight.distributions.gammas import (
    Beta as Beta,
    Chi2 as Chi2,
    Dirichlet as Dirichlet,
    FisherSnedecor as FisherSnedecor,
    Gamma as Gamma,
    InverseGamma as InverseGamma,
    StudentT as StudentT,
)
from rushlight.distributions.kl import kl_divergence as kl_divergence, register_kl as register_kl
from rushlight.distributions.mixtures import (
    Independent as Independent,
    MixtureSameFamily as MixtureSameFamily,
)
from rushlight.distributions.multivariate import (
    LowRankMultivariateNormal as LowRankMultivariateNormal,
    MultivariateNormal as MultivariateNormal,
)
from rushlight.distributions.relaxed import (
    ContinuousBernoulli as ContinuousBernoulli,
    RelaxedBernoulli as RelaxedBernoulli,
    RelaxedOneHotCategorical as RelaxedOneHotCategorical,
)
from rushlight.distributions.transformed import (
    Gumbel as Gumbel,
    HalfCauchy as HalfCauchy,
    HalfNormal as HalfNormal,
    Kumaraswamy as Kumaraswamy,
    LogisticNormal as LogisticNormal,
    LogNormal as LogNormal,
    Pareto as Pareto,
    TransformedDistribution as TransformedDistribution,
    Weibull as Weibull,
)
from rushlight.distributions.transforms import (
    AbsTransform as AbsTransform,
    AffineTransform as AffineTransform,
    ComposeTransform as ComposeTransform,
    ExpTransform as ExpTransform,
    IndependentTransform as IndependentTransform,
    LowerCholeskyTransform as LowerCholeskyTransform,
    PowerTransform as PowerTransform,
    ReshapeTransform as ReshapeTransform,
    SigmoidTransform as SigmoidTransform,
    SoftmaxTransform as SoftmaxTransform,
    SoftplusTransform as SoftplusTransform,
    StickBreakingTransform as StickBreakingTransform,
    TanhTransform as TanhTransform,
    Transform as Transform,
    identity_transform as identity_transform,
)
from rushlight.distributions.wishart import Wishart as Wishart
from rushlight.lazy import shown

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraint_registry",
    "constraints",
    "identity_transform",
    "kl",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
    "utils",
]


def __dir__() -> list[str]:
    return shown(__name__)


# PyTorch has all transforms in one module.
vars(transforms).update(
    CatTransform=CatTransform,
    CorrCholeskyTransform=CorrCholeskyTransform,
    CumulativeDistributionTransform=CumulativeDistributionTransform,
    PositiveDefiniteTransform=PositiveDefiniteTransform,
    StackTransform=StackTransform,
)
