"""What users choose for sharded modules: precision, offloading, settings of the wrapper."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.nn.norm import _BatchNorm

# ---- of `fully_shard` ----


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a module's forward, backward and sums; parts and their gradients keep theirs.

    Args:
        param_dtype (dtype): Of whole parameters, and of inputs.
        reduce_dtype (dtype): In which gradients are summed over ranks; that of the gradients.
        output_dtype (dtype): Of the results.
        cast_forward_inputs (bool): Whether inputs are cast to `param_dtype`.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parts stay on the device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parts, their gradients and so the optimiser's state are in the host's memory.

    Args:
        pin_memory (bool): Has no effect: copies go through the pools' own pinned memory.
    """

    pin_memory: bool = True


# ---- of `FullyShardedDataParallel` ----


class ShardingStrategy(enum.Enum):
    """What is shared out: parameters after forward too, not after forward, nothing."""

    FULL_SHARD = enum.auto()
    SHARD_GRAD_OP = enum.auto()
    NO_SHARD = enum.auto()
    HYBRID_SHARD = enum.auto()
    _HYBRID_SHARD_ZERO2 = enum.auto()


class BackwardPrefetch(enum.Enum):
    """When the next unit is gathered in backward: before or after the present one's derivatives."""

    BACKWARD_PRE = enum.auto()
    BACKWARD_POST = enum.auto()


@dataclass
class MixedPrecision:
    """The dtypes of a wrapped module.

    Args:
        param_dtype (dtype): Of whole parameters.
        reduce_dtype (dtype): In which gradients are summed over ranks; `param_dtype` without it.
        buffer_dtype (dtype): Of buffers.
        keep_low_precision_grads (bool): Whether gradients stay in `reduce_dtype` after backward.
        cast_forward_inputs (bool): Whether the inputs of every unit are cast to `param_dtype`.
        cast_root_forward_inputs (bool): Whether those of the root are.
        _module_classes_to_ignore (sequence): Classes whose modules keep their dtypes.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """Whether parts are kept in the host's memory.

    Args:
        offload_params (bool): Whether they are.
    """

    offload_params: bool = False


class StateDictType(enum.Enum):
    """Which state a wrapped module gives: whole tensors, or this rank's parts."""

    FULL_STATE_DICT = enum.auto()
    LOCAL_STATE_DICT = enum.auto()
    SHARDED_STATE_DICT = enum.auto()


@dataclass
class StateDictConfig:
    """Where the tensors of a state are.

    Args:
        offload_to_cpu (bool): Whether they are copied to the host.
    """

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Of whole tensors.

    Args:
        rank0_only (bool): Whether other ranks get an empty state.
    """

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Of this rank's parts as ordinary tensors."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Of this rank's parts.

    Args:
        _use_dtensor (bool): Has no effect: parts know what they are parts of.
    """

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """Where the tensors of an optimiser's state are.

    Args:
        offload_to_cpu (bool): Whether they are copied to the host.
    """

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Of whole tensors.

    Args:
        rank0_only (bool): Whether other ranks get an empty state.
    """

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Of this rank's parts as ordinary tensors."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Of this rank's parts.

    Args:
        _use_dtensor (bool): Has no effect: parts know what they are parts of.
    """

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """Which states are given, and where their tensors are."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig


class OptimStateKeyType(enum.Enum):
    """What the keys of an optimiser's state are."""

    PARAM_NAME = enum.auto()
    PARAM_ID = enum.auto()


@dataclass(frozen=True)
class DataParallelMeshDims:
    """Which dimensions of a mesh share parameters out, and which have copies of them.

    Args:
        shard (str or sequence): Those that share them out.
        replicate (str or sequence): Those that have copies.
    """

    shard: Any = None
    replicate: Any = field(default=None)
