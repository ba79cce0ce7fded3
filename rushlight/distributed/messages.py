"""Messages from one rank to another: send, recv, and several of them together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.distributed.collectives import NonMember, shown, span, staged, write
from rushlight.distributed.counting import of as traffic_of
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.distributed.transport import Moving
from rushlight.distributed.waiting import Call, finish
from rushlight.distributed.work import Work
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


class Message(Work):
    """A message under way; it moves on when it is waited for, or asked about."""

    def __init__(self, group: ProcessGroup, name: str, moving: Moving, arrived: Any) -> None:
        super().__init__(self._arrive)
        self.group = group
        self.name = name
        self.moving = moving
        self.arrived = arrived

    def _arrive(self) -> None:
        world = self.group.world
        call = Call(self.name, self.group.group_name, self.group.ranks, 0)
        world.running[call.group] = call
        try:
            finish(self.moving, call, world.watch, self.group.timeout)
        finally:
            world.running.pop(call.group, None)
        self.source = getattr(self.moving, "source", -1)
        with no_grad():
            self.arrived()

    def wait(self, timeout: Any = None) -> bool:
        """Wait until it has arrived, or was taken."""
        if not self._ended.is_set():
            self._perform()
        return super().wait(timeout)

    def is_completed(self) -> bool:
        """Whether it has arrived, or was taken."""
        if not self._ended.is_set() and self.moving.done():
            self._perform()
        return self._ended.is_set()


def _nothing() -> None:
    return None


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Message | None:
    """Send a tensor to a rank; the elements must stay until the work has ended."""
    if isinstance(group, NonMember):
        return None
    pg = resolved(group)
    to = pg.index(dst or 0) if group_dst is None else pg.inside(group_dst)
    if to == pg.rank():
        raise ValueError("send: the destination is this rank itself")
    flat = staged(tensor, pg.transport)
    name = f"send of {shown(tensor)} to rank {pg.ranks[to]}"
    sent = span(flat)
    traffic = traffic_of("send")
    traffic.calls += 1
    traffic.count(sent.nbytes, 1)
    return Message(pg, name, pg.transport.send(sent, to, tag), _nothing)


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Message | None:
    """Receive a tensor from a rank; without one, from whichever sends first."""
    if isinstance(group, NonMember):
        return None
    pg = resolved(group)
    source = -1
    if group_src is not None or src is not None:
        source = pg.index(src or 0) if group_src is None else pg.inside(group_src)
    if source == pg.rank():
        raise ValueError("recv: the source is this rank itself")
    flat = staged(tensor, pg.transport)
    who = "any rank" if source < 0 else f"rank {pg.ranks[source]}"
    moving = pg.transport.receive(span(flat), source, tag)
    return Message(pg, f"recv of {shown(tensor)} from {who}", moving, lambda: write(tensor, flat))


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to a rank, and wait until it may be written to again."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor; the rank it came from, -1 where this process is not in the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source


class P2POp:
    """One message of `batch_isend_irecv`.

    Args:
        op (function): `isend` or `irecv`.
        tensor (Tensor): What is sent, or filled.
        peer (int): The other rank.
        group (ProcessGroup): The group; the default one without it.
        tag (int): Told apart by it.
    """

    def __init__(
        self,
        op: Callable[..., Message | None],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("P2POp: op is isend or irecv")
        pg = resolved(group)
        self.op = op
        self.tensor = tensor
        self.peer = pg.ranks[group_peer] if group_peer is not None else peer
        self.group = group
        self.tag = tag


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Message]:
    """Start several messages together, so that none waits for another."""
    order = sorted(range(len(p2p_op_list)), key=lambda n: p2p_op_list[n].op is isend)
    works: dict[int, Message | None] = {}
    with contextlib.ExitStack() as stack:
        for transport in {resolved(one.group).transport for one in p2p_op_list}:
            stack.enter_context(transport.batch())
        for n in order:  # receives first
            one = p2p_op_list[n]
            works[n] = one.op(one.tensor, one.peer, one.group, one.tag)
    return [work for n in range(len(p2p_op_list)) if (work := works[n]) is not None]
