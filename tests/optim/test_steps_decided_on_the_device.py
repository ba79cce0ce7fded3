"""A scaler that decides on the device which steps are made: the same steps, and nothing is read."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

import rushlight as rl
from rushlight import memory, nn, optim
from rushlight.amp import GradScaler
from rushlight.devices.shared.registry import pool_of
from tests.devices.services import got
from tests.fuzz.programs import Interrupting

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "SGD without momentum": ("SGD", {}),
    "Adam": ("Adam", {"weight_decay": 0.01}),
    "Adam that forgets": ("Adam", {"betas": (0.0, 0.9)}),
    "amsgrad": ("Adam", {"amsgrad": True, "maximize": True}),
    "AdamW": ("AdamW", {}),
    "Adadelta": ("Adadelta", {}),
    "Adagrad": ("Adagrad", {"lr_decay": 0.1}),
    "RMSprop": ("RMSprop", {"momentum": 0.5, "centered": True}),
    "Adamax": ("Adamax", {}),
    "NAdam": ("NAdam", {}),
    "RAdam": ("RAdam", {}),
    "ASGD": ("ASGD", {"t0": 2}),
    "Rprop": ("Rprop", {}),
}
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dampening": ("SGD", {"momentum": 0.9, "dampening": 0.5}),
    "Adafactor": ("Adafactor", {}),
}
LEFT_OUT = (0, 5, 6, 11)


class Training:
    """Steps of which some have infinite gradients, and some none for one of the parameters."""

    def __init__(self, kind: str, device: str, dtype: Any = rl.float32) -> None:
        name, options = {**KINDS, **READERS}[kind]
        self.p = rl.tensor([1.0, -0.5, 0.25], device=device, dtype=dtype, requires_grad=True)
        self.q = rl.tensor([[2.0], [0.5]], device=device, dtype=dtype, requires_grad=True)
        self.goal = rl.tensor([1.0, 3.0, -2.0], device=device, dtype=dtype)
        self.optimizer = getattr(optim, name)([self.p, self.q], lr=0.1, **options)
        self.schedule = optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.scaler = GradScaler(device, 1024.0, 1.7, 0.3, 3)

    def step(self, number: int) -> None:
        self.optimizer.zero_grad()
        loss = ((self.p * self.goal - 1) ** 2).sum()
        if number % 4 != 3:
            loss = loss + (self.q * self.q).sum()
        if number in LEFT_OUT:
            loss = loss * float("inf")
        self.scaler.scale(loss).backward()
        if number % 2:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_([self.p, self.q], 1.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()

    def run(self, steps: int = 14) -> Training:
        for number in range(steps):
            self.step(number)
        return self

    @property
    def counts(self) -> list[float]:
        return [state["step"].item() for state in self.optimizer.state.values() if "step" in state]

    def found(self) -> list[list[float]]:
        kept = [
            v for state in self.optimizer.state.values() for n, v in state.items() if n != "step"
        ]
        tensors = [self.p.detach(), self.q.detach(), *kept]
        flat = [got(v).ravel().tolist() if isinstance(v, rl.Tensor) else [v] for v in tensors]
        return [*flat, self.counts, list(self.scaler.state_dict().values())]


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_are_those_that_the_host_decides(kind: str, device: str) -> None:
    there, here = Training(kind, device), Training(kind, device)
    calls: list[int] = []
    here.optimizer.register_step_post_hook(lambda *_: calls.append(1))  # so the host must know
    there.run()
    here.run()
    assert len(calls) == 14 - len(LEFT_OUT)
    for mine, theirs in zip(there.found(), here.found(), strict=True):
        assert mine == pytest.approx(theirs, rel=2e-5, abs=1e-7)
    assert there.counts in ([10.0, 8.0], [])  # SGD has none


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_copied_in_a_step(kind: str, device: str) -> None:
    training = Training(kind, device)
    training.step(0)
    before = memory.transfers()
    for number in range(1, 7):
        training.step(number)
    assert memory.transfers() == before
    pool_of(device).device.synchronize()


@pytest.mark.parametrize("kind", READERS)
def test_where_the_host_must_know_one_number_is_read(kind: str) -> None:
    training = Training(kind, "cpu")
    training.step(0)
    assert not training.optimizer.leaves_out() and not training.optimizer.state  # as in PyTorch
    training.run()
    assert training.scaler.get_scale() > 0


@pytest.mark.parametrize("dtype", [rl.float64, rl.float16, rl.bfloat16])
def test_parameters_of_other_types(dtype: Any) -> None:
    there, here = Training("Adam", "cpu", dtype), Training("Adam", "cpu", dtype)
    here.optimizer.register_step_post_hook(lambda *_: None)
    there.run()
    here.run()
    for mine, theirs in zip(there.found(), here.found(), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)


def test_complex_parameters_keep_their_values() -> None:
    p = rl.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    optimizer, scaler = optim.Adam([p], lr=0.5), GradScaler("cpu", 4.0)
    for bad in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((p * p.conj() * bad).real.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (p.tolist() == [1 + 2j, 3 - 1j]) == (bad != 1.0)
    assert optimizer.state[p]["step"].item() == 1


def test_a_count_that_is_read_is_ones_own() -> None:
    training = Training("Adam", "cpu").run(4)
    first = training.optimizer.state[training.p]["step"]
    assert first is training.optimizer.state[training.p]["step"] and first.dtype is rl.float32
    first.zero_()
    assert training.counts == [0.0, 2.0]
    training.step(4)
    assert training.counts == [1.0, 3.0]


def test_parameters_with_the_same_past_share_a_count() -> None:
    params = [rl.ones(2, requires_grad=True) for _ in range(5)]
    optimizer, scaler = optim.AdamW(params), GradScaler("cpu", 8.0)
    for _ in range(2):
        scaler.scale(sum((p * p).sum() for p in params)).backward()  # type: ignore[arg-type]
        scaler.step(optimizer)
        scaler.update()
        assert len({id(dict.__getitem__(s, "step")) for s in optimizer.state.values()}) == 1


@pytest.mark.parametrize("kind", ["Adam", "NAdam", "ASGD"])
def test_steps_with_and_without_a_scaler_take_turns(kind: str) -> None:
    mixed, plain = Training(kind, "cpu"), Training(kind, "cpu")
    for number in range(1, 5):
        mixed.step(number)
        plain.scaler = GradScaler(enabled=False)
        plain.step(number)
        if number == 2:
            mixed.scaler, kept = GradScaler(enabled=False), mixed.scaler
        elif number == 3:
            mixed.scaler = kept
    assert mixed.p.tolist() == pytest.approx(plain.p.tolist(), rel=1e-6)
    assert mixed.counts == plain.counts == [4.0, 3.0]


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_states_are_saved_and_loaded(how: Any) -> None:
    training, other = Training("NAdam", "cpu").run(4), Training("NAdam", "cpu")
    state = how(training.optimizer.state_dict())
    assert [s["step"].item() for s in state["state"].values()] == [3.0, 2.0]
    other.optimizer.load_state_dict(state)
    other.scaler = how(training.scaler)
    other.schedule.load_state_dict(training.schedule.state_dict())
    with rl.no_grad():
        other.p.copy_(training.p)
        other.q.copy_(training.q)
    for each in (training, other):
        each.step(4)
    assert other.p.tolist() == pytest.approx(training.p.tolist(), rel=1e-6)
    assert other.scaler.state_dict() == training.scaler.state_dict()


def test_a_scaler_is_not_copied_in_the_middle_of_a_step() -> None:
    training = Training("Adam", "cpu")
    training.p.grad = rl.ones(3)
    training.scaler.unscale_(training.optimizer)
    with pytest.raises(AssertionError, match="beginning"):
        pickle.dumps(training.scaler)


def test_a_step_of_its_own_is_called_only_where_it_is_made() -> None:
    training, calls = Training("Adam", "cpu"), []
    original = training.optimizer.step
    training.optimizer.step = lambda: (calls.append(1), original())
    training.run()
    assert len(calls) == 10
    del training.optimizer.step
    assert training.optimizer.leaves_out()


def test_several_optimisers_share_a_scale() -> None:
    first, second = Training("Adam", "cpu"), Training("SGD without momentum", "cpu")
    second.scaler = first.scaler
    for bad in (float("inf"), 1.0):
        for each, factor in ((first, 1.0), (second, bad)):
            each.optimizer.zero_grad()
            each.scaler.scale((each.p * factor).sum()).backward()
            each.scaler.step(each.optimizer)
        first.scaler.update()
    assert first.counts == [2.0]
    assert second.p.tolist() == pytest.approx([0.9, -0.6, 0.15], rel=1e-6)
    assert first.scaler.get_scale() == pytest.approx(1024 * 0.3, rel=1e-6)


@pytest.mark.parametrize("bad", [1.0, float("nan")])
def test_parameters_on_several_devices(bad: float) -> None:
    params = [rl.ones(2, device=name, requires_grad=True) for name in ("cpu", "reference")]
    optimizer, scaler = optim.SGD(params, lr=0.5), GradScaler("cpu", 4.0)
    for p, factor in zip(params, (1.0, bad), strict=True):
        scaler.scale((p * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert [p.tolist() for p in params] == [[0.5] * 2 if bad == 1.0 else [1.0] * 2] * 2
    assert scaler.get_scale() == (4.0 if bad == 1.0 else 2.0)


def test_a_scale_does_not_grow_to_an_infinity() -> None:
    training = Training("SGD", "cpu")
    training.scaler = GradScaler("cpu", 3e38, growth_interval=1)
    training.p.grad = rl.ones(3)
    training.scaler.step(training.optimizer)
    training.scaler.update()
    assert training.scaler.get_scale() == rl.tensor(3e38).item()
    training.scaler.update(rl.tensor(2.0))
    assert training.scaler.get_scale() == 2.0


def test_the_scale_of_a_half_does_not_overflow() -> None:
    """A loss of float16 without dimensions is multiplied in float32, as in PyTorch."""
    scaled = GradScaler("cpu").scale(rl.tensor(2.0, dtype=rl.float16))
    assert scaled.dtype is rl.float32 and scaled.item() == 131072.0


@pytest.mark.parametrize("keep", [0.9, 0.999])
def test_first_steps_lose_no_digits_in_float32(keep: float, monkeypatch: Any) -> None:
    """1 - keep**1 in float32 would be wrong by 6e-5 of it."""
    device = pool_of("cpu").device
    want = Training("Adam", "cpu")
    want.optimizer.param_groups[0]["betas"] = (0.5, keep)
    want.scaler = GradScaler(enabled=False)
    want.step(1)
    narrow = [d for d in device.limits.dtypes if d is not rl.float64]
    limits = copy.copy(device.limits)
    object.__setattr__(limits, "dtypes", tuple(narrow))
    monkeypatch.setattr(device, "limits", limits)
    there = Training("Adam", "cpu")
    there.optimizer.param_groups[0]["betas"] = (0.5, keep)
    there.step(1)
    assert there.p.tolist() == pytest.approx(want.p.tolist(), rel=1e-6)


def test_the_first_step_that_is_made_has_the_rate_of_its_time() -> None:
    """Also where the scaler has left out steps before, and no scaler is asked for this one."""
    p, fresh = (rl.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
    optimizer, other = (optim.Rprop([x], lr=0.1) for x in (p, fresh))
    scaler = GradScaler("cpu", 4.0)
    scaler.scale((p * p).sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    for x, made in ((p, optimizer), (fresh, other)):
        made.param_groups[0]["lr"] = 0.01
        made.zero_grad()
        (x * x).sum().backward()
        made.step()
    assert p.tolist() == fresh.tolist() == pytest.approx([0.99, -1.99])


@pytest.mark.parametrize("call", ["update", "set", "load"])
def test_ctrl_c_leaves_the_scale_of_before_or_after(call: str) -> None:
    p = rl.tensor([1.0, -2.0], requires_grad=True)
    optimizer = optim.SGD([p], lr=0.1)

    def stepped() -> GradScaler:
        scaler = GradScaler("cpu", 4.0, growth_interval=1)
        optimizer.zero_grad()
        scaler.scale((p * p).sum()).backward()
        scaler.step(optimizer)
        return scaler

    stepped().update()  # builds its kernel
    at = 0
    while True:
        scaler = stepped()
        before = {**scaler.state_dict(), "waits": 1}
        other = {**GradScaler("cpu", 16.0, 3.0).state_dict(), "_growth_tracker": 5}
        calls: dict[str, Any] = {
            "update": scaler.update,
            "set": lambda scaler=scaler: scaler.update(8.0),
            "load": lambda scaler=scaler, other=other: scaler.load_state_dict(other),
        }
        at += 1
        ended = False
        try:
            with Interrupting(at):
                calls[call]()
                ended = True
        except KeyboardInterrupt:
            pass
        after = {
            "update": {**before, "scale": 8.0, "waits": 0},
            "set": {**before, "scale": 8.0, "waits": 0},
            "load": {**other, "waits": 1},
        }[call]
        assert {**scaler.state_dict(), "waits": len(scaler._found)} in (before, after), at
        if ended:
            break
    assert at > 10


def test_an_optimiser_whose_first_group_is_empty_and_without_gradients() -> None:
    p = rl.ones(2, requires_grad=True)
    optimizer, scaler = optim.SGD([{"params": []}, {"params": [p]}], lr=0.1), GradScaler("cpu")
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [1.0, 1.0] and scaler.get_scale() == 65536.0


def test_a_shared_count_is_read_in_the_type_of_others() -> None:
    before = rl.get_default_dtype()
    rl.set_default_dtype(rl.float64)
    try:
        trained = Training("Adam", "cpu").run(3)
        read = trained.optimizer.state[trained.p]["step"]
        assert read.dtype == trained.optimizer.state_dict()["state"][0]["step"].dtype == rl.float64
    finally:
        rl.set_default_dtype(before)


def test_a_subclass_that_changes_the_step_is_asked() -> None:
    class Halved(optim.Adam):
        def prepare(self, group: Any, moves: Any) -> None:
            super().prepare({**group, "lr": group["lr"] / 2}, moves)

    class Rooted(optim.Adam):
        def numbers(self, group: Any, state: Any) -> dict[str, Any]:
            made = super().numbers(group, state)
            return {**made, "rate": made["rate"] / math.sqrt(state["step"])}

    for kind in (Halved, Rooted):
        p, q = (rl.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
        scaled, plain = kind([p], lr=0.1), kind([q], lr=0.1)
        scaler = GradScaler("cpu", 4.0)
        for number in range(3):
            p.grad = q.grad = None
            scaler.scale((p * p).sum() * (math.inf if number == 1 else 1)).backward()
            scaler.step(scaled)
            scaler.update()
            if number != 1:
                (q * q).sum().backward()
                plain.step()
        assert p.tolist() == q.tolist()
    assert all(getattr(optim, name)([p]).leaves_out() for name, _ in KINDS.values())
