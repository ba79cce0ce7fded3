"""Lazy layers, parameters without a shape, buffers by assignment.

See Note [Uninitialised parameters].
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter, is_lazy

# a lazy layer, the ordinary one it becomes, and an input
CASES: list[tuple[Any, Any, tuple[int, ...]]] = [
    (lambda: nn.LazyLinear(5), lambda: nn.Linear(7, 5), (2, 3, 7)),
    (lambda: nn.LazyLinear(5, bias=False), lambda: nn.Linear(7, 5, bias=False), (7,)),
    (lambda: nn.LazyConv1d(4, 3, groups=2), lambda: nn.Conv1d(6, 4, 3, groups=2), (2, 6, 8)),
    (lambda: nn.LazyConv1d(4, 3), lambda: nn.Conv1d(6, 4, 3), (6, 8)),
    (lambda: nn.LazyConv2d(4, 3, 2, 1), lambda: nn.Conv2d(3, 4, 3, 2, 1), (2, 3, 8, 8)),
    (lambda: nn.LazyConv3d(2, 2), lambda: nn.Conv3d(3, 2, 2), (2, 3, 4, 4, 4)),
    (
        lambda: nn.LazyConvTranspose1d(4, 3, groups=2),
        lambda: nn.ConvTranspose1d(6, 4, 3, groups=2),
        (2, 6, 8),
    ),
    (lambda: nn.LazyConvTranspose2d(4, 3, 2), lambda: nn.ConvTranspose2d(3, 4, 3, 2), (2, 3, 5, 5)),
    (lambda: nn.LazyConvTranspose3d(2, 2), lambda: nn.ConvTranspose3d(3, 2, 2), (2, 3, 3, 3, 3)),
    (lambda: nn.LazyBatchNorm1d(), lambda: nn.BatchNorm1d(6), (4, 6)),
    (lambda: nn.LazyBatchNorm2d(eps=1e-3), lambda: nn.BatchNorm2d(6, eps=1e-3), (4, 6, 3, 3)),
    (
        lambda: nn.LazyBatchNorm3d(affine=False),
        lambda: nn.BatchNorm3d(6, affine=False),
        (4, 6, 2, 2, 2),
    ),
    (
        lambda: nn.LazyInstanceNorm1d(affine=True),
        lambda: nn.InstanceNorm1d(6, affine=True),
        (4, 6, 5),
    ),
    (
        lambda: nn.LazyInstanceNorm2d(affine=True),
        lambda: nn.InstanceNorm2d(6, affine=True),
        (6, 5, 5),
    ),
    (
        lambda: nn.LazyInstanceNorm3d(affine=True, track_running_stats=True),
        lambda: nn.InstanceNorm3d(6, affine=True, track_running_stats=True),
        (4, 6, 2, 2, 2),
    ),
]


@pytest.mark.parametrize(("lazy", "plain", "shape"), CASES)
def test_the_first_call_makes_the_layer(lazy: Any, plain: Any, shape: tuple[int, ...]) -> None:
    made, want = lazy(), plain()
    assert made.has_uninitialized_params() and all(map(is_lazy, made.parameters()))
    known = list(made.parameters())
    x = rl.rand(shape)
    rl.manual_seed(1)
    got = made(x)
    rl.manual_seed(1)
    want.reset_parameters()
    np.testing.assert_array_equal(got.detach().numpy(), want(x).detach().numpy())
    assert type(made) is type(want) and repr(made) == repr(want)
    assert list(made.state_dict()) == list(want.state_dict())
    assert all(
        a is b and type(a) is Parameter for a, b in zip(known, made.parameters(), strict=True)
    )
    if known:
        got.sum().backward()
    assert all(p.grad.shape == p.shape for p in known)
    assert not made._forward_pre_hooks and not made._load_state_dict_pre_hooks


def test_a_state_gives_shapes() -> None:
    for lazy, plain, shape in CASES:
        made, source = lazy(), plain()
        for value in source.state_dict().values():
            value.add_(1)
        made.load_state_dict(source.state_dict())
        assert not made.has_uninitialized_params() and type(made) is not type(source)
        x = rl.rand(shape)
        np.testing.assert_array_equal(made(x).detach().numpy(), source(x).detach().numpy())
        assert type(made) is type(source) and repr(made) == repr(source)


def test_states_before_the_first_call() -> None:
    made = nn.LazyLinear(3)
    state = made.state_dict()
    assert all(map(is_lazy, state.values()))
    other = nn.LazyLinear(3)
    other.load_state_dict(state)
    assert other.has_uninitialized_params()
    with pytest.raises(RuntimeError, match="shape"):
        nn.Linear(2, 3).load_state_dict(state)


def test_types_devices_and_copies(device: str) -> None:
    model = nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)
    ).to(device)
    assert model[0].weight.device == rl.device(device) and model[
        1
    ].running_mean.device == rl.device(device)
    twin = copy.deepcopy(model)
    assert (
        twin[0].weight is not model[0].weight
        and is_lazy(twin[0].weight)
        and is_lazy(twin[1].running_var)
    )
    out = model(rl.rand(2, 3, 6, 6, device=device))
    assert out.shape == (2, 2) and out.device == rl.device(device) and is_lazy(twin[3].weight)
    wide = nn.LazyLinear(2).to(rl.bfloat16)
    assert wide.weight.dtype is rl.bfloat16 and wide(rl.rand(1, 3).bfloat16()).dtype is rl.bfloat16
    frozen = nn.LazyLinear(2)
    frozen.weight = UninitializedParameter(requires_grad=False)
    frozen(rl.rand(1, 3))
    assert not frozen.weight.requires_grad and frozen.bias.requires_grad
    again = pickle.loads(pickle.dumps(UninitializedParameter(dtype=rl.float64)))
    assert is_lazy(again) and again.dtype is rl.float64 and again.requires_grad


def test_pickled_before_the_first_call() -> None:
    again = pickle.loads(pickle.dumps(nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())))
    assert (
        again(rl.rand(4, 5)).shape == (4, 3)
        and type(again[0]) is nn.Linear
        and not again[0]._forward_pre_hooks
    )


def test_what_is_refused() -> None:
    weight = nn.LazyLinear(3).weight
    for use in (
        lambda: weight + 1,
        lambda: rl.ones(1) * weight,
        lambda: weight.sum(),
        lambda: weight.shape,
    ):
        with pytest.raises(RuntimeError, match="shape"):
            use()
    with pytest.raises(ValueError):
        rl.ones(2) @ weight
    assert (
        repr(weight) == "<UninitializedParameter>"
        and repr(UninitializedBuffer()) == "<UninitializedBuffer>"
    )
    with pytest.raises(ValueError, match="groups"):
        nn.LazyConv2d(4, 3, groups=2)(rl.rand(1, 3, 5, 5))
    with pytest.raises(RuntimeError, match="dimensions"):
        nn.LazyConv2d(4, 3)(rl.rand(3, 5))

    class Forgetful(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = UninitializedParameter()

        def initialize_parameters(self, x: Any) -> None:
            """Does nothing."""

    with pytest.raises(RuntimeError, match="without a shape"):
        Forgetful()(rl.ones(1))


def test_a_lazy_module_of_the_users_own() -> None:
    class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = UninitializedParameter()

        def initialize_parameters(self, x: Any, *, times: float = 1.0) -> None:
            if self.has_uninitialized_params():
                self.scale.materialize(x.shape[-1:])
                with rl.no_grad():
                    self.scale.fill_(times)

        def forward(self, x: Any, *, times: float = 1.0) -> Any:
            return x * self.scale

    layer = Scale()
    assert layer(rl.ones(2, 3), times=4.0).tolist() == [[4.0] * 3] * 2
    assert layer(rl.ones(3), times=5.0).tolist() == [4.0] * 3


def test_optimisers_know_them_still() -> None:
    model = nn.LazyLinear(2)
    weight = model.weight
    model(rl.ones(1, 3)).sum().backward()
    before = weight.detach().clone()
    rl.optim.SGD([weight], lr=1.0).step()
    np.testing.assert_array_equal(weight.detach().numpy(), (before - 1).numpy())


def test_buffers_by_assignment() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.Buffer(rl.ones(2))
            self.aside = nn.Buffer(rl.ones(2), persistent=False)

    holder = Holder()
    assert [name for name, _ in holder.named_buffers()] == ["kept", "aside"] and list(
        holder.state_dict()
    ) == ["kept"]
    assert not list(holder.parameters()) and holder.double().kept.dtype is rl.float64
    twin = copy.deepcopy(Holder())
    assert isinstance(twin.kept, nn.Buffer) and not twin.aside.persistent
    assert isinstance(pickle.loads(pickle.dumps(twin.aside)), nn.Buffer)
    holder.kept = rl.zeros(2)  # stays the buffer
    assert list(holder.state_dict()) == ["kept"]


def test_norms_start_over() -> None:
    for layer in (nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.RMSNorm(3), nn.BatchNorm1d(3)):
        with rl.no_grad():
            for value in layer.state_dict().values():
                value.fill_(7)
        layer.reset_parameters()
        fresh = type(layer)(*((1, 3) if isinstance(layer, nn.GroupNorm) else (3,)))
        for name, value in fresh.state_dict().items():
            assert rl.equal(value, layer.state_dict()[name]), name


def test_a_lazy_buffer_is_registered() -> None:
    module = nn.Module()
    module.held = nn.UninitializedBuffer()
    assert "held" in module._buffers
