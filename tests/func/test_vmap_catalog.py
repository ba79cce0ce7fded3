"""Every row of the catalog under `vmap`: the results and gradients of a loop, or a refusal."""

from __future__ import annotations

import pytest

from tests.catalog.rows import ROWS
from tests.catalog.vmap import batches_of, cotangent_problems, dtype_of, nested_problems, problems

pytestmark = pytest.mark.usefixtures("float32_convolutions")

COUNTS = "the size of the result depends on elements"
READS = "elements are read on the host to choose what to compute"
REFUSED = {
    "argwhere": COUNTS,
    "masked_select": COUNTS,
    "nonzero": COUNTS,
    "unique": COUNTS,
    "unique_consecutive": COUNTS,
    "bincount": COUNTS,
    "allclose": "the result is a Python bool",
    "equal": "the result is a Python bool",
    "ctc_loss": READS,  # lengths, where they are mapped over
    "histc": READS,  # the range, where it is not given
    "histogram": READS,
    "histogramdd": READS,
}
MAPPED = [
    row
    for row in ROWS
    if not row.makes and next(batches_of(row, dtype_of(row), 1), None) is not None
]
# On a GPU: of each kernel family some.
FEW = (
    *(
        "add",
        "where",
        "gelu",
        "lerp",
        "sum",
        "amax",
        "argmax",
        "softmax",
        "layer_norm",
        "cross_entropy",
        "std",
    ),
    *(
        "cumsum",
        "cumprod",
        "sort",
        "topk",
        "searchsorted",
        "gather",
        "scatter_add",
        "index_select",
        "embedding",
    ),
    *(
        "matmul",
        "einsum",
        "linear",
        "conv2d",
        "max_pool2d",
        "scaled_dot_product_attention",
        "cat",
        "stack",
        "flip",
    ),
    *(
        "permute",
        "select",
        "expand",
        "diagonal",
        "unfold",
        "pad",
        "linalg_solve",
        "cholesky",
        "gru_cell",
    ),
)
# Two levels need little more than one, so most rows are slow tests. The loop's examples are views
# of others; as_strided, whose offset counts from the start of the memory, reads through them.
TWICE = [
    pytest.param(row, marks=() if row.name in FEW else pytest.mark.slow)
    for row in MAPPED
    if row.name not in REFUSED and not row.name.startswith("as_strided")
]


def test_most_of_the_catalog_is_mapped():
    assert len(MAPPED) > 600
    assert {row.name for row in MAPPED} >= set(REFUSED)


@pytest.mark.parametrize("row", MAPPED, ids=repr)
def test_vmap_is_the_loop(row):
    refused: list[str] = []
    found = problems(row, refused=refused)
    assert not found, "\n".join(found)
    if row.name in REFUSED:
        assert refused, f"{row.name} is listed as refused ({REFUSED[row.name]}), but vmap maps it"
        assert all("read on the host" in error for error in refused), refused
    else:
        assert not refused, "\n".join(refused)


@pytest.mark.parametrize("row", TWICE, ids=lambda row: repr(row))
def test_two_levels_are_two_loops(row):
    found = nested_problems(row)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("row", [row for row in MAPPED if row.differentiable], ids=repr)
def test_a_batch_of_cotangents_is_the_loop(row):
    found = cotangent_problems(row)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("row", [row for row in MAPPED if row.name in FEW], ids=repr)
@pytest.mark.parametrize("device", ["webgpu", "cuda"])
def test_vmap_is_the_loop_on(row, device, require_device):
    require_device(device)
    found = problems(row, device, most=1)
    assert not found, "\n".join(found)
