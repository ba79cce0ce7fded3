"""`fully_shard`: a module whose parameters, gradients and optimiser state are shared out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.fsdp.policies import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
)
from rushlight.distributed.fsdp.sharding import Sharding, local, sharded_parameter
from rushlight.distributed.fsdp.unit import Options, Piece, Place, Unit, own_attributes
from rushlight.distributed.named_states import part_for
from rushlight.distributed.process_groups import ProcessGroup, resolved
from rushlight.distributed.tensor.dtensor import DTensor, wrap
from rushlight.distributed.tensor.layout import Layout
from rushlight.distributed.tensor.placements import REPLICATE, Placement, Shard
from rushlight.nn.containers import ModuleDict, ModuleList
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.optim.optimizer import Optimizer
from rushlight.tensor import Tensor

_TAKEN = "_unit_name"  # notes on a parameter that a unit replaced its name there: it may be tied


class Ranks(NamedTuple):
    """Who shares parameters out, and who has the same parts."""

    mesh: DeviceMesh
    group: ProcessGroup
    replicas: ProcessGroup | None

    def placements(self, dim: int) -> tuple[Placement, ...]:
        """How a parameter that is cut along a dimension lies on the mesh."""
        return (Shard(dim),) if self.replicas is None else (REPLICATE, Shard(dim))


def ranks_of(mesh: DeviceMesh | None, device_type: str) -> Ranks:
    """The groups of a mesh: of one dimension, or of copies and parts."""
    if mesh is None:
        group = resolved()
        mesh = DeviceMesh(device_type, group.ranks, _groups=[group])
    if mesh.ndim == 1:
        return Ranks(mesh, mesh.get_group(0), None)
    if mesh.ndim == 2:
        return Ranks(mesh, mesh.get_group(1), mesh.get_group(0))
    raise ValueError(
        f"fully_shard: a mesh of one dimension, or of two (copies, parts), got {mesh.ndim}"
    )


def places_of(
    modules: Sequence[Module], ignored: set[int]
) -> tuple[dict[Tensor, list[Place]], dict[Tensor, str]]:
    """The parameters that no unit below has: where each is registered, and its name."""
    found: dict[Tensor, list[Place]] = {}
    names: dict[Tensor, str] = {}
    seen: set[int] = set()
    stack = [(module, "") for module in reversed(modules)]
    while stack:
        module, path = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        for name, parameter in module._parameters.items():
            if parameter is None or id(parameter) in ignored:
                continue
            if _TAKEN in vars(parameter):
                raise ValueError(
                    f"fully_shard: {path}{name} is tied to {vars(parameter)[_TAKEN]}, which "
                    "another unit shares out; a tied parameter belongs to one unit"
                )
            found.setdefault(parameter, []).append((module, name))
            names.setdefault(parameter, f"{path}{name}")
        below = [
            (child, f"{path}{name}.")
            for name, child in module._modules.items()
            if child is not None and "_unit" not in child.__dict__
        ]
        stack.extend(reversed(below))
    return found, names


def make_unit(
    modules: Sequence[Module],
    ranks: Ranks,
    options: Options,
    ignored: Iterable[Tensor] = (),
    placed: Callable[[Parameter], Any] | None = None,
    on_host: bool = False,
) -> Unit:
    """A unit of the parameters of some modules, whose parts take the places of the parameters."""
    found, names = places_of(modules, {id(parameter) for parameter in ignored})
    pieces = []
    for parameter, places in found.items():
        given: Any = parameter
        mine, inner = _own_part(given, ranks, names[given])
        dim = _dim(mine, None if placed is None else placed(given), names[given])
        sharding = Sharding(ranks.group, dim, tuple(mine.shape))
        layout = _layout(given, inner, ranks, dim)
        if on_host and given.device.type != "cpu":
            options.device = given.device
        part = sharded_parameter(mine, sharding, layout, on_host, given.requires_grad)
        part.__dict__.update(own_attributes(given))
        vars(given)[_TAKEN] = names[given]
        Optimizer.exchange(given, part, _converting(given, sharding, layout))
        pieces.append(Piece(places, part, sharding, names[given], inner))
    unit = Unit(modules, pieces, ranks.group, ranks.replicas, options)
    unit.show(whole=False)
    for module in modules:
        module.__dict__["_unit"] = unit
    return unit


def _converting(given: Any, sharding: Sharding, layout: Layout) -> Callable[[Any], Any]:
    """How an optimiser's state of a parameter becomes that of its part."""

    def convert(value: Any) -> Any:
        if not isinstance(value, Tensor) or tuple(value.shape) != tuple(given.shape):
            return value
        return wrap(sharding.part(local(value)).clone(), layout)

    return convert


def _own_part(parameter: Any, ranks: Ranks, name: str) -> tuple[Tensor, Layout | None]:
    """What is shared out: the parameter, or a DTensor's part here, and that one's layout."""
    if not isinstance(parameter, DTensor):
        return parameter, None
    inner = parameter._layout
    if any(p.is_partial() for p in inner.placements):
        raise ValueError(f"fully_shard: {name} is a partial sum, {inner.placements}")
    return parameter._local_tensor, inner


def _layout(parameter: Tensor, inner: Layout | None, ranks: Ranks, dim: int) -> Layout:
    """Of the parts: a DTensor's own cuts come first. See Note [Units] 8."""
    own = ranks.placements(dim)
    if inner is None:
        return Layout(ranks.mesh, own, tuple(parameter.shape))
    return Layout(inner.mesh.joined(ranks.mesh), (*inner.placements, *own), inner.shape)


def _dim(parameter: Tensor, placement: Any, name: str) -> int:
    if parameter.dim() == 0:
        raise ValueError(
            f"fully_shard: {name} has no dimensions; make it a parameter of one element, shape [1]"
        )
    if not parameter.is_contiguous():
        raise ValueError(f"fully_shard: {name} is not contiguous; make it so first")
    if placement is None:
        return 0
    dim: int = placement.dim % parameter.dim()
    return dim


class UnshardHandle:
    """A gather under way.

    Args:
        units (sequence): Whose parameters are gathered.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = list(units)

    def wait(self) -> None:
        """Wait until the parameters are whole, and registered in the module."""
        for unit in self._units:
            unit.fill()
            unit.show(whole=True)
        self._units = []


def units_of(module: Module) -> list[Unit]:
    """The units of a module and of all below it."""
    parts = [part.__dict__ for part in module.modules()]
    return list({part["_unit"]: None for part in parts if "_unit" in part})


def of_parts(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of tensors that takes a DTensor as this rank's part."""

    def called(given: Any) -> Any:
        if isinstance(given, DTensor):
            return wrap(fn(given._local_tensor), given._layout)
        return fn(given)

    return called


def take_parts(
    module: Any, state: dict[str, Any], prefix: str, *_: Any, are_parts: bool = False
) -> None:
    """Before a load: whole tensors become this rank's parts; `are_parts`: they are already."""
    unit: Unit = module._unit
    unit.show(whole=False)
    for name, value in list(state.items()):
        if not name.startswith(prefix) or not isinstance(value, Tensor):
            continue
        owner, _dot, last = name[len(prefix) :].rpartition(".")
        try:
            target = module.get_submodule(owner)._parameters.get(last)
        except AttributeError:
            continue
        if not isinstance(target, DTensor) or isinstance(value, DTensor):
            continue
        part: Any = target._local_tensor
        if are_parts and value.shape == part.shape:
            state[name] = wrap(value, target._layout)
        elif tuple(value.shape) == tuple(target.shape):
            state[name] = wrap(part_for(target, value, name), target._layout)


class FSDPModule:
    """What `fully_shard` adds to a module's class."""

    _unit: Unit

    def __call__(self, *args: Any, **named: Any) -> Any:
        module: Any = self
        return module._unit.call(module, super().__call__, args, named)  # type: ignore[misc]

    def _units(self, recurse: bool = True) -> list[Unit]:
        module: Any = self
        return units_of(module) if recurse else [module._unit]

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        return super()._apply(of_parts(fn), recurse)  # type: ignore[misc]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Make this module's own parameters whole, until `reshard` or the end of a forward.

        Args:
            async_op (bool): Whether to return a handle to wait for.
        """
        handle = UnshardHandle([self._unit])
        if async_op:
            self._unit.gather(asynchronous=True)
            return handle
        handle.wait()
        return None

    def reshard(self) -> None:
        """Free this module's own whole parameters; the parts take their places."""
        self._unit.let_go()
        self._unit.show(whole=False)
        self._unit.free()

    def reset_iter_state(self) -> None:
        """Forget a pass that was not ended, as after an error."""
        self._unit.shared.abandon()
        for unit in self._units():
            unit.let_go()
            unit.called.clear()

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward sums gradients over ranks; else they stay whole, and add up.

        Args:
            requires_gradient_sync (bool): Whether it does.
            recurse (bool): Whether that is for all units below as well.
        """
        for unit in self._units(recurse):
            unit.options.syncs = unit.options.syncs_replicas = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether backward sums gradients over copies, in a mesh of two dimensions.

        Args:
            requires_all_reduce (bool): Whether it does.
            recurse (bool): Whether that is for all units below as well.
        """
        for unit in self._units(recurse):
            unit.options.syncs_replicas = requires_all_reduce

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether the next backward is the last one of this forward.

        Args:
            is_last_backward (bool): Whether it is.
        """
        for unit in self._units():
            unit.shared.is_last_backward = is_last_backward

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether whole parameters are freed after forward, and gathered again for backward.

        Args:
            reshard_after_forward (bool): Whether they are.
            recurse (bool): Whether that is for all units below as well.
        """
        for unit in self._units(recurse):
            unit.reshards = unit.options.reshard_after_forward = reshard_after_forward

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Whether whole parameters are freed after backward.

        Args:
            reshard_after_backward (bool): Whether they are.
            recurse (bool): Whether that is for all units below as well.
        """
        for unit in self._units(recurse):
            unit.options.reshard_after_backward = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """The modules to gather while this one's forward runs, in place of the next one.

        Args:
            modules (sequence): In the order of their forwards.
        """
        self._unit.options.ahead_forward = [_unit_of(module) for module in modules]

    def set_modules_to_backward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """The modules to gather while this one's backward runs, in place of the one before.

        Args:
            modules (sequence): In the order of their backwards.
        """
        self._unit.options.ahead_backward = [_unit_of(module) for module in modules]

    def set_all_reduce_hook(self, hook: Callable[[Tensor], None], *, stream: Any = None) -> None:
        """Call a function with each buffer of gradients when they are summed.

        Args:
            hook (callable): Gets the buffer, and may write to it.
            stream: Has no effect.
        """
        self._unit.options.all_reduce_hook = hook

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide sums of gradients by a number, in place of the number of ranks.

        Args:
            factor (float): The number.
        """
        self._unit.options.divisor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_reduce_scatter_unused_params(
        self, reduce_scatter_unused_params: bool, *, recurse: bool = True
    ) -> None:
        """Whether a parameter that a rank did not use counts as a gradient of 0 there.

        Args:
            reduce_scatter_unused_params (bool): Whether it does.
            recurse (bool): Whether that is for all units below as well.
        """
        for unit in self._units(recurse):
            unit.options.unused_as_zeros = reduce_scatter_unused_params

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether backward gathers the parameters; False where it does not read them.

        Args:
            unshard_in_backward (bool): Whether it does.
        """
        self._unit.options.gathers_for_backward = unshard_in_backward

    # PyTorch's settings of streams and buffers of its own collectives: sums are always sums, then
    # divided, and buffers come from the pools.
    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Has no effect: ranks are always summed first and divided then."""

    def set_post_optim_event(self, event: Any) -> None:
        """Has no effect: kernels run in the order of the calls."""

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """Has no effect: buffers come from the pools, which budgets count."""

    def set_separate_reduce_scatter_group(
        self, enable: bool = True, *, recurse: bool = True
    ) -> None:
        """Has no effect: calls of all groups run in one order."""

    def set_reduce_scatter_max_input_buffers(
        self, max_input_buffers: int, *, recurse: bool = True
    ) -> None:
        """Has no effect: one sum is under way at a time."""

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None:
        """Has no effect: buffers come from the pools."""

    def set_custom_all_gather(self, comm: Any) -> None:
        """Refused: gathers are Rushlight's own."""
        raise NotImplementedError("set_custom_all_gather: gathers are those of the group's backend")

    def set_custom_reduce_scatter(self, comm: Any) -> None:
        """Refused: sums have one fixed order."""
        raise NotImplementedError(
            "set_custom_reduce_scatter: sums over ranks have one fixed order, DDP's"
        )

    def _set_unshard_async_op(self, async_op: bool) -> None:
        """Has no effect: the next unit is always gathered asynchronously."""


def _unit_of(module: Any) -> Unit:
    unit: Unit | None = module.__dict__.get("_unit")
    if unit is None:
        raise ValueError(f"{type(module).__name__} was not given to fully_shard")
    return unit


_SHARDED = "_sharded_class"


def _class_of(kind: type) -> type:
    """The class of a sharded module: FSDPLinear of Linear.

    The module's own class keeps it. A table here would keep classes that a function makes, with all
    that their methods refer to.
    """
    found: type | None = vars(kind).get(_SHARDED)
    if found is None:
        found = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {"__deepcopy__": _refuse_copy})
        setattr(kind, _SHARDED, found)
    return found


def _refuse_copy(self: Any, memo: Any) -> Any:
    raise AssertionError("a module of fully_shard cannot be copied: copy it before, or its state")


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Parameter], Any] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),  # noqa: B008 (it is frozen)
    offload_policy: OffloadPolicy = OffloadPolicy(),  # noqa: B008 (it has no state)
    ignored_params: set[Parameter] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """Share a module's parameters, gradients and optimiser state out over ranks.

    Call it for the layers first and for the whole model last: each call takes the parameters that
    no module below has. Optimisers that have the parameters get the parts. See Note [Units].

    Args:
        module (Module): The module, or a list of modules that are gathered together.
        mesh (DeviceMesh): The ranks: one dimension, or two (copies, parts); all ranks without it.
        reshard_after_forward (bool): Whether whole parameters are freed between forward and
            backward. By default they are, except the root's. A number means True.
        shard_placement_fn (callable): Gives a parameter's `Shard(dim)`; dimension 0 without it.
        mp_policy (MixedPrecisionPolicy): Dtypes.
        offload_policy (OffloadPolicy): Whether parts are in the host's memory.
        ignored_params (set): Parameters that stay as they are.
        dp_mesh_dims (DataParallelMeshDims): The names of the mesh's dimensions to use.
    """
    modules: list[Module] = list(module) if isinstance(module, (list, tuple)) else [module]
    for one in modules:
        if not isinstance(one, Module):
            raise TypeError(f"fully_shard: a Module is needed, got {type(one).__name__}")
        if isinstance(one, (ModuleList, ModuleDict)) and type(one).forward is Module.forward:
            raise ValueError(f"fully_shard: {type(one).__name__} has no forward; give its modules")
        if "_unit" in one.__dict__:
            raise ValueError(f"fully_shard: {type(one).__name__} is sharded already")
    if dp_mesh_dims is not None and mesh is not None:
        names = [dp_mesh_dims.replicate, dp_mesh_dims.shard]
        mesh = mesh[tuple(name for name in names if name is not None)]
    first = next(iter(modules[0].parameters()), None)
    device = "cpu" if first is None else first.device.type
    options = Options()
    options.param_dtype, options.reduce_dtype = mp_policy.param_dtype, mp_policy.reduce_dtype
    options.output_dtype = mp_policy.output_dtype
    options.casts_inputs = mp_policy.cast_forward_inputs
    unit = make_unit(
        modules,
        ranks_of(mesh, device),
        options,
        ignored_params or (),
        shard_placement_fn,
        isinstance(offload_policy, CPUOffloadPolicy),
    )
    if reshard_after_forward is not None:
        unit.reshards = options.reshard_after_forward = bool(reshard_after_forward)
    for one in modules:
        one.__class__ = _class_of(type(one))
        one.register_state_dict_pre_hook(_show_parts)
        one.register_load_state_dict_pre_hook(take_parts)
    return module


def _show_parts(module: Any, *_: Any) -> None:
    module._unit.show(whole=False)


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Make the parameters whole for another method as well, as `generate`.

    Args:
        module (Module): A module; without `fully_shard` nothing changes.
        method_name (str): The method.
    """
    unit: Unit | None = module.__dict__.get("_unit")
    if unit is None:
        return
    run = getattr(module, method_name)

    def method(*args: Any, **named: Any) -> Any:
        return unit.call(module, run, args, named)

    module.__dict__[method_name] = method


def share_comm_ctx(modules: Sequence[FSDPModule]) -> None:
    """Has no effect: all modules of a process share one order of calls.

    Args:
        modules (sequence): Modules of `fully_shard`.
    """
