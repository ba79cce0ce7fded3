"""Modules and their functions where PyTorch's own tests found them lacking: containers, states, hooks, edges of functions."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn import functional as F


def ramp(*shape: int, dtype: Any = rl.float64) -> Any:
    count = 1
    for n in shape:
        count *= n
    return rl.arange(count, dtype=dtype).reshape(shape) / 7 - 1


# ---- containers ----


def test_sequential_is_joined_repeated_and_cut() -> None:
    a, b, c = nn.Linear(1, 2), nn.Linear(2, 1), nn.ReLU()
    chain = nn.Sequential(a, b) + nn.Sequential(c)
    assert list(chain) == [a, b, c]
    chain += nn.Sequential(a)
    assert [name for name, _ in chain.named_modules(remove_duplicate=False)] == ["", "0", "1", "2", "3"]
    assert chain.pop(-1) is a and len(chain) == 3
    assert list(2 * nn.Sequential(a, b)) == [a, b, a, b]
    twice = nn.Sequential(c)
    twice *= 3
    assert list(twice) == [c, c, c]
    with pytest.raises(ValueError, match="Sequential"):
        chain + a
    with pytest.raises(ValueError, match="positive"):
        chain * 0
    with pytest.raises(IndexError):
        chain.insert(-5, a)
    with pytest.raises(AssertionError):
        chain.insert(0, "relu")  # type: ignore[arg-type]
    named = nn.Sequential(OrderedDict(first=a, second=b, third=c))[1:]
    assert [name for name, _ in named.named_children()] == ["second", "third"]
    assert "0" not in dir(chain)


def test_lists_and_dicts_of_modules() -> None:
    a, b = nn.ReLU(), nn.Tanh()
    both = nn.ModuleList([a]) + nn.ModuleList([b])
    assert isinstance(both, nn.ModuleList) and list(both) == [a, b]
    assert both.pop(0) is a and list(both) == [b]
    assert list(nn.ParameterDict({"b": rl.ones(1), "a": rl.ones(1)})) == ["a", "b"]
    assert list(nn.ParameterDict([("b", rl.ones(1)), ("a", rl.ones(1))])) == ["b", "a"]
    for wrong, error in ((1, TypeError), ([1], TypeError), (rl.ones(3, 3), ValueError)):
        with pytest.raises(error):
            nn.ParameterDict().update(wrong)


def test_a_name_has_one_kind() -> None:
    module = nn.Module()
    module.register_buffer("held", rl.ones(1))
    with pytest.raises(KeyError):
        module.register_parameter("held", nn.Parameter(rl.ones(1)))
    with pytest.raises(KeyError):
        module.add_module("held", nn.ReLU())
    tied = nn.Module()
    tied.one = tied.two = nn.Linear(1, 1, bias=False)
    assert [name for name, _ in tied.named_parameters(remove_duplicate=False)] == ["one.weight", "two.weight"]


def test_module_to_says_what_it_takes() -> None:
    net = nn.Linear(2, 2)
    for wrong in (("cpu", True), (rl.long,), (None, True), ([],), (rl.tensor(3),)):
        with pytest.raises(TypeError):
            net.to(*wrong)
    with pytest.raises(RuntimeError):
        net.to("cpu", copy=True)
    assert net.to("cpu", rl.float64, True).weight.dtype is rl.float64
    net.register_buffer("turn", rl.ones(1, dtype=rl.complex64))
    assert net.float().turn.dtype is rl.complex64 and net.weight.dtype is rl.float32
    with pytest.raises(ValueError, match="mode"):
        net.train("yes")  # type: ignore[arg-type]


def test_classes_behind_module_are_initialised_where_asked() -> None:
    class Mixin:
        def __init__(self) -> None:
            self.mixed = True

    class Both(nn.Module, Mixin):
        call_super_init = True

    assert Both().mixed
    with pytest.raises(TypeError):
        nn.Module(3)


# ---- states ----


class Renamed(nn.Module):
    """Was written with `gain` for `scale`, in its first version."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(rl.ones(2))
        self.inner = nn.Linear(2, 2)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}note"] = rl.tensor(7)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        assert int(state_dict.pop(f"{prefix}note")) == 7
        if local_metadata.get("version", 1) < 2:
            state_dict[f"{prefix}scale"] = state_dict.pop(f"{prefix}gain")
            state_dict[f"{prefix}inner.weight"] = state_dict[f"{prefix}inner.weight"] * 2
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_a_class_saves_and_loads_for_itself() -> None:
    net = nn.Sequential(Renamed())
    state = net.state_dict()
    assert isinstance(state, OrderedDict) and "0.note" in state
    assert list(state._metadata) == ["", "0", "0.inner"] and state._metadata["0"] == {"version": 2}
    assert repr(net.load_state_dict(copy.copy(state))) == "<All keys matched successfully>"
    old = {k.replace("scale", "gain"): v.clone() for k, v in state.items()}
    other = nn.Sequential(Renamed())
    other.load_state_dict(old)
    assert rl.equal(other[0].inner.weight, net[0].inner.weight * 2)


def test_a_child_may_override_its_whole_state() -> None:
    class Quiet(nn.Linear):
        def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
            destination = OrderedDict() if destination is None else destination
            destination[f"{prefix}only"] = self.weight
            return destination

    assert list(nn.Sequential(Quiet(1, 1), nn.Linear(1, 1)).state_dict()) == ["0.only", "1.weight", "1.bias"]


def test_extra_state_without_one_half() -> None:
    class Writes(nn.Module):
        def get_extra_state(self) -> Any:
            return 5

    class Reads(nn.Module):
        def set_extra_state(self, state: Any) -> None:
            raise AssertionError

    with pytest.raises(RuntimeError, match="unexpected"):
        Writes().load_state_dict(Writes().state_dict())
    with pytest.raises(RuntimeError, match="missing"):
        Reads().load_state_dict({})


def test_batch_norm_state_of_the_first_version() -> None:
    norm = nn.BatchNorm1d(2)
    norm(rl.rand(4, 2))
    state = dict(norm.state_dict())
    del state["num_batches_tracked"]
    norm.load_state_dict(state)
    assert int(norm.num_batches_tracked) == 1
    with pytest.raises(TypeError):
        norm.load_state_dict([])  # type: ignore[arg-type]


def test_batch_norm_that_stopped_tracking_leaves_its_statistics() -> None:
    norm = nn.BatchNorm1d(3)
    norm.track_running_stats = False
    norm(rl.rand(4, 3))
    assert int(norm.num_batches_tracked) == 0 and rl.equal(norm.running_mean, rl.zeros(3))


def test_state_hooks_give_nothing() -> None:
    net = nn.Linear(1, 1)
    net.register_state_dict_post_hook(lambda *given: given[1])
    with pytest.raises(RuntimeError):
        net.state_dict()


# ---- hooks ----


def test_backward_hooks_see_results_in_a_dict() -> None:
    class Named(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"double": x * 2, "name": "x"}

    seen = []
    net = Named()
    net.register_full_backward_hook(lambda module, below, above: seen.append(above[0].item()))
    net(rl.tensor(3.0, requires_grad=True))["double"].backward()
    assert seen == [1.0]


def test_a_hook_cannot_give_gradients_that_nobody_takes() -> None:
    net = nn.Linear(1, 1)
    net.register_full_backward_hook(lambda module, below, above: (rl.ones(1, 1),))
    with pytest.raises(RuntimeError, match="none of which"):
        net(rl.ones(1, 1)).sum().backward()


# ---- functions ----


@pytest.mark.parametrize("name", ["gelu", "relu", "silu", "softsign", "cross_entropy"])
def test_functions_are_pickled_by_name(name: str) -> None:
    assert pickle.loads(pickle.dumps(getattr(F, name))) is getattr(F, name)
    assert pickle.loads(pickle.dumps(rl.sin)) is rl.sin


IN_PLACE = [
    *(F.elu, F.celu, F.selu, F.hardtanh, F.relu6, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.leaky_relu, F.relu),
    lambda x, inplace=False: F.threshold(x, 0.1, 0.3, inplace),
]


@pytest.mark.parametrize("function", IN_PLACE)
def test_activations_in_place_have_the_gradient_of_the_others(function: Any) -> None:
    x = rl.tensor([-1.5, -0.2, 0.4, 7.0], dtype=rl.float64, requires_grad=True)
    (pure,) = rl.autograd.grad((function(x * 1.1) ** 2).sum(), x)
    held = x * 1.1
    assert function(held, inplace=True) is held
    (placed,) = rl.autograd.grad((held**2).sum(), x)
    assert rl.equal(pure, placed)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("smooth", [False, True])
def test_bytes_are_resized_as_floats_and_rounded(mode: str, smooth: bool) -> None:
    image = (rl.arange(3 * 8 * 9) * 37 % 101 + 70).to(rl.uint8).reshape(1, 3, 8, 9)
    for size in ((4, 5), (300, 300)):
        made = F.interpolate(image, size, mode=mode, antialias=smooth)
        wanted = F.interpolate(image.double(), size, mode=mode, antialias=smooth).clamp(0, 255)
        assert made.dtype is rl.uint8
        assert (made.double() - wanted).abs().max() <= 1.5
    with pytest.raises(TypeError):
        F.interpolate(image, (4.0, 5.0))


def test_cosine_similarity_promotes_before_it_multiplies() -> None:
    assert F.cosine_similarity(rl.tensor([100], dtype=rl.int8), rl.tensor([3.0]), 0).item() == pytest.approx(1)
    with pytest.raises(RuntimeError):
        F.cosine_similarity(rl.ones(3, dtype=rl.int64), rl.ones(3, dtype=rl.int64), 0)


@pytest.mark.parametrize("shapes", [((5, 3), (5, 3), (5, 1)), ((3,), (3,), (3,)), ((2, 3), (2, 3), ())])
def test_cosine_embedding_loss_refuses_other_shapes(shapes: Any) -> None:
    with pytest.raises(RuntimeError, match="cosine_embedding_loss"):
        F.cosine_embedding_loss(*(rl.ones(shape) for shape in shapes))


def test_batches_without_examples_have_gradients() -> None:
    norm = nn.BatchNorm2d(3)
    norm(rl.zeros(0, 3, 2, 2)).sum().backward()
    assert norm.weight.grad.tolist() == [0.0] * 3 and norm.bias.grad.tolist() == [0.0] * 3
    grid = rl.zeros(1, 0, 2, 2, requires_grad=True)
    F.grid_sample(rl.ones(1, 1, 2, 2), grid, align_corners=False).sum().backward()
    assert grid.grad.shape == grid.shape
    for mode in ("reflect", "replicate"):
        with pytest.raises(RuntimeError, match="pad"):
            F.pad(rl.zeros(3, 0, 9), (1, 1), mode=mode)
        assert F.pad(rl.zeros(0, 3, 9), (1, 1), mode=mode).shape == (0, 3, 11)
    with pytest.raises(RuntimeError, match="unfold"):
        F.unfold(rl.zeros(3, 0, 3, 4), 2)


def test_labels_may_be_bytes() -> None:
    scores = F.log_softmax(ramp(4, 3), 1)
    labels = rl.tensor([0, 2, 1, 1])
    assert F.nll_loss(scores, labels.to(rl.uint8)).item() == F.nll_loss(scores, labels).item()


def test_norms_of_gradients_of_order_zero() -> None:
    weight = rl.zeros(3, requires_grad=True)
    weight.grad = rl.tensor([0.0, 2.0, 3.0])
    assert nn.utils.get_total_norm([weight.grad], 0).item() == 1.0  # one tensor whose count is not zero
    assert nn.utils.clip_grad_norm_(weight, 1.0, norm_type=-float("inf")).item() == 0.0


def test_sizes_beyond_any_memory_are_refused() -> None:
    for count, error in ((2**60, rl.OutOfMemoryError), (2**62, RuntimeError)):  # of which no int64 counts the bytes
        for make in (rl.empty, lambda n: rl.arange(n, dtype=rl.float32)):
            with pytest.raises(error):
                make(count)
    with pytest.raises(RuntimeError):
        nn.AdaptiveMaxPool1d(2**62)(rl.ones(2, 2, 2))


def test_a_device_is_the_default_inside_its_block() -> None:
    with rl.device("reference"):
        assert rl.zeros(2).device.type == "reference"
        with rl.device("cpu"):
            assert rl.zeros(2).device.type == "cpu"
        assert nn.Linear(1, 1).weight.device.type == "reference"
    assert rl.zeros(2).device.type != "reference"


# ---- windows, tables, sequences ----


def test_windows_that_lie_in_the_border_alone() -> None:
    assert nn.MaxPool1d(2, None, 1, 2)(rl.ones(2, 1)).tolist() == [[-float("inf")], [-float("inf")]]
    assert nn.MaxPool1d(2, 1, 1, 2)(rl.tensor([[1.0, 2.0]])).tolist() == [[2.0, 1.0]]
    with pytest.raises(ValueError, match="same"):
        nn.Conv1d(1, 1, 3, padding="same", stride=2)


def test_pools_of_nothing() -> None:
    x = rl.zeros(0, 2, 4, requires_grad=True)
    largest, places = F.max_pool1d(x, 2, return_indices=True)
    F.max_unpool1d(largest, places, 2).sum().backward()
    assert x.grad.shape == (0, 2, 4)
    assert F.fractional_max_pool2d(rl.ones(1, 1, 8, 8), 2, output_size=(0, 1)).shape == (1, 1, 0, 1)
    with pytest.raises(RuntimeError, match="batch"):
        F.adaptive_max_pool1d(rl.zeros(1, 0, 5), 2)


def test_bags_of_nothing_have_gradients() -> None:
    bag = nn.EmbeddingBag(3, 2, mode="sum")
    shares = rl.zeros(0, requires_grad=True)
    bag(rl.zeros(0, dtype=rl.int64), rl.zeros(2, dtype=rl.int64), shares).sum().backward()
    assert shares.grad.shape == (0,) and bag.weight.grad.abs().sum().item() == 0
    for wrong in (lambda: nn.Embedding(3, 2, padding_idx=3), lambda: F.embedding(rl.tensor([0]), rl.ones(3, 2), 5)):
        with pytest.raises(AssertionError):
            wrong()
    narrow = nn.Embedding(10, 0, sparse=True)
    narrow(rl.tensor([[0, 2], [4, 3]])).sum().backward()
    assert narrow.weight.grad.is_sparse


def test_what_is_dropped_stays_nan() -> None:
    assert F.dropout(rl.full((64,), float("nan")), 0.5).isnan().all()


def test_packed_sequences_change_type_and_stay() -> None:
    packed = nn.utils.rnn.pack_padded_sequence(rl.ones(3, 2), [3, 1])
    assert packed.to("cpu") is packed and packed.short().data.dtype is rl.int16
    with pytest.raises(RuntimeError):
        nn.utils.rnn.pad_sequence(5)  # type: ignore[arg-type]


def test_a_lazy_buffer_is_registered() -> None:
    module = nn.Module()
    module.held = nn.UninitializedBuffer()
    assert "held" in module._buffers


def test_init_by_its_older_names() -> None:
    with pytest.warns(FutureWarning, match="constant_"):
        assert nn.init.constant(rl.zeros(2), 3.0).tolist() == [3.0, 3.0]
    with pytest.raises(ValueError):
        nn.init.calculate_gain("leaky_relu", True)
