"""Checkpoints of many ranks, which any number of ranks reads.

# Note [Checkpoint folders]
1. A state is a nest of dicts, lists, tensors, numbers and strings, the same on all ranks. Tensors
   are named by their path in it ("model.layer.weight") and shared out by bytes: each rank writes
   its own file, `part<rank>.safetensors`.
2. `index.json` tells the shape and the file of each tensor. Rank 0 writes it, and `rest.pt` with
   what is no tensor.
3. The folder is written under another name and gets its own when all ranks are done, so a folder
   with the given name is whole; the one before is there until then (on Linux the two names are
   exchanged). Ranks tell one another by the store, not by collectives: an asynchronous save must
   not come between those of a step. What goes wrong on one rank all of them raise.
4. `load` fills the tensors of a given state, whatever number of ranks wrote it, and replaces
   numbers and strings. Shapes are checked before anything is written.
5. Of a DTensor each rank writes its part, the first of those that have the same one; the index
   tells where each part begins. A load copies what the saved parts and the wanted one have in
   common, so a part is read as a whole tensor, and a whole one as a part.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from rushlight.compat.futures import Future
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Size
from rushlight.distributed.checkpoint import hugging_face
from rushlight.distributed.checkpoint.planners import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    LoadItemType,
    Metadata,
    MetadataIndex,
    ReadItem,
    WriteItem,
    WriteItemType,
    flattened,
    known,
    overrides,
)
from rushlight.distributed.checkpoint.stateful import Stateful
from rushlight.distributed.checkpoint.storage import HuggingFaceStorageWriter, folder_of
from rushlight.distributed.collectives import barrier
from rushlight.distributed.process_groups import ProcessGroup, default_group, resolved
from rushlight.distributed.stores import Store, WorldStore
from rushlight.distributed.tensor.dtensor import DTensor, wrap
from rushlight.io import load as read, load_file, save as write, save_file
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

INDEX, REST = "index.json", "rest.pt"


class _Count:
    """How many saves this process began, so that ranks speak of the same one."""

    saves = 0


def shares(sizes: dict[str, int], ranks: int) -> dict[str, int]:
    """The rank that writes each tensor: the largest first, to whoever has least."""
    held = [0] * ranks
    owner: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        rank = held.index(min(held))
        owner[name] = rank
        held[rank] += sizes[name]
    return owner


def _group(process_group: Any) -> ProcessGroup | None:
    return default_group() if process_group is None else resolved(process_group)


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | Path | None = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Write a state, each rank a part of it; all ranks make this call.

    Args:
        state_dict (dict): The state, the same on all ranks. A value with `state_dict` and
            `load_state_dict` (a module, an optimiser) stands for its state.
        checkpoint_id (path): The folder, which is replaced where it exists.
        storage_writer (FileSystemWriter): The folder, in place of `checkpoint_id`.
        planner (DefaultSavePlanner): What is written of the state. See Note [Planners].
        process_group (ProcessGroup): The ranks; the default group without it.
        no_dist (bool): Whether this process writes all by itself.
    """
    folder = folder_of("checkpoint.save", checkpoint_id, storage_writer)
    group = None if no_dist else _group(process_group)
    planner = known("checkpoint.save", planner, DefaultSavePlanner)
    if isinstance(storage_writer, HuggingFaceStorageWriter):
        changed = overrides(planner, DefaultSavePlanner, ("resolve_data", "lookup_object"))
        if changed:
            raise RushlightError(
                f"checkpoint.save: {type(planner).__name__} overrides {changed}, but a "
                "HuggingFaceStorageWriter writes whole tensors; override transform_object"
            )
        _write_whole(_asked(state_dict), folder, storage_writer, planner, group)
        return
    _save(_asked(state_dict), folder, planner, group, _number())


def _write_whole(
    state: dict[str, Any],
    folder: Path,
    writer: HuggingFaceStorageWriter,
    planner: DefaultSavePlanner,
    group: ProcessGroup | None,
) -> None:
    first = group is None or group.rank() == 0
    planner.set_up_planner(state, None, first)

    def resolved_as(name: str, whole: Tensor) -> Tensor:
        item = WriteItem(MetadataIndex(name), WriteItemType.TENSOR)
        return planner.transform_object(item, whole)

    with no_grad():
        hugging_face.write(
            flattened(planner.state_dict), folder, writer.numbers, first, resolved_as
        )
    if group is not None:
        barrier(group)


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    """`save`, by its older name.

    Args:
        state_dict (dict): The state.
        storage_writer (FileSystemWriter): The folder.
        process_group (ProcessGroup): The ranks.
        coordinator_rank (int): Has no effect.
        no_dist (bool): Whether this process writes all by itself.
        planner (DefaultSavePlanner): What is written of the state.
    """
    save(
        state_dict,
        storage_writer=storage_writer,
        planner=planner,
        process_group=process_group,
        no_dist=no_dist,
    )


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | Path | None = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
) -> Future[None]:
    """`save` in a thread, of copies made now; the future is set when the folder is whole.

    Args:
        state_dict (dict): The state, the same on all ranks; as in `save`.
        checkpoint_id (path): The folder, which is replaced where it exists.
        storage_writer (FileSystemWriter): The folder, in place of `checkpoint_id`.
        planner (DefaultSavePlanner): What is written of the copies.
        process_group (ProcessGroup): The ranks; the default group without it.
    """
    folder = folder_of("checkpoint.async_save", checkpoint_id, storage_writer)
    planner = known("checkpoint.async_save", planner, DefaultSavePlanner)
    group, number = _group(process_group), _number()
    with no_grad():
        kept = _copied(_asked(state_dict))
    future: Future[None] = Future()

    def run() -> None:
        try:
            _save(kept, folder, planner, group, number)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name="checkpoint").start()
    return future


def _asked(state: dict[str, Any]) -> dict[str, Any]:
    """The state, with that of the values that have one of their own."""
    return {
        key: value.state_dict() if isinstance(value, Stateful) else value
        for key, value in state.items()
    }


def _number() -> int:
    _Count.saves += 1
    return _Count.saves


def _copied(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_copied(value) for value in state)
    if isinstance(state, DTensor):
        return wrap(state._local_tensor.detach().cpu().clone(), state._layout)
    return state.detach().cpu().clone() if isinstance(state, Tensor) else state


class _Piece(NamedTuple):
    """A part of a tensor in a file: where it begins in each dimension, and its shape."""

    file: str
    start: list[int]
    shape: list[int]


def _pieces(name: str, value: DTensor, group: ProcessGroup | None) -> list[tuple[int, _Piece]]:
    """The parts of a DTensor, each with the rank that writes it."""
    layout = value._layout
    if any(placement.is_partial() for placement in layout.placements):
        raise RushlightError(f"checkpoint.save: {name} is a partial sum; redistribute it first")
    ranks = layout.mesh.mesh.reshape(-1).tolist()
    found: dict[tuple[int, ...], tuple[int, _Piece]] = {}
    for rank, place in zip(ranks, product(*map(range, layout.mesh.shape)), strict=True):
        pieces = layout.pieces(place)
        start, shape = [p.start for p in pieces], [p.length for p in pieces]
        writer = rank if group is None else group.index(rank)
        if all(shape):
            made = _Piece(f"part{writer}.safetensors", start, shape)
            found.setdefault(tuple(start), (writer, made))
    return list(found.values())


def _save(
    state: dict[str, Any],
    folder: Path,
    planner: DefaultSavePlanner,
    group: ProcessGroup | None,
    number: int,
) -> None:
    """See Note [Checkpoint folders]."""
    rank, size = (0, 1) if group is None else (group.rank(), group.size())
    planner.set_up_planner(state, None, rank == 0)
    leaves = flattened(planner.state_dict)
    tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
    cut = {n: _pieces(n, t, group) for n, t in tensors.items() if isinstance(t, DTensor)}
    sizes = {n: t.numel() * t.element_size() for n, t in tensors.items() if n not in cut}
    owner = shares(sizes, size)
    made = folder.with_name(f"{folder.name}.unfinished")
    step = _Steps(group, f"checkpoint/{number}/", rank, size)
    problem = ""
    if rank == 0:
        problem = _tried(rank, lambda: _begin(made))
    _check(folder, step.from_first("begun", problem))
    mine = [name for name in owner if owner[name] == rank]
    mine += [n for n, pieces in cut.items() if rank in [writer for writer, _ in pieces]]

    def write_own() -> None:
        own = {name: _resolved(planner, name, tensors[name]) for name in mine}
        save_file(own, made / f"part{rank}.safetensors")

    problem = _tried(rank, write_own)
    problem = step.to_first("written", problem)
    if rank == 0 and not problem:
        files = {name: f"part{writer}.safetensors" for name, writer in owner.items()}
        index = {
            "ranks": size,
            "tensors": files,
            "parts": {name: [piece for _, piece in pieces] for name, pieces in cut.items()},
            "shapes": {name: list(tensor.shape) for name, tensor in tensors.items()},
        }
        rest = [name for name in leaves if name not in tensors]
        problem = _tried(
            rank, lambda: _end(made, folder, index, {name: _value(planner, name) for name in rest})
        )
    _check(folder, step.from_first("whole", problem))


def _resolved(planner: DefaultSavePlanner, name: str, value: Tensor) -> Tensor:
    """A tensor as it is written, in the shape that the index tells."""
    part = value._local_tensor if isinstance(value, DTensor) else value
    kind = WriteItemType.SHARD if isinstance(value, DTensor) else WriteItemType.TENSOR
    found = planner.resolve_data(WriteItem(MetadataIndex(name), kind))
    if not isinstance(found, Tensor) or found.shape != part.shape:
        raise RushlightError(
            f"{type(planner).__name__}.resolve_data must give {name} as a tensor of shape "
            f"{list(part.shape)}, got {found!r:.80}"
        )
    return found.detach().contiguous()


def _value(planner: DefaultSavePlanner, name: str) -> Any:
    """A number or a string, from the bytes that the planner gives."""
    found: Any = planner.resolve_data(WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO))
    if not isinstance(found, io.BytesIO):
        return found
    found.seek(0)
    return read(found, weights_only=False)  # bytes of this process


def _begin(made: Path) -> None:
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)


def _end(made: Path, folder: Path, index: dict[str, Any], rest: dict[str, Any]) -> None:
    """Write what is left, and give the folder its name."""
    (made / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True))
    write(rest, made / REST)
    if folder.exists() and _exchanged(made, folder):
        shutil.rmtree(made, ignore_errors=True)
        return
    before = folder.with_name(f"{folder.name}.replaced")
    shutil.rmtree(before, ignore_errors=True)
    if folder.exists():
        folder.rename(before)
    made.rename(folder)
    shutil.rmtree(before, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the system exchanged two names at once, so that neither was missing meanwhile."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        exchange = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return exchange(here, os.fsencode(one), here, os.fsencode(other), swap) == 0


def _tried(rank: int, act: Callable[[], Any]) -> str:
    """What went wrong, for all ranks; nothing where all went well."""
    try:
        act()
    except Exception as error:
        return f"rank {rank}: {error!r}"
    return ""


def _check(folder: Path, problem: str) -> None:
    if problem:
        raise RushlightError(f"checkpoint.save: {folder} was not written: {problem}")


class _Steps:
    """Ranks that wait for one another by the store, and tell what went wrong."""

    def __init__(self, group: ProcessGroup | None, prefix: str, rank: int, size: int) -> None:
        self.store: Store | None = None
        if group is not None and size > 1:
            self.store = WorldStore(group.world.watch, prefix + group.group_name, group.timeout)  # type: ignore[arg-type]
        self.rank, self.size = rank, size

    def from_first(self, word: str, problem: str) -> str:
        """Rank 0's problem, on all; everybody goes on when rank 0 has come here."""
        if self.store is None:
            return problem
        if self.rank == 0:
            self.store.set(word, problem)
        return self.store.get(word).decode()

    def to_first(self, word: str, problem: str) -> str:
        """The first rank's that has one, on rank 0, which goes on when everybody has come here."""
        if self.store is None:
            return problem
        self.store.set(f"{word}{self.rank}", problem)
        if self.rank:
            return problem
        told = [self.store.get(f"{word}{rank}").decode() for rank in range(self.size)]
        return next(filter(None, told), "")


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | Path | None = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fill a state from a folder; it need not have been written by as many ranks.

    Args:
        state_dict (dict): Its tensors are written to, its numbers and strings replaced. A value
            with `state_dict` and `load_state_dict` takes its state.
        checkpoint_id (path): The folder.
        storage_reader (FileSystemReader): The folder, in place of `checkpoint_id`.
        planner (DefaultLoadPlanner): Whether keys may be missing in the folder, and where what is
            read goes. See Note [Planners].
        process_group: Has no effect: every rank reads what it needs.
        no_dist (bool): Has no effect.
    """
    asked = _asked(state_dict)
    folder = folder_of("checkpoint.load", checkpoint_id, storage_reader)
    _load(asked, folder, known("checkpoint.load", planner, DefaultLoadPlanner))
    for key, value in state_dict.items():
        if isinstance(value, Stateful):
            value.load_state_dict(asked[key])
        else:
            state_dict[key] = asked[key]


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    """`load`, by its older name.

    Args:
        state_dict (dict): The state.
        storage_reader (FileSystemReader): The folder.
        process_group (ProcessGroup): The ranks.
        coordinator_rank (int): Has no effect.
        no_dist (bool): Has no effect.
        planner (DefaultLoadPlanner): Whether keys may be missing in the folder.
    """
    load(state_dict, storage_reader=storage_reader, planner=planner)


def _read_index(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The index of a folder, and what is no tensor."""
    if (folder / INDEX).exists():
        return json.loads((folder / INDEX).read_text()), read(folder / REST)
    if any(folder.glob("*.safetensors")) and not (folder / "part0.safetensors").exists():
        return hugging_face.index_of(folder), {}
    raise RushlightError(f"checkpoint.load: {folder} is no whole checkpoint: no {INDEX}")


def _load(state_dict: dict[str, Any], folder: Path, planner: DefaultLoadPlanner) -> None:
    index, rest = _read_index(folder)
    shapes: dict[str, Size | None] = {name: Size(shape) for name, shape in index["shapes"].items()}
    planner.loaded = {}
    planner.set_up_planner(state_dict, Metadata(shapes | dict.fromkeys(rest)), _is_first())
    wanted = flattened(planner.state_dict)
    missing = sorted(name for name in wanted if name not in shapes and name not in rest)
    if missing and planner.allow_partial_load:
        wanted = {name: leaf for name, leaf in wanted.items() if name not in missing}
    elif missing:
        raise KeyError(f"checkpoint.load: {folder} has no {', '.join(missing)}")
    files: dict[str, list[tuple[str, _Piece]]] = {}
    values = []
    for name, leaf in wanted.items():
        if isinstance(leaf, Tensor):
            for piece in _saved_pieces(name, leaf, index, folder):
                files.setdefault(piece.file, []).append((name, piece))
        elif name not in rest:
            raise RushlightError(f"checkpoint.load: {name} is a tensor in {folder}")
        else:
            values.append(name)
    with no_grad():
        for file, inside in files.items():
            found = load_file(folder / file, "cpu")
            for name, piece in inside:
                _copy_common(planner, name, wanted[name], found[name], piece)
    for name in values:
        where, stream = MetadataIndex(name), io.BytesIO()
        write(rest[name], stream)
        stream.seek(0)
        item = ReadItem(LoadItemType.BYTE_IO, where, Size([0]), where, Size([0]), Size([0]))
        planner.load_bytes(item, stream)
    _replaced(planner.original_state_dict, planner.loaded, "")


def _is_first() -> bool:
    group = default_group()
    return group is None or group.rank() == 0


def _saved_pieces(name: str, leaf: Tensor, index: dict[str, Any], folder: Path) -> list[_Piece]:
    """Where a wanted tensor's elements are; a whole tensor is one piece."""
    shape = index["shapes"].get(name)
    if shape is None:
        raise RushlightError(f"checkpoint.load: {name} is no tensor in {folder}")
    if shape != list(leaf.shape):
        raise RushlightError(
            f"checkpoint.load: {name} has shape {shape}, wanted is {list(leaf.shape)}"
        )
    if name in index["tensors"]:
        found = [_Piece(index["tensors"][name], [0] * len(shape), shape)]
    else:
        found = [_Piece(*piece) for piece in index["parts"][name]]
    if not all(_is_plain(piece.file) for piece in found):
        raise RushlightError(f"checkpoint.load: {name} is in no file of {folder}")
    return found


def _copy_common(
    planner: DefaultLoadPlanner, name: str, target: Tensor, saved: Tensor, piece: _Piece
) -> None:
    """Copy what a saved piece and the wanted tensor, or this rank's part of it, have in common."""
    shape, first = list(target.shape), [0] * len(piece.shape)
    if isinstance(target, DTensor):
        parts = target._layout.pieces()
        shape, first = [part.length for part in parts], [part.start for part in parts]
    there, here, lengths = [], [], []
    for dim, (start, length) in enumerate(zip(piece.start, piece.shape, strict=True)):
        low = max(start, first[dim])
        high = min(start + length, first[dim] + shape[dim])
        if low >= high:
            return
        there.append(low - start)
        here.append(low - first[dim])
        lengths.append(high - low)
        saved = saved.narrow(dim, low - start, high - low)
    item = ReadItem(
        LoadItemType.TENSOR,
        MetadataIndex(name, Size(first)),
        Size(here),
        MetadataIndex(name, Size(piece.start)),
        Size(there),
        Size(lengths),
    )
    mine = planner.resolve_tensor(item)
    mine.detach().copy_(saved)
    planner.commit_tensor(item, mine)


def _is_plain(name: str) -> bool:
    """Whether a file of the index is in the folder itself."""
    return Path(name).name == name


def _replaced(state: Any, rest: dict[str, Any], path: str) -> Any:
    """A state with what was saved in the places of numbers and strings; dicts and lists change."""
    if not isinstance(state, (dict, list, tuple)):
        return state if isinstance(state, Tensor) else rest.get(path, state)
    items = state.items() if isinstance(state, dict) else enumerate(state)
    made = {
        key: _replaced(value, rest, f"{path}.{key}" if path else str(key)) for key, value in items
    }
    if isinstance(state, tuple):
        kind: Any = type(state)
        return kind(*made.values()) if hasattr(state, "_fields") else kind(made.values())
    for key, value in made.items():
        state[key] = value
    return state
