"""Memory that others than tensors look at: NumPy arrays and DLPack capsules.

# Note [Windows]
1. Who is given the address of a storage's bytes for longer than a call is given a `Window` to keep. It keeps the storage,
   and the storage knows of it for as long as somebody has it.
2. The block of a storage with a window is neither given back nor exchanged for a larger one: `check_closed` refuses.
3. `share_memory_` has to move the bytes. Then the windows keep the old block (`leave_behind`), and tensors and the others
   see memory of their own from there on.
4. Launches make no window. Who resizes or shares a tensor while another thread computes with it frees memory that is being
   read, as in PyTorch.
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
    """Refuse to move or free what somebody looks at. Who asks holds `replay.LOCK`."""
    if has_window(storage):
        raise RushlightError(
            f"{op}: a NumPy array or a DLPack capsule sees the memory, which must stay where it is; .clone() the tensor first"
        )


def leave_behind(storage: Storage) -> bool:
    """Have the windows, if there are any, keep the block that the storage is about to leave; whether they do.

    Who asks holds `replay.LOCK`, and gives the storage another block and counts that.
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
