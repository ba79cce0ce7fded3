"""Values by key that processes share: PyTorch's stores.

# Note [Stores]
1. A store is one function, `_ask`: it does a request of `Values`, and waits where keys are to come.
   `TCPStore` sends the request to a server, `HashStore` keeps the values, and `FileStore` writes
   the request to a log that every process repeats.
2. `PrefixStore` calls the public methods of the store below, so a class of the user's will do.
"""

from __future__ import annotations

import contextlib
import json
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from rushlight.distributed import store_server
from rushlight.distributed.errors import DistributedError, QueueEmptyError
from rushlight.distributed.store import Client, Watch
from rushlight.distributed.store_server import WAITS, Server, Values

_TIMEOUT = timedelta(seconds=300)
_LOOK = 0.005  # seconds between looks at a file
_COUNT = "init/"  # of a TCPStore's clients


def _text(value: str | bytes) -> str:
    """A text of any bytes."""
    if isinstance(value, str):
        value = value.encode()
    elif not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"store: a value is text or bytes, got {type(value).__name__}")
    return value.decode("latin-1")


def _key(key: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"store: a key is text, got {type(key).__name__}")
    return key


def _keys(keys: Sequence[str]) -> list[str]:
    if isinstance(keys, str):
        raise TypeError("store: a list of keys is expected, got one text")
    return [_key(key) for key in keys]


def _seconds(timeout: timedelta | float) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


class Store:
    """Values by key. See Note [Stores]; a class of one's own defines the methods that it has."""

    _timeout: timedelta = _TIMEOUT

    def _ask(self, seconds: float, **asked: Any) -> Any:
        """Do a request, within some seconds."""
        raise NotImplementedError(f"{type(self).__name__} does not have: {asked['do']}")

    def _now(self, **asked: Any) -> Any:
        return self._ask(self._timeout.total_seconds(), **asked)

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long `get` and `wait` wait."""
        self._timeout = timedelta(seconds=_seconds(timeout))

    def set(self, key: str, value: str | bytes) -> None:
        """Store a value."""
        self._now(do="set", keys=[_key(key)], values=[_text(value)])

    def get(self, key: str) -> bytes:
        """The value of a key, which may still come."""
        found: str = self._now(do="get", keys=[_key(key)])[0]
        return found.encode("latin-1")

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Store several values at once."""
        if len(keys) != len(values):
            raise ValueError(f"multi_set: {len(keys)} keys and {len(values)} values")
        self._now(do="set", keys=_keys(keys), values=[_text(value) for value in values])

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, which may still come."""
        return [value.encode("latin-1") for value in self._now(do="get", keys=_keys(keys))]

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which begins at 0; the sum."""
        found: int = self._now(do="add", key=_key(key), amount=int(amount))
        return found

    def append(self, key: str, value: str | bytes) -> None:
        """Add to the end of a value."""
        self._now(do="append", key=_key(key), value=_text(value))

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Exchange a value if it is the expected one, "" for one that is not there.

        Args:
            key (str): The key.
            expected_value (str): What is there.
            desired_value (str): What will be.
        """
        expected, value = _text(expected_value), _text(desired_value)
        found: str = self._now(do="compare", key=_key(key), expected=expected, value=value)
        return found.encode("latin-1")

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there."""
        seconds = _seconds(self._timeout if timeout is None else timeout)
        self._ask(seconds, do="wait", keys=_keys(keys))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there."""
        return bool(self._now(do="has", keys=_keys(keys)))

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return bool(self._now(do="delete", key=_key(key)))

    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._now(do="count"))

    def list_keys(self) -> list[str]:
        """All keys."""
        found: list[str] = self._now(do="list")
        return found

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value at the end of a queue."""
        self._now(do="push", key=_key(key), value=_text(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of a queue, which may still come.

        Args:
            key (str): The queue's name.
            block (bool): Whether to wait for it; else QueueEmptyError tells that there is none.
        """
        try:
            found: str = self._ask(
                self._timeout.total_seconds(),
                do="pop",
                key=_key(key),
                now=not block,
            )
        except ValueError:
            raise QueueEmptyError(f"queue_pop: {key!r} is empty") from None
        return found.encode("latin-1")

    def queue_len(self, key: str) -> int:
        """How many values a queue has."""
        return int(self._now(do="length", key=_key(key)))

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Wait until as many have come here as `world_size` tells."""
        if self.add(f"{key}/count", 1) >= world_size:
            self.set(f"{key}/all", "1")
        self.wait([f"{key}/all"], timeout)

    def has_extended_api(self) -> bool:
        """Whether there are `append`, `multi_get`, `multi_set` and queues: True."""
        return True

    def clone(self) -> Store:
        """A store of the same values, for another thread."""
        return self


class WorldStore(Store):
    """The store of the world: a rank that is gone ends its waits.

    Args:
        watch (Watch): The member's connection.
        prefix (str): Put before every key.
        seconds (float): How long `get` and `wait` wait.
    """

    def __init__(self, watch: Watch, prefix: str = "", seconds: float = 300.0) -> None:
        self._watch = watch
        self._prefix = prefix
        self._timeout = timedelta(seconds=seconds)

    def _ask(self, seconds: float, **asked: Any) -> Any:
        if "key" in asked:
            asked["key"] = self._prefix + asked["key"]
        if "keys" in asked:
            asked["keys"] = [self._prefix + key for key in asked["keys"]]
        return self._watch.ask(seconds, **asked)


_SERVERS: weakref.WeakValueDictionary[int, Server] = weakref.WeakValueDictionary()


class TCPStore(Store):
    """A store that one process serves, for all that know its address.

    The server is a thread of the master's process; it ends when all of its clients have gone.

    Args:
        host_name (str): The server's host.
        port (int): Its port; 0 lets the master choose, and `port` tells which.
        world_size (int): How many clients the master waits for.
        is_master (bool): Whether this process has the server.
        timeout (timedelta): For the server and the clients to come, and for `get` and `wait`.
        wait_for_workers (bool): Whether the master waits for the clients.
        multi_tenant (bool): Whether masters of one process and port share a server.
        master_listen_fd (int): A listening socket to serve on.
        use_libuv (bool): Has no effect.
    """

    libuvBackend = False

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = _TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        self.host, self.port = host_name, port
        self._timeout = timedelta(seconds=_seconds(timeout))
        if is_master:
            shared = _SERVERS.get(port) if multi_tenant else None
            if shared is None or shared.closed.is_set():
                self.port = self._serve(port, master_listen_fd)
        self._client = Client(host_name, self.port, "store -1", self._timeout.total_seconds())
        weakref.finalize(self, self._client.close)
        if wait_for_workers and (world_size or 0) > 0:
            self._wait_for(world_size or 0, is_master)

    def _serve(self, port: int, descriptor: int | None) -> int:
        try:
            server, made = store_server.in_thread("", port, 0, descriptor)
        except OSError as error:
            raise DistributedError(
                f"TCPStore: cannot listen at port {port}: {error}. Another program has it; choose "
                "another, or 0 for a free one"
            ) from None
        _SERVERS[made] = server
        return made

    def _wait_for(self, count: int, is_master: bool) -> None:
        come = self.add(_COUNT, 1)
        until = monotonic() + self._timeout.total_seconds()
        while is_master and come < count:
            if monotonic() > until:
                raise DistributedError(
                    f"TCPStore: {come} of {count} clients came within "
                    f"{self._timeout.total_seconds():g} s"
                )
            sleep(_LOOK)
            come = self.add(_COUNT, 0)

    def _ask(self, seconds: float, **asked: Any) -> Any:
        return self._client.ask(seconds, **asked)

    def clone(self) -> TCPStore:
        """Another connection to the same server."""
        return TCPStore(self.host, self.port, timeout=self._timeout, wait_for_workers=False)

    def __repr__(self) -> str:
        return f"TCPStore({self.host!r}, {self.port})"

    def __reduce__(self) -> Any:
        return _connected, (self.host, self.port, self._timeout)


def _connected(host: str, port: int, timeout: timedelta) -> TCPStore:
    """A client, in the process that a store was sent to."""
    return TCPStore(host, port, timeout=timeout, wait_for_workers=False)


class HashStore(Store):
    """A store of one process, for its threads."""

    def __init__(self) -> None:
        self._values = Values()
        self._changed = threading.Condition()

    def _ask(self, seconds: float, **asked: Any) -> Any:
        with self._changed:
            found = _until(lambda: self._values.answer(asked), seconds, asked, self._changed.wait)
            self._changed.notify_all()
            return found


def _until(
    act: Callable[[], Any], seconds: float, asked: dict[str, Any], pause: Callable[[float], Any]
) -> Any:
    """Ask again and again, until what is waited for is there."""
    until = monotonic() + seconds
    while (found := act()) is WAITS:
        left = until - monotonic()
        if left <= 0:
            what = asked.get("keys") or asked.get("key")
            raise DistributedError(f"store: no {what} within {seconds:g} s")
        pause(left)
    return found


class FileStore(Store):
    """A store in a file that all processes can write: the requests, one in a line.

    Args:
        file_name (str): The file; one that is left from an earlier run has that run's values.
        world_size (int): How many processes use it; the last one to end removes it.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self.path = str(file_name)
        self._log = _Log(Path(self.path))
        weakref.finalize(self, self._log.leave, world_size)

    def _ask(self, seconds: float, **asked: Any) -> Any:
        return _until(
            lambda: self._log.answer(asked), seconds, asked, lambda left: sleep(min(left, _LOOK))
        )


class _Log:
    """A file of requests, and the values that they make."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = Values()
        self.left = 0  # processes that have ended
        self.read = 0  # bytes
        self.lock = threading.Lock()
        self.path.touch()

    def answer(self, asked: dict[str, Any]) -> Any:
        """Do a request after those of the others."""
        with self._own() as file:
            found = self.values.answer(asked)
            if found is not WAITS and asked["do"] in Values.CHANGES:
                self._write(file, asked)
            return found

    @contextlib.contextmanager
    def _own(self) -> Iterator[Any]:
        """The file, which no other process reads or writes meanwhile, after its requests."""
        import fcntl  # which Windows lacks

        with self.lock, open(self.path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._repeat(file)
            yield file

    def _repeat(self, file: Any) -> None:
        file.seek(self.read)
        for line in file.read().split(b"\n")[:-1]:  # the last one may be cut: its writer died
            self.read += len(line) + 1
            asked = json.loads(line)
            if asked["do"] == "leave":
                self.left += 1
            else:
                self.values.answer(asked)

    def _write(self, file: Any, asked: dict[str, Any]) -> None:
        line = json.dumps(asked).encode() + b"\n"
        file.truncate(self.read)
        file.seek(self.read)
        file.write(line)
        self.read += len(line)

    def leave(self, count: int) -> None:
        """At the end of this process's use; the last of `count` removes the file."""
        if count < 1 or not self.path.exists():
            return
        with self._own() as file:
            self._write(file, {"do": "leave"})
            self.left += 1
            if self.left >= count:
                self.path.unlink(missing_ok=True)


class PrefixStore(Store):
    """A store whose keys begin with a prefix.

    Args:
        prefix (str): Put before every key, with a slash.
        store (Store): The store below.
    """

    def __init__(self, prefix: str, store: Store) -> None:
        self._prefix = f"{prefix}/"
        self.underlying_store = store

    def _key(self, key: str) -> str:
        return self._prefix + _key(key)

    def _all(self, keys: Sequence[str]) -> list[str]:
        return [self._prefix + key for key in _keys(keys)]

    @property
    def timeout(self) -> timedelta:
        """That of the store below."""
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Change that of the store below."""
        self.underlying_store.set_timeout(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        """Store a value."""
        self.underlying_store.set(self._key(key), value)

    def get(self, key: str) -> bytes:
        """The value of a key, which may still come."""
        return self.underlying_store.get(self._key(key))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Store several values at once."""
        self.underlying_store.multi_set(self._all(keys), values)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, which may still come."""
        return self.underlying_store.multi_get(self._all(keys))

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which begins at 0; the sum."""
        return self.underlying_store.add(self._key(key), amount)

    def append(self, key: str, value: str | bytes) -> None:
        """Add to the end of a value."""
        self.underlying_store.append(self._key(key), value)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Exchange a value if it is the expected one, "" for one that is not there."""
        return self.underlying_store.compare_set(self._key(key), expected_value, desired_value)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there."""
        given = () if timeout is None else (timeout,)
        self.underlying_store.wait(self._all(keys), *given)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there."""
        return self.underlying_store.check(self._all(keys))

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return self.underlying_store.delete_key(self._key(key))

    def num_keys(self) -> int:
        """How many keys the store below has."""
        return self.underlying_store.num_keys()

    def list_keys(self) -> list[str]:
        """The keys with this prefix, without it."""
        found, start = self.underlying_store.list_keys(), self._prefix
        return [key.removeprefix(start) for key in found if key.startswith(start)]

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value at the end of a queue."""
        self.underlying_store.queue_push(self._key(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of a queue, which may still come."""
        return self.underlying_store.queue_pop(self._key(key), block)

    def queue_len(self, key: str) -> int:
        """How many values a queue has."""
        return self.underlying_store.queue_len(self._key(key))

    def has_extended_api(self) -> bool:
        """Whether the store below has more than the plain methods."""
        return self.underlying_store.has_extended_api()

    def clone(self) -> PrefixStore:
        """The same over a clone of the store below."""
        return PrefixStore(self._prefix[:-1], self.underlying_store.clone())
