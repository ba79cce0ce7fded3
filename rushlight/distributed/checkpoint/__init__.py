"""Checkpoints of many ranks: a folder of safetensors files and an index."""

from __future__ import annotations

from rushlight.distributed.checkpoint import state_dict as state_dict, stateful as stateful
from rushlight.distributed.checkpoint.folders import (
    async_save as async_save,
    load as load,
    load_state_dict as load_state_dict,
    save as save,
    save_state_dict as save_state_dict,
)
from rushlight.distributed.checkpoint.planners import (
    DefaultLoadPlanner as DefaultLoadPlanner,
    DefaultSavePlanner as DefaultSavePlanner,
)
from rushlight.distributed.checkpoint.storage import (
    FileSystemReader as FileSystemReader,
    FileSystemWriter as FileSystemWriter,
    HuggingFaceStorageReader as HuggingFaceStorageReader,
    HuggingFaceStorageWriter as HuggingFaceStorageWriter,
)
