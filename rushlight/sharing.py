"""Host memory shared between processes: `share_memory_`, and sending shared tensors.

# Note [Shared memory]
1. A storage keeps its identity, so every tensor over it uses the shared block after the move. Its
   `blocks`, to which a block returns from its last holder, is the `Shared` itself, which unmaps it.
   The block counts as held by the pool, like any other.
2. A forked child has the mapping already. To any other child, or through a queue, the file
   descriptor is sent, and the tensor with its layout; memory that is not shared is copied, as in a
   pickle.
3. There is no synchronisation between processes: a read during another's write sees what the
   hardware gives, as in PyTorch.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from rushlight import interop
from rushlight.core.dtypes import DType
from rushlight.core.errors import BoundsError, DeviceError, RushlightError
from rushlight.devices.shared.allocator import Lent, Pool, Storage
from rushlight.devices.shared.registry import kind_of, pool_of
from rushlight.ops.create import creation
from rushlight.tape.memory import replay
from rushlight.tape.memory.windows import leave_behind
from rushlight.tape.record import call
from rushlight.tape.record.state import impure
from rushlight.tape.record.value import Leaf, Value
from rushlight.tensor import Tensor


class Shared:
    """One mapped block that processes share; used as a storage's list of free blocks."""

    __slots__ = ("address", "descriptor", "mapped", "pool", "room")

    def __init__(self, pool: Pool, descriptor: int, room: int) -> None:
        self.pool = pool
        self.descriptor = descriptor
        self.room = room
        self.mapped = mmap.mmap(descriptor, room)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.mapped))
        pool.lend(self.address, room)

    def append(self, address: int) -> None:
        """The last holder is gone: return the block to the system, not to the pool."""
        self.pool.held -= self.room
        self.close()

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self.pool.take_back(self.address, self.room)
            self.mapped.close()


class Owner:
    """Holds a block of memory that was borrowed before it was shared."""

    __slots__ = ("block",)

    def __init__(self, block: Shared) -> None:
        self.block = block

    def __del__(self) -> None:
        self.block.close()


def _descriptor(room: int) -> int:
    if sys.platform == "win32":
        raise RushlightError(
            "share_memory_: sharing memory between processes needs a Unix system; send a copy "
            "instead"
        )
    if sys.platform == "linux":
        made = os.memfd_create("rushlight", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        made, path = tempfile.mkstemp(prefix="rushlight")
        os.unlink(path)
    os.ftruncate(made, room)
    # A process that truncated the file would kill every reader.
    if sys.platform == "linux":
        import fcntl  # which Windows lacks

        fcntl.fcntl(
            made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
    return made


def block_of(storage: Storage) -> Shared | None:
    """The shared block of a storage, or None."""
    if isinstance(storage, Lent):
        return storage.owner.block if isinstance(storage.owner, Owner) else None
    found: Any = storage.blocks
    return found if isinstance(found, Shared) else None


def share(storage: Storage) -> None:
    """Move a storage's bytes to a block that other processes can map."""
    pool: Any = storage.pool
    if not pool.device.limits.host_memory:
        raise DeviceError(
            f"share_memory_: memory of {pool.device.name} cannot be seen by other processes; move "
            "the tensor with .to('cpu')"
        )
    if block_of(storage) is not None:
        return
    impure()
    ForkingPickler.register(Tensor, _reduced)
    with replay.LOCK, replay.Pins([storage]):
        old, room = replay.keep(storage), storage.room
        replay.before_write(storage)
        block = Shared(pool, _descriptor(room), room)
        ctypes.memmove(block.address, old, room)
        if isinstance(storage, Lent):
            leave_behind(storage)
            pool.take_back(old, room)
            pool.lend(block.address, room)
            storage.address, storage.owner = block.address, Owner(block)
            return
        stays = leave_behind(storage)
        pool.held += room
        storage.address, storage.blocks = block.address, block  # type: ignore[assignment]
        if stays:
            pool.live += room
        else:
            pool.blocks(room).append(old)


def _reduced(tensor: Tensor) -> Any:
    """A shared tensor as a message to another process; any other is pickled."""
    block = None if tensor.layout is not creation.strided else block_of(tensor._memory)
    if block is None:
        return tensor.__reduce__()
    spec = tensor._spec
    leaf = type(tensor._node) is Leaf
    given = (
        DupFd(block.descriptor),
        block.room,
        spec.dtype,
        spec.shape,
        spec.strides,
        tensor._offset,
        leaf,
    )
    return received, given, interop.noted(tensor)


def _mapped(pool: Pool, descriptor: int, room: int) -> Shared:
    """The block behind a descriptor.

    a file shorter than announced is refused: reading its end would kill the process.
    """
    try:
        if room <= 0 or os.fstat(descriptor).st_size < room:
            raise BoundsError(
                f"a shared tensor: its memory has fewer than the {room} bytes that were said"
            )
        return Shared(pool, descriptor, room)
    except BaseException:
        os.close(descriptor)
        raise


def received(
    descriptor: Any,
    room: int,
    dtype: DType,
    shape: Any,
    strides: Any,
    offset: int,
    requires_grad: bool,
) -> Value:
    """The tensor that another process sent, in shared memory.

    Its layout must lie inside the file.
    """
    ForkingPickler.register(Tensor, _reduced)
    pool: Any = pool_of("cpu")
    spec = interop.pickled_spec(pool, dtype, shape, strides, offset, room)
    block = _mapped(pool, descriptor.detach(), room)
    storage = call.new(Storage)
    storage.address, storage.pool, storage.room = block.address, pool, room
    storage.blocks = block  # type: ignore[assignment]
    storage.version, storage.recipe = 0, None
    pool.held += room
    pool.live += room
    return creation.requiring(call.rooted(call.lay(spec, storage, offset)), requires_grad)


def share_memory_(self: Any) -> Any:
    """Move the memory of this tensor, and of all that share it, to shared memory."""
    if not kind_of(creation.device_name(self.device)).shared:
        share(self._memory)
    return self


def is_shared(self: Any) -> bool:
    """Whether other processes can map the memory."""
    return kind_of(creation.device_name(self.device)).shared or block_of(self._memory) is not None
