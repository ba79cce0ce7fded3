"""Keys of dicts and elements of sets in files: which are allowed, and their cost.

# Note [Keys]
1. Keys are hashed and compared, so they are numbers, text, or small tuples and frozen sets of them.
2. Equal hashes in one container are counted: each costs as many comparisons as there are before it,
   and a comparison as many steps as the key has elements.
3. Every use of long text is counted: equal text is compared to its end.
4. Integers below 2**60 have distinct hashes and are not counted. Chosen integers can still collide
   in Python's tables: 11,000 such keys take 150 times as long as others. So the elapsed time is
   checked at intervals.
"""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType
from rushlight.io.constructors import is_safe
from rushlight.io.limits import Ledger, UnsafeFile
from rushlight.naming import device
from rushlight.tape.record.value import Value

_KEY_BITS = 1024  # bits of an integer key
_KEY_PARTS = 1000  # elements of a tuple key
_KEY_TEXT = 1024  # characters compared in one step
_KEYS_PER_LOOK = 256
_KEY_DEPTH = 50  # nested tuples in it: Python hashes and compares them by recursion
# 34 floats have the same hash.
_PLAIN_KEYS = frozenset([str, bytes, bool, float, type(None), DType, device])


class Keys:
    """The keys of one file."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        # Per container: the number of keys of each hash.
        self.hashes: dict[int, tuple[Any, dict[int, int]]] = {}
        self.count = 0

    def weigh(self, key: Any) -> int:
        """The number of steps to hash and compare a key, if it is allowed. See Note [Keys]."""
        kind = key.__class__
        if kind is str or kind is bytes:
            return 1 + len(key) // _KEY_TEXT
        if kind is int and key.bit_length() > _KEY_BITS:
            raise UnsafeFile("load: the file has a key that is too large a number")
        if isinstance(key, tuple) or kind is frozenset:
            return self.weigh_parts(key)
        plain = kind in _PLAIN_KEYS or kind is int or kind is complex
        # Tensors are hashed by identity.
        if not plain and not isinstance(key, Value) and not is_safe(kind):
            raise UnsafeFile(
                f"load: a {type(key).__name__} cannot be a key of a dict or an element of a set"
            )
        return 1

    def weigh_parts(self, key: Any) -> int:
        left, count, steps = [(key, 1)], 0, 0
        each = 1
        while left:
            parts, depth = left.pop()
            count += 1 + len(parts)
            self.ledger.spend(1 + len(parts))
            if count > _KEY_PARTS or depth > _KEY_DEPTH:
                raise UnsafeFile("load: the file has a key of too many parts")
            if parts.__class__ is frozenset:
                # An element of one is compared with those of equal hash in the other.
                each = _KEY_PARTS
            for part in parts:
                if isinstance(part, tuple) or part.__class__ is frozenset:
                    left.append((part, depth + 1))
                else:
                    steps += self.weigh(part)
        return each * (count + steps)

    def enter(self, target: Any, key: Any) -> None:
        """Check a key before it goes into a container, and count the keys of equal hash."""
        self.count += 1
        if not self.count % _KEYS_PER_LOOK:
            self.ledger.check_time()
        kind = key.__class__
        if kind is str or kind is bytes:
            if len(key) >= _KEY_TEXT:
                self.ledger.spend(len(key) // _KEY_TEXT)
            return
        if kind in _PLAIN_KEYS or (kind is int and -(1 << 60) < key < 1 << 60):
            return  # equal hashes are rare
        steps = self.weigh(key)
        _, counts = self.hashes.setdefault(id(target), (target, {}))
        code = _hash(key)
        before = counts[code] = counts.get(code, 0) + 1
        self.ledger.spend((before - 1) * steps)


def _hash(key: Any) -> int:
    try:
        return hash(key)
    except TypeError as error:  # of a class that the program named
        raise UnsafeFile(
            f"load: a {type(key).__name__} cannot be a key of a dict or an element of a set"
        ) from error
