"""How a bucket's gradients are put together: hooks for `register_comm_hook`."""

from rushlight.distributed.algorithms.ddp_comm_hooks import (
    default_hooks as default_hooks,
    post_localSGD_hook as post_localSGD_hook,
    powerSGD_hook as powerSGD_hook,
)
