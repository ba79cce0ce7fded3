"""PyTorch's `torch.backends`: switches of its libraries.

A switch that describes what is always so here (deterministic) has that value; setting another
value, or a switch without a meaning, is accepted and said once. TF32 of convolutions is a switch
with an effect.
"""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.core.precision import allow_tf32, allows_tf32
from rushlight.core.saying import say_once
from rushlight.lazy import MissingName
from rushlight.nn import attention_backends

Live = tuple[Callable[[], Any], Callable[[Any], None]]


class Switches(ModuleType):
    """One library's switches: values that are kept, functions, and switches with an effect.

    `live` has a function that reads and one that sets each of the last.
    """

    def __init__(
        self,
        name: str,
        values: dict[str, Any],
        functions: dict[str, Callable[..., Any]],
        live: dict[str, Live],
    ) -> None:
        super().__init__(f"{__name__}.{name}", f"PyTorch's `torch.backends.{name}`.")
        vars(self).update(values, __path__=[], **functions)
        vars(self).update(_values=dict(values), _live=live)

    def __setattr__(self, name: str, value: Any) -> None:
        live = vars(self).get("_live", {})
        if name in live:
            live[name][1](value)
            return
        given = vars(self).get("_values", {})
        if name in given and value != given[name]:
            short = self.__name__.removeprefix("rushlight.compat.")
            say_once(f"{short}.{name} = {value!r} is accepted and has no effect")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        live = vars(self).get("_live", {})
        if name in live:
            return live[name][0]()
        raise MissingName(self.__name__, name)


def _known(answer: Any) -> Callable[..., Any]:
    def function(*args: Any, **named: Any) -> Any:
        return answer

    return function


def _flags_of(name: str) -> Callable[..., Any]:
    """The block `flags(benchmark=True)`, which puts the values back at its end."""

    @contextlib.contextmanager
    def flags(**given: Any) -> Iterator[None]:
        module = sys.modules[f"{__name__}.{name}"]
        before = {key: getattr(module, key, None) for key in given}
        for key, value in given.items():
            setattr(module, key, value)
        try:
            yield
        finally:
            for key, value in before.items():
                setattr(module, key, value)

    return flags


def _set_flags_of(name: str, keys: str) -> Callable[..., tuple[Any, ...]]:
    """`set_flags(_enabled=..., ...)`, which sets what is given and returns the values before."""
    order = keys.split()

    def set_flags(*args: Any, **given: Any) -> tuple[Any, ...]:
        module = sys.modules[f"{__name__}.{name}"]
        before = tuple([getattr(module, key) for key in order])
        given |= {f"_{key}": value for key, value in zip(order, args, strict=False)}
        unknown = given.keys() - {f"_{key}" for key in order}
        if unknown or len(args) > len(order):
            raise TypeError(f"backends.{name}.set_flags: takes _{', _'.join(order)}")
        for key in order:
            if given.get(f"_{key}") not in (None, "none"):
                setattr(module, key, given[f"_{key}"])
        return before

    return set_flags


def _library(
    name: str,
    values: dict[str, Any] | None = None,
    functions: dict[str, Any] | None = None,
    live: dict[str, Live] | None = None,
) -> Switches:
    functions = {"flags": _flags_of(name), **(functions or {})}
    made = Switches(name, values or {}, functions, live or {})
    sys.modules[made.__name__] = made
    return made


def _attention_switch(backend: str) -> dict[str, Callable[..., Any]]:
    """`flash_sdp_enabled()` and `enable_flash_sdp(on)`: every backend is one kernel here."""
    on = [True]

    def enable(enabled: bool) -> None:
        on[0] = enabled
        say_once("backends.cuda: attention has one kernel; switches of kernels have no effect")

    return {f"{backend}_sdp_enabled": lambda: on[0], f"enable_{backend}_sdp": enable}


_BLAS = ["default"]


def preferred_blas_library(backend: Any = None) -> str:
    """The library for matrix products, which is chosen by the device; a wish has no effect."""
    if backend is not None:
        say_once(f"backends: a preferred library ({backend!r}) has no effect")
    return _BLAS[0]


def _convolution_precision() -> str:
    return "tf32" if allows_tf32("convolution") else "ieee"


def _set_convolution_precision(precision: str) -> None:
    if precision not in ("tf32", "ieee", "none"):
        raise RushlightError(
            f"backends.cudnn.conv.fp32_precision: 'tf32', 'ieee' or 'none', got {precision!r}"
        )
    allow_tf32("convolution", precision != "ieee")


cudnn = _library(
    "cudnn",
    {
        "enabled": True,
        "benchmark": False,
        "benchmark_limit": 10,
        "deterministic": True,
        "fp32_precision": "ieee",
    },
    {
        "is_available": _known(False),
        "version": _known(None),
        "is_acceptable": _known(False),
        "set_flags": _set_flags_of(
            "cudnn", "enabled benchmark benchmark_limit deterministic allow_tf32 fp32_precision"
        ),
    },
    {"allow_tf32": (partial(allows_tf32, "convolution"), partial(allow_tf32, "convolution"))},
)
cudnn.conv = _library(
    "cudnn.conv", live={"fp32_precision": (_convolution_precision, _set_convolution_precision)}
)
cudnn.rnn = _library("cudnn.rnn", {"fp32_precision": "ieee"})
cuda = _library(
    "cuda",
    {},
    {
        "is_built": _known(True),
        "preferred_linalg_library": preferred_blas_library,
        "preferred_blas_library": preferred_blas_library,
        "preferred_rocm_fa_library": preferred_blas_library,
        "can_use_flash_attention": _known(False),
        "can_use_efficient_attention": _known(False),
        "can_use_cudnn_attention": _known(False),
        "is_flash_attention_available": _known(False),
        "sdp_kernel": lambda *a, **b: contextlib.nullcontext(),
        "SDPBackend": attention_backends.SDPBackend,
        **_attention_switch("flash"),
        **_attention_switch("math"),
        **_attention_switch("mem_efficient"),
        **_attention_switch("cudnn"),
    },
)
cuda.matmul = _library(
    "cuda.matmul",
    {
        "allow_tf32": False,
        "allow_fp16_reduced_precision_reduction": False,
        "allow_bf16_reduced_precision_reduction": False,
        "allow_fp16_accumulation": False,
        "fp32_precision": "ieee",
    },
)
cuda.cufft_plan_cache = _library("cuda.cufft_plan_cache", {"max_size": 0, "size": 0})
cpu = _library("cpu", {}, {"get_cpu_capability": lambda: platform.machine()})
mps = _library(
    "mps",
    {},
    {
        "is_available": _known(False),
        "is_built": _known(False),
        "is_macos13_or_newer": _known(False),
        "is_macos_or_newer": _known(False),
    },
)
mkl = _library("mkl", {}, {"is_available": _known(False), "VERBOSE_OFF": 0, "VERBOSE_ON": 1})
mkldnn = _library(
    "mkldnn",
    {"enabled": False, "deterministic": True, "allow_tf32": False, "fp32_precision": "ieee"},
    {"is_available": _known(False), "VERBOSE_OFF": 0, "VERBOSE_ON": 1},
)
openmp = _library("openmp", {}, {"is_available": _known(True)})
opt_einsum = _library(
    "opt_einsum", {"enabled": True, "strategy": "auto"}, {"is_available": _known(True)}
)
quantized = _library("quantized", {"engine": "none", "supported_engines": ["none"]})
nnpack = _library(
    "nnpack",
    {"enabled": False},
    {"is_available": _known(False), "set_flags": _set_flags_of("nnpack", "enabled")},
)
xnnpack = _library("xnnpack", {"enabled": False})
kleidiai = _library("kleidiai", {}, {"is_available": _known(False)})
cusparselt = _library("cusparselt", {}, {"is_available": _known(False), "version": _known(None)})
miopen = _library("miopen", {"immediate": False})
mha = _library(
    "mha", {}, {"get_fastpath_enabled": _known(False), "set_fastpath_enabled": _known(None)}
)
fp32_precision = "ieee"


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
