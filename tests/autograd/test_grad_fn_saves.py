"""What `grad_fn` shows of its saves, by PyTorch's names: Note [Shown saves]."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import rushlight
import rushlight.nn.functional as F
from rushlight.core.errors import GraphFreedError, InplaceError
from rushlight.tape.record.value import Node
from rushlight.utils.checkpoint import checkpoint


def leaf(*shape: int, device: str = "cpu") -> Any:
    return rushlight.rand(*shape).add(0.5).to(device).requires_grad_()


def test_operands_and_results(device: str) -> None:
    x, y = leaf(3, 3, device=device), leaf(3, 3, device=device)
    product = (x * y).grad_fn
    assert product._saved_self is x and product._saved_other is y
    made = x.exp()
    shown = made.grad_fn._saved_result
    assert shown.data_ptr() == made.data_ptr() and shown.grad_fn is made.grad_fn
    assert (x @ y).grad_fn._saved_mat2 is y
    assert x.pow(3).grad_fn._saved_exponent == 3 and x.pow(3).grad_fn._saved_self is x
    assert x.clamp(0.1, 0.7).grad_fn._saved_max == 0.7
    index = rushlight.zeros(1, 3, dtype=rushlight.int64, device=device)
    assert x.gather(0, index).grad_fn._saved_index is index
    assert F.softmax(x, -1).grad_fn._saved_result.shape == (3, 3)
    assert rushlight.where(x > 1, x, y).grad_fn._saved_condition.dtype is rushlight.bool


def test_what_was_not_saved() -> None:
    x, y = leaf(3), rushlight.rand(3)
    node = (x * y).grad_fn
    assert node._saved_self is None and node._saved_other is y
    for name in ("_saved_result", "_saved_weight", "_saved_nonsense", "_raw_saved_result"):
        assert not hasattr(node, name)
        with pytest.raises(AttributeError):
            getattr(node, name)
    assert {"_saved_self", "_saved_other", "_raw_saved_self"} <= set(dir(node))
    assert "_saved_result" not in dir(node) and "name" in dir(node)
    assert (x * 2.0).grad_fn._saved_other == 2.0
    with pytest.raises(AttributeError, match="number"):
        (x * 2.0).grad_fn._raw_saved_other  # noqa: B018


def test_after_backward_and_writes() -> None:
    x, y = leaf(3), leaf(3)
    z = x * y
    z.sum().backward(retain_graph=True)
    assert z.grad_fn._saved_self is x
    z.sum().backward()
    with pytest.raises(GraphFreedError, match="retain_graph"):
        z.grad_fn._saved_self  # noqa: B018
    with pytest.raises(RuntimeError):
        z.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    w = x.exp()
    w.add_(1)
    with pytest.raises(InplaceError):
        w.grad_fn.next_functions[0][0]._saved_result  # noqa: B018


def test_under_a_checkpoint() -> None:
    x = leaf(4)
    y = checkpoint(lambda v: (v * 2).exp().sin(), x, use_reentrant=False)
    assert rushlight.equal(y.grad_fn._saved_self, (x * 2).exp())
    y.sum().backward()
    assert rushlight.allclose(x.grad, 2 * (x * 2).exp() * (x * 2).exp().cos())


def test_raw_saves_take_hooks() -> None:
    x, y = leaf(3), leaf(3)
    z = x * y
    packed: list[Any] = []

    def pack(t: Any) -> int:
        packed.append(t.clone())
        return len(packed) - 1

    z.grad_fn._raw_saved_self.register_hooks(pack, lambda i: packed[i] * 10)
    assert rushlight.equal(z.grad_fn._saved_self, x * 10) and rushlight.equal(
        z.grad_fn._saved_other, y
    )
    with pytest.raises(RuntimeError, match="already"):
        z.grad_fn._raw_saved_self.register_hooks(pack, lambda i: packed[i])
    with pytest.raises(TypeError):
        z.grad_fn._raw_saved_other.register_hooks(pack, 3)  # type: ignore[arg-type]
    gx, gy = rushlight.autograd.grad(z.sum(), [x, y], create_graph=True)
    assert rushlight.equal(gx, y) and rushlight.allclose(gy, x * 10)
    # The unpacked value is differentiated as the saved one.
    (second,) = rushlight.autograd.grad(gy.sum(), x)
    assert rushlight.equal(second, rushlight.ones(3))
    other = (x * rushlight.rand(3)).grad_fn
    with pytest.raises(RuntimeError, match="None"):
        other._raw_saved_self.register_hooks(pack, lambda i: packed[i])


def test_hooks_on_a_result_and_its_write() -> None:
    x = leaf(3)
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(
        lambda t: t.numpy().copy(), lambda a: rushlight.tensor(a)
    )
    value = y.detach().clone()
    y.sum().backward()
    assert rushlight.equal(x.grad, value)
    z = x.exp()
    x2 = leaf(3)
    product = z * x2
    product.grad_fn._raw_saved_other.register_hooks(lambda t: t.clone(), lambda t: t)
    with rushlight.no_grad():
        x2.add_(1)  # its hook keeps a copy
    rushlight.autograd.grad(product.sum(), z, retain_graph=True)
    z.detach().add_(1)  # `z` is packed as it is, and a write to it is found
    with pytest.raises(InplaceError):
        rushlight.autograd.grad(product.sum(), x2)


class Cube(rushlight.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, times: int) -> Any:
        result = x * x * x
        ctx.save_for_backward(x, None, result)
        ctx.times = times
        return result

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, nothing, result = ctx.saved_tensors
        assert nothing is None and result.requires_grad
        return 3 * g * x * x, None


def test_a_users_function() -> None:
    x = leaf(3)
    y = Cube.apply(x, 7)
    node = y.grad_fn
    saved = node.saved_tensors
    assert saved[1] is None and rushlight.equal(saved[0], x) and saved[0].grad_fn is None
    assert saved[2].grad_fn is node and saved[2].data_ptr() == y.data_ptr()
    assert node.times == 7 and node.needs_input_grad == (True, False) and "times" in dir(node)
    assert not hasattr(node, "missing") and not hasattr(node, "_saved_self")
    (first,) = rushlight.autograd.grad(y.sum(), x, create_graph=True)
    assert rushlight.allclose(first, 3 * x * x)
    (second,) = rushlight.autograd.grad(first.sum(), x)
    assert rushlight.allclose(second, 6 * x)
    y.sum().backward()
    with pytest.raises(GraphFreedError):
        node.saved_tensors  # noqa: B018
    raw = Cube.apply(x, 7).grad_fn._raw_saved_tensors
    assert raw[1] is None
    raw[0].register_hooks(lambda t: t + 1, lambda t: t - 1)


def test_a_users_function_keeps_nothing_in_a_circle() -> None:
    x = leaf(3)
    gc.collect()
    gc.disable()
    try:
        y = Cube.apply(x, 1)
        y.sum().backward(retain_graph=True)
        assert len(y.grad_fn.saved_tensors) == 3
        gone = weakref.ref(y.grad_fn)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_reads_of_slots_stay_plain() -> None:
    assert "__getattr__" not in vars(Node) and "__getattribute__" not in vars(Node)
