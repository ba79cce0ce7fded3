"""Decorators of pipes: functional forms, and pipes whose order may vary."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from rushlight.compat.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe


class functional_datapipe:
    """Gives pipes a method that makes the decorated class of them.

    Args:
        name (str): The method's name.
        enable_df_api_tracing (bool): Has no effect: data frames are not read.
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name
        self.enable_df_api_tracing = enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        base = next((b for b in (IterDataPipe, MapDataPipe) if issubclass(cls, b)), None)
        if base is None:
            raise TypeError(
                f"functional_datapipe: {cls.__name__} is no IterDataPipe or MapDataPipe"
            )
        base.register_datapipe_as_function(self.name, cls)
        return cls


class guaranteed_datapipes_determinism:
    """A block, or a call, after which pipes marked `non_deterministic` are refused, or not.

    Args:
        mode (bool): Whether they are refused.
    """

    mode = False

    def __init__(self, mode: bool) -> None:
        self.before = guaranteed_datapipes_determinism.mode
        guaranteed_datapipes_determinism.mode = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        guaranteed_datapipes_determinism.mode = self.before


class non_deterministic:
    """Marks a class of pipes whose order may vary.

    Args:
        arg (type or function): The class, or a function of its arguments that tells whether.
    """

    def __init__(self, arg: Any) -> None:
        if inspect.isclass(arg) and not issubclass(arg, IterDataPipe):
            raise TypeError(f"non_deterministic: {arg.__name__} is no IterDataPipe")
        if not callable(arg):
            raise TypeError(f"non_deterministic: a class or a function is needed, got {arg!r}")
        self.kind = arg if inspect.isclass(arg) else None
        self.asks: Callable[..., bool] = (lambda *_, **__: True) if self.kind is not None else arg

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self.kind is not None:
            self._check(self.kind, args, named)
            return self.kind(*args, **named)
        kind = args[0]

        @wraps(kind)
        def made(*args: Any, **named: Any) -> Any:
            self._check(kind, args, named)
            return kind(*args, **named)

        return made

    def _check(self, kind: Any, args: Any, named: Any) -> None:
        if guaranteed_datapipes_determinism.mode and self.asks(*args, **named):
            raise TypeError(
                f"{kind.__name__} may give its samples in another order, which is refused under "
                "guaranteed_datapipes_determinism"
            )
