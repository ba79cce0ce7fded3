"""PyTorch's `torch.distributed.checkpoint.format_utils`: single files to folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from rushlight.core.errors import RushlightError
from rushlight.distributed import checkpoint
from rushlight.io import load


def torch_save_to_dcp(torch_save_path: str | Path, dcp_checkpoint_dir: str | Path) -> None:
    """Write what a file of `torch.save` holds as `distributed.checkpoint.save` writes it.

    Args:
        torch_save_path (path): The file, read as `torch.load` reads it.
        dcp_checkpoint_dir (path): The folder.
    """
    state: Any = load(torch_save_path, map_location="cpu")
    checkpoint.save(state, checkpoint_id=dcp_checkpoint_dir, no_dist=True)


def dcp_to_torch_save(dcp_checkpoint_dir: str | Path, torch_save_path: str | Path) -> NoReturn:
    """Refused: a folder names tensors by path and does not tell how they were nested.

    Args:
        dcp_checkpoint_dir (path): The folder.
        torch_save_path (path): The file.
    """
    raise RushlightError(
        "dcp_to_torch_save: a folder names tensors by path and does not tell their nesting; fill a "
        "state by distributed.checkpoint.load, then torch.save it"
    )
