"""Sums of products named by subscripts: `einsum`, pair by pair in opt_einsum's cheapest order.

# Note [Einsum labels]
1. A label is a letter, or a number from a sublist as the letter at that index in A-Za-z; dimensions
   under "..." get the labels 0, 1, ... counted from the right, so that operands of different rank
   are aligned.
2. A label that occurs twice in one operand means its diagonal. A label found in one operand only
   and not in the result is summed before the product; one that two operands share and no other term
   needs is contracted in their matrix product.
3. A size of 1 broadcasts, as elsewhere.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import RushlightError, ShapeError
from rushlight.core.shapes import Shape, contiguous_strides, numel
from rushlight.ops.family.view import View, shift_last_two
from rushlight.ops.linalg.matmul import matmul
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import views
from rushlight.tape.record import call
from rushlight.tape.record.value import Value

Label = str | int
LETTERS = string.ascii_uppercase + string.ascii_lowercase


def _diagonal_rule(
    shape: Shape, strides: Shape, first: int, second: int
) -> tuple[Shape, Shape, int]:
    kept = [i for i in range(len(shape)) if i != second]
    steps = [strides[i] + (strides[second] if i == first else 0) for i in kept]
    return tuple(shape[i] for i in kept), tuple(steps), 0


_diagonal = View(
    "diagonal",
    _diagonal_rule,
    lambda g, x, *dims: views.place_view(
        g, x.shape, _diagonal_rule(x.shape, contiguous_strides(x.shape), *dims)
    ),
    "Where two dimensions have one index.",
    shift=shift_last_two,
)


def _letters(op: Sequence[Any]) -> str:
    """A sublist (numbers and Ellipsis) as subscripts."""
    return "".join("..." if item is Ellipsis else LETTERS[item] for item in op)


def _parsed(args: tuple[Any, ...]) -> tuple[list[str], str | None, list[Value]]:
    """Subscripts of each operand, of the result (None: not given), and the operands."""
    if isinstance(args[0], str):
        operands = args[1:]
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
        if "." in args[0].replace("...", ""):
            raise RushlightError(
                f"einsum: a dot in {args[0]!r} is not part of an ellipsis; three stand together"
            )
        left, arrow, right = args[0].replace(" ", "").partition("->")
        return left.split(","), right if arrow else None, list(operands)
    pairs = len(args) // 2
    result = _letters(args[-1]) if len(args) % 2 else None
    return [_letters(args[2 * i + 1]) for i in range(pairs)], result, list(args[0 : 2 * pairs : 2])


def _labels(subscripts: str, hidden: int) -> list[Label]:
    """The labels of an operand, `hidden` of them under the ellipsis."""
    before, dots, after = subscripts.partition("...")
    if any(c not in LETTERS for c in before + after):
        raise RushlightError(f"einsum: subscripts are letters and one '...', got {subscripts!r}")
    inside: list[Label] = list(range(hidden - 1, -1, -1)) if dots else []
    return [*before, *inside, *after]


def _operand_labels(subscripts: str, value: Value) -> list[Label]:
    named = len(subscripts.replace("...", ""))
    hidden = len(value._spec.shape) - named
    if hidden < 0 or (hidden and "..." not in subscripts):
        raise RushlightError(
            f"einsum: subscripts {subscripts!r} do not fit an operand of {value._spec!r}"
        )
    return _labels(subscripts, hidden)


def _result_labels(given: str | None, listed: Sequence[Sequence[Label]]) -> list[Label]:
    every = [label for labels in listed for label in labels]
    hidden = 1 + max((label for label in every if isinstance(label, int)), default=-1)
    if given is None:
        once = sorted(
            label for label in every if isinstance(label, str) and every.count(label) == 1
        )
        return [*range(hidden - 1, -1, -1), *once]
    result = _labels(given, hidden)
    for label in result:
        if label not in every or result.count(label) > 1:
            raise RushlightError(
                f"einsum: {label!r} of the result {given!r} must be in an operand, and only once "
                "there"
            )
    return result


def _without_repeats(value: Value, labels: list[Label]) -> tuple[Value, list[Label]]:
    labels = list(labels)
    for label in list(dict.fromkeys(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            shape = value._spec.shape
            if shape[first] != shape[second]:
                raise ShapeError(
                    f"einsum: {label!r} names sizes {shape[first]} and {shape[second]} of "
                    f"{value._spec!r}"
                )
            value = call.call(_diagonal, (value,), (first, second))
            del labels[second]
    return value, labels


class Term:
    """A tensor with a label for each dimension."""

    def __init__(self, value: Value, labels: list[Label]) -> None:
        self.value = value
        self.labels = labels

    def size(self, label: Label) -> int:
        return self.value._spec.shape[self.labels.index(label)]

    def without(self, dropped: Sequence[Label]) -> Term:
        """Summed over some labels."""
        if not dropped:
            return self
        places = [self.labels.index(label) for label in dropped]
        total = reductions.sum(self.value, places, dtype=self.value._spec.dtype)
        return Term(total, [label for label in self.labels if label not in dropped])

    def ordered(self, labels: Sequence[Label]) -> Value:
        return views.permute(self.value, tuple(self.labels.index(label) for label in labels))


def _aligned(a: Term, b: Term, wanted: set[Label]) -> tuple[Term, Term]:
    """Shared labels with one size: where one of two is 1 it is removed.

    The other keeps the label or is summed.
    """
    for label in [label for label in a.labels if label in b.labels]:
        n, m = a.size(label), b.size(label)
        if n == m:
            continue
        if 1 not in (n, m):
            raise ShapeError(f"einsum: {label!r} names a size of {n} and one of {m}")
        if n == 1:
            a, b = a.without([label]), b if label in wanted else b.without([label])
        else:
            a, b = a if label in wanted else a.without([label]), b.without([label])
    return a, b


def _pair(a: Term, b: Term, wanted: set[Label]) -> Term:
    """The product of two terms, summed over shared labels that no other term needs."""
    a = a.without([label for label in a.labels if label not in wanted and label not in b.labels])
    b = b.without([label for label in b.labels if label not in wanted and label not in a.labels])
    a, b = _aligned(a, b, wanted)
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in wanted]
    inside = [label for label in shared if label not in wanted]
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]
    sizes = [
        [t.size(label) for label in part]
        for t, part in ((a, batch), (a, rows), (a, inside), (b, columns))
    ]
    lead, m, k, n = (numel(part) for part in sizes)
    left = views.reshape(a.ordered([*batch, *rows, *inside]), (lead, m, k))
    right = views.reshape(b.ordered([*batch, *inside, *columns]), (lead, k, n))
    # Without a sum it is an elementwise product.
    product = matmul(left, right) if inside else e.mul(views.reshape(left, (lead, m, 1)), right)
    return Term(
        views.reshape(product, (*sizes[0], *sizes[1], *sizes[3])), [*batch, *rows, *columns]
    )


def _path(terms: Sequence[Term], result: Sequence[Label]) -> list[tuple[int, ...]]:
    """The positions of the terms to multiply next; a product goes to the end of the list."""
    if len(terms) < 3:
        return [tuple(range(len(terms)))]
    import opt_einsum  # slow to import, and rarely needed

    symbols: dict[Label, str] = {}
    for term in terms:
        for label in term.labels:
            symbols.setdefault(label, opt_einsum.get_symbol(len(symbols)))
    spelled = [
        "".join(symbols[label] for label in labels)
        for labels in (*(t.labels for t in terms), result)
    ]
    equation = f"{','.join(spelled[:-1])}->{spelled[-1]}"
    shapes = [term.value._spec.shape for term in terms]
    # Sizes that do not fit are refused by the product itself, with our message.
    if any(a != b and 1 not in (a, b) for a, b in _meeting(terms)):
        return [tuple(range(len(terms)))]
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    return [tuple(step) for step in path]


def _meeting(terms: Sequence[Term]) -> list[tuple[int, int]]:
    """Pairs of sizes of one label."""
    sizes: dict[Label, int] = {}
    pairs = []
    for term in terms:
        for label in term.labels:
            size = term.size(label)
            largest = sizes.get(label, 1)
            pairs.append((largest, size))
            sizes[label] = max(largest, size)
    return pairs


@composite("einsum", method=False, pure=True, autocast="lower")
def einsum(*args: Any) -> Value:
    """Sums of products named by subscripts: einsum("ij,jk->ik", a, b), or by sublists.

    The latter is einsum(a, [0, 1], b, [1, 2], [0, 2]).

    Example:
        >>> a, b = torch.ones(2, 3), torch.ones(3, 4)
        >>> torch.einsum('ij,jk->ik', a, b).shape
        rushlight.Size([2, 4])
        >>> torch.einsum('ij->j', a)
        tensor([2., 2., 2.])
    """
    if not args:
        raise ValueError("einsum: an equation and at least one operand are needed")
    subscripts, given, operands = _parsed(args)
    if len(subscripts) != len(operands) or not operands:
        raise ShapeError(f"einsum: {len(subscripts)} subscripts for {len(operands)} operands")
    listed = [
        _operand_labels(part, value) for part, value in zip(subscripts, operands, strict=True)
    ]
    result = _result_labels(given, listed)
    terms = [
        Term(*_without_repeats(value, labels))
        for value, labels in zip(operands, listed, strict=True)
    ]
    if len(terms) == 1:  # a plain sum, in int64 of integers
        (only,) = terms
        gone = [label for label in only.labels if label not in result]
        if gone:
            total = reductions.sum(only.value, [only.labels.index(label) for label in gone])
            return Term(total, [label for label in only.labels if label in result]).ordered(result)
    for places in _path(terms, result):
        chosen = [terms[i] for i in places]
        terms = [term for i, term in enumerate(terms) if i not in places]
        while len(chosen) > 1:
            wanted = {label for other in (*terms, *chosen[2:]) for label in other.labels}
            chosen[:2] = [_pair(chosen[0], chosen[1], wanted | set(result))]
        terms.append(chosen[0])
    (out,) = terms
    out = out.without([label for label in out.labels if label not in result])
    return out.ordered(result)
