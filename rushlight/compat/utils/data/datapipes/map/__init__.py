"""Pipes by index, under PyTorch's names."""

from rushlight.compat.utils.data.datapipes.map.pipes import (
    BatcherMapDataPipe as Batcher,
    ConcaterMapDataPipe as Concater,
    MapperMapDataPipe as Mapper,
    SequenceWrapperMapDataPipe as SequenceWrapper,
    ShufflerIterDataPipe as Shuffler,
    ZipperMapDataPipe as Zipper,
)

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]
