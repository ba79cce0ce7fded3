"""PyTorch's `torch.fx.immutable_collections`: lists and dicts that refuse to change."""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight.utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **named: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. To change the arguments of a "
        "node, assign it a changed copy: node.args = new_args"
    )


class immutable_list(list[Any]):
    """A list that does not change, and has a hash."""

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dict that does not change, and has a hash."""

    clear = pop = popitem = setdefault = update = _refuse
    __delitem__ = __ior__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self.items()),)


_pytree.register_pytree_node(
    immutable_list, lambda found: (list(found), None), lambda leaves, _: immutable_list(leaves)
)
_pytree.register_pytree_node(
    immutable_dict,
    lambda found: (list(found.values()), list(found)),
    lambda leaves, keys: immutable_dict(zip(keys, leaves, strict=True)),
)
