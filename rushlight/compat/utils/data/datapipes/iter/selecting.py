"""Pipes that leave samples out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rushlight.compat.utils.data.datapipes._decorator import functional_datapipe
from rushlight.compat.utils.data.datapipes.datapipe import IterDataPipe
from rushlight.compat.utils.data.datapipes.utils.common import (
    StreamWrapper,
    _check_unpickable_fn,
    validate_input_col,
)


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The samples for which a function is true.

    Args:
        datapipe (IterDataPipe): The samples.
        filter_fn (callable): The function.
        input_col (key, list or tuple): The columns that it takes; the whole sample without them.
    """

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        _check_unpickable_fn(filter_fn)
        validate_input_col(filter_fn, input_col)
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def _is_kept(self, sample: Any) -> bool:
        columns = self.input_col
        if columns is None:
            found = self.filter_fn(sample)
        elif isinstance(columns, (list, tuple)):
            found = self.filter_fn(*[sample[one] for one in columns])
        else:
            found = self.filter_fn(sample[columns])
        if not isinstance(found, bool):
            raise ValueError(
                "Boolean output is required for `filter_fn` of FilterIterDataPipe, got "
                f"{type(found)}"
            )
        return found

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            if self._is_kept(sample):
                yield sample
            else:
                StreamWrapper.close_streams(sample)
