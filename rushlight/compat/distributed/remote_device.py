"""PyTorch's `torch.distributed.remote_device`: a device of another process, by name."""

from __future__ import annotations

from typing import Any

from rushlight.tensor import device


class _remote_device:
    """A device, and the worker's name or the rank of its process.

    Args:
        remote_device (str or device): "worker/cuda:0", "rank:1/cpu", "worker", or a local device.
    """

    def __init__(self, remote_device: Any) -> None:
        text = str(remote_device)
        place, slash, kind = text.partition("/")
        self._worker_name: str | None = None
        self._rank: int | None = None
        if not slash and _is_device(place):
            place, kind = "", place
        if text.count("/") > 1 or text == "" or text == "/" or (slash and not (place and kind)):
            raise ValueError(f"Could not parse remote_device: {remote_device}")
        self._device: Any = device(kind or "cpu")
        if place.startswith("rank:"):
            number = place.removeprefix("rank:")
            if not number.isdigit():
                raise ValueError(f"Could not parse remote_device: {remote_device}")
            self._rank = int(number)
        elif place:
            self._worker_name = place

    def worker_name(self) -> str | None:
        """The worker's name, where it was given."""
        return self._worker_name

    def rank(self) -> int | None:
        """The rank, where it was given."""
        return self._rank

    def device(self) -> Any:
        """The device in that process."""
        return self._device

    def __repr__(self) -> str:
        if self._worker_name is not None:
            return f"{self._worker_name}/{self._device}"
        return str(self._device) if self._rank is None else f"rank:{self._rank}/{self._device}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _remote_device) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _is_device(text: str) -> bool:
    try:
        device(text)
    except (RuntimeError, ValueError, TypeError):
        return False
    return True
