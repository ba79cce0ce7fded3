"""The process that runs cases: `python -m tests.fuzz.child KIND PROGRESS_FILE`.

A line "FIRST LAST" on stdin runs those cases; the answers are lines of JSON. The current seed is
written to the progress file first, through a mapping, so that the parent can read it after a crash.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import resource
import signal
import struct
import sys
import traceback
import warnings
from types import FrameType
from typing import Any

from tests.fuzz import BYTES, SECONDS, Find


class Hang(BaseException):
    """A case has used more than its processor time; no `except Exception` may catch it."""


def _raise_hang(number: int, frame: FrameType | None) -> None:
    raise Hang


def _line(error: BaseException) -> str:
    """The error and the innermost places of the package and the tests that it passed, in one
    line.
    """
    places = [f for f in traceback.extract_tb(error.__traceback__) if "/fuzz/" not in f.filename]
    if isinstance(error, Find) and error.__cause__ is not None:
        places = traceback.extract_tb(error.__cause__.__traceback__)
    at = ", ".join(f"{os.path.relpath(f.filename)}:{f.lineno}" for f in places[-3:])
    what = str(error) if isinstance(error, Find) else f"{type(error).__name__}: {error}"
    return " ".join(f"{what} (at {at})".split()) if at else " ".join(what.split())


def _describe(module: Any, seed: int) -> str:
    try:
        return module.describe(seed) if hasattr(module, "describe") else ""
    except Exception as error:
        return f"(no description: {type(error).__name__}: {error})"


def main(kind: str, progress_path: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a case prints is not an answer
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _raise_hang)
    warnings.simplefilter("ignore")
    module = importlib.import_module(f"tests.fuzz.{kind}")
    with open(progress_path, "r+b") as file:
        progress = mmap.mmap(file.fileno(), 8)
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        first, last = map(int, line.split())
        for seed in range(first, last + 1):
            progress[:] = struct.pack("<q", seed)
            hang = False
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                module.case(seed)
                signal.setitimer(signal.ITIMER_PROF, 0)
            except (Exception, Hang) as error:
                signal.setitimer(signal.ITIMER_PROF, 0)
                hang = isinstance(error, Hang)
                what = f"hang: more than {SECONDS:g} s of processor time" if hang else ""
                what = f"{what} {_line(error)}".strip()
                answers.write(
                    json.dumps({"seed": seed, "find": what, "call": _describe(module, seed)}) + "\n"
                )
            if hang:
                # An interrupted case may be half done: the next one gets a fresh process.
                os._exit(3)
        told = {
            what: getattr(module, what)() for what in ("counts", "notes") if hasattr(module, what)
        }
        answers.write(json.dumps({"done": last, **told}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
