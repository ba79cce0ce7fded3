"""Failures at every allocation of a training step, and Ctrl-C at any place of it.

The step has a batch norm, dropout, two passes that add up, a gradient scaler and an optimiser. A
failed call changes nothing, its memory is given back without the cycle collector, and the step that
is repeated gives the bits of one that never failed.
"""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as rl
from rushlight import BudgetError, OutOfMemoryError, amp, memory, nn, optim
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.memory import replay, tracebacks
from rushlight.tape.memory.replay import Pins
from rushlight.tape.program.derivative import Derivative
from rushlight.tape.record.state import STATE
from rushlight.tape.walk import parallel
from rushlight.utils.checkpoint import checkpoint
from tests.fuzz.programs import Interrupting
from tests.memory.failing_allocations import Failing
from tests.memory.training_step import bits

OPTIMIZERS: dict[str, Any] = {
    "AdamW": lambda p: optim.AdamW(p, 0.01),
    "SGD": lambda p: optim.SGD(p, 0.01, momentum=0.9, foreach=True),
}


@pytest.fixture(autouse=True)
def counted_references() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


class Training:
    """One step of training in parts: two passes, the optimiser's step, the scaler's update."""

    def __init__(self, kind: str = "plain", device: str = "cpu", optimizer: str = "AdamW") -> None:
        rl.manual_seed(1)
        self.kind, self.device = kind, device
        self.inner = nn.Sequential(nn.Linear(24, 48), nn.BatchNorm1d(48), nn.GELU())
        self.outer = nn.Sequential(nn.Dropout(0.3), nn.Linear(48, 8))
        self.model = nn.ModuleList([self.inner, self.outer]).to(device)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        # A scaler reads whether gradients are finite: without memory there is nothing to read.
        self.scaler = amp.GradScaler(
            device, init_scale=8.0, growth_interval=1, enabled=device != "null"
        )
        self.scaler.scale(rl.ones((), device=device))  # from now on the scale is on the device
        self.x = rl.randn(64, 24, device=device)

    @property
    def parts(self) -> list[Callable[[], Any]]:
        """Functions that refer to the training, which does not refer to them."""
        return [
            lambda: self.one_pass(0),
            lambda: self.one_pass(1),
            lambda: self.scaler.unscale_(self.optimizer),
            lambda: self.scaler.step(self.optimizer),
            self.scaler.update,
        ]

    def one_pass(self, number: int) -> None:
        rl.manual_seed(number)
        limited = self.kind in ("budget", "steady")
        limit = memory.allocated(self.device) + (60_000 if self.device != "null" else 1 << 20)
        if self.kind == "steady":  # every pass under one limit: Note [Foresight] 5
            limit = 1 << 30
        with memory.budget(limit, self.device) if limited else contextlib.nullcontext():
            x = self.x * (number + 1.0)
            h = checkpoint(self.inner, x) if self.kind == "checkpoint" else self.inner(x)
            loss = self.scaler.scale(self.outer(h).square().mean())
            loss.backward(**({"workers": 2} if self.kind == "workers" else {}))

    def learned(self) -> Any:
        """Everything that a backward pass or an optimiser must change as a whole."""
        if self.device == "null":
            return [p.grad is None for p in self.model.parameters()]
        state = self.optimizer.state
        values: list[Any] = []
        for p in self.model.parameters():
            mine = state.get(p, {})
            kept = [(k, v) for k, v in sorted(mine.items()) if v is not None]
            values += bits(p, p.grad)
            values += [(k, bits(v) if isinstance(v, rl.Tensor) else v) for k, v in kept]
        return [*values, repr(self.scaler.state_dict())]

    def look(self) -> Any:
        buffers = list(self.model.buffers())
        return self.learned(), None if self.device == "null" else bits(*buffers)

    def buffers(self) -> list[rl.Tensor]:
        return [b.clone() for b in self.model.buffers()]

    def put_back(self, buffers: list[rl.Tensor]) -> None:
        """What a program does that repeats a pass: the norm has seen the batch already."""
        with rl.no_grad():
            for mine, old in zip(self.model.buffers(), buffers, strict=True):
                mine.copy_(old)

    def run(self) -> list[Any]:
        """The whole step; what is to be seen after each part."""
        seen = []
        for part in self.parts:
            part()
            seen.append(self.look())
        return seen


def clean(device: str) -> bool:
    state = STATE.get()
    pool = pool_of(device)
    counted = pool.held >= pool.live and not Pins.pinned() and pool.limit is None
    return bool(counted and state.region is None and state.grad and not state.special)


def suffer(
    training: Training,
    want: list[Any],
    fault: Callable[[], contextlib.AbstractContextManager[Any]],
    error: type[BaseException],
) -> int:
    """Run the step with faults, repeating parts that fail; the number of failures."""
    failures = 0
    for number, part in enumerate(training.parts):
        while True:
            buffers = training.buffers()
            before = training.learned()
            live = memory.allocated(training.device)
            memory.empty_cache(training.device)
            try:
                with fault():
                    part()
                break
            except error:
                pass
            failures += 1
            assert clean(training.device)
            now = training.learned()
            if error is KeyboardInterrupt and now == want[number][0] != before:
                break  # pressed when it was done
            assert now == before
            training.put_back(buffers)
            assert memory.allocated(training.device) == live
        assert training.look() == want[number], f"part {number}"
    return failures


class Fault:
    """`with Fault(failing):` the n-th allocation fails, then n + 1 at the next block."""

    def __init__(self, failing: Any, at: int) -> None:
        self.failing, self.at = failing, at

    def __call__(self) -> Fault:
        return self

    def __enter__(self) -> None:
        self.failing.start(self.at)

    def __exit__(self, *_: object) -> None:
        self.at -= self.failing.calls  # of the whole step
        self.failing.start(0)


def fail_everywhere(failing: Any, kind: str, device: str, optimizer: str, every: int = 1) -> int:
    want = Training(kind, device, optimizer).run()
    total = 0
    for at in range(1, 1000, every):
        failures = suffer(
            Training(kind, device, optimizer), want, Fault(failing, at), failing.error
        )
        total += failures
        if not failures:
            return total
    pytest.fail("it never ends")


@pytest.fixture(autouse=True)
def every_node_is_worth_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LONG", 1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["plain", "checkpoint", "budget", "workers"])
def test_memory_that_ends_at_every_allocation(monkeypatch, kind, optimizer):
    failing = Failing(monkeypatch)
    assert fail_everywhere(failing, kind, "cpu", optimizer) > 40


@pytest.mark.parametrize("kind", ["plain", "budget"])
def test_memory_that_ends_without_numbers(monkeypatch, kind):
    assert fail_everywhere(Failing(monkeypatch), kind, "null", "AdamW") > 40


class Followed:
    """The calls of steps that follow a record, and the derivatives without recipes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.derivatives = 0
        following, run_quietly = replay.following, Derivative.run_quietly

        def counting(ins: int, outs: int) -> Callable[..., Any]:
            def counted(*given: Any) -> Any:
                made = following(ins, outs)(*given)
                self.calls += made is not None
                return made

            return counted

        def counted_quietly(*given: Any) -> Any:
            made = run_quietly(*given)
            self.derivatives += made is not None
            return made

        monkeypatch.setattr(replay, "following", counting)
        monkeypatch.setattr(Derivative, "run_quietly", counted_quietly)


def test_memory_that_ends_in_steps_that_follow_a_record(monkeypatch):
    for _ in range(3):
        Training("steady").run()
    followed = Followed(monkeypatch)
    assert fail_everywhere(Failing(monkeypatch), "steady", "cpu", "AdamW") > 40
    assert followed.calls > 40 and followed.derivatives > 40


GPUS = ("webgpu", "cuda")


@pytest.mark.parametrize("kind", ["plain", "workers"])
@pytest.mark.parametrize("where", GPUS)
def test_memory_that_ends_on_a_gpu(monkeypatch, require_device, where, kind):
    device = require_device(where)
    assert fail_everywhere(Failing(monkeypatch), kind, device, "AdamW", every=17) > 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "checkpoint", "budget", "workers"])
@pytest.mark.parametrize("where", GPUS)
def test_memory_that_ends_at_every_allocation_on_a_gpu(monkeypatch, require_device, where, kind):
    assert fail_everywhere(Failing(monkeypatch), kind, require_device(where), "AdamW") > 40


# ---- the device's own refusal ----


class Refusing:
    """A device whose n-th allocation fails; 0: none."""

    error = OutOfMemoryError

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
        pool = pool_of(device)
        self.device, self.at, self.calls = pool.device, 0, 0
        monkeypatch.setattr(pool, "device", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def start(self, at: int) -> None:
        self.at, self.calls = at, 0

    def alloc(self, nbytes: int) -> int:
        self.calls += 1
        if self.calls == self.at:
            raise OutOfMemoryError("simulated: the device is full")
        return self.device.alloc(nbytes)


@pytest.mark.parametrize("kind", ["plain", "budget", "workers"])
@pytest.mark.parametrize("where", ["cpu", *GPUS])
def test_a_device_that_refuses(monkeypatch, require_device, where, kind):
    """It is asked again where cached blocks or droppable values could be given back."""
    device = require_device(where)
    refusing = Refusing(monkeypatch, device)
    want = Training(kind, device).run()
    failures = sum(
        suffer(Training(kind, device), want, Fault(refusing, at), OutOfMemoryError)
        for at in range(1, 120, 3 if device == "cpu" else 29)
    )
    # Inside a budget values are dropped instead.
    least = 4 if kind == "budget" else 10
    assert failures > (least if device == "cpu" else 0)


# ---- Ctrl-C ----


def press(kind: str, times: int) -> int:
    """Ctrl-C so many times, anywhere in a step: so a part of it ends without one now and then."""
    choose = random.Random(kind)
    want = Training(kind).run()
    with Interrupting(MANY) as counting:
        Training(kind).run()
    longest = MANY - counting.at

    def fault() -> Any:
        return Interrupting(choose.randint(1, longest))

    heard = 0
    while heard < times:
        heard += suffer(Training(kind), want, fault, KeyboardInterrupt)
    return heard


def test_ctrl_c_in_steps_that_follow_a_record(monkeypatch):
    for _ in range(3):
        Training("steady").run()
    followed = Followed(monkeypatch)
    press("steady", 100)
    assert followed.calls > 40 and followed.derivatives > 40


MANY = 1_000_000  # more checks for signals than a step has


@pytest.mark.parametrize("kind", ["plain", "checkpoint", "budget", "workers"])
def test_ctrl_c_at_random_places(kind):
    press(kind, 100)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "checkpoint", "budget", "workers"])
def test_ctrl_c_at_ten_thousand_places(kind):
    press(kind, 2500)


# ---- tracebacks ----


class Attention(nn.Module):
    """Functions of this package with tensors of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(24, 4, batch_first=True)
        self.last = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 96), nn.GELU())

    def forward(self, x: rl.Tensor) -> rl.Tensor:
        return self.last(self.heads(x, x, x)[0]).square().mean()


@pytest.mark.parametrize("where", ["variable", "prompt"])
@pytest.mark.parametrize("limited", [False, True])
def test_a_kept_error_holds_no_memory_that_is_needed(monkeypatch, limited, where):
    """Frames of this package are cleared; those of this file hold no tensor but the model's."""
    rl.manual_seed(0)
    model, x = Attention(), rl.randn(8, 16, 24)
    error = KeyboardInterrupt if where == "prompt" else OutOfMemoryError
    failing = Failing(monkeypatch, error)

    def step() -> None:
        with memory.budget(1 << 30) if limited else contextlib.nullcontext():
            model(x).backward()

    step()
    held_once = False
    for at in range(1, 60, 2):
        model.zero_grad(set_to_none=True)
        memory.empty_cache()
        live = memory.allocated()
        failing.start(at)
        kept: BaseException | None = None
        try:
            step()
        except error as caught:
            kept = caught
        failing.start(0)
        if kept is None:
            break
        if where == "prompt":
            monkeypatch.setattr("sys.last_value", kept, raising=False)
        else:
            tracebacks.note(kept)
        held_once = held_once or memory.allocated() > live
        memory.empty_cache()
        assert memory.allocated() == live
        assert kept.__traceback__ is not None
    # A refused request holds nothing beyond its budget.
    assert held_once == (not limited or where == "prompt") and at > 20


@pytest.mark.parametrize("for_program", [False, True])
def test_a_second_try_inside_except_has_all_memory(for_program):
    """The step's own frames hold no tensor; the package's do, and are cleared."""
    rl.manual_seed(0)
    model, x = Attention(), rl.randn(64, 16, 24)

    def step(limit: int) -> None:
        model.zero_grad(set_to_none=True)
        if for_program:
            rl.set_budget(limit)
            model(x).backward()
        else:
            with memory.budget(limit):
                model(x).backward()

    step(1 << 30)
    want = bits(*[p.grad for p in model.parameters()])
    rl.set_budget(None)
    model.zero_grad(set_to_none=True)
    memory.empty_cache()
    start = memory.allocated()
    try:
        step(start + (1 << 18))
        pytest.fail("it fits")
    except BudgetError as error:
        held = memory.allocated() - start
        assert held > 1 << 16 if for_program else held == 0
        memory.reset_peak()
        rl.set_budget(None)
        step(error.required_bytes)
        assert memory.peak() <= error.required_bytes
    rl.set_budget(None)
    assert bits(*[p.grad for p in model.parameters()]) == want


def test_values_are_not_dropped_for_what_a_kept_error_holds():
    rl.manual_seed(0)
    model, x = Attention(), rl.randn(64, 16, 24)
    memory.empty_cache()
    start = memory.allocated()
    rl.set_budget(start + (1 << 19))
    try:
        model(x)
        pytest.fail("it fits")
    except BudgetError:
        held = memory.allocated() - start
        assert held > 1 << 17
        value = x * 2.0  # 96 KiB, can be dropped
        made = rl.empty((1 << 19) // 4 - value.numel() - 1024)
        assert value._memory.block is not None and made.nbytes > (1 << 19) - held
    finally:
        rl.set_budget(None)


def test_a_request_gets_the_memory_of_a_kept_error(monkeypatch):
    rl.manual_seed(0)
    model, x = Attention(), rl.randn(8, 16, 24)
    refusing = Refusing(monkeypatch, "cpu")
    model(x)
    memory.empty_cache()
    start = memory.allocated()
    refusing.start(6)
    with pytest.raises(OutOfMemoryError) as kept:
        model(x)
    refusing.start(0)
    held = memory.allocated() - start
    assert held > 1 << 14
    with memory.budget(start + held):
        rl.zeros(held // 4 - 1024)
    assert kept.value.__traceback__ is not None


def test_a_kept_error_of_a_derivative_that_is_traced_holds_no_memory():
    """The first derivative of a kind runs in closures, which frames keep with what they read."""
    rl.manual_seed(0)
    for width in (37, 41, 43):  # shapes of no other test
        w, x = rl.randn(width, 2 * width, requires_grad=True), rl.randn(512, width)
        memory.empty_cache()
        start, block = memory.allocated(), x.nbytes
        kept = None
        try:
            with memory.budget(start + 3 * block):
                (x @ w).sin().square().sum().backward()
        except BudgetError as error:
            kept = error
        assert kept is not None and memory.allocated() == start
        assert kept.__traceback__ is not None and kept.__traceback__.tb_next is None


def by_a_user(x: rl.Tensor, made: list[Any]) -> rl.Tensor:
    """The user's own frame holds tensors that nothing else does."""
    mine = [x * i for i in range(4)]
    made.extend(weakref.ref(value) for value in mine)
    return rl.zeros(1 << 40) + mine[0]


def fails(x: rl.Tensor, made: list[Any]) -> BaseException:
    with pytest.raises(OutOfMemoryError) as kept:
        by_a_user(x, made)
    error = kept.value
    del kept
    return error


def test_tensors_of_the_user_s_frames_stay_until_their_memory_is_needed():
    x, made = rl.ones(1 << 16), list[Any]()
    memory.empty_cache()
    start = memory.allocated()
    error = fails(x, made)
    assert all(value() is not None for value in made)
    assert memory.allocated() == start + 4 * x.nbytes
    with memory.budget(start + 5 * x.nbytes):
        rl.zeros(1 << 16)  # fits beside them
        assert all(value() is not None for value in made)
        rl.zeros(3 << 16)
        assert all(value() is None for value in made)
    assert error.__traceback__ is not None
    again = fails(x, made)
    memory.empty_cache()
    assert memory.allocated() == start and again.__traceback__ is not None


def test_a_kept_error_s_generator_goes_on():
    def steps() -> Iterator[int]:
        value, kept = rl.ones(1 << 16), None
        try:
            rl.zeros(1 << 40)
        except OutOfMemoryError as error:
            kept = error
        yield 1
        assert kept is not None
        yield int(value.sum().item())

    found = steps()
    assert next(found) == 1
    memory.empty_cache()
    assert next(found) == 1 << 16


def test_what_a_kept_error_s_frames_hold_is_not_rebuilt_for_a_write():
    rl.manual_seed(0)
    w, x = rl.randn(64, 64, requires_grad=True), rl.randn(512, 64)
    memory.empty_cache()
    start, block = memory.allocated(), x.nbytes

    def forward() -> rl.Tensor:
        first = (x @ w).tanh()
        second = first.sin()
        third = second.cos()
        return rl.zeros(9 * block) + first + second + third

    try:
        with memory.budget(start + 5 * block):
            forward()
    except BudgetError as error:
        kept = error
    with memory.budget(start + 3 * block), rl.no_grad():
        (x @ w).tanh()  # drops what the frame holds
        w.add_(1.0)
    assert memory.allocated() <= start + block and kept.op
