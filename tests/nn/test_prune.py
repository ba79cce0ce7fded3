"""nn.utils.prune: weights with elements removed."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn.utils import prune


def linear() -> Any:
    net = nn.Linear(3, 2, bias=False)
    with rl.no_grad():
        net.weight.copy_(rl.tensor([[1.0, -4.0, 2.0], [6.0, -5.0, 3.0]]))
    return net


def test_the_smallest_elements_go() -> None:
    net = linear()
    prune.l1_unstructured(net, "weight", 2)
    assert net.weight.tolist() == [[0.0, -4.0, 0.0], [6.0, -5.0, 3.0]]
    assert sorted(net.state_dict()) == ["weight_mask", "weight_orig"]
    assert [name for name, _ in net.named_parameters()] == ["weight_orig"]
    net(rl.ones(1, 3)).sum().backward()
    assert net.weight_orig.grad.tolist() == [[0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    with rl.no_grad():
        net.weight_orig.mul_(2)
    assert net(rl.ones(1, 3)).tolist() == [[-8.0, 8.0]]  # the weight is recomputed before the call
    assert prune.is_pruned(nn.Sequential(net))
    prune.remove(net, "weight")
    assert isinstance(net.weight, nn.Parameter) and not prune.is_pruned(net)
    assert net.weight.tolist() == [[0.0, -8.0, 0.0], [12.0, -10.0, 6.0]] and list(
        net.state_dict()
    ) == ["weight"]


def test_a_weight_is_pruned_again_where_something_is_left() -> None:
    net = linear()
    prune.ln_structured(net, "weight", 1, n=1, dim=1)  # the columns have the norms 7, 9 and 5
    assert net.weight_mask.tolist() == [[1.0, 1.0, 0.0]] * 2
    prune.l1_unstructured(net, "weight", 0.5)
    assert net.weight.tolist() == [[0.0, 0.0, 0.0], [6.0, -5.0, 0.0]]
    prune.random_structured(net, "weight", 1, dim=0)
    assert int((net.weight_mask.sum(1) == 0).sum()) == 2 or net.weight_mask[1].tolist() == [
        1.0,
        1.0,
        0.0,
    ]


def test_several_weights_together() -> None:
    first, second = linear(), linear()
    with rl.no_grad():
        second.weight.mul_(10)
    prune.global_unstructured(
        [(first, "weight"), (second, "weight")], prune.L1Unstructured, amount=0.5
    )
    assert first.weight_mask.sum().item() == 0 and second.weight_mask.sum().item() == 6
    with pytest.raises(TypeError):
        prune.global_unstructured([(first, "weight")], prune.LnStructured, amount=1, n=2)


def test_scores_and_masks_of_ones_own() -> None:
    net = linear()
    prune.l1_unstructured(net, "weight", 1, importance_scores=-net.weight.detach())
    assert net.weight_mask.tolist() == [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    prune.custom_from_mask(net, "weight", rl.tensor([[1, 0, 1], [1, 1, 1]]))
    assert net.weight_mask.tolist() == [[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
    method = prune.RandomUnstructured(0.5)
    assert (method.prune(rl.ones(4, 5)) == 0).sum().item() == 10


def test_what_pruning_refuses() -> None:
    net = linear()
    for amount, error in (
        ("half", TypeError),
        (-1, ValueError),
        (1.5, ValueError),
        (7, ValueError),
    ):
        with pytest.raises(error):
            prune.l1_unstructured(net, "weight", amount)
        assert isinstance(net.weight, nn.Parameter) and not prune.is_pruned(net)
    with pytest.raises(ValueError, match="dimensions"):
        prune.random_structured(nn.Linear(2, 2), "bias", 1, dim=0)
    with pytest.raises(ValueError, match="not pruned"):
        prune.remove(net, "weight")
    with pytest.raises(ValueError, match="shape"):
        prune.l1_unstructured(net, "weight", 1, importance_scores=rl.ones(2))
