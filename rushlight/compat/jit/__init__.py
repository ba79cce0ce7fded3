"""PyTorch's `torch.jit`: everything stays eager, so scripting and tracing return what they get."""

import builtins
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final as Final, TypeVar

from rushlight.compat.jit import annotations as annotations
from rushlight.core.errors import RushlightError
from rushlight.core.saying import say_once
from rushlight.nn.module import Module

F = TypeVar("F")
_EAGER = "jit: {} stays eager; each call runs its Python code"
_NO_FILES = (
    "jit.{}: TorchScript programs are not supported; use save and load with a state_dict of the "
    "module"
)

Attribute = annotations.Attribute
Error = RushlightError


class ScriptFunction:
    """The class of scripted functions in PyTorch; nothing here is an instance of it."""


class ScriptModule(Module):
    """A base class of modules in older programs; a plain Module."""


class RecursiveScriptModule(ScriptModule):
    """The class of scripted modules in PyTorch; nothing here is an instance of it."""


class TracedModule(ScriptModule):
    """The class of traced modules in PyTorch; nothing here is an instance of it."""


class CompilationUnit:
    """TorchScript source text, which is not supported."""

    def __init__(self, lang: str | None = None, **named: Any) -> None:
        if lang is not None:
            raise RushlightError("jit.CompilationUnit: TorchScript source text is not supported")


def script(obj: Any, *args: Any, **named: Any) -> Any:
    """The function, class or module itself."""
    if not builtins.isinstance(obj, type):
        say_once(_EAGER.format("a scripted function or module"))
    return obj


def trace(func: Any, example_inputs: Any = None, *args: Any, **named: Any) -> Any:
    """The function or module itself."""
    say_once(_EAGER.format("a traced function or module"))
    return func


def trace_module(mod: Any, inputs: Any, *args: Any, **named: Any) -> Any:
    """The module itself."""
    return trace(mod)


def freeze(mod: Any, *args: Any, **named: Any) -> Any:
    """The module itself, in eval mode as PyTorch requires."""
    if mod.training:
        raise RuntimeError("freeze: the module must be in eval mode; call .eval() first")
    return mod


def optimize_for_inference(mod: Any, *args: Any, **named: Any) -> Any:
    """The module itself."""
    return mod


run_frozen_optimizations = optimize_for_inference


def _same(given: F) -> F:
    return given


def ignore(drop: Any = False, **named: Any) -> Any:
    """The decorated function itself; with or without parentheses."""
    return drop if callable(drop) else _same


def unused(fn: F) -> F:
    """The function itself."""
    return fn


def export(fn: F) -> F:
    """The function itself."""
    return fn


def interface(obj: F) -> F:
    """The class itself."""
    return obj


def script_if_tracing(fn: F) -> F:
    """The function itself."""
    return fn


_script_if_tracing = script_if_tracing
_overload = _overload_method = unused


def is_scripting() -> bool:
    """False: nothing is scripted."""
    return False


def is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance_(obj: Any, target_type: Any) -> bool:
    """Whether the object is of the type; PyTorch's `jit.isinstance`."""
    return builtins.isinstance(obj, getattr(target_type, "__origin__", None) or target_type)


def set_fusion_strategy(strategy: Any) -> Any:
    """Accepted: nothing is scripted."""
    return strategy


def enable_onednn_fusion(enabled: bool) -> None:
    """Accepted: nothing is scripted."""


def onednn_fusion_enabled() -> bool:
    """False: nothing is scripted."""
    return False


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A block in which nothing changes: nothing is scripted."""
    yield


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A block in which nothing changes: nothing is scripted."""
    yield


def save(m: Any, f: Any, *args: Any, **named: Any) -> None:
    """Refuses: there is no TorchScript program to save."""
    raise RushlightError(_NO_FILES.format("save"))


def load(f: Any, *args: Any, **named: Any) -> Any:
    """Refuses: a TorchScript program is code of another compiler."""
    raise RushlightError(_NO_FILES.format("load"))


def fork(func: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """The result of the call, made at once; `wait` returns it."""
    return func(*args, **named)


def wait(future: Any) -> Any:
    """The result of `fork`."""
    return future


globals()["isinstance"] = isinstance_


class TracerWarning(Warning):
    """PyTorch's warning of what a trace leaves out; never given here: nothing is traced."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Has no effect."""


class TracingCheckError(Exception):
    """PyTorch's error of a trace that does not repeat; never raised here."""


class ScriptWarning(Warning):
    """PyTorch's warning of scripting; never given here."""


TopLevelTracedModule = TracedModule


def script_method(fn: F) -> F:
    """The method itself."""
    return fn
