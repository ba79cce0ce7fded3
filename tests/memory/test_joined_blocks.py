"""Cached blocks are cut and joined: every part stays what the device can free. Note [Budget] 5."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable

import pytest

from rushlight import BudgetError, OutOfMemoryError
from rushlight.devices.shared.allocator import PAGE, PAGED, Pool, room_for
from rushlight.devices.shared.protocol import Limits


class Pages:
    """A device that has addresses only: small blocks are freed whole, large ones by pages.

    A small block begins no page, so parts of large ones are told from it.
    """

    name = "pages"

    def __init__(self) -> None:
        limits = Limits((), False, True, 1 << 40, "counts pages")
        self.limits = dataclasses.replace(limits, join=self.join)
        self.small: dict[int, int] = {}
        self.pages: set[int] = set()
        self.next = 0
        self.is_full = False

    def alloc(self, nbytes: int) -> int:
        if self.is_full:
            raise OutOfMemoryError("no pages are left")
        if nbytes < PAGED:
            start, self.next = self.next + 64, self.next + 2 * PAGE + PAGED
            self.small[start] = nbytes
            return start
        start, self.next = self.next, self.next + -(-nbytes // PAGE) * PAGE
        self.pages.update(range(start, self.next, PAGE))
        return start

    def free(self, address: int, nbytes: int) -> None:
        if address % PAGE:
            assert self.small.pop(address) == nbytes
            return
        pages = set(range(address, address + nbytes, PAGE))
        assert pages <= self.pages and not address % PAGE
        self.pages -= pages

    def join(self, blocks: list[tuple[int, int]], nbytes: int) -> int:
        made = self.alloc(nbytes)
        while blocks:
            self.free(*blocks.pop())
        return made

    @property
    def nbytes(self) -> int:
        return PAGE * len(self.pages) + sum(self.small.values())


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> tuple[Pool, Pages, Callable[[int | None], None]]:
    """A new pool, its device, and a function that sets its limit."""
    limits: list[int | None] = [None]
    monkeypatch.setattr(Pool, "bound", staticmethod(lambda _: limits[0]))

    def limit(nbytes: int | None) -> None:
        limits[0] = nbytes

    device = Pages()
    return Pool(device), device, limit  # type: ignore[arg-type]


def test_pages_that_could_not_be_joined_are_cached_as_they_were(limited):
    """For 72 pages all of the large block is taken, and 8 pages of the other."""
    pool, device, limit = limited
    taken = []
    for pages in (30, 64):
        taken.append((pool.take(pages * PAGE), pages * PAGE))
        device.next += PAGE  # they are no neighbours
    pool.give_all(taken)
    limit(pool.held)
    device.is_full = True
    with pytest.raises(OutOfMemoryError):
        pool.take(72 * PAGE)
    assert pool.held == pool.live == device.nbytes == 0


def test_a_request_for_a_part_of_a_page_cuts_no_page(limited):
    """As for the results of a call together: the part behind it would begin within a page."""
    pool, device, limit = limited
    pool.give_all([(pool.take(64 * PAGE), 64 * PAGE)])
    limit(pool.held)
    room = 2 * PAGED + 64
    address = pool.take(room)
    assert not any(at % PAGE for blocks in pool.free.values() for at in blocks)
    pool.give(address, room)
    pool.trim()
    assert pool.held == device.nbytes == 0


def test_a_larger_block_is_cut_without_a_search_among_addresses(limited, monkeypatch):
    """The smallest that suffices; a search takes as long as a small kernel."""
    pool, _, limit = limited
    blocks = {pages: pool.take(pages * PAGE) for pages in (16, 64, 40)}
    pool.give_all([(address, pages * PAGE) for pages, address in blocks.items()])
    limit(pool.held)
    monkeypatch.setattr(Pool, "_runs", None)
    assert pool.take(24 * PAGE) == blocks[40]
    assert pool.take(30 * PAGE) == blocks[64]


def test_no_blocks_are_searched_where_a_value_must_be_dropped(limited, monkeypatch):
    """All cached blocks together would not suffice."""
    pool, _, limit = limited
    kept = pool.take(32 * PAGE)
    pool.give_all([(pool.take(room), room) for room in (16 * PAGE, 20 * PAGE)])
    limit(pool.held)
    searched = []
    monkeypatch.setattr(Pool, "_runs", lambda pool, least: searched.append(least) or ({}, []))

    def reclaim(pool: Pool, room: int, handed: object) -> bool:
        assert not searched
        pool.give(kept, 32 * PAGE)
        return True

    pool.reclaim = reclaim
    assert pool.take(48 * PAGE) is not None


def test_any_order_of_requests_and_limits(limited):
    pool, device, limit = limited
    for seed in range(40):
        choose = random.Random(seed)
        taken: list[tuple[int, int]] = []
        limit(None)
        for _ in range(60):
            what = choose.random()
            if what < 0.15:
                limit(choose.choice([None, 3 << 20, 1 << 20, max(1, pool.live - (1 << 18))]))
            device.is_full = 0.15 < what < 0.25
            if taken and what > 0.6:
                pool.give(*taken.pop(choose.randrange(len(taken))))
                continue
            room = room_for(int(2 ** choose.uniform(8, 20)))
            with contextlib.suppress(BudgetError, OutOfMemoryError):
                taken.append((pool.take(room), room))
            assert pool.held == device.nbytes and pool.live == sum(room for _, room in taken)
        device.is_full = False
        pool.give_all(taken)
        pool.trim()
        assert pool.held == device.nbytes == 0
