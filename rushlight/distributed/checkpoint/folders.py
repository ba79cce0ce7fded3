"""Checkpoints of many ranks, which any number of ranks reads.

# Note [Checkpoint folders]
1. A state is a nest of dicts, lists, tensors, numbers and strings, the same on all ranks. Tensors
   are named by their path in it ("model.layer.weight") and shared out by bytes: each rank writes
   its own file, `part<rank>.safetensors`.
2. `index.json` tells the file of each tensor. Rank 0 writes it, and `rest.pt` with what is no
   tensor.
3. The folder is written under another name and renamed when all ranks are done, so a folder with
   the given name is whole. Ranks tell one another by the store, not by collectives: an asynchronous
   save must not come between those of a step.
4. `load` fills the tensors of a given state, whatever number of ranks wrote it, and replaces
   numbers and strings.
"""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

from rushlight.compat.futures import Future
from rushlight.core.errors import RushlightError
from rushlight.distributed.process_groups import ProcessGroup, default_group, resolved
from rushlight.distributed.store import Store
from rushlight.io import load as read, load_file, save as write, save_file
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

INDEX, REST = "index.json", "rest.pt"


class _Count:
    """How many saves this process began, so that ranks speak of the same one."""

    saves = 0


def flattened(state: Any, path: str = "") -> dict[str, Any]:
    """Every leaf by its path."""
    if isinstance(state, dict):
        items = [(str(key), value) for key, value in state.items()]
    elif isinstance(state, (list, tuple)):
        items = [(str(n), value) for n, value in enumerate(state)]
    else:
        return {path: state}
    found: dict[str, Any] = {}
    for key, value in items:
        found.update(flattened(value, f"{path}.{key}" if path else key))
    return found


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
    checkpoint_id: str | Path,
    process_group: Any = None,
) -> None:
    """Write a state, each rank a part of it; all ranks make this call.

    Args:
        state_dict (dict): The state, the same on all ranks.
        checkpoint_id (path): The folder, which is replaced where it exists.
        process_group (ProcessGroup): The ranks; the default group without it.
    """
    _save(state_dict, Path(checkpoint_id), _group(process_group), _number())


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | Path,
    process_group: Any = None,
) -> Future[None]:
    """`save` in a thread, of copies made now; the future is set when the folder is whole.

    Args:
        state_dict (dict): The state, the same on all ranks.
        checkpoint_id (path): The folder, which is replaced where it exists.
        process_group (ProcessGroup): The ranks; the default group without it.
    """
    group, number = _group(process_group), _number()
    with no_grad():
        kept = _copied(state_dict)
    future: Future[None] = Future()

    def run() -> None:
        try:
            _save(kept, Path(checkpoint_id), group, number)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name="checkpoint").start()
    return future


def _number() -> int:
    _Count.saves += 1
    return _Count.saves


def _copied(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_copied(value) for value in state)
    return state.detach().cpu().clone() if isinstance(state, Tensor) else state


def _save(state: dict[str, Any], folder: Path, group: ProcessGroup | None, number: int) -> None:
    """See Note [Checkpoint folders]."""
    rank, size = (0, 1) if group is None else (group.rank(), group.size())
    leaves = flattened(state)
    tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
    sizes = {name: t.numel() * t.element_size() for name, t in tensors.items()}
    owner = shares(sizes, size)
    made = folder.with_name(f"{folder.name}.unfinished")
    step = _Steps(group, f"checkpoint/{number}/", rank, size)
    if rank == 0:
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
    step.all_after_first("begun")
    own = {name: tensors[name].detach().contiguous() for name in owner if owner[name] == rank}
    save_file(own, made / f"part{rank}.safetensors")
    step.first_after_all("written")
    if rank == 0:
        files = {name: f"part{writer}.safetensors" for name, writer in owner.items()}
        index = {"ranks": size, "tensors": files}
        (made / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True))
        write({n: leaf for n, leaf in leaves.items() if n not in tensors}, made / REST)
        before = folder.with_name(f"{folder.name}.replaced")
        shutil.rmtree(before, ignore_errors=True)
        if folder.exists():
            folder.rename(before)
        made.rename(folder)
        shutil.rmtree(before, ignore_errors=True)
    step.all_after_first("whole")


class _Steps:
    """Ranks that wait for one another by the store."""

    def __init__(self, group: ProcessGroup | None, prefix: str, rank: int, size: int) -> None:
        self.store: Store | None = None
        if group is not None and size > 1:
            self.store = Store(group.world.watch, prefix + group.group_name, group.timeout)  # type: ignore[arg-type]
        self.rank, self.size = rank, size

    def all_after_first(self, word: str) -> None:
        """Everybody goes on when rank 0 has come here."""
        if self.store is not None:
            if self.rank == 0:
                self.store.set(word, "")
            self.store.wait([word])

    def first_after_all(self, word: str) -> None:
        """Rank 0 goes on when everybody has come here."""
        if self.store is not None:
            self.store.set(f"{word}{self.rank}", "")
            if self.rank == 0:
                self.store.wait([f"{word}{rank}" for rank in range(self.size)])


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | Path,
    process_group: Any = None,
) -> None:
    """Fill a state from a folder; it need not have been written by as many ranks.

    Args:
        state_dict (dict): Its tensors are written to, its numbers and strings replaced.
        checkpoint_id (path): The folder.
        process_group: Has no effect: every rank reads what it needs.
    """
    folder = Path(checkpoint_id)
    if not (folder / INDEX).exists():
        raise RushlightError(f"checkpoint.load: {folder} is no whole checkpoint: no {INDEX}")
    index = json.loads((folder / INDEX).read_text())["tensors"]
    rest = read(folder / REST)
    wanted = flattened(state_dict)
    missing = sorted(name for name in wanted if name not in index and name not in rest)
    if missing:
        raise KeyError(f"checkpoint.load: {folder} has no {', '.join(missing)}")
    names: dict[str, list[str]] = {}
    for name, leaf in wanted.items():
        if isinstance(leaf, Tensor):
            if name not in index or not _is_plain(index[name]):
                raise RushlightError(f"checkpoint.load: {name} is no tensor in {folder}")
            names.setdefault(index[name], []).append(name)
    with no_grad():
        for file, inside in names.items():
            found = load_file(folder / file, "cpu")
            for name in inside:
                if found[name].shape != wanted[name].shape:
                    raise RushlightError(
                        f"checkpoint.load: {name} has shape {list(found[name].shape)}, wanted is "
                        f"{list(wanted[name].shape)}"
                    )
                wanted[name].detach().copy_(found[name])
    _replace(state_dict, rest, "")


def _is_plain(name: str) -> bool:
    """Whether a file of the index is in the folder itself."""
    return Path(name).name == name


def _replace(state: Any, rest: dict[str, Any], path: str) -> None:
    items = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in list(items):
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, (dict, list)):
            _replace(value, rest, name)
        elif not isinstance(value, (Tensor, tuple)) and name in rest:
            state[key] = rest[name]
