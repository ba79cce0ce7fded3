"""Operands at addresses that a library does not take: copies for the time of a launch.

So which algorithm runs, and with it the bits of a result, does not depend on addresses.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.devices.cuda.driver import DEFAULT_STREAM, Session
from rushlight.devices.shared.allocator import Pool, Scratch, room_for

ALIGNMENT = 16


class Aligned:
    """`with Aligned(pool, session, addresses, spans, outputs) as places:` operands at multiples.

    `spans` are their bytes. The first `outputs` of them are written; they do not overlap.
    """

    def __init__(
        self,
        pool: Pool,
        session: Session,
        addresses: Sequence[int],
        spans: Sequence[int],
        outputs: int,
    ) -> None:
        self.session, self.addresses, self.spans, self.outputs = session, addresses, spans, outputs
        odd = [n for a, n in zip(addresses, spans, strict=True) if a % ALIGNMENT]
        self.scratch = Scratch(pool, *map(room_for, odd))

    def __enter__(self) -> list[int]:
        free = self.scratch.__enter__()
        self.places = [free.pop(0) if a % ALIGNMENT else a for a in self.addresses]
        self.session.await_arrival()
        # What lies between a result's elements is copied there and back.
        for place, address, span in zip(self.places, self.addresses, self.spans, strict=True):
            self._copy(place, address, span)
        return self.places

    def __exit__(self, *raised: object) -> None:
        made = list(zip(self.addresses, self.places, self.spans, strict=True))[: self.outputs]
        try:
            for address, place, span in made if raised[0] is None else ():
                self._copy(address, place, span)
        finally:
            self.scratch.__exit__()

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        if target != source:
            runtime = self.session.runtime
            kind = runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(target, source, nbytes, kind, DEFAULT_STREAM)
