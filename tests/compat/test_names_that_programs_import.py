"""Names beneath PyTorch's public ones that programs and libraries import, and what they do."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import rushlight
from rushlight import nn
from rushlight.compat import hook, overrides
from rushlight.core.errors import DeviceUnavailable
from rushlight.nn import functional as F
from rushlight.utils import _pytree

NAMES = """
torch.nn.modules.transformer: _get_clones _get_activation_fn F Tensor MultiheadAttention Dropout
torch.nn.modules.conv: _ConvNd _pair _single _reverse_repeat_tuple init Parameter
torch.nn.modules.pooling: _MaxPoolNd _AvgPoolNd _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _LPPoolNd
torch.nn.modules.batchnorm: _BatchNorm _NormBase _LazyNormBase
torch.nn.modules.dropout: _DropoutNd
torch.nn.functional: _canonical_mask _none_or_dtype _in_projection _in_projection_packed
torch.nn.functional: handle_torch_function has_torch_function _Reduction _pair
torch.nn._reduction: get_enum legacy_get_string
torch.nn.grad: conv1d_input conv2d_weight conv3d_input
torch.nn.utils.weight_norm: weight_norm remove_weight_norm
torch.nn.parallel.replicate: replicate
torch.nn.parallel.parallel_apply: parallel_apply
torch.optim.optimizer: Optimizer required ParamsT _use_grad_for_differentiable _get_value
torch.optim.optimizer: _params_t
torch.serialization: DEFAULT_PROTOCOL
torch.utils.data.dataloader: _collate_fn_t _DatasetKind
torch.utils.data._utils.collate: default_collate_fn_map collate_tensor_fn np_str_obj_array_pattern
torch.nn.utils.stateless: _reparametrize_module functional_call
torch.distributions.transforms: _InverseTransform _clipped_sigmoid
torch.distributions.multivariate_normal: _precision_to_scale_tril MultivariateNormal
torch.quasirandom: SobolEngine
torch.jit: TracerWarning script_method TopLevelTracedModule
torch._C: _jit_set_profiling_executor _jit_set_profiling_mode default_generator Generator Size
torch.hub: ENV_TORCH_HOME DEFAULT_CACHE_DIR
torch.onnx: OperatorExportTypes TrainingMode
torch.multiprocessing.pool: Pool
torch.cuda.nvtx: range_push range_pop
torch._inductor.config: coordinate_descent_tuning triton fx_graph_cache
torch._functorch.config: donated_buffer
torch._dynamo.config: automatic_dynamic_shapes inline_inbuilt_nn_modules
torch.overrides: resolve_name get_overridable_functions is_tensor_method_or_property
torch.utils._pytree: tree_flatten_with_path keystr tree_map_with_path _register_pytree_node
torch.accelerator: memory_allocated max_memory_allocated empty_cache current_stream
torch.distributions.normal: _standard_normal broadcast_all
torch.profiler.profiler: profile schedule
torch: get_device_module set_flush_denormal to_dlpack set_warn_always
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_names_are_there(line: str) -> None:
    path, _, names = line.partition(":")
    with hook.patch("cpu"):
        module = importlib.import_module(path)
        for name in names.split():
            assert hasattr(module, name), name


def test_a_file_with_a_functions_name_is_called_like_it() -> None:
    with hook.patch("cpu") as torch:
        assert importlib.import_module("torch.nn.utils.weight_norm").remove_weight_norm
        layer = torch.nn.utils.weight_norm(nn.Linear(2, 2))
        assert "weight_g" in layer.state_dict()
        assert importlib.import_module("torch.multiprocessing.spawn").SpawnContext
        assert callable(torch.multiprocessing.spawn)


def test_bases_of_pools_tell_them_apart() -> None:
    pooling = importlib.import_module("rushlight.nn.modules.pooling")
    assert isinstance(nn.AdaptiveAvgPool2d(1), pooling._AdaptiveAvgPoolNd)
    assert not isinstance(nn.AdaptiveMaxPool2d(1), pooling._AdaptiveAvgPoolNd)
    with pytest.raises(AttributeError, match="_Absent"):
        pooling._Absent  # noqa: B018


def test_functions_as_attributes_of_modules_are_not_bound() -> None:
    class Net(nn.Module):
        act = rushlight.tanh
        other = F.gelu
        power = rushlight.special.expm1

        def forward(self, x: Any) -> Any:
            return self.act(x) + self.other(x) + self.power(x)

    x = rushlight.ones(2)
    assert Net()(x).tolist() == (x.tanh() + F.gelu(x) + x.expm1()).tolist()
    assert Net.act is rushlight.tanh


def test_gradients_of_convolutions() -> None:
    grad = importlib.import_module("rushlight.compat.nn.grad")
    x, w = rushlight.randn(2, 4, 5, 5), rushlight.randn(6, 2, 3, 3)
    x.requires_grad_()
    w.requires_grad_()
    y = F.conv2d(x, w, stride=2, padding=1, groups=2)
    g = rushlight.randn(*y.shape)
    y.backward(g)
    assert rushlight.equal(grad.conv2d_input(x.shape, w, g, 2, 1, 1, 2), x.grad)
    assert rushlight.equal(grad.conv2d_weight(x, w.shape, g, 2, 1, 1, 2), w.grad)


def test_parts_of_attention() -> None:
    mask = F._canonical_mask(rushlight.tensor([True, False]), "m", None, "", rushlight.float32)
    assert mask.tolist() == [float("-inf"), 0.0]
    x, w = rushlight.randn(3, 4), rushlight.randn(12, 4)
    q, k, v = F._in_projection_packed(x, x, x, w, rushlight.zeros(12))
    assert rushlight.allclose(rushlight.cat([q, k, v], 1), F.linear(x, w))


def test_ways_to_leaves() -> None:
    tree = {"a": [1, (2, 3)], "b": {"x": 4}}
    found, spec = _pytree.tree_flatten_with_path(tree)
    ways = [_pytree.keystr(way) for way, _ in found]
    assert ways == ["['a'][0]", "['a'][1][0]", "['a'][1][1]", "['b']['x']"]
    assert spec.unflatten([leaf for _, leaf in found]) == tree
    assert [_pytree.key_get(tree, way) for way, _ in found] == [1, 2, 3, 4]
    named = _pytree.tree_map_with_path(lambda way, leaf: (len(way), leaf), tree)
    assert named["a"][1][0] == (3, 2)
    spec = _pytree.tree_structure([0, {"y": 0}])
    assert _pytree._broadcast_to_and_flatten([1, 2], spec) == [1, 2]
    assert _pytree._broadcast_to_and_flatten((1, 2), spec) is None


def test_names_of_functions() -> None:
    assert overrides.resolve_name(rushlight.add) == "torch.add"
    assert overrides.resolve_name(rushlight.Tensor.add) == "torch.Tensor.add"
    assert overrides.resolve_name(F.softmax) == "torch.nn.functional.softmax"
    assert overrides.is_tensor_method_or_property(rushlight.Tensor.add)
    assert not overrides.is_tensor_method_or_property(rushlight.add)


def test_named_tuples_of_functions() -> None:
    types = importlib.import_module("rushlight.compat.return_types")
    x = rushlight.rand(2, 3)
    assert isinstance(rushlight.max(x, 0), types.max) and isinstance(x.topk(2), types.topk)
    assert isinstance(x.sort(), types.sort) and isinstance(
        rushlight.linalg.svd(x), types.linalg_svd
    )
    with pytest.raises(AttributeError, match="absent"):
        types.absent  # noqa: B018


def test_gpus_that_are_reached_through_webgpu() -> None:
    with hook.patch("cpu") as torch:
        assert torch.mps.current_allocated_memory() == 0 == torch.xpu.memory_allocated()
        with pytest.raises(DeviceUnavailable, match="webgpu"):
            torch.mps.synchronize()


def test_an_optimiser_written_for_pytorch() -> None:
    optimizer = importlib.import_module("rushlight.optim.optimizer")

    class Plain(rushlight.optim.Optimizer):
        def __init__(self, params: Any, lr: Any = optimizer.required) -> None:
            if lr is optimizer.required:
                raise ValueError("lr is required")
            super().__init__(params, {"lr": lr, "differentiable": False})

        @optimizer._use_grad_for_differentiable
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-optimizer._get_value(group["lr"]))

    p = nn.Parameter(rushlight.ones(2))
    p.grad = rushlight.ones(2)
    Plain([p], rushlight.tensor(0.5)).step()
    assert p.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="required"):
        Plain([p])


def test_sobol_points_are_pytorch_s() -> None:
    pytest.importorskip("scipy")
    with hook.patch("cpu") as torch:
        engine = torch.quasirandom.SobolEngine(3)
        first = [
            [0.0] * 3,
            [0.5] * 3,
            [0.75, 0.25, 0.25],
            [0.25, 0.75, 0.75],
            [0.375, 0.375, 0.625],
        ]
        assert engine.draw(5).tolist() == first
        assert engine.fast_forward(2).num_generated == 7
        assert engine.draw(2).tolist() == [[0.125, 0.625, 0.375], [0.1875, 0.3125, 0.9375]]
        assert engine.reset().draw_base2(2, dtype=torch.float64).dtype is torch.float64
        with pytest.raises(ValueError, match="no power of 2"):
            engine.draw_base2(4)
        torch.manual_seed(3)
        drawn = torch.quasirandom.SobolEngine(2, scramble=True).draw(4)
        torch.manual_seed(3)
        assert torch.equal(drawn, torch.quasirandom.SobolEngine(2, scramble=True).draw(4))
        assert 0 <= drawn.min() < drawn.max() < 1
        with pytest.raises(ValueError, match="between 1 and 21201"):
            torch.quasirandom.SobolEngine(0)


def test_storages_are_put_by_name_while_a_file_is_read(tmp_path) -> None:
    with hook.patch("cpu") as torch:
        restore = importlib.import_module("torch.serialization").default_restore_location
        torch.save({"x": torch.ones(2)}, tmp_path / "x.pt")
        found = torch.load(tmp_path / "x.pt", map_location=lambda s, where: restore(s, where))
        assert found["x"].tolist() == [1.0, 1.0]
        found = torch.load(tmp_path / "x.pt", map_location=lambda s, where: restore(s, "meta"))
        assert found["x"].device.type == "meta"


def test_older_bases_and_blocks_of_autograd() -> None:
    with hook.patch("cpu") as torch:
        function = importlib.import_module("torch.autograd.function")

        class Rounded(function.InplaceFunction):
            @staticmethod
            def forward(ctx, x):
                return x.round()

            @staticmethod
            def backward(ctx, g):
                return g

        x = torch.tensor([1.4, 2.6], requires_grad=True)
        with torch.autograd.grad_mode.set_multithreading_enabled(False):
            Rounded.apply(x).sum().backward()
        assert x.grad.tolist() == [1.0, 1.0]


def test_tensors_of_a_list_as_one() -> None:
    with hook.patch("cpu"):
        utils = importlib.import_module("torch._utils")
    tensors = [rushlight.arange(6.0).view(2, 3), rushlight.tensor(7.0), rushlight.zeros(0, 2)]
    flat = utils._flatten_dense_tensors(tensors)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 7]
    again = utils._unflatten_dense_tensors(flat, tensors)
    assert [rushlight.equal(*pair) for pair in zip(again, tensors, strict=True)] == [True] * 3
    assert again[0].data_ptr() == flat.data_ptr()
    mixed = [rushlight.zeros(2), rushlight.zeros(3, dtype=rushlight.int64), *tensors[:2]]
    taken = list(utils._take_tensors(mixed, 24))
    assert [[t.numel() for t in row] for row in taken] == [[2], [6], [1], [3]]
    kinds = [t for row in taken for t in row]
    assert [t.numel() for t in utils._reorder_tensors_as(kinds, mixed)] == [2, 3, 6, 1]
    assert utils._get_device_index("cuda:0") == 0 and utils._get_device_index(1) == 1
    assert utils._get_device_index("cpu", allow_cpu=True) == -1
    for wrong in ("cpu", "cuda", None):
        with pytest.raises(ValueError, match="number"):
            utils._get_device_index(wrong)
    assert utils._import_dotted_name("rushlight.nn.Linear") is nn.Linear
    assert utils._element_size(rushlight.float64) == 8


def test_files_beneath_a_module_are_attributes_of_it() -> None:
    with hook.patch("cpu") as torch:
        assert torch.distributions.normal.Normal is rushlight.distributions.Normal
        assert torch.functional.einsum is rushlight.einsum
        assert importlib.import_module("torch.functional") is torch.functional


def test_collating_knows_the_types_that_a_program_adds() -> None:
    with hook.patch("cpu"):
        collating = importlib.import_module("torch.utils.data._utils.collate")

    class Marked(rushlight.Tensor):
        pass

    def marked(batch: Any, *, collate_fn_map: Any) -> tuple[str, int]:
        return "marked", len(batch)

    given = [rushlight.ones(2).as_subclass(Marked), rushlight.ones(2).as_subclass(Marked)]
    assert collating.default_collate(given).shape == (2, 2)
    collating.default_collate_fn_map[Marked] = marked
    try:
        assert collating.default_collate([{"a": x} for x in given]) == {"a": ("marked", 2)}
        plain = collating.default_collate([rushlight.ones(2), rushlight.zeros(2)])
        assert plain.tolist() == [[1, 1], [0, 0]]
    finally:
        del collating.default_collate_fn_map[Marked]


def test_a_block_with_other_parameters() -> None:
    with hook.patch("cpu"):
        stateless = importlib.import_module("torch.nn.utils.stateless")
    layer = nn.Linear(2, 1)
    own, other = layer.weight, rushlight.ones(1, 2)
    with stateless._reparametrize_module(layer, {"weight": other}):
        assert layer.weight is other
    assert layer.weight is own


def test_lists_of_tensors_are_grouped() -> None:
    with hook.patch("cpu"):
        lists = importlib.import_module("torch.utils._foreach_utils")
    a, b, c = rushlight.ones(1), rushlight.ones(1, dtype=rushlight.float64), rushlight.zeros(2)
    found = lists._group_tensors_by_device_and_dtype([[a, b, c], [None, b, None]], True)
    assert [places for _, places in found.values()] == [[0, 2], [1]]
    assert next(iter(found)) == (a.device, rushlight.float32)
    first, _ = next(iter(found.values()))
    assert first[0][1] is c and first[1] == [None, None]
    with pytest.raises(RuntimeError, match="the first list has a None"):
        lists._group_tensors_by_device_and_dtype([[None]])
