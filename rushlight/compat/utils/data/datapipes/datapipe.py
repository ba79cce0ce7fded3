"""PyTorch's `torch.utils.data.datapipes.datapipe`: the base classes of pipes."""

from __future__ import annotations

from rushlight.utils.data.dataset import Dataset, IterableDataset


class IterDataPipe(IterableDataset):
    """A base class of iterable pipes: an iterable dataset."""


class MapDataPipe(Dataset):
    """A base class of pipes by index: a dataset."""
