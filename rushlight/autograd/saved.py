"""Blocks that change how saved tensors are kept. See Note [Saved tensor hooks]."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rushlight import interop
from rushlight.core.errors import RushlightError
from rushlight.core.interrupts import unheard
from rushlight.devices.shared.allocator import Storage
from rushlight.tape.memory.saved_tensor_hooks import Saving
from rushlight.tape.record.needed import Needed
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value


class saved_tensors_hooks:
    """`with saved_tensors_hooks(pack, unpack):` tensors saved inside are kept as `pack(tensor)`.

    `unpack` of that must return a tensor of the same shape, dtype and device in backward; see
    Note [Saved tensor hooks].
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self._state = Changed(saving=Saving(pack_hook, unpack_hook))

    def __enter__(self) -> Any:
        refused = STATE.get().saving_refused
        if refused is not None:
            raise RushlightError(refused)
        self._state.__enter__()
        return None

    @unheard
    def __exit__(self, *error: Any) -> None:
        self._state.__exit__(*error)


class disable_saved_tensors_hooks(Changed):
    """A block in which hooks for saved tensors are an error with this message."""

    def __init__(self, error_message: str) -> None:
        super().__init__(saving_refused=str(error_message))

    def __enter__(self) -> None:
        if STATE.get().saving is not None:
            raise RushlightError(self.changes["saving_refused"])
        super().__enter__()


class save_on_cpu(saved_tensors_hooks):
    """Tensors saved inside are kept in host memory and copied back to the device in backward.

    A value that several records save is copied once. Every copy is counted in `memory.transfers()`.
    With `pin_memory` the copies are in pinned memory and run beside the kernels, on a device that
    has such copies (Note [Streams]). `device_type` is accepted for compatibility.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        self._pinned = pin_memory
        self._copies: weakref.WeakKeyDictionary[Storage, dict[Any, Any]] = (
            weakref.WeakKeyDictionary()
        )
        super().__init__(self._offload, self._back)

    def _offload(self, tensor: Any) -> Any:
        if tensor.is_cpu:
            return tensor, tensor.device
        known = self._copies.setdefault(tensor._memory, {})
        key = (tensor._spec, tensor._offset, tensor._memory.version)
        reference = known.get(key)
        copy = None if reference is None else reference()
        if copy is None:
            copy = interop.save(tensor) if self._pinned else tensor.cpu()
            known[key] = weakref.ref(copy)
        return copy, tensor.device

    def _back(self, packed: Any) -> Any:
        copy, device = packed
        return interop.restore(copy, device) if self._pinned else copy.to(device)


# ---- writes to saved tensors ----


class _Held:
    """A saved value that is copied before its memory is written to."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Value) -> None:
        self.value = value


class _CopyOnWrite(Saving):
    __slots__ = ("held",)

    def __init__(self) -> None:
        super().__init__(self._hold, lambda held: held.value)
        self.held: weakref.WeakKeyDictionary[Storage, weakref.WeakSet[_Held]] = (
            weakref.WeakKeyDictionary()
        )

    def _hold(self, value: Value) -> _Held:
        held = _Held(value)
        self.held.setdefault(value._memory, weakref.WeakSet()).add(held)
        return held

    def before_write(self, storages: Sequence[Storage]) -> None:
        for storage in storages:
            waiting = list(self.held.pop(storage, ()))
            with Changed(grad=False, region=None, saving=None):
                copies: dict[Any, Any] = {}
                for held in waiting:
                    key = (held.value._spec, held.value._offset)
                    if key not in copies:
                        copies[key] = Needed.clone(held.value)
                    held.value = copies[key]


class allow_mutation_on_saved_tensors:
    """A block in which saved tensors may be written to: they are copied first, if still needed."""

    def __init__(self) -> None:
        self._saving = _CopyOnWrite()
        self._state = Changed(saving=self._saving)

    def __enter__(self) -> allow_mutation_on_saved_tensors:
        refused = STATE.get().saving_refused
        if refused is not None:
            raise RushlightError(refused)
        self._state.__enter__()
        return self

    @unheard
    def __exit__(self, *error: Any) -> None:
        self._state.__exit__(*error)

    def clear(self) -> None:
        """Stop copying on writes for the values saved so far: writes to them are errors again."""
        self._saving.held.clear()
