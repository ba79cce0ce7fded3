"""DTensor: a tensor whose elements lie on the ranks of a mesh.

# Note [Handles of parts]
1. A DTensor is a handle of this rank's part: memory, record and gradient are the part's. Its layout
   says where the others are, and its shape is the whole's. So the tape, the optimisers' kernels and
   the memory budget see ordinary tensors, and a DTensor costs nothing beside its part.
2. Functions ask its `__torch_function__` (Note [Torch function]), which runs them on the parts
   (Note [Calls on parts]). Nothing else computes with it: elsewhere `_spec`, which every op reads,
   raises.
3. `.grad` is stored as the part's gradient and shown as a DTensor (Note [Gradients of placements]).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.compat import dispatch
from rushlight.compat.torch_function import OFF, DisableTorchFunctionSubclass
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.core.shapes import Size, contiguous_strides, numel
from rushlight.distributed.collectives import broadcast
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.objects import all_gather_object
from rushlight.distributed.tensor.calls import perform
from rushlight.distributed.tensor.layout import Layout, Placements, normal
from rushlight.distributed.tensor.placements import REPLICATE, Placement, Shard
from rushlight.distributed.tensor.redistribution import Enter, moved, redistributed
from rushlight.distributed.tensor.wholes import measured
from rushlight.nn.utils.clip_grad import MEASURES
from rushlight.tape.record import call
from rushlight.tape.record.value import Value, history_of
from rushlight.tensor import Tensor

_OWN = Tensor.__dict__  # the properties below this class
_SPEC: Any = vars(Value)["_spec"]  # the slot behind the property


def _seen_as(kind: type, value: Value) -> Any:
    """The same value under another class: memory and record are shared."""
    made: Any = object.__new__(kind)
    made._spec, made._memory, made._offset = _SPEC.__get__(value), value._memory, value._offset
    made._node, made._base = value._node, value._base
    made._history = history_of(value)
    return made


def wrap(part: Value, layout: Layout) -> DTensor:
    """The DTensor of which this is this rank's part. See Note [Handles of parts] 1."""
    dispatch.ask_from_now_on()
    made: DTensor = _seen_as(DTensor, part)
    made._layout = layout
    return made


class DTensor(Tensor):
    """A tensor whose elements lie on the ranks of a mesh; each rank has the same handle.

    Made by `distribute_tensor`, `DTensor.from_local` and the functions of this module.
    """

    __slots__ = ()

    _layout: Layout

    def __new__(cls, *args: Any, **named: Any) -> Any:
        raise TypeError("DTensor: use distribute_tensor(...) or DTensor.from_local(...)")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with DisableTorchFunctionSubclass():
            return perform(DTensor, wrap, func, tuple(args), kwargs or {})

    # ---- parts ----

    @property
    def _spec(self) -> Any:
        """The part's spec, for code that computes on parts. See Note [Handles of parts] 2."""
        if not OFF.get():
            raise RushlightError(
                f"a function that knows no DTensor got one, {self._layout.placements} of "
                f"{list(self._layout.shape)}; pass .to_local() or .full_tensor()"
            )
        return _SPEC.__get__(self)

    @_spec.setter
    def _spec(self, value: Any) -> None:
        _SPEC.__set__(self, value)

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: Any = None,
    ) -> DTensor:
        """The tensor whose parts these are; recorded, without a copy.

        Args:
            local_tensor (Tensor): This rank's part.
            device_mesh (DeviceMesh): The mesh.
            placements (sequence): A placement for each of its dimensions; replicated without them.
            run_check (bool): Whether the ranks' shapes are compared, and rank 0's replicas copied.
            shape (sequence): The whole shape; without it all shards are equally long.
            stride (sequence): Has no effect: parts have their own.
        """
        if isinstance(local_tensor, DTensor):
            raise RushlightError("DTensor.from_local: the tensor is a DTensor already")
        mesh = _mesh("DTensor.from_local", device_mesh)
        rank = len(local_tensor.shape)
        chosen = normal("DTensor.from_local", mesh, placements, rank)
        whole = list(local_tensor.shape)
        if shape is not None:
            whole = list(shape)
        else:
            for n, placement in enumerate(chosen):
                if isinstance(placement, Shard):
                    whole[placement.dim] *= mesh.shape[n]
        layout = Layout(mesh, chosen, tuple(whole))
        if run_check:
            _check_ranks(local_tensor, layout)
        if mesh.get_coordinate() is not None and layout.local_shape != tuple(local_tensor.shape):
            raise ShapeError(
                f"DTensor.from_local: this rank's part of {list(whole)} under {list(chosen)} is "
                f"{list(layout.local_shape)}, got {list(local_tensor.shape)}"
            )
        return wrap(local_tensor, layout)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """This rank's part, recorded.

        Args:
            grad_placements (sequence): How the parts of the gradient lie; as the parts do without.
        """
        part = self._local_tensor
        layout = self._layout
        if grad_placements is None or not part.requires_grad:
            return part
        given = normal("to_local", layout.mesh, grad_placements, len(layout.shape))
        with DisableTorchFunctionSubclass():
            for n, (mine, theirs) in enumerate(zip(layout.placements, given, strict=True)):
                if mine == theirs or (mine.is_partial() and theirs.is_replicate()):
                    continue
                if not (mine.is_replicate() and theirs.is_partial("sum")):
                    raise RushlightError(
                        f"to_local: a gradient {theirs} of a tensor {mine}; redistribute first"
                    )
                part = moved(part, Enter(layout.mesh.get_group(n)))
        return part

    @property
    def _local_tensor(self) -> Any:
        return _seen_as(Tensor, self)

    def _part_in(self, other: Any) -> Any:
        """The part of another tensor of this shape, distributed or whole, where ours lies."""
        layout = self._layout
        with DisableTorchFunctionSubclass():
            if isinstance(other, DTensor):
                return redistributed(other._local_tensor, other._layout, layout.placements)
            alike = layout.with_placements((REPLICATE,) * layout.mesh.ndim)
            return redistributed(other, alike, layout.placements)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """The whole tensor, on every rank; recorded.

        Args:
            grad_placements (sequence): How the parts of its gradient lie; replicated without.
        """
        whole = self.redistribute(placements=[REPLICATE] * self._layout.mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same tensor under other placements; recorded.

        Args:
            device_mesh (DeviceMesh): The tensor's own mesh.
            placements (sequence): A placement for each of its dimensions.
            async_op (bool): Has no effect: the result is there when this returns.
            forward_dtype (dtype): The dtype of the result.
            backward_dtype (dtype): Has no effect.
        """
        layout = self._layout
        if device_mesh is not None and device_mesh != layout.mesh:
            raise RushlightError(f"redistribute: from {layout.mesh} to another mesh {device_mesh}")
        if placements is None:
            raise RushlightError("redistribute: placements are needed")
        wanted = normal("redistribute", layout.mesh, placements, len(layout.shape))
        for mine, to in zip(layout.placements, wanted, strict=True):
            if to.is_partial() and mine != to:
                raise RushlightError(f"redistribute: {mine} to {to}: a result is never Partial")
        with DisableTorchFunctionSubclass():
            part = self._local_tensor
            if forward_dtype is not None:
                part = part.to(forward_dtype)
            return wrap(redistributed(part, layout, wanted), layout.with_placements(wanted))

    @property
    def placements(self) -> Placements:
        """How the tensor lies on each dimension of the mesh."""
        return self._layout.placements

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._layout.mesh

    # ---- attributes of the whole ----

    @property
    def shape(self) -> Size:
        return Size(self._layout.shape)

    @property
    def ndim(self) -> int:
        return len(self._layout.shape)

    def dim(self) -> int:
        return len(self._layout.shape)

    def size(self, dim: int | None = None) -> Any:
        return Size(self._layout.shape) if dim is None else self._layout.shape[dim]

    def numel(self) -> int:
        """The number of elements of the whole."""
        return numel(self._layout.shape)

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        """The steps of the whole, as if it were contiguous."""
        steps = contiguous_strides(self._layout.shape)
        return steps if dim is None else steps[dim]

    def __len__(self) -> int:
        if not self._layout.shape:
            raise TypeError("len() of a 0-dim tensor")
        return self._layout.shape[0]

    # ---- gradients ----

    def _gradient_layout(self) -> Layout:
        """See Note [Gradients of placements] 1."""
        kept = [REPLICATE if p.is_partial() else p for p in self._layout.placements]
        return self._layout.with_placements(kept)

    @property
    def grad(self) -> Any:
        with DisableTorchFunctionSubclass():
            part = _OWN["grad"].fget(self)
        if part is None:
            return None
        seen = self.__dict__.get("_seen_grad")
        if seen is None or seen[0] is not part:
            seen = self.__dict__["_seen_grad"] = (part, wrap(part, self._gradient_layout()))
        return seen[1]

    @grad.setter
    def grad(self, value: Any) -> None:
        layout = self._gradient_layout()
        if isinstance(value, DTensor):
            if value._layout.mesh != layout.mesh or value._layout.shape != layout.shape:
                raise ShapeError(f"grad: what is assigned is {value._layout}, not {layout}")
            value = value.redistribute(placements=layout.placements)._local_tensor
        elif value is not None:
            raise TypeError(
                f"grad: the gradient of a DTensor is a DTensor, got {type(value).__name__}"
            )
        with DisableTorchFunctionSubclass():
            _OWN["grad"].fset(self, value)
        self.__dict__.pop("_seen_grad", None)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def detach(self) -> DTensor:
        return wrap(call.detached(self._local_tensor), self._layout)

    @property
    def data(self) -> Any:
        with DisableTorchFunctionSubclass():
            return wrap(self._local_tensor.data, self._layout)

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, DTensor):
            raise TypeError(f"data: a DTensor's is a DTensor, got {type(value).__name__}")
        with DisableTorchFunctionSubclass():
            _OWN["data"].fset(self, value._local_tensor)
        self._layout = value._layout

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Call `hook` with the gradient, a DTensor; a result that is not None replaces it."""
        layout = self._gradient_layout()

        def called(part: Any) -> Any:
            given = hook(wrap(part, layout))
            if isinstance(given, DTensor):
                return given.redistribute(placements=layout.placements)._local_tensor
            return given

        with DisableTorchFunctionSubclass():
            return _OWN["register_hook"](self, called)

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
        *,
        workers: int = 1,
    ) -> None:
        layout = self._gradient_layout()
        if isinstance(gradient, DTensor):
            gradient = gradient.redistribute(placements=layout.placements)._local_tensor
        elif gradient is not None:
            raise TypeError(
                f"backward: the gradient of a DTensor is one, got {type(gradient).__name__}"
            )
        with DisableTorchFunctionSubclass():
            self._local_tensor.backward(
                gradient, retain_graph, create_graph, inputs, workers=workers
            )

    # ---- copies ----

    def __deepcopy__(self, memo: dict[int, Any]) -> DTensor:
        known = memo.get(id(self))
        if known is not None:
            return known
        with DisableTorchFunctionSubclass():
            if not self.is_leaf:
                raise RushlightError("only leaves can be deep-copied; .detach() or .clone() it")
            made = wrap(self._local_tensor.detach().clone(), self._layout)
            made.requires_grad_(self.requires_grad)
        memo[id(self)] = made
        kept = {k: v for k, v in self.__dict__.items() if k not in ("_layout", "_seen_grad")}
        made.__dict__.update(copy.deepcopy(kept, memo))
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RushlightError(
            "DTensor: a mesh is no file's; save full_tensor(), or use distributed.checkpoint"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        with DisableTorchFunctionSubclass():
            part = repr(self._local_tensor)
        return (
            f"DTensor(local_tensor={part}, device_mesh={self._layout.mesh}, "
            f"placements={self._layout.placements})"
        )

    __str__ = __repr__


def _of_the_part(name: str) -> Any:
    """An attribute or method of Tensor that is the part's own."""
    found = _OWN[name]
    if not isinstance(found, property):

        def called(self: DTensor, *args: Any, **named: Any) -> Any:
            with DisableTorchFunctionSubclass():
                return found.__get__(self)(*args, **named)  # it may be made now

        called.__name__, called.__doc__ = name, found.__doc__
        return called

    def get(self: DTensor) -> Any:
        with DisableTorchFunctionSubclass():
            return found.__get__(self)

    def put(self: DTensor, value: Any) -> None:
        with DisableTorchFunctionSubclass():
            found.__set__(self, value)

    return property(get, None if found.fset is None else put, doc=found.__doc__)


# Facts of the record, the dtype and the device are those of the part.
for _name in (
    *("dtype", "device", "requires_grad", "requires_grad_", "is_leaf", "grad_fn", "retain_grad"),
    *("retains_grad", "register_post_accumulate_grad_hook", "_version", "is_floating_point"),
    *("is_complex", "element_size", "is_sparse", "is_cuda", "layout", "is_contiguous"),
):
    setattr(DTensor, _name, _of_the_part(_name))

MEASURES[DTensor] = measured


def _mesh(name: str, mesh: Any) -> DeviceMesh:
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"{name}: device_mesh is a DeviceMesh, got {type(mesh).__name__}")
    return mesh


def _check_ranks(part: Tensor, layout: Layout) -> None:
    """Compare the ranks' shapes along each dimension of the mesh; replicas become rank 0's."""
    for n, placement in enumerate(layout.placements):
        group = layout.mesh.get_group(n)
        found: list[Any] = [None] * group.size()
        all_gather_object(found, (layout.shape, str(part.dtype)), group)
        if any(other != found[0] for other in found):
            raise ShapeError(f"DTensor.from_local: the ranks' tensors differ: {found}")
        if placement.is_replicate():
            broadcast(part.detach(), group=group, group_src=0)
