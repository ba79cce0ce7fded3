"""The parent of a run: gives ranges of seeds to children, restarts them, collects the finds."""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz import WALL_SECONDS

ROOT = Path(__file__).parent.parent.parent
STRETCH = 250  # seeds handed out at a time
LIFE = 100_000  # cases after which a child is replaced, to free its kernels and plans


@dataclass
class Found:
    """One find: the seed, what went wrong, the case as a line of Python."""

    seed: int
    what: str
    call: str = ""

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}" + (f"\n    {self.call}" if self.call else "")


@dataclass
class Report:
    """The findings of a run so far."""

    kind: str
    first: int
    cases: int = 0
    last: int = -1
    finds: list[Found] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        seeds = f"seeds {self.first}..{self.last}" if self.cases else "no seed"
        counted = "".join(f", {n} {what}" for what, n in sorted(self.counts.items()))
        rate = f"{self.cases / self.seconds:.0f}/s" if self.seconds else "-"
        return (
            f"{self.kind}: {self.cases} cases, {seeds}, {len(self.finds)} finds{counted} "
            f"({self.seconds:.0f} s, {rate})"
        )


class _Ended(Exception):
    """The child is gone: why."""


class Child:
    """One process that runs cases of one kind."""

    def __init__(self, kind: str, variables: dict[str, str]) -> None:
        self.progress = tempfile.NamedTemporaryFile(prefix=("rushlight-fuzz-"))  # noqa: SIM115  # closed by `end`
        self.progress.write(struct.pack("<q", -1))
        self.progress.flush()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {
            "RUSHLIGHT_CHECK": "1",
            "RUSHLIGHT_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.child", kind, self.progress.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=ROOT,
            env={**os.environ, **environment, **variables},
        )
        self.waiting = b""
        self.cases = 0
        try:
            self.answer()
        except _Ended as error:
            self.end()
            raise RuntimeError(f"fuzz: a child for {kind!r} did not start: {error}") from None

    def tell(self, first: int, last: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{first} {last}\n".encode())
        self.process.stdin.flush()
        self.cases += last - first + 1

    def answer(self) -> dict[str, Any]:
        """The child's next line. Waits while the current seed changes.

        Kills a child whose seed does not.
        """
        assert self.process.stdout is not None
        seed, since = self.seed(), time.monotonic()
        while b"\n" not in self.waiting:
            ready, _, _ = select.select([self.process.stdout], [], [], 1.0)
            if ready:
                text = os.read(self.process.stdout.fileno(), 1 << 16)
                if not text:
                    raise _Ended(self._why())
                self.waiting += text
            elif self.seed() != seed:
                seed, since = self.seed(), time.monotonic()
            elif time.monotonic() - since > WALL_SECONDS:
                self.process.kill()
                raise _Ended(f"hang: no answer for {WALL_SECONDS:g} s")
        line, self.waiting = self.waiting.split(b"\n", 1)
        return json.loads(line)

    def seed(self) -> int:
        """The case that was begun last; -1 before the first."""
        return struct.unpack("<q", os.pread(self.progress.fileno(), 8, 0))[0]

    def _why(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        # Faulthandler: innermost first.
        places = [line.strip() for line in said if "rushlight/" in line][:3]
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"the process ended with {how}: {'; '.join(places) or ' '.join(said[-1:])}"

    def end(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.progress.close()
        self.errors.close()


class Run:
    """A run of one kind: `jobs` threads, each with a child, take ranges of seeds.

    It ends when the seeds or the time are used up.
    """

    def __init__(
        self,
        kind: str,
        seed: int = 0,
        count: int | None = None,
        minutes: float | None = None,
        jobs: int = 1,
        show: bool = True,
        variables: dict[str, str] | None = None,
    ) -> None:
        self.report = Report(kind, seed)
        self.kind, self.jobs, self.show, self.variables = kind, jobs, show, variables or {}
        self.next = seed
        self.stop = None if count is None else seed + count
        self.begun = time.monotonic()
        self.until = None if minutes is None else self.begun + 60 * minutes
        self.lock = threading.Lock()
        self.failed: BaseException | None = None

    def run(self) -> Report:
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(self.jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self.failed is not None:
            raise self.failed
        return self.report

    def _take(self) -> tuple[int, int] | None:
        """The next range of seeds; None when there are none left, or no time."""
        with self.lock:
            left = STRETCH if self.stop is None else min(STRETCH, self.stop - self.next)
            if (
                self.failed
                or left <= 0
                or (self.until is not None and time.monotonic() > self.until)
            ):
                return None
            first, self.next = self.next, self.next + left
            return first, self.next - 1

    def _work(self) -> None:
        child: Child | None = None
        try:
            while (stretch := self._take()) is not None:
                first, last = stretch
                while first <= last:
                    if child is not None and child.cases >= LIFE:
                        child.end()
                        child = None
                    child = child or Child(self.kind, self.variables)
                    before = len(self.report.finds)
                    try:
                        child.tell(first, last)
                        self._hear(child)
                        self._count(first, last)
                        break
                    except (_Ended, OSError) as error:
                        culprit = max(first, child.seed())
                        if all(found.seed != culprit for found in self.report.finds[before:]):
                            self._note(Found(culprit, str(error), self._describe(culprit)))
                        child.end()
                        child = None
                        self._count(first, culprit)
                        first = culprit + 1
        except BaseException as error:
            self.failed = error
        finally:
            if child is not None:
                child.end()

    def _hear(self, child: Child) -> None:
        while "done" not in (answer := child.answer()):
            self._note(Found(answer["seed"], answer["find"], answer["call"]))
        with self.lock:
            self.report.counts.update(answer.get("counts", {}))
            for note in answer.get("notes", []):
                print(f"{self.kind} {note}", flush=True)

    def _describe(self, seed: int) -> str:
        """The case's own line, asked of a process that does not run it."""
        program = (
            f"from tests.fuzz import {self.kind} as k; print(getattr(k, 'describe', lambda _: "
            f"'')({seed}))"
        )
        try:
            asked = subprocess.run(
                [sys.executable, "-c", program],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
            )
        except subprocess.TimeoutExpired:
            return ""
        return asked.stdout.strip()

    def _note(self, found: Found) -> None:
        with self.lock:
            self.report.finds.append(found)
            if self.show:
                print(f"{self.kind} {found}", flush=True)

    def _count(self, first: int, last: int) -> None:
        with self.lock:
            self.report.cases += last - first + 1
            self.report.last = max(self.report.last, last)
            self.report.seconds = time.monotonic() - self.begun
            if (
                self.show
                and self.report.cases // 10_000
                != (self.report.cases - (last - first + 1)) // 10_000
            ):
                print(self.report, flush=True)
