"""The order of a recurrent layer's steps, in chunks.

# Note [Recurrent chunks]
1. Rows lie step by step. Steps run in time, or against it (`reverse`); a chunk is a run of them,
   whose rows lie together. Its gates have at most `CHUNK` bytes, or it is one step.
2. The inputs' part of a chunk's gates is one product, and so is a chunk's part of each gradient of
   weights and inputs. Sums over chunks run from the last chunk to the first.
3. The states before a chunk (`starts`) are saved. From them a chunk can be run again by the same
   launches, so that the backward pass needs the gates of one chunk at a time.
4. Of packed sequences in order of length each step has its own number of rows. Where it falls some
   sequences end, where it grows (against time) some begin with their initial state.
5. Where all steps have as many rows, and a chunk is run again, the states before its steps are the
   states after them a step further: both are one block, with a step more than the chunk has.
6. Where the device builds Cell, a step of a gated layer is one such kernel, whose weights a call
   copies to panels first. Sizes and the device alone decide, so a layer has the same bits whether
   its gates are saved, made again, or not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from rushlight.core.cache import cached

# Bytes of the gates of a chunk.
CHUNK = 1 << 20

# Sources of states: those before the chunk, those of the chunk's steps, the initial ones.
START, SHOWN, INITIAL = range(3)


class Piece(NamedTuple):
    """Rows that are copied: where to, from which source, where from, how many."""

    to: int
    source: int
    at: int
    rows: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of steps. Rows are counted from the chunk's first row on, unless told otherwise."""

    low: int  # its first row among all
    rows: int
    steps: tuple[tuple[int, int], ...]  # in running order: the first row, and the number of rows
    start: int  # the row of its states among all starts; -1: they are the initial ones
    before: tuple[Piece, ...]  # the states before each step
    onward: tuple[Piece, ...]  # the states before the next chunk
    ends: tuple[Piece, ...]  # the states after a sequence's last step


@cached
def chunks_of(counts: tuple[int, ...], reverse: bool, row_bytes: int) -> tuple[Chunk, ...]:
    """The chunks in running order, for rows of gates of so many bytes."""
    firsts = [0, *accumulate(counts)]
    order = range(len(counts))[:: -1 if reverse else 1]
    groups: list[list[int]] = [[]]
    for t in order:
        rows = sum(counts[i] for i in groups[-1]) + counts[t]
        if groups[-1] and rows * row_bytes > CHUNK:
            groups.append([])
        groups[-1].append(t)
    after = [counts[group[0]] for group in groups[1:]]
    starts = [-1, *accumulate(after, initial=0)]
    return tuple(
        _chunk([(firsts[t], counts[t]) for t in group], start, count)
        for group, start, count in zip(groups, starts, [*after, 0], strict=False)
    )


def _chunk(steps: Sequence[tuple[int, int]], start: int, after: int) -> Chunk:
    """A chunk of steps with their rows among all; `after` has the rows of the next step, or 0."""
    low = min(first for first, _ in steps)
    steps = [(first - low, rows) for first, rows in steps]
    before = [Piece(steps[0][0], START, 0, steps[0][1])]
    onward: list[Piece] = []
    ends: list[Piece] = []
    for i, (at, rows) in enumerate(steps):
        last = i + 1 == len(steps)
        to, more = (0, after) if last else steps[i + 1]
        made = onward if last else before
        if more < rows:
            ends.append(Piece(more, SHOWN, at + more, rows - more))
        if more:
            made.append(Piece(to, SHOWN, at, min(rows, more)))
        if more > rows:
            made.append(Piece(to + rows, INITIAL, rows, more - rows))
    rows = sum(rows for _, rows in steps)
    return Chunk(low, rows, tuple(steps), start, _joined(before), tuple(onward), tuple(ends))


def _joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Pieces with one source that follow each other, as one."""
    made: list[Piece] = []
    for piece in sorted(pieces):
        last = made[-1] if made else None
        if (
            last is not None
            and (last.to + last.rows, last.source, last.at + last.rows) == piece[:3]
        ):
            made[-1] = last._replace(rows=last.rows + piece.rows)
        else:
            made.append(piece)
    return tuple(made)
