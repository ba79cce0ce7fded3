"""PyTorch's `torch.distributed.launcher`."""

from rushlight.compat.distributed.launcher.api import (
    LaunchConfig as LaunchConfig,
    elastic_launch as elastic_launch,
    launch_agent as launch_agent,
)
