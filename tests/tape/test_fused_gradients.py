"""The derivative of an elementwise op is one kernel, at first and second order, in eager mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rushlight as rl
from rushlight.core.dtypes import float64
from rushlight.ops.family.map import Elementwise
from rushlight.ops.registry import REGISTRY
from rushlight.tape.record.op import Plans
from rushlight.tape.record.state import Changed
from tests.catalog.gradients import float_arrays, smooth_samples
from tests.catalog.row import Row, Sample
from tests.catalog.rows import ROWS
from tests.catalog.run import call

# Their gradient is the incoming one: no kernel.
PASSED_ON = {"add", "clone", "to_float64", "frac", "alias_copy", "positive"}


def even_sample(row: Row) -> Sample | None:
    """A sample whose float operands have one shape: a broadcast operand's gradient needs another
    kernel.
    """
    for sample in smooth_samples(row):
        shapes = {a.shape for a in float_arrays(sample)}
        if len(shapes) == 1 and () not in shapes and float_arrays(sample)[0].size:
            return sample
    return None


def is_one_kernel(row: Row) -> bool:
    """Whether the call is a single elementwise kernel (and not a copy of a view)."""
    sample = (
        even_sample(row)
        if row.differentiable and float64 in row.dtypes and not row.random
        else None
    )
    if sample is None:
        return False
    notes: list[Any] = []
    with Changed(trace=notes):
        call(row, sample, float64, "cpu")
    plans = [note[0] for note in notes if note is not None]
    return len(plans) == 1 and isinstance(plans[0].op, Elementwise)


DECLARED = {
    name
    for name, entry in REGISTRY.items()
    if isinstance(getattr(entry.function, "op", None), Elementwise)
}


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The plans that are launched, in order."""
    seen: list[Any] = []

    def note(plan: Any) -> None:
        plain = plan.plain
        if plain is not None:

            def launch(*numbers: Any) -> None:
                seen.append(plan)
                plain(*numbers)

            plan.launch = launch

    monkeypatch.setattr(Plans, "on_new", note)
    for plan in living_plans():
        note(plan)
    yield seen
    for plan in living_plans():
        plan.launch = plan.plain


def living_plans() -> list[Any]:
    return [plan for reference in list(Plans.every.values()) if (plan := reference()) is not None]


# Composites that are one kernel too.
COMPOSED = [
    "add",
    "addcdiv",
    "addcmul",
    "alias_copy",
    "celu",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "div",
    "divide",
    "elu",
    "float_power",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "heaviside",
    "leaky_relu",
    "lerp",
    "logit",
    "masked_fill",
    "mish",
    "multiply",
    "nan_to_num",
    "polygamma",
    "relu6",
    "round",
    "rrelu",
    "rsub",
    "selu",
    "softplus",
    "softshrink",
    "sub",
    "subtract",
    "threshold",
    "true_divide",
    "where",
]


@pytest.mark.parametrize("name", sorted(DECLARED) + COMPOSED)
def test_one_kernel(name: str, launches: list[Any]):
    rows = [row for row in ROWS if row.name == name and row.differentiable and is_one_kernel(row)]
    assert rows or name not in COMPOSED
    for row in rows:
        check_launches(row, launches)


def check_launches(row: Row, launches: list[Any]) -> None:
    leaves: list[Any] = []
    (out,) = call(row, even_sample(row), float64, "cpu", leaves=leaves)
    seed = rl.ones_like(out)
    wanted = 0 if row.name in PASSED_ON else 1
    for _ in range(2):  # the second time by the cached program
        launches.clear()
        rl.autograd.grad(out, leaves, seed, retain_graph=True)
        assert len(launches) == wanted, [plan.op.name for plan in launches]


def test_every_declared_op_is_among_them():
    named = {row.name for row in ROWS if row.differentiable and row.name in DECLARED}
    found = {row.name for row in ROWS if row.name in named and is_one_kernel(row)}
    # Of complex numbers, which are two arrays here.
    assert named - found == {
        "angle",
        "to_complex64",
        "to_complex128",
    }
    assert len(found) >= 100
