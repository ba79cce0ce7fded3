"""PyTorch's files whose names lie in other files here, and modules with nothing but a few names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

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
    "cuda.memory": "rushlight.cuda",
    "cuda.random": "rushlight.cuda",
    "cuda.graphs": "rushlight.cuda",
    "distributed._tensor": "rushlight.distributed.tensor",
    "distributed._functional_collectives": "rushlight.distributed.functional_collectives",
    "distributed.checkpoint.default_planner": "rushlight.distributed.checkpoint",
    "distributed.checkpoint.filesystem": "rushlight.distributed.checkpoint",
    "distributed.checkpoint.hf_storage": "rushlight.distributed.checkpoint",
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


def add_files(path: str, module: ModuleType) -> None:
    """Give a module those of PyTorch's files beneath it that it has no name for."""
    names = {*vars(module), *dir(module)}
    for inner in FORWARDED:
        above, _, leaf = inner.rpartition(".")
        if above == path and leaf not in names:
            setattr(module, leaf, forwarded(inner))


def forwarded(path: str, function: Any = None) -> ModuleType | None:
    """The module of PyTorch's path, with the names of those that have them.

    The import system puts it in the place of a function of the same name, for which it is called.
    """
    sources = FORWARDED.get(path)
    if sources is None:
        return None
    owns = [importlib.import_module(source) for source in sources.split()]
    kind = ModuleType if function is None else _Callable
    made = kind(f"rushlight.compat.{path}", f"PyTorch's `torch.{path}`: names of {sources}.")

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise MissingName(made.__name__, name)
        for own in owns[:-1]:
            if hasattr(own, name):
                return getattr(own, name)
        return getattr(owns[-1], name)

    names = sorted({name for own in owns for name in dir(own)})
    vars(made).update(__path__=[], __getattr__=find, __dir__=lambda: names)
    if function is not None:
        vars(made)["function"] = function
    return made
