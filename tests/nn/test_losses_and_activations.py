"""Losses, activations, distances, tables and lists of parameters as layers."""

from __future__ import annotations

import math

import pytest

import rushlight
import rushlight.nn.functional as F
from rushlight import nn

LOSSES = {
    "L1Loss": "l1_loss",
    "MSELoss": "mse_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "KLDivLoss": "kl_div",
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "PoissonNLLLoss": "poisson_nll_loss",
    "HingeEmbeddingLoss": "hinge_embedding_loss",
    "SoftMarginLoss": "soft_margin_loss",
    "MultiLabelSoftMarginLoss": "multilabel_soft_margin_loss",
}
ACTIVATIONS = {
    "CELU": ("celu", (0.5,)),
    "ELU": ("elu", (0.5,)),
    "GELU": ("gelu", ("tanh",)),
    "GLU": ("glu", (0,)),
    "Hardshrink": ("hardshrink", (0.3,)),
    "Hardsigmoid": ("hardsigmoid", ()),
    "Hardswish": ("hardswish", ()),
    "Hardtanh": ("hardtanh", (-0.5, 0.7)),
    "LeakyReLU": ("leaky_relu", (0.2,)),
    "LogSigmoid": ("logsigmoid", ()),
    "LogSoftmax": ("log_softmax", (1,)),
    "Mish": ("mish", ()),
    "ReLU6": ("relu6", ()),
    "SELU": ("selu", ()),
    "Softmin": ("softmin", (0,)),
    "Softplus": ("softplus", (2.0, 1.0)),
    "Softshrink": ("softshrink", (0.2,)),
    "Softsign": ("softsign", ()),
    "Tanhshrink": ("tanhshrink", ()),
    "Threshold": ("threshold", (0.1, 9.0)),
}


def pair():
    return rushlight.rand(4, 6) * 0.9 + 0.05, rushlight.rand(4, 6)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
def test_loss_is_its_function(name, reduction):
    x, y = pair()
    want = getattr(F, LOSSES[name])(x, y, reduction=reduction)
    assert rushlight.equal(getattr(nn, name)(reduction=reduction)(x, y), want)
    assert want.shape == ((4,) if name == "MultiLabelSoftMarginLoss" else (4, 6)) * (
        reduction == "none"
    )


def test_older_words_for_reductions():
    x, y = pair()
    assert nn.MSELoss(size_average=False)(x, y).item() == nn.MSELoss(reduction="sum")(x, y).item()
    assert nn.MSELoss(reduce=False)(x, y).shape == (4, 6)
    classes = rushlight.tensor([0, 1, 2, 3])
    assert (
        F.cross_entropy(x, classes, None, False).item()
        == F.cross_entropy(x, classes, reduction="sum").item()
    )


def test_losses_of_classes():
    x, _ = pair()
    classes, weight = rushlight.tensor([0, 1, 2, 5]), rushlight.arange(1.0, 7.0)
    likely = x.log_softmax(1)
    named = {"ignore_index": 2, "reduction": "sum"}
    assert nn.NLLLoss(weight, **named)(likely, classes).item() == pytest.approx(
        nn.CrossEntropyLoss(weight, **named)(x, classes).item(), rel=1e-5
    )
    assert (
        nn.MultiMarginLoss(2, 0.5, weight)(x, classes).item()
        == F.multi_margin_loss(x, classes, 2, 0.5, weight).item()
    )
    assert sorted(nn.BCEWithLogitsLoss(weight, pos_weight=weight).state_dict()) == [
        "pos_weight",
        "weight",
    ]
    joined = nn.LinearCrossEntropyLoss(6, 3, bias=True)
    logits = F.linear(x, joined.linear.weight, joined.linear.bias)
    assert joined(x, classes % 3).item() == pytest.approx(
        F.cross_entropy(logits, classes % 3).item(), rel=1e-5
    )


def test_losses_of_vectors():
    rushlight.manual_seed(0)  # the ranking loss of some draws is 0
    x, y = pair()
    z, signs = rushlight.rand(4, 6), rushlight.tensor([1.0, -1.0, 1.0, -1.0])
    assert (
        nn.CosineEmbeddingLoss(0.1)(x, y, signs).item()
        == F.cosine_embedding_loss(x, y, signs, 0.1).item()
    )
    assert nn.MarginRankingLoss(0.1)(x[:, 0], y[:, 0], signs).item() > 0
    plain = nn.TripletMarginLoss(p=2.0, swap=True)(x, y, z)
    assert nn.TripletMarginWithDistanceLoss(swap=True)(x, y, z).item() == pytest.approx(
        plain.item()
    )
    assert (
        nn.GaussianNLLLoss(full=True)(x, y, z).item()
        == F.gaussian_nll_loss(x, y, z, full=True).item()
    )
    for bad in (lambda: nn.TripletMarginLoss(margin=0.0), lambda: nn.MultiMarginLoss(p=3)):
        with pytest.raises(ValueError, match=r"margin must be positive|p is 1 or 2"):
            bad()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_is_its_function(name):
    function, args = ACTIVATIONS[name]
    x = rushlight.randn(4, 6)
    assert rushlight.equal(getattr(nn, name)(*args)(x), getattr(F, function)(x, *args))


@pytest.mark.parametrize(
    "name", ["ReLU6", "Mish", "SELU", "ELU", "LeakyReLU", "Hardtanh", "Hardswish"]
)
def test_activation_in_place(name):
    x = rushlight.randn(3, 4)
    want = getattr(nn, name)()(x)
    assert getattr(nn, name)(inplace=True)(x) is x
    assert rushlight.equal(x, want)


def test_learned_and_random_slopes():
    x = rushlight.randn(2, 3, 4)
    layer = nn.PReLU(3)
    assert layer.weight.tolist() == [0.25] * 3 and repr(layer) == "PReLU(num_parameters=3)"
    layer(x).sum().backward()
    assert layer.weight.grad.shape == (3,)
    slope = nn.RReLU(0.1, 0.3)
    assert rushlight.allclose(slope.eval()(x), F.leaky_relu(x, 0.2))
    assert rushlight.allclose(nn.Softmax2d()(x).sum(0), rushlight.ones(3, 4))
    assert repr(nn.Softplus()) == "Softplus(beta=1.0, threshold=20.0)"


def test_layers_of_two_inputs():
    x, y = pair()
    assert rushlight.equal(nn.CosineSimilarity(1)(x, y), F.cosine_similarity(x, y, 1))
    assert rushlight.equal(nn.PairwiseDistance(3.0)(x, y), F.pairwise_distance(x, y, 3.0))
    layer = nn.Bilinear(6, 6, 2)
    want = rushlight.einsum("ni,kij,nj->nk", x, layer.weight, y) + layer.bias
    assert rushlight.allclose(layer(x, y), want, atol=1e-5)
    assert nn.Unflatten(1, (2, 3))(x).shape == (4, 2, 3)


def test_tables():
    table = rushlight.randn(5, 3)
    fixed = nn.Embedding.from_pretrained(table)
    assert not fixed.weight.requires_grad and rushlight.equal(
        fixed(rushlight.tensor([4, 0])), table[[4, 0]]
    )
    bag = nn.EmbeddingBag.from_pretrained(table, freeze=False, mode="sum")
    assert rushlight.allclose(bag(rushlight.tensor([[1, 2]])), table[1:3].sum(0, keepdim=True))
    assert (
        repr(nn.Embedding(3, 4, padding_idx=1, max_norm=2.0))
        == "Embedding(3, 4, padding_idx=1, max_norm=2.0)"
    )
    assert not nn.Embedding(3, 4, padding_idx=-1).weight[2].any().item()
    with pytest.raises(ValueError, match="padding_idx 7"):
        nn.EmbeddingBag(3, 4, padding_idx=7)


def test_pools_that_undo_and_that_are_uneven():
    image = rushlight.randn(1, 2, 4, 4)
    largest, places = nn.MaxPool2d(2, return_indices=True)(image)
    assert nn.MaxUnpool2d(2)(largest, places).sum().item() == pytest.approx(
        largest.sum().item(), rel=1e-5
    )
    assert nn.FractionalMaxPool2d(2, output_ratio=0.5)(image).shape == (1, 2, 2, 2)
    with pytest.raises(ValueError, match="either"):
        nn.FractionalMaxPool3d(2)


def test_list_of_parameters():
    listed = nn.ParameterList([nn.Parameter(rushlight.zeros(2)), rushlight.ones(3)])
    listed.append("text")
    assert len(listed) == 3 and listed[-1] == "text" and isinstance(listed[1], nn.Parameter)
    assert sorted(listed.state_dict()) == ["0", "1"] and len(list(listed.parameters())) == 2
    assert len(listed[:2]) == 2 and [type(v) for v in listed[:2]] == [nn.Parameter] * 2
    listed[0] = rushlight.ones(4)
    assert next(listed.parameters()).shape == (4,)
    with pytest.raises(IndexError, match="3 entries"):
        listed[3]


def test_dict_of_parameters():
    named = nn.ParameterDict({"a": rushlight.zeros(2), "b": 3})
    named["c"] = nn.Parameter(rushlight.ones(1))
    assert list(named) == ["a", "b", "c"] and sorted(named.state_dict()) == ["a", "c"]
    assert named.pop("b") == 3 and "b" not in named and named.get("b", 7) == 7
    assert list((named | {"d": rushlight.ones(1)}).keys()) == ["a", "c", "d"] and len(named) == 2
    with pytest.raises(KeyError, match="another name"):
        named["training"] = rushlight.ones(1)


def test_batch_norm_of_processes():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm2d(2, momentum=0.3)))
    state = model.state_dict()
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert isinstance(model[1][0], nn.SyncBatchNorm) and model[1][0].momentum == 0.3
    assert sorted(model.state_dict()) == sorted(state)


def test_softmax_in_clusters():
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0)
    x, target = rushlight.randn(6, 8), rushlight.tensor([0, 3, 4, 9, 10, 19])
    output, loss = layer(x, target)
    every = layer.log_prob(x)
    assert rushlight.allclose(every.exp().sum(1), rushlight.ones(6), atol=1e-5)
    assert rushlight.allclose(output, every.gather(1, target.unsqueeze(1)).squeeze(1), atol=1e-5)
    assert loss.item() == pytest.approx(-output.mean().item())
    assert rushlight.equal(layer.predict(x), every.argmax(1))
    assert layer(x[0], target[0]).output.item() == pytest.approx(output[0].item(), rel=1e-5)
    with pytest.raises(ValueError, match="rising"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 20, [10, 4])
    with pytest.raises(RuntimeError, match="0 to 20"):
        layer(x[:2], rushlight.tensor([0, 20]))


def test_wrapped_models():
    model = nn.DataParallel(nn.Linear(2, 3))
    assert sorted(model.state_dict()) == ["module.bias", "module.weight"] and model(
        rushlight.zeros(4, 2)
    ).shape == (
        4,
        3,
    )


def test_older_names_of_functions():
    x = rushlight.randn(2, 3, 6)
    for name in ("relu", "elu", "selu", "celu", "leaky_relu", "hardtanh"):
        y = x.clone()
        assert getattr(F, name + "_")(y) is y and rushlight.equal(y, getattr(F, name)(x)), name
    values, places = F.max_pool1d_with_indices(x, 2)
    assert rushlight.equal(x.gather(2, places), values)
    weight, bias = rushlight.randn(3, 3, 4), rushlight.randn(4)
    convolved = F.conv_tbc(x.permute(2, 0, 1), weight, bias, 1)
    assert rushlight.allclose(
        convolved.permute(1, 2, 0), F.conv1d(x, weight.permute(2, 1, 0), bias, padding=1), atol=1e-5
    )


def test_a_nan_target_reaches_the_gradient_of_kl_div():
    x = rushlight.tensor([0.1, 0.2, 0.3], requires_grad=True)
    target = rushlight.tensor([float("nan"), 0.5, 0.0], requires_grad=True)
    F.kl_div(x, target, reduction="sum").backward()
    assert target.grad.isnan().tolist() == [True, False, False]
    assert x.grad.isnan().tolist() == [True, False, False]


def test_a_negative_target_is_no_target_of_kl_div():
    x = rushlight.tensor([0.1, 0.2], requires_grad=True)
    target = rushlight.tensor([-0.5, 0.5], requires_grad=True)
    loss = F.kl_div(x, target, reduction="none")
    loss.sum().backward()
    assert loss.isnan().tolist() == target.grad.isnan().tolist() == [True, False]


@pytest.mark.parametrize("count", [1, 40, 40_000])
@pytest.mark.parametrize("kind", [rushlight.int32, rushlight.int64])
def test_targets_out_of_range(count, kind, device):
    logits = rushlight.zeros(count, 5).to(device)

    def loss(bad, step=1, **named):
        target = rushlight.full((count, step), 4, dtype=kind)
        target[count // 2, 0] = bad
        found = F.cross_entropy(logits, target.to(device)[:, 0], reduction="sum", **named)
        return found.item()

    for bad in (5, -1, -101, 1 << 20):
        for step in (1, 3):
            with pytest.raises(IndexError, match="cross_entropy"):
                loss(bad, step)
            assert loss(0, step) == pytest.approx(count * math.log(5), rel=1e-4)
    for ignored in (7, -100, -1):
        assert loss(ignored, ignore_index=ignored) == pytest.approx(
            (count - 1) * math.log(5), rel=1e-4
        )


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("kind", ["uint8", "int32", "int64"])
def test_an_ignored_class_that_the_targets_cannot_hold(kind, reduction):
    x = rushlight.arange(12.0).reshape(3, 4)
    target = rushlight.tensor([0, 1, 2])
    held = target.to(getattr(rushlight, kind))
    for loss in (F.cross_entropy, F.nll_loss):
        plain = loss(x, target, reduction=reduction)
        for ignored in (1 << 32, (1 << 32) + 1, -(1 << 40), 256):
            found = loss(x, held, ignore_index=ignored, reduction=reduction)
            assert rushlight.equal(found, plain)
