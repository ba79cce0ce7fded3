"""`import torch` is Rushlight: the finder of `rushlight run`, `as_torch` and `patch`.

# Note [Import hook]
1. A finder at the head of `sys.meta_path` answers for `torch` and every `torch.*`; PyTorch on the
   disk is never looked for. `torch` is a module of its own, for it has PyTorch's version; its names
   are those of `rushlight`, stored at their first use.
2. `torch.a.b` is the module object `rushlight.a.b`; where there is none, `rushlight.compat.a.b`.
   So `torch.nn.Linear is rushlight.nn.Linear`. A name that is a function is never made a module.
3. The import system gives a module the spec of the name it was found under; the loader puts the
   module's own spec back.
4. `importlib.metadata` finds a distribution `torch` here: libraries ask it for the version.
5. "cuda" stands for the chosen accelerator, which `torch.accelerator` is too, "meta" for the device
   `null`. What `device.type` shows are PyTorch's names, and classes of values have PyTorch's names
   and modules (`io.names.shown`). The accelerator is opened when a program
   first asks for it.
6. `as_torch` refuses where PyTorch is loaded: code of PyTorch that imports its own parts late would
   get these. `patch` puts PyTorch's modules aside for a block, which should run no code of it.
7. `import torch` puts modules into `sys.modules` that programs look up there and that load fast.
8. A child process gets the hook through `compat/child/sitecustomize.py`, which `rushlight run` puts
   on PYTHONPATH.
9. `from torch.a import b` asks the module object for `b`, and `rushlight.a` has no such file where
   it lies elsewhere here: `files.add_files` gives the object a `__getattr__` that loads it.
"""

from __future__ import annotations

import email.message
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from rushlight import accelerator
from rushlight.compat import version
from rushlight.compat.files import FORWARDED, add_files, forwarded
from rushlight.compat.refused import REFUSED
from rushlight.core import config, dtypes
from rushlight.core.cache import forget
from rushlight.devices.shared.registry import (
    accelerators,
    is_number,
    kind_of,
    numbered,
    parted,
    pool_of,
)
from rushlight.io.names import shown
from rushlight.lazy import MissingName
from rushlight.ops.create import creation

CHOICES = ("auto", "cpu", *accelerators())

_PACKAGE = "rushlight"
_WHOLE = {"torch.optim"}  # libraries read its `__dict__`, which must have the lazy names
_PROGRAMS = {  # modules that `python -m` runs
    "torch.distributed.launch",
    "torch.distributed.run",
    "torch.utils.collect_env",
    "torch.utils.show_pickle",
}
_AT_START = (
    "nn nn.functional nn.init nn.parameter utils utils.data autograd cuda linalg fft special "
    "random backends jit overrides multiprocessing serialization storage types version"
)


class Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata` says of `torch`."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            said = email.message.Message()
            said["Metadata-Version"] = "2.1"
            said["Name"] = "torch"
            said["Version"] = version.__version__
            said["Summary"] = "PyTorch's names, served by Rushlight"
            return str(said)
        return "torch\n" if filename == "top_level.txt" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        return importlib.util.resolve_name(".", "torch")


class Finder(MetaPathFinder, Loader):
    """Serves `torch` and its submodules. See Note [Import hook]."""

    def __init__(self) -> None:
        self.own_specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "torch" or served(fullname) is None:
            return None
        programs = fullname in _PROGRAMS  # `python -m` looks for `__main__` in a package
        return ModuleSpec(fullname, self, origin="rushlight", is_package=not programs)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module = served(spec.name)
        self.own_specs[spec.name] = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if not hasattr(module, "__path__"):
            module.__path__ = []  # so that compat's modules may be found below it
        found = module.__spec__
        own = self.own_specs.pop(found.name, None) if found is not None else None
        module.__spec__ = own or found
        if found is not None and found.name != "torch":
            add_files(found.name.removeprefix("torch."), module)
        if found is not None and found.name in _WHOLE:
            for name in module.__all__:
                getattr(module, name)
        if found is not None and found.name == "torch":
            for name in _AT_START.split():
                importlib.import_module(f"torch.{name}")

    def get_code(self, fullname: str) -> CodeType | None:
        """The code that `python -m` runs."""
        own = getattr(served(fullname), "__spec__", None)
        code: CodeType | None = None if own is None else own.loader.get_code(own.name)
        return code

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        """The distribution `torch`, where it or all are asked for."""
        name = getattr(context, "name", None)
        return [Distribution()] if name is None or name.lower() == "torch" else []


FINDER = Finder()


@functools.cache
def face() -> ModuleType:
    """The module `torch`."""
    own = importlib.import_module(_PACKAGE)
    made = ModuleType("torch", own.__doc__)
    vars(made).update(
        __version__=version.__version__,
        __file__=own.__file__,
        __path__=[],
        __all__=own.__all__,
        version=version,
        torch=made,
        __dir__=lambda: sorted({*dir(own), *vars(made)}),
    )

    def find(name: str) -> Any:
        try:
            found = getattr(own, name)
        except MissingName:
            found = forwarded(name)
            if found is None:
                raise MissingName("torch", name) from None
        if isinstance(found, ModuleType):
            add_files(name, found)
        return vars(made).setdefault(name, found)

    vars(made)["__getattr__"] = find
    return made


def served(fullname: str) -> ModuleType | None:
    """The module that stands for `torch` or `torch.a.b`; None where there is none."""
    if fullname == "torch":
        return face()
    above, _, leaf = fullname.rpartition(".")
    loaded = sys.modules.get(above) if FINDER in sys.meta_path else None  # else PyTorch's own
    holder = loaded or served(above)
    found = getattr(holder, leaf, None)
    inner = fullname.removeprefix("torch.")
    if isinstance(found, ModuleType) and (
        (inner not in FORWARDED and inner not in REFUSED)
        or found.__name__ == f"rushlight.compat.{inner}"
    ):
        return found
    if isinstance(found, SimpleNamespace):
        made = ModuleType(f"rushlight.compat.{inner}")
        vars(made).update(vars(found))
        return made
    if inner in FORWARDED or inner in REFUSED:
        return forwarded(inner, found if isinstance(found, FunctionType) else None)
    names = [f"{_PACKAGE}.compat.{inner}"] if found is not None else []
    for name in names or [f"{_PACKAGE}.{inner}", f"{_PACKAGE}.compat.{inner}"]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
    return None


# ---- devices ----

_CHOSEN = ["auto"]


def is_choice(device: str) -> bool:
    """Whether "cuda" can stand for a device: one of CHOICES, or "webgpu:1" and the like."""
    kind, _, number = device.partition(":")
    # "cuda" is number 0 of cards: Note [Numbered devices] 3. CUDA_VISIBLE_DEVICES chooses another.
    known = kind in accelerators() and kind_of(kind).several and kind != "cuda"
    return device in CHOICES or (known and is_number(number))


@functools.cache
def _best() -> str:
    """The accelerator; without one "cuda", which tells why it cannot be used."""
    return accelerator.best() or "cuda"


def _card() -> str:
    """The device that "cuda" stands for; one that cannot be used where the CPU was chosen."""
    if _CHOSEN[-1] == "cpu":
        return creation.HIDDEN
    chosen = _best() if _CHOSEN[-1] == "auto" else _CHOSEN[-1]
    kind = parted(chosen)[0]
    creation.SHOWN_AS[kind] = "cuda"
    return numbered(kind, creation.CURRENT.get(kind, 0))


# ---- the hook in place and out ----


class patch:
    """Serve `torch` by Rushlight in this process, from the call on; in a `with`, until its end.

    Modules of PyTorch that are loaded are put aside, and back at the end of the block.

    Args:
        device (str): What "cuda" stands for: "cuda" or "webgpu"; "cpu" hides accelerators; "auto"
            is a CUDA card, else a WebGPU GPU, else none. RUSHLIGHT_TORCH is the default.
    """

    def __init__(self, device: str | None = None) -> None:
        chosen = device or config.torch_device()
        kind, number = parted(chosen) if is_choice(chosen) else ("", 0)
        if not kind:
            raise ValueError(f"patch: device is one of {', '.join(CHOICES)}; got {chosen!r}")
        if chosen not in ("auto", "cpu"):
            pool_of(chosen)  # a device that is not there is an error here
        self.current = dict(creation.CURRENT)
        if number:
            creation.CURRENT[kind] = number
        self.aside = _take_out()
        self.shown = dict(creation.SHOWN_AS)
        self.stands_for = dict(creation.STANDS_FOR)
        _CHOSEN.append(chosen)
        creation.STANDS_FOR["cuda"] = _card
        forget()  # calls with device="cuda" are kept by that name
        dtypes.SHOWN_PACKAGE.append("torch")
        self.classes = shown()
        creation.SHOWN_AS.update({"null": "meta", creation.HIDDEN: "cuda"})
        if FINDER not in sys.meta_path:
            sys.meta_path.insert(0, FINDER)
        self.outer = len(_CHOSEN) > 2

    def __enter__(self) -> ModuleType:
        return importlib.import_module("torch")

    def __exit__(self, *_: object) -> None:
        _CHOSEN.pop()
        dtypes.SHOWN_PACKAGE.pop()
        self.classes.end()
        creation.CURRENT.clear()
        creation.CURRENT.update(self.current)
        creation.SHOWN_AS.clear()
        creation.SHOWN_AS.update(self.shown)
        creation.STANDS_FOR.clear()
        creation.STANDS_FOR.update(self.stands_for)
        forget()
        if not self.outer:
            sys.meta_path.remove(FINDER)
            _take_out()
            sys.modules.update(self.aside)


def refuse_pytorch() -> None:
    """An error where PyTorch itself is loaded. See Note [Import hook] 6."""
    loaded = sys.modules.get("torch")
    if loaded is not None and loaded is not face():
        raise ImportError(
            "rushlight.as_torch: PyTorch was imported before it (by "
            f"{getattr(loaded, '__file__', None) or 'this program'}); import rushlight.as_torch "
            "first, or start the program with `rushlight run`",
            name="torch",
        )


def _take_out() -> dict[str, ModuleType]:
    """Take the modules of `torch` out of `sys.modules`, unless they are these."""
    if sys.modules.get("torch") is face() and FINDER in sys.meta_path:
        return {}
    names = [name for name in sys.modules if name.partition(".")[0] == "torch"]
    return {name: sys.modules.pop(name) for name in names}
