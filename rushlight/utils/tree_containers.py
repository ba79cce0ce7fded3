"""Types of containers in nested trees, and the keys on the way to a leaf."""

from __future__ import annotations

import dataclasses
import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

Parts = tuple[list[Any], Any]  # the children, and the context for rebuilding


class Container(NamedTuple):
    """The functions that flatten and rebuild one type."""

    flatten: Callable[[Any], Parts]
    unflatten: Callable[[list[Any], Any], Any]
    # Gives ((key, child) ..., context); without it children are numbered.
    with_keys: Callable[[Any], tuple[Any, Any]] | None = None
    # In texts of structures: the type's name, and the context to and from what JSON has.
    name: str | None = None
    dumped: Callable[[Any], Any] | None = None
    loaded: Callable[[Any], Any] | None = None

    @property
    def flatten_fn(self) -> Callable[[Any], Parts]:
        """PyTorch's name of `flatten`."""
        return self.flatten

    @property
    def unflatten_fn(self) -> Callable[[list[Any], Any], Any]:
        """PyTorch's name of `unflatten`."""
        return self.unflatten

    @property
    def flatten_with_keys_fn(self) -> Callable[[Any], tuple[Any, Any]] | None:
        """PyTorch's name of `with_keys`."""
        return self.with_keys


class KeyEntry(Protocol):
    """A step on the way to a leaf."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __str__(self) -> str: ...
    def get(self, parent: Any) -> Any: ...


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A key on the way to a leaf."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """An index on the way to a leaf."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """The name of an attribute on the way to a leaf."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


def _dict_flatten(d: dict[Any, Any]) -> Parts:
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable[Any], context: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[MappingKey, Any]], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _defaultdict_dumped(context: Any) -> Any:
    factory, keys = context
    return {
        "default_factory_module": factory.__module__,
        "default_factory_name": factory.__qualname__,
        "dict_context": keys,
    }


def _defaultdict_loaded(told: Any) -> Any:
    module = importlib.import_module(told["default_factory_module"])
    return [getattr(module, told["default_factory_name"]), told["dict_context"]]


def _named_tuple_dumped(kind: Any) -> str:
    found = CONTAINERS.get(kind)
    if found is None or found.name is None:
        raise NotImplementedError(
            f"treespec_dumps: {kind} has no name for texts; register it by _register_namedtuple"
        )
    return found.name


def _named_tuple_loaded(name: str) -> Any:
    return kind_of(name)


# By type; all named tuples under `namedtuple`.
CONTAINERS: dict[Any, Container] = {
    tuple: Container(
        lambda t: (list(t), None), lambda parts, _: tuple(parts), name="builtins.tuple"
    ),
    list: Container(lambda t: (list(t), None), lambda parts, _: list(parts), name="builtins.list"),
    dict: Container(_dict_flatten, _dict_unflatten, name="builtins.dict"),
    OrderedDict: Container(
        _dict_flatten,
        lambda parts, keys: OrderedDict(zip(keys, parts, strict=True)),
        name="collections.OrderedDict",
    ),
    defaultdict: Container(
        lambda t: (list(t.values()), [t.default_factory, list(t)]),
        lambda parts, rest: defaultdict(rest[0], zip(rest[1], parts, strict=True)),
        None,
        "collections.defaultdict",
        _defaultdict_dumped,
        _defaultdict_loaded,
    ),
    deque: Container(
        lambda t: (list(t), t.maxlen),
        lambda parts, most: deque(parts, most),
        name="collections.deque",
    ),
    namedtuple: Container(
        lambda t: (list(t), type(t)),
        lambda parts, kind: kind._make(parts),
        None,
        "collections.namedtuple",
        _named_tuple_dumped,
        _named_tuple_loaded,
    ),
}
_DICTS = (dict, OrderedDict, defaultdict)  # each matches the others with the same keys
BUILTIN_TYPES = frozenset(CONTAINERS)
CONSTANT_NODES: set[type] = set()


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten_fn: Callable[[Any, Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Any], Any] | None = None,
    from_dumpable_context: Callable[[Any], Any] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None = None,
) -> None:
    """Treat instances of `cls` as containers.

    `flatten_fn(x)` gives (children, context), `unflatten_fn(children, context)` gives x. The name
    and the functions of contexts are for `treespec_dumps` and `treespec_loads`.
    """
    if cls in CONTAINERS:
        raise ValueError(f"register_pytree_node: {cls.__name__} is registered already")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(
            f"register_pytree_node: {cls.__name__} needs both or neither of "
            "to_dumpable_context and from_dumpable_context"
        )

    def flatten(x: Any) -> Parts:
        children, context = flatten_fn(x)
        return list(children), context

    CONTAINERS[cls] = Container(
        flatten,
        unflatten_fn,
        flatten_with_keys_fn,
        serialized_type_name,
        to_dumpable_context,
        from_dumpable_context,
    )


# Older and private names of it.
_register_pytree_node = _private_register_pytree_node = register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    del CONTAINERS[cls]
    CONSTANT_NODES.discard(cls)


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Give a class of named tuples a name in texts of structures."""
    named = CONTAINERS[namedtuple]
    CONTAINERS[cls] = named._replace(name=serialized_type_name)


def is_namedtuple_class(cls: Any) -> bool:
    """Whether it is a class of named tuples."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(getattr(cls, "_fields", None), tuple)
        and all(type(name) is str for name in cls._fields)  # type: ignore[attr-defined]
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_namedtuple(obj: Any) -> bool:
    """Whether it is a named tuple or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether it is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Whether it is a class of CPython's struct sequences, such as `time.struct_time`."""
    counts = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(isinstance(getattr(cls, name, None), int) for name in counts)
        and not cls.__flags__ & 1 << 10  # Py_TPFLAGS_BASETYPE
    )


def is_structseq(obj: Any) -> bool:
    """Whether it is a struct sequence or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    """Whether it is a struct sequence."""
    return is_structseq_class(type(obj))


def _get_node_type(tree: Any) -> Any:
    """The type under which a tree is registered."""
    kind = type(tree)
    if kind not in CONTAINERS and isinstance(tree, tuple) and is_namedtuple_class(kind):
        return namedtuple
    return kind


def container_of(tree: Any) -> Container | None:
    return CONTAINERS.get(_get_node_type(tree))


def kind_of(name: str) -> Any:
    """The type that has a name in texts."""
    for kind, container in CONTAINERS.items():
        if container.name == name:
            return kind
    raise NotImplementedError(f"treespec_loads: no type of containers has the name {name!r}")
