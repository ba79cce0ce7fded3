"""Optimisers with PyTorch's names, formulas and defaults.

Owns: groups of parameters and their options, the state kept for each parameter, learning-rate schedules.
Takes: leaves with gradients. Gives: the leaves changed in place, one fused kernel each.
Never: reaches below ops/, reads a tensor back to the host, holds a formula (those are in ops/optimise.py).
"""

from rushlight.optim import lr_scheduler
from rushlight.optim.adam import Adam, AdamW
from rushlight.optim.optimizer import Optimizer
from rushlight.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
