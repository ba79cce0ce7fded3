"""PyTorch's `torch.cuda`: availability, synchronisation, bytes in use, seeds.

Owns: those names. Takes: a device, number 0 being the only one. Gives: numbers.
Never: opens the card to report bytes in use: a card that is not open has 0 bytes.
"""

from __future__ import annotations

from typing import Any

from rushlight import memory, random
from rushlight.core.errors import DeviceUnavailable, OutOfMemoryError
from rushlight.cuda import amp
from rushlight.devices.shared.registry import opened, pool_of
from rushlight.lazy import shown
from rushlight.ops.create.creation import check_device, device_name
from rushlight.tensor import device as Device

__all__ = [
    "OutOfMemoryError",
    "amp",
    "current_device",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_summary",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "synchronize",
]


def __dir__() -> list[str]:
    return shown(__name__)


def _card() -> str:
    """The device that "cuda" stands for: another one than a card under `rushlight run`."""
    return device_name("cuda")


def is_available() -> bool:
    """Whether there is a usable card."""
    try:
        pool_of(_card())
    except DeviceUnavailable:
        return False
    return True


def device_count() -> int:
    """1 or 0: there is one of each kind of device."""
    return int(is_available())


def is_initialized() -> bool:
    """Whether the card is in use."""
    return any(pool.device.name == _card() for pool in opened())


def _check_card(device: Any) -> None:
    """Refuse a device that is no card, and a number other than 0."""
    if isinstance(device, int):
        check_device(_card(), max(device, 0))
    elif device is not None:
        named = Device(device)
        if named.type != "cuda":
            raise ValueError(f"cuda: a card is meant, got device {device_name(device)!r}")


def current_device() -> int:
    """The number of the card in use: 0."""
    pool_of(_card())
    return 0


def set_device(device: Any) -> None:
    """Accepts number 0.

    Args:
        device (device or int): The card; only number 0 exists.
    """
    _check_card(device)


class device:
    """A block on a card; its number is 0.

    `set_default_device` chooses where new tensors are made.
    """

    def __init__(self, device: Any) -> None:
        _check_card(device)
        self.idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def synchronize(device: Any = None) -> None:
    """Wait until all work given to the card is done.

    Args:
        device (device): The card; None for the current one.
    """
    _check_card(device)
    pool_of(_card()).device.synchronize()


def get_device_name(device: Any = None) -> str:
    """The card's name.

    Args:
        device (device): The card; None for the current one.
    """
    _check_card(device)
    return pool_of(_card()).device.limits.description.split(",")[0]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every device has bfloat16.

    Args:
        including_emulation (bool): Has no effect.
    """
    return is_available()


# ---- bytes ----


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors own.

    Args:
        device (device): The card; None for the current one.
    """
    _check_card(device)
    return memory.allocated(_card()) if is_initialized() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors owned since the start or `reset_peak_memory_stats`.

    Args:
        device (device): The card; None for the current one.
    """
    _check_card(device)
    return memory.peak(_card()) if is_initialized() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes allocated on the card: owned by tensors, and cached.

    Args:
        device (device): The card; None for the current one.
    """
    _check_card(device)
    return memory.reserved(_card()) if is_initialized() else 0


max_memory_reserved = memory_reserved


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The bytes in use and, where they were recorded, their owners: see `memory.summary`.

    Args:
        device (device): The card; None for the current one.
        abbreviated (bool): Has no effect.
    """
    _check_card(device)
    return memory.summary(_card()) if is_initialized() else "Memory on cuda: the card is not in use"


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peak.

    Args:
        device (device): The card; None for the current one.
    """
    _check_card(device)
    if is_initialized():
        memory.reset_peak(_card())


def empty_cache() -> None:
    """Free cached blocks."""
    if is_initialized():
        memory.empty_cache(_card())


# ---- random numbers: one stream for all devices ----


def manual_seed(seed: int) -> None:
    """Start the stream, which all devices share, at the beginning of `seed`.

    Args:
        seed (int): The seed.
    """
    random.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Start the stream at a random seed."""
    random.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the stream."""
    return random.initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of the stream.

    Args:
        device (device): Has no effect: all devices share one stream.
    """
    return random.get_rng_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Restore a state of `get_rng_state`.

    Args:
        new_state (Tensor): A state.
        device (device): Has no effect: all devices share one stream.
    """
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of the stream of each card."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Any) -> None:
    """Restore the states of `get_rng_state_all`.

    Args:
        new_states: The states, as `get_rng_state_all` returns them.
    """
    for state in new_states:
        set_rng_state(state)
