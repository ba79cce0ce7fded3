"""Programs: steps over slots, run on addresses, as one plan, differentiated and printed.

See Note [Programs].
"""

from __future__ import annotations

import gc

import pytest

import rushlight as rl
from rushlight.core.cache import Cache, forget
from rushlight.devices.shared.registry import pool_of
from rushlight.ops.view import views
from rushlight.tape.program.program import Program, ProgramOp, Reference
from rushlight.tape.program.trace import trace
from rushlight.tape.record import call


def traced(function, *values):
    """A function's program over the values."""
    made, program = trace(lambda: function(*values), values)
    assert program is not None
    return made, program


def product(x, y):
    return (x * y).exp().t() * 2


X, Y = rl.rand(3, 4), rl.rand(3, 4)


def test_steps_read_slots_that_are_given_or_made_before():
    _, program = traced(product, X, Y)
    assert program.given == (X._spec, Y._spec)
    for first, step in zip(program.firsts, program.steps, strict=True):
        assert all(source < first for source in step.sources)
    names = [step.plan.op.name for step in program.steps]
    assert names == ["mul", "exp", "permute", "mul"]


def test_a_view_is_a_reference_and_no_launch():
    _, program = traced(product, X, Y)
    assert [launch.plan.op.name for launch in program.launches] == ["mul", "exp", "mul"]
    _, program = traced(lambda x: x[1:, 2], X)
    assert program.launches == () and program.made == ()
    (result,) = program.results
    slot, offset, spec = program.rooted(result)
    assert (slot, offset, spec.shape) == (0, (4 + 2) * 4, (2,))


def test_it_prints_its_steps():
    _, program = traced(product, X, Y)
    lines = repr(program).splitlines()
    assert lines[0] == "given %0 float32[3, 4], %1 float32[3, 4]"
    assert lines[1] == "%2 = mul(%0, %1) -> float32[3, 4]"
    assert lines[3].startswith("%4 = permute(%3, (1, 0))") and lines[3].endswith("# a view")
    assert lines[-1] == "gives %5"


def test_it_runs_as_calls_and_on_addresses_with_the_same_bits(device):
    x, y = X.to(device), Y.to(device)
    made, program = traced(product, x, y)
    (called,) = program.call((x, y))
    (storage,) = program.make([x._memory.address, y._memory.address])
    launched = call.make_value(made._spec, storage)
    assert rl.equal(called, made) and rl.equal(launched, made)
    target = rl.zeros_like(made)
    program.launch(target._memory.address, x._memory.address, y._memory.address)
    assert rl.equal(target, made)


def test_scratch_is_given_back_after_its_last_reader():
    x = rl.rand(64, 64)

    def chain(v):
        for _ in range(6):
            v = v.exp() * 0.5
        return v

    _, program = traced(chain, x)
    gc.collect()
    pool = pool_of("cpu")
    before = pool.live
    rl.memory.reset_peak()
    made = program.make([x._memory.address])
    assert rl.memory.peak() - before <= 2 * x._memory.room  # of eleven results two live at a time
    del made
    assert pool.live == before


def test_a_launch_that_fails_leaves_no_scratch(monkeypatch):
    x = rl.rand(8, 8)
    _, program = traced(lambda v: ((v * 2).exp() + 1).tanh(), x)
    pool = pool_of("cpu")
    gc.collect()
    before = pool.live
    last = program.launches[-1].plan

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(last, "launch", fail)
    with pytest.raises(KeyboardInterrupt):
        program.make([x._memory.address])
    monkeypatch.undo()
    assert pool.live == before


def test_one_step_is_its_plan():
    _, program = traced(lambda x, y: x + y, X, Y)
    plan = program.steps[0].plan
    assert program.only is plan
    assert program.as_plan(ProgramOp("sum", program), 3) is plan
    _, turned = traced(lambda x, y: y - x, X, Y)
    assert turned.only is None


def test_as_one_plan_it_saves_what_its_steps_do():
    _, program = traced(product, X, Y)
    op = ProgramOp("product", program)
    plan = program.as_plan(op, 1)
    grad = plan.grads[1]
    assert plan.outs[0] is program.results[0].spec
    assert grad.saves_in == (1,)  # y, of mul
    assert len(plan.outs) == 2 and grad.saves_out == (1,)  # exp saves its result, which is hidden
    assert not program.as_plan(op, 0).grads


@pytest.mark.parametrize("needs", [1, 2, 3])
def test_its_derivative_is_made_of_its_steps(needs):
    leaves = [v.clone().requires_grad_(bool(needs >> i & 1)) for i, v in enumerate((X, Y))]
    _, program = traced(lambda x, y: product(x, y) * x.t(), *[v.detach() for v in leaves])
    plan = program.as_plan(ProgramOp("product", program), needs)
    made = call.run(plan, leaves)
    result = made[0] if isinstance(made, tuple) else made
    want = product(*leaves) * leaves[0].t()
    assert rl.equal(result, want)
    asked = [v for v in leaves if v.requires_grad]
    g = rl.rand(4, 3)
    for got, expected in zip(
        rl.autograd.grad(result, asked, g), rl.autograd.grad(want, asked, g), strict=True
    ):
        assert rl.allclose(got, expected, rtol=1e-6)


def test_hoisted_steps_come_as_early_as_they_can():
    made, program = traced(lambda x: (x.exp(), x.tanh(), x.exp().sum()), X)
    names = [step.plan.op.name for step in program.hoisted(2).steps]
    assert names == ["exp", "reshape", "sum", "exp", "tanh"]
    for got, want in zip(program.hoisted(2).call((X,)), made, strict=True):
        assert rl.equal(got, want)


def test_a_gradient_that_passes_through_is_a_result():
    program = Program([X._spec], [], [Reference(0, 0, X._spec), None])
    assert program.call((X,)) == [X, None]
    assert program.launches == ()
    assert repr(program) == "given %0 float32[3, 4]\ngives %0, nothing"


def refused(function, *values):
    return trace(lambda: function(*values), values)[1] is None


def test_what_is_not_explained_has_no_program():
    other = rl.rand(3, 4)
    assert refused(lambda x: x + other, X)  # neither given nor made
    assert refused(lambda x: x.clone().add_(1), X)  # a write in place
    assert refused(lambda x: x * x[0, 0].item(), X)  # a read
    assert refused(lambda x, y: x + y, X, X)  # one tensor in two places
    assert refused(lambda x: x.exp().sum().item(), X)  # a result that is no tensor


def test_views_at_a_call_are_steps_with_parameters():
    _, program = traced(lambda x: x.select(0, 2), X)
    assert program.steps[0].plan.op is views._select and program.steps[0].params == (2,)


def test_caches_have_one_bound_and_are_forgotten_together(monkeypatch):
    monkeypatch.setattr(Cache, "MOST", 3)
    cache = Cache()
    for i in range(10):
        cache.keep(i, i)
        assert len(cache) <= 3
    assert cache[9] == 9
    forget()
    assert not cache
    x = rl.rand(2, 5)
    assert rl.equal(x + x, x * 2) and rl.equal(x.sum(1), x.sum(1))
