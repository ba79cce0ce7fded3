"""The handle of a value inside `vmap`: it shows one example and holds the batch.

See Note [Batching].
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NoReturn, Self

from rushlight.core.errors import RushlightError
from rushlight.methods import disabled_torch_function
from rushlight.ops.create import like
from rushlight.tape.record import call
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.state import Changed
from rushlight.tape.record.value import Leaf, Value
from rushlight.tape.vmap import batched
from rushlight.tape.vmap.batched import Levels
from rushlight.tensor import RemovableHandle, Tensor


def _refuse(what: str, fix: str) -> NoReturn:
    raise RushlightError(
        f"vmap: {what} of a tensor that is one example of a batch: its elements differ; {fix}"
    )


class BatchedTensor(Tensor):
    """One example of a batch. Memory and record are the physical value's."""

    __slots__ = ("levels", "physical")

    __torch_function__ = disabled_torch_function

    levels: Levels
    physical: Value

    # ---- attributes that the tape reads ----

    @property
    def _memory(self) -> Any:  # type: ignore[override]
        return self.physical._memory

    @property
    def _offset(self) -> int:  # type: ignore[override]
        return self.physical._offset

    @property
    def _base(self) -> None:  # type: ignore[override]
        """None: versions of views are tracked among the physical values."""
        return None

    @property
    def _node(self) -> Any:
        return edge_of(self.physical)

    @_node.setter
    def _node(self, node: Any) -> None:
        if type(node) is Leaf and node.spec is self._spec:
            node.spec, node.handle = self.physical._spec, weakref.ref(self.physical)
        self.physical._node = node

    # ---- refused for one example ----

    def item(self) -> Any:
        _refuse(".item()", "compute with the tensor itself")

    def tolist(self) -> Any:
        _refuse(".tolist()", "return the tensor from the function")

    def numpy(self, *, force: Any = False) -> Any:
        _refuse(".numpy()", "return the tensor from the function")

    def __bool__(self) -> Any:
        _refuse(
            "the truth value",
            "use rushlight.where(condition, a, b) in place of control flow on elements",
        )

    def __dlpack__(self, **named: Any) -> Any:
        _refuse("a capsule", "return the tensor from the function")

    def __reduce__(self) -> Any:
        _refuse("a pickle", "return the tensor from the function")

    def resize_(self, *sizes: Any, **named: Any) -> Any:
        _refuse("resize_()", "make a new tensor")

    def resize_as_(self, the_template: Any, memory_format: Any = None) -> Any:
        _refuse("resize_as_()", "make a new tensor")

    def set_(self, *args: Any, **named: Any) -> Any:
        _refuse("set_()", "make a new tensor")

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        _refuse("an assignment to .data", "use copy_()")

    def __repr__(self) -> str:
        depths = ", ".join(str(level.depth) for level in self.levels)
        return (
            f"BatchedTensor(level={depths}, shape={list(self._spec.shape)}, value=\n"
            f"{self.physical!r}\n)"
        )

    # ---- memory for every example ----

    def new_zeros(self, *size: Any, **named: Any) -> Any:
        return batched.batched_like(self, super().new_zeros(*size, **named))

    def new_ones(self, *size: Any, **named: Any) -> Any:
        return batched.batched_like(self, super().new_ones(*size, **named))

    def new_full(self, size: Any, fill_value: Any, **named: Any) -> Any:
        return batched.batched_like(self, like.new_full(self, size, fill_value, **named))

    def new_empty(self, *size: Any, **named: Any) -> Any:
        return batched.batched_like(self, like.new_empty(self, *size, **named))

    # ---- gradients ----

    @property
    def grad(self) -> Any:
        """Leaves' gradients are summed outside of `vmap` only."""
        return None

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            _refuse("a .grad", "use rushlight.func.grad")

    def register_hook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook` with the gradient of this example."""
        levels = self.levels

        def whole(g: Value) -> Any:
            if not all(level.alive for level in levels):
                _refuse(
                    "a hook", "take gradients inside the function, or register the hook outside"
                )
            with Changed(batch=levels):
                made = hook(batched.unpeel(g, levels))
                return None if made is None else batched.peel(made, levels)

        return self.physical.register_hook(whole)  # type: ignore[attr-defined]

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Refused where it would make the whole batch, the caller's, a leaf."""
        if requires_grad and self._node is None:
            _refuse(".requires_grad_()", "use rushlight.func.grad or vjp")
        return super().requires_grad_(requires_grad)

    def detach_(self) -> Self:
        """Drop the record, of this handle alone."""
        self.physical = call.detached(self.physical)
        return self

    def retain_grad(self) -> None:
        _refuse(".retain_grad()", "use rushlight.func.grad")

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], None]) -> RemovableHandle:
        _refuse("a hook on .grad", "use rushlight.func.grad")


batched.set_handle(BatchedTensor)
