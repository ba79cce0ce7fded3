"""PyTorch's `torch.utils.backcompat`: warnings of behaviour that changed long ago."""

from __future__ import annotations

from rushlight.core.errors import RushlightError


class Warning:
    """A switch that stays off: no call behaves as before the change, so there is nothing to say."""

    def __init__(self, what: str) -> None:
        self._what = what

    @property
    def enabled(self) -> bool:
        """False."""
        return False

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value:
            raise RushlightError(
                f"utils.backcompat.{self._what}.enabled: calls that changed with PyTorch 0.2 are "
                "not told"
            )


broadcast_warning = Warning("broadcast_warning")
keepdim_warning = Warning("keepdim_warning")
