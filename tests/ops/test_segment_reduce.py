"""segment_reduce: empty segments, NaN, lengths that do not add up."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight as rl

NAN, INF = math.nan, math.inf


def test_segments_of_nothing_and_of_what_is_no_number():
    x, lengths = rl.tensor([1.0, 2, 3, NAN]), rl.tensor([2, 0, 1, 1])
    want = {
        "sum": [3.0, 0.0, 3.0],
        "mean": [1.5, NAN, 3.0],
        "max": [2.0, -INF, 3.0],
        "min": [1.0, INF, 3.0],
        "prod": [2.0, 1.0, 3.0],
    }
    for reduce, expected in want.items():
        found = rl.segment_reduce(x, reduce, lengths=lengths).numpy()
        assert np.array_equal(found, np.array([*expected, NAN], np.float32), equal_nan=True), reduce
    x.requires_grad_()
    rl.segment_reduce(x, "max", lengths=lengths).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0]
    with pytest.raises(RuntimeError, match="add up to 4"):
        rl.segment_reduce(x, "sum", lengths=rl.tensor([1, 1]))
    assert rl.segment_reduce(x, "sum", lengths=rl.tensor([1, 1]), unsafe=True).tolist() == [
        1.0,
        2.0,
    ]
    with pytest.raises(NotImplementedError, match="floating"):
        rl.segment_reduce(x.detach().int(), "sum", lengths=lengths)


def test_a_segment_of_no_data_keeps_its_record():
    x = rl.ones(0, requires_grad=True)
    rl.segment_reduce(x, "max", lengths=rl.tensor([0, 0]), initial=1.0).sum().backward()
    assert x.grad.shape == (0,)
