"""PyTorch's `torch.utils.weak`: mappings whose keys are objects, by identity, held weakly.

# Note [Weak keys]
1. Keys are compared as objects, for `==` of tensors is no bool. The reference is made once for a
   key and kept with it; its death takes the entry out.
2. A tensor that a program dropped may still be an operand of the tape; it is another handle when
   it is found again, so a reference to it is dead, here as where PyTorch does not preserve it.
3. An entry does not vanish while the mapping is walked: iteration is over a copy of the keys.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref[Any]):
    """A weak reference that is equal to another where both are of one object."""

    __slots__ = ("_id",)
    _id: int

    def __new__(cls, key: Any, callback: Any = None) -> Any:
        made = super().__new__(cls, key, callback)
        made._id = id(key)
        return made

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeakIdRef):
            return NotImplemented
        mine, theirs = self(), other()
        return self is other if mine is None or theirs is None else mine is theirs

    def __ne__(self, other: object) -> bool:
        return not self == other


class TensorWeakRef:
    """A weak reference to a tensor: a call gives it, or None after its end."""

    def __init__(self, tensor: Any) -> None:
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Any:
        return self.ref()


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A mapping whose keys are objects, by identity. See Note [Weak keys].

    Args:
        dict (mapping): The first entries.
        ref_type (type): The class of the references.
    """

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:
        self.ref_type = ref_type
        self.data: Any = {}
        own = weakref.ref(self)

        def remove(dead: Any) -> None:
            found = own()
            if found is not None:
                found.data.pop(dead, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # an object without weak references
            return False

    def __len__(self) -> int:
        return sum(ref() is not None for ref in list(self.data))

    def __iter__(self) -> Iterator[Any]:
        for ref in list(self.data):
            key = ref()
            if key is not None:
                yield key

    def keyrefs(self) -> list[Any]:
        """The references to the keys."""
        return list(self.data)

    def popitem(self) -> tuple[Any, Any]:
        """Take an entry out; the last one."""
        while self.data:
            ref, value = self.data.popitem()
            key = ref()
            if key is not None:
                return key, value
        raise KeyError("popitem: the mapping is empty")

    def copy(self) -> WeakIdKeyDictionary:
        """Another mapping of the same keys and values."""
        made = type(self)(ref_type=self.ref_type)
        made.update(self)
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> WeakIdKeyDictionary:
        raise TypeError("a mapping of weak keys has no deep copy: nobody would hold the keys")

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = type(self)(other, self.ref_type)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        mine = {id(key): value for key, value in self.items()}
        return mine == {id(key): value for key, value in other.items()}

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} keys>"


WeakTensorKeyDictionary = WeakIdKeyDictionary
