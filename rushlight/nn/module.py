"""Module: named parameters, buffers and submodules around a `forward`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from rushlight.core import dtypes
from rushlight.core.dtypes import DType
from rushlight.core.saying import say_once
from rushlight.nn.conversion import parse_to
from rushlight.nn.hooks import ON_CALL, ON_MEMBER, BeforeLoading, admitted, call_with_hooks
from rushlight.nn.members import (
    BUFFER,
    MODULE,
    PARAMETER,
    PLACES,
    Members,
    Place,
    bind,
    check_name,
    look_up,
    unbind_functions,
)
from rushlight.nn.module_repr import show_module
from rushlight.nn.parameter import Buffer, Parameter, UninitializedBuffer, replace_content
from rushlight.nn.pickling import completed
from rushlight.nn.states import LoadedKeys, load_own, load_state, read_state, save_own
from rushlight.ops.create import like
from rushlight.tape.record.hook_tables import add_to
from rushlight.tape.record.source_line import CALLED, Entry
from rushlight.tape.record.state import no_grad
from rushlight.tensor import RemovableHandle, Tensor

M = TypeVar("M", bound="Module")
T_destination = TypeVar("T_destination", bound=dict[str, Any])


class Module:
    """The base of layers: assign parameters and modules as attributes, define `forward`."""

    training: bool
    T_destination = T_destination  # PyTorch's annotations have it
    # See Note [Members].
    _parameters = Place()
    _buffers = Place()
    _modules = Place()
    _non_persistent_buffers_set: set[str]
    # Hooks by number, and of which of them something is true. PyTorch's names: libraries read them.
    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _backward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _backward_hooks: OrderedDict[int, Callable[..., Any]]
    _is_full_backward_hook: bool | None
    _state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _state_dict_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]
    _version = 1
    dump_patches = False  # for programs that set it; sources are not kept
    call_super_init = (
        False  # whether classes after Module in the order of bases are initialised too
    )

    def __init__(self, *args: Any, **named: Any) -> None:
        if (args or named) and not self.call_super_init:
            given = f"{len(args)} positional arguments" if args else f"{next(iter(named))!r}"
            raise TypeError(
                f"{type(self).__name__}.__init__: Module takes no arguments, got {given}"
            )
        own = self.__dict__
        owner = ref(self) if type(self).__getattr__ is look_up else None
        own.update(
            training=True,
            _parameters=Members((), owner),
            _buffers=Members((), owner),
            _modules=Members((), owner),
            _non_persistent_buffers_set=set(),
            _forward_pre_hooks=OrderedDict(),
            _forward_pre_hooks_with_kwargs=OrderedDict(),
            _forward_hooks=OrderedDict(),
            _forward_hooks_with_kwargs=OrderedDict(),
            _forward_hooks_always_called=OrderedDict(),
            _backward_pre_hooks=OrderedDict(),
            _backward_hooks=OrderedDict(),
            _is_full_backward_hook=None,
            _state_dict_pre_hooks=OrderedDict(),
            _state_dict_hooks=OrderedDict(),
            _load_state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_post_hooks=OrderedDict(),
        )
        if self.call_super_init:
            super().__init__(*args, **named)

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        unbind_functions(cls)
        if "_call_impl" in vars(cls) and cls.__call__ is _CALL:
            cls.__call__ = _call_by_impl  # type: ignore[method-assign, assignment]

    def forward(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Any, **named: Any) -> Any:
        before = CALLED.get()  # See Note [Source lines]
        own = (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
        )
        try:  # Ctrl-C after the next call must not leave it changed
            if own or ON_CALL:
                CALLED.set((before, ref(self), None))
                return call_with_hooks(self, args, named)
            CALLED.set((before, ref(self), None if self._modules else []))
            return self.forward(*args, **named)
        finally:
            CALLED.set(before)

    # PyTorch's parts of a call, for libraries that call or exchange them.
    _call_impl = _wrapped_call_impl = __call__

    def _slow_forward(self, *args: Any, **named: Any) -> Any:
        """`forward`, as PyTorch calls it while it traces."""
        return self.forward(*args, **named)

    _compiled_call_impl = None  # `compile` leaves calls eager

    def compile(self, *args: Any, **named: Any) -> None:
        """Accept what `torch.compile` takes: the module stays eager, and it is said once."""
        say_once("compile: functions and modules stay eager; the options have no effect")

    def _replicate_for_data_parallel(self: M) -> M:
        """A copy with the same members in dicts of its own, which are no parameters of its."""
        made = self.__new__(type(self))
        made.__dict__.update(self.__dict__)
        for place in PLACES.values():
            made.__dict__[place] = dict(self.__dict__[place])
        made.__dict__["_parameters"] = {}
        bind(made)
        made.__dict__["_is_replica"] = True
        return made

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; a result that is not None replaces args."""
        said = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return add_to(self._forward_pre_hooks, hook, prepend, said)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, result)` after forward.

        a result that is not None replaces it.
        """
        said = [self._forward_hooks_with_kwargs] if with_kwargs else []
        said += [self._forward_hooks_always_called] if always_call else []
        return add_to(self._forward_hooks, hook, prepend, said)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` with the inputs' gradients.

        It may return other gradients.
        """
        self._is_full_backward_hook = True
        return add_to(self._backward_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` with the results' gradients; it may return others."""
        return add_to(self._backward_pre_hooks, hook, prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the module's part of state_dict is read."""
        return add_to(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after state_dict is read."""

        def alone(*given: Any) -> None:
            if hook(*given) is not None:
                raise RuntimeError(
                    "a hook after state_dict gives nothing: it may change the state in place"
                )

        return self._register_state_dict_hook(alone)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As `register_state_dict_post_hook`; a result that is not None replaces the state."""
        return add_to(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a hook before loading.

        The call is `hook(module, state_dict, prefix, metadata, strict, missing, unexpected,
        errors)`.
        """
        return add_to(self._load_state_dict_pre_hooks, BeforeLoading(hook, self))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading.

        It may remove keys from the lists.
        """
        return add_to(self._load_state_dict_post_hooks, hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """The older name; `hook` gets the module only with `with_module`."""
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return add_to(self._load_state_dict_pre_hooks, BeforeLoading(hook))

    # ---- members ----

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
    else:
        __getattr__ = look_up

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        kind = None
        if isinstance(value, Module):
            kind = MODULE
        elif isinstance(value, Tensor):
            if isinstance(value, Parameter):
                kind = PARAMETER
            elif isinstance(value, (Buffer, UninitializedBuffer)):
                kind = BUFFER
        if "_parameters" not in own:
            if kind is not None:
                raise AttributeError(
                    f"{type(self).__name__}: call super().__init__() before assigning {name!r}"
                )
            object.__setattr__(self, name, value)
        elif kind is not None:
            self._put(kind, name, value)
        elif name in own["_parameters"] or name in own["_buffers"] or name in own["_modules"]:
            self._exchange(name, value)
        else:
            object.__setattr__(self, name, value)
            if name == "__class__":
                bind(self)

    def _put(self, kind: str, name: str, value: Any) -> None:
        """Make a value a member, in the place of any attribute of that name."""
        own = self.__dict__
        members = getattr(self, PLACES[kind])
        for place in PLACES.values():
            if name in own[place] and place != PLACES[kind]:
                del own[place][name]
        if kind == PARAMETER and type(self).register_parameter is not _REGISTER_PARAMETER:
            if name not in own["_parameters"]:
                own.pop(name, None)
            self.register_parameter(name, value)
            return
        value = admitted(self, kind, name, value) if ON_MEMBER else value
        own.pop(name, None)
        members[name] = value
        own["_non_persistent_buffers_set"].discard(name)
        if kind == BUFFER and not getattr(value, "persistent", True):
            own["_non_persistent_buffers_set"].add(name)

    def _exchange(self, name: str, value: Any) -> None:
        """Assign what is no parameter and no module to the name of a member."""
        own = self.__dict__
        kind = next(kind for kind, place in PLACES.items() if name in own[place])
        if value is not None and not (kind == BUFFER and isinstance(value, Tensor)):
            wanted = {PARAMETER: "an nn.Parameter", BUFFER: "a tensor", MODULE: "a Module"}[kind]
            raise TypeError(
                f"{type(self).__name__}.{name} is a {kind}: assign {wanted} or None, got "
                f"{type(value).__name__}"
            )
        if kind == PARAMETER and type(self).register_parameter is not _REGISTER_PARAMETER:
            self.register_parameter(name, None)
            return
        admit = admitted(self, kind, name, value) if ON_MEMBER else value
        getattr(self, PLACES[kind])[name] = admit

    def __delattr__(self, name: str) -> None:
        for place in PLACES.values():
            if name in self.__dict__[place]:
                del getattr(self, place)[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = self.__dict__
        own.update(completed(state))
        bind(self)
        for name in self._pytorch_attributes():
            own.pop(name, None)

    def _pytorch_attributes(self) -> dict[str, Any]:
        """The attributes that PyTorch's class has and this one lacks: Note [Modules in files]."""
        return {}

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        check_name(self, name, PARAMETER)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"register_parameter: {name!r} must be an nn.Parameter or None, got "
                f"{type(param).__name__}"
            )
        if ON_MEMBER and param is not None:
            param = admitted(self, PARAMETER, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a tensor that is part of the state but is not learned.

        `persistent=False` keeps it out of state_dict.
        """
        check_name(self, name, BUFFER)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"register_buffer: {name!r} must be a tensor or None, got {type(tensor).__name__}"
            )
        self._buffers[name] = admitted(self, BUFFER, name, tensor)
        self._non_persistent_buffers_set.discard(name)
        if not persistent:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        check_name(self, name, MODULE)
        if module is not None and not isinstance(module, Module):
            raise TypeError(
                f"add_module: {name!r} must be a Module or None, got {type(module).__name__}"
            )
        self._modules[name] = admitted(self, MODULE, name, module)

    register_module = add_module

    def _members(self, kind: str) -> list[tuple[str, Any]]:
        return list(self.__dict__[PLACES[kind]].items())

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        """What a function gives of each module, under full names."""
        seen: set[int] = set()
        walk = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in walk if recurse else [(prefix, self)]:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    # ---- iteration ----

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, parents first; `memo` has those that were seen."""
        seen = {id(module) for module in memo or ()}  # a class may define == without a hash
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if remove_duplicate and id(module) in seen:
                continue
            seen.add(id(module))
            if memo is not None:
                memo.add(module)
            yield path, module
            dot = f"{path}." if path else ""
            below = [
                (f"{dot}{name}", child)
                for name, child in module._members(MODULE)
                if child is not None
            ]
            stack.extend(reversed(below))

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        found = self.named_modules(remove_duplicate=remove_duplicate)
        return (module for _, module in found)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen: set[int] = set()
        for name, child in self._members(MODULE):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        return (child for _, child in self.named_children())

    def _named(
        self, kind: str, prefix: str, recurse: bool, once: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        walk = self.named_modules(prefix=prefix, remove_duplicate=once)
        for path, module in walk if recurse else [(prefix, self)]:
            dot = f"{path}." if path else ""
            for name, value in module._members(kind):
                if value is None or (once and id(value) in seen):
                    continue
                seen.add(id(value))
                yield f"{dot}{name}", value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        return self._named(PARAMETER, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        kind = type(self)
        if (
            kind.named_parameters is not Module.named_parameters
            or kind.named_modules is not Module.named_modules
        ):
            return (value for _, value in self.named_parameters(recurse=recurse))
        return self._each_parameter(recurse)

    def _each_parameter(self, recurse: bool) -> Iterator[Parameter]:
        """The values of `named_parameters`."""
        seen: set[int] = set()
        stack = [self]
        while stack:
            module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            own = module.__dict__
            for member in own["_parameters"].values():
                if member is not None and id(member) not in seen:
                    seen.add(id(member))
                    yield member
            below = own["_modules"]
            if recurse and below:
                stack.extend(m for m in reversed(below.values()) if m is not None)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named(BUFFER, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (value for _, value in self._named(BUFFER, "", recurse, True))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as "blocks.0.norm"; the empty path is this module."""
        module: Module = self
        for name in target.split(".") if target else ():
            below = module.__dict__["_modules"].get(name)
            if below is None:
                raise AttributeError(
                    f"{type(module).__name__} has no submodule {name!r} (looking for {target!r})"
                )
            module = below
        return module

    def _get_member(self, target: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        members = module.__dict__[PLACES[kind]]
        if name not in members:
            raise AttributeError(
                f"{type(module).__name__} has no {kind} {name!r} (looking for {target!r})"
            )
        return members[name]

    def get_parameter(self, target: str) -> Parameter:
        return self._get_member(target, PARAMETER)

    def get_buffer(self, target: str) -> Tensor:
        return self._get_member(target, BUFFER)

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Set the module at a path; with `strict` there must be one already."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError("set_submodule: the path must not be empty")
        holder = self.get_submodule(path)
        if strict and name not in holder.__dict__["_modules"]:
            raise AttributeError(
                f"{type(holder).__name__} has no submodule {name!r} (looking for {target!r})"
            )
        if not isinstance(module, Module):
            raise ValueError(
                f"set_submodule: {target!r} must be a Module, got {type(module).__name__}"
            )
        setattr(holder, name, module)

    # ---- changes of all modules ----

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call `fn` on every module below and then on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self: M, mode: bool = True) -> M:
        if not isinstance(mode, bool):
            raise ValueError(f"Module.train: mode is True or False, got {type(mode).__name__}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: M) -> M:
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        for value in self.parameters():
            value.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for value in self.parameters():
            if value.grad is not None:
                if set_to_none:
                    value.grad = None
                else:
                    value.grad = value.grad.detach().zero_()

    def _apply(self: M, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
        """Replace the content of each parameter and buffer by `fn` of it.

        Parameters stay the same objects.
        """
        for child in self.children() if recurse else ():
            child._apply(fn)
        with no_grad():
            for _, value in self._members(PARAMETER):
                if value is None:
                    continue
                gradient = value.grad
                replace_content(value, fn(value.detach()))
                if gradient is not None:
                    value.grad = fn(gradient)
            for name, value in self._members(BUFFER):
                if value is not None:
                    self._buffers[name] = fn(value)
        return self

    def to(self: M, *args: Any, **named: Any) -> M:
        """Move to a device, or cast floating-point and complex parameters and buffers.

        Calls are to(device), to(dtype), to(device, dtype) and to(tensor).
        """
        return self._apply(parse_to(*args, **named).convert)

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """New parameters and buffers on a device, with uninitialised memory."""
        make = partial(like.empty_like, device=device)
        return self._apply(make, recurse)

    def type(self: M, dst_type: DType) -> M:
        """Cast all parameters and buffers."""
        return self._apply(lambda value: value.to(dst_type))

    def share_memory(self: M) -> M:
        """Move parameters and buffers to memory shared with other processes."""
        return self._apply(lambda value: value.share_memory_())

    def _cast_reals(self: M, dtype: DType) -> M:
        return self._apply(lambda value: value.to(dtype) if value.dtype.kind == "f" else value)

    def float(self: M) -> M:
        return self._cast_reals(dtypes.float32)

    def double(self: M) -> M:
        return self._cast_reals(dtypes.float64)

    def half(self: M) -> M:
        return self._cast_reals(dtypes.float16)

    def bfloat16(self: M) -> M:
        return self._cast_reals(dtypes.bfloat16)

    def cpu(self: M) -> M:
        return self.to("cpu")

    def cuda(self: M, device: Any = None) -> M:
        return self._on("cuda", device)

    def xpu(self: M, device: Any = None) -> M:
        return self._on("xpu", device)

    def _on(self: M, kind: str, device: Any) -> M:
        if device is None or isinstance(device, int):
            device = kind if device is None else f"{kind}:{device}"
        return self.to(device)

    # ---- state ----

    def get_extra_state(self) -> Any:
        """The state that state_dict holds beside parameters and buffers.

        A class that has such state defines this and `set_extra_state`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no extra state")

    def set_extra_state(self, state: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no extra state")

    def state_dict(
        self, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by full name; they share the module's memory.

        See Note [States].
        """
        return read_state(self, destination, prefix, keep_vars)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """This module's own part of the state; a class may override it."""
        save_own(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own part of a state; a class may override it."""
        load_own(
            self,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> LoadedKeys:
        """Copy values in by name; with `assign`, use the given tensors themselves.

        With `strict` the names must match exactly.
        """
        return load_state(self, state_dict, strict, assign)

    # ---- printing ----

    def extra_repr(self) -> str:
        """The text between the parentheses, before the submodules."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return show_module(self)


_CALL = Module.__call__
_REGISTER_PARAMETER = Module.register_parameter  # a library may exchange it


def _call_by_impl(module: Module, *args: Any, **named: Any) -> Any:
    """`__call__` of a class with a `_call_impl` of its own."""
    return module._call_impl(*args, **named)


Entry.code = Module.__call__.__code__  # see Note [Source lines] 4
