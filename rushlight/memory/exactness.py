"""`check_exact`: the bits of a function with and without recomputed values.

# Note [Exactness]
1. The function runs twice as it is; then with every result dropped as soon as it is made, inside a
   checkpoint, and inside a budget that makes it drop. Where it gives tensors that require
   gradients, each run is differentiated.
2. Every value that is rebuilt is compared with its first bits (Note [Proof]). After each run its
   results, the gradients of the leaves, the state that was found (`memory/reached.py`) and the
   random states are compared with those of the first.
3. State and random states are restored before each run, and after the last.
4. Where two plain runs differ, or a run differs though every value was rebuilt with equal bits, the
   two runs are repeated with a trace. The first call that differs on equal operands and parameters
   is a kernel's fault; one that was made with others is the function's.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.autograd import backward
from rushlight.core.errors import BudgetError, ExactnessError, GraphFreedError
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.registry import opened
from rushlight.memory.budget import budget
from rushlight.memory.reached import Bits, State, bits_of, leaves_of, tensors_in, with_leaves
from rushlight.ops.random.random import Generator, rand
from rushlight.tape.memory.checkpoint import Checkpoint
from rushlight.tape.memory.proof import Proof, Proving, Witness, describe_difference, differences
from rushlight.tape.memory.replay import COUNTERS
from rushlight.tape.record.op import describe
from rushlight.tape.record.state import Changed
from rushlight.tensor import Tensor

# Parts of the memory beyond what the function starts with; the first that suffices is the budget.
_SHARES = (0.5, 0.65, 0.8, 0.9)

Way = Callable[[Callable[[], Any], Callable[[Any], None], Witness], Any]


def check_exact(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, int]:
    """Run `fn(*args, **kwargs)` with and without recomputed values, and compare all bits.

    Results, gradients of leaves, buffers, optimisers' states and random states must be equal, NaNs
    and signs of zeros included; each value that is rebuilt must equal its first bits. Otherwise
    ExactnessError names the first op that differs, its line and module, how many elements differ
    and by how much. A function that does not repeat itself (the time, a counter, an unseeded
    generator) is told apart from a kernel that does not.

    Gradients are computed by this function where `fn` gives tensors that require them and has not
    differentiated them itself. Afterwards all state that is reached from `fn` and the arguments is
    as before: parameters, gradients, buffers, optimisers, generators, and the random states of this
    package, Python and NumPy.

    The result is the number of values that were rebuilt and compared, by the way of dropping.

    Args:
        fn (function): What runs.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    if not callable(fn):
        raise TypeError(f"memory.check_exact: fn is a function, got {fn!r}")
    trial = _Trial(fn, args, kwargs)
    with trial.state.restored(), _peaks():
        first = trial.outcome(_plain)
        sizes = _sizes()
        again = trial.outcome(_plain)
        trial.compare(first, again, _plain, "two runs without recomputing")
        limits = {pool: (base, pool.peak) for pool, base in sizes.items() if pool.peak > base}
        rebuilt = {}
        ways: dict[str, Way] = {"drops": _dropping, "checkpoint": _checkpointed}
        if limits:
            ways["budget"] = _Budgeted(limits)
        for name, way in ways.items():
            got = trial.proven(way)
            if got is not None:
                rebuilt[name] = trial.rebuilt
                trial.compare(first, got, way, f"a run that recomputes ({name})")
    return rebuilt


# ---- ways to run ----


def _plain(run: Callable[[], Any], differentiate: Callable[[Any], None], witness: Witness) -> Any:
    if witness.trace is not None:
        with Changed(region=Proving(witness)):
            result = run()
            differentiate(result)
        return result
    result = run()
    differentiate(result)
    return result


def _dropping(
    run: Callable[[], Any], differentiate: Callable[[Any], None], witness: Witness
) -> Any:
    with Changed(region=Proving(witness, drops=True)):
        result = run()
        differentiate(result)
    return result


def _checkpointed(
    run: Callable[[], Any], differentiate: Callable[[Any], None], witness: Witness
) -> Any:
    region = Checkpoint()
    region.witness = witness
    try:
        with Changed(region=region):
            result = run()
    except BaseException:
        region.give_up()
        raise
    region.close({tensor._memory for _, tensor in tensors_in(result)})
    differentiate(result)
    return result


class _Budgeted:
    """Runs inside a budget of a share of the memory between a base and a peak."""

    def __init__(self, limits: dict[Pool, tuple[int, int]]) -> None:
        self.limits = limits
        self.share = _SHARES[0]

    def __call__(
        self, run: Callable[[], Any], differentiate: Callable[[Any], None], witness: Witness
    ) -> Any:
        with contextlib.ExitStack() as stack:
            for pool, (base, peak) in self.limits.items():
                pool.trim()
                limit = base + int(self.share * (peak - base))
                stack.enter_context(budget(limit, pool.device.name))
            stack.enter_context(Changed(region=Proving(witness)))
            result = run()
            differentiate(result)
        return result


def _sizes() -> dict[Pool, int]:
    """The bytes in use on each device, from which peaks are counted."""
    found = {}
    for pool in opened():
        if pool.device.limits.computes:
            pool.trim()
            found[pool] = pool.peak = pool.live
    return found


@contextlib.contextmanager
def _peaks() -> Iterator[None]:
    before = {pool: pool.peak for pool in opened()}
    try:
        yield
    finally:
        for pool, peak in before.items():
            pool.peak = max(peak, pool.live)


# ---- one function ----


class _Trial:
    """A function, its arguments and the state they reach."""

    def __init__(self, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = with_leaves(args), with_leaves(kwargs)
        self.fn = fn
        self.state = State((fn, self.args, self.kwargs))
        self.differentiates: bool | None = None  # not known before the first run
        self.cotangents: dict[str, Tensor] = {}
        self.rebuilt = 0  # values rebuilt in the last run

    def outcome(self, way: Way, witness: Witness | None = None) -> dict[str, Bits]:
        """All that a run leaves, by name."""
        self.state.restore()
        before = COUNTERS.nodes
        result = way(
            lambda: self.fn(*self.args, **self.kwargs), self._backward, witness or Witness()
        )
        found = {f"result{name}": bits_of(tensor) for name, tensor in tensors_in(result)}
        found |= self.state.bits()
        self.rebuilt = COUNTERS.nodes - before
        return found

    def _backward(self, result: Any) -> None:
        """Differentiate the results, unless the function did."""
        roots = {name: t for name, t in tensors_in(result) if t.requires_grad}
        self.state.add(leaves_of(roots.values()))
        if self.differentiates is None:
            self.differentiates = bool(roots) and not self.state.has_new_gradients()
        if not self.differentiates or not roots:
            return
        if not self.cotangents:
            self.cotangents = {name: _cotangent(t) for name, t in roots.items()}
        try:
            backward(list(roots.values()), [self.cotangents[name] for name in roots])
        except GraphFreedError:  # the function did, by autograd.grad
            self.differentiates = False

    def proven(self, way: Way) -> dict[str, Bits] | None:
        """The outcome of a way of recomputing; None where no budget suffices."""
        for share in _SHARES if isinstance(way, _Budgeted) else (None,):
            if isinstance(way, _Budgeted) and share is not None:
                way.share = share
            try:
                return self.outcome(way)
            except BudgetError:
                continue
            except ExactnessError as error:
                raise self._measured(way, error) from None
        return None

    def _measured(self, way: Way, error: ExactnessError) -> ExactnessError:
        """The error, with the size of the difference where a repetition shows it."""
        try:
            self.outcome(way, Witness(kept=error.call))
        except ExactnessError as again:
            if again.call == error.call:
                return again
        return error

    # ---- comparing ----

    def compare(self, first: dict[str, Bits], got: dict[str, Bits], way: Way, what: str) -> None:
        unequal = [name for name in {**first, **got} if first.get(name) != got.get(name)]
        if not unequal:
            return
        error = self._traced(way)
        if error is not None:
            raise error
        if way is _plain:
            self.proven(_dropping)  # a kernel that reads what nothing wrote may be found there
        name = unequal[0]
        raise _value_error(name, first.get(name), got.get(name), what)

    def _traced(self, way: Way) -> ExactnessError | None:
        """The first call that differs between a plain run and one of this way, as an error."""
        a, b = self._trace(_plain), self._trace(way)
        repeated = way is _plain  # else a trace may end before backward, and other values are plain
        for x, y in itertools.zip_longest(a, b):
            if x is None or y is None:
                return _repeat_error(x, y) if repeated else None
            if not _is_same_call(x, y):
                return _repeat_error(x, y)
            if repeated and x.operands != y.operands:
                return _state_error(y)
            if x.digests != y.digests:
                return self._kernel_error(way, y)
        return None

    def _trace(self, way: Way, kept: int | None = None) -> list[Proof]:
        witness = Witness(kept, traces=True)
        self.outcome(way, witness)
        assert witness.trace is not None
        return witness.trace

    def _kernel_error(self, way: Way, call: Proof) -> ExactnessError:
        at = call.number - 1
        a, b = (self._trace(each, kept=call.number)[at:] for each in (_plain, way))
        if a and b and a[0].digests != b[0].digests and b[0].contents is not None:
            call, index = a[0], _first_unequal(a[0], b[0])
            return call.error(index, "a second run of its result", b[0].contents[index])
        # Both runs found the same bytes in memory that nothing wrote; a replay fills it first.
        return self._measured(_dropping, call.error(0, "a second run of its result", None))


def _first_unequal(a: Proof, b: Proof) -> int:
    return next(i for i, made in enumerate(a.digests) if made != b.digests[i])


def _is_same_call(a: Proof, b: Proof) -> bool:
    same = a.plan.op.name == b.plan.op.name and a.plan.ins == b.plan.ins
    return same and a.plan.outs == b.plan.outs and repr(a.params) == repr(b.params)


def _cotangent(tensor: Tensor) -> Tensor:
    """Fixed numbers in [0, 1): with ones, a sum of probabilities would have no gradient."""
    spec = tensor._spec
    made = rand(*spec.shape, generator=Generator().manual_seed(0), device=tensor.device)
    return made.to(tensor.dtype)


# ---- errors ----


def _call_of(call: Proof | None) -> str:
    if call is None:
        return "no call"
    return f"{call.plan.op.name} of {describe(call.plan.ins)} with parameters {call.params}"


_ITSELF = (
    "the function does not repeat itself: it depends on state that is not restored between runs "
    "(a counter, the time, an unseeded generator)"
)


def _repeat_error(a: Proof | None, b: Proof | None) -> ExactnessError:
    call = a or b
    assert call is not None
    return ExactnessError(
        f"check_exact: at {call.place} one run made {_call_of(a)}, another {_call_of(b)}; "
        f"{_ITSELF}",
        op=call.plan.op.name,
        place=str(call.place),
        module=call.place.module,
        shapes=tuple(s.shape for s in call.plan.ins),
        call=call.number,
    )


def _state_error(call: Proof) -> ExactnessError:
    return ExactnessError(
        f"check_exact: an operand of {_call_of(call)}, called at {call.place}, had other bits in a "
        f"second run, and no op made it; {_ITSELF}, or reads memory that nothing wrote",
        op=call.plan.op.name,
        place=str(call.place),
        module=call.place.module,
        shapes=tuple(s.shape for s in call.plan.ins),
        call=call.number,
    )


def _value_error(name: str, first: Bits | None, got: Bits | None, what: str) -> ExactnessError:
    """The error of a value that differs though no call does."""
    if first is None or got is None or first[:2] != got[:2]:
        kinds = [
            "nothing" if bits is None else f"{bits[0]}{list(bits[1])}" for bits in (first, got)
        ]
        return ExactnessError(
            f"check_exact: {name} is {kinds[0]} in a plain run, {kinds[1]} in {what}"
        )
    count = largest = None
    extent = ""
    if first[3] is not None:
        count, largest = differences(first[2], got[2], first[3])
        extent = f" ({describe_difference(count, len(first[2]) // first[3].itemsize, largest)})"
    return ExactnessError(
        f"check_exact: {name} has other bits in {what}{extent}, though each call has equal ones",
        shapes=(first[1],),
        count=count,
        largest=largest,
    )
