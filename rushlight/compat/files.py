"""PyTorch's files whose names lie in other files here, and modules with nothing but a few names."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from rushlight.lazy import MissingName

_OPTIMISERS = (
    "adadelta adafactor adagrad adamax adamw asgd nadam radam rmsprop rprop sparse_adam _muon"
)
_DISTRIBUTIONS = (
    "bernoulli beta binomial cauchy chi2 continuous_bernoulli dirichlet exp_family exponential "
    "fishersnedecor gamma generalized_pareto geometric gumbel half_cauchy half_normal independent "
    "inverse_gamma kumaraswamy laplace lkj_cholesky log_normal logistic_normal "
    "lowrank_multivariate_normal mixture_same_family multinomial multivariate_normal "
    "negative_binomial normal one_hot_categorical pareto poisson relaxed_bernoulli "
    "relaxed_categorical studentT transformed_distribution uniform von_mises weibull"
)
# By PyTorch's path, the module here that has its names.
FORWARDED: dict[str, str] = {
    "_tensor": "rushlight",
    "_utils": "rushlight.compat.natives",
    "functional": "rushlight",
    "_lowrank": "rushlight",
    "_linalg_utils": "rushlight.linalg",
    "amp.autocast_mode": "rushlight.amp",
    "amp.grad_scaler": "rushlight.amp",
    "cuda.amp.autocast_mode": "rushlight.cuda.amp",
    "cuda.amp.grad_scaler": "rushlight.cuda.amp",
    "cuda.memory": "rushlight.cuda",
    "cuda.random": "rushlight.cuda",
    "cuda.graphs": "rushlight.cuda",
    "nn.common_types": "rushlight.compat.types",
    "nn.parallel.data_parallel": "rushlight.nn.data_parallel",
    "nn.utils.fusion": "rushlight.nn.utils.fusing",
    "nn.utils.memory_format": "rushlight.nn.utils.fusing",
    "nn.utils.init": "rushlight.nn.utils.fusing",
    "utils.data._utils": "rushlight.utils.data",
    "utils.data._utils.collate": "rushlight.utils.data.collate",
    "utils.data._utils.worker": "rushlight.utils.data.worker",
    **{f"optim.{name}": "rushlight.optim" for name in _OPTIMISERS.split()},
    **{f"distributions.{name}": "rushlight.distributions" for name in _DISTRIBUTIONS.split()},
}


def forwarded(path: str) -> ModuleType | None:
    """The module of PyTorch's path, with the names of the one that has them."""
    source = FORWARDED.get(path)
    if source is None:
        return None
    own = importlib.import_module(source)
    made = ModuleType(f"rushlight.compat.{path}", f"PyTorch's `torch.{path}`: names of {source}.")

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise MissingName(made.__name__, name)
        return getattr(own, name)

    vars(made).update(__path__=[], __getattr__=find, __dir__=lambda: dir(own))
    return made
