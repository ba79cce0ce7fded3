"""Parameters averaged over ranks now and then, in place of gradients at every step."""

from rushlight.distributed.algorithms.model_averaging import averagers as averagers
