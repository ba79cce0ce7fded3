"""Ctrl-C in backward, by one thread and by several: it is raised, workers end, counts are right."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import pytest

import rushlight as rl
from rushlight import memory
from rushlight.core import interrupts
from rushlight.core.interrupts import Uninterrupted
from tests.tape.test_parallel_backward import (
    assert_works,
    every_node_is_worth_a_thread as every_node_is_worth_a_thread,
    fan,
    rough,
    run,
)
from tests.time_limit import WAIT, time_limit as time_limit


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard():
    """A shell starts background programs with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_ctrl_c(workers):
    reached = threading.Event()
    go_on = threading.Event()

    def wait(g: Any) -> None:
        reached.set()
        for _ in range(3000):  # small steps: signals are checked between them
            if go_on.wait(0.01):
                return

    ran: list[int] = []
    x = rl.ones(8, requires_grad=True)
    branches = [x * float(i) for i in range(30)]
    for i, branch in enumerate(branches):
        branch.register_hook(
            lambda g, i=i: wait(g) if i == 29 else ran.append(i) or time.sleep(0.3)
        )
    root = rl.stack([b.sin() for b in branches]).sum()

    def press() -> None:
        reached.wait(WAIT)
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.05)
        go_on.set()

    before = threading.active_count()
    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        root.backward(workers=workers)
    pressing.join()
    assert threading.active_count() == before
    assert len(ran) < 15
    assert_works()


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_at_any_moment(workers, device, require_device, monkeypatch):
    """The engine works afterwards, and counts are exact.

    Except where the signal is raised in a `__del__`: the interpreter drops the error, and the block
    is lost.
    """
    require_device(device)
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    alone = run(fan, device, 1)
    interrupted = 0
    pause = 0.0003 if device == "cpu" else 0.001
    gc.collect()
    before = memory.allocated(device)
    for turn in range(60 if device == "cpu" else 30):
        x = rough(300, device=device)
        y, z = x, x
        for _ in range(200):
            y, z = y * 1.01, z.sin()
        root = (y + z).sum()
        timer = threading.Timer(pause * (turn % 15), lambda: signal.raise_signal(signal.SIGINT))
        try:
            timer.start()
            root.backward(workers=workers)
            timer.join()
        except KeyboardInterrupt:
            interrupted += 1
            try:
                timer.join()
            except KeyboardInterrupt:
                pytest.fail("pressed once, heard twice")
        del x, y, z, root
        if lost:
            lost.clear()
            before = memory.allocated(device)
        assert memory.allocated(device) == before
        if interrupted and turn % 5 == 0:
            assert run(fan, device, workers) == alone
    assert interrupted > 5


def test_a_stretch_that_ctrl_c_waits_for():
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        with Uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with Uninterrupted():
        pass


def test_a_ctrl_c_that_waited_keeps_no_frame():
    class Held:
        pass

    def stopped() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        stretch = Uninterrupted()
        with stretch:  # its own methods' frames refer to it, as this one does
            signal.raise_signal(signal.SIGINT)

    seen: list[weakref.ref[Held]] = []
    gc.disable()
    try:
        stopped()
    except KeyboardInterrupt:
        pass
    finally:
        gc.enable()
    assert len(seen) == 1 and seen[0]() is None


def test_no_ctrl_c_is_lost_in_a_finaliser():
    program = """
import signal, time
import rushlight as rl
signal.signal(signal.SIGINT, signal.default_int_handler)
x = rl.ones(300, requires_grad=True)
def build():
    y = x
    for _ in range(300):
        y = (y * 1.01).sin()
    return y.sum()
build().backward()
x.grad = None
before = rl.memory.allocated()
signal.signal(signal.SIGALRM, signal.default_int_handler)
heard = 0
for turn in range(200):
    root = build()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.0001 * (turn % 10))
        root.backward()
        time.sleep(0.05)
    except KeyboardInterrupt:
        heard += 1
    del root
x.grad = None
print(heard, rl.memory.allocated() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, done.stderr
    heard, left = map(int, done.stdout.split())
    assert left == 0
    assert heard > 195, done.stderr  # of 200; the tape's own finalisers would lose some twenty


def test_other_errors_of_finalisers_are_told_as_before():
    told: list[Any] = []

    class Failing:
        def __del__(self) -> None:
            raise ValueError("on purpose")

    caught: list[Any] = []
    before, sys.unraisablehook = sys.unraisablehook, caught.append
    try:
        made = Failing()
        del made
    finally:
        sys.unraisablehook = before
    interrupts._unraisable(told.append, caught[0])
    assert told == caught and told[0].exc_type is ValueError


def test_threads_do_not_keep_the_interpreter():
    program = """
import os, signal, threading, time
import rushlight as rl
signal.signal(signal.SIGINT, signal.default_int_handler)
x = rl.ones(4, requires_grad=True)
branches = [x * float(i) for i in range(4)]
for b in branches:
    b.register_hook(lambda g: time.sleep(60))
root = rl.stack(branches).sum()
for after in (1.0, 1.5):
    threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    root.backward(workers=2)
except KeyboardInterrupt:
    print("out", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT
    )
    assert done.stdout == "out\n" and done.returncode == 0, done.stderr
