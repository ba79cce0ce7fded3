"""A client's side of the store: requests and answers, and word of ranks that are gone.

# Note [Watch]
1. A daemon thread reads the connection: answers to requests, ranks that died, raised or left, and
   questions of others where this rank is, which it answers although the main thread hangs.
2. `trouble` is None until a rank is gone. Whoever waits for others reads it in its loop.
3. A rank that leaves in peace tells how many calls it made of each group. That is trouble for a
   call that it has not made.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight.distributed import store_server
from rushlight.distributed.errors import DistributedError

_GRACE = 0.5  # seconds for an answer after trouble


RAISED = -2  # in place of the mark of a call that raised on that rank alone


class Where(NamedTuple):
    """Where a rank is: the call it makes, and the mark of the one that was asked for."""

    text: str = "it is in no collective"
    mark: int = -1  # it did not make that call, or long ago


class Client:
    """A connection to the server: a daemon thread reads it, and any thread may ask.

    Args:
        host (str): The server's host.
        port (int): Its port.
        greeting (str): The line by which the server knows what the client is.
        timeout (float): Seconds for the server to come.
    """

    def __init__(self, host: str, port: int, greeting: str, timeout: float) -> None:
        self.address = host, port
        self.trouble: tuple[int, str] | None = None
        self._asked: set[int] = set()
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._next = 0
        self._closed = False
        self.peer = connect(host, port, timeout)
        self.peer.sendall(f"{greeting}\n".encode())
        threading.Thread(target=self._read, name="store", daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self.peer.makefile("r"):
                self._take(json.loads(line))
        except (OSError, ValueError, DistributedError):  # an answer finds it closed, too
            pass
        with self._changed:
            if not self._closed and self.trouble is None:
                self.trouble = -1, "the store's process, or the launcher, ended"
            self._closed = True
            self._changed.notify_all()

    def _take(self, told: dict[str, Any]) -> None:
        """What the server sent."""
        with self._changed:
            if told["id"] in self._asked:  # not a request that was given up
                self._answers[told["id"]] = told
            self._changed.notify_all()

    def _send(self, answered: bool = False, **asked: Any) -> int:
        with self._sending:
            self._next += 1
            line = json.dumps({"id": self._next, **asked})
            if answered:
                self._asked.add(self._next)
            try:
                self.peer.sendall(line.encode() + b"\n")
            except OSError:
                raise DistributedError("distributed: the store's process ended") from None
            return self._next

    def ask(self, timeout: float, **asked: Any) -> Any:
        """One request and its answer; trouble and `timeout` end the wait."""
        number = self._send(True, **asked)
        try:
            with self._changed:
                came = self._changed.wait_for(
                    lambda: number in self._answers or self._closed or self.trouble is not None,
                    timeout,
                )
                if self.trouble is not None:  # what is there is still told
                    self._changed.wait_for(lambda: number in self._answers or self._closed, _GRACE)
                if number in self._answers:
                    return _value(self._answers.pop(number))
        finally:
            self._asked.discard(number)
        what = " ".join(str(asked[word]) for word in ("do", "key", "keys") if word in asked)
        if not came:
            self._send(do="forget", number=number)
            raise DistributedError(f"distributed: no answer within {timeout:g} s to: {what}")
        rank, why = self.trouble or (-1, "the store's process ended")
        gone = f"rank {rank} is gone" if rank >= 0 else "the store is gone"
        raise DistributedError(f"{gone} while waiting for {what}: {why}", rank)

    def close(self) -> None:
        """End the connection."""
        self._closed = True
        with contextlib.suppress(OSError):
            self.peer.shutdown(socket.SHUT_RDWR)  # its reader holds it open
        self.peer.close()


def _value(told: dict[str, Any]) -> Any:
    if "error" in told:
        raise ValueError(told["error"])
    return told["value"]


class Watch(Client):
    """A member's connection to the server. See Note [Watch]."""

    def __init__(self, host: str, port: int, rank: int, timeout: float) -> None:
        self.rank = rank
        self.left: dict[int, dict[str, int]] = {}
        self.place: Callable[[str, int], Where] = lambda group, number: Where()
        self._places: dict[int, Where] = {}
        self._question = 0  # which `_places` answers
        super().__init__(host, port, f"watch {rank}", timeout)

    def _take(self, told: dict[str, Any]) -> None:
        if "asks" in told:
            text, mark = self.place(told["group"], told["number"])
            asked = told["question"]
            self._send(do="here", asker=told["asks"], question=asked, text=text, mark=mark)
            return
        if "id" in told:
            super()._take(told)
            return
        with self._changed:
            if "gone" in told:
                self.trouble = self.trouble or (told["gone"], told["why"])
            elif "left" in told:
                self.left[told["left"]] = told["done"]
            elif told["question"] == self._question:  # not one that was given up
                self._places[told["place"]] = Where(told["text"], told["mark"])
            self._changed.notify_all()

    def places(
        self, ranks: Sequence[int], group: str, number: int, patience: float = 2.0
    ) -> dict[int, Where]:
        """Which call with this number of a group each rank made, or else where it is.

        Silent ranks are missing.
        """
        with self._changed:
            self._places.clear()
            self._question += 1
            question = self._question
        self._send(do="where", group=group, number=number, question=question)
        with self._changed:
            self._changed.wait_for(lambda: all(r in self._places for r in ranks), patience)
            return dict(self._places)

    def fail(self, why: str, rank: int) -> None:
        """Tell all others that this rank raised, and which rank is to blame."""
        if not self._closed:
            self.ask(2.0, do="failed", why=why, rank=rank)

    def leave(self, done: dict[str, int], others: Sequence[int], patience: float) -> bool:
        """Tell that this rank is done; whether all others did so within `patience` seconds."""
        if self._closed or self.trouble is not None:
            return False
        self._send(do="leave", done=done)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closed or self.trouble is not None or all(r in self.left for r in others)
                ),
                patience,
            )
            return self.trouble is None and all(r in self.left for r in others)


def connect(host: str, port: int, timeout: float) -> socket.socket:
    """A connection to the server, which may not be there yet."""
    until = time.monotonic() + timeout
    while True:
        try:
            peer = socket.create_connection((host, port), 5.0)
        except OSError as error:
            if time.monotonic() > until:
                raise DistributedError(
                    f"distributed: no store at {host}:{port} within {timeout:g} s ({error}). Rank "
                    "0 holds it: is rank 0 running, and are MASTER_ADDR and MASTER_PORT its own?"
                ) from None
            time.sleep(0.02)
            continue
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer


def start_server(size: int, port: int) -> int:
    """Start the store as a program of its own; its port."""
    try:
        listener = store_server.listen("", port)
    except OSError as error:
        raise DistributedError(
            f"distributed: rank 0 cannot listen at port {port}: {error}. Another program has it; "
            "set MASTER_PORT to a free port, the same for all ranks"
        ) from None
    with listener:
        os.set_inheritable(listener.fileno(), True)
        words = [str(listener.fileno()), str(size), str(os.getpid())]
        subprocess.Popen(
            [sys.executable, "-S", "-E", store_server.__file__, *words],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        found: int = listener.getsockname()[1]
        return found
