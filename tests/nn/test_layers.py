"""Layers against PyTorch's numbers, and a module's handling of its members.

LAYERS and TINY were made by PyTorch 2.13.0 on the CPU:
`PYTHONPATH=. python tests/nn/test_layers.py` prints them where torch is installed, by the functions
that the tests use.
"""

import copy
import math
import pickle
from types import SimpleNamespace

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import nn
from rushlight.utils.checkpoint import checkpoint

# ---- layers against PyTorch ----


def waves(torch, *shape, device=None):
    """Fixed numbers without a pattern that a layer could share."""
    count = math.prod(shape)
    return torch.tensor([math.sin(1.7 * i + count) for i in range(count)], device=device).reshape(
        *shape
    )


def fill(torch, module, device=None):
    """Every parameter from `waves`, so that both libraries start at one point."""
    module = module.to(device or "cpu")
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(waves(torch, *p.shape, device=device) * 0.5 + 0.1)
    return module


CASES = {
    "linear": (lambda nn: nn.Linear(3, 2), (2, 4, 3)),
    "linear_without_bias": (lambda nn: nn.Linear(3, 2, bias=False), (3,)),
    "layer_norm": (lambda nn: nn.LayerNorm((2, 3), eps=1e-3), (4, 2, 3)),
    "layer_norm_without_bias": (lambda nn: nn.LayerNorm(3, bias=False), (4, 3)),
    "batch_norm_1d": (lambda nn: nn.BatchNorm1d(3), (5, 3)),
    "batch_norm_1d_of_lengths": (lambda nn: nn.BatchNorm1d(3, momentum=0.3), (2, 3, 4)),
    "batch_norm_2d": (lambda nn: nn.BatchNorm2d(2, momentum=None), (2, 2, 3, 3)),
    "batch_norm_2d_in_eval": (lambda nn: nn.BatchNorm2d(2).eval(), (2, 2, 3, 3)),
    "conv_2d": (lambda nn: nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 2, 5, 6)),
    "conv_2d_in_groups": (
        lambda nn: nn.Conv2d(4, 2, (1, 2), groups=2, bias=False, dilation=(1, 2)),
        (1, 4, 3, 5),
    ),
    "conv_2d_same": (lambda nn: nn.Conv2d(1, 2, 3, padding="same"), (1, 1, 4, 4)),
    "max_pool_2d": (lambda nn: nn.MaxPool2d(2), (1, 2, 4, 5)),
    "max_pool_2d_padded": (lambda nn: nn.MaxPool2d(3, stride=2, padding=1), (1, 1, 5, 5)),
    "avg_pool_2d": (lambda nn: nn.AvgPool2d(3, stride=1, padding=1), (1, 2, 4, 4)),
    "relu": (lambda nn: nn.ReLU(), (7,)),
    "gelu": (lambda nn: nn.GELU(), (7,)),
    "gelu_tanh": (lambda nn: nn.GELU(approximate="tanh"), (7,)),
    "silu": (lambda nn: nn.SiLU(), (7,)),
    "sigmoid": (lambda nn: nn.Sigmoid(), (7,)),
    "tanh": (lambda nn: nn.Tanh(), (7,)),
    "softmax": (lambda nn: nn.Softmax(dim=1), (2, 3, 2)),
    "flatten": (lambda nn: nn.Flatten(), (2, 3, 2)),
    "identity": (lambda nn: nn.Identity(5, unused=True), (3,)),
}
LAYERS = {
    "linear": [
        [4.33593, 0.176769, 0.251952],
        [-0.113137, 2.334373, 0.229115],
        [-0.487619, -0.073117, 0.918801],
        [-0.523688, -0.12802, 1.006006],
    ],
    "linear_without_bias": [
        [-0.79221, -0.67119, -0.327056],
        [0.401809, 0.524069, -0.223997],
        [-0.281657, -0.299588, 0.372976],
    ],
    "layer_norm": [
        [5.267416, 0.622585, -3.855273],
        [-0.0, 0.356137, 0.438975],
        [16.549046, 1.573408, 0.88782],
        [-0.557543, -0.800426, -0.603892],
    ],
    "layer_norm_without_bias": [
        [0.463477, -0.266208, -0.459027],
        [0.0, -0.550692, -0.599117],
        [8.013319, 2.739716, 0.306667],
    ],
    "batch_norm_1d": [
        [-0.355635, 0.173672, 2.565721],
        [-0.0, 6e-06, 1e-06],
        [10.701511, 2.778885, 0.272389],
        [0.238375, 0.258792, -0.262651],
        [0.004768, 0.005176, -0.005253],
        [2.891108, 0.761058, 0.016692],
        [1, 0.963558, 0.863209],
    ],
    "batch_norm_1d_of_lengths": [
        [-0.569016, -0.863853, 0.543113],
        [-0.0, -1.7e-05, -1e-05],
        [16.943354, 4.465787, 0.044994],
        [-0.557543, -0.513748, -0.16284],
        [-0.020908, -0.019266, -0.006106],
        [2.612648, 0.688926, 0.007193],
        [1, 0.963558, 0.863209],
    ],
    "batch_norm_2d": [
        [7.015152, 3.35096, 3.364528],
        [-0.0, 6.4e-05, 6.7e-05],
        [25.365161, 18.764565, -0.08182],
        [-0.214831, -1.182734, -3.963281],
        [-0.011935, -0.065707, -0.220182],
        [1.051316, 0.777999, -0.002385],
        [1, 0.963558, 0.863209],
    ],
    "batch_norm_2d_in_eval": [
        [5.329006, 2.349401, 2.372923],
        [-1.686146, 2.195961, 2.352692],
        [18.453748, 13.668155, 0.004341],
        [-0.214831, -1.182734, -3.963281],
        [0.0, 0.0, 0.0],
        [2.0, 1.47906, -0.008366],
        [0, 0.0, 0.0],
    ],
    "conv_2d": [
        [0.591654, -4.17195, 1.872432],
        [-2.262085, 1.179646, 0.29699],
        [0.415997, 3.720361, -1.602619],
        [-1.246721, 0.479314, -2.459743],
    ],
    "conv_2d_in_groups": [
        [-0.007234, 1.355854, 0.091406],
        [0.265406, 0.888272, 0.917253],
        [-0.564517, 0.027768, -0.623603],
    ],
    "conv_2d_same": [
        [7.031167, -0.645427, -0.763575],
        [3.925077, 1.625029, -1.697204],
        [-1.044724, 6.198415, 17.135883],
        [1.139403, 0.943215, 0.384707],
    ],
    "max_pool_2d": [[6.795202, 0.244088, -0.300991], [0.646209, 2.806638, 1.574163]],
    "max_pool_2d_padded": [[8.334308, -0.109723, -0.048225], [-0.119797, 0.460895, -0.838058]],
    "avg_pool_2d": [[-0.613109, -0.757505, -0.014808], [-0.613109, -0.757505, -0.014807]],
    "relu": [[2.470119, 1.383981, -0.833934], [2.470119, 1.383981, -0.833934]],
    "gelu": [[1.410234, 1.209274, -0.954565], [2.442215, 1.360216, -0.887544]],
    "gelu_tanh": [[1.409754, 1.209204, -0.954586], [2.440909, 1.36003, -0.887583]],
    "silu": [[0.967786, 1.144372, -0.982743], [1.742396, 1.258125, -0.933561]],
    "sigmoid": [[3.552891, 1.213064, -0.055481], [0.059506, 0.463288, -0.428183]],
    "tanh": [[0.235983, 1.813397, -1.664449], [0.271379, 1.438826, -1.05641]],
    "softmax": [[4.0, 0.670112, 0.185839], [-0.0, -0.05282, 0.257638]],
    "flatten": [[-0.557191, 1.589249, -0.084729], [-0.557191, 1.589249, -0.084729]],
    "identity": [[-0.742254, -0.459643, 0.995285], [-0.742254, -0.459643, 0.995285]],
}


def summary(value):
    """A few numbers that a wrong element would change: the sum, and weighted sums."""
    flat = value.detach().reshape(-1).tolist()
    weighed = [sum(math.sin(k * (i + 1)) * x for i, x in enumerate(flat)) for k in (1.3, 2.1)]
    return [round(x, 6) for x in (sum(flat), *weighed)]


def layer_numbers(torch, name, device=None):
    """Of the result, of each gradient, of each buffer."""
    make, shape = CASES[name]
    module = fill(torch, make(torch.nn), device)
    x = waves(torch, *shape, device=device).requires_grad_()
    y = module(x)
    (y * waves(torch, *y.shape, device=device)).sum().backward()
    return [
        summary(v) for v in (y, x.grad, *(p.grad for p in module.parameters()), *module.buffers())
    ]


@pytest.mark.parametrize("name", CASES)
def test_layer(name, device):
    for mine, theirs in zip(layer_numbers(rl, name, device), LAYERS[name], strict=True):
        assert mine == pytest.approx(theirs, rel=3e-5, abs=3e-5)


# ---- a tiny GPT: plain, under a budget, checkpointed ----


def make_block(torch, width, dropout):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
            self.qkv = nn.Linear(width, 3 * width)
            self.network = nn.Sequential(
                nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
            )
            self.dropout = nn.Dropout(dropout)

        def forward(self, x):
            batch, time, width = x.shape
            parts = self.qkv(self.norms[0](x)).view(batch, time, 3, 2, width // 2)
            q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.dropout(seen.transpose(1, 2).reshape(batch, time, width))
            return x + self.dropout(self.network(self.norms[1](x)))

    return Block()


def train_tiny(
    torch, device=None, dropout=0.0, run_block=lambda block, x: block(x), steps=3, size=(2, 8)
):
    """Losses and parameters of a few AdamW steps."""
    nn, F = torch.nn, torch.nn.functional
    model = nn.ModuleDict({"token": nn.Embedding(11, 16), "head": nn.Linear(16, 11)})
    for i in range(2):
        model[f"block{i}"] = make_block(torch, 16, dropout)
    fill(torch, model, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batch, time = size
    indices = [(i * i + 3 * i) % 11 for i in range(batch * time + 1)]
    x, y = (
        torch.tensor(part, device=device).reshape(batch, time)
        for part in (indices[:-1], indices[1:])
    )
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        seen = model["token"](x)
        for i in range(2):
            seen = run_block(model[f"block{i}"], seen)
        loss = F.cross_entropy(model["head"](seen).flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return SimpleNamespace(
        losses=losses, parameters=[p.detach().tolist() for p in model.parameters()], model=model
    )


TINY = [3.494107723236084, 2.3794846534729004, 2.1762754917144775]


def test_tiny_gpt_learns_as_in_pytorch(device):
    assert train_tiny(rl, device).losses == pytest.approx(TINY, rel=1e-5)


@pytest.mark.parametrize("name", ["cpu", "webgpu", "cuda"])
def test_tiny_gpt_gives_the_same_bits(name, require_device):
    """Plain, checkpointed, and under a budget of three fifths of its activations' peak.

    With dropout.
    """
    device = require_device(name)
    memory = rl.memory

    def run(**how):
        rl.manual_seed(7)
        memory.reset_peak(device)
        before = memory.allocated(device)
        run = train_tiny(rl, device, dropout=0.2, size=(4, 32), **how)
        run.peak = memory.peak(device) - before
        return run

    plain = run()
    checkpointed = run(run_block=checkpoint)
    persistent = 4 * sum(p.nbytes for p in plain.model.parameters())  # with gradients and two means
    again = memory.recomputed()["calls"]
    with memory.budget(memory.allocated(device) + (2 * persistent + 3 * plain.peak) // 5, device):
        limited = run()
    assert memory.recomputed()["calls"] > again
    assert checkpointed.peak < plain.peak
    assert checkpointed.losses == limited.losses == plain.losses
    assert checkpointed.parameters == limited.parameters == plain.parameters


# ---- modules ----


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False))
        self.scale = nn.Parameter(rl.ones(1))
        self.register_buffer("seen", rl.zeros(1))
        self.register_buffer("scratch", rl.zeros(1), persistent=False)

    def forward(self, x):
        return self.second(self.first(x)) * self.scale


NAMES = ["scale", "first.weight", "first.bias", "second.1.weight"]


def test_walks():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert [name for name, _ in net.named_modules()] == [
        "",
        "first",
        "second",
        "second.0",
        "second.1",
    ]
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert [name for name, _ in net.named_buffers()] == ["seen", "scratch"]
    assert list(net.state_dict()) == ["scale", "seen", *NAMES[1:]]
    assert net.get_submodule("second.1") is net.second[1]
    assert net.get_parameter("second.1.weight") is net.second[1].weight
    assert list(net._parameters) == ["scale"]
    visited = []
    net.apply(visited.append)
    assert visited == [net.first, net.second[0], net.second[1], net.second, net]


def test_tied_parameters_count_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias", "1.bias"]
    assert "1.weight" in net.state_dict()
    twin = copy.deepcopy(net)
    assert twin[1].weight is twin[0].weight
    assert twin[0].weight is not net[0].weight


def test_members_by_assignment():
    net = Net()
    with pytest.raises(
        TypeError, match=r"Net.scale is a parameter: assign an nn.Parameter or None, got Tensor"
    ):
        net.scale = rl.ones(1)
    net.scale = None
    assert [name for name, _ in net.named_parameters()] == NAMES[1:]
    net.seen = rl.ones(1)
    assert [name for name, _ in net.named_buffers()] == ["seen", "scratch"]
    del net.first
    assert [name for name, _ in net.named_children()] == ["second"]
    with pytest.raises(AttributeError, match="first"):
        _ = net.first
    net.plain = 3
    assert net.plain == 3
    with pytest.raises(KeyError, match="already has an attribute 'forward'"):
        net.register_buffer("forward", None)
    with pytest.raises(KeyError, match="must not contain"):
        net.add_module("a.b", nn.ReLU())


def test_init_comes_first():
    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.ReLU()

    with pytest.raises(
        AttributeError, match=r"call super\(\).__init__\(\) before assigning 'layer'"
    ):
        Early()


def test_train_and_eval_reach_everything():
    net = nn.Sequential(nn.Dropout(0.9), nn.Sequential(nn.Dropout(0.9)))
    x = rl.ones(50)
    assert net.eval()(x).tolist() == x.tolist()
    assert not any(module.training for module in net.modules())
    assert net.train()(x).tolist() != x.tolist()


def test_requires_grad_and_zero_grad():
    net = Net()
    net.first.requires_grad_(False)
    net(rl.ones(1, 2)).sum().backward()
    assert [p.grad is not None for p in net.parameters()] == [True, False, False, True]
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0.0]
    net.zero_grad()
    assert net.scale.grad is None


def test_hooks():
    net = nn.Linear(2, 2)
    seen = []
    before = net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    after = net.register_forward_hook(
        lambda module, args, result: seen.append((args[0].tolist(), result.shape))
    )
    x = rl.ones(1, 2)
    doubled = net(x)
    assert seen == [([[2.0, 2.0]], (1, 2))]
    before.remove()
    after.remove()
    assert net(x * 2).tolist() == doubled.tolist()
    assert len(seen) == 1
    net.register_forward_hook(
        lambda module, args, named, result: result * named["input"].sum(), with_kwargs=True
    )
    assert net(input=x).tolist() == (F.linear(x, net.weight, net.bias) * 2).tolist()


def test_to_keeps_the_parameters(device):
    net = Net()
    parameters = list(net.parameters())
    net(rl.ones(1, 2)).sum().backward()
    values = [p.tolist() for p in parameters]
    assert net.to(device) is net
    assert all(p is q for p, q in zip(parameters, net.parameters(), strict=True))
    assert {v.device.type for p in parameters for v in (p, p.grad)} == {device}
    assert net.seen.device.type == device
    assert [p.tolist() for p in parameters] == values
    net(rl.ones(1, 2, device=device)).sum().backward()


def test_to_casts_floats_only():
    net = nn.BatchNorm1d(2).to(rl.float64)
    assert net.weight.dtype is net.running_mean.dtype is rl.float64
    assert net.num_batches_tracked.dtype is rl.int64
    net(rl.ones(3, 2, dtype=rl.float64)).sum().backward()
    assert net.weight.grad.dtype is rl.float64
    with pytest.raises(TypeError, match="floating-point"):
        net.to(rl.int64)


def test_pickle_and_deepcopy_keep_what_a_module_is():
    net = Net()
    net.first.bias.requires_grad_(False)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert [name for name, _ in twin.named_parameters()] == NAMES
        assert all(type(p) is nn.Parameter for p in twin.parameters())
        assert [p.requires_grad for p in twin.parameters()] == [True, True, False, True]
        assert [p.tolist() for p in twin.parameters()] == [p.tolist() for p in net.parameters()]
        twin.scale.grad = rl.ones(1)
        assert net.scale.grad is None


def test_state_travels():
    net, other = Net(), Net()
    assert repr(other.load_state_dict(net.state_dict())) == "<All keys matched successfully>"
    assert [p.tolist() for p in other.parameters()] == [p.tolist() for p in net.parameters()]
    assert other.first.weight is not net.first.weight
    state = {"first.weight": rl.ones(3, 2), "extra": rl.ones(1)}
    left = other.load_state_dict(state, strict=False)
    assert left.unexpected_keys == ["extra"]
    assert left.missing_keys == ["scale", "seen", "first.bias", "second.1.weight"]
    assert other.first.weight.tolist() == [[1.0, 1.0]] * 3


def test_load_says_all_that_does_not_fit():
    net = Net()
    before = net.scale.item()
    state = net.state_dict()
    del state["seen"]
    state |= {"extra": rl.ones(1), "first.weight": rl.ones(4, 2), "first.bias": 3}
    state["scale"] = rl.zeros(1)
    with pytest.raises(rl.RushlightError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert "unexpected keys: extra" in text
    assert "missing keys: seen" in text
    assert "first.weight: shape [4, 2] in the state, [3, 2] in the module" in text
    assert "first.bias: a tensor is needed, got int" in text
    assert net.scale.item() == before  # nothing was loaded in part


def test_load_by_assignment():
    net = Net()
    given = rl.zeros(1)
    net.load_state_dict({"scale": given}, strict=False, assign=True)
    assert type(net.scale) is nn.Parameter
    assert net.scale._memory is given._memory


def test_containers():
    chain = nn.Sequential({"a": nn.ReLU(), "b": nn.Tanh()})
    assert [name for name, _ in chain.named_children()] == ["a", "b"]
    layers = nn.ModuleList([nn.ReLU()])
    layers.append(nn.Tanh()).extend([nn.Sigmoid()])
    layers.insert(0, nn.Identity())
    del layers[1]
    assert [type(m).__name__ for m in layers] == ["Identity", "Tanh", "Sigmoid"]
    assert [type(m).__name__ for m in layers[1:]] == ["Tanh", "Sigmoid"]
    assert len(layers) == 3
    assert layers[-1] is list(layers)[2]
    table = nn.ModuleDict({"x": nn.ReLU()})
    table["y"] = nn.Tanh()
    assert list(table) == ["x", "y"]
    assert "x" in table
    assert [m for _, m in table.items()] == list(table.values())


def test_repr_is_pytorchs():
    block = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.ReLU(inplace=True)
    )
    net = nn.ModuleDict(
        {"body": nn.ModuleList([block, copy.deepcopy(block)]), "drop": nn.Dropout(0.1)}
    )
    assert repr(net) == (
        "ModuleDict(\n"
        "  (body): ModuleList(\n"
        "    (0-1): 2 x Sequential(\n"
        "      (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)\n"
        "      (1): BatchNorm2d(2, eps=1e-05, momentum=0.1, affine=True, bias=True, "
        "track_running_stats=True)\n"
        "      (2): ReLU(inplace=True)\n"
        "    )\n"
        "  )\n"
        "  (drop): Dropout(p=0.1, inplace=False)\n"
        ")"
    )


def test_embedding_padding_stays_zero():
    table = nn.Embedding(4, 3, padding_idx=-1)
    assert table.weight[3].tolist() == [0.0] * 3
    table(rl.tensor([0, 3, 3])).sum().backward()
    assert table.weight.grad.tolist() == [[1.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3]


def test_losses_are_the_functions():
    x, y = rl.randn(4, 3), rl.tensor([0, 2, 1, 2])
    weight = rl.tensor([1.0, 2.0, 3.0])
    loss = nn.CrossEntropyLoss(weight, ignore_index=1, label_smoothing=0.1)
    assert (
        loss(x, y).item()
        == F.cross_entropy(x, y, weight, ignore_index=1, label_smoothing=0.1).item()
    )
    assert nn.MSELoss(reduction="sum")(x, x + 2).item() == pytest.approx(48.0, rel=1e-5)


def test_batch_norm_wants_a_batch():
    with pytest.raises(
        rl.ShapeError, match=r"BatchNorm2d: input must have 4 dimensions, got shape \[2, 3\]"
    ):
        nn.BatchNorm2d(3)(rl.ones(2, 3))


# ---- initialisation ----


@pytest.mark.parametrize(
    "fill_in, low, high, deviation",
    [
        (lambda w: nn.init.uniform_(w, -2, 4), -2, 4, 6 / math.sqrt(12)),
        (lambda w: nn.init.normal_(w, std=0.5), -math.inf, math.inf, 0.5),
        (lambda w: nn.init.xavier_uniform_(w, gain=2), -0.28285, 0.28285, math.sqrt(8 / 300)),
        (lambda w: nn.init.kaiming_uniform_(w), -0.24495, 0.24495, math.sqrt(2 / 100)),
        (
            lambda w: nn.init.kaiming_uniform_(w, math.sqrt(5), "fan_out"),
            -0.0707107,
            0.0707107,
            0.0707107 / math.sqrt(3),
        ),
    ],
    ids=["uniform", "normal", "xavier", "kaiming", "kaiming_fan_out"],
)
def test_distributions(fill_in, low, high, deviation):
    rl.manual_seed(3)
    weight = nn.Parameter(rl.empty(200, 100))
    assert fill_in(weight) is weight
    values = weight.detach().numpy()
    assert low <= values.min()
    assert values.max() <= high
    assert values.std() == pytest.approx(deviation, rel=0.03)
    assert abs(values.mean() - (low + high) / 2 if math.isfinite(low) else values.mean()) < 0.05


def test_layers_start_as_pytorchs():
    rl.manual_seed(3)
    for layer in (nn.Linear(16, 300), nn.Conv2d(4, 300, 2)):
        for values in (layer.weight.detach().numpy(), layer.bias.detach().numpy()):
            assert abs(values).max() <= 0.25
            assert values.std() == pytest.approx(0.25 / math.sqrt(3), rel=0.1)
    assert nn.Embedding(100, 50).weight.detach().numpy().std() == pytest.approx(1.0, rel=0.05)
    assert nn.init.constant_(rl.empty(2), 3).tolist() == [3.0, 3.0]
    assert nn.init.ones_(rl.empty(2)).tolist() == [1.0, 1.0]
    assert nn.init.zeros_(rl.empty(2)).tolist() == [0.0, 0.0]


# ---- gradients together ----


@pytest.mark.parametrize("order, norm", [(2.0, 13.0), (1.0, 19.0), (math.inf, 12.0)])
def test_clip_grad_norm(order, norm):
    p, q = (rl.zeros(2, requires_grad=True) for _ in range(2))
    p.grad, q.grad = rl.tensor([3.0, -4.0]), rl.tensor([12.0, 0.0])
    assert nn.utils.clip_grad_norm_([p, q], 100.0, order).item() == pytest.approx(norm)
    assert q.grad.tolist() == [12.0, 0.0]
    nn.utils.clip_grad_norm_([p, q], norm / 2, order)
    assert p.grad.tolist() + q.grad.tolist() == pytest.approx([1.5, -2.0, 6.0, 0.0], rel=1e-5)
    q.grad = rl.tensor([math.inf, 0.0])
    with pytest.raises(rl.RushlightError, match="not finite"):
        nn.utils.clip_grad_norm_([p, q], 1.0, order, error_if_nonfinite=True)


if __name__ == "__main__":
    import torch

    for name in CASES:
        print(f'    "{name}": {layer_numbers(torch, name)},')
    print("TINY =", train_tiny(torch).losses)


@pytest.mark.parametrize(
    "layer",
    [
        rl.nn.BatchNorm1d(4, bias=False),
        rl.nn.GroupNorm(2, 4, bias=False),
        rl.nn.InstanceNorm1d(4, affine=True, bias=False),
        rl.nn.LayerNorm(3, bias=False),
    ],
)
def test_norms_without_shifts(layer):
    assert layer.bias is None and layer.weight is not None and "bias=False" in repr(layer)
    x = rl.randn(5, 4, 3)
    y = layer(x)
    assert y.shape == x.shape and "bias" not in layer.state_dict()
    layer.reset_parameters()
