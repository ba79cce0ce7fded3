"""A budget for the whole program: all threads, from a call or from the environment."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

import rushlight as rl
from rushlight import memory
from rushlight.memory.budget import set_budget_from_environment
from rushlight.ops.create.creation import resolve_pool
from rushlight.tape.memory.offload import here
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


def test_it_holds_where_the_state_was_changed_and_changed_back():
    rl.autograd.forward_ad.enter_dual_level()
    rl.autograd.forward_ad.exit_dual_level()
    assert state.STATE.get() is state.PROGRAM
    with rl.no_grad():
        rl.set_budget("64MiB")
    assert rl.get_budget("cpu") == 64 * MIB
    rl.set_grad_enabled(False)
    rl.set_budget("32MiB")
    rl.set_grad_enabled(True)
    assert state.STATE.get() is state.PROGRAM
    assert rl.get_budget("cpu") == 32 * MIB


def test_the_limit_is_told_while_another_thread_drops_values(monkeypatch):
    """Its request leaves some of the limit to small cached blocks: Note [Budget] 6."""
    monkeypatch.setattr(resolve_pool("cpu"), "spared", 4096)
    with memory.budget(1 << 30):
        assert memory.get_budget("cpu") == 1 << 30


def test_bad_sizes_change_nothing():
    rl.set_budget("64MiB")
    for bad in ("much", -1, "0GiB"):
        with pytest.raises(ValueError, match=r"a size is|must be positive"):
            rl.set_budget(bad)
    assert rl.get_budget("cpu") == 64 * MIB


def imported(given: str, program: str = "import rushlight") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RUSHLIGHT_BUDGET": given},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [("3MiB", "3145728 3145728 None"), ("cpu=2MB,null=1GiB", "2000000 None 1073741824")],
)
def test_from_the_environment(given, shown):
    program = "import rushlight as t; print(*map(t.get_budget, ('cpu', 'reference', 'null')))"
    done = imported(given, program)
    assert done.stdout.strip() == shown, done.stderr


def test_a_bad_value_in_the_environment_is_named():
    done = imported("much")
    assert done.returncode
    assert "RUSHLIGHT_BUDGET=much: a size is a number of bytes or like" in done.stderr


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ("1.2.3GiB", ValueError, "a size is a number of bytes or like '64MiB'"),
        ("cpu=", ValueError, "'cpu=' is no limit; write 2GiB"),
        ("2GiB,,cpu=1GiB", ValueError, "'' is no limit"),
        ("cpu=1GiB,cpu=2GiB", ValueError, "cpu is given twice"),
        ("1GiB,2GiB", ValueError, "a limit of every device is given twice"),
        ("offload=auto", ValueError, "no limit is given"),
        ("2GiB,offload=often", ValueError, "offload is true, false, auto, disk or a folder"),
        ("0GiB", ValueError, "must be positive"),
        ("abacus=1GiB", rl.DeviceUnavailable, "abacus"),
    ],
)
def test_bad_text_in_the_environment_is_explained(monkeypatch, given, error, match):
    monkeypatch.setenv("RUSHLIGHT_BUDGET", given)
    with pytest.raises(error, match=f"^RUSHLIGHT_BUDGET={given}: .*{match}"):
        set_budget_from_environment()
    assert rl.get_budget("cpu") is None


@pytest.mark.parametrize(
    ("where", "is_measured", "to_host", "to_file", "folder"),
    [
        ("auto", True, True, False, None),
        ("True", False, True, False, None),
        ("false", False, False, False, None),
        ("disk", False, False, True, None),
        ("/tmp", False, False, True, "/tmp"),
    ],
)
def test_the_environment_says_where_values_go(
    monkeypatch, where, is_measured, to_host, to_file, folder
):
    monkeypatch.setenv("RUSHLIGHT_BUDGET", f"64MiB, null = 16MiB, offload={where}")
    set_budget_from_environment()
    assert (rl.get_budget("cpu"), rl.get_budget("null")) == (64 * MIB, 16 * MIB)
    got = here()
    assert (got.is_measured, got.to_host, got.to_file) == (is_measured, to_host, to_file)
    assert got.folder == folder


def test_the_environment_alone_copies_values_to_a_file():
    program = """
import rushlight as t
x = t.ones(256, 1024)
kept = [x * float(i) for i in range(8)]
print([v[0, 0].item() for v in kept] == list(range(8)), t.memory.offloaded()["out"] > 0)
"""
    done = imported("6MiB,offload=disk", program)
    assert done.stdout.strip() == "True True", done.stderr


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


def test_a_view_is_made_while_another_thread_ends_it(monkeypatch):
    """The region is taken from the program's state before the state says so."""
    x, made = rl.ones(4, 6), []
    x.t()
    fill = state.State.__post_init__

    def filled(changed):
        if changed is state.PROGRAM:
            in_a_thread(lambda: made.append(x.t().shape))
        fill(changed)

    rl.set_budget("64MiB")
    monkeypatch.setattr(state.State, "__post_init__", filled)
    rl.set_budget(None)
    assert made == [(6, 4)]


def test_models_without_memory_are_no_part_of_it() -> None:
    gc.collect()  # a block that is freed inside would be reused, whatever the limit
    rl.set_budget(MIB)
    with rl.device("null"):
        layer = rl.nn.Linear(1 << 20, 1 << 20)
    assert layer.weight.shape == (1 << 20, 1 << 20) and rl.get_budget("null") is None
    with pytest.raises(rl.BudgetError):
        rl.empty(1 << 20)
    with rl.memory.budget(1 << 30), pytest.raises(rl.BudgetError):
        rl.empty(1 << 40, device="null")
