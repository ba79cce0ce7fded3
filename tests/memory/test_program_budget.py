"""A budget for the whole program: all threads, from a call or from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import rushlight as rl
from rushlight import memory
from rushlight.tape.record import call, state
from tests.time_limit import WAIT

MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_budget_afterwards():
    yield
    for device in (None, "cpu", "null"):
        rl.set_budget(None, device)
    assert rl.get_budget("cpu") is None


def chain(x, count=30):
    for _ in range(count):
        x = x * 1.01
    return x


def test_it_holds_and_keeps_the_bits():
    x = rl.randn(256, 1024, requires_grad=True)
    chain(x).tanh().sum().backward()
    want, x.grad = x.grad.numpy().tobytes(), None
    memory.empty_cache()
    limit = memory.reserved() + 6 * MIB
    rl.set_budget(limit)
    assert rl.get_budget() == limit
    values = [chain(x, 3) for _ in range(8)]  # 24 MiB
    chain(x).tanh().sum().backward()
    assert memory.reserved() <= limit
    assert x.grad.numpy().tobytes() == want
    rl.set_budget(None)
    assert all(rl.equal(v, values[0]) for v in values)


def test_every_thread_is_bound_whenever_it_began():
    seen, go, done = {}, threading.Event(), threading.Event()

    def early():
        seen["before"] = rl.get_budget("cpu")
        go.wait(WAIT)
        seen["early"] = rl.get_budget("cpu")
        with rl.no_grad():
            seen["inside a mode"] = rl.get_budget("cpu")
        done.set()

    first = threading.Thread(target=early)
    first.start()
    rl.set_budget("64MiB")
    go.set()
    assert done.wait(WAIT)
    first.join()
    late = threading.Thread(target=lambda: seen.update(late=rl.get_budget("cpu")))
    late.start()
    late.join()
    limit = 64 * MIB
    assert seen == {"before": None, "early": limit, "inside a mode": limit, "late": limit}


def test_a_thread_cannot_pass_the_limit():
    memory.empty_cache()
    rl.set_budget(memory.reserved() + 8 * MIB)
    raised = []

    def work():
        try:
            kept = [rl.from_numpy(rl.ones(MIB).numpy()) * 1.0 for _ in range(1)]
            rl.cat(kept * 16)
        except rl.BudgetError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert raised


def test_the_least_of_nested_limits_holds():
    rl.set_budget("64MiB")
    with memory.budget("32MiB"):
        assert rl.get_budget("cpu") == 32 * MIB
        with memory.budget("48MiB"):
            assert rl.get_budget("cpu") == 32 * MIB
        with pytest.raises(RuntimeError, match="outside of the `with` block"):
            rl.set_budget("1GiB")
    with memory.budget("1GiB"):
        assert rl.get_budget("cpu") == 64 * MIB
    assert rl.get_budget("cpu") == 64 * MIB


def test_a_limit_per_device_and_a_limit_for_all():
    rl.set_budget("64MiB", "cpu")
    assert (rl.get_budget("cpu"), rl.get_budget("null")) == (64 * MIB, None)
    rl.set_budget("16MiB", "null")
    rl.set_budget("32MiB")
    assert (rl.get_budget("cpu"), rl.get_budget("null")) == (32 * MIB, 16 * MIB)
    rl.set_budget(None)
    assert (rl.get_budget("cpu"), rl.get_budget("null")) == (64 * MIB, 16 * MIB)
    rl.set_budget("8MiB", "cpu")
    assert rl.get_budget("cpu") == 8 * MIB


def test_inside_a_mode_it_holds_at_once_and_after():
    with rl.no_grad():
        rl.set_budget("64MiB")
        assert rl.get_budget("cpu") == 64 * MIB
        assert not rl.is_grad_enabled()
    assert rl.get_budget("cpu") == 64 * MIB
    assert rl.is_grad_enabled()


def test_bad_sizes_change_nothing():
    rl.set_budget("64MiB")
    for bad in ("much", -1, "0GiB"):
        with pytest.raises(ValueError, match=r"a size is|must be positive"):
            rl.set_budget(bad)
    assert rl.get_budget("cpu") == 64 * MIB


@pytest.mark.parametrize(
    ("given", "shown"), [("3MiB", "3145728 3145728"), ("cpu=2MB,null=1GiB", "2000000 1073741824")]
)
def test_from_the_environment(given, shown):
    program = "import rushlight as t; print(t.get_budget('cpu'), t.get_budget('null'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RUSHLIGHT_BUDGET": given},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.stdout.strip() == shown, done.stderr


def test_a_bad_value_in_the_environment_is_named():
    done = subprocess.run(
        [sys.executable, "-c", "import rushlight"],
        env={**os.environ, "RUSHLIGHT_BUDGET": "much"},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.returncode
    assert "RUSHLIGHT_BUDGET" in done.stderr


def in_a_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(WAIT)


def test_another_thread_ends_it_during_a_call(monkeypatch):
    x = rl.randn(64, 64, requires_grad=True)
    want = x * 2
    rl.set_budget("64MiB")
    run = call.replay.run_in_region

    def run_and_end(*args):
        made = run(*args)
        in_a_thread(lambda: rl.set_budget(None))
        return made

    monkeypatch.setattr(call.replay, "run_in_region", run_and_end)
    assert rl.equal(x * 2, want)


def test_a_thread_that_turned_the_grad_mode_off_and_on_is_bound():
    rl.set_grad_enabled(False)
    rl.set_grad_enabled(True)
    in_a_thread(lambda: rl.set_budget("64MiB"))
    assert rl.get_budget("cpu") == 64 * MIB


def test_a_mode_that_is_entered_while_it_is_set_keeps_no_older_state(monkeypatch):
    made = state.replace

    def slow(*args, **changes):
        found = made(*args, **changes)
        monkeypatch.setattr(state, "replace", made)
        in_a_thread(lambda: rl.set_budget("64MiB"))
        return found

    rl.set_budget(None)
    monkeypatch.setattr(state, "replace", slow)
    with rl.no_grad():
        pass
    with rl.no_grad():
        assert rl.get_budget("cpu") == 64 * MIB
