"""PyTorch's `torch.distributed.rendezvous`: the store, the rank and the size by an address."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rushlight.distributed.process_groups import default_pg_timeout
from rushlight.distributed.stores import FileStore, Store, TCPStore

Found = Iterator[tuple[Store, int, int]]

_HANDLERS: dict[str, Callable[..., Found]] = {}


def register_rendezvous_handler(scheme: str, handler: Callable[..., Found]) -> None:
    """Answer addresses of a scheme.

    Args:
        scheme (str): What stands before "://".
        handler (callable): Called with the address; an iterator of store, rank and size.
    """
    if scheme in _HANDLERS:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _HANDLERS[scheme] = handler


def rendezvous(url: str | bytes, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Found:
    """The store, the rank and the size that an address tells.

    Args:
        url (str): "env://", "tcp://host:port" or "file:///path"; rank and world_size may follow
            after "?".
        rank (int): This process; -1 where the address tells it.
        world_size (int): How many processes; -1 where the address tells it.
    """
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    address = url.decode() if isinstance(url, bytes) else url
    parts = urlsplit(address)
    if parts.scheme not in _HANDLERS:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    told = parse_qs(parts.query)
    for name, number in (("rank", rank), ("world_size", world_size)):
        if number != -1:
            told[name] = [str(number)]
    query = "&".join(f"{name}={values[0]}" for name, values in told.items())
    return _HANDLERS[parts.scheme](parts._replace(query=query).geturl(), **kwargs)


def _number(url: str, name: str, otherwise: str = "") -> int:
    """A number of the address, or of the environment."""
    told = parse_qs(urlsplit(url).query).get(name, [os.environ.get(otherwise, "")])[0]
    if not told:
        raise ValueError(
            f"Error initializing torch.distributed using {url}: {name} is missing"
            f"{f', and {otherwise} is not set' if otherwise else ''}"
        )
    return int(told)


def _by_file(url: str, timeout: timedelta = default_pg_timeout, **named: Any) -> Found:
    path = urlsplit(url).path
    if not path:
        raise ValueError(f"Error initializing torch.distributed using {url}: the path is missing")
    rank, size = _number(url, "rank"), _number(url, "world_size")
    yield FileStore(path, size), rank, size
    raise RuntimeError("Unable to perform rerendezvous using file:// method")


def _by_address(url: str, timeout: timedelta = default_pg_timeout, **named: Any) -> Found:
    parts = urlsplit(url)
    if not parts.hostname or not parts.port:
        raise ValueError(f"Error initializing torch.distributed using {url}: host:port is missing")
    rank, size = _number(url, "rank"), _number(url, "world_size")
    yield TCPStore(parts.hostname, parts.port, size, rank == 0, timeout), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def _by_environment(url: str, timeout: timedelta = default_pg_timeout, **named: Any) -> Found:
    rank, size = _number(url, "rank", "RANK"), _number(url, "world_size", "WORLD_SIZE")
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        raise ValueError(
            f"Error initializing torch.distributed using {url}: MASTER_ADDR or MASTER_PORT is not "
            "set"
        )
    yield TCPStore(host, int(port), size, rank == 0, timeout), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


register_rendezvous_handler("tcp", _by_address)
register_rendezvous_handler("env", _by_environment)
register_rendezvous_handler("file", _by_file)
