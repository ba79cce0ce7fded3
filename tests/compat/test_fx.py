"""`torch.fx`: graphs of modules, run, changed and interpreted."""

from __future__ import annotations

import copy
import functools
import math
import operator
import weakref

import pytest

import rushlight
from rushlight import fx, nn
from rushlight.nn import functional as F
from rushlight.nn.functional import gelu


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.scale = nn.Parameter(rushlight.full((4,), 2.0))
        self.register_buffer("shift", rushlight.ones(4))

    def forward(self, x, *, flag=True):
        a, b = rushlight.chunk(x, 2, dim=0)
        y = F.relu(self.inner(a)) * self.scale + self.shift
        y = gelu(y).view(y.size(0), -1)[:, 1:] + math.sqrt(4) * b.sum(dim=1, keepdim=True)
        return {"y": y, "pair": (y.mean(), -b)} if flag else y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.tail = nn.Sequential(nn.Linear(3, 2), nn.Tanh())

    def forward(self, x):
        found = self.block(x)
        return self.tail(found["y"]), found["pair"][1]


@pytest.fixture
def net() -> Net:
    rushlight.manual_seed(0)
    return Net()


def same(a, b) -> bool:
    return all(rushlight.equal(p, q) for p, q in zip(a, b, strict=True))


def test_a_graph_computes_what_the_module_does(net: Net) -> None:
    x = rushlight.randn(6, 4)
    traced = fx.symbolic_trace(net)
    assert same(traced(x), net(x)) and same(traced(x * 2), net(x * 2))
    assert same(fx.Interpreter(traced).run(x), net(x))
    assert {n.op for n in traced.graph.nodes} == {
        *("placeholder", "call_function", "call_module", "call_method", "get_attr", "output")
    }
    assert [n.target for n in traced.graph.nodes if n.op == "call_module"] == [
        *("block.inner", "tail.0", "tail.1")
    ]
    targets = [n.target for n in traced.graph.nodes if n.op == "call_function"]
    assert F.relu in targets and gelu in targets and operator.mul in targets
    assert "def forward(self, x):" in traced.code and "block.inner" in str(traced.graph)
    assert rushlight.chunk.__name__ == "chunk" and not hasattr(rushlight.chunk, "asked_for")
    assert [n for n, _ in traced.named_parameters()] == [
        *("block.scale", "block.inner.weight", "block.inner.bias", "tail.0.weight", "tail.0.bias")
    ]
    traced.graph.lint()
    assert same(copy.deepcopy(traced)(x), net(x))


def test_gradients_reach_the_parameters(net: Net) -> None:
    traced = fx.symbolic_trace(net)
    traced(rushlight.randn(6, 4))[0].sum().backward()
    assert net.block.scale.grad is not None and net.tail[0].weight.grad is not None


def test_a_graph_is_changed(net: Net) -> None:
    traced = fx.symbolic_trace(net.block.inner.__class__ and net)
    for node in traced.graph.nodes:
        if node.target is F.relu:
            node.target = F.sigmoid
    output = traced.graph.output_node()
    output.args = (output.args[0][0],)
    assert traced.graph.eliminate_dead_code()
    traced.recompile()
    with pytest.raises(RuntimeError, match="is used by"):
        traced.graph.erase_node(traced.graph.nodes[0])
    x = rushlight.randn(6, 4)
    assert traced(x).shape == (3, 2) and "sigmoid" in traced.code and "neg" not in traced.code
    node = next(n for n in traced.graph.nodes if n.target == "tail.1")
    with traced.graph.inserting_after(node):
        more = traced.graph.call_function(rushlight.mul, (node, 3))
    node.replace_all_uses_with(more)
    more.args = (node, 3)
    before = traced(x)
    traced.recompile()
    assert rushlight.allclose(traced(x), before * 3)


def _leaf(x):
    return x + 1 if x.sum() > 0 else x - 1


def test_leaves_and_ways_that_depend_on_values() -> None:
    class Asks(nn.Module):
        def forward(self, x):
            return _leaf(x) * 2

    with pytest.raises(fx.TraceError, match="not known while it is traced"):
        fx.symbolic_trace(Asks())
    fx.wrap("_leaf")
    traced = fx.symbolic_trace(Asks())
    assert traced(rushlight.ones(2)).tolist() == [4, 4]
    assert traced(-rushlight.ones(2)).tolist() == [-4, -4]

    class Whole(fx.Tracer):
        def is_leaf_module(self, m, name):
            return True

    graph = Whole().trace(nn.Sequential(Asks(), nn.ReLU()))
    assert [n.op for n in graph.nodes] == ["placeholder", "call_module", "call_module", "output"]


def test_functions_are_traced_too() -> None:
    def mixed(x, y=2.0):
        return rushlight.cat([x, x * y]).sum() / rushlight.ones(2).numel()

    traced = fx.symbolic_trace(mixed)
    x = rushlight.arange(3.0)
    assert traced(x).item() == mixed(x).item() and traced(x, 3.0).item() == mixed(x, 3.0).item()


def test_proxies_add_to_a_graph_that_is_there():
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x) + 1.0

    traced = fx.symbolic_trace(Small())
    tracer = fx.proxy.GraphAppendingTracer(traced.graph)
    visited = []
    for node in traced.graph.nodes:
        visited.append(node.name)
        if node.op == "call_module":
            with traced.graph.inserting_before(node):
                (given,) = fx.node.map_arg(node.args, lambda n: fx.Proxy(n, tracer))
                made = rushlight.tanh(traced.act(given))
                node.replace_all_uses_with(made.node)
                traced.graph.erase_node(node)
    assert visited == ["x", "act", "add", "output"]  # neither what was added nor one twice
    with traced.graph.inserting_after(traced.graph.find_nodes(op="call_function")[-1]):
        last = traced.graph.output_node()
        last.args = ((fx.Proxy(last.args[0]) * 2).node,)
    traced.recompile()
    x = rushlight.tensor([-1.0, 2.0])
    assert rushlight.equal(traced(x), 2 * (x.relu().tanh() + 1))


def test_parts_of_a_graph_are_exchanged():
    def program(x, w1, w2):
        first = rushlight.cat([rushlight.neg(w1), w2]).sum()
        second = rushlight.cat([rushlight.neg(w1), w2]).sum()
        kept = rushlight.neg(w2)
        return x + rushlight.max(first) + second + rushlight.cat([kept, w1]).sum() + kept.sum()

    def pattern(a1, a2):
        return rushlight.cat([rushlight.neg(a1), a2]).sum()

    traced = fx.symbolic_trace(program)
    found = fx.replace_pattern(traced, pattern, lambda a, b: rushlight.stack([a, b]).mean())
    # The third has a call whose result is used elsewhere, too.
    assert len(found) == 2 and [match.anchor.name for match in found] == ["sum_1", "sum_2"]
    x, w1, w2 = rushlight.tensor(1.0), rushlight.tensor([1.0, 2.0]), rushlight.tensor([3.0, 5.0])
    assert traced(x, w1, w2).item() == 1 + 2.75 * 2 + (3 - 8) - 8
    assert not fx.replace_pattern(traced, pattern, pattern)
    with pytest.raises(ValueError, match="2 arguments and the replacement 1"):
        fx.replace_pattern(traced, pattern, lambda a: a)

    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ReLU()

        def forward(self, a):
            return self.inner(a) * 2

    chain = fx.symbolic_trace(lambda a: rushlight.sigmoid(rushlight.sigmoid(a)))
    fx.replace_pattern(chain, lambda a: rushlight.sigmoid(a), fx.symbolic_trace(Doubled()))
    assert chain(rushlight.tensor([-1.0, 3.0])).tolist() == [0.0, 12.0]


class Mixed(nn.Module):
    """What is computed from parameters alone, and a constant."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(rushlight.ones(3))
        self.scale = nn.Parameter(rushlight.full((3,), 2.0))
        self.register_buffer("mean", rushlight.ones(3))

    def forward(self, x):
        return (x - rushlight.ones(3) * self.mean) * (self.weight * self.scale)


def test_what_parameters_alone_give_is_computed_by_each_call() -> None:
    traced = fx.symbolic_trace(Mixed())
    x = rushlight.full((3,), 3.0)
    for _ in range(2):
        traced(x).sum().backward()
    assert traced.weight.grad.tolist() == [8, 8, 8] and traced.scale.grad.tolist() == [4, 4, 4]
    with rushlight.no_grad():
        traced.weight.mul_(5)
    assert traced(x).tolist() == [20, 20, 20]
    assert "__getattribute__" not in vars(nn.Module)


def test_constants_are_buffers_of_a_traced_module() -> None:
    traced = fx.symbolic_trace(Mixed())
    assert "_tensor_constant0" in dict(traced.named_buffers())
    copied = copy.deepcopy(traced)
    x = rushlight.full((3,), 3.0)
    assert same(copied(x), traced(x)) and copied.weight is not traced.weight
    assert copied.double()(x.double()).dtype is rushlight.float64


def test_every_kind_of_argument_is_a_placeholder() -> None:
    def program(input, X, *rest, scale=2.0, **named):
        return (input + X * rest[0]) * scale + named["more"]

    with pytest.raises(fx.TraceError, match="is no function of Python"):
        fx.symbolic_trace(functools.partial(program))
    traced = fx.symbolic_trace(program)
    one = rushlight.ones(2)
    assert [n.target for n in traced.graph.find_nodes(op="placeholder")] == [
        *("input", "X", "*rest", "scale", "**named")
    ]
    assert traced(one, one, one * 5, scale=3.0, more=one).tolist() == [19.0, 19.0]

    def by_name(input, X, *, scale=2.0):
        return input * X * scale

    traced = fx.symbolic_trace(by_name)
    assert traced(X=one, input=one).tolist() == [2.0, 2.0]
    assert traced(one, one, scale=5.0).tolist() == [5.0, 5.0]


def test_a_graph_for_one_value_refuses_another() -> None:
    def program(x, flag=False):
        return x + 1 if flag else x - 1

    traced = fx.symbolic_trace(program, {"flag": True})
    one = rushlight.ones(1)
    assert traced(one, True).item() == 2.0
    traced.graph.eliminate_dead_code()
    traced.recompile()
    with pytest.raises(RuntimeError, match="flag was True when the graph was traced, got False"):
        traced(one)


def test_a_write_is_no_dead_code() -> None:
    def program(x):
        y = x + 1
        y[0] = 5
        return y

    traced = fx.symbolic_trace(program)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    assert traced(rushlight.zeros(2)).tolist() == [5.0, 1.0]


def test_some_users_of_a_node_use_another() -> None:
    traced = fx.symbolic_trace(lambda x: rushlight.tanh(x))
    node = traced.graph.find_nodes(op="call_function")[0]
    with traced.graph.inserting_after(node):
        doubled = traced.graph.call_function(rushlight.mul, (node, 2))
    node.meta["tag"] = 1
    users = node.replace_all_uses_with(
        doubled, lambda user: user is not doubled, propagate_meta=True
    )
    traced.recompile()
    assert [user.op for user in users] == ["output"] and doubled.meta == {"tag": 1}
    assert traced(rushlight.zeros(1)).item() == 0 and traced(rushlight.ones(1)).item() > 1.5


def test_nodes_are_inserted_where_the_block_says_though_others_go() -> None:
    traced = fx.symbolic_trace(lambda x: rushlight.neg(rushlight.tanh(rushlight.sin(x))))
    sin, tanh, neg = traced.graph.find_nodes(op="call_function")
    with traced.graph.inserting_before(neg):
        with traced.graph.inserting_before(tanh):
            first = traced.graph.call_function(rushlight.cos, (sin,))
        tanh.replace_all_uses_with(first)
        traced.graph.erase_node(tanh)
        second = traced.graph.call_function(rushlight.abs, (first,))
    neg.args = (second,)
    with traced.graph.inserting_before(neg):
        last = traced.graph.call_function(rushlight.exp, (second,))
        neg.replace_all_uses_with(last)
        traced.graph.erase_node(neg)
        tail = traced.graph.call_function(rushlight.sqrt, (last,))
    traced.graph.output_node().args = (tail,)
    traced.graph.lint()
    assert [n.name for n in traced.graph.nodes] == [
        "x",
        "sin",
        "cos",
        "abs_1",
        "exp",
        "sqrt",
        "output",
    ]


def test_a_transformer_takes_nested_results() -> None:
    traced = fx.symbolic_trace(lambda x: {"a": x + 1, "b": (x * 2, [x])})
    found = fx.Transformer(traced).transform()(rushlight.ones(1))
    assert found["a"].item() == 2 and found["b"][0].item() == 2 and found["b"][1][0].item() == 1


def test_values_go_when_nothing_uses_them_any_more() -> None:
    alive = []

    class Watched(fx.Tracer):
        def is_leaf_module(self, m, name):
            return True

    class Watch(nn.Module):
        def forward(self, x):
            made = x + 1
            alive.append(weakref.ref(made._memory))
            return made

    chain = nn.Sequential(*[Watch() for _ in range(4)])
    traced = fx.GraphModule(chain, Watched().trace(chain))
    counts = []
    chain[3].register_forward_hook(
        lambda m, a, out: counts.append(sum(r() is not None for r in alive))
    )
    traced(rushlight.zeros(3))
    assert counts == [2]  # the last one's argument and result


def _a(x):
    return x * 3


fx.wrap("_a")


def test_names_of_values_hide_no_function() -> None:
    traced = fx.symbolic_trace(lambda *a: rushlight.neg(_a(a[0])))
    assert traced(rushlight.ones(1)).item() == -3
    traced = fx.symbolic_trace(lambda _neg: rushlight.neg(_neg) + _neg)
    assert traced(rushlight.ones(1)).item() == 0


def test_a_label_is_traced_as_a_pair_of_calls() -> None:
    ops = rushlight.ops.profiler

    class Labelled(fx.Tracer):
        def trace(self, root, concrete_args=None):
            begin = self.create_proxy
            with pytest.MonkeyPatch.context() as patch:
                label = rushlight.profiler.record_function
                patch.setattr(
                    label,
                    "__enter__",
                    lambda block: setattr(
                        block,
                        "proxy",
                        begin("call_function", ops._record_function_enter, (block.name,), {}),
                    ),
                )
                patch.setattr(
                    label, "__exit__", lambda block, *_: ops._record_function_exit(block.proxy)
                )
                return super().trace(root, concrete_args)

    def f(x):
        with rushlight.profiler.record_function("part"):
            return x.relu() + 1

    tracer = Labelled()
    graph = tracer.trace(f)
    traced = fx.GraphModule(tracer.root, graph)
    targets = [node.target for node in graph.nodes]
    assert targets[1] is ops._record_function_enter and ops._record_function_exit in targets
    x = rushlight.tensor([-1.0, 2.0])
    with rushlight.profiler.profile() as profile:
        assert traced(x).tolist() == [1.0, 3.0]
    assert "part" in {event.key for event in profile.key_averages()}
