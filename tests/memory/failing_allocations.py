"""The state after a call whose n-th allocation fails, for every n."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import pytest

from rushlight import OutOfMemoryError, memory
from rushlight.devices.shared.allocator import Pool


class Failing:
    """`Pool.fresh` that raises at its n-th call; 0: never, only counts."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = OutOfMemoryError
    ) -> None:
        self.at = 0
        self.calls = 0
        self.error = error
        fresh = Pool.fresh

        def failing(pool: Pool, room: int) -> int:
            self.calls += 1
            if self.calls == self.at:
                raise self.error("simulated")
            return fresh(pool, room)

        monkeypatch.setattr(Pool, "fresh", failing)

    def start(self, at: int) -> None:
        self.at = at
        self.calls = 0


def fail_at_every_allocation(
    failing: Failing,
    make: Callable[[], Any],
    act: Callable[[Any], Any],
    look: Callable[[Any], Any],
    device: str = "cpu",
    error: type[BaseException] = OutOfMemoryError,
) -> int:
    """Fail each allocation of `act(make())` in turn; the number of failures.

    After a failure `look` sees what it saw before; after another `act`, what it would have seen.
    """
    failing.start(0)
    thing = make()
    act(thing)
    want = look(thing)
    count = 0
    while True:
        failing.start(0)
        thing = make()
        before = look(thing)
        gc.collect()  # a model in a cycle would give its blocks back in the middle of the call
        memory.empty_cache(device)
        # Blocks that the call itself freed are taken again without failing.
        failing.start(count + 1)
        failed = True
        with contextlib.suppress(error):
            act(thing)
            failed = False
        failing.start(0)
        if not failed:
            assert look(thing) == want
            return count
        count += 1
        assert look(thing) == before, f"allocation {count} failed and something has changed"
        act(thing)
        assert look(thing) == want, (
            f"after allocation {count} failed, the same call again gives something else"
        )
