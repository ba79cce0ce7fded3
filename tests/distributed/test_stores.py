"""Stores: PyTorch's answers from all of them, and joining by one."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rushlight.distributed as dist
from rushlight.distributed import store_server
from tests.distributed.conftest import PROGRAMS, environment
from tests.time_limit import time_limit as time_limit

_SHORT = timedelta(seconds=0.2)
_KINDS = ["hash", "file", "tcp", "prefix"]


def _made(kind: str, folder: Path) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "hash": dist.HashStore,
        "file": lambda: dist.FileStore(str(folder / "store"), 1),
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
        "prefix": lambda: dist.PrefixStore("a", dist.PrefixStore("b", dist.HashStore())),
    }
    return makers[kind]()


@pytest.fixture(params=_KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = _made(request.param, tmp_path)
    assert made.timeout == timedelta(seconds=300)
    made.set_timeout(_SHORT)
    yield made


def test_values(store: Any) -> None:
    store.set("a", "1")
    store.set("b", b"\xff\x00\n")
    assert (store.get("a"), store.get("b")) == (b"1", b"\xff\x00\n")
    assert (store.add("c", 5), store.add("c", -2), store.get("c"), store.add("a", 2)) == (
        5,
        3,
        b"3",
        3,
    )
    assert store.num_keys() == 3 and sorted(store.list_keys()) == ["a", "b", "c"]
    assert store.check(["a", "c"]) and not store.check(["a", "z"]) and store.check([])
    assert store.delete_key("a") and not store.delete_key("a")
    store.append("b", "x")
    store.append("new", "y")
    assert store.multi_get(["b", "new"]) == [b"\xff\x00\nx", b"y"]
    store.multi_set(["m", "n"], ["1", "2"])
    store.wait(["m", "n"])
    assert store.get("n") == b"2"


def test_compare_set(store: Any) -> None:
    assert store.compare_set("k", "old", "new") == b"old" and not store.check(["k"])
    assert store.compare_set("k", "", "new") == b"new"
    assert store.compare_set("k", "new", "newer") == b"newer"
    assert store.compare_set("k", "bad", "never") == b"newer"


def test_queues(store: Any) -> None:
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.queue_len("q") == 2
    assert (store.queue_pop("q"), store.queue_pop("q")) == (b"1", b"2")
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("q", False)
    with pytest.raises(dist.DistStoreError, match=r"0\.2 s"):
        store.queue_pop("q")


def test_what_does_not_come_is_told(store: Any) -> None:
    began = time.monotonic()
    with pytest.raises(dist.DistStoreError, match=r"zz.*0\.2 s|0\.2 s.*zz"):
        store.get("zz")
    with pytest.raises(dist.DistStoreError, match="zz"):
        store.wait(["zz"], timedelta(seconds=0.1))
    assert time.monotonic() - began < 10
    store.set("zz", "late")  # the request that was given up does not answer the next one
    assert store.get("zz") == b"late"


def test_bad_arguments(store: Any) -> None:
    store.set("word", "no number")
    with pytest.raises(ValueError, match="'no number'"):
        store.add("word", 1)
    with pytest.raises(TypeError, match="int"):
        store.set("a", 3)
    with pytest.raises(TypeError, match="int"):
        store.set(3, "a")
    with pytest.raises(TypeError, match="list of keys"):
        store.wait("word")
    assert store.get("word") == b"no number"  # the store goes on


def test_a_thread_waits_for_another(store: Any) -> None:
    store.set_timeout(timedelta(seconds=60))
    threading.Timer(0.2, store.set, ("late", "there")).start()
    store.wait(["late"])
    threads = [threading.Thread(target=store.add, args=("sum", 1)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("sum") == b"8"
    others = [threading.Thread(target=store.barrier, args=("all", 3)) for _ in range(2)]
    for thread in others:
        thread.start()
    store.barrier("all", 3, timedelta(seconds=60))
    for thread in others:
        thread.join()


def test_a_store_of_the_users() -> None:
    class Own(dist.Store):
        def __init__(self) -> None:
            super().__init__()
            self.held: dict[str, Any] = {}

        def set(self, key: str, value: Any) -> None:
            self.held[key] = value

    own = Own()
    dist.PrefixStore("p", own).set("a", "1")
    assert own.held == {"p/a": "1"}
    with pytest.raises(NotImplementedError, match="Own does not have: add"):
        own.add("a", 1)


def test_clients_of_a_tcp_store() -> None:
    master = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", master.port, 2)
    sent = pickle.loads(pickle.dumps(client.clone()))
    sent.set("a", b"\xfe")
    assert master.get("a") == client.get("a") == b"\xfe"
    again = dist.TCPStore(
        "127.0.0.1", master.port, is_master=True, wait_for_workers=False, multi_tenant=True
    )
    assert again.get("a") == b"\xfe"
    with pytest.raises(dist.DistNetworkError, match=f"port {master.port}: .* choose another"):
        dist.TCPStore("127.0.0.1", master.port, is_master=True)
    port = master.port
    del master, client, sent, again  # the last one takes the server with it
    gc.collect()
    until = time.monotonic() + 20
    while True:
        try:
            store_server.listen("", port).close()
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_clients_that_do_not_come_are_told() -> None:
    with pytest.raises(dist.DistStoreError, match=r"1 of 2 clients came within 0\.3 s"):
        dist.TCPStore("127.0.0.1", 0, 2, True, timedelta(seconds=0.3))
    with pytest.raises(dist.DistNetworkError, match="no store at 127"):
        dist.TCPStore("127.0.0.1", 1, 2, False, timedelta(seconds=0.3))


def test_a_file_goes_with_its_last_process(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first, second = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
    first.set("a", "1")
    assert second.get("a") == b"1"
    del first
    gc.collect()
    assert path.exists() and second.get("a") == b"1"
    del second
    gc.collect()
    assert not path.exists()


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_processes_join_by_a_store(kind: str, tmp_path: Path) -> None:
    if kind == "tcp":
        held = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        where = str(held.port)
    else:
        where = str(tmp_path / "store")
    running = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "join_by_store.py"), kind, where, str(rank)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    told = [process.communicate(timeout=120)[0] for process in running]
    assert told == ["rank 0 of 2: 3.0 3.0\n", "rank 1 of 2: 3.0 3.0\n"]
    assert not (tmp_path / "store").exists()


def test_joining_by_a_store_needs_the_rank() -> None:
    with pytest.raises(ValueError, match="rank=-1"):
        dist.init_process_group("gloo", store=dist.HashStore(), world_size=2)
