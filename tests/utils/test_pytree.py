"""`utils._pytree`: PyTorch's structures, keys and texts; the texts are PyTorch 2.13's."""

from __future__ import annotations

import dataclasses
import pickle
import time
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest

from rushlight.utils import _pytree as pytree

Point = namedtuple("Point", "x y")
LEAF = pytree.treespec_leaf()
TREE: Any = {
    "a": [1, (2, 3)],
    "o": OrderedDict(z=1),
    "d": defaultdict(list, {"k": 2}),
    "q": deque([1, 2], maxlen=4),
}
TEXT = (
    '[1, {"type": "builtins.dict", "context": "[\\"a\\", \\"o\\", \\"d\\", \\"q\\"]", "childr'
    'en_spec": [{"type": "builtins.list", "context": "null", "children_spec": [{"type'
    '": null, "context": null, "children_spec": []}, {"type": "builtins.tuple", "cont'
    'ext": "null", "children_spec": [{"type": null, "context": null, "children_spec":'
    ' []}, {"type": null, "context": null, "children_spec": []}]}]}, {"type": "collec'
    'tions.OrderedDict", "context": "[\\"z\\"]", "children_spec": [{"type": null, "cont'
    'ext": null, "children_spec": []}]}, {"type": "collections.defaultdict", "context'
    '": {"default_factory_module": "builtins", "default_factory_name": "list", "dict_'
    'context": ["k"]}, "children_spec": [{"type": null, "context": null, "children_sp'
    'ec": []}]}, {"type": "collections.deque", "context": "4", "children_spec": [{"ty'
    'pe": null, "context": null, "children_spec": []}, {"type": null, "context": null'
    ', "children_spec": []}]}]}]'
)


def test_structures_as_text() -> None:
    spec = pytree.tree_structure(TREE)
    assert pytree.treespec_dumps(spec) == TEXT
    assert pytree.treespec_loads(TEXT) == spec == pickle.loads(pickle.dumps(spec))
    shown = "{'a': [*, (*, *)], 'o': OrderedDict([('z', *)]), "
    assert pytree.treespec_pprint(spec).startswith(shown)
    with pytest.raises(ValueError, match="unknown protocol 3"):
        pytree.treespec_dumps(spec, 3)
    with pytest.raises(NotImplementedError, match="_register_namedtuple"):
        pytree.treespec_dumps(pytree.tree_structure(Point(1, 2)))
    pytree._register_namedtuple(Point, serialized_type_name="test.Point")
    try:
        named = pytree.tree_structure([Point(1, 2)])
        assert pytree.treespec_loads(pytree.treespec_dumps(named)) == named
    finally:
        pytree._deregister_pytree_node(Point)


def test_parts_of_a_structure() -> None:
    spec = pytree.tree_structure({"a": [1, (2, 3)], "b": Point(4, 5)})
    assert (spec.type, spec.context, spec.is_leaf()) == (dict, ["a", "b"], False)
    assert (spec.num_children, spec.num_leaves, spec.num_nodes) == (2, 5, 9)
    assert [child.type for child in spec.children()] == [list, namedtuple]
    assert spec.child(1).context is Point and spec.child(1).unflatten([1, 2]) == Point(1, 2)
    assert repr(spec.child(0)) == "TreeSpec(list, None, [*,\n  TreeSpec(tuple, None, [*,\n    *])])"
    assert isinstance(pytree.tree_structure(None), pytree.LeafSpec) and pytree.LeafSpec() == LEAF
    made = pytree.treespec_dict(a=LEAF, b=pytree.treespec_tuple([LEAF]))
    assert made == pytree.tree_structure({"a": 1, "b": (2,)})


def test_dicts_match_each_other_and_deques_of_any_bound() -> None:
    spec = pytree.tree_structure({"a": 1, "b": 2})
    assert spec.flatten_up_to(OrderedDict(b=1, a=2)) == [2, 1]
    assert spec.flatten_up_to(defaultdict(int, b=1, a=2)) == [2, 1]
    bounded = pytree.tree_structure(deque([1, 2], maxlen=3))
    assert bounded.flatten_up_to(deque([5, 6])) == [5, 6]
    for other, wrong in ((Point(1, 2), (5, 6)), ([1], (5,)), ({"a": 1}, {"b": 1})):
        with pytest.raises(ValueError, match="is needed"):
            pytree.tree_structure(other).flatten_up_to(wrong)


def test_ways_to_leaves() -> None:
    found = pytree.tree_leaves_with_path({"a": [1, Point(2, 3)]})
    assert [pytree.keystr(way) for way, _ in found] == ["['a'][0]", "['a'][1].x", "['a'][1].y"]
    assert pytree.MappingKey(0) != pytree.SequenceKey(0)
    assert (
        pytree.tree_is_leaf(pytree.SequenceKey(3)) and repr(found[0][0][1]) == "SequenceKey(idx=0)"
    )
    assert next(pytree.tree_iter(TREE)) == 1 and list(pytree.tree_iter([[3], 4])) == [3, 4]
    assert pytree.map_only(int)(lambda x: x + 1)("a") == "a"


def test_kinds_of_tuples() -> None:
    now = time.localtime()
    assert pytree.is_structseq(now) and pytree.is_structseq_class(type(now))
    assert not pytree.is_structseq_instance(type(now)) and not pytree.is_namedtuple(now)
    assert pytree.is_namedtuple(Point) and not pytree.is_namedtuple_instance(Point)


def test_dataclasses_and_constants() -> None:
    @dataclasses.dataclass
    class Pair:
        x: int
        y: int = 2

    @dataclasses.dataclass(frozen=True)
    class Name:
        value: str

    class Plain:
        pass

    with pytest.raises(ValueError, match="does not include all"):
        pytree.register_dataclass(Pair, field_names=["x"])
    pytree.register_dataclass(Pair, field_names=["x"], drop_field_names=["y"])
    pytree.register_constant(Name)
    try:
        assert pytree.tree_map(lambda v: v + 1, Pair(1, 5)) == Pair(2, 2)
        leaves, spec = pytree.tree_flatten([Name("n"), 2])
        assert leaves == [2] and spec.unflatten([3]) == [Name("n"), 3]
        assert pytree.is_constant_class(Name) and not pytree.is_constant_class(Pair)
        assert pytree._retrieve_constant(spec.child(0)) == Name("n")
        with pytest.raises(TypeError, match="Plain needs an `__eq__`"):
            pytree.register_constant(Plain)
    finally:
        pytree._deregister_pytree_node(Pair)
        pytree._deregister_pytree_node(Name)
