"""Objects that have a state of their own: modules, optimisers, and what programs make."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """What `save` and `load` ask for its state, where it is a value of the given dict."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take a state."""
        ...
