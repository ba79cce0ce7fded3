"""Named tuples of results, which are shown as PyTorch shows `torch.return_types`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rushlight.core.dtypes import SHOWN_PACKAGE

Kind = TypeVar("Kind", bound=type)


def returned(name: str) -> Callable[[Kind], Kind]:
    """A named tuple whose name among the return types is `name`."""

    def decorate(kind: Kind) -> Kind:
        def shown(self: Any) -> str:
            rows = [f"{field}={value!r}" for field, value in zip(kind._fields, self, strict=True)]  # type: ignore[attr-defined]
            return f"{SHOWN_PACKAGE[-1]}.return_types.{name}(\n" + ",\n".join(rows) + ")"

        kind.__repr__ = shown  # type: ignore[assignment]
        return kind

    return decorate
