"""Random programs: ops, views, writes, hooks, derivatives and modes, each run in several ways.

Under a budget, with checkpoints, with failing allocations, with Ctrl-C, beside another thread.

Note [What a program must do]
1. The plain run defines what is right: every other run that ends gives the same bits, or the same
   refusals at the same steps. One with checkpoints may also be refused (InplaceError) where an
   input of a dropped value was overwritten.
2. A run may end in a BudgetError, an OutOfMemoryError or a KeyboardInterrupt that was provoked. A
   BudgetError's `least` is more than its limit. Held memory never crosses a limit.
3. After a run, when its handles are gone, as many bytes are in use as before, held memory is in use
   or cached, nothing is pinned, no mode is on.
4. The plain run afterwards gives the same bits as before.
"""

from __future__ import annotations

import gc
import inspect
import random
import signal
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import BudgetError, OutOfMemoryError, memory
from rushlight.core.errors import ForeignAccess, RushlightError
from rushlight.core.interrupts import is_unheard
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.memory.replay import Pins
from rushlight.tape.record.state import STATE
from rushlight.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from tests.fuzz import Find

SIZE = 40  # a float32 matrix is 6400 bytes: large enough to be dropped
PROVOKED = (BudgetError, OutOfMemoryError, KeyboardInterrupt)

_counts: Counter[str] = Counter()


def counts() -> dict[str, int]:
    """Counts of how runs ended, since the process began."""
    return dict(_counts)


class World:
    """What the steps of one run work on."""

    def __init__(self, choose: random.Random, keeps: bool) -> None:
        self.choose = choose
        self.keeps = keeps  # checkpoints keep everything: the plain run
        # No draws of the engine's, which threads share.
        numbers = np.random.default_rng(choose.randrange(1 << 30))
        self.leaves = [_leaf(numbers, SIZE, SIZE) for _ in range(2)]
        self.weight = _leaf(numbers, 4, 1, 3, 3)
        self.values = [self.leaves[0] * 1.0, self.leaves[1] * 1.0, rl.ones(SIZE, SIZE)]
        self.places = [rl.arange(SIZE) % 7]  # int64, of any shape
        self.kept: list[Any] = []  # what the user holds besides
        self.seen: list[Any] = []  # what came to the host, and refusals

    def value(self) -> Any:
        return self.choose.choice(self.values)

    def add(self, made: Any) -> None:
        """Keep a result, as a matrix of float32."""
        if isinstance(made, (tuple, list)):
            for one in made:
                self.add(one)
        elif made is not None and not made.dtype.is_floating_point:
            (self.places if made.dtype is rl.int64 else self.kept).append(made)
        elif made is not None:
            if made.dtype is not rl.float32:
                made = made.float()
            if made.shape != (SIZE, SIZE):
                self.kept.append(made)
                made = made.sum() * 0.01 + self.values[-1]
            if all(made is not v for v in self.values):
                self.values.append(made)

    def wrapped(self, function: Callable[..., Any], *args: Any) -> Any:
        if self.keeps:
            return function(*args)
        if len(self.values) % 2:
            return checkpoint(function, *args)
        return checkpoint(function, *args, context_fn=_selecting, determinism_check="bits")


def _selecting() -> tuple[Any, Any]:
    """The blocks of a checkpoint that treats each op in another way, the same in every run."""

    def policy(ctx: Any, op: Any, *args: Any) -> CheckpointPolicy:
        return CheckpointPolicy(zlib.crc32(str(op).encode()) % len(CheckpointPolicy))

    return create_selective_checkpoint_contexts(policy)


def _leaf(numbers: np.random.Generator, *shape: int) -> Any:
    return rl.tensor(numbers.standard_normal(shape, np.float32) * 0.3, requires_grad=True)


def _image(x: Any) -> Any:
    return x.reshape(1, 1, SIZE, SIZE)


def _class_loss(w: World, x: Any) -> Any:
    target = w.choose.choice(w.places).reshape(-1)[:SIZE] % SIZE
    return F.cross_entropy(x[: target.shape[0]], target)


def _double_backward(w: World, x: Any, y: Any) -> Any:
    leaf = w.leaves[0]
    loss = (leaf * x * y).tanh().sum()
    (g,) = rl.autograd.grad(loss, [leaf], create_graph=True)
    return (g * g).sum() + x


def _backward(w: World, x: Any, y: Any) -> None:
    if x.requires_grad:
        (x * y).sum().backward(retain_graph=True)


def _hook(w: World, x: Any, y: Any) -> None:
    if x.requires_grad and not x.is_leaf:
        factor = w.choose.choice([0.5, 2.0])
        x.register_hook(lambda g: g * factor)


def _forget(w: World, x: Any, y: Any) -> None:
    if len(w.values) > 3:
        del w.values[w.choose.randrange(1, len(w.values) - 1)]
    if w.kept and w.choose.random() < 0.5:
        w.kept.clear()


def _mode(w: World, x: Any, y: Any) -> Any:
    kind = w.choose.randrange(4)
    if kind == 0:
        with rl.no_grad():
            return (x + y).exp().clamp(max=3.0)
    if kind == 1:
        with rl.inference_mode():
            made = x * 2.0 + y
        return made.clone()
    if kind == 2:
        with rl.autocast("cpu", dtype=rl.bfloat16):
            return (x @ y) * 0.05
    with rl.enable_grad(), rl.autograd.graph.save_on_cpu():
        return x.sin() * y


def _index_write(w: World, x: Any, y: Any) -> Any:
    places = rl.tensor([w.choose.randrange(SIZE) for _ in range(5)])
    return x.clone().index_add_(0, places, y[:5])


def _scatter(w: World, x: Any, y: Any) -> Any:
    return x.scatter_add(1, (y.detach() * 10).long().clamp(0, SIZE - 1), y)


def _strided(w: World, x: Any, y: Any) -> Any:
    return x.unfold(0, 8, 4).sum(2).sum(0) + y


def _sequence(w: World, x: Any, y: Any) -> Any:
    for _ in range(w.choose.randint(2, 5)):
        x = (x * y).tanh() + x * 0.1
    return x


Step = Callable[[World, Any, Any], Any]

# Steps that draw no random numbers of the engine's: two threads would share them.
STEPS: list[Step] = [
    lambda w, x, y: x + y,
    lambda w, x, y: x * y,
    lambda w, x, y: x.tanh(),
    lambda w, x, y: (x @ y).mul_(0.1),
    lambda w, x, y: (x.double() @ y.double()).float() * 0.1,
    lambda w, x, y: (x.bfloat16() + y.bfloat16()).float(),
    lambda w, x, y: x.sort(1),
    lambda w, x, y: x.sort(0, descending=True),
    lambda w, x, y: rl.topk(x, 20, 1),
    lambda w, x, y: x.max(1),
    lambda w, x, y: x.cummax(0),
    lambda w, x, y: rl.var_mean(x, 1),
    lambda w, x, y: rl.aminmax(x),
    lambda w, x, y: rl.cat([part * (i + 1.0) for i, part in enumerate(x.split([10, 5, 25]))]),
    lambda w, x, y: rl.cat(x.chunk(3, 1)[::-1], 1),
    lambda w, x, y: x.unbind(0)[w.choose.randrange(SIZE)] + y,
    lambda w, x, y: rl.stack([x, y]).logsumexp(0),
    lambda w, x, y: rl.cat([x[:10], y[10:]]),
    lambda w, x, y: x.t() * y,
    lambda w, x, y: x.t().contiguous(),
    lambda w, x, y: x.flip(0).roll(3, 1),
    lambda w, x, y: rl.where(x > y, x, y.detach()),
    lambda w, x, y: x.softmax(-1),
    lambda w, x, y: x.cumsum(1) * 0.1,
    lambda w, x, y: rl.layer_norm(x, (SIZE,)),
    lambda w, x, y: F.group_norm(x.reshape(1, 4, 10, SIZE), 2).reshape(SIZE, SIZE),
    lambda w, x, y: F.batch_norm(x, None, None, training=True),
    lambda w, x, y: F.conv2d(_image(x), w.weight, padding=1).mean(1).reshape(SIZE, SIZE),
    lambda w, x, y: F.conv2d(_image(x), w.weight, stride=2),
    lambda w, x, y: F.conv_transpose2d(x.reshape(1, 4, 10, SIZE), w.weight, stride=2),
    lambda w, x, y: F.max_pool2d(_image(x), 3, 1, 1).reshape(SIZE, SIZE),
    lambda w, x, y: F.avg_pool2d(_image(x), 4),
    lambda w, x, y: (rl.complex(x, y) @ rl.complex(y, x)).real * 0.05,
    lambda w, x, y: rl.fft.rfft(x).abs().sum(1, keepdim=True) * 0.01 + y,
    lambda w, x, y: F.scaled_dot_product_attention(*[v.reshape(1, 2, 20, SIZE) for v in (x, y, x)]),
    lambda w, x, y: F.mse_loss(x, y),
    lambda w, x, y: F.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid()),
    lambda w, x, y: _class_loss(w, x),
    lambda w, x, y: (
        x.gather(0, w.choose.choice(w.places).reshape(-1)[:1].expand(1, SIZE) % SIZE) + y
    ),
    lambda w, x, y: w.choose.choice(w.places) + 1,
    lambda w, x, y: rl.searchsorted(rl.linspace(-1.0, 1.0, 50), x.detach()),
    lambda w, x, y: rl.vmap(lambda a: a * 2.0 + a.sum())(x),
    lambda w, x, y: rl.vmap(lambda a, b: (a @ b) * a, (0, 1))(x, y) * 0.05,
    lambda w, x, y: w.wrapped(lambda t: (t @ t).tanh().mul_(0.5), x),
    lambda w, x, y: w.wrapped(lambda t, u: rl.layer_norm((t + u).sort(1)[0], (SIZE,)), x, y),
    lambda w, x, y: w.wrapped(
        lambda t: w.wrapped(lambda u: u.exp().clamp(max=2.0), t.sin()) * t, x
    ),
    lambda w, x, y: x.add_(y),
    lambda w, x, y: x.mul_(0.5),
    lambda w, x, y: x[1:3].add_(y[:2]),
    lambda w, x, y: x.__setitem__(0, y[1]),
    lambda w, x, y: x.t()[1:].copy_(y[1:]),
    lambda w, x, y: x.tanh_(),
    lambda w, x, y: x.masked_fill_(y.detach() > 1.0, 0.25),
    lambda w, x, y: x.detach().clone().sort(1)[0].add_(y.detach()),
    lambda w, x, y: w.kept.append(x[5:].detach()),
    lambda w, x, y: w.seen.append(float(x.detach().sum())),
    lambda w, x, y: w.seen.append(x.detach()[3].tolist()),
    lambda w, x, y: w.kept.append(x.detach().numpy()),
    _index_write,
    _scatter,
    _strided,
    _sequence,
    _mode,
    _hook,
    _forget,
    _backward,
    _double_backward,
]

RANDOM: list[Step] = [
    lambda w, x, y: F.dropout(x, 0.5) + y,
    lambda w, x, y: rl.bernoulli(x.detach().sigmoid()) * y,
    lambda w, x, y: rl.randn_like(x) * 0.1 + y,
    lambda w, x, y: w.wrapped(lambda t: F.dropout(t.tanh(), 0.3), x),
]


def run(
    seed: int, keeps: bool = False, draws: bool = True, after_step: Callable[[], None] | None = None
) -> list[Any]:
    """The program of a seed: the bits of all its results, and its refusals."""
    choose = random.Random(seed)
    if draws:
        rl.manual_seed(seed)
    world = World(choose, keeps)
    steps = STEPS + RANDOM if draws else STEPS
    for number in range(choose.randint(4, 16)):
        step, x, y = choose.choice(steps), world.value(), world.value()
        place = choose.getstate()  # a refused step has drawn as many choices as one that was not
        try:
            world.add(step(world, x, y))
        except PROVOKED:
            raise
        except ForeignAccess:
            raise
        except RushlightError as error:
            world.seen.append((number, type(error).__name__))
        choose.setstate(place)
        choose.random()
        if after_step is not None:
            after_step()
    try:
        loss: Any = sum((v * (i + 1.0)).sum() for i, v in enumerate(world.values))
        if loss.requires_grad:
            loss.backward()
    except PROVOKED:
        raise
    except ForeignAccess:
        raise
    except RushlightError as error:
        world.seen.append(("backward", type(error).__name__))
    grads = [leaf.grad for leaf in (*world.leaves, world.weight)]
    held = [v for v in world.kept if isinstance(v, rl.Tensor)]
    return [
        *world.seen,
        *[None if v is None else _bits(v) for v in (*world.values, *world.places, *held, *grads)],
    ]


def _bits(value: Any) -> bytes:
    value = value.detach()
    if value.is_complex():
        value = rl.view_as_real(value)
    return bytes(
        value.float().numpy().tobytes() if value.dtype is rl.bfloat16 else value.numpy().tobytes()
    )


# ---- provoked errors ----


class Failing:
    """`with Failing(at, error):` the at-th new block is refused."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.at = at
        self.error = error

    def __enter__(self) -> Failing:
        self.fresh = fresh = Pool.fresh

        def failing(pool: Pool, room: int) -> int:
            self.at -= 1
            if self.at == 0:
                raise self.error("simulated")
            return fresh(pool, room)

        Pool.fresh = failing  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Pool.fresh = self.fresh  # type: ignore[method-assign]


class Redelivering:
    """`with Redelivering():` a Ctrl-C that a finaliser drops is raised at the end of the block.

    Outside of it a thread sends the signal again a moment later (Note [Interrupted finalisers]). On
    a busy machine that moment may lie behind the block that expects the signal.
    """

    def __enter__(self) -> Redelivering:
        self.dropped = False
        self.hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        sys.unraisablehook = self.hook
        if self.dropped and kind is None:
            raise KeyboardInterrupt

    def _unraisable(self, unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self.dropped = True
        else:
            self.hook(unraisable)


class Interrupting(Redelivering):
    """`with Interrupting(at):` Ctrl-C at the at-th check for signals.

    Checks are at the start of a function and after a call of a C function. Finalisers are left out:
    no error leaves them.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.looks: dict[CodeType, bool] = {}

    def __enter__(self) -> Interrupting:
        super().__enter__()
        self.before = signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.setprofile(self._heard)
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, self.before)
        super().__exit__(kind)

    def _heard(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" and event != "c_return":
            return
        code = frame.f_code
        if event == "call":
            looks = self.looks.get(code)
            if looks is None:
                looks = self.looks[code] = not (
                    is_unheard(code) or code.co_flags & inspect.CO_GENERATOR
                )
            if not looks:
                return
        self.at -= 1
        if self.at <= 0 and not _is_finaliser(frame):
            sys.setprofile(None)
            handler: Any = signal.getsignal(signal.SIGINT)
            handler(signal.SIGINT, frame)  # it raises, unless signals are held back


def _is_finaliser(frame: FrameType | None) -> bool:
    while frame is not None:
        if (
            frame.f_code.co_name in ("__del__", "_leave", "_remove", "__exit__")
            or "weakref" in frame.f_code.co_filename
        ):
            return frame.f_code.co_name != "__exit__" or "contextlib" in frame.f_code.co_filename
        frame = frame.f_back
    return False


# ---- one case ----


def _settled(what: str, live: int) -> None:
    """A run left nothing behind. See Note [What a program must do] 3."""
    pool = pool_of("cpu")
    if pool.live != live:
        gc.collect()
    cached = sum(room * len(blocks) for room, blocks in pool.free.items())
    if pool.live != live:
        raise Find(f"{what}: {pool.live - live} bytes stay in use")
    if pool.held != pool.live + cached:
        raise Find(
            f"{what}: {pool.held} bytes are said to be held, {pool.live} are in use and {cached} "
            "cached"
        )
    if Pins.pinned():
        raise Find(f"{what}: something stays pinned")
    state = STATE.get()
    if state.special or not state.grad or state.inference:
        raise Find(f"{what}: a mode stays on: {state}")
    if pool.limit is not None:
        raise Find(f"{what}: a limit stays: {pool.limit}")


def _ended(function: Callable[[], list[Any]]) -> list[Any] | str:
    """A run's result, or the class of its error. The error and its frames are freed."""
    try:
        return function()
    except PROVOKED as error:
        if isinstance(error, BudgetError) and error.least <= _limit_in(str(error)):
            raise Find(f"a BudgetError's least is below its limit: {error}") from None
        return type(error).__name__


def _limit_in(message: str) -> int:
    return int(message.split("budget of ")[1].split()[0])


def _inside(limit: int, function: Callable[..., list[Any]]) -> list[Any]:
    pool = pool_of("cpu")

    def check() -> None:
        if pool.held > limit:
            raise Find(f"{pool.held} bytes are held, and the limit is {limit}")

    with memory.budget(limit):
        return function(after_step=check)


def case(seed: int) -> None:
    choose = random.Random(~seed)
    pool = pool_of("cpu")
    draws = choose.random() < 0.7
    kinds = [
        "budget",
        "budget",
        "budget and failure",
        "budget and interrupt",
        "failure",
        "interrupt",
        "checkpoint",
    ]
    kind = choose.choice(kinds) if draws else "threads"
    keeps = kind != "checkpoint" and choose.random() < 0.5

    def plain() -> list[Any]:
        return run(seed, keeps=True, draws=draws)

    first = plain()  # programs and constants that are kept are made now
    gc.collect()
    memory.empty_cache()
    live = pool.live
    memory.reset_peak()
    want = plain()
    peak = pool.peak - live
    _settled("plain", live)
    if want != first:
        raise Find("two plain runs differ")
    limit = live + int(peak * choose.uniform(0.25, 1.1)) + 8192
    at = int(choose.expovariate(1 / 40)) + 1
    for turn in range(3):
        memory.empty_cache()
        got = _turn(kind, lambda **named: run(seed, keeps, draws, **named), limit, at)
        _counts[
            f"{kind}: {got if isinstance(got, str) else 'refused' if _is_refused(got) else 'ended'}"
        ] += 1
        try:
            _settled(kind, live)
        except Find:
            if turn == 2 or kind == "checkpoint":
                raise
            live = pool.live  # a constant may have been made; it is not made again
            continue
        refused = not keeps and not isinstance(got, str) and got != want and _is_refused(got)
        if not isinstance(got, str) and got != want and not refused:
            raise Find(
                f"{kind} at {limit - live} bytes above what is in use, {at}: other bits than the "
                "plain run's"
            )
        break
    if choose.random() < 0.25:
        if plain() != want:
            raise Find(f"after {kind}: other bits than before")
        _settled("plain again", live)


def _is_refused(got: list[Any]) -> bool:
    return any(isinstance(seen, tuple) and seen[1] == "InplaceError" for seen in got)


def _turn(kind: str, usual: Callable[..., list[Any]], limit: int, at: int) -> list[Any] | str:
    error = OutOfMemoryError if at % 2 else KeyboardInterrupt
    if kind == "checkpoint":
        return _ended(usual)
    if kind == "budget":
        return _ended(lambda: _inside(limit, usual))
    if kind == "threads":
        return _beside(usual, limit)

    def provoked() -> list[Any]:
        with Failing(at, error) if "failure" in kind else Interrupting(at * 60):
            return _inside(limit, usual) if "budget" in kind else usual()

    return _ended(provoked)


def _beside(usual: Callable[..., list[Any]], limit: int) -> list[Any] | str:
    """The program in this thread inside a budget, and in another outside of it, at the same
    time.
    """
    found: list[Any] = []
    pool = pool_of("cpu")

    def beside() -> None:
        try:
            found.append(usual())
        except BaseException as error:
            found.append(error)

    other = threading.Thread(target=beside)
    other.start()
    try:
        with memory.budget(limit + (pool.peak - limit if pool.peak > limit else 0)):
            mine = _ended(usual)
    finally:
        other.join()
    if isinstance(found[0], BaseException):
        raise Find(
            f"in the thread outside the budget: {type(found[0]).__name__}: {found[0]}"
        ) from found[0]
    want = found.pop()
    if not isinstance(mine, str) and mine != want and not (_is_refused(mine) or _is_refused(want)):
        raise Find("two threads differ")
    return want


gc.collect()
gc.freeze()
