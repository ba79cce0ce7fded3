"""Probability distributions with PyTorch's names.

Owns: distributions, the sets their parameters and values lie in, transforms, divergences. Takes: numbers and tensors.
Gives: samples, log-probabilities, moments, entropies. Never: a kernel, or randomness that is not an op's.
"""

from __future__ import annotations

from rushlight.distributions import constraints as constraints
from rushlight.distributions.categorical import (
    Categorical as Categorical,
    Multinomial as Multinomial,
    OneHotCategorical as OneHotCategorical,
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from rushlight.distributions.continuous import (
    Cauchy as Cauchy,
    Exponential as Exponential,
    Laplace as Laplace,
    Normal as Normal,
    Uniform as Uniform,
)
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
