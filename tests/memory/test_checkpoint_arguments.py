"""The names beside `checkpoint`: PyTorch's signatures, debug, groups, `is_checkpointing`."""

from __future__ import annotations

import inspect

import pytest

import rushlight as rl
from rushlight import ExactnessError, memory
from rushlight.utils import checkpoint as module
from rushlight.utils.checkpoint import (
    CheckpointError,
    DefaultDeviceType,
    GraphExecGroup,
    check_backward_validity,
    checkpoint,
    checkpoint_sequential,
    detach_variable,
    is_checkpointing,
    set_checkpoint_debug_enabled,
)
from tests.memory.faulty_op import WAYS, Faulty

# From PyTorch 2.13.
SIGNATURES = {
    "checkpoint": "function args use_reentrant context_fn determinism_check debug early_stop",
    "checkpoint_sequential": "functions segments input use_reentrant",
    "create_selective_checkpoint_contexts": "policy_fn_or_list allow_cache_entry_mutation",
    "set_checkpoint_early_stop": "enable",
    "set_checkpoint_debug_enabled": "enabled",
    "noop_context_fn": "",
    "detach_variable": "inputs",
    "check_backward_validity": "inputs",
    "SelectiveCheckpointContext": "is_recompute op_output",
    "DefaultDeviceType": "",
    "GraphExecGroup": "",
    "get_device_states": "args",
    "set_device_states": "devices states device_type",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_pytorch_s_parameters(name):
    parameters = list(inspect.signature(getattr(module, name)).parameters)
    assert [p for p in parameters if p in SIGNATURES[name].split()] == SIGNATURES[name].split()


def test_policies_have_pytorch_s_values():
    assert [p.name for p in module.CheckpointPolicy] == [
        *("MUST_SAVE", "PREFER_SAVE", "MUST_RECOMPUTE", "PREFER_RECOMPUTE"),
        *("MUST_CPU_OFFLOAD", "PREFER_CPU_OFFLOAD"),
    ]
    assert [p.value for p in module.CheckpointPolicy] == list(range(6))


def failing(**named) -> str:
    op = Faulty(WAYS[1])
    y = checkpoint(
        lambda x: op(x.exp()).tanh(),
        rl.ones(2, requires_grad=True),
        determinism_check="bits",
        **named,
    )
    with pytest.raises(CheckpointError) as caught:
        y.sum().backward()
    return str(caught.value)


def test_debug_lists_the_calls():
    assert CheckpointError is ExactnessError
    listed = "the recorded calls of the checkpoint:\n  exp of float32[2] at"
    assert listed not in failing() and listed in failing(debug=True)
    with set_checkpoint_debug_enabled(True):
        assert listed in failing()
        with set_checkpoint_debug_enabled(None):
            assert listed not in failing()
        with set_checkpoint_debug_enabled(False):
            assert listed not in failing(debug=True)


def test_debug_takes_no_blocks():
    with pytest.raises(ValueError, match="no context_fn"):
        checkpoint(rl.exp, rl.ones(2), debug=True, context_fn=lambda: (None, None))


def test_is_checkpointing_holds_in_the_function_alone():
    seen = []

    def function(x):
        seen.append(is_checkpointing())
        y = x.exp()
        y.register_hook(lambda g: seen.append(is_checkpointing()))
        return y.tanh()

    y = checkpoint(function, rl.ones(2, requires_grad=True))
    seen.append(is_checkpointing())
    before = memory.recomputed()["calls"]
    y.sum().backward()
    assert seen == [True, False, False] and memory.recomputed()["calls"] > before


def test_a_group_rebuilds_once():
    x = rl.ones(3, requires_grad=True)

    def function(x):
        y = x.exp()
        return y.tanh(), y.sin()

    first, second = checkpoint(function, x)
    before = memory.recomputed()["calls"]
    with GraphExecGroup():
        (g,) = rl.autograd.grad(first.sum(), x, retain_graph=True)
        once = memory.recomputed()["calls"] - before
        (h,) = rl.autograd.grad(second.sum(), x)
        assert 0 < once == memory.recomputed()["calls"] - before
        with pytest.raises(RuntimeError, match="do not nest"), GraphExecGroup():
            pass
    e = x.detach().exp()
    assert rl.allclose(g, e / e.cosh() ** 2) and rl.allclose(h, e * e.cos())
    with GraphExecGroup():
        pass


def test_the_default_device_type(monkeypatch):
    monkeypatch.setattr(DefaultDeviceType, "_device", None)
    assert DefaultDeviceType.get_device_type() in ("cpu", "cuda", "webgpu")
    DefaultDeviceType.set_device_type("webgpu")
    assert DefaultDeviceType.get_device_type() == "webgpu"


def test_a_sequence_refuses_other_keywords():
    with pytest.raises(TypeError, match="determinism_check"):
        checkpoint_sequential([rl.exp], 1, rl.ones(2), determinism_check="none")
    y = checkpoint_sequential([rl.exp] * 3, 2, rl.ones(2), False, preserve_rng_state=False)
    assert rl.equal(y, rl.ones(2).exp().exp().exp())


def test_the_function_of_reentrant_checkpoints():
    x = rl.ones(2, requires_grad=True)
    before = memory.recomputed()["calls"]
    module.CheckpointFunction.apply(lambda x: x.exp().sin(), True, x).sum().backward()
    assert memory.recomputed()["calls"] > before
    e = x.detach().exp()
    assert rl.allclose(x.grad, e * e.cos())


def test_one_random_stream_serves_all_devices():
    rl.manual_seed(1)
    state, (devices, states) = rl.get_rng_state(), module.get_device_states(rl.ones(1))
    first = rl.rand(3)
    rl.set_rng_state(state)
    module.set_device_states(devices, states)
    assert rl.equal(rl.rand(3), first)


def test_detached_inputs_and_their_warning():
    x = rl.ones(2, requires_grad=True)
    y, number = detach_variable((x * 2, 3))
    assert y.is_leaf and y.requires_grad and number == 3
    with pytest.raises(RuntimeError, match="takes a tuple, got list"):
        detach_variable([x])
    check_backward_validity([1, x])
    with pytest.warns(UserWarning, match="no input requires gradients"):
        check_backward_validity([rl.ones(2)])
