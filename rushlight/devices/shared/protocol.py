"""What a device is: ten members, the limits being plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rushlight.core.dtypes import DType, bfloat16
from rushlight.kernel.shapes import Convolve, Kernel, Map, Rowwise

Launch = Callable[..., None]  # see Note [Kernel arguments]
Tell = Callable[..., None]  # tell(found, *numbers); see Note [Anomaly kernels]
# join(blocks, nbytes): a block of `nbytes` in place of these, each an address and its size. What
# they lack is new memory, and what the last has beyond it is freed. A block that is used up leaves
# the list. Raises OutOfMemoryError. A device that joins frees any whole pages of a block of PAGED
# bytes or more, also those of neighbours, and tells them by their address from smaller blocks.
Join = Callable[[list[tuple[int, int]], int], int]

# lists(kernel): the acts of one kernel over a list of items; see Note [Lists of operands].
Lists = Callable[[Map | Rowwise], "ListActs"]


class Marks(Protocol):
    """The times of launches on an asynchronous device; made by `Limits.marks` for one profile.

    # Note [Marks]
    1. `begin` and `end` enclose a launch of the calling thread; launches may be nested. Neither
       waits for the device, unless more marks are pending than it keeps. `begin` gives the launch's
       index in what `read` will give.
    2. `read` waits for the device and gives, for every begun launch in order, the seconds of its
       begin and its end on `time.perf_counter`; None where nothing ran. What it gave is forgotten.
    3. `close` ends the profile.
    """

    means: str  # how times are measured, in words

    def begin(self) -> int: ...

    def end(self) -> None: ...

    def read(self) -> list[tuple[float, float] | None]: ...

    def close(self) -> None: ...


class Driver(Protocol):
    """What blocks come from, and what may hold more than they have."""

    def reserved(self) -> int:
        """The bytes that it holds for this process's blocks."""

    def shrink(self) -> None:
        """Give all that is in no block back to the system, after all work."""


class ListActs(Protocol):
    """A built kernel over a list of operands.

    # Note [Lists of operands]
    A device whose limits have `lists` runs a flat Map, or a Rowwise of one row along its axis whose
    passes do not use each other and that stores rows only, over many operands at once. An item is
    the addresses of a launch and its length. A call gives acts, tuples (builtin function, *args):
    as few launches as the device can, and what is not in an item's launch is equal for all. Nothing
    has run before the acts are called. Items are independent; a map's bits are those of single
    launches, a fold's order is fixed by the item's length.
    """

    def __call__(
        self, items: Sequence[tuple[int, ...]], params: Sequence[float]
    ) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True)
class Kind:
    """Facts of a device without its hardware: `KIND` in the folder's `__init__`."""

    computes: bool = True  # False: nothing runs, so there are no values
    public: bool = True  # False: for tests and estimates, not listed for users
    rank: int = 0  # accelerators: the available one with the highest rank is chosen; 0: none
    autocast: DType = bfloat16  # the type that autocast chooses
    dlpack: tuple[int, ...] = ()  # DLPack's numbers for its memory; the first is given to others
    captures: bool = False  # launches can be recorded in a graph and launched again
    shared: bool = False  # other processes see its memory where it is
    several: bool = False  # there may be others than number 0: Note [Numbered devices]


@dataclass(frozen=True)
class Limits:
    """What a device can do, as data: nobody asks for a device's class."""

    dtypes: tuple[DType, ...]
    host_memory: bool  # addresses are readable by the host
    asynchronous: bool  # launches return before the work is done
    largest_block: int  # bytes of one allocation
    description: str  # adapter, driver, features: for people
    # What of Convolve it builds, and that is faster than windows. With "back" these are "image" and
    # "weights" too, for all floats and numbers of dimensions; without, two dimensions of float32.
    convolves: tuple[str, ...] = ()
    # The least bytes that a launch of Convolve takes from the pool, of the numbers after the
    # addresses; None: they are not told.
    least_scratch: Callable[[Convolve, Sequence[int]], int] | None = None
    # The types for which it builds Attend, and the widest head of each.
    attends: tuple[tuple[DType, int], ...] = ()
    # The scores of a head above which tiles of products are better, forward and backward.
    attends_most: tuple[int, int] | None = None
    attends_dense: bool = False  # Attend needs features that lie side by side
    cells: tuple[DType, ...] = ()  # the types for which it builds Cell
    adds: tuple[DType, ...] = ()  # the types for which it builds Contract with `added`
    sorts: bool = False  # it builds Sort and Search as one kernel each; else they are composed
    computes: bool = True  # False: nothing runs, so there are no values to check
    software: bool = False  # runs on the host's processor, so it is no accelerator
    stands_for_host: bool = False  # a stand-in of a device with host memory
    own: int = 0  # bytes that it takes for itself when it is opened
    join: Join | None = None  # None: a block is allocated and freed as a whole
    steps: Callable[[Any], None] | None = None  # told of each step in a limit: Note [Layout]
    driver: Driver | None = None  # None: nobody holds more than the blocks
    lists: Lists | None = None  # None: a launch for each item
    marks: Callable[[], Marks] | None = None  # None: it has no clock of its own: Note [Marks]
    remembers: bool = False  # launches cost less at addresses that it has seen together
    # Copies beside the kernels, and pinned memory (Note [Streams]); None: copies are synchronous.
    queues: Any = None


class Device(Protocol):
    """An emitter, a compiler and a memory.

    Addresses are integers; adding a byte offset to one gives an address inside the same block. Work
    is done in the order of the calls. `launch` of DESIGN is the callable that `build` returns.

    # Note [Status words]
    A kernel that meets a bad index cannot raise. It sets a status word, which belongs to one label
    (the op's name). A synchronous device's ops read it after each launch; an asynchronous device
    reads all words in use when it synchronizes or copies out, clears them, and raises IndexError
    naming the label.
    """

    name: str
    limits: Limits

    def emit(self, kernel: Kernel) -> str:
        """The kernel's source text, for people and for `build`."""

    def build(self, kernel: Kernel, tell: Tell | None = None) -> Launch:
        """A callable for the kernel. The caller caches builds; a disk cache is the device's own.

        `tell` comes with a kernel with anomaly checks, on a synchronous device only:
        Note [Anomaly kernels].
        """

    def alloc(self, nbytes: int) -> int:
        """The address of a new block, aligned to 64 bytes. Raises OutOfMemoryError."""

    def free(self, address: int, nbytes: int) -> None:
        """Free a block; pending work that uses it still completes."""

    def copy_in(self, address: int, source: memoryview) -> None:
        """Copy host bytes to the device; the source may be reused when this returns."""

    def copy_out(self, address: int, target: memoryview) -> None:
        """Copy device bytes into a writable host view, after all earlier work.

        Raises its pending errors.
        """

    def status_word(self, label: str) -> int:
        """The address of an int32, zero until a kernel sets it, kept for this label."""

    def synchronize(self) -> None:
        """Wait for all work; raise IndexError for a status word that was set."""
