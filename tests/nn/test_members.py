"""Members as PyTorch's libraries use them: real dicts, `__getattr__`, patched registration."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest

import rushlight
from rushlight import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(rushlight.ones(2))
        self.register_buffer("mean", rushlight.zeros(2))
        self.inner = nn.Linear(2, 2)


def test_the_dicts_are_in_the_modules_dict() -> None:
    net = Net()
    for place, names in (
        *(("_parameters", ["weight"]), ("_buffers", ["mean"]), ("_modules", ["inner"])),
    ):
        members = net.__dict__[place]
        assert isinstance(members, dict) and list(reversed(members)) == names
        assert type(members.copy()) is dict and dict(members) == members | {}
    other = nn.Parameter(rushlight.zeros(2))
    net._parameters["weight"] = other
    assert net.weight is other and next(net.parameters()) is other
    del net._parameters["weight"]
    assert not hasattr(net, "weight")
    net._parameters = {"a": other}
    assert net.a is other and dict(net.named_parameters(recurse=False)) == {"a": other}
    net._modules.clear()
    assert not hasattr(net, "inner") and list(net.modules()) == [net]


def test_a_class_with_its_own_getattr_is_asked() -> None:
    asked = []

    class Asked(Net):
        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

    net = Asked()
    asked.clear()
    assert net.weight is net._parameters["weight"] and asked == ["weight"]
    assert rushlight.equal(net.inner(rushlight.ones(2)), net._modules["inner"](rushlight.ones(2)))
    assert set(net.state_dict()) == {"weight", "mean", "inner.weight", "inner.bias"}
    values = {"weight": rushlight.full((2,), 5.0)}
    got = rushlight.func.functional_call(Reads(net), {"net.weight": values["weight"]}, ())
    assert got.tolist() == [5, 5] and net.weight.tolist() == [1, 1]
    other = Net()
    other.__class__ = Asked
    asked.clear()
    assert other.weight.tolist() == [1, 1] and asked == ["weight"]


class Reads(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self):
        return self.net.weight * 1


def test_registration_may_be_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nn.Module.register_parameter

    def register(module, name, param):
        plain(module, name, param)
        if param is not None:
            module._parameters[name] = nn.Parameter(param.to("null"), param.requires_grad)

    monkeypatch.setattr(nn.Module, "register_parameter", register)
    layer = nn.Linear(3, 3)
    assert layer.weight.device.type == "null" and layer.bias.device.type == "null"


def test_copies_and_pickles_are_modules_of_their_own() -> None:
    net = Net()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        other.weight = nn.Parameter(rushlight.full((2,), 7.0))
        assert other._parameters["weight"] is other.weight and net.weight.tolist() == [1, 1]
        assert list(other.state_dict()) == list(net.state_dict())
        other._buffers["mean"] = rushlight.ones(2)
        assert other.mean.tolist() == [1, 1] and net.mean.tolist() == [0, 0]


def test_a_shallow_copy_shares_its_members() -> None:
    net = Net()
    other = copy.copy(net)
    assert other._parameters is net._parameters and other._modules is net._modules
    other.weight = nn.Parameter(rushlight.full((2,), 7.0))
    assert net.weight is other.weight and net._parameters["weight"] is net.weight
    net._buffers["mean"] = rushlight.ones(2)
    assert other.mean.tolist() == [1, 1]
    other._parameters = dict(other._parameters)
    other.weight = None
    assert net.weight.tolist() == [7, 7] and other.weight is None
    third = copy.copy(net)
    del net
    third.weight = nn.Parameter(rushlight.zeros(2))
    assert third._parameters["weight"] is third.weight and other.weight is None


def test_a_module_is_freed_by_its_count_of_references() -> None:
    gc.disable()
    try:
        copies = (lambda: copy.copy(Net()), lambda: copy.deepcopy(Net()))
        for make in (Net, *copies, lambda: nn.Sequential(nn.ReLU())):
            net = make()
            gone = weakref.ref(net)
            del net
            assert gone() is None
    finally:
        gc.enable()


def test_a_dict_of_modules_begins_without_update() -> None:
    class Late(nn.ModuleDict):
        def __init__(self):
            super().__init__()
            self.ready = True

        def update(self, modules):
            assert self.ready
            super().update(modules)

    late = Late()
    late.update({"a": nn.ReLU()})
    assert list(late) == ["a"] and late._call_impl is not None
    named = dict(late._named_members(lambda m: m._modules.items()))
    assert list(named) == ["a"]


class _SetsItsDict(nn.Module):
    """A class whose `__setstate__` does not call that of Module."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(rushlight.ones(2))
        self.register_buffer("scale", rushlight.ones(2))

    def __setstate__(self, state):
        self.__dict__.update(state)

    def forward(self, x):
        return x * self.weight * self.scale


class _TakesOver(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.__dict__.update(module.__dict__)


def _written_dicts():
    first, second = _SetsItsDict(), _SetsItsDict()
    yield copy.copy(first)
    yield copy.deepcopy(second)
    yield pickle.loads(pickle.dumps(second))
    yield _TakesOver(second)
    yield _TakesOver(_SetsItsDict())  # the module that the members were bound to is gone


def test_writes_reach_the_attributes_of_a_module_whose_dict_was_written():
    for module in _written_dicts():
        module.double()
        assert module.scale.dtype is module._buffers["scale"].dtype is rushlight.float64
    for module in _written_dicts():
        module.scale = rushlight.zeros(2)
        assert module.scale is module._buffers["scale"]
        module._buffers["scale"] = rushlight.zeros(3)
        assert module.scale.shape == (3,)
        module.weight = None
        assert module.weight is None and module._parameters["weight"] is None
        del module.weight
        assert not hasattr(module, "weight")


def test_functional_call_of_a_module_whose_dict_was_written():
    module = copy.deepcopy(_SetsItsDict())
    got = rushlight.func.functional_call(
        module, {"weight": rushlight.full((2,), 5.0)}, (rushlight.ones(2),)
    )
    assert got.tolist() == [5.0, 5.0]
    assert module(rushlight.ones(2)).tolist() == [1.0, 1.0]


def test_an_assigned_dict_takes_the_place_of_all_members_before():
    module = _SetsItsDict()
    module._parameters = {"other": nn.Parameter(rushlight.zeros(1))}
    assert not hasattr(module, "weight")
    assert module.other.shape == (1,)


def test_a_name_that_is_taken_is_refused() -> None:
    module = nn.Linear(2, 2)
    module.note = 1
    module.inner = nn.ReLU()
    for name in ("note", "inner", "forward", "training"):
        with pytest.raises(KeyError, match=name):
            module.register_parameter(name, nn.Parameter(rushlight.ones(1)))
    module.register_parameter("mro", None)  # an attribute of classes, not of modules
    module.register_parameter("weight", nn.Parameter(rushlight.ones(1)))  # in its own place


def test_a_parameter_set_to_none_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = nn.Module.register_parameter

    def register(module, name, param):
        calls.append((name, param is None))
        plain(module, name, param)

    monkeypatch.setattr(nn.Module, "register_parameter", register)
    module = nn.Module()
    module.weight = nn.Parameter(rushlight.ones(1))
    module.weight = None
    assert calls == [("weight", False), ("weight", True)] and module._parameters == {"weight": None}


def test_a_class_with_a_call_impl_of_its_own_is_called_by_it() -> None:
    seen = []

    class Counted(nn.Linear):
        def _call_impl(self, *args, **named):
            seen.append(type(self).__name__)
            return super()._call_impl(*args, **named)

    class Below(Counted):
        pass

    class Own(Counted):
        def __call__(self, x):
            return x

    layer = Below(2, 2)
    layer.register_forward_hook(lambda module, args, out: seen.append("hook"))
    x = rushlight.ones(1, 2)
    assert layer(x).shape == (1, 2) and Own(2, 2)(x) is x
    assert seen == ["Below", "hook"]
