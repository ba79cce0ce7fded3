"""The kernel cache: code is read only from safe folders, and only if it belongs to its key."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from rushlight.core.config import cache_folder
from rushlight.core.errors import RushlightWarning
from rushlight.devices.shared import cache
from tests.time_limit import WAIT

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid"), reason="permissions are not told by modes here"
)
KEY, OTHER = "a" * 64, "b" * 64


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As in a process that has not checked any folder yet, and has not warned."""
    monkeypatch.setattr(cache, "_folders", {})
    monkeypatch.setattr(cache, "_said", set())


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("RUSHLIGHT_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def entry(base: Path, key: str = KEY) -> Path:
    return base / "cpu" / f"{key}.kernel"


def test_there_and_back_in_a_private_folder(base):
    assert cache.read_object("cpu", KEY) is None
    cache.write_object("cpu", KEY, b"code")
    assert cache.read_object("cpu", KEY) == b"code"
    assert cache.read_object("cuda", KEY) is None
    for folder in (base, base / "cpu"):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert entry(base).stat().st_mode & 0o777 == 0o600


def test_another_kernels_object_under_a_key_is_refused(base):
    cache.write_object("cpu", KEY, b"code")
    cache.write_object("cpu", OTHER, b"other")
    os.replace(entry(base, OTHER), entry(base))
    with pytest.warns(RushlightWarning, match="damaged"):
        assert cache.read_object("cpu", KEY) is None
    cache.write_object("cuda", KEY, b"binary")
    os.replace(base / "cuda" / f"{KEY}.kernel", entry(base))  # nor another device's
    assert cache.read_object("cpu", KEY) is None


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "more", "zeros"])
def test_a_damaged_entry_is_said_once_and_replaced(base, damage):
    cache.write_object("cpu", KEY, b"code" * 100)
    whole = entry(base).read_bytes()
    for place in range(0, len(whole), 7) if damage == "flip" else [0]:
        broken = {
            "flip": whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :],
            "cut": whole[:-1],
            "empty": b"",
            "more": whole + b"x",
            "zeros": bytes(len(whole)),
        }[damage]
        entry(base).write_bytes(broken)
        cache._said.clear()
        with pytest.warns(RushlightWarning, match="built again"):
            assert cache.read_object("cpu", KEY) is None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert cache.read_object("cpu", KEY) is None
    cache.write_object("cpu", KEY, b"code" * 100)
    assert cache.read_object("cpu", KEY) == b"code" * 100


def put_fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def put_folder(path: Path) -> None:
    path.mkdir()


def put_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def put_link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_bytes(cache._header(KEY) + cache._digest("cpu", KEY, b"code") + b"code")
    path.symlink_to(elsewhere)


def put_writable(path: Path) -> None:
    path.write_bytes(cache._header(KEY) + cache._digest("cpu", KEY, b"code") + b"code")
    path.chmod(0o620)


@pytest.mark.parametrize("put", [put_fifo, put_folder, put_socket, put_link, put_writable])
def test_what_is_no_private_file_is_not_read(base, put):
    assert cache.read_object("cpu", KEY) is None  # makes the folder
    put(entry(base))
    found = []

    def read() -> None:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            found.append(cache.read_object("cpu", KEY))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(WAIT)
    assert found == [None]  # and it did not block
    assert cache._said == {"entry"}
    cache.write_object("cpu", KEY, b"code")
    assert (cache.read_object("cpu", KEY) == b"code") == (put is not put_folder)
    assert not list((base / "cpu").glob("*.part"))


def test_an_entry_of_another_user_is_not_read(base, monkeypatch):
    cache.write_object("cpu", KEY, b"code")
    theirs = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: theirs)
    with pytest.warns(RushlightWarning, match="only this user"):
        assert cache.read_object("cpu", KEY) is None


@pytest.mark.parametrize("which", ["base", "device", "link", "device link", "owner"])
def test_a_folder_others_may_write_to_is_not_used(base, which, monkeypatch):
    cache.write_object("cpu", KEY, b"code")
    cache._folders.clear()
    if which == "base":
        base.chmod(0o770)
    elif which == "device":
        (base / "cpu").chmod(0o777)
    elif which == "link":
        base.rename(base.parent / "real")
        base.symlink_to(base.parent / "real")
    elif which == "device link":
        (base / "cpu").rename(base / "real")
        (base / "cpu").symlink_to(base / "real")
    else:
        theirs = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: theirs)
    with pytest.warns(RushlightWarning, match="not used"):
        assert cache.read_object("cpu", KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read_object("cpu", KEY) is None
        cache.write_object("cpu", OTHER, b"code")
    assert not list(base.parent.rglob(f"{OTHER}*"))


def refusing(*args, **named):
    raise OSError(30, "Read-only file system")


def test_a_home_that_is_read_only_is_read(base, monkeypatch):
    cache.write_object("cpu", KEY, b"code")
    (base / "cpu").chmod(0o755)
    cache._folders.clear()
    for name in ("chmod", "replace"):
        monkeypatch.setattr(os, name, refusing)
    monkeypatch.setattr(cache.tempfile, "mkstemp", refusing)
    assert cache.read_object("cpu", KEY) == b"code"
    cache.write_object("cpu", OTHER, b"code")
    assert cache.read_object("cpu", OTHER) is None


def test_no_home_and_no_entry_of_the_user_is_no_error(monkeypatch):
    for name in ("RUSHLIGHT_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    assert cache_folder() is None
    assert cache.read_object("cpu", KEY) is None
    cache.write_object("cpu", KEY, b"code")


def test_a_folder_that_cannot_be_made_or_written_costs_nothing_else(base, monkeypatch):
    base.parent.joinpath("file").write_text("")
    monkeypatch.setenv("RUSHLIGHT_CACHE", str(base.parent / "file" / "kernels"))
    cache.write_object("cpu", KEY, b"code")
    assert cache.read_object("cpu", KEY) is None


def test_a_full_disk_leaves_nothing_behind(base):
    script = (
        "import resource, sys\n"
        "from rushlight.devices.shared import cache\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "cache.write_object('cpu', 'k', b'x' * 5000)\n"
        "sys.exit(cache.read_object('cpu', 'k') is not None)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=WAIT)
    assert list((base / "cpu").iterdir()) == []


def test_a_folder_that_was_removed_is_made_again(base):
    cache.write_object("cpu", KEY, b"code")
    entry(base).unlink()
    (base / "cpu").rmdir()
    assert cache.read_object("cpu", KEY) is None
    cache.write_object("cpu", KEY, b"code")
    cache.write_object("cpu", KEY, b"code")
    assert cache.read_object("cpu", KEY) == b"code"


def test_two_processes_at_once(base):
    script = (
        "from rushlight.devices.shared import cache\n"
        "import warnings; warnings.simplefilter('error')\n"
        "for i in range(300):\n"
        "    cache.write_object('cpu', 'k', b'x' * (1000 + i))\n"
        "    assert set(cache.read_object('cpu', 'k')) == {ord('x')}\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    assert [process.wait(WAIT) for process in both] == [0, 0]
    assert [p.name for p in (base / "cpu").iterdir()] == ["k.kernel"]
