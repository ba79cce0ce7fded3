"""Data gradients by convolutions of the incoming gradient.

# Note [Turned convolutions]
1. cuDNN's deterministic kernels for a data gradient in float32 take 1.2 to 1.7 times as long as
   those for the convolution with as many products. The gradient is a convolution too: of y, with
   the taps of each window in reverse, and channels in and out exchanged.
2. With a stride s, an element u of the gradient meets the taps p for which s divides u + t - p. So
   for each remainder of u + t there is a convolution of stride 1 with a part of the taps. Its
   result is copied to every s-th place; where there are no taps, there are zeros.
3. The library's own plan is taken where it is by Fourier transforms of few products: of tiles of
   `TILE` elements, which overlap by the window less one. A product of complex numbers is four, and
   one half of a transform is not computed. They are few where they are less than half of those of
   the convolution: transforms take the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from rushlight.core.dtypes import DType
from rushlight.core.shapes import contiguous_strides
from rushlight.devices.cuda.cudnn import ALIGNMENT, FOURIER, Cudnn, Plan
from rushlight.devices.shared.protocol import Launch
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import arg, const

Numbers = tuple[int, ...]
TILE = 32


class Line(NamedTuple):
    """One dimension of one remainder: rule 2."""

    taps: int
    first: int  # of these taps, among all
    place: int  # of its first element in the gradient
    elements: int
    before: int  # the padding of y


def is_few(window: Sequence[int], image: Sequence[int]) -> bool:
    """Whether rule 3 takes Fourier transforms, for stride 1."""
    tiles = prod(-(-n // max(TILE + 1 - k, 1)) for n, k in zip(image, window, strict=True))
    products = 4 * tiles * TILE ** (len(image) - 1) * (TILE // 2 + 1)
    return 2 * products < prod(window) * prod(image)


def lines_of(window: int, image: int, stride: int, dilation: int, before: int) -> list[Line]:
    """The remainders; those with elements alone."""
    if stride == 1:
        return [Line(window, 0, 0, image, dilation * (window - 1) - before)]
    found = []
    for first in range(stride):
        taps = max(0, -(-(window - first) // stride))
        place = (first - before) % stride
        count = max(0, -(-(image - place) // stride))
        if count:
            past = (place + before - first) // stride
            found.append(Line(taps, first, place, count, taps - 1 - past))
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """The convolution of one remainder: its plan, and copies of the weights and of the result.

    `take` are the numbers of a copy of the weights after its addresses, from byte `start` of them;
    `give` those of the copy to the gradient, from byte `place` on. It is None where all is written.
    """

    plan: Plan
    start: int
    take: Numbers
    place: int
    give: Numbers | None


class Turned:
    """The plan of a data gradient; used as a `Plan`, whose first operand is the gradient."""

    __slots__ = ("add", "clear", "copy", "elements", "parts", "results", "spread", "weights")

    def __init__(
        self, library: Cudnn, dtype: DType, parts: Sequence[Part], elements: int, zeros: bool
    ) -> None:
        self.parts = parts
        self.elements = elements
        rank = len(parts[0].take) // 3
        self.copy = library.build(_copy(dtype, rank, ("1", "n")))
        self.spread: Launch | None = None
        self.clear: Launch | None = None
        if parts[0].give is not None:
            self.spread = library.build(_copy(dtype, rank - 2, ("n", "1")))
        if zeros:
            self.clear = library.build(Map((dtype,), (), (), (const(0, dtype),), 0, ("1",)))
        size = dtype.itemsize
        self.weights = _aligned(max(prod(part.take[:rank]) for part in parts) * size)
        made = [prod(p.give[: rank - 2]) for p in parts if p.give is not None]
        self.results = _aligned(max(made, default=0) * size)

    @property
    def workspace(self) -> int:
        return self.weights + self.results + max(part.plan.workspace for part in self.parts)

    def run(self, addresses: Sequence[int], workspace: int) -> None:
        out, y, w = addresses
        made = workspace + self.weights
        if self.clear is not None:
            self.clear(out, self.elements)
        for part in self.parts:
            self.copy(workspace, w + part.start, *part.take)
            target = out if part.give is None else made
            part.plan.run((target, y, workspace), made + self.results)
            if self.spread is not None and part.give is not None:
                self.spread(out + part.place, made, *part.give)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _copy(dtype: DType, rank: int, steps: tuple[str, str]) -> Map:
    return Map((dtype,), (dtype,), (), (arg(0, dtype),), rank, steps)


def turned(
    library: Cudnn,
    dtype: DType,
    numbers: Numbers,
    rank: int,
    own: Plan | None,
    plan: Callable[[Numbers], Plan | None],
) -> Turned | None:
    """A plan for the "back" kernel of these numbers; None where `own`, the library's, is taken.

    `plan` makes that of an "image" kernel.
    """
    n, groups, m, c = numbers[:4]
    pixels, window, image, stride, dilation, before = (
        numbers[4 + rank * i : 4 + rank * (i + 1)] for i in range(6)
    )
    if any(s > 1 and d > 1 for s, d in zip(stride, dilation, strict=True)):
        return None
    if own is not None and FOURIER in own.notes and is_few(window, image):
        return None
    each = list(map(lines_of, window, image, stride, dilation, before))
    parts, size = [], dtype.itemsize
    taps, steps = prod(window), contiguous_strides(window)
    for lines in product(*each):
        kept = [line.taps for line in lines]
        if not prod(kept):
            continue
        counts = [line.elements for line in lines]
        borders = [line.before for line in lines]
        ones = (1,) * rank
        found = plan((n, groups, c, m, *counts, *kept, *pixels, *ones, *dilation, *borders, 1))
        if found is None:
            return None
        shape = (groups, c, m, *kept)
        last = [x.first + s * (x.taps - 1) for x, s in zip(lines, stride, strict=True)]
        back = [-s * step for s, step in zip(stride, steps, strict=True)]
        take = (*shape, *contiguous_strides(shape), m * c * taps, taps, c * taps, *back)
        start = sum(x * step for x, step in zip(last, steps, strict=True)) * size
        give, along = None, contiguous_strides(image)
        if any(s > 1 for s in stride):
            whole = (n * groups * c, *counts)
            apart = [s * step for s, step in zip(stride, along, strict=True)]
            give = (*whole, prod(image), *apart, *contiguous_strides(whole))
        place = sum(x.place * step for x, step in zip(lines, along, strict=True)) * size
        parts.append(Part(found, start, take, place, give))
    if not parts:
        return None
    zeros = any(not line.taps for lines in each for line in lines)
    return Turned(library, dtype, parts, n * groups * c * prod(image), zeros)
