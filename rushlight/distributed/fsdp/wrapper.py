"""FullyShardedDataParallel: the older interface of sharded modules, a wrapper around each unit.

It is `fully_shard`'s mechanism (Note [Units]) under the older names. Parameters are shared out one
by one, with their own names and whole shapes, whatever `use_orig_params` says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rushlight.distributed.collectives import broadcast
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.fsdp.policies import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from rushlight.distributed.fsdp.sharded_module import (
    Ranks,
    make_unit,
    of_parts,
    places_of,
    take_parts,
    units_of,
)
from rushlight.distributed.fsdp.sharding import QUIET, local
from rushlight.distributed.fsdp.strategies import (
    KEPT_WHOLE,
    groups_of,
    options_of,
    set_precision,
)
from rushlight.distributed.fsdp.unit import Unit
from rushlight.distributed.fsdp.wrap import wrap_below
from rushlight.distributed.named_states import (
    AS_PARTS,
    as_parts,
    from_first_rank,
    names_of,
    numbered_state,
    optimizer_state,
    told,
)
from rushlight.distributed.process_groups import resolved
from rushlight.distributed.tensor.dtensor import DTensor
from rushlight.nn.module import Module
from rushlight.nn.utils.clip_grad import clip_grad_norm_
from rushlight.optim.optimizer import Optimizer
from rushlight.tape.record.state import Changed, no_grad
from rushlight.tensor import Tensor

_INNER = "_fsdp_wrapped_module"
_CONFIGS: dict[StateDictType, tuple[type[StateDictConfig], type[OptimStateDictConfig]]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


class FullyShardedDataParallel(Module):
    """A module whose parameters, gradients and optimiser state are shared out over ranks.

    Args:
        module (Module): The module, which becomes `.module`.
        process_group (ProcessGroup): The ranks; of hybrid strategies a pair (parts, copies).
        sharding_strategy (ShardingStrategy): FULL_SHARD by default.
        cpu_offload (CPUOffload): Whether parts are in the host's memory.
        auto_wrap_policy (callable): Chooses the modules below that are wrapped as well.
        backward_prefetch (BackwardPrefetch): When the next unit is gathered in backward; None:
            when it is needed.
        mixed_precision (MixedPrecision): Dtypes.
        ignored_modules (iterable): Modules that stay as they are.
        param_init_fn (callable): Initialises a module that was built on the meta device.
        device_id (int or device): Where the module is moved first.
        sync_module_states (bool): Whether all ranks begin with rank 0's parameters and buffers.
        forward_prefetch (bool): Whether the next unit is gathered while a forward runs.
        limit_all_gathers (bool): Has no effect: at most one unit is gathered ahead.
        use_orig_params (bool): Has no effect: parameters have their own names and shapes.
        ignored_states (iterable): Parameters or modules that stay as they are.
        device_mesh (DeviceMesh): The ranks, in place of `process_group`.
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        if isinstance(module, FullyShardedDataParallel):
            raise ValueError("FullyShardedDataParallel: the module is wrapped already")
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        left = [*(ignored_modules or ()), *(ignored_states or ())]
        modules = {part for one in left if isinstance(one, Module) for part in one.modules()}
        kept: set[Any] = {p for part in modules for p in part.parameters()}
        kept |= {one for one in left if isinstance(one, Tensor)}
        if device_id is not None:
            module.to(f"cuda:{device_id}" if isinstance(device_id, int) else device_id)
        first = next(iter(module.parameters()), None)
        device = "cpu" if first is None else first.device.type
        ranks = groups_of(strategy, process_group, device_mesh, device)
        shared = {
            "process_group": process_group,
            "sharding_strategy": strategy,
            "cpu_offload": cpu_offload,
            "backward_prefetch": backward_prefetch,
            "mixed_precision": mixed_precision,
            "param_init_fn": param_init_fn,
            "sync_module_states": sync_module_states,
            "forward_prefetch": forward_prefetch,
            "ignored_states": list(kept),
            "device_mesh": ranks.mesh,
        }
        if auto_wrap_policy is not None:
            wrapper = partial(FullyShardedDataParallel, **shared)
            wrap_below(module, auto_wrap_policy, wrapper, modules)
        if param_init_fn is not None:
            _initialise(module, param_init_fn)
        if sync_module_states:
            _copy_from_first(module, ranks, kept)
        options = options_of(strategy, mixed_precision, backward_prefetch, forward_prefetch)
        on_host = cpu_offload is not None and cpu_offload.offload_params
        self.sharding_strategy = strategy
        self.mixed_precision = mixed_precision or MixedPrecision()
        self._modules[_INNER] = module
        if mixed_precision is not None:
            set_precision(module, mixed_precision, options)
        make_unit([self], ranks, options, kept, on_host=on_host)
        unit: Unit = self._unit
        unit.reshards = options.reshard_after_forward if strategy in KEPT_WHOLE else None
        self.process_group = ranks.group
        self._settings = StateDictSettings(
            StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig()
        )
        self.register_load_state_dict_pre_hook(_load_inside)

    # ---- the wrapped module ----

    @property
    def module(self) -> Module:
        """The wrapped module."""
        inside: Module = self._modules[_INNER]
        return inside

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _INNER:
                raise
            return getattr(self._modules[_INNER], name)

    def __getitem__(self, key: Any) -> Any:
        inside: Any = self.module
        return inside[key]

    def forward(self, *args: Any, **named: Any) -> Any:
        unit: Unit = self._unit
        return unit.call(self, self.module, args, named)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        return super()._apply(of_parts(fn), recurse)

    def apply(self, fn: Callable[[Module], Any]) -> Any:
        """Call a function with every module, while parameters are whole; changes stay."""
        with self.summon_full_params(self):
            return super().apply(fn)

    def named_parameters(self, *args: Any, **named: Any) -> Iterator[tuple[str, Any]]:
        """Parameters by name; in `summon_full_params` without the wrappers' names."""
        for name, parameter in super().named_parameters(*args, **named):
            whole = self.__dict__.get("_shows_whole")
            yield name.replace(f"{_INNER}.", "") if whole else name, parameter

    def named_buffers(self, *args: Any, **named: Any) -> Iterator[tuple[str, Any]]:
        """Buffers by name; in `summon_full_params` without the wrappers' names."""
        for name, buffer in super().named_buffers(*args, **named):
            whole = self.__dict__.get("_shows_whole")
            yield name.replace(f"{_INNER}.", "") if whole else name, buffer

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrapped modules, a module itself among them.

        Args:
            module (Module): Where to look.
            root_only (bool): Whether to leave out those inside of others.
        """
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        if not root_only:
            return found
        inside = {below for m in found for below in m.modules() if below is not m}
        return [m for m in found if m not in inside]

    def check_is_root(self) -> bool:
        """Whether no other wrapper has this one inside."""
        unit: Unit = self._unit
        return unit.is_root

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose gradients stay whole on each rank; the next pass sums them."""
        units = units_of(self)
        before = [unit.options.syncs for unit in units]
        for unit in units:
            unit.options.syncs = False
        try:
            yield
        finally:
            for unit, syncs in zip(units, before, strict=True):
                unit.options.syncs = syncs

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients so that their norm is at most `max_norm`; all ranks call it.

        Args:
            max_norm (float): The largest norm.
            norm_type (float): The exponent of the norm, or inf.
        """
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Refused: sums over ranks have one fixed order."""
        raise NotImplementedError(
            "FullyShardedDataParallel.register_comm_hook: sums over ranks have one fixed order; "
            "MixedPrecision(reduce_dtype=...) sends less"
        )

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """A block in which the parameters are whole.

        Args:
            module (Module): A wrapped module, or one that has such inside.
            recurse (bool): Whether units below are, too.
            writeback (bool): Whether changes become those of the parts.
            rank0_only (bool): Whether other ranks keep their parts; needs `writeback=False`.
            offload_to_cpu (bool): Has no effect: whole parameters are where they are used.
            with_grads (bool): Whether gradients are whole as well.
        """
        if rank0_only and writeback:
            raise NotImplementedError(
                "summon_full_params: with rank0_only and writeback ranks would differ; pass "
                "writeback=False"
            )
        units = units_of(module) if recurse else [module._unit]
        units = [unit for unit in units if not unit.is_shown]  # not those of a block around
        inside = FullyShardedDataParallel.fsdp_modules(module)
        wrapped = [one for one in inside if not one.__dict__.get("_shows_whole")]
        seen: dict[Unit, list[int]] = {}
        shows = not rank0_only or resolved().rank() == 0
        try:
            for unit in units:
                unit.fill()
                seen[unit] = [piece.whole._memory.version for piece in unit.pieces]
                if shows:
                    unit.show(whole=True)
                for piece in unit.pieces if with_grads else ():
                    part = piece.part.grad
                    piece.whole.grad = None if part is None else part.full_tensor().detach()
            for one in wrapped:
                one.__dict__["_shows_whole"] = shows
            yield
        finally:
            for one in wrapped:
                one.__dict__["_shows_whole"] = False
            for unit, versions in seen.items():
                _write_back(unit, versions, writeback, with_grads)

    # ---- states ----

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Choose what `state_dict` and `optim_state_dict` give; the settings before.

        Args:
            module (Module): A wrapped module, or one that has such inside.
            state_dict_type (StateDictType): Wholes, or parts.
            state_dict_config (StateDictConfig): Where they are.
            optim_state_dict_config (OptimStateDictConfig): The same for optimisers.
        """
        kinds = _CONFIGS[state_dict_type]
        chosen = state_dict_config or kinds[0]()
        optimiser = optim_state_dict_config or kinds[1]()
        if not isinstance(chosen, kinds[0]) or not isinstance(optimiser, kinds[1]):
            raise RuntimeError(
                f"state_dict_type: {state_dict_type.name} takes {kinds[0].__name__} and "
                f"{kinds[1].__name__}, got {type(chosen).__name__} and {type(optimiser).__name__}"
            )
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for one in FullyShardedDataParallel.fsdp_modules(module):
            one._settings = StateDictSettings(state_dict_type, chosen, optimiser)
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """What `state_dict` and `optim_state_dict` give.

        Args:
            module (Module): A wrapped module, or one that has such inside.
        """
        found = FullyShardedDataParallel.fsdp_modules(module)
        if not found:
            raise ValueError("state_dict_type: the module has no FullyShardedDataParallel inside")
        return replace(found[0]._settings)

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """A block in which `state_dict` and `optim_state_dict` give something else.

        Args:
            module (Module): A wrapped module, or one that has such inside.
            state_dict_type (StateDictType): Wholes, or parts.
            state_dict_config (StateDictConfig): Where they are.
            optim_state_dict_config (OptimStateDictConfig): The same for optimisers.
        """
        before = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for one in FullyShardedDataParallel.fsdp_modules(module):
                one._settings = before

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """The state under the wrapped module's own names; all ranks make this call."""
        if args:
            destination = args[0]
            prefix = args[1] if len(args) > 1 else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        outermost = destination is None
        for unit in units_of(self) if outermost and not self.__dict__.get("_shows_whole") else ():
            unit.show(whole=False)
        state = self.module.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        if not outermost or AS_PARTS.get():
            return state
        settings: StateDictSettings = self._settings
        config = settings.state_dict_config
        first = resolved(self.process_group).rank() == 0
        keeps = first or not getattr(config, "rank0_only", False)
        whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        for name, value in list(state.items()):
            made = told(value, whole, config.offload_to_cpu, keeps)
            if settings.state_dict_type is StateDictType.LOCAL_STATE_DICT:
                made = made._local_tensor if isinstance(made, DTensor) else made
            state[name] = made
            if not keeps:
                del state[name]
        return state

    @staticmethod
    def optim_state_dict(
        model: Module,
        optim: Optimizer,
        optim_state_dict: dict[str, Any] | None = None,
        group: Any = None,
    ) -> dict[str, Any]:
        """An optimiser's state by the names of the parameters; all ranks make this call.

        Args:
            model (Module): The wrapped model.
            optim (Optimizer): Its optimiser.
            optim_state_dict (dict): Has no effect: the optimiser's own state is read.
            group: Has no effect.
        """
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        keeps = not getattr(config, "rank0_only", False) or resolved().rank() == 0
        made = optimizer_state(
            model, optim, lambda value: told(value, whole, config.offload_to_cpu, keeps)
        )
        return made if keeps else {}

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Optimizer,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:
        """A state by names, of wholes or parts, as `optim.load_state_dict` takes it.

        Args:
            model (Module): The wrapped model.
            optim (Optimizer): Its optimiser.
            optim_state_dict (dict): What `optim_state_dict` gave, on any number of ranks.
            is_named_optimizer (bool): Has no effect.
            load_directly (bool): Whether it is loaded as well.
            group: Has no effect.
        """
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        if getattr(settings.optim_state_dict_config, "rank0_only", False):
            optim_state_dict = from_first_rank(optim_state_dict)
        made = numbered_state(model, optim, optim_state_dict)
        if load_directly:
            optim.load_state_dict(made)
            as_parts(optim)
        else:  # of the optimiser itself, where a library's wrapper was given
            for one in Optimizer.having(optim.param_groups[0]["params"][0]):
                one.register_load_state_dict_post_hook(as_parts)
        return made

    @staticmethod
    def full_optim_state_dict(
        model: Module,
        optim: Optimizer,
        optim_input: Any = None,
        rank0_only: bool = True,
        group: Any = None,
    ) -> dict[str, Any]:
        """`optim_state_dict` of whole tensors in the host's memory.

        Args:
            model (Module): The wrapped model.
            optim (Optimizer): Its optimiser.
            optim_input: Has no effect.
            rank0_only (bool): Whether other ranks get an empty state.
            group: Has no effect.
        """
        keeps = not rank0_only or resolved().rank() == 0
        made = optimizer_state(model, optim, lambda value: told(value, True, True, keeps))
        return made if keeps else {}

    @staticmethod
    def sharded_optim_state_dict(
        model: Module, optim: Optimizer, group: Any = None
    ) -> dict[str, Any]:
        """`optim_state_dict` of this rank's parts.

        Args:
            model (Module): The wrapped model.
            optim (Optimizer): Its optimiser.
            group: Has no effect.
        """
        return optimizer_state(model, optim, lambda value: told(value, False, False))

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any],
        model: Module,
        optim_input: Any = None,
        optim: Optimizer | None = None,
    ) -> dict[str, Any]:
        """A state of whole tensors as `optim.load_state_dict` takes it.

        Args:
            full_optim_state_dict (dict): The state, on every rank.
            model (Module): The wrapped model.
            optim_input: Has no effect.
            optim (Optimizer): Its optimiser.
        """
        if optim is None:
            raise ValueError("shard_full_optim_state_dict: optim= is needed")
        optim.register_load_state_dict_post_hook(as_parts)
        return numbered_state(model, optim, full_optim_state_dict)

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any] | None,
        model: Module,
        optim_input: Any = None,
        optim: Optimizer | None = None,
        group: Any = None,
    ) -> dict[str, Any]:
        """A state of whole tensors that rank 0 has, as `optim.load_state_dict` takes it.

        Args:
            full_optim_state_dict (dict): The state, on rank 0.
            model (Module): The wrapped model.
            optim_input: Has no effect.
            optim (Optimizer): Its optimiser.
            group: Has no effect.
        """
        whole = from_first_rank(full_optim_state_dict)
        return FullyShardedDataParallel.shard_full_optim_state_dict(whole, model, None, optim)

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: dict[str, Any],
        optim_state_key_type: OptimStateKeyType,
        model: Module,
        optim_input: Any = None,
        optim: Optimizer | None = None,
    ) -> dict[str, Any]:
        """A state by names as one by numbers, or the other way round.

        Args:
            optim_state_dict (dict): The state.
            optim_state_key_type (OptimStateKeyType): What the keys become.
            model (Module): The model, wrapped or not.
            optim_input: Has no effect.
            optim (Optimizer): Its optimiser; its order is the model's without it.
        """
        names = names_of(model)
        listed = (
            [names[id(p)] for group in optim.param_groups for p in group["params"]]
            if optim is not None
            else list(names.values())
        )
        by_name = optim_state_key_type is OptimStateKeyType.PARAM_NAME
        keys: dict[Any, Any] = dict(enumerate(listed))
        if not by_name:
            keys = {name: number for number, name in keys.items()}
        return {
            "state": {keys.get(key, key): kept for key, kept in optim_state_dict["state"].items()},
            "param_groups": [
                {**group, "params": [keys.get(key, key) for key in group["params"]]}
                for group in optim_state_dict["param_groups"]
            ],
        }


def _initialise(module: Module, by: Callable[[Module], None]) -> None:
    """Initialise the modules whose parameters have no elements."""
    for part in module.modules():
        own = [p for p in part._parameters.values() if p is not None]
        if any(p.device.type in ("meta", "null") for p in own):
            by(part)


def _copy_from_first(module: Module, ranks: Ranks, kept: set[Any]) -> None:
    """Rank 0's parameters and buffers, where no wrapped module below has them."""
    found, _ = places_of([module], {id(p) for p in kept})
    inside = {
        id(buffer)
        for one in FullyShardedDataParallel.fsdp_modules(module)
        for buffer in one.buffers()
    }
    buffers = [buffer for buffer in module.buffers() if id(buffer) not in inside]
    groups = [ranks.group] + ([] if ranks.replicas is None else [ranks.replicas])
    with no_grad():
        for value in [*found, *buffers]:
            for group in groups:
                plain: Any = value
                broadcast(plain.detach(), group=group, group_src=0)


def _write_back(unit: Unit, seen: Sequence[int], writeback: bool, with_grads: bool) -> None:
    """The end of a block with whole parameters: changes go to the parts, or are dropped."""
    changed = False
    for piece, version in zip(unit.pieces, seen, strict=True):
        if with_grads:
            piece.whole.grad = None
        if piece.whole._memory.version != version:
            changed = True
            if writeback:
                with Changed(**QUIET):
                    local(piece.part).copy_(piece.sharding.part(piece.whole.detach()))
    unit.show(whole=False)
    unit.free()
    if changed:
        unit.stamp = ()  # the whole parameters are made anew


def _load_inside(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Before a load: the names of the wrapped module, and parts of whole tensors."""
    for name in list(state):
        if name.startswith(prefix) and not name.startswith(f"{prefix}{_INNER}."):
            state[f"{prefix}{_INNER}.{name[len(prefix) :]}"] = state.pop(name)
    settings: StateDictSettings = module._settings
    are_parts = settings.state_dict_type is StateDictType.LOCAL_STATE_DICT
    take_parts(module, state, prefix, are_parts=are_parts)
