"""PyTorch's `torch.distributed.algorithms`."""

from rushlight.distributed.algorithms import ddp_comm_hooks as ddp_comm_hooks
