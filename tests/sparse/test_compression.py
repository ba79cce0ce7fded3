"""Indices of compressed rows from coordinates, and back; products by their older names."""

from __future__ import annotations

import rushlight as rl
from rushlight import testing


def test_bounds_of_rows() -> None:
    rows = rl.tensor([0, 0, 2, 3])
    testing.assert_close(
        rl._convert_indices_from_coo_to_csr(rows, 5), rl.tensor([0, 2, 2, 3, 4, 4])
    )
    short = rl._convert_indices_from_coo_to_csr(rows.int(), size=5, out_int32=True)
    testing.assert_close(short, rl.tensor([0, 2, 2, 3, 4, 4], dtype=rl.int32))
    assert rl._convert_indices_from_coo_to_csr(rows.int(), 5).dtype == rl.int64
    none = rl._convert_indices_from_coo_to_csr(rows[:0], 3)
    testing.assert_close(none, rl.tensor([0, 0, 0, 0]))


def test_coordinates_of_bounds() -> None:
    crow, col = rl.tensor([0, 2, 2, 3]), rl.tensor([1, 0, 2])
    testing.assert_close(
        rl._convert_indices_from_csr_to_coo(crow, col), rl.tensor([[0, 0, 2], [1, 0, 2]])
    )
    batch = rl._convert_indices_from_csr_to_coo(
        rl.stack([crow, crow]), rl.stack([col, col]), out_int32=True, transpose=True
    )
    wanted = [[0, 0, 0, 1, 1, 1], [1, 0, 2, 1, 0, 2], [0, 0, 2, 0, 0, 2]]
    testing.assert_close(batch, rl.tensor(wanted, dtype=rl.int32))


def test_a_sparse_matrix_of_the_bounds_is_the_same() -> None:
    x = (rl.arange(20).reshape(4, 5) % 3).float()
    at = x.nonzero().T
    crow = rl._convert_indices_from_coo_to_csr(at[0], 4)
    made = rl.sparse_csr_tensor(crow, at[1], x[x != 0], size=(4, 5))
    testing.assert_close(made.to_dense(), x)
    testing.assert_close(rl._convert_indices_from_csr_to_coo(crow, at[1]), at)


def test_dsmm_is_the_product_with_a_dense_matrix() -> None:
    x, y = rl.eye(3) * 2, rl.randn(3, 4)
    testing.assert_close(rl.dsmm(x.to_sparse(), y), y * 2)
