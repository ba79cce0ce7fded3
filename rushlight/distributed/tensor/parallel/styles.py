"""How one module is shared out: what becomes of its parameters, inputs and outputs.

# Note [Tensor parallel]
1. A style makes a module's parameters DTensors, and hooks that make its inputs DTensors and its
   outputs DTensors of a layout, or parts of them. What is between is the module's own forward: its
   ops run on parts, by the rules of their families (Note [Rules of families]).
2. A column-wise layer after another's replicated output and a row-wise one behind it need one sum
   over ranks in forward, and one in backward. Sums go by the fixed tree (Note [Sums of ranks]), so
   a run repeats its bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.tensor.dtensor import DTensor
from rushlight.distributed.tensor.making import distribute_tensor, replicate_rest, set_parameter
from rushlight.distributed.tensor.placements import Placement, Replicate, Shard
from rushlight.nn.embedding import Embedding
from rushlight.nn.linear import Linear
from rushlight.nn.module import Module
from rushlight.tensor import Tensor

Kinds = dict[str, Placement]  # placements of parameters, by name


class ParallelStyle:
    """How a module is shared out over a mesh of one dimension."""

    src_data_rank: int | None = 0

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        raise NotImplementedError(f"{type(self).__name__} does not say how to share a module out")


def _placed(given: Any, mesh: DeviceMesh, lies: Placement | None, wanted: Placement | None) -> Any:
    """A tensor as a DTensor: how it lies, and how it shall lie; None leaves it as it is."""
    if not isinstance(given, Tensor) or lies is None:
        return given
    made = given if isinstance(given, DTensor) else DTensor.from_local(given, mesh, (lies,))
    if wanted is None:
        return made
    return made.redistribute(placements=(wanted,))


def _left(made: Any, wanted: Placement | None, local: bool) -> Any:
    """An output under a placement, or this rank's part of it."""
    if not isinstance(made, DTensor):
        return made
    placed = made if wanted is None else made.redistribute(placements=(wanted,))
    return placed.to_local() if local else placed


def _share_out(module: Module, mesh: DeviceMesh, kinds: Kinds, source: int | None) -> None:
    """Make a module's own parameters DTensors."""
    own: list[tuple[str, Any]] = list(module.named_parameters(recurse=False))
    for name, parameter in own:
        kind = kinds.get(name)
        if kind is None or isinstance(parameter, DTensor):
            continue
        placed = distribute_tensor(parameter, mesh, (kind,), src_data_rank=source)
        set_parameter(module, name, placed)


class _Layers(ParallelStyle):
    """A style of layers with a weight; `layouts` gives the parameters' and the input's."""

    def __init__(
        self,
        input_layouts: Placement,
        output_layouts: Placement,
        use_local_output: bool,
    ) -> None:
        self.input_layouts = input_layouts
        self.output_layouts = output_layouts
        self.use_local_output = use_local_output

    def layouts(self, module: Module) -> tuple[Kinds, Placement]:
        """Placements of the parameters, and of the input that they need."""
        raise NotImplementedError(type(self).__name__)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        kinds, needed = self.layouts(module)
        _share_out(module, device_mesh, kinds, self.src_data_rank)
        replicate_rest(module, device_mesh)

        def enter(_: Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
            first = _placed(given[0], device_mesh, self.input_layouts, needed)
            return (first, *given[1:])

        def leave(_: Module, given: Any, made: Any) -> Any:
            return _left(made, self.output_layouts, self.use_local_output)

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
        return module


class ColwiseParallel(_Layers):
    """A Linear's output features, or an Embedding's, are shared out over ranks.

    Args:
        input_layouts (Placement): How the input lies; replicated without it.
        output_layouts (Placement): How the output shall lie; Shard(-1) without it.
        use_local_output (bool): Whether the output is this rank's part, not a DTensor.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output
        )

    def layouts(self, module: Module) -> tuple[Kinds, Placement]:
        if isinstance(module, Linear):
            return {"weight": Shard(0), "bias": Shard(0)}, Replicate()
        if isinstance(module, Embedding):
            return {"weight": Shard(1)}, Replicate()
        raise RushlightError(
            f"ColwiseParallel: for Linear and Embedding, not for {type(module).__name__}"
        )


class RowwiseParallel(_Layers):
    """A Linear's input features, or the rows of an Embedding, are shared out over ranks.

    Args:
        input_layouts (Placement): How the input lies; Shard(-1) of a Linear and replicated of an
            Embedding without it.
        output_layouts (Placement): How the output shall lie; replicated without it.
        use_local_output (bool): Whether the output is this rank's part, not a DTensor.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output
        )

    def layouts(self, module: Module) -> tuple[Kinds, Placement]:
        if isinstance(module, Linear):
            return {"weight": Shard(1), "bias": Replicate()}, Shard(-1)
        if isinstance(module, Embedding):
            return {"weight": Shard(0)}, Replicate()
        raise RushlightError(
            f"RowwiseParallel: for Linear and Embedding, not for {type(module).__name__}"
        )


class SequenceParallel(ParallelStyle):
    """A module whose input is shared out along the sequence: LayerNorm, RMSNorm, Dropout.

    Its parameters are replicated; their gradients are sums over ranks.

    Args:
        sequence_dim (int): The dimension that is shared out.
        use_local_output (bool): Whether the output is this rank's part, not a DTensor.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence = Shard(sequence_dim)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        kinds: Kinds = {name: Replicate() for name, _ in module.named_parameters(recurse=False)}
        _share_out(module, device_mesh, kinds, self.src_data_rank)
        replicate_rest(module, device_mesh)

        def enter(_: Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
            return (_placed(given[0], device_mesh, self.sequence, self.sequence), *given[1:])

        def leave(_: Module, given: Any, made: Any) -> Any:
            return _left(made, None, self.use_local_output)

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
        return module


# ---- inputs and outputs of a module ----


def _several(name: str, layouts: Any) -> tuple[Any, ...]:
    if layouts is None or isinstance(layouts, Placement):
        return (layouts,)
    if not isinstance(layouts, (tuple, list)):
        raise TypeError(f"{name}: layouts are a placement or a tuple of them, got {layouts!r}")
    return tuple(layouts)


def _same_number(name: str, first: Sequence[Any], second: Sequence[Any]) -> None:
    if len(first) != len(second):
        raise ValueError(f"{name}: {len(first)} layouts and {len(second)} desired ones")


class PrepareModuleInput(ParallelStyle):
    """A module's inputs become DTensors and are redistributed.

    Args:
        input_layouts (Placement): How each positional input lies; None leaves it as it is.
        desired_input_layouts (Placement): How each shall lie.
        input_kwarg_layouts (dict): How inputs given by name lie.
        desired_input_kwarg_layouts (dict): How these shall lie.
        use_local_output (bool): Whether the module gets this rank's parts, not DTensors.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | Sequence[Placement | None] | None = None,
        desired_input_layouts: Placement | Sequence[Placement | None] | None = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = _several("PrepareModuleInput", input_layouts)
        self.desired_input_layouts = _several("PrepareModuleInput", desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        _same_number("PrepareModuleInput", self.input_layouts, self.desired_input_layouts)
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise ValueError("PrepareModuleInput: layouts and desired ones have other names")

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepared(given: Any, lies: Any, wanted: Any) -> Any:
            made = _placed(given, device_mesh, lies, wanted)
            return _left(made, None, self.use_local_output) if lies is not None else made

        def enter(_: Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            if self.input_layouts != (None,):
                if len(args) != len(self.input_layouts):
                    raise ValueError(
                        f"PrepareModuleInput: {len(args)} inputs, {len(self.input_layouts)} layouts"
                    )
                pairs = zip(args, self.input_layouts, self.desired_input_layouts, strict=True)
                args = tuple(prepared(*pair) for pair in pairs)
            more = dict(named)
            for key, lies in self.input_kwarg_layouts.items():
                if key in more:
                    wanted = self.desired_input_kwarg_layouts[key]
                    more[key] = prepared(more[key], lies, wanted)
            return args, more

        module.register_forward_pre_hook(enter, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """A module's outputs become DTensors and are redistributed.

    Args:
        output_layouts (Placement): How each output lies; None leaves it as it is.
        desired_output_layouts (Placement): How each shall lie.
        use_local_output (bool): Whether outputs are this rank's parts, not DTensors.
    """

    def __init__(
        self,
        *,
        output_layouts: Placement | Sequence[Placement | None],
        desired_output_layouts: Placement | Sequence[Placement | None],
        use_local_output: bool = True,
    ) -> None:
        self.output_layouts = _several("PrepareModuleOutput", output_layouts)
        self.desired_output_layouts = _several("PrepareModuleOutput", desired_output_layouts)
        self.use_local_output = use_local_output
        _same_number("PrepareModuleOutput", self.output_layouts, self.desired_output_layouts)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def leave(_: Module, given: Any, made: Any) -> Any:
            outputs = made if isinstance(made, (tuple, list)) else (made,)
            if len(outputs) != len(self.output_layouts):
                raise ValueError(
                    f"PrepareModuleOutput: {len(outputs)} outputs, {len(self.output_layouts)} "
                    "layouts"
                )
            found = []
            layouts = zip(outputs, self.output_layouts, self.desired_output_layouts, strict=True)
            for output, lies, wanted in layouts:
                placed = _placed(output, device_mesh, lies, wanted)
                found.append(placed if lies is None else _left(placed, None, self.use_local_output))
            return type(made)(found) if isinstance(made, (tuple, list)) else found[0]

        module.register_forward_hook(leave)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` of one module.

    Args:
        input_layouts (Placement): How each positional input lies.
        desired_input_layouts (Placement): How each shall lie.
        input_kwarg_layouts (dict): How inputs given by name lie.
        desired_input_kwarg_layouts (dict): How these shall lie.
        use_local_input (bool): Whether the module gets this rank's parts, not DTensors.
        output_layouts (Placement): How each output lies.
        desired_output_layouts (Placement): How each shall lie.
        use_local_output (bool): Whether outputs are this rank's parts, not DTensors.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | Sequence[Placement | None] | None = None,
        desired_input_layouts: Placement | Sequence[Placement | None] | None = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Placement | Sequence[Placement | None],
        desired_output_layouts: Placement | Sequence[Placement | None],
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
