"""`rushlight launch`: one program in several processes, which find one another.

# Note [Launching]
1. The launcher holds the store (Note [Rendezvous]) in a thread and sets torchrun's variables. With
   `--mpiexec` that program starts the processes instead, for MPI libraries of other kinds; with
   `--ray` a Ray cluster does.
2. Lines of output begin with the rank. When a process fails the others get `GRACE` seconds to raise
   their DistributedError, then they are ended. The text of the first failing rank comes last.
3. The children end with the launcher, also where it is killed.
4. `--restarts` starts all of them again after a failure; TORCHELASTIC_RESTART_COUNT counts.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from rushlight.core import config
from rushlight.distributed import ray_cluster, store_server

GRACE = 10.0
KEPT_LINES = 200
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

DESCRIPTION = """\
Run a program in several processes, as `rushlight run` runs it in one. The program calls
torch.distributed.init_process_group(), which finds the others.

  rushlight launch -n 4 train.py --epochs 3
  rushlight launch -n 2 --device cpu --budget 2GiB train.py
  rushlight launch --ray -n 8 train.py
  rushlight launch --nnodes 2 --node-rank 0 --master-addr host0 --master-port 29500 -n 8 train.py

Options of launch come first, then those of run, then the program.
"""


def options() -> argparse.ArgumentParser:
    """The options of `launch`."""
    parser = argparse.ArgumentParser(
        prog="rushlight launch",
        usage="rushlight launch [options] [options of run] script.py [args] | -m package.module",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        *("-n", "--nproc-per-node", "--nproc_per_node"), dest="count", type=int, default=1,
        help="processes on this host",
    )  # fmt: skip
    parser.add_argument("--nnodes", type=int, default=1, help="hosts")
    parser.add_argument(
        *("--node-rank", "--node_rank"), dest="node", type=int, default=0, help="this host's number"
    )
    parser.add_argument(
        *("--master-addr", "--master_addr"), dest="host", default="127.0.0.1",
        help="host 0, which holds the store",
    )  # fmt: skip
    parser.add_argument(
        *("--master-port", "--master_port"), dest="port", type=int, default=0,
        help="a free port of host 0; chosen where there is one host",
    )  # fmt: skip
    parser.add_argument(
        "--ray", action="store_true", help="run the -n processes on a Ray cluster (RAY_ADDRESS)"
    )
    parser.add_argument("--restarts", type=int, default=0, help="how often all start again")
    parser.add_argument(
        "--mpiexec", default="", help="start by this command: 'mpiexec --oversubscribe'"
    )
    return parser


def parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options of `launch`, which come first, and the words for `run`."""
    parser, own, rest = options(), [], list(words)
    known = parser._option_string_actions
    while rest and rest[0].partition("=")[0] in known:
        word = rest.pop(0)
        own.append(word)
        if known[word.partition("=")[0]].nargs != 0 and "=" not in word and rest:
            own.append(rest.pop(0))
    given = parser.parse_args(own)
    if given.count < 1 or given.nnodes < 1 or not 0 <= given.node < given.nnodes:
        parser.error("-n and --nnodes are at least 1, and --node-rank is below --nnodes")
    if given.nnodes > 1 and not given.port:
        parser.error("several hosts need --master-port, the same on all of them")
    return given, rest


def start(given: argparse.Namespace, command: list[str], environment: dict[str, str]) -> int:
    """Run the program in all processes; the exit status of the first that failed, or 0."""
    for attempt in range(given.restarts + 1):
        status = _Round(given, command, environment, attempt).run()
        if status == 0 or status == 128 + signal.SIGINT:
            return status
        if attempt < given.restarts:
            print(f"rushlight launch: start {attempt + 2} of {given.restarts + 1}", file=sys.stderr)
    return status


class _Process:
    """One rank: its process and the last lines of its errors."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self.rank = rank
        self.process = process
        self.errors: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self.readers = [
            threading.Thread(target=self._copy, args=(process.stdout, sys.stdout, None)),
            threading.Thread(target=self._copy, args=(process.stderr, sys.stderr, self.errors)),
        ]
        for reader in self.readers:
            reader.start()

    def _copy(self, source: IO[bytes], target: IO[str], kept: Any) -> None:
        for raw in source:
            line = raw.decode("utf-8", "replace")
            if kept is not None:
                kept.append(line)
            target.write(
                f"[{self.rank}] {line}" if line.endswith("\n") else f"[{self.rank}] {line}\n"
            )
            target.flush()


class _Round:
    """One start of all processes of this host. See Note [Launching]."""

    def __init__(
        self,
        given: argparse.Namespace,
        command: list[str],
        environment: dict[str, str],
        attempt: int,
    ) -> None:
        self.given, self.command, self.environment = given, command, environment
        self.attempt = attempt
        self.size = given.count * given.nnodes
        self.processes: list[_Process] = []
        self.server: store_server.Server | None = None
        self.port = given.port
        self.stopped = 0

    def run(self) -> int:
        if self.given.ray:
            return ray_cluster.run(self.command, self._variables(), self.size)
        if self.given.mpiexec:
            words = [*shlex.split(self.given.mpiexec), "-n", str(self.size), *self.command]
            return subprocess.run(words, env=self.environment).returncode
        if self.given.node == 0:
            try:
                self.server, self.port = store_server.in_thread("", self.given.port, self.size)
            except OSError as error:
                print(
                    f"rushlight launch: port {self.given.port} cannot be used: {error}; give "
                    "another --master-port",
                    file=sys.stderr,
                )
                return 1
        with self._signals():
            try:
                for local in range(self.given.count):
                    self._start(local)
                return self._wait()
            finally:
                self._end()
                if self.server is not None:
                    self.server.end()  # a restart listens at the same port

    def _variables(self) -> dict[str, str]:
        """What other hosts' processes need of the environment."""
        threads = str(max(1, config.thread_count() // self.given.count))
        own = {
            name: value
            for name, value in self.environment.items()
            if name.startswith("RUSHLIGHT_") or name == "PYTHONPATH"
        }
        return {
            "RUSHLIGHT_THREADS": threads,
            **own,
            "TORCHELASTIC_RUN_ID": f"rushlight{os.getpid()}",
            "TORCHELASTIC_RESTART_COUNT": str(self.attempt),
        }

    def _start(self, local: int) -> None:
        given, rank = self.given, self.given.node * self.given.count + local
        environment = {
            **self.environment,
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": str(given.count),
            "GROUP_RANK": str(given.node),
            "MASTER_ADDR": given.host,
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RUN_ID": f"rushlight{os.getpid()}",
            "TORCHELASTIC_RESTART_COUNT": str(self.attempt),
            "RUSHLIGHT_STORE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        environment.setdefault(
            "RUSHLIGHT_THREADS", str(max(1, config.thread_count() // given.count))
        )
        process = subprocess.Popen(
            self.command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_die_with_parent(),
        )
        self.processes.append(_Process(rank, process))

    def _wait(self) -> int:
        """Until all have ended; after a failure, `GRACE` seconds longer at most."""
        first, until = None, float("inf")
        while any(one.process.poll() is None for one in self.processes):
            failed = [one for one in self.processes if one.process.poll()]
            if (failed or self.stopped) and first is None:
                first, until = failed[0] if failed else self.processes[0], time.monotonic() + GRACE
                if self.server is not None and failed and failed[0].process.returncode:
                    self.server.lost.append(first.rank)  # the others may wait for it to join
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        blamed = next(iter(self.server.gone), -1) if self.server is not None else -1
        self._end()
        failed = [one for one in self.processes if one.process.returncode]
        if self.stopped:
            return 128 + self.stopped
        if not failed:
            return 0
        told = next((one for one in self.processes if one.rank == blamed), first or failed[0])
        status = int(told.process.returncode or failed[0].process.returncode)
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        print(f"rushlight launch: rank {told.rank} failed first ({how})", file=sys.stderr)
        sys.stderr.writelines(told.errors)
        return 128 - status if status < 0 else status

    def _end(self) -> None:
        """End what still runs, and wait for it and for its output."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            running = [one.process for one in self.processes if one.process.poll() is None]
            for process in running:
                process.send_signal(how)
            until = time.monotonic() + 2.0
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))
        for one in self.processes:
            for reader in one.readers:
                reader.join(2.0)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and a request to end go to the children, who are then waited for."""

        def stop(number: int, frame: Any) -> None:
            self.stopped = number
            for one in self.processes:
                if one.process.poll() is None:
                    one.process.send_signal(number)

        chosen = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, stop) for number in chosen}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _die_with_parent() -> Callable[[], None] | None:
    """What a child runs before its program: on Linux it asks to be killed with its parent."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_DEATH_SIGNAL, signal.SIGKILL)

    return ask
