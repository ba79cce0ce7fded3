"""The server of a group's store: values by key, who is there, and MPICH's process manager.

It runs as a program of its own (`serve`), or in a thread of the launcher, on the standard library
alone. One thread waits on all connections.

# Note [Rendezvous]
1. A connection begins with one line. `watch RANK` is a member's: requests and answers are lines of
   JSON, and the server may send lines unasked. `store -1` is a TCPStore's, which asks for values
   alone. `pmi RANK` is handed to the MPI library as its PMI_FD: from then on it speaks PMI version
   1, by which MPICH and its relatives find one another.
2. So a process that knows RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT joins by itself: there is
   no `mpiexec`, and the processes share memory as those of `mpiexec` do. MPI_Comm_connect between
   processes that were started singly would give neither shared memory nor one world.
3. A member that closes its connection without `leave` has died. All others are told its rank.
4. The server ends when its last connection has closed. Where nobody came it ends with the process
   that started it, or after `PATIENCE`.
5. MPICH names the memory that ranks of a host share by the job's name, which the server gives it.
   So at its end the server removes, on its host, what ranks left that were killed while MPI began.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import selectors
import socket
import sys
import threading
import time
from typing import Any

PATIENCE = 600.0
MEMORY = "/dev/shm"
WAITS = object()  # in place of a value that is not there yet


class Values:
    """Texts by key, and queues of them: what a request does, and its answer.

    A text stands for bytes (latin-1). The server, a HashStore and a FileStore's log use it.
    """

    CHANGES = frozenset(("set", "add", "append", "compare", "delete", "push", "pop"))
    REQUESTS = CHANGES | {"has", "count", "list", "get", "wait", "length"}

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.queues: dict[str, list[str]] = {}

    def answer(self, asked: dict[str, Any]) -> Any:
        """Do what is asked for; WAITS where keys are to come. A ValueError tells what is wrong."""
        return getattr(self, f"_{asked['do']}")(asked)

    def _set(self, asked: dict[str, Any]) -> None:
        self.held.update(zip(asked["keys"], asked["values"], strict=True))

    def _add(self, asked: dict[str, Any]) -> int:
        before = self.held.get(asked["key"], "0")
        try:
            total = int(before) + int(asked["amount"])
        except ValueError:
            raise ValueError(
                f"add: the value of {asked['key']!r} is no number: {before!r}"
            ) from None
        self.held[asked["key"]] = str(total)
        return total

    def _append(self, asked: dict[str, Any]) -> None:
        self.held[asked["key"]] = self.held.get(asked["key"], "") + asked["value"]

    def _compare(self, asked: dict[str, Any]) -> str:
        key, expected = asked["key"], asked["expected"]
        if self.held.get(key, "") == expected:
            self.held[key] = asked["value"]
        return self.held.get(key, expected)

    def _delete(self, asked: dict[str, Any]) -> bool:
        return self.held.pop(asked["key"], None) is not None

    def _has(self, asked: dict[str, Any]) -> bool:
        return all(key in self.held or self.queues.get(key) for key in asked["keys"])

    def _count(self, asked: dict[str, Any]) -> int:
        return len(self.held)

    def _list(self, asked: dict[str, Any]) -> list[str]:
        return list(self.held)

    def _get(self, asked: dict[str, Any]) -> Any:
        held = self.held
        is_there = all(key in held for key in asked["keys"])
        return [held[key] for key in asked["keys"]] if is_there else WAITS

    def _wait(self, asked: dict[str, Any]) -> Any:
        return None if self._has(asked) else WAITS

    def _push(self, asked: dict[str, Any]) -> None:
        self.queues.setdefault(asked["key"], []).append(asked["value"])

    def _pop(self, asked: dict[str, Any]) -> Any:
        queue = self.queues.get(asked["key"])
        if not queue:
            if asked["now"]:
                raise ValueError(f"the queue {asked['key']!r} is empty")
            return WAITS
        value = queue.pop(0)
        if not queue:
            del self.queues[asked["key"]]
        return value

    def _length(self, asked: dict[str, Any]) -> int:
        return len(self.queues.get(asked["key"], ()))


class Connection:
    """One client: its socket, what it sent of an unfinished line, and who it is."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.rest = b""
        self.kind = ""
        self.rank = -1
        self.left = False

    def send(self, text: str) -> None:
        """Write one line; a client that is gone is noticed by its reading end."""
        with contextlib.suppress(OSError):
            self.peer.sendall(text.encode() + b"\n")

    def tell(self, **fields: Any) -> None:
        """Write one line of JSON."""
        self.send(json.dumps(fields))


class Server:
    """A store for `size` members. See Note [Rendezvous].

    Args:
        listener (socket): A listening socket.
        size (int): How many processes the MPI world has.
        parent (int): The process without which nobody will come; 0 where it is this one.
    """

    def __init__(self, listener: socket.socket, size: int, parent: int = 0) -> None:
        self.parent = parent
        self.listener = listener
        self.size = size
        self.job = f"rushlight{os.getpid()}_{time.time_ns()}"  # MPI names shared memory by it
        self.values = Values()
        self.waiting: list[tuple[Connection, dict[str, Any]]] = []
        self.members: dict[int, Connection] = {}
        self.published: dict[str, str] = {}  # MPI's own keys
        self.fenced: list[Connection] = []
        self.gone: dict[int, str] = {}
        self.lost: list[int] = []  # ranks whose process the launcher saw fail
        self.open = 0
        self.seen = False  # a client of ours
        self.ended = False
        self.closed = threading.Event()

    def run(self) -> None:
        """Serve until the last member's connection closes, or the launcher says so."""
        with selectors.DefaultSelector() as selector:
            self.listener.setblocking(False)
            selector.register(self.listener, selectors.EVENT_READ)
            began = time.monotonic()
            while not self.ended and (self.open or not self.seen):
                for key, _ in selector.select(0.2):
                    if key.fileobj is self.listener:
                        self._accept(selector)
                    else:
                        self._read(key.data, selector)
                while self.lost:
                    self._report(self.lost.pop(0), "its process failed", -1)
                if not self.seen and (
                    time.monotonic() - began > PATIENCE
                    or (self.parent and os.getppid() != self.parent)
                ):
                    break
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
        if self.published:
            self._remove_memory()
        self.closed.set()

    def _remove_memory(self) -> None:
        """Remove what MPI shares on this host: ranks killed while it began left its name."""
        for path in glob.glob(f"{MEMORY}/mpich_*_{named_memory(self.job)}_*"):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def end(self) -> None:
        """End a server that runs in a thread; its port is free then."""
        self.ended = True
        self.closed.wait(5.0)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            peer, _ = self.listener.accept()
        except OSError:
            return
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(peer, selectors.EVENT_READ, Connection(peer))
        self.open += 1

    def _read(self, client: Connection, selector: selectors.BaseSelector) -> None:
        try:
            data = client.peer.recv(1 << 16)
        except OSError:
            data = b""
        lines = (client.rest + data).split(b"\n")
        client.rest = lines.pop()
        try:
            for line in lines:
                self._line(client, line.decode())
        except (ValueError, KeyError, TypeError):  # no client of ours; the others are served
            data = b""
        if not data:
            selector.unregister(client.peer)
            client.peer.close()
            self.open -= 1
            self._lost(client)

    def _line(self, client: Connection, line: str) -> None:
        if client.kind == "pmi":
            self._pmi(client, dict(word.partition("=")[::2] for word in line.split()))
        elif client.kind in ("watch", "store"):
            self._request(client, json.loads(line))
        else:
            client.kind, rank = line.split()
            client.rank = int(rank)
            self.seen = True
            if client.kind == "watch":
                self.members[client.rank] = client
                for rank_gone, why in self.gone.items():
                    client.tell(gone=rank_gone, why=why)

    def _lost(self, client: Connection) -> None:
        self.waiting = [entry for entry in self.waiting if entry[0] is not client]
        if client.kind == "watch":
            self.members.pop(client.rank, None)
            if not client.left:
                self._report(client.rank, "it was killed, or it crashed", client.rank)

    def _report(self, rank: int, why: str, reporter: int) -> None:
        """Tell every member but the reporter that a rank is gone, once."""
        if rank in self.gone:
            return
        self.gone[rank] = why
        for member in list(self.members.values()):
            if member.rank != reporter:
                member.tell(gone=rank, why=why)

    # ---- requests of members ----

    def _request(self, client: Connection, asked: dict[str, Any]) -> None:
        number, what = asked["id"], asked["do"]
        if what in Values.REQUESTS:
            self._value(client, asked)
        elif what == "forget":  # a request that its client gave up
            self.waiting = [
                (one, kept)
                for one, kept in self.waiting
                if one is not client or kept["id"] != asked["number"]
            ]
        elif client.kind != "watch":
            raise ValueError(f"a request of members: {what}")
        elif what == "failed":
            client.left = True
            self._report(asked["rank"], asked["why"], client.rank)
            client.tell(id=number, value=None)
        elif what == "leave":
            client.left = True
            for member in list(self.members.values()):
                member.tell(left=client.rank, done=asked["done"])
            client.tell(id=number, value=None)
        elif what == "where":
            for member in list(self.members.values()):
                question = {word: asked[word] for word in ("group", "number", "question")}
                member.tell(asks=client.rank, **question)
        elif what == "here":
            asker = self.members.get(asked["asker"])
            if asker is not None:
                answer = {word: asked[word] for word in ("question", "text", "mark")}
                asker.tell(place=client.rank, **answer)

    def _value(self, client: Connection, asked: dict[str, Any]) -> None:
        """Answer a request for values, now or when its keys are there."""
        try:
            found = self.values.answer(asked)
        except ValueError as error:
            client.tell(id=asked["id"], error=str(error))
            return
        if found is WAITS:
            self.waiting.append((client, asked))
            return
        client.tell(id=asked["id"], value=found)
        if asked["do"] in Values.CHANGES and self.waiting:
            waiting, self.waiting = self.waiting, []
            for one, kept in waiting:
                self._value(one, kept)

    # ---- MPI's process manager ----

    def _pmi(self, client: Connection, said: dict[str, str]) -> None:
        command = said.get("cmd", "")
        if command == "init":
            client.send("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
        elif command == "get_maxes":
            client.send("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0")
        elif command == "get_appnum":
            client.send("cmd=appnum appnum=0 rc=0")
        elif command == "get_my_kvsname":
            client.send(f"cmd=my_kvsname kvsname={self.job} rc=0")
        elif command == "get_universe_size":
            client.send(f"cmd=universe_size size={self.size} rc=0")
        elif command == "put":
            self.published[said["key"]] = said["value"]
            client.send("cmd=put_result rc=0 msg=success")
        elif command == "get":
            found = self.published.get(said["key"])
            answer = "rc=-1 msg=unknown value=unknown" if found is None else f"rc=0 value={found}"
            client.send(f"cmd=get_result {answer}")
        elif command == "barrier_in":
            self.fenced.append(client)
            if len(self.fenced) == self.size:
                for member in self.fenced:
                    member.send("cmd=barrier_out rc=0")
                self.fenced = []
        elif command == "finalize":
            client.send("cmd=finalize_ack rc=0")


def named_memory(job: str) -> str:
    """What MPICH puts into the names of a job's shared memory: FNV-1a of the job's name."""
    word = 0x811C9DC5
    for byte in job.encode():
        word = (word ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{word:x}"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(4096)
    except OSError:
        listener.close()
        raise
    return listener


def in_thread(host: str, port: int, size: int, descriptor: int | None = None) -> tuple[Server, int]:
    """Serve in a daemon thread, on the listening socket if one is given; the port comes with it."""
    listener = listen(host, port) if descriptor is None else socket.socket(fileno=descriptor)
    server = Server(listener, size)
    threading.Thread(target=server.run, name="store", daemon=True).start()
    return server, listener.getsockname()[1]


def serve(words: list[str]) -> None:
    """The program: `store_server.py FD SIZE PARENT` serves on a listening socket it inherited."""
    descriptor, size, parent = map(int, words)
    Server(socket.socket(fileno=descriptor), size, parent).run()


if __name__ == "__main__":
    serve(sys.argv[1:])
