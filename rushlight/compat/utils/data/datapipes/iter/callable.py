"""Pipes that call a function of each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rushlight.compat.utils.data.datapipes._decorator import functional_datapipe
from rushlight.compat.utils.data.datapipes.datapipe import IterDataPipe, length_of
from rushlight.compat.utils.data.datapipes.utils.common import (
    _check_unpickable_fn,
    validate_input_col,
)
from rushlight.core.errors import RushlightError
from rushlight.utils.data.collate import default_collate


def _written(sample: Any, column: Any, others: list[Any], value: Any) -> Any:
    """A sample with a value in one column, and without others."""
    made: Any = list(sample) if isinstance(sample, tuple) else sample
    if isinstance(column, int) and column == -1 and not isinstance(made, dict):
        made.append(value)
    else:
        made[column] = value
    for other in sorted(others, reverse=True) if not isinstance(made, dict) else others:
        del made[other]
    return tuple(made) if isinstance(sample, tuple) else made


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[Any]):
    """A function of each sample, or of some of its columns.

    Args:
        datapipe (IterDataPipe): The samples.
        fn (callable): The function.
        input_col (key, list or tuple): The columns that it takes; the whole sample without them.
        output_col (key): The column of its result, -1 for a new one; the input's without it, where
            it takes the place of the first and the others are left out.
    """

    def __init__(
        self,
        datapipe: Any,
        fn: Callable[..., Any],
        input_col: Any = None,
        output_col: Any = None,
    ) -> None:
        _check_unpickable_fn(fn)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        validate_input_col(fn, input_col)
        self.datapipe, self.fn = datapipe, fn
        self.input_col, self.output_col = input_col, output_col

    def _apply_fn(self, data: Any) -> Any:
        columns = self.input_col
        if columns is None:
            return self.fn(data)
        several = isinstance(columns, (list, tuple))
        value = self.fn(*[data[one] for one in columns]) if several else self.fn(data[columns])
        if self.output_col is not None:
            return _written(data, self.output_col, [], value)
        first, *others = columns if several else [columns]
        return _written(data, first, others, value)

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield self._apply_fn(sample)

    def __len__(self) -> int:
        return length_of(self, self.datapipe)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Batches as tensors.

    Args:
        datapipe (IterDataPipe): The batches.
        conversion (callable): Makes tensors of a batch.
        collate_fn (callable): The same, by its older name.
    """

    def __init__(
        self, datapipe: Any, conversion: Any = default_collate, collate_fn: Any = None
    ) -> None:
        chosen = conversion if collate_fn is None else collate_fn
        if not callable(chosen):
            raise RushlightError("collate: conversions by column are of data frames, not supported")
        super().__init__(datapipe, fn=chosen)
