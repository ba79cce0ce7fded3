"""Sequences of different lengths as one tensor: padded, or packed by time step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import int64
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.lazy import shown
from rushlight.ops.create import creation
from rushlight.ops.index.gather import rows
from rushlight.ops.nn.padding import constant_pad_nd
from rushlight.ops.view import views
from rushlight.tensor import Tensor, tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


def __dir__() -> list[str]:
    return shown(__name__)


class _Packed(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


class PackedSequence(_Packed):
    """Sequences in order of length, the rows of each time step one after the other.

    `data` holds the rows, `batch_sizes` the number of sequences at each time step, `sorted_indices`
    the order in which the sequences were given (None: already in order).
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            raise ValueError(
                "PackedSequence: data and batch_sizes are needed; pack_padded_sequence makes one"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor) -> PackedSequence:
        return PackedSequence(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *args: Any, **named: Any) -> PackedSequence:
        data = self.data.to(*args, **named)
        if data is self.data:
            return self
        orders = [
            None if v is None else v.to(data.device)
            for v in (self.sorted_indices, self.unsorted_indices)
        ]
        return PackedSequence(data, self.batch_sizes, *orders)

    def cuda(self) -> PackedSequence:
        return self.to("cuda")

    def cpu(self) -> PackedSequence:
        return self.to("cpu")

    def pin_memory(self) -> PackedSequence:
        return self._with(self.data.pin_memory())

    def double(self) -> PackedSequence:
        return self._with(self.data.double())

    def float(self) -> PackedSequence:
        return self._with(self.data.float())

    def half(self) -> PackedSequence:
        return self._with(self.data.half())

    def long(self) -> PackedSequence:
        return self._with(self.data.long())

    def int(self) -> PackedSequence:
        return self._with(self.data.int())

    def short(self) -> PackedSequence:
        return self._with(self.data.short())

    def char(self) -> PackedSequence:
        return self._with(self.data.char())

    def byte(self) -> PackedSequence:
        return self._with(self.data.byte())

    def bfloat16(self) -> PackedSequence:
        return self._with(self.data.bfloat16())

    def is_pinned(self) -> bool:
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse of a permutation."""
    if permutation is None:
        return None
    count = permutation.numel()
    steps: Any = creation.arange(count, device=permutation.device)
    return steps.scatter(0, permutation, steps)


def _as_ints(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack (time, batch, ...), or (batch, time, ...), with a length for each sequence.

    Without `enforce_sorted` the sequences may come in any order; unpacking restores it.
    """
    if isinstance(lengths, Tensor) and lengths.ndim != 1:
        raise ShapeError(
            f"pack_padded_sequence: lengths must have 1 dimension, got {lengths._spec!r}"
        )
    given = _as_ints(lengths)
    x: Any = views.transpose(input, 0, 1) if batch_first else input
    if input.ndim < 2 or len(given) != x.shape[1]:
        raise ShapeError(
            f"pack_padded_sequence: {len(given)} lengths do not fit {input._spec!r}; one per "
            "sequence"
        )
    if not given or min(given) < 1 or max(given) > x.shape[0]:
        raise ShapeError(
            f"pack_padded_sequence: lengths must lie between 1 and {x.shape[0]}, got {given}"
        )
    order = None
    if not enforce_sorted:
        by_length = sorted(range(len(given)), key=lambda i: -given[i])
        order = tensor(by_length, dtype=int64, device=input.device)
        x, given = x.index_select(1, order), [given[i] for i in by_length]
    elif any(a < b for a, b in itertools.pairwise(given)):
        raise RushlightError(
            f"pack_padded_sequence: lengths must go down, got {given}; enforce_sorted=False takes "
            "them in any order"
        )
    counts = [sum(n > t for n in given) for t in range(given[0])]
    batch = len(given)
    places = [t * batch + i for t, count in enumerate(counts) for i in range(count)]
    flat = views.reshape(x, (x.shape[0] * batch, *x.shape[2:]))
    data = rows(flat, tensor(places, dtype=int64, device=input.device))
    return PackedSequence(data, tensor(counts, dtype=int64, device="cpu"), order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The sequences as (time, batch, ...) or (batch, time, ...), padded, and their lengths."""
    counts = _as_ints(sequence.batch_sizes)
    batch = counts[0]
    if total_length is not None and total_length < len(counts):
        raise ValueError(
            f"pad_packed_sequence: total_length {total_length} is less than the longest, "
            f"{len(counts)}"
        )
    starts = [sum(counts[:t]) for t in range(len(counts))]
    parts = []
    data = sequence.data
    for start, count in zip(starts, counts, strict=True):
        part = views.slice_dim(data, 0, start, count)
        around = (0, 0) * (data.ndim - 1) + (0, batch - count)
        parts.append(constant_pad_nd(part, around, padding_value) if count < batch else part)
    out: Any = views.stack(parts)
    if total_length is not None and total_length > len(counts):
        out = constant_pad_nd(
            out, (0, 0) * (out.ndim - 1) + (0, total_length - len(counts)), padding_value
        )
    lengths = tensor(
        [sum(count > i for count in counts) for i in range(batch)], dtype=int64, device="cpu"
    )
    if sequence.unsorted_indices is not None:
        out = out.index_select(1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices.to("cpu"))
    return (views.transpose(out, 0, 1) if batch_first else out), lengths


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of different lengths stacked, padded after ("right") or before ("left") them."""
    if padding_side not in ("left", "right"):
        raise RushlightError(
            f"pad_sequence: padding_side is 'left' or 'right', got {padding_side!r}"
        )
    if not isinstance(sequences, Iterable):
        raise RushlightError(f"pad_sequence: sequences are needed, got {type(sequences).__name__}")
    listed = list(sequences.unbind(0)) if isinstance(sequences, Tensor) else list(sequences)
    if not listed:
        raise RushlightError("pad_sequence: at least one sequence is needed")
    longest = max(s.shape[0] for s in listed)
    parts: list[Any] = []
    for s in listed:
        if s.shape[1:] != listed[0].shape[1:]:
            raise ShapeError(
                f"pad_sequence: {s._spec!r} and {listed[0]._spec!r} differ in more than their "
                "length"
            )
        missing = longest - s.shape[0]
        sides = (missing, 0) if padding_side == "left" else (0, missing)
        parts.append(
            constant_pad_nd(s, (0, 0) * (s.ndim - 1) + sides, padding_value) if missing else s
        )
    return views.stack(parts, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """The inverse of pad_sequence."""
    x: Any = padded_sequences if batch_first else views.transpose(padded_sequences, 0, 1)
    return [x[i, :n] for i, n in enumerate(_as_ints(lengths))]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The inverse of pack_sequence."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences))
