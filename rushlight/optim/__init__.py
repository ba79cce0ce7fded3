"""Optimisers with PyTorch's names, formulas and defaults.

Owns: groups of parameters and their options, each optimiser's state, numbers and formula (see
Note [Optimisers] in ops/optim/formula.py), learning-rate schedules.
Takes: leaves with gradients. Gives: the leaves changed in place, one fused kernel each.
Never: reaches below ops/, reads a tensor back to the host.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

# The optimisers, by the file that defines them. See Note [Lazy names].
_OPTIMISERS = {
    "rushlight.optim.adam": "Adam AdamW",
    "rushlight.optim.adaptive": "Adadelta Adagrad Adamax NAdam RAdam RMSprop",
    "rushlight.optim.averaged": "ASGD Rprop",
    "rushlight.optim.factored": "Adafactor Muon",
    "rushlight.optim.lbfgs": "LBFGS",
    "rushlight.optim.optimizer": "Optimizer",
    "rushlight.optim.sgd": "SGD",
    "rushlight.optim.sparse": "SparseAdam",
}
_NAMES = Names(__name__)
_NAMES.modules("lr_scheduler swa_utils")
_NAMES.defined(_OPTIMISERS)
__all__ = sorted(_NAMES.sources)
_NAMES.modules(" ".join(file.rpartition(".")[2] for file in _OPTIMISERS))


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
