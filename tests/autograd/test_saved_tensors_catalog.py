"""Every derivative of the catalog on saves that hooks packed elsewhere: the same bits, to second
order.
"""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight.autograd import grad, graph
from rushlight.core.dtypes import float64
from tests.catalog.gradients import smooth_samples
from tests.catalog.rows import ROWS
from tests.catalog.run import call

SMOOTH = [row for row in ROWS if row.differentiable]


def bits(row, sample):
    """The first and second derivatives at a sample, as bytes."""
    leaves: list[rl.Tensor] = []
    rl.manual_seed(0)
    outs = [out for out in call(row, sample, float64, "cpu", leaves=leaves) if out.requires_grad]
    seeds = [rl.ones_like(out) for out in outs]
    first = grad(outs, leaves, seeds, create_graph=True, allow_unused=True)
    found = [g for g in first if g is not None]
    roots = [g for g in found if g.requires_grad]
    second = (
        grad(roots, leaves, [rl.ones_like(g) for g in roots], allow_unused=True) if roots else ()
    )
    return [None if g is None else g.detach().numpy().tobytes() for g in (*first, *second)]


@pytest.mark.parametrize("row", SMOOTH, ids=repr)
def test_packed_saves_give_the_same_bits(row):
    # Contiguous copies: where a view was saved, the unpacked tensor has other strides.
    for sample in smooth_samples(row)[:2]:
        want = bits(row, sample)
        with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            assert bits(row, sample) == want
