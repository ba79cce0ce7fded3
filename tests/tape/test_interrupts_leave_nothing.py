"""Ctrl-C at any check for signals: nothing stays in use, held, pinned or switched on."""

from __future__ import annotations

import functools
import gc
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import BudgetError, memory, optim
from rushlight.core import interrupts
from rushlight.core.cache import Cache
from rushlight.core.interrupts import is_unheard, unheard
from rushlight.devices.shared.allocator import Pool, Scratch, Storage
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.memory.replay import Pins
from rushlight.tape.record.op import Plans
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Leaf
from rushlight.utils.checkpoint import checkpoint
from tests.fuzz.programs import Interrupting, Redelivering
from tests.time_limit import time_limit as time_limit


class Model:
    """What the programs work on."""

    def __init__(self) -> None:
        rl.manual_seed(0)
        self.x = rl.randn(40, 40)
        self.w = rl.randn(40, 40, requires_grad=True)
        self.k = rl.randn(4, 1, 3, 3, requires_grad=True)

    def train(self) -> None:
        y = (self.x @ self.w).relu() * 0.5
        y = y + F.conv2d(y.reshape(1, 1, 40, 40), self.k, stride=2).sum()
        y.sum().backward()

    def fit(self) -> None:
        pool = pool_of("cpu")
        try:
            with memory.budget(pool.live + 45_000):
                y = self.x
                for _ in range(3):
                    y = (y @ self.w).tanh()
                s, i = y.sort(1)
                del y
                (s * 2.0).sum().backward()
                i += 1
        except BudgetError as error:
            assert error.least > pool.live  # it is refused for what it needs

    def switch(self) -> None:
        x = self.x
        with rl.autocast("cpu", dtype=rl.bfloat16):
            x @ x
        rl.vmap(lambda a: a * 2.0 + a.sum())(x)
        with rl.no_grad(), rl.inference_mode():
            x.sort(1)
        checkpoint(lambda a: (a @ self.w).sin(), x).sum().backward()

    def forget(self) -> None:
        self.w.grad = self.k.grad = None


def _assert_clean(model: Model, live: int) -> None:
    model.forget()
    pool = pool_of("cpu")
    assert pool.live == live
    assert pool.held == pool.live + sum(room * len(blocks) for room, blocks in pool.free.items())
    assert not Pins.pinned() and pool.limit is None
    state = STATE.get()
    assert state.grad and not state.special and not state.inference


@pytest.fixture
def model() -> Any:
    made = Model()
    for run in (made.train, made.fit, made.switch):
        for _ in range(3):
            run()
    made.forget()
    gc.collect()
    return made


@pytest.mark.parametrize("name", ["train", "fit", "switch"])
def test_at_every_place(name, model):
    run: Callable[[], None] = getattr(model, name)
    live = pool_of("cpu").live
    at, step = 1, 1 if name == "train" else 7
    while True:
        memory.empty_cache()
        try:
            with Interrupting(at):
                run()
        except KeyboardInterrupt:
            pass
        else:
            break
        _assert_clean(model, live)
        at += step
    assert at > 200
    run()
    _assert_clean(model, live)


def test_at_any_moment(model):
    """Signals at arbitrary times, which reach other code's windows too."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    choose, live, heard = random.Random(0), pool_of("cpu").live, 0
    runs = [model.train, model.fit, model.switch]
    try:
        for turn in range(300):
            run = runs[turn % 3]
            try:
                with Redelivering():
                    signal.setitimer(signal.ITIMER_REAL, choose.uniform(2e-6, 3e-3))
                    run()
                    time.sleep(0.01)
            except KeyboardInterrupt:
                heard += 1
            _assert_clean(model, live)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard > 250


def test_unheard_functions_begin():
    """Of thousands of calls with a pending signal none stops before its first line.

    Usual functions do.
    """
    stopped = {True: 0, False: 0}

    def handler(number: int, frame: Any) -> None:
        if frame.f_code is called.__code__ and not frame.f_locals.get("begun"):
            stopped[is_unheard(called.__code__)] += 1
        raise KeyboardInterrupt

    def usual() -> None:
        begun = True
        del begun

    @unheard
    def quiet() -> None:
        begun = True
        del begun

    assert is_unheard(quiet.__code__) and not is_unheard(usual.__code__)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for called in (usual, quiet):
            for _ in range(400):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 2e-5)
                    for _ in range(10_000):
                        called()
                except KeyboardInterrupt:
                    pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped[False] > 20
    assert stopped[True] == 0


@pytest.mark.parametrize("number", [None, 255])
def test_an_interpreter_that_starts_functions_otherwise_gets_them_as_they_are(monkeypatch, number):
    def usual() -> int:
        return 7

    code = usual.__code__
    monkeypatch.setattr(interrupts, "_RESUME", number)
    assert unheard(usual).__code__ is code and usual() == 7
    assert not is_unheard(code)


@pytest.mark.parametrize("table", [Plans.every, Leaf.every, Cache.every, optim.Optimizer._every])
def test_the_end_of_what_is_noted_weakly_runs_no_python_code(table, model):
    """Ctrl-C in such code would be lost, and pressed again a moment later."""
    optimizer = optim.SGD([model.w], 0.1)
    ends = [reference.__callback__ for reference in list(table.values())]
    assert ends and all(type(end) is functools.partial for end in ends if end is not None)
    del optimizer


@pytest.mark.parametrize(
    "function",
    [
        Storage.__del__,
        Pool.take,
        Pool.give,
        Pool.give_all,
        Pool.fresh,
        Changed.__exit__,
        Pins.__exit__,
        Scratch.__exit__,
    ],
)
def test_what_gives_back_begins(function):
    assert is_unheard(function.__code__)


def test_a_dropped_interrupt_is_raised_at_the_end_of_the_block():
    """A Ctrl-C in a callback of the collector, which drops errors, reaches its block."""

    def callback(phase: str, info: dict[str, int]) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Redelivering():
            gc.callbacks.append(callback)
            try:
                gc.collect()
            finally:
                gc.callbacks.remove(callback)
    finally:
        signal.signal(signal.SIGINT, before)
