"""`gradcheck` and `gradgradcheck` at `gradcheck_samples*.py` and the catalog's samples, in float64.

Along random directions in `make test`; whole Jacobians, and every sample of the catalog, among the
slow ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rushlight.autograd import gradcheck, gradgradcheck
from rushlight.core.dtypes import float64
from rushlight.ops.registry import REGISTRY
from rushlight.tensor import Tensor
from tests.autograd import gradcheck_samples, gradcheck_samples_elements, gradcheck_samples_matrices
from tests.autograd.gradcheck_samples import Case
from tests.catalog.gradients import float_arrays, smooth_samples
from tests.catalog.row import Row, Sample
from tests.catalog.rows import ROWS
from tests.catalog.run import samples_of, to_tensor

pytestmark = pytest.mark.filterwarnings("ignore:reduction:UserWarning")  # of kl_div's mean
CASES = [
    pytest.param(case, id=f"{group.__name__}: {case.name}")
    for module in (gradcheck_samples, gradcheck_samples_elements, gradcheck_samples_matrices)
    for group in module.GROUPS
    for case in group()
]
# Without ops whose result is rounded to fewer digits. The two of `cholesky` read one triangle, and
# give, as in PyTorch, the gradient of a function of both; `gradcheck_samples_matrices` checks them
# on triangles.
SMOOTH = [
    row
    for row in ROWS
    if row.differentiable
    and row.unrounded is None
    and row.name not in ("cholesky_inverse", "cholesky_solve")
]
WHOLE = 60  # elements of a sample whose whole Jacobian is computed


@pytest.mark.parametrize("case", CASES)
def test_sample(case: Case):
    inputs = case.inputs()
    assert gradcheck(case.function, inputs, fast_mode=True)
    assert not case.second or gradgradcheck(case.function, inputs, fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_sample_whole(case: Case):
    inputs = case.inputs()
    fast = sum(x.numel() for x in inputs if isinstance(x, Tensor)) > WHOLE
    assert gradcheck(case.function, inputs, check_forward_ad=case.second and not fast)
    assert not case.second or gradgradcheck(
        case.function, inputs, gen_non_contig_grad_outputs=True, fast_mode=fast
    )


# ---- the catalog ----


def called(row: Row, sample: Sample) -> Any:
    """The row's call as a function of the sample's float arrays."""

    def swap(value: Any, leaves: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return [swap(v, leaves) for v in value]
        if not isinstance(value, np.ndarray):
            return value
        return next(leaves) if value.dtype == np.float64 else to_tensor(value, float64, "cpu")

    def function(*given: Any) -> Any:
        leaves = iter(given)
        args = [swap(a, leaves) for a in sample.args]
        named = {k: swap(v, leaves) for k, v in sample.named.items()}
        return row.call(REGISTRY[row.name].function, *args, **named)

    return function


def leaves_of(sample: Sample) -> tuple[Tensor, ...]:
    return tuple(to_tensor(a, float64, "cpu").requires_grad_() for a in float_arrays(sample))


def size_of(sample: Sample) -> int:
    return sum(a.size for a in float_arrays(sample))


@pytest.mark.parametrize("row", SMOOTH, ids=repr)
def test_catalog(row: Row):
    sample = min((s for s in smooth_samples(row) if size_of(s)), key=size_of)
    assert gradcheck(called(row, sample), leaves_of(sample), fast_mode=True)
    assert gradgradcheck(called(row, sample), leaves_of(sample), fast_mode=True)


# Independent pairs of operands and results, and floats that are constants, as in PyTorch.
APART = {
    "batch_norm": "running statistics are results of their own",
    "broadcast_tensors": "each result is of one operand",
    "meshgrid": "each result is of one operand",
    "native_group_norm": "the statistics are of the input alone",
    "native_layer_norm": "the statistics are constants",
    "linalg_lu": "the permutation is a constant",
    "lu_unpack": "the permutation is a constant",
    "histc": "counts",
    "zeros_like": "new numbers",
    "ones_like": "new numbers",
    "full_like": "new numbers",
    "empty_like": "new numbers",
    "quantile": "with 'lower' the place is a whole number",
    "nanquantile": "with 'lower' the place is a whole number",
}
OF_FLOATS = [
    row
    for row in ROWS
    if not row.makes and not row.random and float64 in row.dtypes and row.name not in APART
]


@pytest.mark.parametrize("row", OF_FLOATS, ids=repr)
def test_no_operand_is_detached_in_silence(row: Row):
    """Whichever float operand requires gradients, every float result does."""
    for sample in [s for s in samples_of(row, float64) if size_of(s)][:2]:
        arrays = float_arrays(sample)
        for i in range(len(arrays)):
            given = [to_tensor(a, float64, "cpu") for a in arrays]
            given[i].requires_grad_()
            results = called(row, sample)(*given)
            floats = [
                r
                for r in (results if isinstance(results, tuple) else (results,))
                if r.dtype.kind in "fc"
            ]
            assert all(r.requires_grad for r in floats), f"{sample}: float operand {i}"


@pytest.mark.slow
@pytest.mark.parametrize("row", SMOOTH, ids=repr)
def test_catalog_whole(row: Row):
    for sample in smooth_samples(row):
        fast = size_of(sample) > WHOLE
        assert gradcheck(called(row, sample), leaves_of(sample), fast_mode=fast), sample
        assert gradgradcheck(called(row, sample), leaves_of(sample), fast_mode=fast), sample
