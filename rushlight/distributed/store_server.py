"""The server of a group's store: values by key, who is there, and MPICH's process manager.

It runs as a program of its own (`serve`), or in a thread of the launcher, on the standard library
alone. One thread waits on all connections.

# Note [Rendezvous]
1. A connection begins with one line. `watch RANK` is a member's: requests and answers are lines of
   JSON, and the server may send lines unasked. `pmi RANK` is handed to the MPI library as its
   PMI_FD: from then on it speaks PMI version 1, by which MPICH and its relatives find one another.
2. So a process that knows RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT joins by itself: there is
   no `mpiexec`, and the processes share memory as those of `mpiexec` do. MPI_Comm_connect between
   processes that were started singly would give neither shared memory nor one world.
3. A member that closes its connection without `leave` has died. All others are told its rank.
4. The server ends when its last connection has closed, or where nobody came within `PATIENCE`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from typing import Any

PATIENCE = 600.0


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
    """

    def __init__(self, listener: socket.socket, size: int) -> None:
        self.listener = listener
        self.size = size
        self.job = f"rushlight{os.getpid()}_{time.time_ns()}"  # MPI names shared memory by it
        self.values: dict[str, Any] = {}
        self.waiting: list[tuple[Connection, int, list[str]]] = []
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
                if not self.seen and time.monotonic() - began > PATIENCE:
                    break
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
        self.closed.set()

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
        elif client.kind == "watch":
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
        if what == "set":
            self.values[asked["key"]] = asked["value"]
            client.tell(id=number, value=None)
            self._wake()
        elif what == "add":
            total = int(self.values.get(asked["key"], 0)) + asked["amount"]
            self.values[asked["key"]] = total
            client.tell(id=number, value=total)
            self._wake()
        elif what == "delete":
            client.tell(id=number, value=self.values.pop(asked["key"], None) is not None)
        elif what == "has":
            client.tell(id=number, value=all(key in self.values for key in asked["keys"]))
        elif what == "count":
            client.tell(id=number, value=len(self.values))
        elif what == "get":
            self.waiting.append((client, number, asked["keys"]))
            self._wake()
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

    def _wake(self) -> None:
        """Answer those whose keys are all there."""
        still = []
        for client, number, keys in self.waiting:
            if all(key in self.values for key in keys):
                client.tell(id=number, value=[self.values[key] for key in keys])
            else:
                still.append((client, number, keys))
        self.waiting = still

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


def in_thread(host: str, port: int, size: int) -> tuple[Server, int]:
    """Serve in a daemon thread; the port comes with it."""
    listener = listen(host, port)
    server = Server(listener, size)
    threading.Thread(target=server.run, name="store", daemon=True).start()
    return server, listener.getsockname()[1]


def serve(words: list[str]) -> None:
    """The program: `store_server.py FD SIZE` serves on a listening socket that it inherited."""
    Server(socket.socket(fileno=int(words[0])), int(words[1])).run()


if __name__ == "__main__":
    serve(sys.argv[1:])
