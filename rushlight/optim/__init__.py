"""Optimisers with PyTorch's names, formulas and defaults.

Owns: groups of parameters and their options, each optimiser's state, numbers and formula (see
Note [Optimisers] in ops/optim/formula.py), learning-rate schedules.
Takes: leaves with gradients. Gives: the leaves changed in place, one fused kernel each.
Never: reaches below ops/, reads a tensor back to the host.
"""

from rushlight.lazy import shown
from rushlight.optim import lr_scheduler, swa_utils
from rushlight.optim.adam import Adam, AdamW
from rushlight.optim.adaptive import Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop
from rushlight.optim.averaged import ASGD, Rprop
from rushlight.optim.factored import Adafactor, Muon
from rushlight.optim.lbfgs import LBFGS
from rushlight.optim.optimizer import Optimizer
from rushlight.optim.sgd import SGD
from rushlight.optim.sparse import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]


def __dir__() -> list[str]:
    return shown(__name__)
