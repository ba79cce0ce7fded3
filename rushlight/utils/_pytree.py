"""Nested containers flattened and rebuilt: PyTorch's `torch.utils._pytree`.

Containers are tuples, lists, dicts and named tuples; anything else, None included, is a leaf. A
dict is flattened in its own order; another dict with the same keys matches it in any order
(`TreeSpec.flatten_up_to`).
"""

from __future__ import annotations

import dataclasses
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

Parts = tuple[list[Any], Any]  # the children, and the context for rebuilding


class Container(NamedTuple):
    """The functions that flatten and rebuild one type."""

    flatten: Callable[[Any], Parts]
    unflatten: Callable[[list[Any], Any], Any]
    # Gives ((key, child) ..., context); without it children are numbered.
    with_keys: Callable[[Any], tuple[Any, Any]] | None = None

    @property
    def flatten_fn(self) -> Callable[[Any], Parts]:
        """PyTorch's name of `flatten`."""
        return self.flatten

    @property
    def unflatten_fn(self) -> Callable[[list[Any], Any], Any]:
        """PyTorch's name of `unflatten`."""
        return self.unflatten


CONTAINERS: dict[type, Container] = {
    tuple: Container(lambda t: (list(t), None), lambda parts, _: tuple(parts)),
    list: Container(lambda t: (list(t), None), lambda parts, _: parts),
    dict: Container(
        lambda t: (list(t.values()), list(t)),
        lambda parts, keys: dict(zip(keys, parts, strict=True)),
    ),
    OrderedDict: Container(
        lambda t: (list(t.values()), list(t)),
        lambda parts, keys: OrderedDict(zip(keys, parts, strict=True)),
    ),
    defaultdict: Container(
        lambda t: (list(t.values()), [t.default_factory, list(t)]),
        lambda parts, rest: defaultdict(rest[0], zip(rest[1], parts, strict=True)),
    ),
    deque: Container(lambda t: (list(t), t.maxlen), lambda parts, most: deque(parts, most)),
}
_NAMED = Container(lambda t: (list(t), type(t)), lambda parts, kind: kind._make(parts))


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten_fn: Callable[[Any, Any], Any],
    *,
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None = None,
    **_: Any,
) -> None:
    """Treat instances of `cls` as containers.

    `flatten_fn(x)` gives (children, context), `unflatten_fn(children, context)` gives x.
    """
    if cls in CONTAINERS:
        raise ValueError(f"register_pytree_node: {cls.__name__} is registered already")

    def flatten(x: Any) -> Parts:
        children, context = flatten_fn(x)
        return list(children), context

    CONTAINERS[cls] = Container(flatten, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node  # the older name


def _container(tree: Any) -> Container | None:
    kind = type(tree)
    found = CONTAINERS.get(kind)
    if (
        found is None
        and isinstance(tree, tuple)
        and hasattr(kind, "_fields")
        and hasattr(kind, "_make")
    ):
        return _NAMED
    return found


class TreeSpec:
    """The structure of a tree: the container and the structures of its children.

    `kind` is None for a leaf.
    """

    __slots__ = ("children", "context", "kind", "num_leaves")

    def __init__(
        self, kind: type | None = None, context: Any = None, children: Sequence[TreeSpec] = ()
    ) -> None:
        self.kind = kind
        self.context = context
        self.children = tuple(children)
        self.num_leaves: int = sum(c.num_leaves for c in children) if kind is not None else 1

    def is_leaf(self) -> bool:
        return self.kind is None

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(
                f"tree_unflatten: {len(given)} leaves for a tree that has {self.num_leaves}: "
                f"{self!r}"
            )
        return self._build(iter(given))

    def _build(self, leaves: Any) -> Any:
        if self.kind is None:
            return next(leaves)
        parts = [child._build(leaves) for child in self.children]
        return CONTAINERS.get(self.kind, _NAMED).unflatten(parts, self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` at the leaves of this structure.

        ValueError where it does not match.
        """
        if self.kind is None:
            return [tree]
        if type(tree) is not self.kind:
            raise ValueError(f"a {self.kind.__name__} is needed, got {type(tree).__name__}")
        if isinstance(tree, dict):
            keys = self.context[1] if self.kind is defaultdict else self.context
            if len(tree) != len(keys) or any(key not in tree for key in keys):
                raise ValueError(
                    f"a {self.kind.__name__} with keys {keys} is needed, got keys {list(tree)}"
                )
            parts = [tree[key] for key in keys]
        else:
            parts, context = CONTAINERS.get(self.kind, _NAMED).flatten(tree)
            if len(parts) != len(self.children) or context != self.context:
                raise ValueError(
                    f"a {self.kind.__name__} of {len(self.children)} is needed, got {len(parts)}"
                )
        return [
            leaf
            for child, part in zip(self.children, parts, strict=True)
            for leaf in child.flatten_up_to(part)
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.kind, self.context, self.children) == (
            other.kind,
            other.context,
            other.children,
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.num_leaves))

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        if issubclass(self.kind, dict):
            keys = self.context[1] if self.kind is defaultdict else self.context
            listed = ", ".join(
                f"{key!r}: {child!r}" for key, child in zip(keys, self.children, strict=True)
            )
            return f"{{{listed}}}" if self.kind is dict else f"{self.kind.__name__}({{{listed}}})"
        listed = ", ".join(map(repr, self.children))
        if self.kind is tuple:
            return f"({listed},)" if len(self.children) == 1 else f"({listed})"
        return f"[{listed}]" if self.kind is list else f"{self.kind.__name__}({listed})"


LEAF = TreeSpec()


LeafSpec = TreeSpec  # PyTorch's names: a structure without arguments is a leaf
PyTree = Any
SUPPORTED_NODES = CONTAINERS


def _get_node_type(tree: Any) -> Any:
    """The type under which a tree is registered."""
    return type(tree)


class MappingKey(NamedTuple):
    """A key on the way to a leaf."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


class SequenceKey(NamedTuple):
    """An index on the way to a leaf."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


class GetAttrKey(NamedTuple):
    """The name of an attribute on the way to a leaf."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


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
    if container is _NAMED:
        names = type(tree)._fields
        return [(GetAttrKey(name), part) for name, part in zip(names, parts, strict=True)]
    return [(SequenceKey(i), part) for i, part in enumerate(parts)]


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[KeyPath, Any]]:
    """Each leaf with the way to it."""
    container = None if is_leaf is not None and is_leaf(tree) else _container(tree)
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


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Sequence[Any], context: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[MappingKey, Any]], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the structure."""
    leaves: list[Any] = []
    return leaves, _take_apart(tree, leaves, is_leaf)


def _take_apart(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    container = None if is_leaf is not None and is_leaf(tree) else _container(tree)
    if container is None:
        leaves.append(tree)
        return LEAF
    parts, context = container.flatten(tree)
    return TreeSpec(type(tree), context, [_take_apart(part, leaves, is_leaf) for part in parts])


def tree_unflatten(leaves: Sequence[Any], treespec: TreeSpec) -> Any:
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


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


def tree_map_only(
    kind: Any,
    /,
    func: Callable[[Any], Any],
    tree: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """`func` on the leaves of a type, or of a tuple of types; the others stay."""
    chosen = _chosen(kind)
    return tree_map(lambda x: func(x) if chosen(x) else x, tree, is_leaf=is_leaf)


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
    return (is_leaf is not None and is_leaf(tree)) or _container(tree) is None


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
    if treespec.kind is None:
        return [tree] if tree_is_leaf(tree, is_leaf) else None
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if type(tree) is not treespec.kind:
        return None
    parts, context = CONTAINERS.get(treespec.kind, _NAMED).flatten(tree)
    if len(parts) != len(treespec.children) or context != treespec.context:
        return None
    found = [
        _broadcast_to_and_flatten(part, child, is_leaf)
        for part, child in zip(parts, treespec.children, strict=True)
    ]
    return None if any(f is None for f in found) else [leaf for f in found for leaf in f or ()]


def register_dataclass(cls: type, *, field_names: Sequence[str] | None = None, **_: Any) -> None:
    """Treat instances of a dataclass as containers of their fields."""
    names = field_names or [field.name for field in dataclasses.fields(cls) if field.init]

    def with_keys(x: Any) -> tuple[Any, Any]:
        return [(GetAttrKey(name), getattr(x, name)) for name in names], None

    register_pytree_node(
        cls,
        lambda x: ([getattr(x, name) for name in names], None),
        lambda parts, _: cls(**dict(zip(names, parts, strict=True))),
        flatten_with_keys_fn=with_keys,
    )


def register_constant(cls: type) -> None:
    """Treat instances of a class as structure: they have no leaves and must be equal."""
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x)


_is_leaf = tree_is_leaf
BUILTIN_TYPES = frozenset([tuple, list, dict, OrderedDict, defaultdict, deque])
Context = Any
FlattenFunc = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = Callable[[Any, Any], Any]
