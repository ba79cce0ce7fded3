"""`memory.check_exact`: what it compares, what it names, what it leaves as it was."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
import time

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import ExactnessError, memory, nn
from rushlight.devices.shared.registry import pool_of
from rushlight.memory import exactness
from rushlight.tape.memory.checkpoint import Checkpoint
from rushlight.tape.record.state import STATE
from tests.memory.faulty_op import WAYS, Faulty


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, 2)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + F.dropout(self.attention(self.first(x)), 0.1, self.training)
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    def __init__(self, width: int = 32, words: int = 40, length: int = 24) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, index):
        x = self.words(index) + self.places(rl.arange(index.shape[1], device=index.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def content(model: nn.Module) -> list[bytes]:
    return [t.numpy(force=True).tobytes() for t in model.state_dict().values()]


def test_a_gpt(device):
    rl.manual_seed(0)
    model = GPT().to(device)
    index = rl.randint(0, 40, (2, 24), device=device)
    rebuilt = memory.check_exact(
        lambda: F.cross_entropy(model(index).flatten(0, 1), index.flatten())
    )
    assert rebuilt["drops"] > 50 and rebuilt["checkpoint"] > 20 and "budget" in rebuilt
    assert all(p.grad is None for p in model.parameters())


def test_a_budget_makes_it_drop():
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)])
    rebuilt = memory.check_exact(layers, rl.rand(256, 64))
    assert rebuilt["budget"] > 0


def test_a_training_step_leaves_everything_as_it_was(device):
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
    model = model.to(device)
    x = rl.rand(5, 6, device=device)
    optimiser = rl.optim.AdamW(model.parameters(), lr=0.1)
    schedule = rl.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)

    def step():
        optimiser.zero_grad()
        loss = model(x * random.random() * np.random.rand()).square().mean()
        loss.backward()
        optimiser.step()
        schedule.step()
        return loss

    rl.manual_seed(3)
    step()
    rl.manual_seed(4)
    before = content(model), [p.grad.tolist() for p in model.parameters()]
    states = random.getstate(), np.random.get_state()[1].tolist(), rl.get_rng_state().tolist()
    options = repr(optimiser.state_dict()), schedule.state_dict()
    handles = [p.grad for p in model.parameters()]
    assert memory.check_exact(step)["drops"] > 10
    assert before == (content(model), [p.grad.tolist() for p in model.parameters()])
    assert all(p.grad is g for p, g in zip(model.parameters(), handles, strict=True))
    assert states == (
        *(random.getstate(), np.random.get_state()[1].tolist(), rl.get_rng_state().tolist()),
    )
    assert options == (repr(optimiser.state_dict()), schedule.state_dict())


def test_arguments_with_a_graph_keep_it():
    x = rl.rand(4, requires_grad=True)
    h = x.exp()
    assert memory.check_exact(lambda h: h.tanh() * h, h)["drops"] > 0
    h.sum().backward()
    assert rl.equal(x.grad, h.detach())


def test_a_function_that_differentiates_itself():
    x = rl.rand(4, requires_grad=True)

    def slope(x):
        y = x.exp().sin().sum()
        return y, rl.autograd.grad(y, x)[0]

    assert memory.check_exact(slope, x)["drops"] > 0
    assert x.grad is None


def test_integers_nans_and_signs_of_zero():
    x = rl.tensor([float("nan"), -0.0, 0.0, float("inf")], requires_grad=True)
    memory.check_exact(lambda x: {"y": (x * 2, x.isnan()), "n": x.argmax()}, x)


def convolutions() -> tuple:
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        *(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1, stride=2), nn.GELU()),
        *(nn.ConvTranspose2d(8, 4, 2, 2), nn.Upsample(scale_factor=2), nn.Dropout2d(0.2)),
        *(nn.Flatten(), nn.Linear(4 * 8 * 8, 5), nn.LogSoftmax(-1)),
    )
    return net, rl.rand(2, 3, 8, 8, requires_grad=True)


def recurrent() -> tuple:
    return nn.LSTM(6, 8, 2, dropout=0.1, bidirectional=True), rl.rand(5, 3, 6, requires_grad=True)


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x):
        mean, spread = self.encode(x).chunk(2, -1)
        z = mean + rl.randn_like(mean) * (0.5 * spread).exp()
        error = F.binary_cross_entropy_with_logits(self.decode(z), x)
        return {"loss": error - 0.5 * (1 + spread - mean**2 - spread.exp()).mean(), "z": z}


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(rl.rand(8, 8))
        self.register_buffer("seen", rl.zeros(8))

    def forward(self, x):
        y = (x @ self.w).exp() * 2.0
        y[:, ::2] *= 0.5
        y.add_(1.0)
        part = y[2:5].t()
        part.mul_(x[2:5].t())
        with rl.no_grad():
            self.seen.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return [y.softmax(-1).cumsum(0), rl.where(y > 1, y, -y).sort(0)]


MODELS = {
    "convolutions": convolutions,
    "recurrent": recurrent,
    "auto-encoder": lambda: (AutoEncoder(), rl.rand(5, 12)),
    "in-place writes": lambda: (Written(), rl.rand(8, 8, requires_grad=True)),
    "half precision": lambda: (nn.Linear(8, 8).to(rl.bfloat16), rl.rand(4, 8).to(rl.bfloat16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name, device):
    rl.manual_seed(0)
    model, x = MODELS[name]()
    model, x = model.to(device), x.detach().to(device).requires_grad_(x.requires_grad)
    before = content(model)
    assert memory.check_exact(model, x)["drops"] > 0
    assert content(model) == before and x.grad is None


def test_each_call_is_rebuilt_about_once():
    """Also where gradients of one weight are added up in place, many times."""
    calls = 100
    x, w = rl.rand(4, 4), rl.rand(4, 4, requires_grad=True)

    def function():
        h = x
        for _ in range(calls):
            h = (h @ w).tanh()
        return h

    assert calls < memory.check_exact(function)["drops"] < 10 * calls


COUNTED = rl.zeros(1)


def count(counted: rl.Tensor) -> rl.Tensor:
    counted += 1
    return counted * 2


def count_global() -> rl.Tensor:
    return count(COUNTED)


class Trainer:
    def __init__(self, counted: rl.Tensor) -> None:
        self.held = {"counted": [counted]}

    def step(self) -> rl.Tensor:
        return count(self.held["counted"][0])


class Cached(nn.Module):
    def __init__(self, counted: rl.Tensor) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.inner.cache = counted

    def forward(self) -> rl.Tensor:
        return count(self.inner.cache)


REACHED = {
    "argument": lambda t: (count, t),
    "closure": lambda t: (lambda: count(t),),
    "default": lambda t: (lambda x=t: count(x),),
    "partial": lambda t: (functools.partial(count, t),),
    "method": lambda t: (Trainer(t).step,),
    "a module's attribute": lambda t: (Cached(t),),
    "function inside": lambda t: (lambda: (lambda: count(t))(),),
}


@pytest.mark.parametrize("name", REACHED)
def test_state_is_found(name):
    counted = rl.tensor([5.0])
    memory.check_exact(*REACHED[name](counted))
    assert counted.tolist() == [5.0]


def test_a_global_is_found():
    COUNTED.fill_(7.0)
    memory.check_exact(count_global)
    assert COUNTED.tolist() == [7.0]


def test_a_generator_is_found():
    generator = rl.Generator().manual_seed(3)
    want = rl.rand(2, generator=rl.Generator().manual_seed(3))
    memory.check_exact(lambda: rl.rand(2, generator=generator).exp())
    assert rl.equal(rl.rand(2, generator=generator), want)


# ---- wrong kernels ----


class Holder(nn.Module):
    def __init__(self, op) -> None:
        super().__init__()
        self.op = op

    def forward(self, x):
        return self.op(x.exp()).tanh().sum()


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_kernel_is_named(device, way):
    model = nn.Sequential(Holder(Faulty(way)))
    x = rl.full((2, 3), 0.25, device=device, requires_grad=True)
    with pytest.raises(ExactnessError, match=r"faulty of float32\[2, 3\], called at") as caught:
        memory.check_exact(model, x)
    error = caught.value
    assert "the kernel is not deterministic" in str(error)
    assert (error.op, error.module, error.shapes) == ("faulty", "0", ((2, 3),))
    assert "faulty_op.py" in error.place
    assert error.count is not None and 1 <= error.count <= 6
    assert error.largest is not None and error.largest > 0
    assert x.grad is None


def test_elements_that_nothing_wrote_are_counted_by_a_replay(monkeypatch, device):
    """Where a repetition of two runs finds equal bytes in the memory that nothing wrote."""
    x = rl.full((2, 3), 0.25, device=device, requires_grad=True)
    trial = exactness._Trial(Holder(Faulty("leaves elements unwritten")), (x,), {})
    trace = trial._trace(exactness._plain)
    call = next(proof for proof in trace if proof.plan.op.name == "faulty")
    monkeypatch.setattr(trial, "_trace", lambda way, kept=None: trace)
    error = trial._kernel_error(exactness._plain, call)
    assert error.op == "faulty" and error.count == 3


def test_a_wrong_kernel_is_named_again():
    """Memory that an earlier comparison filled does not hide it."""
    model, x = Holder(Faulty(WAYS[2])), rl.full((2, 3), 0.25)
    for _ in range(3):
        with pytest.raises(ExactnessError, match="faulty"):
            memory.check_exact(model, x)


def test_the_size_of_a_difference():
    with pytest.raises(ExactnessError) as caught:
        memory.check_exact(Holder(Faulty(WAYS[3])), rl.zeros(4))
    assert (caught.value.count, caught.value.largest) == (1, 4.0)
    assert "1 of 4 elements differ, by at most 4)" in str(caught.value)


class Poked(Faulty):
    """Its derivative's kernel counts, too."""

    __slots__ = ("inner",)

    def make_grad(self, plan, needs):
        grad = super().make_grad(plan, needs)
        self.inner = Faulty(WAYS[0])
        grad.rule = lambda grads, values, params: [self.inner(grads[0])]
        return grad


def test_a_wrong_kernel_in_backward_is_named():
    with pytest.raises(ExactnessError) as caught:
        memory.check_exact(Holder(Poked()), rl.zeros(4, requires_grad=True))
    assert caught.value.op == "faulty" and caught.value.count == 1


def region() -> object:
    return STATE.get().region


def test_a_kernel_that_is_wrong_in_checkpoints_is_named():
    """It is not rebuilt, since there is no gradient: the traces of the runs differ."""
    with pytest.raises(ExactnessError, match="a second run of its result") as caught:
        memory.check_exact(Holder(Faulty(lambda: isinstance(region(), Checkpoint))), rl.zeros(4))
    assert caught.value.op == "faulty" and caught.value.count == 1


def test_a_kernel_that_is_wrong_in_every_region():
    with pytest.raises(ExactnessError, match=r"result has other bits in .*\(drops\)") as caught:
        op = Faulty(lambda: region() is not None)
        memory.check_exact(lambda: rl.tensor(op(rl.zeros(4)).tolist()))
    assert caught.value.count == 1 and caught.value.largest == 1.0


# ---- functions that do not repeat themselves ----


def test_a_counter_in_a_parameter_of_a_call():
    calls = iter(range(100))

    def function(x):
        return x * float(next(calls))

    with pytest.raises(ExactnessError, match="does not repeat itself") as caught:
        memory.check_exact(function, rl.ones(3))
    assert caught.value.op == "mul" and __file__ in caught.value.place


def test_a_tensor_made_from_the_time():
    def function(x):
        return x + rl.tensor([time.perf_counter_ns() % 1_000_003, 0])

    with pytest.raises(ExactnessError, match="no op made it; the function does not repeat itself"):
        memory.check_exact(function, rl.ones(2))


def test_an_unseeded_generator_of_numpy():
    def function(x):
        return x + rl.from_numpy(np.random.default_rng().random(3))

    with pytest.raises(ExactnessError, match="does not repeat itself"):
        memory.check_exact(function, rl.ones(3))


def test_another_number_of_calls():
    lengths = iter(range(1, 100))

    def function(x):
        for _ in range(next(lengths)):
            x = x.sin()
        return x

    with pytest.raises(ExactnessError, match=r"one run made no call, another sin of float32\[3\]"):
        memory.check_exact(function, rl.ones(3))


def test_global_random_states_are_restored_between_runs():
    def function(x):
        return x * random.random() * float(np.random.rand()) * rl.rand(3)

    assert memory.check_exact(function, rl.ones(3))["drops"] > 0


def test_numpys_random_state_before_its_first_use():
    """NumPy imports its module of random numbers when it is first used."""
    text = """
import numpy as np
import rushlight as rl
x = rl.ones(2)
rl.memory.check_exact(lambda: x * float(np.random.rand()))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"memory\.check_exact: fn is a function, got 3"):
        memory.check_exact(3)


def test_state_outside_of_what_is_reached():
    """A result that differs though no call does, since it is not made by calls."""
    numbers = iter(range(100))

    def function():
        return rl.tensor([1.0, float(next(numbers))])

    with pytest.raises(ExactnessError, match=r"result has other bits in two runs") as caught:
        memory.check_exact(function)
    assert caught.value.count == 1 and caught.value.largest == 1.0


def test_an_error_of_the_function_leaves_the_state():
    model = nn.BatchNorm1d(3)
    before = content(model)

    def function():
        model(rl.rand(4, 3))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        memory.check_exact(function)
    assert content(model) == before


def test_nothing_is_left_in_memory():
    x = rl.rand(1 << 14, requires_grad=True)
    memory.check_exact(lambda: x.exp().tanh().sin())
    before = pool_of("cpu").live
    for _ in range(3):
        memory.check_exact(lambda: x.exp().tanh().sin())
    assert pool_of("cpu").live == before
