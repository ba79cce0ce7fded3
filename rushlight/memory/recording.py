"""Recordings of device memory: start, stop, and what they tell."""

from __future__ import annotations

import atexit
import json
import os
import pickle
import sys
from types import TracebackType
from typing import Any, ClassVar

from rushlight.core.interrupts import unheard
from rushlight.memory.account import Account, accounts
from rushlight.memory.data import VERSION, as_data
from rushlight.memory.owners import Owners
from rushlight.memory.page import as_page
from rushlight.memory.snapshot import as_snapshot
from rushlight.memory.text import as_text, counters_text
from rushlight.memory.watching import Recorder
from rushlight.ops.create.creation import device_name, resolve_pool

MOST = 2_000_000


class Recording:
    """Every block of device memory between two moments: owner, op, module, line, shape and time.

    Use it as `with memory.record() as recording:`, or call `start()` and `stop()`. The code inside
    runs as it does without a recording: the same calls, the same bytes. Blocks of every device and
    every thread are recorded.
    """

    last: ClassVar[Recording | None] = None

    def __init__(self, max_events: int = MOST) -> None:
        if max_events < 1:
            raise ValueError(f"memory.record: max_events must be positive, got {max_events!r}")
        self.max_events = max_events
        self._recorder: Recorder | None = None
        self._owners: Owners | None = None
        self._accounts: list[Account] = []

    def start(self) -> None:
        """Begin; the program of a `with` block need not call it."""
        recorder = Recorder(self.max_events)
        recorder.start()
        try:
            owners = Owners(recorder)
            owners.look()
        except BaseException:
            recorder.stop()
            raise
        recorder.began = recorder.now()  # the look took its time
        self._recorder, self._owners = recorder, owners
        Recording.last = self

    def stop(self) -> None:
        """End. A recording that has ended keeps numbers and names, and no tensor."""
        recorder = self._recorder
        if recorder is not None:
            recorder.stop()
            self._accounts = self._read()
            recorder.forget()
            self._recorder = self._owners = None

    def __enter__(self) -> Recording:
        self.start()
        return self

    @unheard
    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _read(self) -> list[Account]:
        assert self._recorder is not None and self._owners is not None
        self._recorder.look_back()
        self._owners.look()
        return accounts(self._recorder, self._owners)

    @property
    def accounts(self) -> list[Account]:
        """An `Account` of each device, the largest first; of a running recording, up to here."""
        return self._accounts if self._recorder is None else self._read()

    def account(self, device: Any = None) -> Account:
        """The account of a device; without one, of the device with the largest peak."""
        found = self.accounts
        if device is not None:
            name = device_name(device)
            found = [account for account in found if account.device == name]
        if not found:
            where = "" if device is None else f" on {device_name(device)}"
            raise ValueError(f"memory.record: no memory was in use{where} while it was recorded")
        return found[0]

    def peak(self, device: Any = None) -> int:
        """The most bytes in use at once."""
        return self.account(device).peak

    def summary(self, device: Any = None) -> str:
        """The peak and its owners, what was rebuilt, and what would save most, as text."""
        return as_text(self.account(device))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data: see `memory/data.py` for the keys."""
        return {"version": VERSION, "devices": [as_data(account) for account in self.accounts]}

    def snapshot(self) -> dict[str, Any]:
        """The recording in the form of PyTorch's `torch.cuda.memory._snapshot()`."""
        return as_snapshot(self.accounts)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a report: a page for `.html`, data for `.json`, a snapshot for `.pickle`.

        The page is one file and loads nothing. pytorch.org/memory_viz opens the snapshot.
        """
        name = os.fspath(path)
        ending = os.path.splitext(name)[1].lower()
        if ending in (".html", ".htm"):
            content = as_page(self.accounts).encode()
        elif ending == ".json":
            content = json.dumps(self.to_dict(), separators=(",", ":")).encode()
        elif ending in (".pickle", ".pkl"):
            content = pickle.dumps(self.snapshot())
        elif ending == ".txt":
            content = (self.summary() + "\n").encode()
        else:
            raise ValueError(
                "memory.report: the name of the file must end in .html, .json, .pickle or .txt, "
                f"got {name!r}"
            )
        with open(name, "wb") as file:
            file.write(content)


def record(max_events: int = MOST) -> Recording:
    """Record device memory: `with memory.record() as recording:`.

    After `max_events` events the recording ends by itself. See `Recording`.

    Args:
        max_events (int): The number of events after which the recording ends.
    """
    return Recording(max_events)


def report_at_exit(path: str) -> None:
    """Record the program from here on and write its report when it ends."""
    recording = Recording()
    recording.start()

    def finish() -> None:
        recording.stop()
        if recording.accounts:
            recording.report(path)
            told = f"the report of the program's memory is in {path}"
        else:
            told = f"the program held no memory of a device: {path} is not written"
        print(f"rushlight: {told}", file=sys.stderr)

    atexit.register(finish)


def _latest(op: str) -> Recording:
    if Recording.last is None:
        raise RuntimeError(f"{op}: nothing was recorded; use `with memory.record():` first")
    return Recording.last


def report(path: str | os.PathLike[str]) -> None:
    """Write a report of the running recording, or of the last: see `Recording.report`.

    Args:
        path (path): The file; its ending chooses the form: .html, .txt, .json or .pickle.
    """
    _latest("memory.report").report(path)


def summary(device: Any = None) -> str:
    """The text of the running recording, or of the last: see `Recording.summary`.

    Where nothing was recorded on the device, the counters.

    Args:
        device (device): A device or its name; None for all that were used.
    """
    if Recording.last is not None:
        name = None if device is None else device_name(device)
        for account in Recording.last.accounts:
            if name is None or account.device == name:
                return as_text(account)
    return counters_text(resolve_pool(device))


# ---- PyTorch's names ----


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = MOST,
    device: Any = None,
    clear_history: bool = False,
) -> None:
    """Start a recording, or stop it with None: PyTorch's name for `record`.

    All devices are recorded, each block with its line and module, whatever the other arguments say.
    """
    last = Recording.last
    if last is not None:
        last.stop()
    if enabled is not None:
        Recording(max_entries).start()


def _snapshot(device: Any = None) -> dict[str, Any]:
    """The recording as PyTorch's viewer reads it: see `Recording.snapshot`."""
    return _latest("memory._snapshot").snapshot()


def _dump_snapshot(filename: str | os.PathLike[str] = "dump_snapshot.pickle") -> None:
    """Write `_snapshot()` to a file, which pytorch.org/memory_viz opens."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)
