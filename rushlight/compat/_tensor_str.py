"""PyTorch's `torch._tensor_str`: the text of a tensor."""

from __future__ import annotations

from typing import Any

from rushlight.printing import get_printoptions


class _Options:
    """The options of printing as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return get_printoptions()[name]
        except KeyError:
            raise AttributeError(name) from None


PRINT_OPTS = _Options()


def _tensor_str(self: Any, indent: int = 0) -> str:
    """The elements as text, without `tensor(...)` around them."""
    text = repr(self.detach())
    return text[text.index("(") + 1 : text.rindex(")")]
