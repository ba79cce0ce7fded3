"""PyTorch's `torch.nn.parallel`: nothing is split over devices of one process."""

from __future__ import annotations

from rushlight.compat.nn.parallel import (
    distributed as distributed,
    scatter_gather as scatter_gather,
)
from rushlight.compat.nn.parallel.distributed import (
    DistributedDataParallel as DistributedDataParallel,
)
from rushlight.nn.data_parallel import (
    DataParallel as DataParallel,
    data_parallel as data_parallel,
    gather as gather,
    parallel_apply as parallel_apply,
    replicate as replicate,
    scatter as scatter,
)

DistributedDataParallelCPU = DistributedDataParallel
