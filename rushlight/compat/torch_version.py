"""PyTorch's `torch.torch_version`: a version as text that compares as a version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any


def _numbers(version: Any) -> tuple[int, ...]:
    """The numbers of the release: (2, 13, 0) of "2.13.0+cpu", of "2.13" and of (2, 13)."""
    if isinstance(version, str):
        release = re.match(r"\d+(\.\d+)*", version.strip())
        if release is None:
            raise ValueError(f"{version!r} is no version")
        version = release.group().split(".")
    if not isinstance(version, Sequence):
        version = str(version).split(".")
    numbers = [int(part) for part in version]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


class TorchVersion(str):
    """Text that is compared by the numbers of its release, also with tuples: v >= (2, 1)."""

    def _compared(self, other: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        try:
            return _numbers(str(self)), _numbers(other)
        except (TypeError, ValueError):
            return None

    def __lt__(self, other: Any) -> bool:
        pair = self._compared(other)
        return str.__lt__(self, other) if pair is None else pair[0] < pair[1]

    def __le__(self, other: Any) -> bool:
        pair = self._compared(other)
        return str.__le__(self, other) if pair is None else pair[0] <= pair[1]

    def __gt__(self, other: Any) -> bool:
        pair = self._compared(other)
        return str.__gt__(self, other) if pair is None else pair[0] > pair[1]

    def __ge__(self, other: Any) -> bool:
        pair = self._compared(other)
        return str.__ge__(self, other) if pair is None else pair[0] >= pair[1]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and str.__eq__(self, other):
            return True
        pair = self._compared(other)
        return pair is not None and "+" not in str(other) and pair[0] == pair[1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))
