"""PyTorch's `torch.optim._multi_tensor`: the optimisers with `foreach=True`."""

from __future__ import annotations

import functools
from typing import Any

from rushlight import optim


def partialclass(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A subclass whose first arguments are given.

    Args:
        cls (type): The class.
        *args: Its first arguments.
        **kwargs: Its named arguments.
    """

    class NewCls(cls):
        __init__ = functools.partialmethod(cls.__init__, *args, **kwargs)

    NewCls.__name__ = NewCls.__qualname__ = cls.__name__
    return NewCls


_WITH_LISTS = """
    ASGD Adadelta Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD
"""
_MADE = {name: partialclass(getattr(optim, name), foreach=True) for name in _WITH_LISTS.split()}
globals().update(_MADE)
