"""Planners, under PyTorch's names: what is saved and filled, and what each value becomes.

# Note [Planners]
1. Ranks share out a state by themselves (Note [Checkpoint folders]), so there are no plans: a
   planner whose class overrides a method that makes or changes them is refused, and so is an object
   of any other class.
2. `set_up_planner` leaves in `self.state_dict` what is saved or filled, under the names of the
   folder. All ranks must come to the same names and shapes.
3. Each value that a rank writes passes `resolve_data`; each piece of a tensor that it reads
   `resolve_tensor`, which gives the tensor that is written to, and then `commit_tensor`; each
   number or string `load_bytes`. What is no tensor passes as PyTorch's bytes of it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Size
from rushlight.distributed.tensor.dtensor import DTensor
from rushlight.io import load as read, save as write
from rushlight.tensor import Tensor

_PLANS = ("create_local_plan", "create_global_plan", "finish_plan")


class WriteItemType(Enum):
    """What an item of a save is."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """What an item of a load is."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class MetadataIndex:
    """The name of a value in a folder.

    Args:
        fqn (str): The name.
        offset (Size): Where a part of a tensor begins.
        index (int): Has no effect.
    """

    fqn: str
    offset: Size | None = None
    index: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Metadata:
    """What a folder holds.

    Args:
        state_dict_metadata (dict): The shape of every tensor by name; None for what is none.
    """

    state_dict_metadata: Mapping[str, Size | None]


@dataclass(frozen=True)
class WriteItem:
    """One value of a save.

    Args:
        index (MetadataIndex): Its name.
        type (WriteItemType): Whether it is a tensor, a part of one, or bytes.
    """

    index: MetadataIndex
    type: WriteItemType


@dataclass(frozen=True)
class ReadItem:
    """One piece of a load.

    Args:
        type (LoadItemType): Whether it is of a tensor, or bytes.
        dest_index (MetadataIndex): The name of what is filled.
        dest_offsets (Size): Where the piece begins in it, on this rank.
        storage_index (MetadataIndex): The name in the folder.
        storage_offsets (Size): Where the piece begins in what a file has.
        lengths (Size): The shape of the piece.
    """

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Size
    storage_index: MetadataIndex
    storage_offsets: Size
    lengths: Size


def flattened(state: Any, path: str = "") -> dict[str, Any]:
    """Every leaf by its path."""
    if isinstance(state, dict):
        items = [(str(key), value) for key, value in state.items()]
    elif isinstance(state, (list, tuple)):
        items = [(str(n), value) for n, value in enumerate(state)]
    else:
        return {path: state}
    found: dict[str, Any] = {}
    for key, value in items:
        inner = flattened(value, f"{path}.{key}" if path else key)
        twice = next((name for name in inner if name in found), None)
        if twice is not None:
            raise RushlightError(f"checkpoint: two values of the state have the name {twice!r}")
        found.update(inner)
    return found


def _local(state: Mapping[str, Any], index: MetadataIndex) -> Any:
    """A value of a flat state; of a DTensor this rank's part."""
    found = state[index.fqn]
    return found._local_tensor if isinstance(found, DTensor) else found


class DefaultSavePlanner:
    """Says what of a state is written. See Note [Planners].

    Args:
        *options: Have no effect.
        **named: Have no effect.
    """

    state_dict: Any

    def __init__(self, *options: Any, **named: Any) -> None:
        pass

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        """Take the state.

        Args:
            state_dict (dict): The state.
            storage_meta: Has no effect.
            is_coordinator (bool): Whether this is rank 0.
        """
        self.state_dict = flattened(state_dict)
        self.is_coordinator = is_coordinator

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """What is written of a value.

        Args:
            write_item (WriteItem): The value.
        """
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The value of a name.

        Args:
            index (MetadataIndex): The name.
        """
        return _local(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """A value as it is written.

        Args:
            write_item (WriteItem): Which value.
            object: The value.
        """
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        stream = io.BytesIO()
        write(object, stream)
        stream.seek(0)
        return stream


class DefaultLoadPlanner:
    """Says where what is read goes. See Note [Planners].

    Args:
        flatten_state_dict (bool): Has no effect: tensors are named by their paths.
        flatten_sharded_tensors (bool): Has no effect.
        allow_partial_load (bool): Whether what a folder lacks stays as it is.
    """

    state_dict: Any
    original_state_dict: dict[str, Any]

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
        self.original_state_dict = {}
        self.loaded: dict[str, Any] = {}

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take the state that is filled.

        Args:
            state_dict (dict): The state.
            metadata (Metadata): What the folder holds.
            is_coordinator (bool): Whether this is rank 0.
        """
        self.original_state_dict = state_dict
        self.state_dict = flattened(state_dict)
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take a number or a string; the state gets it when all is read.

        Args:
            read_item (ReadItem): Which value.
            value (BytesIO): What `load` reads.
        """
        self.loaded[read_item.dest_index.fqn] = read(value)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The tensor that a piece is written to.

        Args:
            read_item (ReadItem): The piece.
        """
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Called when a piece was written.

        Args:
            read_item (ReadItem): The piece.
            tensor (Tensor): What `resolve_tensor` gave, filled.
        """

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The tensor of a name; of a DTensor this rank's part.

        Args:
            index (MetadataIndex): The name.
        """
        found: Tensor = _local(self.state_dict, index)
        return found

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The part of a tensor that a piece is.

        Args:
            read_item (ReadItem): The piece.
            tensor (Tensor): The tensor.
        """
        cut = zip(read_item.dest_offsets, read_item.lengths, strict=True)
        for dim, (start, length) in enumerate(cut):
            tensor = tensor.narrow(dim, start, length)
        return tensor


def overrides(planner: Any, base: type, names: tuple[str, ...]) -> str:
    """The first of these methods that a planner's class has and the base has not, or ''."""
    kind = type(planner)
    own = (n for n in names if getattr(kind, n, None) is not getattr(base, n, None))
    return next(own, "")


def known(call: str, planner: Any, base: Callable[[], Any]) -> Any:
    """The planner of a call, or the default one. See Note [Planners] 1."""
    if planner is None:
        return base()
    assert isinstance(base, type)
    if not isinstance(planner, base):
        raise TypeError(f"{call}: a planner is a {base.__name__}, got {type(planner).__name__}")
    changed = overrides(planner, base, _PLANS)
    if changed:
        raise RushlightError(
            f"{call}: {type(planner).__name__} overrides {changed}, but ranks share a state out "
            "by themselves and there are no plans; override set_up_planner, resolve_data, "
            "resolve_tensor, commit_tensor or load_bytes"
        )
    return planner
