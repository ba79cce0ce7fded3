"""Collectives with gradients.

Owns: collectives that are recorded on the tape, each with the collective that moves its gradient.
Takes: tensors and groups.
Gives: `torch.distributed.nn`'s names.
Never: a collective that only some ranks make in backward.
"""

from rushlight.distributed.nn import functional as functional
from rushlight.distributed.nn.functional import (
    all_gather as all_gather,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    all_to_all_single as all_to_all_single,
    broadcast as broadcast,
    gather as gather,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    scatter as scatter,
)
