"""One number given for several dimensions: PyTorch's `torch.nn.modules.utils`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Sequence[int], n: int) -> tuple[int, ...]:
    """Each number n times, the last first: the form that `pad` takes."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Sequence[int | None], defaults: Sequence[int]) -> list[int]:
    """The sizes, with the last ones of `defaults` where they are None."""
    if len(defaults) <= len(out_size):
        raise ValueError(
            f"input dimension should be at least {len(out_size) + 1}, got {len(defaults)}"
        )
    ends = defaults[-len(out_size) :]
    return [d if v is None else v for v, d in zip(out_size, ends, strict=True)]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Remove a prefix such as "module." from the names of a state and of its metadata, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    told: dict[str, Any] = getattr(state_dict, "_metadata", None) or {}
    for key in list(told):
        if key and (key == prefix.rstrip(".") or key.startswith(prefix)):
            told[key[len(prefix) :]] = told.pop(key)
