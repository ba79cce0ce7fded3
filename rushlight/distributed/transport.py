"""What a transport does: it moves bytes between ranks, and each move can be waited for.

# Note [Sums of ranks]
1. A transport moves bytes and knows no dtype. Sums are made by the engine's own ops, on whichever
   device the tensors are, so every dtype works and no library chooses an order.
2. An all-reduce cuts the elements into one piece per rank. Each rank gets its piece of all others
   (`exchange`), combines them, and gives the result to all (`spread`): 2 (n - 1) / n of the bytes
   go over the link, and all ranks have the same bits.
3. The pieces are combined in one tree that follows from the number of ranks alone: the ranks
   [low, high) are the sum of [low, middle) and [middle, high). So 4 partial sums of 2 shards each
   and 8 shards give the same bits (Note [Shards]).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

MARK_BITS = 15
_NAP = 50e-6  # seconds


class Span(NamedTuple):
    """Bytes in memory; `owner` keeps them alive."""

    address: int
    nbytes: int
    owner: Any

    def part(self, start: int, count: int) -> Span:
        """`count` bytes from `start` on."""
        return Span(self.address + start, count, self.owner)


def below(rank: int, root: int, size: int) -> list[int]:
    """To whom a rank hands a broadcast on, by a binomial tree.

    Rank n, counted from the root, has it from n without its top bit.
    """
    place = (rank - root) % size
    targets = [place + (1 << bit) for bit in range(place.bit_length(), size.bit_length())]
    return [(n + root) % size for n in reversed(targets) if n < size]


class Moving(Protocol):
    """Bytes under way."""

    eager: float  # the share of `Pace.eager` during which it is tested without sleep

    def done(self) -> bool:
        """Whether they have arrived; asking moves them on."""
        ...

    def rest(self) -> None:
        """Sleep for a moment, or until they may have arrived."""
        ...


class Polled:
    """Bytes under way whose arrival nobody tells."""

    __slots__ = ()
    eager = 1.0

    def rest(self) -> None:
        """Sleep for a moment."""
        time.sleep(_NAP)


class Transport(Protocol):
    """Moves bytes between the ranks of one group. Addresses are the host's, or a device's."""

    name: str
    on_host: bool
    moves: bool  # False where bytes are counted only (Note [Planned ranks])
    shares: bool  # whether ranks of one host may share memory instead (Note [Arenas])

    def exchange(self, sent: Sequence[Span], received: Sequence[Span], mark: int) -> Moving:
        """The n-th span goes to rank n, and rank n's comes into the n-th; spans may be empty.

        Messages with other marks (of `MARK_BITS`) do not come in.
        """
        ...

    def spread(self, sent: Span, received: Sequence[Span], mark: int) -> Moving:
        """One span goes to all; rank n's comes into the n-th, which lie side by side."""
        ...

    def broadcast(self, span: Span, root: int, mark: int) -> Moving:
        """The root's bytes come to all."""
        ...

    def send(self, span: Span, to: int, tag: int) -> Moving:
        """Bytes for one rank."""
        ...

    def receive(self, span: Span, source: int, tag: int) -> Moving:
        """Bytes of one rank; -1 is any."""
        ...

    def batch(self) -> AbstractContextManager[None]:
        """A block whose messages begin at its end, so that none waits for another one."""
        ...

    def subset(self, ranks: Sequence[int], number: int) -> Transport:
        """The same between some of the ranks, which all make this call."""
        ...

    def close(self) -> None:
        """Give back what the group held."""
        ...
