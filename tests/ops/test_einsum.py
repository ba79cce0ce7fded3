"""einsum contracts in the cheapest order."""

import rushlight


def test_einsum_takes_the_cheapest_order():
    """A chain whose left-to-right order would hold a matrix of 2000 x 2000."""
    a, b, c = rushlight.ones(2000, 3), rushlight.ones(3, 2000), rushlight.ones(2000, 2)
    rushlight.memory.reset_peak()
    before = rushlight.memory.peak()
    out = rushlight.einsum("ij,jk,kl->il", a, b, c)
    assert rushlight.equal(out, rushlight.full((2000, 2), 6000.0))
    assert rushlight.memory.peak() - before < 1 << 20
