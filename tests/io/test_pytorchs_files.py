"""Files that PyTorch 2.13 wrote: `torch.save(OBJECT, ...)` as an archive and in the older format.

The object: {"a": arange(12.).reshape(3, 4), "v": a[1:, ::2], "b": ones(3, bfloat16), "c": [1+2j],
"i": arange(3), "p": Parameter(ones(2)), "od": OrderedDict(k=zeros(2)), "n": 3, "t": [True],
"u": ones(2, uint16), "f": 0.5, "s": "text"}.
"""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pytest

import rushlight
from rushlight.io.limits import UnsafeFile

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = ["pytorch_archive.pt", "pytorch_older.pt"]


@pytest.mark.parametrize(
    ("name", "mmap"), [(FILES[0], None), (FILES[0], True), (FILES[1], None), (FILES[1], False)]
)
def test_they_are_read(name, mmap) -> None:
    found = rushlight.load(GOLDEN / name, mmap=mmap)
    assert list(found) == ["a", "v", "b", "c", "i", "p", "od", "n", "t", "u", "f", "s"]
    assert found["a"].tolist() == rushlight.arange(12.0).reshape(3, 4).tolist()
    assert found["v"].tolist() == [[4, 6], [8, 10]] and found["v"].stride() == (4, 2)
    found["a"][1, 0] = 99  # views share their memory
    assert found["v"][0, 0] == 99
    assert found["b"].dtype is rushlight.bfloat16 and found["b"].tolist() == [1, 1, 1]
    assert found["c"].tolist() == [1 + 2j] and found["i"].dtype is rushlight.int64
    assert isinstance(found["p"], rushlight.nn.Parameter) and found["p"].requires_grad
    assert type(found["od"]).__name__ == "OrderedDict" and found["od"]["k"].tolist() == [0, 0]
    assert found["t"].tolist() == [True] and found["u"].dtype is rushlight.uint16
    assert (found["n"], found["f"], found["s"]) == (3, 0.5, "text")


def test_devices() -> None:
    found = rushlight.load(GOLDEN / FILES[0], map_location="null")
    assert found["a"].device.type == "null"
    assert rushlight.load(io.BytesIO((GOLDEN / FILES[1]).read_bytes()), "cpu")["n"] == 3


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_errors(name) -> None:
    raw = (GOLDEN / name).read_bytes()
    numbers = random.Random(0)
    refused = 0
    for _ in range(300):
        other = bytearray(raw)
        for _ in range(numbers.randint(1, 8)):
            other[numbers.randrange(len(other))] = numbers.randrange(256)
        if numbers.random() < 0.2:
            del other[numbers.randrange(len(other)) :]
        try:
            rushlight.load(io.BytesIO(bytes(other)))
        except (UnsafeFile, rushlight.RushlightError, UnicodeError):
            refused += 1
    assert refused > 100


def test_hostile_archives(tmp_path: Path) -> None:
    def write(pickle: bytes, **options) -> Path:
        path = tmp_path / "file.pt"
        with zipfile.ZipFile(path, "w", **options) as archive:
            archive.writestr("archive/data.pkl", pickle)
        return path

    with pytest.raises(UnsafeFile, match=r"asks for posix\.system"):
        rushlight.load(write(b"\x80\x02cposix\nsystem\nX\x01\x00\x00\x00xR."))
    with pytest.raises(UnsafeFile, match="compressed"):
        rushlight.load(write(b"\x80\x02N.", compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(UnsafeFile, match="is no memory"):
        rushlight.load(write(b"\x80\x02NQ."))
    big = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    big += b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ."
    with pytest.raises(UnsafeFile, match="cannot be read from the archive"):
        rushlight.load(write(b"\x80\x02" + big))
