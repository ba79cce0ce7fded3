"""`save` to a path: all or nothing, whatever fails; only the tensors' bytes are in the file."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import rushlight as rl
from rushlight import interop
from rushlight.io import memory, save_file
from tests.time_limit import WAIT

posix = pytest.mark.skipif(os.name != "posix", reason="modes and signals of Unix")


def saved(thing: object) -> bytes:
    file = io.BytesIO()
    rl.save(thing, file)
    return file.getvalue()


# ---- what is written ----

SECRET = 0x5EC7E7
PATTERN = np.int32(SECRET).tobytes()


def test_bytes_of_the_block_beyond_the_tensor_are_not_written():
    held = rl.full((16,), SECRET, dtype=rl.int32)
    address = held.data_ptr()
    del held
    x = rl.zeros(3, dtype=rl.int32)
    assert x.data_ptr() == address  # the block that was used before, with room for 16
    assert PATTERN not in saved(x)
    raw = saved([x, x[1:]])  # which share memory
    assert PATTERN not in raw
    a, b = rl.load(io.BytesIO(raw))
    a[1] = 7
    assert b.tolist() == [7, 0]


def test_elements_that_no_saved_tensor_sees_are_not_written():
    x = rl.full((1000,), SECRET, dtype=rl.int32)
    x[100:110] = 1
    x[500:510] = 2
    x[600:650:7] = 3
    x.view(10, 100)[7:9, 20:23] = 4
    parts = [
        x[100:110],
        x[500:510],
        x[600:650:7],
        x.view(10, 100)[7:9, 20:23].t(),
        x[500:505].view(rl.float32),
    ]
    raw = saved(parts)
    assert PATTERN not in raw
    back = rl.load(io.BytesIO(raw))
    for part, again in zip(parts, back, strict=True):
        assert (
            again.view(rl.int32).tolist() == part.view(rl.int32).tolist()
            and again.stride() == part.stride()
        )
    back[1][0] = 9
    assert back[4].view(rl.int32)[0] == 9
    assert len(saved([x[:3], x[1:4]])) < 2000  # not what is behind them


def test_which_elements_a_layout_sees():
    pool = rl.zeros(1)._spec.device
    generator = np.random.default_rng(0)
    for _ in range(300):
        rank = generator.integers(0, 5)
        shape = tuple(int(n) for n in generator.integers(1, 6, rank))
        strides = tuple(int(n) for n in generator.integers(0, 20, rank))
        spec = interop.Spec.of(pool, rl.float32, shape, strides)
        seen = memory._elements_seen(spec)
        places = {
            sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(*shape)
        }
        assert set(np.flatnonzero(seen).tolist()) == places and len(seen) == max(places) + 1


def test_large_overlapping_and_repeated_layouts_are_quick():
    x = rl.arange(100_000.0)
    start = time.process_time()
    back = rl.load(io.BytesIO(saved([x, x.unfold(0, 1000, 1), x.expand(1 << 40, 100_000)])))
    assert time.process_time() - start < 5
    assert back[1][7, 5] == 12 and back[2].shape == (1 << 40, 100_000)


def test_memory_of_numpy_is_saved_to_its_last_byte():
    array = np.arange(7, dtype=np.int8)
    x = rl.from_numpy(array)
    a, b, c = rl.load(io.BytesIO(saved([x, x[2:], x.view(rl.bool)])))
    assert a.tolist() == list(range(7)) and b.tolist() == [2, 3, 4, 5, 6] and c.dtype is rl.bool


# ---- the file ----


def parts_in(folder):
    return [p.name for p in folder.iterdir() if "part" in p.name]


@posix
def test_the_mode_is_that_of_the_old_file_or_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        rl.save(1, tmp_path / "new")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
        for mode in (0o600, 0o644, 0o666, 0o400):
            (tmp_path / "f").unlink(missing_ok=True)
            (tmp_path / "f").write_bytes(b"")
            (tmp_path / "f").chmod(mode)
            rl.save({"a": 1}, tmp_path / "f")
            assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == mode
    finally:
        os.umask(before)


@posix
def test_a_link_is_followed_and_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    for number in (1, 2):  # a link to nothing, and to a file
        rl.save(number, tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and rl.load(tmp_path / "there" / "file") == number
    assert not parts_in(tmp_path) and not parts_in(tmp_path / "there")


@posix
def test_a_link_beside_the_file_is_not_followed(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    for name in ("f.part", ".f.part"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    rl.save(rl.ones(3), tmp_path / "f")
    assert (tmp_path / "victim").read_bytes() == b"precious"


@posix
def test_what_is_no_ordinary_file_is_written_to_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    rl.save([1, 2], tmp_path / "pipe")
    reader.join(WAIT)
    assert rl.load(io.BytesIO(got[0])) == [1, 2] and stat.S_ISFIFO(
        (tmp_path / "pipe").stat().st_mode
    )
    rl.save(rl.ones(2), os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(IsADirectoryError):
        rl.save(1, tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_an_error():
    with pytest.raises(OSError, match="No space"):
        rl.save(rl.ones(100_000), "/dev/full")


FULL = """
import os, resource, sys
import rushlight as rl
from rushlight.io import save_file
folder = sys.argv[1]
rl.save("old", f"{folder}/f")
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
file, ones = f"{folder}/f", rl.ones(10_000)
for act in (lambda: rl.save(ones, file), lambda: save_file({"a": ones}, file)):
    try:
        act()
    except OSError as error:
        assert error.filename == os.path.realpath(file), error
    else:
        sys.exit("no error")
    assert rl.load(f"{folder}/f") == "old"
assert os.listdir(folder) == ["f"], os.listdir(folder)
"""


@posix
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True, timeout=WAIT)


INTERRUPTED = """
import os, random, signal, sys
import rushlight as rl
folder = sys.argv[1]
x = rl.ones(300_000)
rl.save(x, f"{folder}/f")
stopped = 0
signal.signal(signal.SIGALRM, signal.default_int_handler)
# A program in the background starts without.
signal.signal(signal.SIGINT, signal.default_int_handler)
for seed in range(60):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001 + random.Random(seed).random() * 0.004, 5.0)
        while True:
            rl.save(x, f"{folder}/f")
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        stopped += 1
    assert os.listdir(folder) == ["f"], os.listdir(folder)
    assert rl.load(f"{folder}/f").shape == (300_000,)
assert stopped == 60
"""


@posix
def test_ctrl_c_leaves_a_whole_file_and_nothing_else(tmp_path):
    subprocess.run([sys.executable, "-c", INTERRUPTED, str(tmp_path)], check=True, timeout=WAIT)


KILLED = """
import os, random, signal, sys, time
import rushlight as rl
folder = sys.argv[1]
old, new = rl.zeros(300_000), rl.ones(300_000)
file = f"{folder}/f"

def forked(act):
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return child

def at_event(number):
    # Kill this process at its event `number`: a call, a return, or a call into C.
    left = [number]
    def count(frame, event, arg):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(count)
    rl.save(new, file)
    sys.setprofile(None)

def always():
    while True:
        rl.save(new, file)
        rl.save(old, file)

def whole():
    found = rl.load(file)
    assert found.shape == (300_000,) and (found == found[0]).all()
    return bool(found[0])

seen, number = [], 1
while not seen or seen[-1][0]:  # until the save ends before the event
    rl.save(old, file)
    _, status = os.waitpid(forked(lambda: at_event(number)), 0)
    seen.append((os.WIFSIGNALED(status), whole()))
    number += random.Random(number).randrange(1, 8)
assert not seen[0][1] and seen[-1][1] and len(seen) > 20, seen
for seed in range(20):
    child = forked(always)
    time.sleep(random.Random(seed).random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    whole()
"""


@posix
def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=True, timeout=WAIT)


@posix
def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_end(
    tmp_path, monkeypatch
):
    calls = []

    def noted(name, real):
        def called(*args):
            what = os.fstat(args[0]).st_mode if name == "fsync" else 0
            calls.append((name, stat.S_ISDIR(what), os.listdir(tmp_path)))
            return real(*args)

        monkeypatch.setattr(os, name, called)

    noted("fsync", os.fsync)
    noted("replace", os.replace)
    rl.save(rl.ones(3), tmp_path / "f")
    assert [call[:2] for call in calls] == [("fsync", False), ("replace", False), ("fsync", True)]
    assert "f" not in calls[1][2] and calls[2][2] == ["f"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_of_the_disk_when_it_syncs_leaves_the_old_file(tmp_path, monkeypatch, number):
    def fails(handle):
        raise OSError(number, os.strerror(number))

    rl.save("old", tmp_path / "f")
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match=f"{os.strerror(number)}.*{tmp_path / 'f'}"):
        rl.save(rl.ones(3), tmp_path / "f")
    assert rl.load(tmp_path / "f") == "old" and os.listdir(tmp_path) == ["f"]


@posix
def test_a_folder_that_cannot_be_written_to_is_named():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        rl.save("old", folder / "f")
        (folder / "f").chmod(0o666)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # permissions do not bind root
        try:
            with pytest.raises(PermissionError, match="new file in its folder") as caught:
                rl.save("new", folder / "f")
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)
        assert caught.value.filename == str(folder / "f")
        assert rl.load(folder / "f") == "old" and os.listdir(folder) == ["f"]


@posix
def test_links_that_lead_nowhere_are_errors(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links"):
        rl.save(1, tmp_path / "a")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


TWO = """
import sys
import rushlight as rl
number = int(sys.argv[2])
for i in range(60):
    rl.save({"a": rl.full((20_000,), float(number)), "b": number}, f"{sys.argv[1]}/f")
"""


@posix
def test_two_savers_at_once_give_whole_files(tmp_path):
    rl.save({"a": rl.zeros(20_000), "b": 0}, tmp_path / "f")
    both = [subprocess.Popen([sys.executable, "-c", TWO, str(tmp_path), str(k)]) for k in (1, 2)]
    seen = set()
    while any(process.poll() is None for process in both):
        found = rl.load(tmp_path / "f")
        assert (found["a"] == found["b"]).all()
        seen.add(found["b"])
    assert [process.returncode for process in both] == [0, 0] and seen & {1, 2}
    assert os.listdir(tmp_path) == ["f"]


def test_a_name_as_long_as_names_may_be(tmp_path):
    path = tmp_path / ("n" * 255)
    rl.save(1, path)
    rl.save(2, os.fsencode(path))
    assert rl.load(path) == 2
    with pytest.raises(FileNotFoundError):
        rl.save(1, tmp_path / "none" / "f")


def test_safetensors_are_replaced_when_they_are_whole(tmp_path):
    save_file({"a": rl.ones(2)}, tmp_path / "f")
    with pytest.raises(RuntimeError, match="complex128"):
        save_file({"a": rl.ones(2, dtype=rl.complex128)}, tmp_path / "f")
    assert rl.io.load_file(tmp_path / "f")["a"].tolist() == [1, 1]
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize(
    ("tensors", "metadata", "what"),
    [
        ({"a": rl.ones(2)}, {"k": 1}, "metadata"),
        ({"a": rl.ones(2)}, {1: "k"}, "metadata"),
        ({"a": rl.ones(2)}, ["k"], "metadata"),
        ({"__metadata__": rl.ones(2)}, None, "name"),
        ({1: rl.ones(2)}, None, "name"),
        ({"a": 1}, None, "'a' must be a tensor"),
    ],
)
def test_what_no_safetensors_file_holds_is_not_written(tensors, metadata, what, tmp_path):
    with pytest.raises(TypeError, match=f"save_file.*{what}"):
        save_file(tensors, tmp_path / "a", metadata)
    assert not list(tmp_path.iterdir())
