"""PyTorch's `torch.distributed.tensor.experimental`."""

from rushlight.distributed.tensor.calls import implicit_replication as implicit_replication
