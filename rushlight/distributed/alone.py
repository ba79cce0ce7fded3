"""The transport of a group of one process: bytes stay where they are."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence

from rushlight.distributed.errors import DistributedError
from rushlight.distributed.transport import Polled, Span


class _Done(Polled):
    """Nothing is under way."""

    def done(self) -> bool:
        return True


_DONE = _Done()


class Alone:
    """A group of one; it needs no library."""

    name = "mpi"
    on_host = True
    moves = True
    shares = False

    def exchange(self, sent: Sequence[Span], received: Sequence[Span], mark: int) -> _Done:
        ctypes.memmove(received[0].address, sent[0].address, received[0].nbytes)
        return _DONE

    def spread(self, sent: Span, received: Sequence[Span], mark: int) -> _Done:
        return self.exchange([sent], received, mark)

    def broadcast(self, span: Span, root: int, mark: int) -> _Done:
        return _DONE

    def send(self, span: Span, to: int, tag: int) -> _Done:
        raise DistributedError("send: there is one process, and no other to send to")

    def receive(self, span: Span, source: int, tag: int) -> _Done:
        raise DistributedError("recv: there is one process, and no other to receive from")

    def batch(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def subset(self, ranks: Sequence[int], number: int) -> Alone:
        return self

    def close(self) -> None:
        return None
