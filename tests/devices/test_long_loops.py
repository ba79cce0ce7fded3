"""Loops of more iterations than a software GPU runs in one dispatch, on every device."""

from __future__ import annotations

import rushlight as rl


def test_more_indices_than_a_software_gpu_runs_a_loop(device):
    """Mesa's llvmpipe silently ends a loop after 65535 iterations."""
    count = 70_000
    index = rl.zeros(count, dtype=rl.int64, device=device)
    index[-1] = 1
    source = rl.ones(count, device=device)
    assert rl.zeros(2, device=device).scatter_add(0, index, source).tolist() == [count - 1.0, 1.0]
    pairs = rl.stack([source, source * 2], 1)
    added = rl.zeros(2, 2, device=device).index_add(0, index, pairs)
    assert added.tolist() == [[count - 1.0, 2 * count - 2.0], [1.0, 2.0]]
