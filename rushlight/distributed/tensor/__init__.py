"""Tensors whose elements lie on the ranks of a mesh: `DTensor`.

Owns: placements, layouts, redistribution with gradients, the rules by which families of ops run on
parts, distributed modules and factories.
Takes: tensors, modules, meshes of ranks.
Gives: `torch.distributed.tensor`'s names.
Never: a result that differs from the undistributed one beyond rounding; a rule for an op by name
where its family has one.
"""

from __future__ import annotations

from typing import Any

from rushlight.lazy import Names

_NAMES = Names(__name__)
_NAMES.modules("experimental parallel")
_NAMES.defined(
    {
        "rushlight.distributed.device_mesh": "DeviceMesh init_device_mesh",
        "rushlight.distributed.tensor.dtensor": "DTensor",
        "rushlight.distributed.tensor.making": (
            "distribute_module distribute_tensor empty full ones rand randn zeros"
        ),
        "rushlight.distributed.tensor.placements": "Partial Placement Replicate Shard",
    }
)
__all__ = sorted(name for name in _NAMES.sources if name[0] != "_")


def __getattr__(name: str) -> Any:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
