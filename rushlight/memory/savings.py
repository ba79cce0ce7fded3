"""Changes that would lower the peak of a recording, and what they would cost.

# Note [Savings]
1. Each change is a list of cuts: bytes of a span that would be absent between two moments. The new
   peak is that of the recorded curve less the cuts, at any moment.
2. A checkpoint of a module cuts what its call made and kept, but for its result, from the end of
   the call to the first derivative of the module. It costs what the module's forward calls took.
3. A budget cuts values in the order of the default policy (`LeastWork`), from the call after they
   were made to the one before their end, until the curve fits. It costs at least what those calls
   took, each once: what they read may have to be rebuilt too.
4. Costs are shares of the recording: of its time where the device is synchronous, else of the work
   that the plans count.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rushlight.core.shapes import Shape
from rushlight.memory.account import BEFORE, MADE, Account, Span
from rushlight.memory.owners import ACTIVATIONS, DATA, FLIGHT, GRADIENTS, TEMPORARIES
from rushlight.memory.watching import BACKWARD, FORWARD

Cut = tuple[int, int, int]  # the first moment, the one after the last, and bytes

_LEAST = 0.01  # of the peak: smaller savings are not named
_SHARES = (0.75, 0.5)  # of the peak: budgets that are tried
_MOST_CUTS = 4000
_STEEP = 0.1  # the share of the recording that any change counts as, for the effort


class Saving(NamedTuple):
    """A change and its effect."""

    change: str
    how: str  # code, or a few words
    saved: int  # bytes of the peak
    peak: int  # bytes, afterwards
    cost: float | None  # the share of the recording that it adds; None: not known from it
    terms: str  # what the cost is made of
    kind: str
    floor: bool = False  # the cost is the least possible one


def savings(account: Account, count: int = 3) -> list[Saving]:
    """The changes that save most for what they cost, best first."""
    found = [
        *_checkpoints(account),
        *_budgets(account),
        *_kept_gradients(account),
        *_kept_records(account),
        *_without_backward(account),
        *_half_batch(account),
    ]
    least = max(1, int(account.peak * _LEAST))
    found = [s for s in found if s.saved >= least]
    best: dict[str, Saving] = {}  # of each kind
    for saving in sorted(found, key=_price):
        best.setdefault(saving.kind, saving)
    return list(best.values())[:count]


def _price(saving: Saving) -> float:
    """The cost of a saved byte; a cost that is not known counts as the whole recording."""
    return (_STEEP + (1.0 if saving.cost is None else saving.cost)) / saving.saved


def _peak_after(account: Account, cuts: Iterable[Cut]) -> int:
    steps = [0] * (len(account.live) + 1)
    for first, last, nbytes in cuts:
        if first < last:
            steps[first] += nbytes
            steps[last] -= nbytes
    return max(
        live - cut for live, cut in zip(account.live, itertools.accumulate(steps), strict=False)
    )


def _saving(
    account: Account,
    cuts: list[Cut],
    change: str,
    how: str,
    cost: float | None,
    terms: str,
    kind: str,
) -> Saving:
    peak = _peak_after(account, cuts)
    share = None if cost is None else cost / account.total_cost if account.total_cost else 0.0
    return Saving(change, how, account.peak - peak, peak, share, terms, kind)


# ---- checkpoints ----


class _Call(NamedTuple):
    """One call of a module in a forward pass."""

    spans: list[Span]
    until: int  # the moment after its last request
    cost: float


def _checkpoints(account: Account) -> Iterator[Saving]:
    made = [s for s in account.spans if s.origin is not None and s.began == MADE]
    forward = [s for s in made if s.origin is not None and s.origin.phase == FORWARD]
    backward = [s for s in made if s.origin is not None and s.origin.phase == BACKWARD]
    paths = {prefix for s in forward for prefix in _prefixes(s.module)}
    families: dict[str, list[str]] = {}
    for path in paths:
        families.setdefault(re.sub(r"\d+", "*", path), []).append(path)
    for family, members in families.items():
        cuts: list[Cut] = []
        cost, calls = 0.0, 0
        for path in members:
            for call in _calls(account, forward, path):
                begins = _first_derivative(backward, path, call.until)
                if begins is not None:
                    cuts += _interior(call, begins)
                    cost += call.cost
                    calls += len(call.spans)
        if cuts:
            name = members[0] if len(members) == 1 else family
            yield _saving(
                account,
                cuts,
                f"checkpoint {name}" + (f" ({len(members)} modules)" if len(members) > 1 else ""),
                f"checkpoint({members[0] if len(members) == 1 else 'module'}, x)",
                cost,
                f"{calls} calls run again in backward",
                "checkpoint",
            )


def _prefixes(path: str) -> Iterator[str]:
    words = path.split(".") if path else []
    for count in range(1, len(words) + 1):
        yield ".".join(words[:count])


def _inside(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}.")


def _calls(account: Account, forward: list[Span], path: str) -> list[_Call]:
    """The calls of a module: runs of requests inside of it."""
    calls: list[_Call] = []
    run: list[Span] = []
    for span in [*forward, None]:
        if span is not None and _inside(span.module, path):
            run.append(span)
        elif run:
            until = len(account.live) if span is None else span.born
            calls.append(_Call(run, until, sum(account.cost_of(s.origin) for s in run if s.origin)))
            run = []
    return calls


def _first_derivative(backward: list[Span], path: str, after: int) -> int | None:
    start = bisect.bisect_left(backward, after, key=lambda s: s.born)
    later = itertools.islice(backward, start, None)
    return next((s.born for s in later if _inside(s.module, path)), None)


def _interior(call: _Call, begins: int) -> Iterator[Cut]:
    kept = [s for s in call.spans if s.kind == ACTIVATIONS]
    for span in kept[:-1]:  # the last one is the result
        died = begins if span.died is None else min(span.died, begins)
        yield call.until, died, span.nbytes


# ---- budgets ----


def _budgets(account: Account) -> Iterator[Saving]:
    if account.limit is not None:
        return
    values = [s for s in account.spans if s.kind == ACTIVATIONS and s.began == MADE]
    births = sorted(s.born for s in account.spans)
    cuts = [_idle(account, s, births) for s in values]
    costs = [account.cost_of(s.origin) if s.origin is not None else 0.0 for s in values]
    works = [s.origin.cost if s.origin is not None else 0.0 for s in values]
    for share in _SHARES:
        limit = int(account.peak * share)
        chosen = _dropped(account, cuts, works, limit)
        if chosen:
            size = f"{max(limit / 2**20, 0.1):.{0 if limit > 10 << 20 else 1}f}MiB"
            saving = _saving(
                account,
                [cuts[i] for i in chosen],
                f"a budget of {size}",
                f'memory.budget("{size}")',
                sum(costs[i] for i in chosen),
                f"{len(chosen)} calls run again",
                "budget",
            )
            yield saving._replace(floor=True)


def _dropped(
    account: Account, cuts: Sequence[Cut], works: Sequence[float], limit: int
) -> list[int]:
    """The cuts after which the curve is below a limit, by least work; [] where there are none.

    Each is chosen for the first moment that is too high when the others are made.
    """
    excess = np.array(account.live) - limit
    first, last, sizes = (np.array([cut[k] for cut in cuts], dtype=np.int64) for k in range(3))
    per_byte = np.array(works) / np.maximum(sizes, 1)
    chosen: list[int] = []
    moment = 0
    while True:
        moment += int((excess[moment:] > 0).argmax())
        if excess[moment] <= 0:
            return chosen
        usable = np.flatnonzero((first <= moment) & (moment < last))
        if not len(usable) or len(chosen) > _MOST_CUTS:
            return []
        waits = last[usable] - moment + 1
        best = int(usable[(per_byte[usable] / waits).argmin()])
        excess[first[best] : last[best]] -= sizes[best]
        last[best] = 0
        chosen.append(best)


def _idle(account: Account, span: Span, births: list[int]) -> Cut:
    """The moments between the request after a value was made and the one before it goes."""
    end = len(account.live) if span.died is None else span.died
    after = bisect.bisect_right(births, span.born)
    before = bisect.bisect_left(births, end)
    if before - after < 3:
        return 0, 0, span.nbytes
    return births[after + 1], births[before - 1], span.nbytes


# ---- what is kept for nothing ----


def _first_backward(account: Account) -> int | None:
    return account.phases.index(BACKWARD) if BACKWARD in account.phases else None


def _kept_gradients(account: Account) -> Iterator[Saving]:
    begins = _first_backward(account)
    if begins is None:
        return
    after = next(
        (m for m in range(begins, len(account.phases)) if account.phases[m] != BACKWARD),
        len(account.phases),
    )
    old = [s for s in account.spans if s.kind == GRADIENTS and s.began == BEFORE]
    kept = [s for s in old if s.died is None]
    if kept:
        yield _saving(
            account,
            [(0, after, s.nbytes) for s in kept],
            "free gradients before the step",
            "optimizer.zero_grad(set_to_none=True)",
            0.0,
            f"{len(kept)} gradients from before were in memory all the time",
            "gradients",
        )


def _kept_records(account: Account) -> Iterator[Saving]:
    kept = [s for s in account.spans if s.kind == ACTIVATIONS and s.began == BEFORE]
    kept = [s for s in kept if s.died is None]
    if kept:
        yield _saving(
            account,
            [(0, len(account.live), s.nbytes) for s in kept],
            "let go of earlier results",
            "loss.item() or loss.detach() where results are collected",
            0.0,
            f"{len(kept)} values are held by records from before the recording",
            "records",
        )


def _without_backward(account: Account) -> Iterator[Saving]:
    if _first_backward(account) is not None:
        return
    births = sorted(s.born for s in account.spans)
    kept = [s for s in account.spans if s.kind == ACTIVATIONS and s.began == MADE]
    if kept:
        yield _saving(
            account,
            [_idle(account, s, births) for s in kept],
            "record nothing: no backward pass came",
            "with torch.no_grad():",
            0.0,
            "values are freed after their last use",
            "no_grad",
        )


# ---- a smaller batch ----


def _half_batch(account: Account) -> Iterator[Saving]:
    size = _batch(account)
    if size is None or size < 2:
        return
    kinds = (DATA, ACTIVATIONS, FLIGHT, TEMPORARIES)
    later = size // 2  # examples of the second pass
    cuts = [
        (s.born, len(account.live) if s.died is None else s.died, s.nbytes * later // size)
        for s in account.spans
        if s.kind in kinds and _leads(s, size)
    ]
    calls = sum(1 for s in account.spans if s.began == MADE)
    yield _saving(
        account,
        cuts,
        f"a batch of {size - later} instead of {size}",
        "two passes whose gradients add up",
        None,
        f"{calls} allocating calls more for as many examples",
        "batch",
    )


def _batch(account: Account) -> int | None:
    """The first size of most bytes among the activations at the peak.

    Of those that data begins with, where there are any: rows of several sequences may be joined.
    """
    sums: dict[int, int] = {}
    given = {shape[0] for s in account.spans if s.kind == DATA and (shape := _shape(s))}
    for span in account.at(account.peak_moment):
        shape = _shape(span)
        if span.kind == ACTIVATIONS and len(shape) > 1:
            sums[shape[0]] = sums.get(shape[0], 0) + span.nbytes
    sums = {size: n for size, n in sums.items() if size in given} or sums
    return max(sums, key=lambda size: sums[size]) if sums else None


def _shape(span: Span) -> Shape:
    spec = None if span.origin is None else span.origin.spec
    return () if spec is None else spec.shape


def _leads(span: Span, size: int) -> bool:
    shape = _shape(span)
    return bool(shape) and shape[0] % size == 0
