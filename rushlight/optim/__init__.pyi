# Written by tools/stubs.py: `make stubs`.

from rushlight.optim import lr_scheduler as lr_scheduler, swa_utils as swa_utils
from rushlight.optim.adam import Adam as Adam, AdamW as AdamW
from rushlight.optim.adaptive import (
    Adadelta as Adadelta,
    Adagrad as Adagrad,
    Adamax as Adamax,
    NAdam as NAdam,
    RAdam as RAdam,
    RMSprop as RMSprop,
)
from rushlight.optim.averaged import ASGD as ASGD, Rprop as Rprop
from rushlight.optim.factored import Adafactor as Adafactor, Muon as Muon
from rushlight.optim.lbfgs import LBFGS as LBFGS
from rushlight.optim.optimizer import Optimizer as Optimizer
from rushlight.optim.sgd import SGD as SGD
from rushlight.optim.sparse import SparseAdam as SparseAdam
