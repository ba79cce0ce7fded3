"""Memory that is also used outside of tensors: NumPy arrays and DLPack capsules.

# Note [Windows]
1. Code that keeps the address of a storage's bytes for longer than a call keeps a `Window`. It
   keeps the storage, and the storage refers to it weakly.
2. The block of a storage with a window is neither freed nor exchanged for a larger one:
   `check_closed` refuses.
3. `share_memory_` has to move the bytes. Then the windows keep the old block (`leave_behind`), and
   tensors and the others use separate memory after that.
4. Launches make no window. Resizing or sharing a tensor while another thread computes with it frees
   memory that is being read, as in PyTorch.
"""

from __future__ import annotations

from rushlight.core.errors import RushlightError
from rushlight.devices.shared.allocator import Lent, Storage
from rushlight.tape.memory import replay
from rushlight.tape.memory.recipe import enter
from rushlight.tape.record.call import new


class Window:
    """The right to a storage's bytes at `address`. See Note [Windows]."""

    __slots__ = ("__weakref__", "address", "memory")

    def __init__(self, storage: Storage) -> None:
        with replay.LOCK:
            self.memory = storage
            self.address = replay.keep(storage)
            if getattr(storage, "windows", None) is None:
                storage.windows = {}
            enter(storage.windows, self)


def has_window(storage: Storage) -> bool:
    return bool(getattr(storage, "windows", None))


def check_closed(storage: Storage, op: str) -> None:
    """Refuse to move or free memory with a window. The caller holds `replay.LOCK`."""
    if has_window(storage):
        raise RushlightError(
            f"{op}: a NumPy array or a DLPack capsule sees the memory, which must stay where it "
            "is; .clone() the tensor first"
        )


def leave_behind(storage: Storage) -> bool:
    """Let the windows, if there are any, keep the block that the storage is about to leave.

    Whether they do. The caller holds `replay.LOCK`, and gives the storage another block and counts
    that.
    """
    if not has_window(storage):
        return False
    old: Storage
    assert storage.address is not None
    if isinstance(storage, Lent):
        old = Lent(storage.pool, storage.address, storage.room, storage.owner)
    else:
        old = new(Storage)
        old.blocks, old.pool, old.room, old.version, old.recipe = (
            storage.blocks,
            storage.pool,
            storage.room,
            0,
            None,
        )
        old.address = storage.address
    old.windows, storage.windows = storage.windows, {}
    for reference in list(old.windows.values()):
        window = reference()
        if window is not None:
            window.memory = old
    return True
