"""Fuzzers: random cases, each made from a seed, run in child processes under the checking build.

`python -m tests.fuzz calls|files|programs|all --seed N --count N --minutes M --jobs J`

Owns: tests/fuzz/.
Takes: one module for each kind, with `case(seed)`, which runs one case and raises `Find` for wrong
behaviour; and optionally `describe(seed)`, which gives the case as one line of Python.
Gives: every find with its seed and its line; how many cases ran and which seeds.
Never: a case that depends on anything but its seed: a printed seed shows the same case again.

Note [Finds]
1. A find is a crash or a signal, a hang (`SECONDS` of processor time, or `WALL_SECONDS` of any), a
   `ForeignAccess`, or an error that is no refusal (`is_refusal`): an AttributeError says that the
   package failed, not that it checked its arguments.
2. A case catches the refusals it allows; an error that leaves it is a find. `refusing()` does both.
3. After a crash or a hang the child is restarted after the seed that ended it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rushlight.core import errors

KINDS = ("calls", "files", "programs")
SECONDS = 5.0
WALL_SECONDS = 90.0
BYTES = 3 << 29  # what a child may hold: a request beyond it must end in a MemoryError

# Python's own classes with which a call may refuse its arguments. RuntimeError's and LookupError's
# other subclasses (RecursionError, KeyError) are not among them.
REFUSALS = (
    BufferError,
    EOFError,
    IndexError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    TypeError,
    UserWarning,
    ValueError,
)
NO_REFUSALS = (RecursionError, errors.ForeignAccess)


class Find(Exception):
    """Wrong behaviour of the package, in one line."""


def is_refusal(error: BaseException) -> bool:
    """Whether an error says that the package looked at its arguments and refused them."""
    if isinstance(error, NO_REFUSALS):
        return False
    return isinstance(error, (errors.RushlightError, *REFUSALS))


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """`with refusing():` takes refusals for granted, and makes a Find of every other error."""
    try:
        yield
    except Find:
        raise
    except Exception as error:
        if not is_refusal(error):
            raise Find(f"{type(error).__name__}: {error}") from error
