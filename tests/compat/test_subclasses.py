"""Subclasses of Tensor: results keep the class, and `__torch_function__` sees every call."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.compat import dispatch, subclasses
from rushlight.compat.torch_function import DisableTorchFunctionSubclass
from rushlight.core.errors import RushlightError
from rushlight.nn import functional as F


class Plain(torch.Tensor):
    pass


CALLS: list[Any] = []


class Seen(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLS.append(func)
        return super().__torch_function__(func, types, args, kwargs)


def test_how_they_are_made() -> None:
    data = torch.ones(2)
    assert type(Plain([1.0, 2.0])) is Plain and Plain([1.0, 2.0]).tolist() == [1, 2]
    assert Plain(2, 3).shape == (2, 3) and type(Plain(data)) is Plain
    view = data.as_subclass(Plain)
    view[0] = 5
    assert data.tolist() == [5, 1] and type(view) is Plain
    leaf = torch.ones(2, requires_grad=True)
    part = leaf.as_subclass(Plain)
    assert not part.is_leaf and part._base is leaf
    (part * 3).sum().backward()
    assert type(leaf.grad) is torch.Tensor and leaf.grad.tolist() == [3, 3]
    made = torch.Tensor._make_subclass(Plain, data, True)
    assert made.is_leaf and made.requires_grad and made.data_ptr() == data.data_ptr()
    (made * made).sum().backward()
    assert made.grad.tolist() == [10, 2]
    with pytest.raises(TypeError, match="a subclass of Tensor"):
        data.as_subclass(int)
    with pytest.raises(RushlightError, match="no dispatcher"):
        torch.Tensor._make_wrapper_subclass(Plain, (2,))


def test_a_class_that_waits_for_dispatched_ops_is_refused() -> None:
    class Dispatched(torch.Tensor):
        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    class Without(Dispatched):
        __torch_dispatch__ = torch._C._disabled_torch_dispatch_impl

    for make in (
        torch.ones(2).as_subclass,
        lambda kind: torch.Tensor._make_subclass(kind, torch.ones(2)),
        lambda kind: kind([1.0]),
    ):
        with pytest.raises(RushlightError, match="__torch_dispatch__ would never be called"):
            make(Dispatched)
        assert type(make(Without)) is Without


@pytest.mark.parametrize(
    "call",
    [
        *(lambda x, p: x + 1, lambda x, p: 1 - x, lambda x, p: p + x, lambda x, p: p @ x),
        *(lambda x, p: p.mul(x), lambda x, p: torch.add(p, x), lambda x, p: torch.stack([p, x])),
        *(lambda x, p: x[0], lambda x, p: p[x.long() - 1], lambda x, p: x.T, lambda x, p: x > 0),
        *(lambda x, p: x.sum(), lambda x, p: x.max(0)[0], lambda x, p: x.split(1)[1]),
        *(lambda x, p: F.relu(x), lambda x, p: F.softmax(x, 0), lambda x, p: nn.Linear(2, 2)(x)),
        *(lambda x, p: nn.LayerNorm(2)(x), lambda x, p: torch.where(p > 0, x, p)),
        *(lambda x, p: x.detach(), lambda x, p: x.data, lambda x, p: x.double()),
        *(lambda x, p: torch.zeros_like(x), lambda x, p: x.new_ones(2), lambda x, p: -x),
        *(lambda x, p: nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.Dropout(0.5))(x),),
        *(lambda x, p: x.clone().add_(1), lambda x, p: p.clone().copy_(x)),
    ],
)
def test_results_keep_the_class(call) -> None:
    x = torch.ones(2, 2).as_subclass(Plain)
    found = call(x, torch.ones(2, 2))
    assert type(found) is Plain
    with DisableTorchFunctionSubclass():
        assert type(call(torch.ones(2, 2), torch.ones(2, 2))) is torch.Tensor


@pytest.mark.parametrize(
    ("call", "seen"),
    [
        (lambda x: x + 1, torch.Tensor.add),
        (lambda x: 1 + x, torch.Tensor.add),
        (lambda x: torch.ones(2) * x, torch.Tensor.mul),
        (lambda x: x.add(1), torch.Tensor.add),
        (lambda x: torch.add(x, 1), torch.add),
        (lambda x: F.relu(x), F.relu),
        (lambda x: nn.Linear(2, 2)(x), F.linear),
        (lambda x: x.shape, torch.Tensor.shape.__get__),
        (lambda x: x.requires_grad, torch.Tensor.requires_grad.__get__),
        (lambda x: len(x), torch.Tensor.__len__),
        (lambda x: x[0], torch.Tensor.__getitem__),
        (lambda x: torch.cat([torch.ones(2), x]), torch.cat),
        (lambda x: x.to(torch.float64), torch.Tensor.to),
        (lambda x: setattr(x, "grad", None), torch.Tensor.grad.__set__),
    ],
)
def test_the_function_that_is_seen(call, seen) -> None:
    x = torch.ones(2).as_subclass(Seen)
    CALLS.clear()
    call(x)
    assert [seen] == CALLS and (CALLS[0] is seen or not hasattr(seen, "__code__"))


def test_a_class_may_answer_itself() -> None:
    handled: dict[Any, Any] = {torch.mean: lambda x: "mine"}

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in handled:
                return handled[func](*args, **(kwargs or {}))
            return NotImplemented

    x = torch.ones(2).as_subclass(Own)
    assert torch.mean(x) == "mine"
    with pytest.raises(TypeError, match="returned NotImplemented"):
        torch.sum(x)

    class Less(Plain):
        pass

    assert type(torch.ones(2).as_subclass(Less) + torch.ones(2).as_subclass(Plain)) is Less
    other = torch.ones(2).as_subclass(Seen)
    with pytest.raises(TypeError, match="no implementation"):
        other + torch.ones(2).as_subclass(Plain)


def test_attributes_copies_and_pickles() -> None:
    x = torch.arange(3.0).as_subclass(Plain)
    x.note = [1]
    assert repr(x) == "Plain([0., 1., 2.])"
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(other) is Plain and other.tolist() == [0, 1, 2] and other.note == [1]
    assert copy.deepcopy(x).note is not x.note
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1]


def test_parameters() -> None:
    class Mine(nn.Parameter):
        pass

    own = Mine(torch.ones(2))
    assert type(own) is Mine and type(own + 1) is torch.Tensor
    marked = nn.Parameter(torch.ones(2).as_subclass(Plain))
    assert type(marked) is Plain and isinstance(marked, nn.Parameter) and marked.is_leaf
    assert not isinstance(torch.ones(2).as_subclass(Plain), nn.Parameter)
    assert not isinstance(marked, Mine) and not isinstance(torch.ones(1), nn.Parameter)
    layer = nn.Module()
    layer.weight = marked
    assert next(iter(layer.parameters())) is marked
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    (layer.weight * 2).sum().backward()
    optimizer.step()
    assert marked.tolist() == [0, 0] and type(layer.weight) is Plain


def test_swap_tensors() -> None:
    a = nn.Parameter(torch.ones(2))
    b = torch.zeros(3).as_subclass(Plain)
    b.note = 1
    torch.utils.swap_tensors(a, b)
    assert type(a) is Plain and a.shape == (3,) and a.note == 1 and not a.requires_grad
    assert type(b) is nn.Parameter and b.requires_grad and not hasattr(b, "note")
    (b * 2).sum().backward()
    assert b.grad.tolist() == [2, 2]


def test_modes_see_methods_and_plain_code_comes_back() -> None:
    code = torch.add.__code__
    names = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with Mode():
        x.add(1)
        x * 2
        torch.add(x, 1)
    assert names == ["add", "mul", "add"] and torch.add.__code__ is code
    assert not dispatch.MODES.get() and subclasses.get_default_nowrap_functions()


def test_modes_are_of_a_thread_and_may_be_entered_again() -> None:
    code = torch.mul.__code__
    names = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x, mode = torch.ones(2), Mode()
    with mode:
        other = threading.Thread(target=lambda: x + 1)
        other.start()
        other.join()
        assert names == []
        with mode:
            pass
        x * 2
    assert names == ["mul"] and torch.mul.__code__ is code


def test_defaults_are_there_while_code_is_exchanged() -> None:
    torch.argmax(torch.ones(2))  # gives it its code
    by_place, by_name = torch.argmax.__defaults__, torch.argmax.__kwdefaults__ or {}
    with dispatch.asking():
        assert torch.argmax.__defaults__ == by_place
        assert by_name.items() <= torch.argmax.__kwdefaults__.items()
    assert (torch.argmax.__kwdefaults__ or {}) == by_name


def test_as_subclass_gives_the_class_that_is_asked_for() -> None:
    part = torch.ones(2).as_subclass(Plain)
    assert type(part.as_subclass(torch.Tensor)) is torch.Tensor
    assert type(part.as_subclass(Seen)) is Seen


def test_torch_function_as_a_plain_method() -> None:
    class Like:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return self, func.__name__

    like = Like()
    with dispatch.asking():
        assert torch.add(torch.ones(2), like) == (like, "add")


def test_a_tensor_made_of_one_is_plain() -> None:
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.arange(3.0).as_subclass(Watched).requires_grad_()
    seen.clear()
    made = torch.tensor(x)
    assert type(made) is torch.Tensor and not made.requires_grad and made.tolist() == [0, 1, 2]
    assert type(torch.tensor([x[0], x[1]])) is torch.Tensor
    assert torch.as_tensor(x) is x and torch.asarray(x) is x and torch.is_tensor(x)
    assert torch.tensor not in seen and torch.as_tensor not in seen

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        torch.tensor([1.0])
    assert torch.tensor in seen
