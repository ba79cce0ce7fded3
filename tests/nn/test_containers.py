"""Containers of modules, kinds of members, `Module.to`, classes behind Module."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import rushlight as rl
from rushlight import nn

# ---- containers ----


def test_sequential_is_joined_repeated_and_cut() -> None:
    a, b, c = nn.Linear(1, 2), nn.Linear(2, 1), nn.ReLU()
    chain = nn.Sequential(a, b) + nn.Sequential(c)
    assert list(chain) == [a, b, c]
    chain += nn.Sequential(a)
    assert [name for name, _ in chain.named_modules(remove_duplicate=False)] == [
        "",
        "0",
        "1",
        "2",
        "3",
    ]
    assert chain.pop(-1) is a and len(chain) == 3
    assert list(2 * nn.Sequential(a, b)) == [a, b, a, b]
    twice = nn.Sequential(c)
    twice *= 3
    assert list(twice) == [c, c, c]
    with pytest.raises(ValueError, match="Sequential"):
        chain + a
    with pytest.raises(ValueError, match="positive"):
        chain * 0
    with pytest.raises(IndexError):
        chain.insert(-5, a)
    with pytest.raises(AssertionError):
        chain.insert(0, "relu")  # type: ignore[arg-type]
    named = nn.Sequential(OrderedDict(first=a, second=b, third=c))[1:]
    assert [name for name, _ in named.named_children()] == ["second", "third"]
    assert "0" not in dir(chain)


def test_lists_and_dicts_of_modules() -> None:
    a, b = nn.ReLU(), nn.Tanh()
    both = nn.ModuleList([a]) + nn.ModuleList([b])
    assert isinstance(both, nn.ModuleList) and list(both) == [a, b]
    assert both.pop(0) is a and list(both) == [b]
    assert list(nn.ParameterDict({"b": rl.ones(1), "a": rl.ones(1)})) == ["a", "b"]
    assert list(nn.ParameterDict([("b", rl.ones(1)), ("a", rl.ones(1))])) == ["b", "a"]
    for wrong, error in ((1, TypeError), ([1], TypeError), (rl.ones(3, 3), ValueError)):
        with pytest.raises(error):
            nn.ParameterDict().update(wrong)


def test_a_name_has_one_kind() -> None:
    module = nn.Module()
    module.register_buffer("held", rl.ones(1))
    with pytest.raises(KeyError):
        module.register_parameter("held", nn.Parameter(rl.ones(1)))
    with pytest.raises(KeyError):
        module.add_module("held", nn.ReLU())
    tied = nn.Module()
    tied.one = tied.two = nn.Linear(1, 1, bias=False)
    assert [name for name, _ in tied.named_parameters(remove_duplicate=False)] == [
        "one.weight",
        "two.weight",
    ]


def test_module_to_says_what_it_takes() -> None:
    net = nn.Linear(2, 2)
    for wrong in (("cpu", True), (rl.long,), (None, True), ([],), (rl.tensor(3),)):
        with pytest.raises(TypeError):
            net.to(*wrong)
    with pytest.raises(RuntimeError):
        net.to("cpu", copy=True)
    assert net.to("cpu", rl.float64, True).weight.dtype is rl.float64
    net.register_buffer("turn", rl.ones(1, dtype=rl.complex64))
    assert net.float().turn.dtype is rl.complex64 and net.weight.dtype is rl.float32
    with pytest.raises(ValueError, match="mode"):
        net.train("yes")  # type: ignore[arg-type]


def test_classes_behind_module_are_initialised_where_asked() -> None:
    class Mixin:
        def __init__(self) -> None:
            self.mixed = True

    class Both(nn.Module, Mixin):
        call_super_init = True

    assert Both().mixed
    with pytest.raises(TypeError):
        nn.Module(3)
