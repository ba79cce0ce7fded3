"""The base classes of pipes.

# Note [Iterators of pipes]
1. An iterable pipe has one iterator at a time: `__iter__` calls `reset()` and makes older iterators
   raise, as PyTorch's do. It is put around every class's `__iter__`.
2. What an iterator keeps lies in the pipe or in a generator; a pipe is copied and pickled by its
   attributes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from rushlight.utils.data.dataset import Dataset, IterableDataset

T = TypeVar("T", covariant=True)


def stale(pipe: Any) -> RuntimeError:
    """The error of an iterator after the pipe made another."""
    return RuntimeError(
        f"{type(pipe).__name__}: this iterator has been invalidated because another iterator has "
        "been created from the same IterDataPipe; a pipe has one at a time (use fork() for more)"
    )


class _OneAtATime(Iterator[Any]):
    """An iterator of a pipe, which ends with an error when the pipe makes another."""

    def __init__(self, pipe: Any, inner: Iterator[Any], number: int) -> None:
        self.pipe, self.inner, self.number = pipe, inner, number

    def __next__(self) -> Any:
        if self.pipe._valid_iterator_id != self.number:
            raise stale(self.pipe)
        return next(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


def _with_one_iterator(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(own)
    def begin(self: Any) -> Any:
        if self._inside_iter:  # a class's own __iter__, called by that of its subclass
            return own(self)
        self._valid_iterator_id += 1
        number = self._valid_iterator_id
        self._inside_iter = True
        try:
            self.reset()
            inner = own(self)
        finally:
            del self._inside_iter
        return _OneAtATime(self, inner, number)

    return begin


class _Registered:
    """Classes by the method that makes them of a pipe."""

    functions: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        found = type(self).functions.get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        made = functools.partial(found, self)
        functools.update_wrapper(made, found)
        return made

    @classmethod
    def register_function(cls, function_name: str, function: Any) -> None:
        """Give pipes a method.

        Args:
            function_name (str): Its name.
            function (callable): Called with the pipe and the method's arguments.
        """
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Give pipes a method that makes a class of pipes; once for a name.

        Args:
            function_name (str): Its name.
            cls_to_register (type): The class.
            enable_df_api_tracing (bool): Has no effect.
        """
        if function_name in cls.functions:
            raise Exception(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]


class IterDataPipe(_Registered, IterableDataset[T]):
    """An iterable dataset that is a step of a pipeline. See Note [Iterators of pipes].

    A subclass defines `__iter__`; `reset()` is called before each iteration.
    """

    functions: ClassVar[dict[str, Any]] = {}
    _valid_iterator_id = 0
    _inside_iter = False

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        own = cls.__dict__.get("__iter__")
        if own is not None and not getattr(cls, "_counts_iterators", False):
            cls.__iter__ = _with_one_iterator(own)  # type: ignore[method-assign]

    def reset(self) -> None:
        """Forget what an iteration kept; called before each."""


class MapDataPipe(_Registered, Dataset[T]):
    """A dataset by index that is a step of a pipeline: a subclass defines `__getitem__`."""

    functions: ClassVar[dict[str, Any]] = {}


class DataChunk(list[Any]):
    """A batch: a list that tells its elements apart from those of its batches."""

    def __init__(self, items: Any) -> None:
        kept = list(items)
        super().__init__(kept)
        self.items = kept

    def as_str(self, indent: str = "") -> str:
        """The elements as text."""
        return f"{indent}[{', '.join(map(str, self))}]"

    def raw_iterator(self) -> Iterator[Any]:
        """The elements."""
        yield from self.items


def length_of(pipe: Any, source: Any) -> int:
    """The length of a pipe's source; TypeError where it has none."""
    try:
        return len(source)
    except TypeError:
        raise no_length(pipe) from None


def no_length(pipe: Any) -> TypeError:
    """The error of a pipe whose length is not known."""
    return TypeError(f"{type(pipe).__name__} instance doesn't have valid length")
