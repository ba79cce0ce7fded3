"""What the namespace says of itself: devices, types, capabilities."""

from __future__ import annotations

from typing import Any

from rushlight.array_api.creation import isdtype
from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.errors import DTypeError, RushlightError
from rushlight.devices.shared.registry import kind_of, names, pool_of
from rushlight.ops.create import creation
from rushlight.ops.family.build import check_device_dtype
from rushlight.tensor import device as Device

_LISTED = tuple(d for d in dtypes.ANY if d not in (dtypes.float16, dtypes.bfloat16))


def _has(pool: Any, dtype: DType) -> bool:
    try:
        check_device_dtype("dtypes", pool, dtype)
    except DTypeError:
        return False
    return True


class Inspection:
    """What `__array_namespace_info__()` gives."""

    def capabilities(self) -> dict[str, Any]:
        """Which optional parts of the standard are there."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """Where new arrays are made."""
        return Device(creation.default_pool().device.name)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The types of new arrays."""
        real = dtypes.get_default()
        return {
            "real floating": real,
            "complex floating": dtypes.complex_type(real),
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def devices(self) -> list[Device]:
        """The devices that are there."""
        found = []
        for name in filter(lambda name: kind_of(name).public, names()):
            try:
                pool_of(name)
            except RushlightError:
                continue
            found.append(Device(name))
        return found

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The types of the standard that a device has, by name."""
        pool: Any = creation.resolve_pool(device)
        return {d.name: d for d in _LISTED if _has(pool, d) and (kind is None or isdtype(d, kind))}


def inspect_namespace() -> Inspection:
    """What the namespace says of itself."""
    return Inspection()
