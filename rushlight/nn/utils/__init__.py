"""What is done to a model from outside: its gradients clipped, its sequences packed, its weights parametrised.

Owns: gradients of a model taken together, sequences of different lengths, weights that are functions of parameters.
Takes: modules, parameters, tensors. Gives: the same, changed.
Never: reaches below ops/.
"""

from __future__ import annotations

from rushlight.nn.utils import rnn
from rushlight.nn.utils.clip_grad import clip_grad_norm_

__all__ = ["clip_grad_norm_", "rnn"]
