"""Grad modes beyond plain blocks: generators, nesting, errors, threads.

Tensors made in inference mode.
"""

from __future__ import annotations

import contextvars
import threading

import pytest

import rushlight as rl
from rushlight import InplaceError, RushlightError
from rushlight.autograd import Function, backward, grad

MODES = [rl.no_grad, rl.enable_grad, rl.inference_mode, lambda: rl.set_grad_enabled(False)]


def leaf(*numbers: float, device: str = "cpu") -> rl.Tensor:
    return rl.tensor(list(numbers) or [1.0, 2.0], requires_grad=True, device=device)


# ---- generators ----


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("outside", [True, False])
def test_a_mode_holds_while_a_generator_runs_and_not_between(mode, outside):
    inside = mode is rl.enable_grad

    @mode()
    def steps():
        assert rl.is_grad_enabled() is inside
        got = yield 1
        assert rl.is_grad_enabled() is inside
        try:
            yield got
        except KeyError:
            assert rl.is_grad_enabled() is inside
            yield "caught"
        finally:
            seen.append(rl.is_grad_enabled())
        return "done"

    seen = []
    with rl.set_grad_enabled(outside):
        generator = steps()
        assert next(generator) == 1
        assert rl.is_grad_enabled() is outside
        assert generator.send("sent") == "sent"
        assert rl.is_grad_enabled() is outside
        assert generator.throw(KeyError()) == "caught"
        assert rl.is_grad_enabled() is outside
        with pytest.raises(StopIteration) as end:
            next(generator)
        assert end.value.value == "done"
        assert seen == [inside]
        assert rl.is_grad_enabled() is outside


def test_a_generator_that_is_closed_or_fails():
    seen = []

    @rl.no_grad()
    def steps():
        try:
            yield 1
        finally:
            seen.append(rl.is_grad_enabled())

    generator = steps()
    next(generator)
    generator.close()
    assert seen == [False]

    @rl.no_grad()
    def failing():
        yield 1
        raise ZeroDivisionError

    generator = failing()
    next(generator)
    with pytest.raises(ZeroDivisionError):
        next(generator)
    with pytest.raises(KeyError):
        generator = steps()
        next(generator)
        generator.throw(KeyError())
    assert rl.is_grad_enabled()
    assert list(steps()) == [1]


def test_two_generators_take_turns():
    @rl.no_grad()
    def off():
        for _ in range(3):
            yield rl.is_grad_enabled()

    @rl.enable_grad()
    def on():
        for _ in range(3):
            yield rl.is_grad_enabled()

    assert list(zip(off(), on(), strict=True)) == [(False, True)] * 3
    assert rl.is_grad_enabled()


# ---- nesting ----


def test_one_object_entered_inside_itself():
    mode = rl.no_grad()
    with mode:
        with mode, rl.enable_grad():
            assert rl.is_grad_enabled()
        assert not rl.is_grad_enabled()
    assert rl.is_grad_enabled()


def test_a_decorated_function_that_calls_itself_and_fails():
    @rl.no_grad()
    def down(n):
        assert not rl.is_grad_enabled()
        if n == 0:
            raise ZeroDivisionError
        try:
            down(n - 1)
        except ZeroDivisionError:
            assert not rl.is_grad_enabled()
            raise

    with pytest.raises(ZeroDivisionError):
        down(3)
    assert rl.is_grad_enabled()


def test_set_grad_enabled_as_a_call_as_a_block_and_again():
    mode = rl.set_grad_enabled(False)
    assert not rl.is_grad_enabled()
    rl.set_grad_enabled(True)
    with mode:
        assert not rl.is_grad_enabled()
        with mode:
            assert not rl.is_grad_enabled()
        assert not rl.is_grad_enabled()
    assert rl.is_grad_enabled()
    with rl.set_grad_enabled(False), rl.set_grad_enabled(mode=True):
        assert rl.is_grad_enabled()
    assert rl.is_grad_enabled()


def test_a_block_that_ends_in_another_context():
    def held():
        with rl.no_grad():
            yield

    generator = held()
    context = contextvars.copy_context()
    context.run(next, generator)
    assert rl.is_grad_enabled()
    generator.close()
    assert rl.is_grad_enabled()


# ---- threads ----


def test_a_thread_starts_afresh_and_a_copied_context_carries_the_mode():
    x = leaf()
    seen = {}

    def work(name):
        seen[name] = ((x * 2).requires_grad, rl.is_inference_mode_enabled())

    with rl.inference_mode():
        context = contextvars.copy_context()
        threads = [
            threading.Thread(target=work, args=("plain",)),
            threading.Thread(target=context.run, args=(work, "carried")),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == {"plain": (True, False), "carried": (False, True)}


def test_modes_reach_the_workers_of_a_backward_pass():
    x = leaf()
    seen = []
    parts = []
    for i in range(4):
        part = (x * float(i)).exp()
        part.register_hook(lambda g: seen.append(rl.is_grad_enabled()))
        parts.append(part.sum())
    backward(parts, create_graph=True, workers=2)
    with rl.no_grad():
        backward(parts, workers=2)
    assert seen == [True] * 4 + [False] * 4


# ---- inference tensors ----


def test_what_is_an_inference_tensor(device):
    x = leaf(device=device)
    base = rl.ones(2, 2, device=device)
    with rl.inference_mode():
        made = [
            rl.ones(2, device=device),
            rl.empty(2, device=device),
            rl.tensor([1.0, 2.0], device=device),
            x * 2,
            x.clone(),
            x + x,
            base @ base,
            base.softmax(1),
            base.sum(),
            rl.where(base > 0, base, base),
            rl.cat([base, base]),
            base.t().contiguous(),
        ]
        assert all(t.is_inference() for t in made)
        assert rl.is_inference(made[0][1:])
        assert made[0].view(1, 2).is_inference()
        assert not x.view(2).is_inference()
        assert not x.detach().is_inference()
        with rl.inference_mode(False):
            assert not rl.ones(2).is_inference()
    assert not x.is_inference()
    assert made[0].view(1, 2).is_inference()
    assert not made[0].clone().is_inference()
    assert not (made[0] * 2).is_inference()


def test_an_inference_tensor_is_not_saved(device):
    with rl.inference_mode():
        i = rl.ones(2, device=device)
    for call in (
        lambda x: x * i,
        lambda x: i * x,
        lambda x: rl.atan2(x, i),
        lambda x: x[None] @ i[:, None],
        lambda x: x.mul_(i),
    ):
        with pytest.raises(RushlightError, match="inference_mode"):
            call(leaf(device=device) * 1)
    x = leaf(device=device)
    assert (x + i).requires_grad
    y = leaf(device=device)
    (y * i.clone()).sum().backward()
    assert y.grad.tolist() == [1, 1]
    with rl.no_grad():
        assert (x * i).tolist() == [1, 2]


def test_a_function_does_not_save_one_either():
    class Times(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None

    with rl.inference_mode():
        i = rl.ones(2)
    with pytest.raises(RushlightError, match="Times"):
        Times.apply(leaf(), i)


def test_an_inference_tensor_is_written_to_inside_only():
    with rl.inference_mode():
        i = rl.ones(2)
        i.add_(1)
        i[0] = 5
        i.copy_(rl.tensor([5.0, 2.0]))
        i.mul_(1)
    for write in (
        lambda: i.add_(1),
        lambda: i.zero_(),
        lambda: i[:1].mul_(2),
        lambda: i.copy_(rl.ones(2)),
    ):
        for mode in (rl.enable_grad, rl.no_grad):
            with mode(), pytest.raises(InplaceError, match="inference_mode"):
                write()
    assert i.tolist() == [5, 2]
    assert rl.ones(2).add_(i).tolist() == [6, 3]
    with rl.inference_mode():
        assert i.add_(1).tolist() == [6, 3]


def test_an_inference_tensor_requires_no_gradient_outside():
    with rl.inference_mode():
        i = rl.ones(2)
        assert rl.ones(2, requires_grad=True).requires_grad
        with rl.enable_grad():
            assert not (leaf() * 2).requires_grad
    with pytest.raises(RushlightError, match="inference_mode"):
        i.requires_grad_()
    with pytest.raises(RushlightError, match="counts no writes"):
        _ = i._version


def test_backward_inside_gives_plain_gradients():
    x = leaf()
    y = (x * x).sum()
    with rl.inference_mode():
        y.backward()
    assert x.grad.tolist() == [2, 4]
    assert not x.grad.is_inference()
    (g,) = grad((x * x.grad).sum(), x)
    assert g.tolist() == [2, 4]
