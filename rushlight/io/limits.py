"""Limits on the cost of an untrusted file, and the errors that refuse it."""

from __future__ import annotations

import pickle
import time

from rushlight.core.errors import RushlightError

FACTOR = 8  # bytes or steps per byte of a file, besides one Python object
SLACK = 1 << 16  # so that small files are always within it
SECONDS, SECONDS_PER_BYTE = 10.0, 1e-5  # of this thread; other files take a tenth of that at most
DEPTH = 1000  # nested containers; Python's pickler writes no deeper ones


class UnsafeFile(RushlightError, pickle.UnpicklingError):
    """A file that needs more than tensors and plain containers, or that is no such file."""


class TruncatedFile(UnsafeFile, EOFError):
    """A file that is shorter than its content says."""


class Ledger:
    """The cost of reading a file so far, against the bytes read."""

    __slots__ = ("given", "spent", "started")

    def __init__(self) -> None:
        self.given = 0
        self.spent = 0
        self.started = time.thread_time()

    def check_time(self) -> None:
        """Refuse a file that takes longer than its length explains: for uncounted work."""
        taken = time.thread_time() - self.started
        if taken > SECONDS + SECONDS_PER_BYTE * self.given:
            raise UnsafeFile(
                f"load: the file took {taken:.0f} s for {self.given} bytes, as no file that save "
                "wrote does; pass weights_only=False if you trust where it is from"
            )

    def spend(self, amount: int) -> None:
        """Count bytes before they are allocated, or elements before they are read."""
        self.spent += amount
        if self.spent > FACTOR * self.given + SLACK:
            raise UnsafeFile(
                f"load: the file uses its content again and again: {self.spent} bytes would be "
                f"made of {self.given}; pass weights_only=False if you trust where it is from"
            )
