"""The functions of a kind of GPU that PyTorch has by name and that is reached as "webgpu" here."""

from __future__ import annotations


def is_available() -> bool:
    """False: such a GPU is a WebGPU device."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


def is_current_stream_capturing() -> bool:
    """False."""
    return False


def empty_cache() -> None:
    """Accepted: there is no such device."""


def manual_seed_all(seed: int) -> None:
    """Accepted: there is no such device.

    Args:
        seed (int): Has no effect.
    """


manual_seed = manual_seed_all
