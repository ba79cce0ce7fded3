"""PyTorch's `torch.utils.file_baton`: a file whose existence tells that someone works."""

from __future__ import annotations

import os
import sys
import time


class FileBaton:
    """A lock of several processes: the one that makes the file has it.

    Args:
        lock_file_path (str): The file.
        wait_seconds (float): How long `wait` sleeps between two looks.
        warn_after_seconds (float): After how long `wait` says that it waits; never without it.
    """

    def __init__(
        self,
        lock_file_path: str,
        wait_seconds: float = 0.1,
        warn_after_seconds: float | None = None,
    ) -> None:
        self.lock_file_path = lock_file_path
        self.wait_seconds = wait_seconds
        self.warn_after_seconds = warn_after_seconds
        self.fd: int | None = None

    def try_acquire(self) -> bool:
        """Make the file; whether there was none."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Wait until the file is gone."""
        start, said = time.monotonic(), self.warn_after_seconds is None
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            passed = time.monotonic() - start
            if (
                not said
                and self.warn_after_seconds is not None
                and passed > self.warn_after_seconds
            ):
                said = True
                print(f"waiting for the end of {self.lock_file_path}", file=sys.stderr)

    def release(self) -> None:
        """Remove the file."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        os.remove(self.lock_file_path)
