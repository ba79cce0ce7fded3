"""Parts of layers by PyTorch's names, which classes override and libraries read or exchange."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
from rushlight.nn.modules.batchnorm import _BatchNorm

import rushlight as rl
from rushlight import nn
from rushlight.core import saying
from rushlight.nn.modules.module import _WrappedHook
from rushlight.utils.hooks import RemovableHandle


def test_a_convolution_calls_conv_forward() -> None:
    class Cast(nn.Conv1d):
        def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
            return super()._conv_forward(input, weight * 0 + 1, bias * 0)

    layer = Cast(2, 3, 3, padding=1, padding_mode="circular")
    assert layer(rl.ones(1, 2, 5)).tolist() == [[[6.0] * 5] * 3]
    assert layer._reversed_padding_repeated_twice == [1, 1]
    assert not layer.transposed and layer.output_padding == (0,)


def test_a_norm_calls_check_input_dim() -> None:
    class Any4(nn.BatchNorm2d):
        def _check_input_dim(self, input: Any) -> None:
            assert input.ndim == 2

    assert Any4(3)(rl.ones(2, 3)).shape == (2, 3)
    with pytest.raises(NotImplementedError, match="_check_input_dim"):
        _BatchNorm(3)(rl.ones(2, 3))
    assert nn.InstanceNorm1d(3)(rl.ones(3, 4)).shape == (3, 4)
    with pytest.raises(ValueError, match="2 or 3 dimensions"):
        nn.InstanceNorm1d(3)(rl.ones(1, 2, 3, 4))


def test_transformer_layers_call_their_blocks() -> None:
    called: list[str] = []

    class Encoder(nn.TransformerEncoderLayer):
        def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
            called.append("sa")
            return super()._sa_block(x, attn_mask, key_padding_mask, is_causal=is_causal)

        def _ff_block(self, x):
            called.append("ff")
            return super()._ff_block(x)

    class Decoder(nn.TransformerDecoderLayer):
        def _mha_block(self, x, mem, *rest, **named):
            called.append("mha")
            return super()._mha_block(x, mem, *rest, **named)

    class Whole(nn.Transformer):
        def _reset_parameters(self):
            called.append("reset")

    for first in (True, False):
        Encoder(8, 2, 16, norm_first=first)(rl.randn(2, 3, 8))
        Decoder(8, 2, 16, norm_first=first)(rl.randn(2, 3, 8), rl.randn(2, 3, 8))
    Whole(8, 2, 1, 1, 16)
    assert called == ["sa", "ff", "mha"] * 2 + ["reset"]


def test_recurrent_layers_check_by_parts() -> None:
    class Checked(nn.GRU):
        def check_forward_args(self, input, hidden, batch_sizes):
            super().check_forward_args(input, hidden, batch_sizes)
            self.seen = tuple(hidden.shape), batch_sizes is None

    layer = Checked(2, 3, batch_first=True)
    layer(rl.ones(4, 5, 2))
    assert layer.seen == ((1, 4, 3), True)
    layer(nn.utils.rnn.pack_sequence([rl.ones(3, 2), rl.ones(1, 2)]), rl.ones(1, 2, 3))
    assert layer.seen == ((1, 2, 3), False)
    lstm = nn.LSTM(2, 4, 2, bidirectional=True, proj_size=3)
    x = rl.ones(5, 7, 2)
    assert lstm.get_expected_hidden_size(x, None) == (4, 7, 3)
    assert lstm.get_expected_cell_size(x, None) == (4, 7, 4)
    assert len(lstm._flat_weights) == 20 == len(lstm._flat_weights_names)
    assert lstm._flat_weights[0] is lstm.weight_ih_l0 and lstm._all_weights[1][-1].endswith("rse")
    for wrong in (rl.ones(5, 7, 3), rl.ones(7)):
        with pytest.raises(ValueError, match="input must be"):
            lstm(wrong)
    with pytest.raises(ValueError, match="the state must have the shape"):
        lstm(x, (rl.ones(4, 7, 4), rl.ones(4, 7, 4)))


def test_hook_dicts_hold_functions() -> None:
    layer = nn.Linear(2, 2)
    seen: list[str] = []

    def after(module, args, result):
        seen.append("after")

    def with_names(module, args, named, result):
        seen.append(str(named))

    layer.register_forward_hook(after)
    named = layer.register_forward_hook(
        with_names, with_kwargs=True, always_call=True, prepend=True
    )
    assert list(layer._forward_hooks.values()) == [with_names, after]
    assert list(layer._forward_hooks_with_kwargs) == [named.id]
    assert list(layer._forward_hooks_always_called) == [named.id]
    layer(rl.ones(1, 2))
    assert seen == ["{}", "after"]
    layer._forward_hooks.move_to_end(named.id)
    layer(rl.ones(1, 2))
    assert seen[2:] == ["after", "{}"]
    named.remove()
    assert not layer._forward_hooks_with_kwargs and not layer._forward_hooks_always_called
    layer._forward_hooks.clear()
    layer._forward_pre_hooks[77] = lambda module, args: (args[0] * 0,)  # as libraries do
    layer.bias.data.zero_()
    assert layer(rl.ones(1, 2)).tolist() == [[0.0, 0.0]]


def test_handles_are_made_by_libraries_too() -> None:
    table: dict[int, str] = {}
    more: dict[int, bool] = {}
    handle = RemovableHandle(table, extra_dict=more)
    table[handle.id], more[handle.id] = "hook", True
    assert RemovableHandle({handle.id + 1: None}).id != handle.id + 1  # of another process
    handle.remove()
    assert not table and not more


def test_hooks_before_loading_get_what_pytorchs_get() -> None:
    layer = nn.Linear(1, 1)
    seen: list[Any] = []
    layer.register_load_state_dict_pre_hook(lambda module, state, prefix, *_: seen.append(module))
    layer._register_load_state_dict_pre_hook(lambda state, prefix, *_: seen.append(prefix))
    assert all(isinstance(h, _WrappedHook) for h in layer._load_state_dict_pre_hooks.values())
    state = layer.state_dict()
    layer.load_state_dict(state)
    for hook in layer._load_state_dict_pre_hooks.values():  # a class that loads for itself
        hook(state, "p.", {}, True, [], [], [])
    assert seen == [layer, "", layer, "p."]
    other = copy.deepcopy(layer)
    other.load_state_dict(state)
    assert seen[4] is other


def test_module_compile_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saying, "_SAID", set())
    layer = nn.Linear(2, 3)
    with pytest.warns(rl.RushlightWarning, match="stay eager"):
        layer.compile(mode="max-autotune", fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.Linear(1, 1).compile()
    x = rl.ones(1, 2)
    for call in (layer, layer._call_impl, layer._wrapped_call_impl, layer._slow_forward):
        assert call(x).shape == (1, 3)


def test_data_parallel_goes_by_its_parts() -> None:
    class Parts(nn.DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            return ((inputs[0][:1],), (inputs[0][1:],)), ({}, {})

        def replicate(self, module, device_ids):
            return [module, module]

        def gather(self, outputs, output_device):
            return rl.cat(outputs)

    net = nn.Linear(2, 2)
    assert Parts(net, [0, 1])(rl.ones(3, 2)).shape == (3, 2)
    plain = nn.DataParallel(net, [])
    assert plain(rl.ones(3, 2)).shape == (3, 2) and plain.device_ids == []
    copied = net._replicate_for_data_parallel()
    assert not list(copied.parameters()) and copied.in_features == 2


def test_a_plateau_calls_reduce_lr() -> None:
    class Told(rl.optim.lr_scheduler.ReduceLROnPlateau):
        epochs: tuple[int, ...] = ()

        def _reduce_lr(self, epoch):
            self.epochs += (epoch,)
            super()._reduce_lr(epoch)

    optimizer = rl.optim.SGD([nn.Parameter(rl.ones(1))], lr=1.0)
    schedule = Told(optimizer, patience=0)
    for metric in (1.0, 2.0, 3.0):
        schedule.step(metric)
    assert schedule.epochs == (2, 3) and schedule.get_last_lr() == [pytest.approx(0.01)]


def test_parts_of_a_loader() -> None:
    loader = rl.utils.data.DataLoader(rl.utils.data.TensorDataset(rl.arange(4)), batch_size=2)
    assert loader._auto_collation and loader._index_sampler is loader.batch_sampler
    assert loader._dataset_kind == 0 and len(list(loader._get_iterator())) == 2
    single = rl.utils.data.DataLoader([1, 2], batch_size=None)
    assert not single._auto_collation and single._index_sampler is single.sampler
