"""Bytes that collectives send: what a step costs on the link, counted by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar


@dataclass
class Traffic:
    """What this process sent in the calls of one collective.

    `sent` is bytes for other ranks, in so many `messages`. `rounds` is how often it waited for
    others, each time at least the link's latency. Ranks of one host that share memory count as
    those of several hosts.
    """

    calls: int = 0
    sent: int = 0
    rounds: int = 0
    messages: int = 0

    def count(self, nbytes: int, messages: int, rounds: int = 1) -> None:
        """Add bytes that were sent, and how often others were waited for."""
        self.sent += nbytes
        self.messages += messages
        self.rounds += rounds


class Counted:
    """The traffic of this process by collective, since it began or was forgotten."""

    by_name: ClassVar[dict[str, Traffic]] = {}


def of(name: str) -> Traffic:
    """Where a collective's calls are counted."""
    found = Counted.by_name.get(name)
    if found is None:
        found = Counted.by_name[name] = Traffic()
    return found


def traffic(reset: bool = False) -> dict[str, Traffic]:
    """Calls, bytes sent and rounds of each collective so far.

    Args:
        reset (bool): Whether counts begin at zero again.
    """
    found = {name: replace(one) for name, one in Counted.by_name.items()}
    if reset:
        Counted.by_name.clear()
    return found
