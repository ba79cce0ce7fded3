"""The checking build: `RUSHLIGHT_CHECK=1` finds every use of foreign memory.

See Note [Checking build].
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="guard pages need a Unix system")

PRELUDE = """
import ctypes
import rushlight as rl
from rushlight.core.errors import ForeignAccess
from rushlight.devices.shared.registry import pool_of
from rushlight.tape.record import call

def refused(function):
    try:
        function()
    except ForeignAccess as error:
        print("refused:", error)
    else:
        print("went through")
"""


def run(text, **environment):
    named = {**os.environ, "RUSHLIGHT_CHECK": "1", **environment}
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(text)],
        env=named,
        capture_output=True,
        text=True,
        timeout=300,
    )


def printed(text, **environment):
    done = run(text, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_training_step_gives_the_same_bits():
    text = """
        rl.manual_seed(0)
        layers = rl.nn.Conv2d(2, 4, 3), rl.nn.ReLU(), rl.nn.Flatten(), rl.nn.Linear(64, 5)
        net = rl.nn.Sequential(*layers)
        optimizer = rl.optim.Adam(net.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            loss = rl.nn.functional.cross_entropy(net(rl.randn(8, 2, 6, 6)), rl.arange(8) % 5)
            loss.backward()
            optimizer.step()
        values, order = rl.randn(50, 7).sort(0)
        total = sum(p.sum().item() for p in net.parameters())
        print(loss.item().hex(), total.hex(), values.sum().item().hex())
    """
    assert printed(text) == printed(text, RUSHLIGHT_CHECK="0")


LAUNCHES = (
    "x.sum()",  # rowwise
    "x + 1",  # map
    "x.reshape(4, 4) @ x.reshape(4, 4)",  # contract
    "x.cumsum(0)",  # scan
    "x[rl.tensor([1, 2])]",  # gather
    "x.scatter_add_(0, rl.tensor([1, 2]), rl.ones(2))",
    "x.sort()",
    "rl.searchsorted(x, rl.ones(3))",
    "x.tolist()",  # copy out
    "rl.linalg.inv(x.reshape(4, 4))",  # library
    "rl.nn.functional.conv2d(x.reshape(1, 1, 4, 4), rl.ones(1, 1, 3, 3))",  # convolve
)


def test_a_launch_outside_of_its_block_is_refused():
    text = f"""
        for line in {LAUNCHES!r}:
            x = rl.arange(16.0)
            x._memory.room = 1 << 20  # a lie that the layouts believe
            x._base = x  # so that the offset counts
            x._offset = 4096
            refused(lambda: exec(line, {{**globals(), "x": x}}))
    """
    lines = printed(text).splitlines()
    assert len(lines) == len(LAUNCHES)
    assert [line for line in lines if not line.startswith("refused: cpu:")] == []


def test_a_free_block_is_refused():
    text = """
        x = rl.arange(64.0)
        y = rl.zeros(64)
        y.sum()
        address = x._memory.address
        del x
        y._memory.address, mine = address, y._memory.address
        refused(lambda: y.sum())  # whose result takes a block of another size
        y._memory.address = mine
    """
    assert "is free" in printed(text)


@pytest.mark.parametrize("place", ["room", "-1"])
def test_code_that_walks_past_a_block_faults(place):
    text = f"""
        x = rl.arange(16.0)
        room = x._memory.room
        ctypes.memset(x._memory.address, 0, room)
        print("inside", flush=True)
        ctypes.memset(x._memory.address + ({place}), 0, 1)
    """
    # The page before the block's first.
    text = text.replace("(-1)", "(-1 - (x._memory.address % 4096))")
    done = run(text)
    assert done.stdout == "inside\n" and done.returncode < 0


def test_a_freed_block_faults():
    text = """
        x = rl.arange(16.0)
        address = x._memory.address
        del x
        print("freed", flush=True)
        ctypes.string_at(address, 4)
    """
    done = run(text)
    assert done.stdout == "freed\n" and done.returncode < 0


def test_new_memory_is_full_of_the_poison():
    text = (
        "print(rl.empty(3, dtype=rl.uint8).tolist(), rl.empty(100000, "
        "dtype=rl.uint8).unique().tolist())"
    )
    assert printed(text, RUSHLIGHT_CHECK_POISON="0x11") == "[17, 17, 17] [17]\n"


def test_lent_and_shared_memory_may_be_used_while_it_is_lent():
    text = """
        import numpy as np
        array = np.arange(6.0)
        x = rl.from_numpy(array)
        x.add_(1)
        y = rl.ones(5)
        y.share_memory_()
        y.mul_(3)
        print(array.tolist(), y.tolist())
        pool = pool_of("cpu")
        print(len(pool.device.known.lent))
        del x, y
        print(len(pool.device.known.lent))
    """
    assert printed(text).splitlines() == [
        "[1.0, 2.0, 3.0, 4.0, 5.0, 6.0] [3.0, 3.0, 3.0, 3.0, 3.0]",
        "2",
        "0",
    ]
