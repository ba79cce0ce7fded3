"""Arguments by place and by name where PyTorch's callers give them so."""

import importlib
import pickle

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.compat import return_types
from rushlight.nn import functional as F
from rushlight.utils import _pytree

ONES, ZEROS = rl.ones(3), rl.zeros(3)


def test_native_norms_take_weights_first_and_a_last_flag():
    x = rl.arange(24.0).reshape(2, 3, 4)
    made = rl.batch_norm(x, 2 * ONES, ONES, ZEROS, ONES, False, 0.1, 1e-5, True)
    assert rl.equal(made, F.batch_norm(x, ZEROS, ONES, 2 * ONES, ONES, False))
    made = rl.layer_norm(x, [4], None, None, 1e-5, False)
    assert rl.equal(made, F.layer_norm(x, [4]))
    made = rl.group_norm(x, 3, ONES, ZEROS, 1e-5, True)
    assert rl.equal(made, F.group_norm(x, 3))


def test_modules_are_listed_with_a_memo_first():
    inner = nn.ReLU()
    chain = nn.Sequential(inner, inner)
    assert list(dict(chain.named_modules(set(), "a"))) == ["a", "a.0"]
    assert [name for name, _ in chain.named_modules(None, "a", False)] == ["a", "a.0", "a.1"]
    memo = {inner}
    assert [name for name, _ in chain.named_modules(memo)] == [""]
    assert memo == {inner, chain}
    assert len(list(chain.modules())) == 2
    assert len(list(chain.modules(remove_duplicate=False))) == 3


def test_layers_take_pytorch_s_arguments_by_place():
    table = rl.arange(6.0).reshape(3, 2)
    assert nn.Embedding.from_pretrained(table, False, 1).padding_idx == 1
    bag = nn.EmbeddingBag.from_pretrained(table, False, 1.0, 2.0, False, "sum")
    assert (bag.mode, bag.max_norm, bag.weight.requires_grad) == ("sum", 1.0, True)
    assert nn.RNNCellBase(2, 3, True, 4).weight_ih.shape == (12, 2)
    assert nn.Hardtanh(-1.0, 1.0, False, -2.0, 2.0).min_val == -2.0
    lazy = nn.LazyBatchNorm1d(bias=False)
    lazy(rl.ones(2, 3))
    assert lazy.bias is None and lazy.weight.shape == (3,)
    assert isinstance(nn.ModuleDict({"a": nn.ReLU()}).pop(key="a"), nn.ReLU)
    assert nn.ParameterDict({"a": nn.Parameter(ONES)}).get(key="b", default=1) == 1


def test_the_card_s_scaler_begins_with_the_scale():
    scaler = importlib.import_module("rushlight.cuda.amp").GradScaler(2.0**10, 2.0, 0.5, 100, False)
    assert not scaler.is_enabled()
    assert isinstance(scaler, rl.amp.GradScaler)


def test_tree_functions_take_predicates_and_leaves():
    assert _pytree.tree_all(pred=bool, tree=[1, 2])
    assert _pytree.tree_any(lambda x: x == [2], [1, [2]], is_leaf=lambda x: x == [2])
    assert _pytree.tree_map_only(lambda x: x == 1, lambda x: x + 1, [1, 5]) == [2, 5]
    assert _pytree.tree_map_only((int, str), lambda x: x * 2, [1, "a", 2.0]) == [2, "aa", 2.0]
    assert not _pytree.tree_all_only(int, lambda x: x > 1, [1, "a"])


def test_methods_take_sizes_and_names_of_pytorch():
    assert rl.ones(1).broadcast_to(2, 3).shape == (2, 3)
    assert rl.ones(1).broadcast_to((2, 3)).shape == (2, 3)
    assert rl.zeros(3).copy_(other=ONES).tolist() == [1.0] * 3
    assert rl.ones(2, dtype=rl.complex64).type() == "torch.ComplexFloatTensor"
    made = rl.sparse.sum(rl.eye(3).to_sparse(), 0, rl.float64)
    assert made.dtype is rl.float64


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("max", lambda: rl.eye(2).max(0)),
        ("topk", lambda: rl.eye(2).topk(1)),
        ("frexp", lambda: rl.frexp(rl.ones(2))),
        ("linalg_eig", lambda: rl.linalg.eig(rl.eye(2))),
        ("linalg_solve_ex", lambda: rl.linalg.solve_ex(rl.eye(2), rl.eye(2))),
    ],
)
def test_results_are_shown_by_their_return_type(name, made):
    result = made()
    kind = getattr(return_types, name)
    assert type(result) is kind is getattr(return_types, f"{name}_out")
    first = kind._fields[0]
    assert repr(result).startswith(f"rushlight.return_types.{name}(\n{first}=tensor(")
    assert type(pickle.loads(pickle.dumps(result))) is kind


def test_the_hooks_of_weights_have_pytorch_s_classes():
    hooks = importlib.import_module("rushlight.nn.utils.weight_hooks")
    layer = nn.Linear(2, 3)
    hook = hooks.WeightNorm.apply(layer, "weight", dim=0)
    assert (hook.name, hook.dim) == ("weight", 0)
    assert rl.equal(hook.compute_weight(layer), layer.weight)
    assert list(layer._forward_pre_hooks.values()) == [hook]
    hook = hooks.SpectralNorm.apply(nn.Linear(2, 3), "weight", 1, 0, 1e-12)
    assert isinstance(hook, hooks.SpectralNorm)
    with pytest.raises(RuntimeError, match=r"WeightNorm: Linear\.weight has it already"):
        nn.utils.weight_norm(layer)
