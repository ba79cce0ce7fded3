"""PyTorch's files whose names lie in other files here, and modules with nothing but a few names."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rushlight.compat.refused import REFUSED, refusal
from rushlight.lazy import MissingName

_OPTIMISERS = (
    "adadelta adafactor adagrad adamax adamw asgd nadam radam rmsprop rprop sparse_adam _muon"
)
_DISTRIBUTIONS = (
    "bernoulli beta binomial cauchy chi2 continuous_bernoulli dirichlet exp_family exponential "
    "fishersnedecor gamma generalized_pareto geometric gumbel half_cauchy half_normal independent "
    "inverse_gamma kumaraswamy laplace lkj_cholesky log_normal logistic_normal "
    "lowrank_multivariate_normal mixture_same_family multinomial "
    "negative_binomial normal one_hot_categorical pareto poisson relaxed_bernoulli "
    "relaxed_categorical studentT transformed_distribution uniform von_mises weibull"
)
# By PyTorch's path, the modules here that have names which PyTorch's has besides.
_MORE = {
    "utils.data": (
        "rushlight.compat.utils.data.datapipes._decorator "
        "rushlight.compat.utils.data.datapipes.datapipe"
    ),
    "distributed.tensor.experimental": "rushlight.compat.distributed.tensor.experimental._func_map",
}
# By PyTorch's path, the module here that has its names.
FORWARDED: dict[str, str] = {
    "_tensor": "rushlight",
    "_utils": "rushlight.compat.tensor_lists",
    "functional": "rushlight",
    "_lowrank": "rushlight",
    "_linalg_utils": "rushlight.linalg",
    "amp.autocast_mode": "rushlight.amp",
    "amp.grad_scaler": "rushlight.amp",
    "cuda.amp.autocast_mode": "rushlight.cuda.amp",
    "cuda.amp.grad_scaler": "rushlight.cuda.amp",
    "cuda.memory": "rushlight.cuda rushlight.memory",
    "cuda.random": "rushlight.cuda",
    "cuda.graphs": "rushlight.cuda",
    "distributed._tensor": "rushlight.distributed.tensor",
    "distributed._functional_collectives": "rushlight.distributed.functional_collectives",
    "distributed.checkpoint.default_planner": "rushlight.distributed.checkpoint",
    "distributed.checkpoint.filesystem": "rushlight.distributed.checkpoint",
    "distributed.checkpoint.hf_storage": "rushlight.distributed.checkpoint",
    "distributed.checkpoint.metadata": "rushlight.distributed.checkpoint.planners",
    "distributed.checkpoint.planner": "rushlight.distributed.checkpoint.planners",
    "distributed.checkpoint.state_dict_loader": "rushlight.distributed.checkpoint",
    "distributed.checkpoint.state_dict_saver": "rushlight.distributed.checkpoint",
    "distributed.constants": "rushlight.distributed",
    "distributed.utils": "rushlight.distributed.copying",
    "distributed.elastic": "rushlight.distributed.records",
    "distributed.elastic.multiprocessing": "rushlight.distributed.records",
    "distributed.elastic.multiprocessing.errors": "rushlight.distributed.records",
    "distributed.tensor.device_mesh": "rushlight.distributed.device_mesh",
    "distributed._tensor.device_mesh": "rushlight.distributed.device_mesh",
    "distributed.tensor._utils": "rushlight.distributed.tensor.layout",
    "distributed.tensor.placement_types": "rushlight.distributed.tensor.placements",
    "distributed._tensor.placement_types": "rushlight.distributed.tensor.placements",
    "nn.common_types": "rushlight.compat.types",
    "cuda.nccl": "rushlight.cuda",
    "cpu.amp": "rushlight.cuda.amp",
    "cpu.amp.autocast_mode": "rushlight.cuda.amp",
    "cpu.amp.grad_scaler": "rushlight.cuda.amp",
    "multiprocessing.pool": "rushlight.compat.multiprocessing",
    "multiprocessing.queue": "rushlight.compat.multiprocessing",
    "multiprocessing.spawn": "rushlight.compat.multiprocessing",
    "nn.parallel.comm": "rushlight.nn.data_parallel",
    "nn.parallel.data_parallel": "rushlight.nn.data_parallel",
    "nn.parallel.parallel_apply": "rushlight.nn.data_parallel",
    "nn.parallel.replicate": "rushlight.nn.data_parallel",
    "nn.utils.spectral_norm": "rushlight.nn.utils rushlight.nn.utils.weight_hooks",
    "nn.utils.weight_norm": "rushlight.nn.utils rushlight.nn.utils.weight_hooks rushlight",
    "profiler.profiler": "rushlight.profiler",
    "signal.windows.windows": "rushlight.signal.windows",
    "nn.utils.fusion": "rushlight.nn.utils.fusing",
    "nn.utils.memory_format": "rushlight.nn.utils.fusing",
    "nn.utils.init": "rushlight.nn.utils.fusing",
    "utils.data._utils": "rushlight.utils.data",
    "utils.data._utils.collate": "rushlight.utils.data.collate",
    "utils.data._utils.worker": "rushlight.utils.data.worker",
    "distributions.multivariate_normal": (
        "rushlight.distributions rushlight.distributions.constraints "
        "rushlight.distributions.utils rushlight.distributions.multivariate"
    ),
    "_VF": "rushlight",
    "_lobpcg": "rushlight",
    "_ops": "rushlight.compat.aten",
    "_streambase": "rushlight",
    "_vmap_internals": "rushlight.func",
    "accelerator.memory": "rushlight.accelerator",
    "multiprocessing._atfork": "rushlight.compat.multiprocessing_after_fork",
    "distributed.tensor.debug._comm_mode": "rushlight.compat.distributed.tensor.debug",
    "autograd.profiler_legacy": "rushlight.profiler.legacy",
    "cuda.comm": "rushlight.compat.nn.parallel._functions",
    "distributed.checkpoint.storage": "rushlight.distributed.checkpoint",
    "distributed.checkpoint.staging": "",
    "distributed.fsdp._fully_shard": "rushlight.distributed.fsdp",
    "distributed.fsdp._fully_shard._fsdp_api": "rushlight.distributed.fsdp",
    "distributed.fsdp._fully_shard._fsdp_state": "rushlight.distributed.fsdp",
    "distributed.fsdp._fully_shard._fully_shard": "rushlight.distributed.fsdp",
    "distributed.nn.api": "",
    "distributed.optim.post_localSGD_optimizer": "rushlight.distributed.optim",
    "distributed.optim.zero_redundancy_optimizer": "rushlight.distributed.optim",
    "distributed.pipelining._IR": "rushlight.distributed.pipelining",
    "distributed.pipelining._utils": "",
    "distributed.pipelining.stage": "rushlight.distributed.pipelining",
    "distributed.tensor._api": "rushlight.distributed.tensor",
    "distributed.tensor.experimental._context_parallel": "",
    "distributed.tensor.parallel.api": "rushlight.distributed.tensor.parallel",
    "distributed.tensor.parallel.loss": "rushlight.distributed.tensor.parallel",
    "distributed.tensor.parallel.style": "rushlight.distributed.tensor.parallel",
    "export.dynamic_shapes": "rushlight.compat.export",
    "export.exported_program": "rushlight.compat.export",
    "fx._compatibility": "rushlight.compat.fx._symbolic_trace",
    "optim._adafactor": "rushlight.optim",
    "testing._comparison": "rushlight.testing rushlight.testing.comparing",
    "testing._creation": "rushlight.testing rushlight.testing.making",
    "utils.benchmark.utils.compare": "rushlight.compat.utils.benchmark.compare",
    "utils.benchmark.utils.timer": "rushlight.compat.utils.benchmark.timer",
    **{
        f"utils.data.datapipes.iter.{name}": "rushlight.compat.utils.data.datapipes.iter.reading"
        for name in ("filelister", "fileopener", "streamreader")
    },
    **{
        f"utils.data.datapipes.map.{name}": "rushlight.compat.utils.data.datapipes.map.pipes"
        for name in ("callable", "combinatorics", "combining", "grouping", "utils")
    },
    **{f"optim.{name}": "rushlight.optim" for name in _OPTIMISERS.split()},
    **{
        f"distributions.{name}": (
            "rushlight.distributions rushlight.distributions.constraints "
            "rushlight.distributions.utils"
        )
        for name in _DISTRIBUTIONS.split()
    },
}


class _Callable(ModuleType):
    """A file of PyTorch whose name is also that of a function: `nn.utils.weight_norm`."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)


@functools.cache
def _beneath() -> dict[str, set[str]]:
    """By PyTorch's path, the names of the modules that are only here."""
    found: dict[str, set[str]] = {}
    here = Path(__file__).parent
    files = (file.relative_to(here).with_suffix("").parts for file in here.rglob("*.py"))
    owned = (parts[: -1 if parts[-1] == "__init__" else None] for parts in files)
    for path in (*FORWARDED, *REFUSED, *map(".".join, owned)):
        above, _, leaf = path.rpartition(".")
        found.setdefault(above, set()).add(leaf)
    return found


def add_files(path: str, module: ModuleType) -> None:
    """Give a module those of PyTorch's files beneath it that it has no name for, when asked for."""
    beneath, more = _beneath().get(path, set()), _MORE.get(path, "").split()
    before: Callable[[str], Any] | None = vars(module).get("__getattr__")
    if not (beneath or more) or hasattr(before, "files"):
        return

    def find(name: str) -> Any:
        try:
            if before is not None:
                return before(name)
            raise MissingName(module.__name__, name)
        except AttributeError:
            for source in [] if name.startswith("_") else more:
                other = importlib.import_module(source)
                if hasattr(other, name):
                    return vars(module).setdefault(name, getattr(other, name))
            if name not in beneath:
                raise
        inner = f"{path}.{name}"
        found = forwarded(inner) or importlib.import_module(f"rushlight.compat.{inner}")
        return vars(module).setdefault(name, found)

    find.files = beneath  # type: ignore[attr-defined]
    vars(module)["__getattr__"] = find


@functools.cache
def forwarded(path: str, function: Any = None) -> ModuleType | None:
    """The module of PyTorch's path, with the names of those that have them.

    The import system puts it in the place of a function of the same name, for which it is called.
    """
    if path not in FORWARDED and path not in REFUSED:
        return None
    sources = FORWARDED.get(path, "").split()
    reason, names = REFUSED.get(path, ("", ""))
    refused = names.split()
    kind = ModuleType if function is None else _Callable
    told = f"names of {' '.join(sources)}" if sources else reason
    made = kind(f"rushlight.compat.{path}", f"PyTorch's `torch.{path}`: {told}.")

    def find(name: str) -> Any:
        missing: AttributeError = MissingName(made.__name__, name)
        if name.startswith("__"):
            raise missing
        for source in sources:
            try:
                return getattr(importlib.import_module(source), name)
            except AttributeError as error:
                missing = error
        if name in refused:
            return vars(made).setdefault(name, refusal(path, name, reason))
        raise missing

    def listed() -> list[str]:
        return sorted({*refused, *(n for s in sources for n in dir(importlib.import_module(s)))})

    vars(made).update(__path__=[], __getattr__=find, __dir__=listed)
    if function is not None:
        vars(made)["function"] = function
    return made
