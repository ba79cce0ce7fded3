"""Storages whose owner frees the block for a time and brings the same bits back.

# Note [Vacant storages]
1. `vacate` frees the block of a plain storage; records and recipes go on referring to the storage.
   Until `occupy` gives it a block again, a read of it raises.
2. The owner promises the same bits, so the version stays, nothing is rebuilt before, and saves and
   recipes are valid again. For other bits it takes another storage.
"""

from __future__ import annotations

from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory.region import drop
from rushlight.tape.memory.replay import LOCK, Pins, keep
from rushlight.tape.memory.windows import check_closed


def is_vacant(storage: Storage) -> bool:
    """Whether the storage has no block."""
    return storage.recipe is None and storage.address is None


def vacate(storage: Storage) -> None:
    """Free the block of a storage. See Note [Vacant storages]."""
    with LOCK, Pins([storage]):
        check_closed(storage, "reshard")
        keep(storage)
        drop(storage)


def occupy(storage: Storage, made: Storage) -> None:
    """Give a vacant storage the block of another one, which nobody else has."""
    with LOCK:
        keep(made)
        assert is_vacant(storage) and storage.pool is made.pool and storage.room == made.room
        storage.address, made.address = made.address, None
