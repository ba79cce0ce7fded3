"""The benchmark of the host's time runs without a card, and counts the calls of a step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gpu_host.py"


def test_a_step_of_an_mlp_is_few_calls_of_the_driver():
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "mlp"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    name, took, calls, each = done.stdout.strip(" |\n").split(" | ")
    # Forward two products with their bias and a relu, four for cross_entropy, nine backward, and
    # one for the optimiser.
    assert (name, int(calls)) == ("mlp", 17)
    assert took.endswith(" ms") and each.endswith(" us")
