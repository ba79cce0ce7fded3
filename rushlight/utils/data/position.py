"""An iteration that can be saved, and continued in another process.

# Note [Resume]
1. A position is what an order was made from, and the number of items given. An order is made from
   the streams of random numbers at its first item: the default one, those of the sampler's
   generators and, if it is a user's, Python's and NumPy's. To continue, they are set to that state,
   the iteration runs again, and the items given are skipped. Then all but the generators are set
   back: the program restores those. So a sampler needs no state of its own.
2. A sampler or a dataset with `state_dict` and `load_state_dict`, or an iterator with both, is
   asked instead, and nothing is skipped.
3. Without workers nothing is read ahead, so a loader's state is read when it is asked for.
4. A worker sends its streams and its dataset's state with every `snapshot_every_n_steps`-th batch.
   The loader keeps those of the batches that it gave, the sampler's state when that batch was asked
   for, and the workers of the batches that are under way. A pass continues from there, or from its
   start: the batches given since are made again and dropped.
5. A pass that is continued draws no seed: the workers' seeds are in the state.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from rushlight.ops.random.random import Generator
from rushlight.random import default_generator, get_rng_state_all, set_rng_state_all
from rushlight.utils.data.sampler import OWN

State = dict[str, Any]


def has_state(thing: Any) -> bool:
    """Whether an object can be asked for its state, and given one."""
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


def words_of(generator: Generator) -> tuple[int, int]:
    """The state of a generator as numbers: its seed and its position."""
    return generator.seed_value, generator.position


def set_words(generator: Generator, words: tuple[int, int]) -> None:
    """Restore a state of `words_of`."""
    generator.seed_value, generator.position = (int(word) for word in words)


def samplers_of(source: Any) -> list[Any]:
    """A sampler, and those it is made of."""
    found = [source]
    while (inner := getattr(found[-1], "sampler", None)) is not None and len(found) < 16:
        found.append(inner)
    return found


class Position(Iterator[Any]):
    """An iteration over a sampler or an iterable dataset, with a state. See Note [Resume].

    `parts` are the objects that may have a state, a generator, or an epoch.
    """

    def __init__(self, source: Any, parts: list[Any]) -> None:
        self.source = source
        self.asked = next((part for part in parts if has_state(part)), None)
        self.foreign = any(type(part) not in OWN for part in parts)
        self.generators = [
            part.generator
            for part in parts
            if isinstance(getattr(part, "generator", None), Generator)
        ]
        self.numbered = [
            part for part in parts if hasattr(part, "epoch") and hasattr(part, "set_epoch")
        ]
        self.rest: Iterator[Any] | None = None
        self.start: State | None = None
        self.taken = 0
        self.ended = False

    def begin(self) -> Iterator[Any]:
        """Make the order, by the streams as they are or by those of the state that was loaded."""
        if self.rest is not None:
            return self.rest
        if self.start is None:
            self.start = self._streams()
            self.rest = iter(self.source)
        else:
            self.rest = self._replayed(self.start)
        if has_state(self.rest) and self.asked is None:
            self.asked = self.rest
        return self.rest

    def _streams(self) -> State:
        streams = (
            get_rng_state_all() if self.foreign else {"rushlight": words_of(default_generator)}
        )
        return {
            **streams,
            "generators": [words_of(generator) for generator in self.generators],
            "epochs": [part.epoch for part in self.numbered],
        }

    def _replayed(self, start: State) -> Iterator[Any]:
        """The iteration from its start, after the items that were taken."""
        now = get_rng_state_all()
        try:
            set_rng_state_all(start)
            for generator, words in zip(self.generators, start["generators"], strict=True):
                set_words(generator, words)
            for part, epoch in zip(self.numbered, start["epochs"], strict=True):
                part.set_epoch(epoch)
            rest = iter(self.source)
            if self.taken:
                next(itertools.islice(rest, self.taken - 1, None), None)
                return rest
            return itertools.chain(list(itertools.islice(rest, 1)), rest)  # the order is drawn here
        finally:
            set_rng_state_all(now)

    def __next__(self) -> Any:
        try:
            item = next(self.begin())
        except StopIteration:
            self.ended = True
            raise
        self.taken += 1
        return item

    def take(self, count: int) -> list[Any]:
        """The next items, fewer at the end."""
        items = list(itertools.islice(self.begin(), count))
        self.taken += len(items)
        self.ended = self.ended or len(items) < count
        return items

    def state_dict(self) -> State:
        own = None if self.asked is None else copy.deepcopy(self.asked.state_dict())
        return {
            "own": own,
            "start": None if self.asked is not None else self.start,
            "taken": self.taken,
            "ended": self.ended,
            "generators": [words_of(generator) for generator in self.generators],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a state; where it is of an ended iteration, end."""
        self.start, self.taken, self.ended = (
            state_dict[name] for name in ("start", "taken", "ended")
        )
        for generator, words in zip(self.generators, state_dict["generators"], strict=True):
            set_words(generator, words)
        if state_dict["own"] is not None:
            self._load_own(state_dict["own"])
        elif self.ended:
            self.rest = iter(())

    def _load_own(self, own: Any) -> None:
        if self.asked is None:
            self.asked = self.rest = iter(self.source)
        if not has_state(self.asked):
            raise ValueError(
                f"load_state_dict: the state holds one of {type(self.source).__name__} or of what "
                "it is made of, which has no load_state_dict here"
            )
        self.asked.load_state_dict(own)
        self.start = {}  # what is asked makes its own order
        if self.rest is None:
            self.rest = iter(()) if self.ended else iter(self.source)
