"""Making distributed tensors and modules: `distribute_tensor`, `distribute_module`, factories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from rushlight.compat.torch_function import DisableTorchFunctionSubclass
from rushlight.core.errors import RushlightError
from rushlight.core.shapes import Shape, Spec
from rushlight.distributed.collectives import broadcast, scatter
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.tensor.calls import draw_alike
from rushlight.distributed.tensor.dtensor import DTensor, wrap
from rushlight.distributed.tensor.layout import Layout, normal
from rushlight.distributed.tensor.placements import Placement, Shard, piece
from rushlight.distributed.tensor.steps import constant
from rushlight.memory.standing import on_stand_in
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops.create import creation
from rushlight.ops.random import random
from rushlight.tape.program.trace import trace
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor

Hook = Callable[..., Any]


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """A leaf whose elements are those of one rank's tensor, on all ranks of the mesh.

    Args:
        tensor (Tensor): The whole tensor; every rank gives one of that shape and dtype.
        device_mesh (DeviceMesh): The mesh.
        placements (sequence): A placement for each of its dimensions; replicated without them.
        src_data_rank (int): Whose elements they are, along each dimension of the mesh; None: each
            rank takes its part of its own tensor, and nothing is sent.
    """
    if not isinstance(device_mesh, DeviceMesh):
        raise TypeError(
            f"distribute_tensor: device_mesh is a DeviceMesh, got {type(device_mesh).__name__}"
        )
    wanted = normal("distribute_tensor", device_mesh, placements, len(tensor.shape))
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != device_mesh:
            raise RushlightError("distribute_tensor: the tensor lies on another mesh")
        return tensor.redistribute(placements=wanted)
    if not tensor.is_leaf:
        raise RushlightError("distribute_tensor: a leaf is needed; .detach() a result first")
    if any(p.is_partial() for p in wanted):
        raise RushlightError("distribute_tensor: to Shard and Replicate, not to Partial")
    layout = Layout(device_mesh, wanted, tuple(tensor.shape))
    with no_grad():
        part: Any = tensor.detach()
        for n, placement in enumerate(wanted):
            part = _placed(part, layout, n, placement, src_data_rank)
        if part.data_ptr() == tensor.data_ptr():
            part = part.clone()
    return wrap(part, layout).requires_grad_(tensor.requires_grad)


def _placed(part: Any, layout: Layout, mesh_dim: int, placement: Placement, src: int | None) -> Any:
    """One rank's elements, along one dimension of the mesh."""
    group = layout.mesh.get_group(mesh_dim)
    size, mine = group.size(), group.rank()
    if not isinstance(placement, Shard):
        if src is None:
            return part
        made = part.contiguous().clone()
        broadcast(made, group=group, group_src=src)
        return made
    dim = placement.dim
    pieces = [piece(part.shape[dim], size, n) for n in range(size)]
    own = part.narrow(dim, pieces[mine].start, pieces[mine].length).contiguous().clone()
    if src is not None:
        rows = None
        if mine == src:
            rows = [part.narrow(dim, p.start, p.length).contiguous() for p in pieces]
        scatter(own, rows, group=group, group_src=src)
    return own


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Hook | None = None,
    input_fn: Hook | None = None,
    output_fn: Hook | None = None,
) -> Module:
    """Make the parameters and buffers of a module DTensors.

    Args:
        module (Module): The module, which is changed.
        device_mesh (DeviceMesh): The mesh.
        partition_fn (callable): Called as `partition_fn(name, submodule, device_mesh)` for each;
            what it leaves is replicated.
        input_fn (callable): Called as `input_fn(module, inputs, device_mesh)` before forward; gives
            the inputs.
        output_fn (callable): Called as `output_fn(module, outputs, device_mesh)` after forward;
            gives the outputs.
    """
    if not isinstance(device_mesh, DeviceMesh):
        raise TypeError("distribute_module: device_mesh is needed")
    mesh: DeviceMesh = device_mesh
    for name, inner in list(module.named_modules()):
        if partition_fn is not None:
            partition_fn(name, inner, mesh)
        replicate_rest(inner, mesh)
    if input_fn is not None:
        enter = input_fn
        module.register_forward_pre_hook(lambda m, given: enter(m, given, mesh))
    if output_fn is not None:
        leave = output_fn
        module.register_forward_hook(lambda m, given, made: leave(m, made, mesh))
    return module


def replicate_rest(module: Module, mesh: DeviceMesh) -> None:
    """Make a module's own parameters and buffers that are plain replicated DTensors."""
    for name, parameter in list(module._parameters.items()):
        if parameter is not None and not isinstance(parameter, DTensor):
            set_parameter(module, name, distribute_tensor(parameter, mesh))
    for name, buffer in list(module._buffers.items()):
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[name] = distribute_tensor(buffer, mesh)


def set_parameter(module: Module, name: str, value: DTensor) -> None:
    """Give a module a parameter that is a DTensor."""
    module.register_parameter(name, Parameter(value, value.requires_grad))


# ---- factories ----


def _sizes(size: tuple[Any, ...]) -> Shape:
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)


def _made(
    name: str,
    make: Callable[..., Any],
    shape: Shape,
    dtype: Any,
    requires_grad: bool,
    mesh: DeviceMesh | None,
    placements: Any,
) -> DTensor:
    """This rank's part of a new tensor: what `make` gives, traced, is one op without operands."""
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"{name}: device_mesh is needed")
    wanted = normal(name, mesh, placements, len(shape))
    if any(p.is_partial() for p in wanted):
        raise RushlightError(f"{name}: placements are Shard and Replicate, not Partial")
    layout = Layout(mesh, wanted, shape)
    real = creation.resolve_pool(mesh.device_type)
    stands = on_stand_in(real.device.name) if real.device.limits.computes else nullcontext(real)
    with no_grad(), DisableTorchFunctionSubclass():
        if name.startswith("rand"):
            draw_alike(mesh)
        with stands:
            program = trace(lambda: make(shape, dtype=dtype, device=mesh.device_type), [])[1]
        assert program is not None and len(program.steps) == 1, name
        (step,) = program.steps
        static = (Spec.of(real, step.outs[0].dtype, layout.local_shape),)
        op: Any = step.plan.op
        part = constant(op, layout, static, step.params or ())
    return wrap(part, layout).requires_grad_(requires_grad)


def _factory(name: str, make: Callable[..., Any]) -> Callable[..., DTensor]:
    def made(
        *size: Any,
        dtype: Any = None,
        layout: Any = None,
        requires_grad: bool = False,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        return _made(name, make, _sizes(size), dtype, requires_grad, device_mesh, placements)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"As `rushlight.{name}`; each rank has its part, with the bits of the whole."
    return made


zeros = _factory("zeros", creation.zeros)
ones = _factory("ones", creation.ones)
empty = _factory("empty", creation.zeros)
rand = _factory("rand", random.rand)
randn = _factory("randn", random.randn)


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """As `rushlight.full`; each rank has its part."""

    def make(shape: Shape, **named: Any) -> Any:
        return creation.full(shape, fill_value, **named)

    return _made("full", make, _sizes((size,)), dtype, requires_grad, device_mesh, placements)
