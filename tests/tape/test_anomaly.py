"""detect_anomaly: the op, the module's path and the user's line of the first NaN or infinity."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.autograd import detect_anomaly, set_detect_anomaly
from rushlight.core.errors import AnomalyError, RushlightError
from rushlight.tape.anomaly import arming, asynchronous
from rushlight.tape.anomaly.arming import FEW, Armed
from rushlight.tape.anomaly.blame import Mode
from rushlight.tape.record.op import Op, Plan, Plans
from tests.catalog.rows import ROWS
from tests.catalog.run import call, samples_of, to_array

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _off_afterwards():
    set_detect_anomaly(False)
    Armed.blocks = 0
    yield
    assert not Mode.on
    assert not asynchronous.LOGS
    assert not rl.is_anomaly_enabled()


def line() -> int:
    """The caller's line."""
    return sys._getframe(1).f_lineno


def tensor(*numbers: float, device: str, grad: bool = False, dtype=None) -> rl.Tensor:
    return rl.tensor(list(numbers), device=device, dtype=dtype, requires_grad=grad)


def blames(error, op: str, at: int, *words: str) -> None:
    message = str(error.value)
    assert message.startswith(f"{op}: "), message
    assert f"test_anomaly.py:{at} in " in message, message
    for word in words:
        assert word in message, message
    assert error.value.op == op
    assert f"test_anomaly.py:{at} in " in error.value.place


# ---- forward ----

FORWARD = {
    "log of -1": (lambda d: tensor(1.0, -1.0, device=d).log(), "log", "nan"),
    "log of 0": (lambda d: tensor(1.0, 0.0, device=d).log(), "log", "inf"),
    "0 / 0": (lambda d: tensor(0.0, 1.0, device=d) / tensor(0.0, 1.0, device=d), "div", "nan"),
    "1 / 0": (lambda d: 1 / tensor(0.0, 1.0, device=d), "div", "inf"),
    "exp overflows": (lambda d: tensor(1.0, 100.0, device=d).exp(), "exp", "inf"),
    "inf - inf": (lambda d: tensor(INF, device=d) - tensor(INF, device=d), "sub", "nan"),
    "softmax of -inf": (lambda d: tensor(-INF, -INF, device=d).softmax(0), "softmax", "nan"),
    "a sum overflows": (lambda d: tensor(3e38, 3e38, device=d).sum(), "sum", "inf"),
    "a product overflows": (
        lambda d: rl.full((4, 4), 3e38, device=d) @ rl.full((4, 4), 3e38, device=d),
        "matmul",
        "inf",
    ),
    "a running sum": (lambda d: rl.full((8,), 1e38, device=d).cumsum(0), "cumsum", "inf"),
    "in place": (lambda d: tensor(1.0, 0.0, device=d).log_(), "log", "inf"),
    "in a view": (lambda d: rl.zeros(4, 4, device=d)[1:3, ::2].log_(), "log", "inf"),
    "a half": (lambda d: tensor(6e4, device=d, dtype=rl.float16) * 2, "mul", "inf"),
    "bfloat16": (lambda d: tensor(3e38, device=d, dtype=rl.bfloat16) * 2, "mul", "inf"),
    "a cast": (lambda d: tensor(1e5, device=d).half(), "to_float16", "inf"),
    "no_grad": (rl.no_grad()(lambda d: tensor(-1.0, device=d).sqrt()), "sqrt", "nan"),
    "inference": (rl.inference_mode()(lambda d: tensor(-1.0, device=d).sqrt()), "sqrt", "nan"),
    "complex": (lambda d: tensor(1e38 + 0j, device=d) * tensor(1e38, device=d), "mul", "inf"),
}


@pytest.mark.parametrize("name", FORWARD)
def test_a_call_that_makes_it(device: str, name: str):
    function, op, what = FORWARD[name]
    with pytest.raises(AnomalyError, match=f"^{op}: .*{what}") as error, detect_anomaly():
        function(device)
    code = getattr(function, "__wrapped__", function).__code__
    assert f"test_anomaly.py:{code.co_firstlineno}" in str(error.value)
    assert isinstance(error.value, RushlightError)


def test_the_message_has_operands_and_elements():
    x = rl.tensor([[1.0, 2.0, -1.0], [0.5, -2.0, 4.0]])
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        at = line() + 1
        x.log()
    blames(
        error,
        "log",
        at,
        "nan (2 of 6 elements, the first at [0, 2]) in its result",
        "operands float32[2, 3]",
    )


HARMLESS = {
    "a mask": lambda d: (
        tensor(1.0, 2.0, device=d).masked_fill(rl.tensor([True, False], device=d), -INF).softmax(0)
    ),
    "a fill": lambda d: rl.full((4, 4), -INF, device=d).triu(1) + rl.zeros(4, 4, device=d),
    "fill_": lambda d: rl.zeros(3, device=d).fill_(NAN) + 1,
    "a number": lambda d: tensor(1.0, device=d) * INF,
    "where": lambda d: rl.where(tensor(1.0, -1.0, device=d) > 0, tensor(1.0, 2.0, device=d), -INF),
    "data": lambda d: (tensor(NAN, 1.0, device=d) * 2).sum() + tensor(INF, device=d).exp(),
    "picked data": lambda d: tensor(NAN, 1.0, device=d)[rl.tensor([0, 1], device=d)].sum(),
    "a matrix of data": lambda d: (
        tensor(NAN, 1.0, device=d).reshape(1, 2) @ rl.ones(2, 1, device=d)
    ),
    "nan to num": lambda d: rl.nan_to_num(tensor(NAN, INF, device=d)),
    "integers": lambda d: rl.arange(5, device=d) // 2,
    "nothing": lambda d: rl.zeros(0, 3, device=d).log().sum(),
    "in place on data": lambda d: tensor(INF, 1.0, device=d).mul_(2).add_(1),
    "attention": lambda d: nn.functional.scaled_dot_product_attention(
        *[rl.ones(1, 1, 3, 4, device=d) for _ in range(3)], is_causal=True
    ),
    "the largest of -inf": lambda d: rl.full((3, 2), -INF, device=d).amax(1),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_came_from_outside_or_was_asked_for_is_no_anomaly(device: str, name: str):
    with detect_anomaly():
        HARMLESS[name](device)


def test_nan_from_infinities_is_one(device: str):
    mask = rl.full((2, 2), -INF, device=device)
    with pytest.raises(AnomalyError, match=r"^softmax: nan"), detect_anomaly():
        (rl.zeros(2, 2, device=device) + mask).softmax(1)


def test_the_first_cause_is_named_where_others_follow(device: str):
    x = tensor(0.0, device=device)
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        at = line() + 1
        y = x.log()
        z = y - y  # on an asynchronous device this runs too
        (z * 2).sum().item()
    blames(error, "log", at)


class Head(nn.Module):
    def forward(self, x):
        self.at = line() + 1
        return x.log()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), Head())

    def forward(self, x):
        return self.layers(x).sum()


def test_the_module_path_is_named(device: str):
    model = Model()
    with rl.no_grad():
        model.layers[0].weight.zero_()
        model.layers[0].bias.fill_(-1)
    model.to(device)
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        model(rl.ones(2, 3, device=device))
    blames(error, "log", model.layers[1].at, "in Head.forward, module layers.1")


# ---- backward ----


def test_a_derivative_that_is_infinite(device: str):
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = tensor(0.0, 4.0, device=device, grad=True)
        at = line() + 1
        y = x.sqrt()
        y.sum().backward()
    blames(error, "sqrt", at, "inf", "in its backward", "operands float32[2]")
    assert error.value.in_backward


def test_the_where_trick(device: str):
    """The forward is finite; 0 times the infinite slope is NaN."""
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = tensor(0.0, 4.0, device=device, grad=True)
        at = line() + 1
        root = x.sqrt()
        rl.where(x > 0, root, 0.0).sum().backward()
    blames(error, "sqrt", at, "nan", "in its backward")


def test_a_norm_at_zero(device: str):
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = rl.zeros(3, device=device, requires_grad=True)
        at = line() + 1
        norm = (x * x).sum().sqrt()
        norm.backward()
    blames(error, "sqrt", at, "in its backward")


def test_autograd_grad(device: str):
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = tensor(0.0, device=device, grad=True)
        at = line() + 1
        y = x.sqrt()
        rl.autograd.grad(y.sum(), x)
    blames(error, "sqrt", at, "in its backward")


def test_a_product_in_backward(device: str):
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = rl.full((2, 2), 1e-30, device=device, requires_grad=True)
        w = rl.full((2, 2), 1e30, device=device)
        at = line() + 1
        y = x @ w
        (y * 1e20).sum().backward()
    blames(error, "matmul", at, "inf", "in its backward")


def test_forward_outside_the_mode(device: str):
    x = tensor(0.0, device=device, grad=True)
    at = line() + 1
    y = x.log()
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        y.sum().backward()
    blames(error, "log", at, "in its backward")


def test_saved_values_that_are_not_finite_do_not_excuse_a_derivative(device: str):
    x = tensor(200.0, device=device, grad=True)
    at = line() + 1
    y = x.exp()
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        y.sum().backward()
    blames(error, "exp", at, "inf")


def test_nor_one_that_is_made_of_several_calls(device: str):
    x = rl.ones(2, 2, device=device, requires_grad=True)
    w = rl.full((2, 2), INF, device=device)
    at = line() + 1
    y = x @ w
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        y.sum().backward()
    blames(error, "matmul", at, "inf", "from its backward")


def test_a_bad_incoming_gradient_is_not_the_nodes_fault(device: str):
    x = tensor(1.0, 2.0, device=device, grad=True)
    with detect_anomaly():
        (x * 2).exp().backward(tensor(NAN, 1.0, device=device))
    assert np.isnan(x.grad.cpu().numpy()).tolist() == [True, False]


def test_second_order(device: str):
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = tensor(0.0, device=device, grad=True)
        at = line() + 1
        y = x.abs() ** 1.5  # its slope is finite at 0, the slope of that is not
        (slope,) = rl.autograd.grad(y.sum(), x, create_graph=True)
        slope.sum().backward()
    assert f"test_anomaly.py:{at} in " in str(error.value)


class Doubles(rl.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Doubles.at = line() + 1
        return ctx.factor(g), None


@pytest.mark.parametrize(
    "factor",
    [
        lambda g: g * NAN,
        lambda g: rl.full(g.shape, INF, device=g.device),
        lambda g: g.new_tensor([NAN, 1.0]),
    ],
    ids=["a number", "a fill", "data"],
)
def test_a_function_of_the_users(device: str, factor):
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = tensor(1.0, 2.0, device=device, grad=True)
        at = line() + 1
        y = Doubles.apply(x, factor)
        y.sum().backward()
    blames(error, "Doubles", at, "from its backward")


def test_a_function_of_the_users_with_a_bad_call(device: str):
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = tensor(1.0, 2.0, device=device, grad=True)
        at = line() + 1
        y = Doubles.apply(x, lambda g: g * 0 / (g * 0))
        y.sum().backward()
    blames(error, "Doubles", at, "made by div at")


def test_a_hook(device: str):
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        x = tensor(1.0, 2.0, device=device, grad=True)
        at = line() + 1
        x.register_hook(lambda g: (g - g).log())
        (x * 3).sum().backward()
    assert f"at {__file__}:{at} in" in str(error.value)


# ---- steps, regions, modes ----


def test_an_optimisers_step(device: str):
    p = tensor(1.0, device=device, grad=True)
    optimizer = rl.optim.SGD([p], lr=1e38)
    p.grad = tensor(1e30, device=device)
    with pytest.raises(AnomalyError) as error, detect_anomaly():
        at = line() + 1
        optimizer.step()
    blames(error, "sgd", at, "inf")


def test_an_overflowing_sum_of_gradients(device: str):
    x = tensor(1.0, device=device, grad=True)
    with pytest.raises(AnomalyError, match=r"^add: inf|^mul: inf"), detect_anomaly():
        ((x * 3e38) + (x * 3e38) * 0.9).sum().backward()


def test_a_checkpoint_recomputes_without_a_word(device: str):
    def block(x):
        return (x.masked_fill(x > 1, -INF).softmax(0) * x).sum()

    x = tensor(1.0, 2.0, 0.5, device=device, grad=True)
    with detect_anomaly():
        rl.utils.checkpoint.checkpoint(block, x, use_reentrant=False).backward()
    with pytest.raises(AnomalyError, match=r"^sqrt: .* in its backward"), detect_anomaly():
        rl.utils.checkpoint.checkpoint(
            lambda y: (y - y).sqrt().sum(), x, use_reentrant=False
        ).backward()


def test_the_bits_are_the_same(device: str):
    def step():
        rl.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 33), nn.LayerNorm(33), nn.GELU(), nn.Linear(33, 5)).to(
            device
        )
        optimizer = rl.optim.Adam(model.parameters())
        x = rl.randn(7, 20).to(device)
        nn.functional.cross_entropy(model(x), rl.arange(7, device=device) % 5).backward()
        optimizer.step()
        return np.concatenate([p.detach().cpu().numpy().ravel() for p in model.parameters()])

    plain = step()
    with detect_anomaly():
        first, second = step(), step()
    assert step().tobytes() == plain.tobytes()
    assert first.tobytes() == second.tobytes()
    # A driver may contract a * b + c in one text and not in the other: NVIDIA's does.
    if device == "webgpu":
        np.testing.assert_allclose(first, plain, rtol=1e-4, atol=1e-6)
    else:
        assert first.tobytes() == plain.tobytes()


def test_infinities_can_be_left_alone(device: str):
    x = tensor(0.0, device=device)
    with detect_anomaly(check_inf=False):
        y = x.log()
        with pytest.raises(AnomalyError, match=r"^sub: nan"):
            (y - y).sum().item()
    with detect_anomaly(check_nan=False):
        assert rl.is_anomaly_enabled()
        assert not rl.is_anomaly_check_nan_enabled()
        (x.log() - x.log()).sum().item()


def test_modes_nest_and_end(device: str):
    x = tensor(-1.0, device=device)
    with detect_anomaly():
        with set_detect_anomaly(False):
            assert not rl.is_anomaly_enabled()
            x.log()
        assert rl.autograd.is_anomaly_enabled()
        with detect_anomaly(check_nan=False):
            x.log()
        with pytest.raises(AnomalyError):
            x.log().sum().item()
        with pytest.raises(AnomalyError), detect_anomaly(check_inf=False):
            x.log()
        assert rl.is_anomaly_check_nan_enabled()
    x.log()


def test_a_block_in_every_step_of_a_loop(device: str):
    """After a few blocks, plans stay armed between them. See Note [Arming]."""
    for n in range(1, FEW + 5):
        bad = rl.full((n,), -1.0, device=device)
        good = rl.full((2, 2), float(n), device=device)
        assert np.isnan(bad.log().cpu().numpy()).all()
        with detect_anomaly():
            (good @ good).log().sum().item()
            with pytest.raises(AnomalyError, match=r"^log: nan"):
                bad.log().sum().item()
            with pytest.raises(AnomalyError, match=r"^matmul: inf"):
                (good * 3e37 @ (good * 3e37)).sum().item()
        assert np.isnan(bad.log().cpu().numpy()).all()
        assert (good * 3e37 @ (good * 3e37)).tolist() == [[INF, INF], [INF, INF]]
        assert np.isnan((bad.log() - 1).cpu().numpy()).all()
    assert Armed.all
    set_detect_anomaly(False)
    assert not Armed.all
    assert all(
        p.launch is p.plain for p in (r() for r in list(Plans.every.values())) if p is not None
    )


def test_what_is_remembered_between_blocks_is_bounded(monkeypatch):
    monkeypatch.setattr(arming, "MOST", 5)
    for _ in range(FEW + 2):
        with detect_anomaly():
            rl.ones(3).exp()
    assert Armed.all
    for n in range(20):
        rl.ones(11, n + 1).exp()
    assert not Armed.all
    with detect_anomaly(), pytest.raises(AnomalyError):
        (rl.ones(11, 3) * 1000).exp()


def test_set_detect_anomaly_as_a_function(device: str):
    x = tensor(-1.0, device=device)
    set_detect_anomaly(True)
    try:
        with pytest.raises(AnomalyError, match=r"^sqrt: nan"):
            x.sqrt().sum().item()
    finally:
        set_detect_anomaly(False)
    x.sqrt()


def test_as_a_decorator(device: str):
    @detect_anomaly()
    def root(x):
        return x.sqrt()

    assert root(tensor(4.0, device=device)).item() == 2.0
    with pytest.raises(AnomalyError, match=r"^sqrt: nan"):
        root(tensor(-4.0, device=device))


def test_an_error_inside_stays_what_it_is(device: str):
    x = tensor(-1.0, device=device)
    with pytest.raises(ZeroDivisionError) as error, detect_anomaly():
        if device not in ("cpu", "reference"):  # where it is known only later
            x.log()
        1 / 0  # noqa: B018
    if device not in ("cpu", "reference"):
        assert "log: nan" in "".join(error.value.__notes__)


def test_an_error_in_a_derivative_tells_the_forward_line(device: str):
    def fail(g):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as error, detect_anomaly():
        x = tensor(1.0, 2.0, device=device, grad=True)
        at = line() + 1
        y = Doubles.apply(x, fail)
        y.sum().backward()
    assert f"test_anomaly.py:{at} in" in "".join(error.value.__notes__)


def test_the_program_goes_on_after_it(device: str):
    x = tensor(0.0, 4.0, device=device, grad=True)
    with detect_anomaly():
        for _ in range(2):
            with pytest.raises(AnomalyError):
                x.sqrt().sum().backward()
            x.grad = None
        (x * x).sum().backward()
    assert x.grad.tolist() == [0.0, 8.0]


def test_a_plan_made_inside_is_checked_and_works_outside():
    x = rl.rand(3, 11, 2) - 2
    with detect_anomaly():
        y = x + 1
        with pytest.raises(AnomalyError):
            y.log()
    assert np.isnan(y.log().numpy()).any()
    z = x * 1.5
    with detect_anomaly(), pytest.raises(AnomalyError):
        z.sqrt()


def test_a_write_that_was_reported_counts_as_one():
    x = rl.tensor([1.0, 0.0], requires_grad=True)
    y = x * 1
    z = y * y
    with pytest.raises(AnomalyError), detect_anomaly():
        y.detach().log_()
    with pytest.raises(rl.InplaceError):
        z.sum().backward()


def test_plans_are_let_go():
    """A plan and its launch with anomaly checks do not hold each other."""
    gc.collect()
    gc.disable()
    try:
        with detect_anomaly():
            before = len(Plans.every)
            op = Op("once", "")
            made = [Plan(op, [], [rl.zeros(n)._spec], lambda *_: None) for n in (3, 4)]
            kernel_plan = (rl.ones(7) + 1).log  # a bound method: nothing of it stays
            assert len(Plans.every) >= before + 2
            for plan in made:
                plan.launch(rl.zeros(8)._memory.address)
            count = len(Plans.every)
            del made, plan, kernel_plan
            assert len(Plans.every) <= count - 2
    finally:
        gc.enable()


@pytest.mark.slow
def test_the_catalog_is_free_of_false_alarms():
    """Where arguments, results and gradients are finite, no intermediate step is reported."""
    wrong, count = [], 0
    for row in ROWS:
        for sample in samples_of(row, rl.float32) if rl.float32 in row.dtypes else ():
            ends = _forward_and_back(row, sample)
            arrays = [a for a in map(to_array, ends) if a.dtype.kind in "fc"]
            if not all(np.isfinite(a).all() for a in arrays):
                continue
            count += 1
            try:
                with detect_anomaly():
                    _forward_and_back(row, sample)
            except AnomalyError as error:
                wrong.append(f"{row!r}: {error}")
    assert count > 2000
    assert not wrong, "\n".join(wrong)


def _forward_and_back(row, sample) -> list[rl.Tensor]:
    leaves: list[rl.Tensor] = []
    out = call(row, sample, rl.float32, "cpu", leaves=leaves)
    ends = [o for o in out if isinstance(o, rl.Tensor) and o.requires_grad]
    if ends:
        try:
            rl.autograd.backward(ends, [rl.ones_like(o) for o in ends])
        except rl.NotDifferentiable:
            return [o for o in out if isinstance(o, rl.Tensor)]
    return [
        *[o for o in out if isinstance(o, rl.Tensor)],
        *[x.grad for x in leaves if x.grad is not None],
    ]


def test_by_several_workers():
    def loss(x):
        return sum((x * k).sqrt().sum() for k in (1.0, 2.0, 3.0))

    with detect_anomaly():
        x = rl.ones(40000, requires_grad=True)
        loss(x).backward(workers=3)
        x = rl.zeros(40000, requires_grad=True)
        with pytest.raises(AnomalyError, match=r"^sqrt: .*in its backward"):
            loss(x).backward(workers=3)


def test_a_batch_of_gradients(device: str):
    x = tensor(1.0, 4.0, device=device, grad=True)
    y = x.sqrt()
    seeds = rl.eye(2, device=device)
    with detect_anomaly():
        (rows,) = rl.autograd.grad(y, x, seeds, is_grads_batched=True, retain_graph=True)
    assert rows.tolist() == [[0.5, 0.0], [0.0, 0.25]]
    z = tensor(0.0, 4.0, device=device, grad=True)
    w = z.sqrt()
    with pytest.raises(AnomalyError, match=r"^sqrt: .*in its backward"), detect_anomaly():
        rl.autograd.grad(w, z, seeds, is_grads_batched=True)


def test_threads():
    found = []

    def work(sign: float) -> None:
        x = rl.full((300,), sign)
        try:
            for _ in range(50):
                (x.sqrt() * 2).sum()
            found.append(None)
        except AnomalyError as error:
            found.append(error)

    with detect_anomaly():
        threads = [threading.Thread(target=work, args=(s,)) for s in (1.0, -1.0, 4.0)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sum(e is None for e in found) == 2
    assert [str(e).split(":")[0] for e in found if e is not None] == ["sqrt"]


def test_words_that_run_out_are_read(require_device, monkeypatch):
    require_device("webgpu")
    monkeypatch.setattr(asynchronous, "WORDS", 16)
    x = tensor(1.0, device="webgpu")
    with pytest.raises(AnomalyError, match=r"^log: nan"), detect_anomaly():
        (x - 2).log()
        for _ in range(40):
            x = x + 1
        pytest.fail("the words were not read")


def test_reading_is_late(require_device):
    """Nothing is read back until a backward ends, a tensor is read or the mode ends."""
    require_device("webgpu")
    x = tensor(1.0, 2.0, device="webgpu", grad=True)
    with detect_anomaly():
        (x * x).sum().backward()
        x.grad = None
        before = rl.memory.transfers()
        y = (x * x).exp().sum()
        assert rl.memory.transfers() == before
        y.backward()
    assert x.grad.tolist() == pytest.approx([2 * np.e, 4 * np.e**4], rel=1e-5)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 1000, 1024, 1025, 4099, 65536, 99991])
def test_a_look_at_memory_covers_it(count):
    rows, axis, *_, step, _, _ = asynchronous.rows_of(count)
    assert rows * axis == count and step == axis


@pytest.mark.parametrize("size", [(3, 5), (64, 80), (67, 97)])
def test_the_last_element_of_a_product_is_seen(device, size):
    a, b = rl.ones(size[0], 4, device=device), rl.ones(4, size[1], device=device)
    a[-1] = 1e20
    b[:, -1] = 1e20
    with rl.autograd.detect_anomaly(), pytest.raises(rl.AnomalyError, match="matmul"):
        (a @ b).sum().item()
