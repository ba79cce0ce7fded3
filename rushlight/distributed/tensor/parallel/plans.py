"""Plans: a style for each of a model's modules, by path."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.distributed.device_mesh import DeviceMesh, init_device_mesh
from rushlight.distributed.joining import get_world_size
from rushlight.distributed.tensor.parallel.styles import ParallelStyle
from rushlight.nn.module import Module


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Share a model out over the ranks of a mesh, in place. See Note [Tensor parallel].

    Args:
        module (Module): The model.
        device_mesh (DeviceMesh): A mesh of one dimension: of a larger one, `mesh["tp"]`. Without
            it, all ranks.
        parallelize_plan: A style for the module, or styles by the paths of submodules, in which
            `*` stands for any name.
        src_data_rank (int): Whose parameters they are; None: each rank takes its part of its own.
    """
    mesh = init_device_mesh("cpu", (get_world_size(),)) if device_mesh is None else device_mesh
    if mesh.ndim != 1:
        raise RushlightError(
            f"parallelize_module: a mesh of one dimension is needed, got {mesh}; slice it by name: "
            'mesh["tp"]'
        )
    if parallelize_plan is None:
        warnings.warn(
            "parallelize_module: no plan is given, so the module stays", UserWarning, stacklevel=2
        )
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(
            "parallelize_module: a plan is a ParallelStyle or a dict of them by path, got "
            f"{type(parallelize_plan).__name__}"
        )
    for path, style in parallelize_plan.items():
        if not isinstance(style, ParallelStyle):
            raise TypeError(f"parallelize_module: {path!r} has no ParallelStyle but {style!r}")
        found = _at(module, path.split(".") if path else [])
        if not found:
            warnings.warn(
                f"parallelize_module: the model has no module {path!r}", UserWarning, stacklevel=2
            )
        for inner in found:
            style.src_data_rank = src_data_rank
            style._apply(inner, mesh)
    return module


def _at(module: Module, atoms: list[str]) -> list[Module]:
    """The submodules at a path, whose atoms may be patterns."""
    if not atoms:
        return [module]
    found: list[Any] = []
    for name, inner in module.named_children():
        if fnmatchcase(name, atoms[0]):
            found += _at(inner, atoms[1:])
    return found


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A block for `cross_entropy` of logits whose classes are shared out, and its backward.

    Such logits are never gathered, here or elsewhere: each rank sums its classes, and the sums are
    added over ranks. The block changes nothing and is there for programs that have it.
    """
    yield
