"""The namespace's introspection: devices, dtypes, capabilities."""

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
    """The result of `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """The optional features of the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """The device of new arrays."""
        return Device(creation.default_pool().device.name)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of new arrays."""
        real = dtypes.get_default()
        return {
            "real floating": real,
            "complex floating": dtypes.complex_type(real),
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def devices(self) -> list[Device]:
        """The available devices."""
        found = []
        for name in filter(lambda name: kind_of(name).public, names()):
            try:
                pool_of(name)
            except RushlightError:
                continue
            found.append(Device(name))
        return found

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes on a device, by name."""
        pool: Any = creation.resolve_pool(device)
        return {d.name: d for d in _LISTED if _has(pool, d) and (kind is None or isdtype(d, kind))}


def inspect_namespace() -> Inspection:
    """The namespace's introspection object."""
    return Inspection()
