"""PyTorch's `special`: the same ops under the names of mathematics."""

from __future__ import annotations

from rushlight.ops import normalise as _normalise
from rushlight.ops.registry import REGISTRY as _REGISTRY

_SAME = (
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "exp2",
    "expm1",
    "log1p",
    "logit",
    "logsumexp",
    "ndtr",
    "polygamma",
    "round",
    "sinc",
    "xlog1py",
    "xlogy",
)
_RENAMED = {"expit": "sigmoid", "gammaln": "lgamma", "multigammaln": "mvlgamma", "psi": "digamma"}

globals().update({name: _REGISTRY[name].function for name in _SAME})
globals().update({name: _REGISTRY[old].function for name, old in _RENAMED.items()})
softmax, log_softmax = _normalise.softmax, _normalise.log_softmax


def __getattr__(name: str) -> object:  # for type checkers, which do not see the names from the registry
    raise AttributeError(f"rushlight.special has no {name!r}")
