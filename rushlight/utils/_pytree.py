"""Nested containers flattened and rebuilt: PyTorch's `torch.utils._pytree`.

Containers are tuples, lists, dicts and named tuples; anything else, None included, is a leaf. A
dict is flattened in its own order; another dict with the same keys matches it in any order
(`TreeSpec.flatten_up_to`).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import json
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from rushlight.utils.tree_containers import (
    _DICTS,
    BUILTIN_TYPES as BUILTIN_TYPES,
    CONSTANT_NODES as CONSTANT_NODES,
    CONTAINERS as CONTAINERS,
    Container as Container,
    GetAttrKey as GetAttrKey,
    KeyEntry as KeyEntry,
    MappingKey as MappingKey,
    SequenceKey as SequenceKey,
    _deregister_pytree_node as _deregister_pytree_node,
    _dict_flatten as _dict_flatten,
    _dict_flatten_with_keys as _dict_flatten_with_keys,
    _dict_unflatten as _dict_unflatten,
    _get_node_type as _get_node_type,
    _private_register_pytree_node as _private_register_pytree_node,
    _register_namedtuple as _register_namedtuple,
    _register_pytree_node as _register_pytree_node,
    container_of,
    is_namedtuple as is_namedtuple,
    is_namedtuple_class as is_namedtuple_class,
    is_namedtuple_instance as is_namedtuple_instance,
    is_structseq as is_structseq,
    is_structseq_class as is_structseq_class,
    is_structseq_instance as is_structseq_instance,
    kind_of,
    register_pytree_node as register_pytree_node,
)


class TreeSpec:
    """The structure of a tree: the container and the structures of its children.

    Args:
        type (type): The container; None for a leaf.
        context: What the container needs to be rebuilt.
        children_specs (sequence): The structures of the children.
    """

    __slots__ = ("_children", "_context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Any, children_specs: Sequence[TreeSpec]) -> None:
        self.type = type
        self._context = context
        self._children = list(children_specs)
        self.num_children = len(self._children)
        self.num_nodes: int = 1 + sum(c.num_nodes for c in self._children)
        self.num_leaves: int = 1 if type is None else sum(c.num_leaves for c in self._children)

    @property
    def context(self) -> Any:
        """What the container needs to be rebuilt."""
        return self._context

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The older name of `children()`."""
        return self._children

    def children(self) -> list[TreeSpec]:
        """The structures of the children."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The structure of one child."""
        return self._children[index]

    def is_leaf(self) -> bool:
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(
                f"tree_unflatten: {len(given)} leaves for a tree that has {self.num_leaves}: "
                f"{self!r}"
            )
        return self._build(iter(given))

    def _build(self, leaves: Any) -> Any:
        if self.type is None:
            return next(leaves)
        parts = [child._build(leaves) for child in self._children]
        return CONTAINERS[self.type].unflatten(parts, self._context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` at the leaves of this structure.

        ValueError where it does not match.
        """
        if self.type is None:
            return [tree]
        kind = _get_node_type(tree)
        if self.type in _DICTS and kind in _DICTS:
            keys = self._context[1] if self.type is defaultdict else self._context
            if len(tree) != len(keys) or any(key not in tree for key in keys):
                raise ValueError(
                    f"a {self.type.__name__} with keys {keys} is needed, got keys {list(tree)}"
                )
            parts = [tree[key] for key in keys]
        else:
            if kind is not self.type:
                raise ValueError(f"a {self.type.__name__} is needed, got {kind.__name__}")
            parts, context = CONTAINERS[kind].flatten(tree)
            same = kind is deque or context == self._context  # their `maxlen` may differ
            if len(parts) != len(self._children) or not same:
                raise ValueError(
                    f"a {self.type.__name__} of {len(self._children)} is needed, got {len(parts)}"
                )
        return [
            leaf
            for child, part in zip(self._children, parts, strict=True)
            for leaf in child.flatten_up_to(part)
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self._context, self._children) == (
            other.type,
            other._context,
            other._children,
        )

    def __hash__(self) -> int:
        return hash((self.type, self.num_nodes, self.num_leaves))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inner = [child.__repr__(indent + 2) for child in self._children]
        listed = (",\n" + " " * (indent + 2)).join(inner)
        return f"TreeSpec({self.type.__name__}, {self._context}, [{listed}])"


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def __reduce__(self) -> Any:
        return LeafSpec, ()


LEAF = LeafSpec()
PyTreeSpec = TreeSpec
PyTree = Any
SUPPORTED_NODES = CONTAINERS


def treespec_leaf() -> LeafSpec:
    """The structure of a leaf."""
    return LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple of these."""
    children = list(iterable)
    if not all(isinstance(child, TreeSpec) for child in children):
        raise ValueError(f"treespec_tuple: structures are needed, got {children!r}")
    return TreeSpec(tuple, None, children)


def treespec_dict(
    mapping: Mapping[Any, TreeSpec] | Iterable[tuple[Any, TreeSpec]] = (),
    /,
    **kwargs: TreeSpec,
) -> TreeSpec:
    """The structure of a dict of these."""
    children = dict(mapping, **kwargs)
    if not all(isinstance(child, TreeSpec) for child in children.values()):
        raise ValueError(f"treespec_dict: structures are needed, got {children!r}")
    return TreeSpec(dict, list(children), list(children.values()))


KeyPath = tuple[Any, ...]


def keystr(kp: KeyPath) -> str:
    """The way to a leaf as text, such as "['a'][0].b"."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What lies at the end of a way."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _keys(tree: Any, container: Container) -> list[tuple[Any, Any]]:
    """The children of a container with their keys."""
    if container.with_keys is not None:
        return list(container.with_keys(tree)[0])
    if isinstance(tree, dict):
        return [(MappingKey(key), value) for key, value in tree.items()]
    parts = container.flatten(tree)[0]
    if is_namedtuple_instance(tree):
        names = type(tree)._fields
        return [(GetAttrKey(name), part) for name, part in zip(names, parts, strict=True)]
    return [(SequenceKey(i), part) for i, part in enumerate(parts)]


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[KeyPath, Any]]:
    """Each leaf with the way to it."""
    container = None if is_leaf is not None and is_leaf(tree) else container_of(tree)
    if container is None:
        return [((), tree)]
    return [
        ((key, *path), leaf)
        for key, part in _keys(tree, container)
        for path, leaf in tree_leaves_with_path(part, is_leaf)
    ]


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Each leaf with the way to it, and the structure."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """`func(way, leaf)` on every leaf; with more trees, also of theirs."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    ways, leaves = [way for way, _ in found], [leaf for _, leaf in found]
    return spec.unflatten([func(*group) for group in zip(ways, leaves, *others, strict=True)])


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the structure."""
    leaves: list[Any] = []
    return leaves, _take_apart(tree, leaves, is_leaf)


def _take_apart(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    container = None if is_leaf is not None and is_leaf(tree) else container_of(tree)
    if container is None:
        leaves.append(tree)
        return LEAF
    parts, context = container.flatten(tree)
    inner = [_take_apart(part, leaves, is_leaf) for part in parts]
    return TreeSpec(_get_node_type(tree), context, inner)


def tree_unflatten(leaves: Sequence[Any], treespec: TreeSpec) -> Any:
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """The leaves, one after another."""
    container = None if is_leaf is not None and is_leaf(tree) else container_of(tree)
    if container is None:
        yield tree
    else:
        for part in container.flatten(tree)[0]:
            yield from tree_iter(part, is_leaf)


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """`func` on every leaf; with more trees, on the leaves at the same position."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten([func(*group) for group in zip(leaves, *others, strict=True)])


def _chosen(kind: Any) -> Callable[[Any], bool]:
    """Whether a leaf is of a type, of one of a tuple of types, or one that a predicate chooses."""
    if isinstance(kind, (type, tuple, types.UnionType)):
        return lambda leaf: isinstance(leaf, kind)
    return cast("Callable[[Any], bool]", kind)


def map_only(kind: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Of a function of a leaf one that leaves leaves of other types as they are."""
    chosen = _chosen(kind)

    def around(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: func(x) if chosen(x) else x

    return around


def tree_map_only(
    kind: Any,
    /,
    func: Callable[[Any], Any],
    tree: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """`func` on the leaves of a type, or of a tuple of types; the others stay."""
    return tree_map(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_all(
    pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(
    pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    return any(map(pred, tree_leaves(tree, is_leaf)))


def broadcast_prefix(
    prefix: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any]:
    """A leaf of `prefix` for every leaf of `tree`.

    a leaf of `prefix` applies to the whole subtree.
    """
    spec = tree_structure(prefix, is_leaf)
    found: list[Any] = []
    for value, part in zip(tree_leaves(prefix, is_leaf), spec.flatten_up_to(tree), strict=True):
        found += [value] * tree_structure(part).num_leaves
    return found


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether it is no container."""
    return (is_leaf is not None and is_leaf(tree)) or container_of(tree) is None


def tree_map_(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Call `func` on every leaf for its effect; the tree itself is returned."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only_(
    kind: Any,
    /,
    func: Callable[[Any], Any],
    tree: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """`tree_map_` on the leaves of a type."""
    tree_map_only(kind, func, tree, is_leaf)
    return tree


def tree_all_only(
    kind: Any,
    /,
    pred: Callable[[Any], bool],
    tree: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> bool:
    """`tree_all` of the leaves of a type."""
    return all(map(pred, filter(_chosen(kind), tree_leaves(tree, is_leaf))))


def tree_any_only(
    kind: Any,
    /,
    pred: Callable[[Any], bool],
    tree: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> bool:
    """`tree_any` of the leaves of a type."""
    return any(map(pred, filter(_chosen(kind), tree_leaves(tree, is_leaf))))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of a call's arguments."""
    return tree_leaves((args, kwargs))


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any] | None:
    """A leaf of `tree` for each leaf of a structure that it is a prefix of; None if it is not."""
    if treespec.type is None:
        return [tree] if tree_is_leaf(tree, is_leaf) else None
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if _get_node_type(tree) is not treespec.type:
        return None
    parts, context = CONTAINERS[treespec.type].flatten(tree)
    if len(parts) != treespec.num_children or context != treespec.context:
        return None
    found = [
        _broadcast_to_and_flatten(part, child, is_leaf)
        for part, child in zip(parts, treespec.children(), strict=True)
    ]
    return None if any(f is None for f in found) else [leaf for f in found for leaf in f or ()]


def register_dataclass(
    cls: type,
    *,
    field_names: Sequence[str] | None = None,
    drop_field_names: Sequence[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Treat instances of a dataclass as containers of their fields, but for those to drop."""
    fields = {f.name for f in dataclasses.fields(cls) if f.init}
    wanted = fields.difference(drop_field_names or ())
    if field_names is not None and set(field_names) != wanted:
        raise ValueError(
            f"register_dataclass: field_names does not include all dataclass fields of "
            f"{cls.__name__}, or others: {sorted(wanted.symmetric_difference(field_names))}"
        )
    names = field_names or [f.name for f in dataclasses.fields(cls) if f.init]

    def with_keys(x: Any) -> tuple[Any, Any]:
        return [(GetAttrKey(name), getattr(x, name)) for name in names], None

    register_pytree_node(
        cls,
        lambda x: ([getattr(x, name) for name in names], None),
        lambda parts, _: cls(**dict(zip(names, parts, strict=True))),
        serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=with_keys,
    )


@dataclasses.dataclass(frozen=True)
class ConstantNode:
    """The context of an object that is structure."""

    value: Any


def register_constant(cls: type) -> None:
    """Treat instances of a class as structure: they have no leaves and must be equal."""
    own: Any = cls.__eq__
    if own is object.__eq__ or cls.__hash__ is None:
        raise TypeError(
            f"register_constant: {cls.__name__} needs an `__eq__` and a `__hash__` of its own"
        )
    register_pytree_node(
        cls,
        lambda x: ([], ConstantNode(x)),
        lambda _, x: x.value,
        flatten_with_keys_fn=lambda x: ([], ConstantNode(x)),
    )
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: type) -> bool:
    """Whether it was given to `register_constant`."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


def _is_constant_holder(spec: TreeSpec) -> bool:
    return isinstance(spec.context, ConstantNode)


def _retrieve_constant(spec: TreeSpec) -> Any:
    return tree_unflatten([], spec)


# ---- structures as text ----


class EnumEncoder(json.JSONEncoder):
    """JSON with members of enumerations in contexts."""

    def default(self, o: Any) -> Any:
        if isinstance(o, enum.Enum):
            kind = type(o)
            return {
                "__enum__": True,
                "fqn": f"{kind.__module__}:{kind.__qualname__}",
                "name": o.name,
            }
        return super().default(o)


def enum_object_hook(obj: dict[str, Any]) -> Any:
    """A member of an enumeration again; other dicts stay."""
    if "__enum__" not in obj:
        return obj
    module, _, path = obj["fqn"].partition(":")
    kind = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    return cast("Any", kind)[obj["name"]]


def _dumped(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    container = CONTAINERS.get(spec.type)
    if container is None or container.name is None:
        raise NotImplementedError(
            f"treespec_dumps: {spec.type} has no name for texts; register it with "
            "serialized_type_name"
        )
    if container.dumped is None:
        context = json.dumps(spec.context, cls=EnumEncoder)
    else:
        context = container.dumped(spec.context)
    children = [_dumped(child) for child in spec.children()]
    return {"type": container.name, "context": context, "children_spec": children}


def _loaded(told: dict[str, Any]) -> TreeSpec:
    if told["type"] is None:
        return LEAF
    kind = kind_of(told["type"])
    loads = CONTAINERS[kind].loaded
    if loads is None:
        context = json.loads(told["context"], object_hook=enum_object_hook)
    else:
        context = loads(told["context"])
    return TreeSpec(kind, context, [_loaded(child) for child in told["children_spec"]])


_PROTOCOL = 1


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A structure as text, in PyTorch's form.

    Args:
        treespec (TreeSpec): The structure.
        protocol (int): 1, the only one.
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"treespec_dumps: a TreeSpec is needed, got {type(treespec).__name__}")
    if protocol not in (None, _PROTOCOL):
        raise ValueError(f"treespec_dumps: unknown protocol {protocol}; available: [1]")
    return json.dumps((_PROTOCOL, _dumped(treespec)), cls=EnumEncoder)


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure of a text of `treespec_dumps`."""
    protocol, told = json.loads(serialized)
    if protocol != _PROTOCOL:
        raise ValueError(f"treespec_loads: unknown protocol {protocol}; available: [1]")
    return _loaded(told)


pytree_to_str, str_to_pytree = treespec_dumps, treespec_loads  # the older names


class _Asterisk:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """A structure as the tree that it is, with `*` for its leaves."""
    return repr(tree_unflatten([_Asterisk()] * treespec.num_leaves, treespec))


_is_leaf = tree_is_leaf
Context = DumpableContext = Any
FlattenFunc = FlattenFn = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = UnflattenFn = Callable[[Any, Any], Any]
FlattenWithKeysFn = Callable[[Any], tuple[list[tuple[KeyPath, Any]], Any]]
ToDumpableContextFn = FromDumpableContextFn = Callable[[Any], Any]
