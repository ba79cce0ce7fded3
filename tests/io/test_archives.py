"""`save` writes PyTorch's archives: their structure, their names, what is read back from them."""

from __future__ import annotations

import collections
import contextlib
import copy
import io
import os
import pickle
import pickletools
import random
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.compat import dispatch
from rushlight.core.errors import DeviceError, RushlightError
from rushlight.io.archive import ALIGNED, ArchiveReader, ArchiveWriter
from rushlight.io.limits import TruncatedFile, UnsafeFile

GOLDEN = Path(__file__).parents[1] / "golden"
# The opcodes that PyTorch's careful reader knows.
KNOWN_OPCODES = {
    *(
        "APPEND",
        "APPENDS",
        "BINFLOAT",
        "BINGET",
        "BININT",
    ),
    *(
        "BININT1",
        "BININT2",
        "BINPERSID",
        "BINPUT",
        "BINUNICODE",
    ),
    *(
        "BUILD",
        "EMPTY_DICT",
        "EMPTY_LIST",
        "EMPTY_SET",
        "EMPTY_TUPLE",
    ),
    *(
        "GLOBAL",
        "LONG1",
        "LONG_BINGET",
        "LONG_BINPUT",
        "MARK",
    ),
    *(
        "NEWFALSE",
        "NEWOBJ",
        "NEWTRUE",
        "NONE",
        "PROTO",
    ),
    *(
        "REDUCE",
        "SETITEM",
        "SETITEMS",
        "SHORT_BINSTRING",
        "STOP",
    ),
    *(
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
    ),
}
# The names that it knows, without a program's own.
KNOWN_NAMES = {
    "collections OrderedDict",
    "collections Counter",
    "_codecs encode",
    "__builtin__ bytearray",
    "__builtin__ set",
    "__builtin__ complex",
    "torch Size",
    "torch device",
    "torch Tensor",
    "torch.serialization _get_layout",
    "torch.storage UntypedStorage",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_sparse_tensor",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
    "torch._utils _rebuild_meta_tensor_no_storage",
    "torch._tensor _rebuild_from_type_v2",
}
KNOWN_NAMES |= {f"torch {kind}" for kind in rl.storage.KINDS}
KNOWN_NAMES |= {f"torch {dtype.name}" for dtype in rl.core.dtypes.ANY}


def saved(thing: object, **named: object) -> bytes:
    file = io.BytesIO()
    rl.save(thing, file, **named)
    return file.getvalue()


def back(thing: object, **named: object):
    return rl.load(io.BytesIO(saved(thing)), **named)


def pickle_of(thing: object) -> bytes:
    with zipfile.ZipFile(io.BytesIO(saved(thing))) as archive:
        return archive.read("archive/data.pkl")


def names_in(thing: object) -> set[str]:
    return {arg for op, arg, _ in pickletools.genops(pickle_of(thing)) if op.name == "GLOBAL"}


def checkpoint() -> dict[str, object]:
    """What programs save."""
    rl.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = rl.optim.AdamW(model.parameters())
    scheduler = rl.optim.lr_scheduler.StepLR(optimizer, 2)
    model(rl.ones(2, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    x = rl.arange(12.0).reshape(3, 4)
    noted = rl.ones(2)
    noted.note = "n"
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": rl.get_rng_state(),
        "kept": model.state_dict(keep_vars=True),
        "views": [x, x[1:, ::2], x.t(), x[2:], x.expand(2, 3, 4)],
        "kinds": [rl.arange(3).to(dtype) for dtype in rl.core.dtypes.ANY],
        "empty": [rl.zeros(0), rl.zeros(2, 0, dtype=rl.uint16)],
        "sparse": [rl.eye(2).to_sparse(), rl.eye(2).to_sparse_csr()],
        "plain": [1, -(2**70), 1.5, 2j, "é", b"", b"b", bytearray(b"z"), None, True, {1, 2}],
        "names": [rl.float16, rl.Size([1, 2]), rl.device("cpu"), rl.strided],
        "counter": collections.Counter("aab"),
        "attributes": noted,
    }


# ---- the file ----


def test_members_stand_where_pytorch_looks_for_them() -> None:
    raw = saved(checkpoint())
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        assert archive.testzip() is None
        members = archive.infolist()
        read = {m.filename.removeprefix("archive/"): archive.read(m) for m in members}
    assert all(m.compress_type == zipfile.ZIP_STORED for m in members)
    names = list(read)
    assert names[:4] == ["data.pkl", ".format_version", ".storage_alignment", "byteorder"]
    assert names[-2:] == ["version", ".data/serialization_id"]
    assert names[4:-2] == [f"data/{i}" for i in range(len(names) - 6)]
    assert read["version"] == b"3\n" and read["byteorder"] == b"little"
    assert read[".format_version"] == b"1" and read[".storage_alignment"] == b"64"
    assert read[".data/serialization_id"].isdigit() and len(read[".data/serialization_id"]) == 40
    for member in members:
        head = raw[member.header_offset :][:30]
        start = member.header_offset + 30 + sum(struct.unpack("<2H", head[26:30]))
        assert start % ALIGNED == 0 and raw[start:].startswith(archive_bytes(read, member))
    plain = saved([1], _disable_byteorder_record=True)
    assert "archive/byteorder" not in zipfile.ZipFile(io.BytesIO(plain)).namelist()


def archive_bytes(read: dict[str, bytes], member: zipfile.ZipInfo) -> bytes:
    return read[member.filename.removeprefix("archive/")]


def test_a_careful_reader_of_pytorch_knows_every_opcode_and_every_name() -> None:
    pickled = pickle_of(checkpoint())
    assert pickled.startswith(b"\x80\x02")
    assert {op.name for op, _, _ in pickletools.genops(pickled)} <= KNOWN_OPCODES
    assert names_in(checkpoint()) <= KNOWN_NAMES


def test_memory_is_asked_for_as_pytorch_does() -> None:
    x = rl.arange(6.0)
    asked = [arg for op, arg, _ in pickletools.genops(pickle_of([x, x[2:]])) if arg is not None]
    assert asked.count("storage") == 1 and "torch FloatStorage" in asked and "cpu" in asked
    # Memory of several types, and of PyTorch's newer ones, is bytes.
    assert names_in([x, x.view(rl.int32)]) == names_in([rl.ones(1, dtype=rl.uint16)]) - {
        "torch uint16"
    } | {"torch float32", "torch int32"}
    assert "torch._utils _rebuild_tensor_v3" in names_in(rl.ones(1, dtype=rl.uint64))


def test_equal_objects_give_equal_files() -> None:
    assert saved(checkpoint()) == saved(checkpoint())
    assert saved([rl.ones(2)]) != saved([rl.zeros(2)])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("archive", [True, False])
def test_protocols_and_the_older_format(protocol: int, archive: bool) -> None:
    x = rl.arange(6.0)
    thing = {"a": x, "b": x[2:], "n": nn.Parameter(rl.ones(2)), "d": rl.float16, "b0": b""}
    raw = saved(thing, pickle_protocol=protocol, _use_new_zipfile_serialization=archive)
    assert raw.startswith(b"PK" if archive else b"\x80")
    for careful in (True, False):
        found = rl.load(io.BytesIO(raw), weights_only=careful)
        found["a"][2] = 9
        assert found["b"][0] == 9 and found["b"].storage_offset() == 2 and found["b0"] == b""
        assert type(found["n"]) is nn.Parameter and found["d"] is rl.float16


def test_a_file_that_is_written_in_parts() -> None:
    class Slow(io.BytesIO):
        def write(self, raw: bytes) -> int:  # type: ignore[override]
            return super().write(bytes(raw)[: 1 + len(raw) // 2])

    file = Slow()
    rl.save(checkpoint(), file)
    assert file.getvalue() == saved(checkpoint())


def test_a_pipe_takes_an_archive() -> None:
    given, taken = os.pipe()
    read: list[bytes] = []

    def take() -> None:
        with open(given, "rb") as file:
            read.append(file.read())

    reader = threading.Thread(target=take)
    reader.start()
    with open(taken, "wb") as file:
        rl.save([rl.arange(1000.0)], file)
    reader.join()
    assert rl.load(io.BytesIO(read[0]))[0][999] == 999


def test_tensors_that_change_while_they_are_saved_give_a_whole_file() -> None:
    x = rl.zeros(1 << 20)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            x.add_(1)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(5):
            assert back(x).shape == x.shape
    finally:
        stop.set()
        thread.join()


def test_archives_behind_one_another_and_before_other_bytes() -> None:
    raw = b"before" + saved([1]) + saved(rl.arange(3)) + b"after"
    file = io.BytesIO(raw)
    file.seek(6)
    assert rl.load(file) == [1]
    assert rl.load(file).tolist() == [0, 1, 2]
    assert file.read() == b"after"


@pytest.mark.slow
def test_an_archive_of_more_than_four_gibibytes(tmp_path: Path) -> None:
    class Holes:
        """A file in which zeros take no room."""

        def __init__(self, file) -> None:
            self.file = file

        def write(self, raw: bytes) -> int:
            if raw.count(0) < len(raw):
                self.file.write(raw)
            else:
                self.file.seek(len(raw), os.SEEK_CUR)
            return len(raw)

    with open(tmp_path / "large.pt", "wb") as file:
        archive = ArchiveWriter(Holes(file), "archive")
        archive.add("data/0", np.zeros((1 << 32) + 5, np.uint8))
        archive.add("data/1", b"behind")
        archive.finish()
    with zipfile.ZipFile(tmp_path / "large.pt") as found:
        assert found.getinfo("archive/data/0").file_size == (1 << 32) + 5
        assert found.read("archive/data/1") == b"behind"
    with open(tmp_path / "large.pt", "rb") as file:
        reader = ArchiveReader(file)
        assert reader.place("archive/data/0")[1] == (1 << 32) + 5
        assert reader.read("archive/data/1") == b"behind"


# ---- tensors ----


def test_layouts_are_kept() -> None:
    x = rl.arange(24.0).reshape(2, 3, 4)
    for view in (x.permute(2, 0, 1), x[1:, ::2, 1:], x.expand(5, 2, 3, 4), x[:, 1]):
        found = back(view)
        assert found.stride() == view.stride() and found.storage_offset() == view.storage_offset()
        assert found.tolist() == view.tolist()
    images = rl.ones(2, 3, 4, 5).to(memory_format=rl.channels_last)
    assert back(images).is_contiguous(memory_format=rl.channels_last)
    huge = back(rl.ones(1).expand(1 << 40))
    assert huge.shape == (1 << 40,) and huge.stride() == (0,)


def test_a_result_is_loaded_as_a_leaf() -> None:
    x = rl.ones(2, requires_grad=True)
    found = back({"leaf": x, "result": x * 2, "kept": x.detach()})
    assert [v.requires_grad for v in found.values()] == [True, True, False]
    assert all(v.is_leaf for v in found.values())


def test_leaves_in_memory_of_several_types() -> None:
    """PyTorch's `_rebuild_tensor_v3` refuses a gradient, so the state says that one is wanted."""
    x = rl.arange(4.0)
    leaf = x.detach().requires_grad_()
    leaf.note = "kept"
    thing = {"numbers": x.view(rl.int32), "leaf": leaf}
    calls = [arg for _, arg, _ in pickletools.genops(pickle_of(thing)) if isinstance(arg, str)]
    assert "torch._tensor _rebuild_from_type_v2" in calls and "requires_grad" in calls
    for named in ({}, {"weights_only": False}):
        found = back(thing, **named)
        assert found["leaf"].requires_grad and found["leaf"].note == "kept"
        found["numbers"].zero_()
        assert found["leaf"].tolist() == [0, 0, 0, 0]


def test_attributes_and_kinds_of_tensors() -> None:
    x, p = rl.ones(2), nn.Parameter(rl.ones(2), requires_grad=False)
    x.note, p.tag = {"a": rl.zeros(1)}, 3
    buffer = nn.Buffer(rl.ones(1), persistent=False)
    sparse = rl.eye(2).to_sparse().requires_grad_()
    sparse.word = "w"
    for careful in (True, False):
        found = back([x, p, buffer, sparse, nn.UninitializedParameter()], weights_only=careful)
        assert type(found[0]) is rl.Tensor and found[0].note["a"].tolist() == [0]
        assert type(found[1]) is nn.Parameter and found[1].tag == 3 and not found[1].requires_grad
        assert type(found[2]) is nn.Buffer and not found[2].persistent
        assert found[3].requires_grad and found[3].word == "w"
        assert type(found[4]) is nn.UninitializedParameter


class Ruled(rl.Tensor):
    """A user's class of tensors."""


class Weighed(nn.Parameter):
    """A user's class of parameters."""


class Asked:
    """A class with its own way to be pickled."""

    def __init__(self, part: object) -> None:
        self.part = part

    def __reduce__(self):
        return Asked, (self.part,)


@pytest.fixture
def subclasses() -> Iterator[None]:
    """The first tensor of a subclass changes functions for the process."""
    yield
    if dispatch.ask_from_now_on.cache_info().currsize:
        dispatch.ask_from_now_on.cache_clear()
        dispatch.stop_asking()


@pytest.mark.usefixtures("subclasses")
def test_classes_of_a_program() -> None:
    ruled = rl.ones(2).as_subclass(Ruled)
    ruled.word = "w"
    things = [ruled, Weighed(rl.ones(1)), Asked(rl.ones(3))]
    found = back(things, weights_only=False)
    assert type(found[0]) is Ruled and found[0].word == "w"
    assert type(found[1]) is Weighed and found[2].part.tolist() == [1, 1, 1]
    with pytest.raises(UnsafeFile, match=r"test_archives\.Ruled"):
        back(things)
    with rl.serialization.safe_globals([Ruled, Weighed, Asked]):
        found = back(things)
        assert type(found[0]) is Ruled and found[0].word == "w" and type(found[1]) is Weighed


def test_tensors_of_other_devices(device) -> None:
    x = rl.arange(3.0, device=device)
    assert back(x).device.type == device and back(x).tolist() == [0, 1, 2]
    assert back(x, map_location="cpu").device.type == "cpu"
    # PyTorch knows no webgpu: it takes the memory as the CPU's.
    assert (device if device == "cuda" else "cpu") in {
        str(arg).partition(":")[0] for op, arg, _ in pickletools.genops(pickle_of(x))
    }


def test_tensors_without_memory() -> None:
    found = back(rl.empty(3, 2, device="null").t())
    assert found.device.type == "null" and found.shape == (2, 3) and found.stride() == (1, 2)


def test_a_device_that_is_not_here() -> None:
    raw = (GOLDEN / "pytorch_archive.pt").read_bytes()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        read = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    file = io.BytesIO()
    writer = ArchiveWriter(file, "archive")
    for name, content in read.items():
        other = content.replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00mps")
        writer.add(name, other if name == "data.pkl" else content)
    writer.finish()
    with pytest.raises(DeviceError, match=r"tensors of 'mps'.*map_location='cpu'"):
        rl.load(io.BytesIO(file.getvalue()))
    assert rl.load(io.BytesIO(file.getvalue()), map_location="cpu")["a"].device.type == "cpu"
    told: list[str] = []
    rl.load(
        io.BytesIO(file.getvalue()), map_location=lambda storage, was: told.append(was) or storage
    )
    assert set(told) == {"mps:0"}


# ---- modules ----


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.register_buffer("seen", rl.zeros(1), persistent=False)
        self.act = nn.functional.relu

    def forward(self, x):
        self.seen += 1
        return self.act(self.first(x))


def hook(module, args, result):
    return result * 2


def named_hook(module, args, kwargs):
    return args, kwargs


def test_modules_are_written_by_pytorchs_names() -> None:
    names = names_in(nn.Sequential(nn.Conv2d(1, 1, 1), nn.LSTM(1, 1), nn.MultiheadAttention(2, 1)))
    assert {
        "torch.nn.modules.container Sequential",
        "torch.nn.modules.conv Conv2d",
        "torch.nn.modules.rnn LSTM",
        "torch.nn.modules.activation MultiheadAttention",
        "torch.nn.modules.linear NonDynamicallyQuantizableLinear",
    } <= names
    assert not any("rushlight" in name for name in names)
    names = names_in(Net())
    assert "torch.nn.functional relu" in names and f"{__name__} Net" in names


def test_modules_there_and_back() -> None:
    net = Net()
    net.register_forward_hook(hook)
    net.register_forward_pre_hook(named_hook, with_kwargs=True)
    net.first.register_full_backward_hook(print)
    x = rl.ones(1, 2)
    found = back(net, weights_only=False)
    assert found(x).tolist() == net(x).tolist()
    assert found.seen.tolist() == [1] and "seen" not in found.state_dict()
    assert list(found._forward_pre_hooks.values()) == [named_hook]
    assert list(found.first._backward_hooks.values()) == [print]
    assert set(vars(found)) == set(vars(net)) and set(vars(found.first)) == set(vars(net.first))
    copied = copy.deepcopy(found)
    assert copied(x).tolist() == net(x).tolist()


def test_layers_of_pytorch() -> None:
    """The modules that tests/golden/make_pytorch_files.py made."""
    found = rl.load(GOLDEN / "pytorch_layers.pt", weights_only=False)
    again = back(found, weights_only=False)
    image = rl.arange(16.0).reshape(1, 1, 4, 4)
    for part in (found, again):
        assert part.conv(image).shape == (1, 2, 4, 4) and part.up(rl.ones(1, 2, 5)).shape == (
            1,
            1,
            7,
        )
        assert part.lstm(rl.ones(4, 1, 2))[0].shape == (4, 1, 6)
        assert part.attention(rl.ones(3, 1, 4)).shape == (3, 1, 4)
        assert list(part.named) == ["w"] and not part.training
        assert part.larger(part.pad(image)).shape == (1, 1, 12, 12)
        assert type(part) is nn.ModuleDict and type(part.cut) is nn.ReLU6
        made = {
            "conv": nn.Conv2d(1, 1, 1),
            "lstm": nn.LSTM(1, 1),
            "up": nn.ConvTranspose1d(1, 1, 1),
        }
        for name, fresh in made.items():  # no attribute of PyTorch's is left
            assert {k for k in vars(part[name]) if "_l0" not in k} == {
                k for k in vars(fresh) if "_l0" not in k
            }
    assert found.conv(image).tolist() == again.conv(image).tolist()
    with pytest.raises(UnsafeFile, match=r"torch\.nn\.modules\.container\.ModuleDict"):
        rl.load(GOLDEN / "pytorch_layers.pt")
    with rl.serialization.safe_globals([nn.Linear]):
        assert type(back(nn.Linear(2, 2))) is nn.Linear
        assert rl.serialization.get_safe_globals() == [nn.Linear]


class _WithSources(pickle.Pickler):
    """PyTorch's older format has a class with its source text."""

    written = False

    def persistent_id(self, obj):
        if obj is not Net or self.written:
            return None
        self.written = True
        return "module", obj, "file.py", "text"


def test_modules_in_the_older_format() -> None:
    file = io.BytesIO()
    for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(part, file, 2)
    _WithSources(file, 2).dump(Net)
    pickle.dump([], file, 2)
    file.seek(0)
    assert rl.load(file, weights_only=False) is Net
    file.seek(0)
    with pytest.raises(UnsafeFile):
        rl.load(file)


def test_what_is_no_ones_but_ours_keeps_its_name() -> None:
    names = names_in(rl.distributions.Normal(0.0, 1.0))
    assert any(name.startswith("rushlight.distributions") for name in names)
    found = back(rl.distributions.Normal(0.0, 1.0), weights_only=False)
    assert found.mean.item() == 0


# ---- PyTorch's files ----


def test_all_kinds_in_files_of_pytorch() -> None:
    """What tests/golden/make_pytorch_files.py wrote."""
    for careful in (True, False):
        found = rl.load(GOLDEN / "pytorch_more.pt", weights_only=careful)
        assert found["noted"].note == ["a"] and found["parameter"].tag == 3
        assert type(found["buffer"]) is nn.Buffer
        assert (
            found["coo"].to_dense().tolist() == rl.eye(3).tolist() and found["coo"].is_coalesced()
        )
        assert found["csr"].to_dense().tolist() == rl.eye(3).tolist()
        assert found["meta"].device.type == "null" and found["meta"].stride() == (1, 2)
        assert type(found["storage"]) is rl.FloatStorage and list(found["storage"]) == [0, 1, 2]
        assert type(found["untyped"]) is rl.UntypedStorage and list(found["untyped"]) == [1, 2, 3]
        assert found["names"] == [
            *(rl.float8_e5m2, rl.device("cuda", 0), rl.Size([2, 3]), rl.strided)
        ]
        assert [k.dtype for k in found["kinds"]] == [
            *(rl.bool, rl.uint8, rl.uint16, rl.uint32, rl.uint64, rl.int8, rl.int16, rl.int32),
            *(rl.int64, rl.float16, rl.bfloat16, rl.float32, rl.float64),
        ]
        assert all(
            k.tolist() == ([False, True, True] if k.dtype is rl.bool else [0, 1, 2])
            for k in found["kinds"]
        )
        assert [c.tolist() for c in found["complex"]] == [[1 - 2j]] * 2
        assert found["expanded"].shape == (1 << 40,)
        assert found["bytes"] == [b"", b"abc", bytearray(b"z")] and found["set"] == {1, 2}
        model = nn.Linear(2, 1)
        model.load_state_dict(found["state"]["model"])
        optimizer = rl.optim.Adam(model.parameters())
        optimizer.load_state_dict(found["state"]["optimizer"])
        assert optimizer.state_dict()["state"][0]["step"] == 1


@pytest.mark.parametrize("older", [False, True])
def test_modules_inside_of_many_others(older: bool) -> None:
    model = shared = nn.Linear(2, 2)
    for _ in range(300):
        model = nn.Sequential(model)
    for given in (model, {"model": model, "same": shared}):
        file = io.BytesIO()
        rl.save(given, file, _use_new_zipfile_serialization=not older)
        file.seek(0)
        found = rl.load(file, weights_only=False)
        layer = found if given is model else found["model"]
        for _ in range(300):
            assert type(layer) is nn.Sequential
            layer = layer[0]
        assert rl.equal(layer.weight, shared.weight)
        assert given is model or found["same"] is layer


def test_types_that_are_only_names() -> None:
    with pytest.raises(UnsafeFile, match="complex32, which is only a name here"):
        rl.load(GOLDEN / "pytorch_complex32.pt")


# ---- mmap ----


@pytest.fixture
def large(tmp_path: Path) -> Path:
    x = rl.arange(1 << 18, dtype=rl.float32)
    rl.save(
        {"x": x, "tail": x[-3:], "t": rl.tensor([True, False]), "none": rl.zeros(0)}, tmp_path / "f"
    )
    return tmp_path / "f"


def test_a_mapped_file(large: Path) -> None:
    before = rl.memory.allocated()
    found = rl.load(large, mmap=True)
    assert rl.memory.allocated() - before < 1 << 16
    assert found["x"][-1] == found["tail"][-1] == (1 << 18) - 1 and found["t"].tolist() == [
        True,
        False,
    ]
    assert found["none"].shape == (0,)
    found["x"][-1] = 7
    assert found["tail"][-1] == 7 and rl.load(large)["tail"][-1] == (1 << 18) - 1
    del found["x"]
    large.unlink()  # a mapping outlives the file's name
    assert found["tail"][0] == (1 << 18) - 3
    assert (found["tail"] * 2).sum().item() == 2 * ((1 << 18) - 3 + (1 << 18) - 2 + 7)


def test_a_mapped_file_to_a_device(large: Path, device) -> None:
    found = rl.load(large, map_location=device, mmap=True)
    assert found["x"].device.type == device and found["tail"].tolist()[-1] == (1 << 18) - 1


def test_what_cannot_be_mapped(large: Path, tmp_path: Path) -> None:
    with open(large, "rb") as file, pytest.raises(ValueError, match="path"):
        rl.load(file, mmap=True)
    with pytest.raises(
        RushlightError, match="mmap=True needs a file that save wrote as an archive"
    ):
        rl.load(GOLDEN / "pytorch_older.pt", mmap=True)
    with pytest.raises(RushlightError, match="mmap=True needs"):
        rl.load(GOLDEN / "saved_state.bin", mmap=True)
    (tmp_path / "none").write_bytes(b"")
    with pytest.raises(TruncatedFile):
        rl.load(tmp_path / "none", mmap=True)


def test_truth_values_of_a_mapped_file(tmp_path: Path) -> None:
    raw = bytearray(saved(rl.tensor([True, False, True, True])))
    raw[raw.index(b"\1\0\1\1")] = 7
    (tmp_path / "f").write_bytes(raw)
    found = rl.load(tmp_path / "f", mmap=True)
    assert found.view(rl.uint8).tolist() == [1, 0, 1, 1]


# ---- damaged and hostile files ----


def test_every_cut_is_an_error(tmp_path: Path) -> None:
    raw = saved({"a": rl.arange(3.0), "b": "text"})
    for cut in range(len(raw)):
        with pytest.raises(TruncatedFile):
            rl.load(io.BytesIO(raw[:cut]))
        if cut > 4 and not cut % 50:
            (tmp_path / "f").write_bytes(raw[:cut])
            with pytest.raises(TruncatedFile):
                rl.load(tmp_path / "f", mmap=True)


def test_a_changed_byte_of_memory_is_noticed() -> None:
    raw = bytearray(saved(rl.arange(4, dtype=rl.int32)))
    at = raw.index(struct.pack("<4i", 0, 1, 2, 3))
    raw[at + 4] = 200
    with pytest.raises(UnsafeFile, match="checksum"):
        rl.load(io.BytesIO(bytes(raw)))


@pytest.mark.parametrize("mapped", [False, True])
def test_damaged_archives(tmp_path: Path, mapped: bool) -> None:
    raw = saved({k: v for k, v in checkpoint().items() if k != "kept"})
    numbers = random.Random(0)
    for _ in range(300):
        other = bytearray(raw)
        for _ in range(numbers.randint(1, 8)):
            other[numbers.randrange(len(other))] = numbers.randrange(256)
        (tmp_path / "f").write_bytes(other)
        with contextlib.suppress(RushlightError, UnicodeError):
            rl.load(tmp_path / "f", mmap=mapped)


def rewritten(changes: dict[str, bytes], thing: object = None) -> io.BytesIO:
    """A file of `save` with other members."""
    with zipfile.ZipFile(
        io.BytesIO(saved([rl.arange(4.0)] if thing is None else thing))
    ) as archive:
        read = {name: archive.read(name) for name in archive.namelist()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in (read | changes).items():
            made.writestr(name, content)
    file.seek(0)
    return file


def test_archives_that_tell_lies() -> None:
    assert rl.load(rewritten({}))[0].tolist() == [0, 1, 2, 3]  # by another zip writer
    for lie, told in [
        ({"archive/data/0": bytes(8)}, "another size"),
        ({"archive/data/0": bytes(1 << 10)}, "another size"),
        ({"archive/byteorder": b"big"}, "big-endian"),
        ({"archive/constants.pkl": b""}, "TorchScript"),
        ({"other/data.pkl": b""}, "no data.pkl"),
        ({"archive/.rushlight/devices": b'{"0": "nowhere"}'}, "device that there is not"),
        ({"archive/.rushlight/devices": b"[" * 100_000}, "devices cannot be read"),
        ({"archive/.rushlight/devices": b"\xff"}, "devices cannot be read"),
    ]:
        with pytest.raises(UnsafeFile, match=told):
            rl.load(rewritten(lie))


def test_members_that_share_bytes() -> None:
    """Many names of the same bytes would make much memory of a small file."""
    tensors = [rl.zeros(1 << 12, dtype=rl.uint8) for _ in range(50)]
    file = io.BytesIO()
    archive = ArchiveWriter(file, "archive")
    archive.add("data.pkl", pickle_of(tensors))
    start = archive.at
    archive.add("data/0", bytes(1 << 12))
    for key in range(1, 50):
        archive._list(f"archive/data/{key}".encode(), zlib.crc32(bytes(1 << 12)), 1 << 12, start)
    archive.finish()
    file.seek(0)
    with pytest.raises(UnsafeFile, match="into another member"):
        rl.load(file)


def test_functions_that_make_tensors_make_nothing_else() -> None:
    head = b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n("
    for made in (
        b"cposix\nsystem\nctorch\nTensor\n)}t",
        b"c__builtin__\nset\nctorch\nTensor\n)}t",
        b"ctorch._utils\n_rebuild_tensor_v2\nctorch\nSize\n)}t",
        b"ctorch\nTensor\n)t",
    ):
        with pytest.raises(UnsafeFile):
            rl.load(rewritten({"archive/data.pkl": head + made + b"R."}))
    good = pickle_of([rl.arange(4.0)])
    start, stop = (
        good.index(b"ctorch._utils"),
        good.index(b"R", good.index(b"OrderedDict") + 20) + 1,
    )
    tensor = good[start:stop]
    function, args = tensor[: tensor.index(b"(")], tensor[tensor.index(b"(") : -1]
    for state in (b"K\x01", b"}X\x07\x00\x00\x00_offsetK\x01s", b"}X\x05\x00\x00\x00shapeK\x01s"):
        bad = head + function + b"ctorch\nTensor\n" + args + state + b"tR."
        with pytest.raises(UnsafeFile):
            rl.load(rewritten({"archive/data.pkl": bad}))
    fine = head + function + b"ctorch\nTensor\n" + args + b"}X\x01\x00\x00\x00nK\x05stR."
    assert rl.load(rewritten({"archive/data.pkl": fine})).n == 5


def test_pickle_modules() -> None:
    file = io.BytesIO(saved({"x": rl.arange(3)}))
    with pytest.raises(RushlightError, match="leave pickle_module out"):
        rl.load(file, pickle_module=pickle, weights_only=True)
    assert rl.load(file, pickle_module=pickle)["x"].tolist() == [0, 1, 2]


def test_conjugates_that_pytorch_takes_late_are_taken() -> None:
    wanted = [[1 - 2j, 3 + 4j], [-2.0, 4.0], [4.0]]
    for careful in (True, False):
        found = rl.load(GOLDEN / "pytorch_lazy.pt", weights_only=careful)
        assert [t.tolist() for t in found] == wanted


class _Counted:
    made = 0

    def __init__(self) -> None:
        _Counted.made += 1

    def __reduce__(self) -> Any:
        return _Counted, (), {"name": "x"}


@pytest.mark.parametrize("careful", [True, False])
def test_sparse_tensors_in_the_older_format(tmp_path: Path, careful: bool) -> None:
    dense = rl.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]])
    given: dict[str, Any] = {"rows": dense.to_sparse_csr(), "at": dense.to_sparse(), "same": dense}
    if not careful:
        given["own"] = _Counted()
    rl.save(given, tmp_path / "f", _use_new_zipfile_serialization=False)
    before = _Counted.made
    found = rl.load(tmp_path / "f", weights_only=careful)
    assert rl.equal(found["rows"].to_dense(), dense) and rl.equal(found["at"].to_dense(), dense)
    assert rl.equal(found["same"], dense)
    assert careful or (found["own"].name == "x" and _Counted.made == before + 1)
