"""PyTorch's `torch._utils_internal`: the package's files, and switches that keep their defaults."""

from __future__ import annotations

import os
from typing import Any

import rushlight.version

TEST_MASTER_ADDR = "127.0.0.1"
TEST_MASTER_PORT = 29500


def get_file_path(*path_components: str) -> str:
    """A path below the package's folder.

    Args:
        *path_components (str): The path's parts.
    """
    return os.path.join(os.path.dirname(rushlight.version.__file__), *path_components)


def justknobs_check(name: str, default: bool = True) -> bool:
    """The default: no service is asked.

    Args:
        name (str): The switch.
        default (bool): What is given.
    """
    return default


def log_export_usage(**kwargs: Any) -> None:
    """Sends nothing: usage is not counted.

    Args:
        **kwargs: Have no effect.
    """


log_torchscript_usage = log_export_usage
