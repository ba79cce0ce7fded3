"""A gradient that does not fit beside the sum it is added to is made by pieces.

See Note [Backward] 6.
"""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.ops.index import gather
from tests.memory.training_step import bits

WORDS, WIDTH, ROWS = 2048, 64, 48


class Tied:
    """Words that are read from a table and predicted by it."""

    def __init__(self, device: str) -> None:
        rl.manual_seed(3)
        self.device = device
        self.table = (rl.randn(WORDS, WIDTH, device=device) * 0.1).requires_grad_()
        self.words = rl.randint(0, WORDS, (ROWS,)).to(device)
        self.words[:8] = self.words[8:16]  # some rows are summed

    def step(self, **options: int) -> list[bytes | None]:
        self.table.grad = None
        read = F.embedding(self.words, self.table)
        F.linear(read.tanh(), self.table).logsumexp(1).sum().backward(**options)
        return bits(self.table.grad)

    def inside(self, tables: float, **options: int) -> list[bytes | None]:
        self.table.grad = None
        gc.collect()
        memory.empty_cache(self.device)
        limit = memory.allocated(self.device) + int(tables * self.table.nbytes)
        with memory.budget(limit, self.device):
            return self.step(**options)


@pytest.fixture
def pieces(monkeypatch) -> list[tuple[int, int]]:
    found = []
    made = gather.rows_piece

    def noted(g, index, low, high, shape):
        found.append((low, high))
        return made(g, index, low, high, shape)

    monkeypatch.setattr(gather, "rows_piece", noted)
    return found


def test_a_table_needs_its_gradient_once(device, pieces):
    model = Tied(device)
    want = model.step()
    assert not pieces
    # Beside the gradient there are the logits, of 0.75 tables, or pieces.
    assert model.inside(2.7) == want and not pieces
    assert model.inside(1.9) == want
    assert len(pieces) > 1
    assert pieces[0][0] == 0 and pieces[-1][1] == WORDS
    assert all(a[1] == b[0] for a, b in pairwise(pieces))


def test_a_wrong_index_is_still_an_error():
    model = Tied("cpu")
    model.words[0] = WORDS
    with pytest.raises(rl.BoundsError, match="embedding"):
        model.inside(1.9)
