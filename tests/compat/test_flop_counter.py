"""`torch.utils.flop_counter`: what the launches multiply and add, by module and kind of call."""

import importlib

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn import functional as F

flop_counter = importlib.import_module("rushlight.compat.utils.flop_counter")
aten = rl.ops.aten


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.rest = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        return self.rest(self.first(x).flatten(2).transpose(1, 2))


def counted(function):
    with flop_counter.FlopCounterMode(display=False) as counter:
        function()
    return counter


CONVOLUTION = 2 * 2 * 16 * 3 * 8 * 9
PRODUCTS = 2 * 2 * 16 * (8 * 16 + 16 * 4)


def test_forward_and_backward_by_module_and_kind():
    net, x = Net(), rl.rand(2, 3, 4, 4)
    counter = counted(lambda: net(x).sum().backward())
    counts = counter.get_flop_counts()
    assert counts["Net.first"] == {
        aten.convolution: CONVOLUTION,
        aten.convolution_backward: CONVOLUTION,
    }
    assert counts["Net.rest"] == {aten.addmm: PRODUCTS, aten.mm: 2 * PRODUCTS}
    assert sum(counts["Net.rest.0"].values()) == 3 * 2 * 2 * 16 * 8 * 16
    assert counts["Net"] == counts["Global"]
    assert counter.get_total_flops() == 2 * CONVOLUTION + 3 * PRODUCTS


def test_the_first_call_of_a_kind_counts_like_later_ones():
    q = rl.ones(1, 2, 37, 8, requires_grad=True)
    w = rl.ones(5, 3, 4, requires_grad=True)
    calls = [
        lambda: F.scaled_dot_product_attention(q, q, q),
        lambda: F.conv1d(rl.ones(2, 3, 11), w),
        lambda: F.bilinear(rl.ones(2, 3), rl.ones(2, 4), w),
    ]
    for call in calls:
        first, second = counted(call), counted(call)
        assert first.get_flop_counts() == second.get_flop_counts() != {}
    assert counted(calls[0]).get_total_flops() == 2 * 2 * 2 * 37 * 37 * 8


def test_nothing_is_computed_on_meta():
    with rl.device("null"):
        net = Net()
    counter = counted(lambda: net(rl.zeros(2, 3, 4, 4, device="null")))
    assert counter.get_total_flops() == CONVOLUTION + PRODUCTS


def test_the_table_has_levels_and_shares(capsys):
    net, x = Net(), rl.rand(2, 3, 4, 4)
    with flop_counter.FlopCounterMode(depth=1) as counter:
        net(x)
    shown = capsys.readouterr().out
    assert " Net " in shown and "Net.rest" not in shown and "100.00%" in shown
    assert "Net.rest" in counter.get_table(depth=2)


def test_formulas_are_accepted_and_mappings_refused():
    @flop_counter.register_flop_formula([aten.mm])
    def formula(*shapes, out_shape=None):
        return 0

    assert formula() == 0
    with pytest.raises(rl.RushlightError, match="custom_mapping"):
        flop_counter.FlopCounterMode(custom_mapping={aten.mm: formula})
