"""`x.data`: its writes are not counted by `x._version`. See Note [Writes through data]."""

from __future__ import annotations

import copy
import math
import random

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.core.errors import InplaceError
from rushlight.core.shapes import may_overlap

WRITES = {
    "item": lambda d: d.__setitem__(0, 1.0),
    "part": lambda d: d[1:].fill_(3.0),
    "mask": lambda d: d.__setitem__(d > 0, 2.0),
    "rows": lambda d: d.__setitem__(rl.tensor([0, 2]), 5.0),
    "sum": lambda d: d.add_(1),
    "operator": lambda d: d.__iadd__(1),
    "zero": lambda d: d.zero_(),
    "copy": lambda d: d.copy_(rl.ones(3)),
    "view": lambda d: d.view(3, 1).t().mul_(2),
    "random": lambda d: d.normal_(),
    "scatter": lambda d: d.scatter_(0, rl.tensor([0]), 4.0),
    "index": lambda d: d.index_add_(0, rl.tensor([1]), rl.ones(1)),
    "masked": lambda d: d.masked_fill_(rl.tensor([True, False, True]), 0.0),
    "out": lambda d: rl.add(d, 1, out=d),
    "init": lambda d: nn.init.ones_(d),
    "several": lambda d: rl._foreach_mul_([d], 2.0),
    "clamp": lambda d: d.clamp_(0, 1),
}


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("part", [slice(None), slice(1, 4), slice(0, 5, 2)], ids=str)
def test_a_write_through_data_is_not_counted(way: str, part: slice) -> None:
    whole = rl.arange(5.0 if part.start is not None else 3.0, requires_grad=True)
    x = whole[part]
    with rl.no_grad():
        x += 0.25
    before, bits = x._version, x.tolist()
    for _ in range(3):  # the later ones run the plan of the first
        WRITES[way](x.data)
        assert x._version == whole._version == before
    assert x.tolist() != bits
    with rl.no_grad():
        x.add_(1)
    assert x._version == before + 1


def test_the_handle_counts_its_own() -> None:
    x = rl.ones(3)
    d = x.data
    before = d._version
    d.add_(1)
    d[0] = 2
    assert d._version == before + 2 and x._version == 0 and d[1:]._version == before + 2
    x.add_(1)
    assert x._version == 1 and d._version == before + 2
    assert x.detach()._version == 1
    x.detach().add_(1)
    assert x._version == 2


def test_a_record_is_refused_where_a_saved_element_was_hit() -> None:
    x = rl.ones(2, requires_grad=True)
    y = x * x
    x.data[0] = 5.0
    with pytest.raises(InplaceError, match="overwritten in place"):
        y.sum().backward()
    h = x * 2
    z = h.exp()  # saves its result
    z.data.zero_()
    with pytest.raises(InplaceError, match="overwritten in place"):
        z.sum().backward()


def test_other_parts_of_the_memory_may_be_written() -> None:
    w = rl.ones(3, 4, requires_grad=True)
    for mine, other in [
        ((slice(None), slice(0, 2)), (slice(None), slice(2, 4))),
        ((slice(0, 1),), (slice(1, 3),)),
        ((slice(None), 1), (slice(None), 3)),
        ((1, slice(1, 3)), (1, slice(3, 4))),
        ((2, 3), (0, 0)),
    ]:
        x = rl.arange(12.0).reshape(3, 4)
        for _ in range(3):  # some writes before the record
            x.data[mine] = 2.0
        y = (w[mine] * x[mine]).sum()
        for value in range(70):  # more than are remembered by layout
            x.data[other] = float(value)
            if value == 5:
                (got,) = rl.autograd.grad(y, w, retain_graph=True)
                assert got.sum() == 2 * w[mine].numel()
        with pytest.raises(InplaceError):
            y.backward()
        y = (w[mine] * x[mine]).sum()
        x.data[other] = 1.0
        x.data[mine] = 1.0
        with pytest.raises(InplaceError):
            y.backward()


def test_which_layouts_overlap() -> None:
    """`may_overlap` never denies an overlap, and finds disjoint slices of a dense tensor."""
    numbers = random.Random(0)
    denied = exact = 0
    for _ in range(2000):
        shape = [numbers.randint(1, 4) for _ in range(numbers.randint(1, 4))]
        whole = rl.arange(math.prod(shape), dtype=rl.int32).reshape(shape)
        steps = (1,) if numbers.random() < 0.7 else (1, 2)

        def part(whole=whole, steps=steps):
            seen = whole
            index = []
            for n in whole.shape:
                start = numbers.randrange(n)
                stop = numbers.randint(start + 1, n)
                index.append(
                    start if numbers.random() < 0.3 else slice(start, stop, numbers.choice(steps))
                )
            seen = seen[tuple(index)]
            return seen.permute(*numbers.sample(range(seen.ndim), seen.ndim)) if seen.ndim else seen

        a, b = part(), part()
        share = bool(set(a.flatten().tolist()) & set(b.flatten().tolist()))
        found = may_overlap(a._spec, a._offset, b._spec, b._offset)
        assert found or not share
        denied += not found
        exact += found == share
    assert denied > 300 and exact > 1800
    x = rl.zeros(4)
    assert may_overlap(x._spec, 0, x.view(rl.int16)._spec, 0)
    assert may_overlap(x.expand(2, 4)._spec, 0, x[1:]._spec, 4)
    assert not may_overlap(x[:0]._spec, 0, x._spec, 0)


def test_a_counted_write_is_refused_beside_hidden_ones() -> None:
    x, w = rl.ones(2, requires_grad=True), rl.ones(2, requires_grad=True)
    y = (x * w).sum()
    x.data.add_(1)
    with rl.no_grad():
        w.add_(1)
    with pytest.raises(InplaceError, match="overwritten in place"):
        y.backward()


def test_what_was_saved_through_data_may_not_be_written() -> None:
    w, x = rl.ones(2, requires_grad=True), rl.ones(2)
    d = x.data
    for part in (d, d[:]):
        y = (w * part).sum()
        part.add_(1)
        with pytest.raises(InplaceError, match="overwritten in place"):
            y.backward()
    d.requires_grad_()
    y = (d * d).sum()
    with rl.no_grad():
        d.add_(1)
    with pytest.raises(InplaceError):
        y.backward()


def test_a_recorded_write_is_counted() -> None:
    w, x = rl.ones(2, requires_grad=True), rl.ones(2)
    d = x.data
    d.mul_(w)
    d.sum().backward()
    assert w.grad.tolist() == [1, 1] and d.requires_grad


class Assign(rl.autograd.Function):
    """As in torchdiffeq's solvers: fills parts past the check of versions, on purpose."""

    @staticmethod
    def forward(ctx, scratch, value, index):
        ctx.index = index
        scratch.data[index] = value
        return scratch

    @staticmethod
    def backward(ctx, grad):
        return grad, grad[ctx.index], None


def assigned(steps, value, index):
    """The same without a write."""
    columns = list(steps.unbind(-1))
    columns[index[1]] = value
    return rl.stack([c if i <= index[1] else rl.zeros_like(c) for i, c in enumerate(columns)], -1)


def solved(x, assign=Assign.apply):
    steps = assign(rl.zeros(*x.shape, 4, dtype=x.dtype), x, (..., 0))
    for i in range(1, 4):
        value = (steps[..., :i] * rl.arange(1.0, i + 1, dtype=x.dtype)).sum(-1).sin()
        steps = assign(steps, value * x, (..., i))
    return steps.sum()


def test_a_function_that_fills_a_tensor_in_parts() -> None:
    found = []
    for assign in (Assign.apply, assigned):
        x = rl.tensor([1.0, 2.0], dtype=rl.float64, requires_grad=True)
        solved(x, assign).backward()
        found.append(x.grad)
    rl.testing.assert_close(*found)


@pytest.mark.parametrize("region", ["budget", "checkpoint"])
def test_the_same_bits_in_a_region(region: str) -> None:
    def run(inside: bool):
        rl.manual_seed(0)
        x = rl.randn(64, 64, requires_grad=True)
        if not inside:
            solved(x).backward()
        elif region == "budget":
            with rl.memory.budget(24 * x.nbytes):
                solved(x).backward()
        else:
            rl.utils.checkpoint.checkpoint(solved, x, use_reentrant=False).backward()
        return x.grad

    assert rl.equal(run(True), run(False))


def test_autocast_casts_again_after_it() -> None:
    layer = nn.Linear(2, 2, bias=False)
    x = rl.ones(1, 2)
    with rl.autocast("cpu", dtype=rl.bfloat16), rl.no_grad():
        layer(x)
        layer.weight.data.fill_(1.0)
        assert layer(x).tolist() == [[2, 2]]


def test_data_in_other_hands() -> None:
    x = rl.ones(3)
    d = x.data
    other = copy.deepcopy(d)
    other.add_(1)
    assert other._version == 1 and x.tolist() == [1, 1, 1]  # memory of its own
    parameter = nn.Parameter(d)
    assert parameter.data_ptr() == x.data_ptr() and type(d) is rl.Tensor and d._base is None
    with rl.inference_mode():
        y = rl.ones(2)
        y.data.add_(1)
        assert y.is_inference() and y.tolist() == [2, 2]
    assert rl.vmap(lambda row: row.data * 2)(rl.ones(2, 2)).tolist() == [[2, 2], [2, 2]]


def test_an_assignment_is_not_counted() -> None:
    p = rl.nn.Parameter(rl.ones(2))
    p.data = rl.zeros(2)
    assert p._version == 0
    with rl.no_grad():
        p.add_(1)
    assert p._version == 1
    p.data = rl.zeros(2)
    assert p._version == 1
    p.data = p.data.double()
    assert p._version == 1 and p.tolist() == [0.0, 0.0]


def test_a_record_from_before_an_assignment_is_refused() -> None:
    p = rl.nn.Parameter(rl.ones(2))
    loss = (p * p).sum()
    p.data = rl.zeros(2)
    with pytest.raises(InplaceError):
        loss.backward()
