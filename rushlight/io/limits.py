"""What a file that is not trusted may cost, and the errors by which it is refused."""

from __future__ import annotations

import pickle
import time

from rushlight.core.errors import RushlightError

FACTOR = (
    8  # bytes or steps that each byte of a file may cost besides the Python object it may stand for
)
SLACK = 1 << 16  # so that small files need no account
SECONDS, SECONDS_PER_BYTE = 10.0, 1e-5  # of this thread; other files take a tenth of that at most
DEPTH = 1000  # containers inside each other; Python's pickler writes no deeper ones


class UnsafeFile(RushlightError, pickle.UnpicklingError):
    """A file that asks for more than tensors and plain containers, or that is no such file."""


class TruncatedFile(UnsafeFile, EOFError):
    """A file that ends before what it describes does."""


class Ledger:
    """What reading a file has cost so far, against the bytes that it has given."""

    __slots__ = ("given", "spent", "started")

    def __init__(self) -> None:
        self.given = 0
        self.spent = 0
        self.started = time.thread_time()

    def check_time(self) -> None:
        """Refuse a file that takes longer than its length explains: for work that no count shows."""
        taken = time.thread_time() - self.started
        if taken > SECONDS + SECONDS_PER_BYTE * self.given:
            raise UnsafeFile(
                f"load: the file took {taken:.0f} s for {self.given} bytes, as no file that save wrote does; pass "
                f"weights_only=False if you trust where it is from"
            )

    def spend(self, amount: int) -> None:
        """Count bytes that are about to be taken, or elements that are about to be read."""
        self.spent += amount
        if self.spent > FACTOR * self.given + SLACK:
            raise UnsafeFile(
                f"load: the file uses its content again and again: {self.spent} bytes would be made of {self.given}; pass "
                f"weights_only=False if you trust where it is from"
            )
